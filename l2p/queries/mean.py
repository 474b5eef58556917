"""A private feature mean, to centre rows on."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.queries.base import Query, positive, within
from l2p.task.exact_sums import COEFFICIENT_BITS, Quantized, QuantizedRows, coefficients
from l2p.task.rows import Rows


@struct.dataclass
class FeatureSum(Query):
    """Sum of the feature vectors, each clipped to `clip_norm`, with Gaussian noise; dividing it by a public N gives a
    mean.

    Attributes:
      num_features: d (static).
      clip_norm: f32[], L2 bound on one row's features; above 0.
      noise_multiplier: f32[], noise standard deviation over the sensitivity.
    """

    num_features: int = struct.field(pytree_node=False)
    clip_norm: jax.Array
    noise_multiplier: jax.Array
    name: ClassVar[str] = "feature_mean"
    mechanism: ClassVar[str] = "gaussian"
    is_plain_sum: ClassVar[bool] = True
    weighed: ClassVar[bool] = False
    in_trace: ClassVar[bool] = True

    @property
    def bound(self) -> jax.Array:
        return within(self.clip_norm, positive(self.clip_norm))

    def contributions(self, rows: Rows) -> jax.Array:
        return rows.x

    def exact(self, rows: QuantizedRows) -> Quantized:
        lengths = jnp.maximum(rows.lengths(), 2.0**-COEFFICIENT_BITS)
        ones, largest = jnp.ones_like(lengths), self.bound / lengths
        unit = jnp.asarray(2.0**-COEFFICIENT_BITS)
        return rows.weighted_sum(coefficients(ones, ones, jnp.minimum(1.0, largest), largest, unit))

    def empty(self) -> jax.Array:
        return jnp.zeros(self.num_features, jnp.float32)
