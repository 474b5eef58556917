"""Sums of clipped per-row gradients, and the norm of such a sum."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import optax

from l2p.base import struct
from l2p.base.compiled import as_one
from l2p.models import MIN_NORM, Model
from l2p.privacy.events import Adjacency
from l2p.queries.base import Query, limit_norm, positive, within
from l2p.task.exact_sums import MARGIN, ExactSum, Quantized, QuantizedRows, value_of
from l2p.task.feature_map import FeatureMap
from l2p.task.noise import Noise
from l2p.task.rows import Rows


@struct.dataclass
class ClippedGradient(Query):
    """Sum over rows of the loss's gradient, each clipped to `clip_norm`, with Gaussian noise (Abadi et al. 2016).

    Attributes:
      model: the model (static).
      params: f32[p], parameters for mapped rows; released or public.
      features: the map that rows are read through.
      clip_norm: f32[], L2 bound on one row's gradient; above 0.
      noise_multiplier: f32[], noise standard deviation over the sensitivity.
    """

    model: Model = struct.field(pytree_node=False)
    params: jax.Array
    features: FeatureMap
    clip_norm: jax.Array
    noise_multiplier: jax.Array
    name: ClassVar[str] = "clipped_gradient"
    mechanism: ClassVar[str] = "gaussian"
    is_plain_sum: ClassVar[bool] = True
    is_gradient: ClassVar[bool] = True
    of_loss: ClassVar[bool] = True

    @property
    @as_one
    def bound(self) -> jax.Array:
        return within(self.clip_norm, positive(self.clip_norm))

    def contributions(self, rows: Rows) -> jax.Array:
        return self.model.gradients(self.params, self.features.apply(rows.x), rows.y)

    def limit(self, contributions: jax.Array) -> jax.Array:
        finite = jnp.isfinite(jnp.square(contributions).sum(-1, keepdims=True))
        parts = self.model.limited_apart(jnp.where(finite, contributions, 0.0))
        return jnp.concatenate([limit_norm(part, share * self.bound) for part, share in parts], -1)

    def empty(self) -> jax.Array:
        return jnp.zeros_like(self.params)

    def add(self, aggregate: jax.Array, rows: Rows) -> jax.Array:
        return aggregate + self.model.clipped_gradient_sum(self.params, rows, self.features, self.clip_norm)

    def exact(self, rows: QuantizedRows) -> Quantized:
        def factor(norms: jax.Array) -> jax.Array:
            return jnp.minimum(1.0, self.clip_norm / jnp.maximum(norms, MIN_NORM))

        return self.model.exact_gradient_sum(self.params, rows.map(self.features), factor, self.bound)


#: The longest sum, in bounds, whose norm or eigenvalue is released; no table has as many rows.
MAX_BOUNDS = 2.0**30


def rounding(size: int) -> float:
    """The most that float64 and the grid add, in bounds, to a row's effect on a function of a sum of `size` numbers."""
    return MARGIN + 2.0**-19 + (size + 4) * 2.0**-23


@struct.dataclass
class GradientNorm(Query):
    """L2 norm of the clipped gradient sum, with Gaussian noise: f32[1].

    The norm of a sum moves by at most one row's bound, so this direct query needs no batch size; Algorithm 2 of Hong
    et al. (2021) asks for the square, whose sensitivity grows with the batch. A norm is not exact in float64. It is
    limited to 2^30 bounds, more than any table reaches, so its error is at most (p + 4) 2^-54 of that, plus half a step
    of the grid that it is rounded to.

    Attributes:
      gradient: the gradient query whose aggregate is measured; its own noise is not added.
      noise_multiplier: f32[], noise standard deviation over the sensitivity.
    """

    gradient: ClippedGradient
    noise_multiplier: jax.Array
    name: ClassVar[str] = "gradient_norm"
    mechanism: ClassVar[str] = "gaussian"
    of_loss: ClassVar[bool] = True

    @property
    def bound(self) -> jax.Array:
        return self.gradient.bound * (1.0 + rounding(self.gradient.params.shape[0]))

    @property
    def clip_norm(self) -> jax.Array:
        return self.gradient.clip_norm

    def contributions(self, rows: Rows) -> jax.Array:
        return self.gradient.contributions(rows)

    def limit(self, contributions: jax.Array) -> jax.Array:
        return self.gradient.limit(contributions)

    def empty(self) -> jax.Array:
        return self.gradient.empty()

    def add(self, aggregate: jax.Array, rows: Rows) -> jax.Array:
        return self.gradient.add(aggregate, rows)

    def exact(self, rows: QuantizedRows) -> Quantized:
        return self.gradient.exact(rows)

    def release(self, aggregate: jax.Array | ExactSum, noise: Noise, adjacency: Adjacency) -> jax.Array:
        norm = jnp.minimum(optax.safe_norm(value_of(aggregate), 1e-12), MAX_BOUNDS * self.clip_norm)
        return super().release(noise.on_grid(norm[None]), noise, adjacency)
