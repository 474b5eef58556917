"""Binary logistic regression."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from l2p.models.base import softplus
from l2p.models.linear import GeneralizedLinear


@dataclasses.dataclass(frozen=True)
class Logistic(GeneralizedLinear):
    """Binary logistic regression, labels 0 and 1.

    >>> import jax.numpy as jnp
    >>> round(float(Logistic().loss(jnp.zeros(3), jnp.ones(2), jnp.array(1.0))), 4)
    0.6931
    """

    name: ClassVar[str] = "logistic"
    kinds: ClassVar[tuple[str, ...]] = ("binary",)
    gives_probabilities: ClassVar[bool] = True
    lipschitz: ClassVar[float] = 1.0
    smoothness: ClassVar[float] = 0.25

    def typical_slope(self, kind: str) -> float:
        del kind
        return 0.5

    def typical_curvature(self, kind: str) -> float:
        del kind
        return self.smoothness

    def base_margin(self, rates: jax.Array) -> jax.Array:
        return jnp.log(rates[1]) - jnp.log(rates[0])

    def margin_loss(self, margin: jax.Array, y: jax.Array) -> jax.Array:
        return softplus(margin) - y * margin

    def class_scores(self, params: jax.Array, x: jax.Array) -> jax.Array:
        return jax.nn.sigmoid(super().class_scores(params, x))

    def residual(self, margin: jax.Array, y: jax.Array) -> jax.Array:
        return jax.nn.sigmoid(margin) - y

    def curvature(self, margin: jax.Array, y: jax.Array) -> jax.Array:
        return jax.nn.sigmoid(margin) * jax.nn.sigmoid(-margin)
