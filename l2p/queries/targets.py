"""Frequencies of classes, or the mean of the targets: the best prediction that uses no feature."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.privacy.events import Adjacency
from l2p.queries.base import Query
from l2p.task.exact_sums import COEFFICIENT_BITS, ExactSum, Quantized, QuantizedRows, dtype_of, numbers
from l2p.task.noise import Noise
from l2p.task.rows import Rows


@struct.dataclass
class TargetSum(Query):
    """Counts f32[K] of K classes; for two classes or numbers the sum f32[1] of y - 1/2. With Gaussian noise.

    The vector of a row with a class is zeros and a single 1. A row that leaves or enters moves the counts by 1; one
    that takes the place of another moves them by sqrt(2) at most, since no entry is negative (`BinCounts` has the
    proof). Targets lie in [0, 1], so that y - 1/2 is at most 1/2, and a row in place of another moves the sum by twice
    that.

    Attributes:
      num_classes: K, or 1 (static).
      noise_multiplier: f32[], noise standard deviation over the sensitivity.
    """

    num_classes: int = struct.field(pytree_node=False)
    noise_multiplier: jax.Array
    name: ClassVar[str] = "target_sum"
    mechanism: ClassVar[str] = "gaussian"
    is_plain_sum: ClassVar[bool] = True

    @property
    def bound(self) -> jax.Array:
        return jnp.float32(0.5 if self.num_classes == 1 else 1.0)

    def noise_std(self, adjacency: Adjacency) -> jax.Array:
        """f32[], the standard deviation of the noise on each entry, in rows."""
        return self.noise_multiplier * self._sensitivity(adjacency)

    def contributions(self, rows: Rows) -> jax.Array:
        return self._of(rows.y)

    def limit(self, contributions: jax.Array) -> jax.Array:
        return contributions  # none is longer than the bound

    def exact(self, rows: QuantizedRows) -> Quantized:
        return rows.sum(numbers(self._of(rows.y), jnp.asarray(2.0**-COEFFICIENT_BITS)))

    def empty(self) -> jax.Array:
        return jnp.zeros(self.num_classes, jnp.float32)

    def release(self, aggregate: jax.Array | ExactSum, noise: Noise, adjacency: Adjacency) -> jax.Array:
        multiplier = jnp.asarray(self.noise_multiplier, dtype_of(aggregate))
        return noise.add(self.mechanism, aggregate, multiplier * self._sensitivity(adjacency))

    def _sensitivity(self, adjacency: Adjacency) -> float:
        factor = adjacency.sensitivity_factor
        return 0.5 * factor if self.num_classes == 1 else factor**0.5

    def _of(self, y: jax.Array) -> jax.Array:
        """Each row's part f[n, K]; a target that is not finite, or no class, has none."""
        if self.num_classes < 1:
            raise ValueError(
                f"{self.num_classes} classes leave nothing to count; declare two or more, or 1 for a number."
            )
        if self.num_classes > 1:
            return (y[:, None] == jnp.arange(self.num_classes)[None, :]).astype(y.dtype)
        return jnp.where(jnp.isfinite(y), jnp.clip(y, 0.0, 1.0) - 0.5, 0.0)[:, None]
