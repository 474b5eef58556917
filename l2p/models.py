"""Models: the loss of one row, over a flat parameter vector."""

import abc
import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

#: Value of the constant column that carries the intercept. Half a unit keeps its share of a row's norm small,
#: so that per-row clipping spends its room on the features.
INTERCEPT_COLUMN = 0.5


class Model(abc.ABC):
    """A model with flat parameters. Instances are hashable: they are static under `jax.jit`."""

    name: ClassVar[str]
    kind: ClassVar[str]

    @abc.abstractmethod
    def num_params(self, num_features: int) -> int:
        """Length of the flat parameter vector for rows of `num_features` features."""

    @abc.abstractmethod
    def loss(self, params: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        """Loss of one row: params f32[p], x f32[d], y f32[] -> f32[]."""

    @abc.abstractmethod
    def predict(self, params: jax.Array, x: jax.Array) -> jax.Array:
        """Predicted labels: params f32[p], x f32[n, d] -> f32[n]."""

    def init(self, num_features: int) -> jax.Array:
        """The public starting point: zeros f32[p]."""
        return jnp.zeros(self.num_params(num_features), jnp.float32)


class GeneralizedLinear(Model):
    """A model whose loss depends on a row through one margin: x . w + INTERCEPT_COLUMN * b, params = (w, b).

    Per-row gradients are multiples of the row itself, which is what makes clipping them closed-form.

    Attributes:
      lipschitz: the largest |residual| at any margin, for labels in [0, 1]; infinite if there is none.
      smoothness: the largest curvature at any margin; infinite if there is none.
    """

    lipschitz: ClassVar[float]
    smoothness: ClassVar[float]

    @abc.abstractmethod
    def margin_loss(self, margin: jax.Array, y: jax.Array) -> jax.Array:
        """Loss as a function of the margin, elementwise."""

    @abc.abstractmethod
    def residual(self, margin: jax.Array, y: jax.Array) -> jax.Array:
        """Derivative of `margin_loss` in the margin, elementwise."""

    @abc.abstractmethod
    def curvature(self, margin: jax.Array, y: jax.Array) -> jax.Array:
        """Second derivative of `margin_loss` in the margin, elementwise."""

    def num_params(self, num_features: int) -> int:
        return num_features + 1

    def margin(self, params: jax.Array, x: jax.Array) -> jax.Array:
        """Margins: params f32[d + 1], x f32[n, d] -> f32[n]."""
        return x @ params[:-1] + INTERCEPT_COLUMN * params[-1]

    def margins(self, candidates: jax.Array, x: jax.Array) -> jax.Array:
        """Margins of several params: f32[k, d + 1], x f32[n, d] -> f32[k, n]."""
        return candidates[:, :-1] @ x.T + INTERCEPT_COLUMN * candidates[:, -1:]

    def loss(self, params: jax.Array, x: jax.Array, y: jax.Array) -> jax.Array:
        return self.margin_loss(x @ params[:-1] + INTERCEPT_COLUMN * params[-1], y)


@dataclasses.dataclass(frozen=True)
class Logistic(GeneralizedLinear):
    """Binary logistic regression, labels 0 and 1.

    >>> import jax.numpy as jnp
    >>> round(float(Logistic().loss(jnp.zeros(3), jnp.ones(2), jnp.array(1.0))), 4)
    0.6931
    """

    name: ClassVar[str] = "logistic"
    kind: ClassVar[str] = "binary"
    lipschitz: ClassVar[float] = 1.0
    smoothness: ClassVar[float] = 0.25

    def margin_loss(self, margin: jax.Array, y: jax.Array) -> jax.Array:
        return jax.nn.softplus(margin) - y * margin

    def residual(self, margin: jax.Array, y: jax.Array) -> jax.Array:
        return jax.nn.sigmoid(margin) - y

    def curvature(self, margin: jax.Array, y: jax.Array) -> jax.Array:
        return jax.nn.sigmoid(margin) * jax.nn.sigmoid(-margin)

    def predict(self, params: jax.Array, x: jax.Array) -> jax.Array:
        return (self.margin(params, x) > 0).astype(jnp.float32)


MODELS: dict[str, Model] = {"logistic": Logistic()}
