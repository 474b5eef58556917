"""The length of rows, used to scale them to the length that constants were learned for."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.models.parts import safe_sqrt
from l2p.queries.base import Query, positive, within
from l2p.task.exact_sums import COEFFICIENT_BITS, Quantized, QuantizedRows, numbers
from l2p.task.feature_map import FeatureMap
from l2p.task.rows import Rows


@struct.dataclass
class LengthSum(Query):
    """Sum of the lengths of mapped rows, each counted as `longest` at most, with Gaussian noise: f32[1].

    Attributes:
      features: the map that rows are read through.
      longest: f32[], bound on one row's length; above 0.
      noise_multiplier: f32[], noise standard deviation over the sensitivity.
    """

    features: FeatureMap
    longest: jax.Array
    noise_multiplier: jax.Array
    name: ClassVar[str] = "row_length"
    mechanism: ClassVar[str] = "gaussian"
    is_plain_sum: ClassVar[bool] = True
    weighed: ClassVar[bool] = False

    @property
    def bound(self) -> jax.Array:
        return within(self.longest, positive(self.longest))

    def contributions(self, rows: Rows) -> jax.Array:
        return safe_sqrt(self.features.squared_norms(rows.x))[:, None]

    def exact(self, rows: QuantizedRows) -> Quantized:
        longest = self.longest.astype(jnp.float64)
        lengths = jnp.minimum(rows.map(self.features).lengths(), longest)
        return rows.sum(numbers(lengths[:, None], longest * 2.0**-COEFFICIENT_BITS))

    def empty(self) -> jax.Array:
        return jnp.zeros(1, jnp.float32)
