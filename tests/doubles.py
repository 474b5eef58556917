"""Models that several tests train, beside those that ship."""

import dataclasses
import math
from typing import ClassVar

import jax.numpy as jnp

from l2p.models import GeneralizedLinear, Model


@dataclasses.dataclass(frozen=True)
class HuberSVM(GeneralizedLinear):
    """Hinge loss with its kink rounded over a width of 1, labels 0 and 1."""

    name: ClassVar[str] = "svm"
    kind: ClassVar[str] = "binary"
    lipschitz: ClassVar[float] = 1.0
    smoothness: ClassVar[float] = 1.0

    def _gap(self, margin, y):
        return 1 - (2 * y - 1) * margin

    def margin_loss(self, margin, y):
        gap = self._gap(margin, y)
        return jnp.where(gap > 0.5, gap, jnp.where(gap < -0.5, 0.0, jnp.square(gap + 0.5) / 2))

    def residual(self, margin, y):
        return -(2 * y - 1) * jnp.clip(self._gap(margin, y) + 0.5, 0.0, 1.0)

    def curvature(self, margin, y):
        return jnp.square(2 * y - 1) * (jnp.abs(self._gap(margin, y)) < 0.5)

    def predict(self, params, x):
        return (self.margin(params, x) > 0).astype(jnp.float32)


class Hinge(HuberSVM):
    name = "hinge"
    smoothness = math.inf


class Square(GeneralizedLinear):
    """Half the squared error of the margin."""

    name = "square"
    kind = "regression"
    lipschitz = math.inf
    smoothness = 1.0

    def margin_loss(self, margin, y):
        return jnp.square(margin - y) / 2

    def residual(self, margin, y):
        return margin - y

    def curvature(self, margin, y):
        return jnp.ones_like(margin)

    def predict(self, params, x):
        return self.margin(params, x)


class Perceptron(Model):
    """No generalized linear model."""

    name = "mlp"
    kind = "binary"

    def num_params(self, num_features):
        return num_features

    def loss(self, params, x, y):
        return jnp.zeros(())

    def predict(self, params, x):
        return x[:, 0]


#: Models that a proof for smooth losses with bounded gradients does not cover, and what the refusal says of each.
UNCOVERED = {
    "hinge": (Hinge(), "hinge has a loss whose gradient jumps"),
    "square": (Square(), "square has a loss whose gradient is unbounded"),
    "mlp": (Perceptron(), "mlp is no generalized linear model"),
}
