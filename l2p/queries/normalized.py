"""Sums of normalised per-row gradients: automatic clipping, without a threshold to choose."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.models import MIN_NORM, Model
from l2p.queries.base import Query, positive, within
from l2p.task.exact_sums import Quantized, QuantizedRows
from l2p.task.feature_map import FeatureMap
from l2p.task.rows import Rows


@struct.dataclass
class NormalizedGradient(Query):
    """Sum over rows of clip_norm * g / (||g|| + stability), with Gaussian noise (Bu, Wang, Zha & Karypis 2023, AUTO-S).

    Every row contributes nearly the same length, at most `clip_norm`, whatever the length of its gradient. That bound
    only rescales the answer together with its noise; schedulers may set it, and otherwise it is 1. For large
    `stability` the answer tends to clip_norm / stability times the plain gradient sum.

    Attributes:
      model: the model (static).
      params: f32[p], parameters for mapped rows; released or public.
      features: the map that rows are read through.
      clip_norm: f32[], the length to which long gradients are scaled; above 0.
      stability: f32[], at least 0; a gradient of this length contributes half of `clip_norm`. A negative one would make
        short gradients long without bound.
      noise_multiplier: f32[], noise standard deviation over the sensitivity.
    """

    model: Model = struct.field(pytree_node=False)
    params: jax.Array
    features: FeatureMap
    clip_norm: jax.Array
    stability: jax.Array
    noise_multiplier: jax.Array
    name: ClassVar[str] = "normalized_gradient"
    mechanism: ClassVar[str] = "gaussian"
    is_plain_sum: ClassVar[bool] = True
    is_gradient: ClassVar[bool] = True
    of_loss: ClassVar[bool] = True

    @property
    def bound(self) -> jax.Array:
        return within(self.clip_norm, positive(self.clip_norm), self.stability >= 0)

    def contributions(self, rows: Rows) -> jax.Array:
        return self.model.gradients(self.params, self.features.apply(rows.x), rows.y)

    def _factor(self, norms: jax.Array) -> jax.Array:
        """Factors f[n] for gradients of these L2 norms f[n]."""
        return self.clip_norm / (jnp.maximum(norms, MIN_NORM) + self.stability)

    def limit(self, contributions: jax.Array) -> jax.Array:
        """Each line of f[b, p] normalised; one that is not finite, or overflows when squared, becomes zero."""
        squares = jnp.square(contributions).sum(-1, keepdims=True)
        parts = self.model.limited_apart(jnp.where(jnp.isfinite(squares), contributions, 0.0))
        norms = [(jnp.sqrt(jnp.square(part).sum(-1, keepdims=True)), share) for part, share in parts]
        factors = [self._factor(norm / share) for norm, share in norms]
        return jnp.concatenate([part * factor for (part, _), factor in zip(parts, factors, strict=True)], -1)

    def empty(self) -> jax.Array:
        return jnp.zeros_like(self.params)

    def add(self, aggregate: jax.Array, rows: Rows) -> jax.Array:
        return aggregate + self.model.scaled_gradient_sum(self.params, rows, self.features, self._factor)

    def exact(self, rows: QuantizedRows) -> Quantized:
        return self.model.exact_gradient_sum(self.params, rows.map(self.features), self._factor, self.bound)
