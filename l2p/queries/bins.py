"""Counts of cells in public bins, column by column, from which bounds are chosen."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.privacy.events import Adjacency
from l2p.queries.base import Query
from l2p.task.exact_sums import ExactSum, Quantized, QuantizedRows
from l2p.task.noise import Noise
from l2p.task.rows import Rows

#: Divisor of the number of a bin, which makes it a feature in [0, 1] that every row of a release holds exactly.
SCALE = 2.0**8


@struct.dataclass
class BinCounts(Query):
    """Counts f32[k B] of k columns in B bins each, column after column, with Gaussian noise.

    Feature j of a row is the number of the bin that its cell of column j lies in, from 1 to B, over `SCALE`; 0 if it
    lies in none. So a row is a vector of zeros and ones with at most one 1 for each column, of L2 norm at most sqrt(k),
    however many columns hold a number. A row that leaves or enters moves the counts by that; of two rows r and s, one
    in place of the other, ||r - s||^2 = ||r||^2 + ||s||^2 - 2 r.s <= 2 k, since no entry is negative: sqrt(2) times as
    far, where contributions of both signs would move them twice as far. Sums of several rows' vectors have no negative
    entry either, so that both hold for units of several rows, times their number.

    Attributes:
      num_columns: k (static), at least 1.
      num_bins: B (static), at most `SCALE` - 1.
      noise_multiplier: f32[], noise standard deviation over the sensitivity.
    """

    num_columns: int = struct.field(pytree_node=False)
    num_bins: int = struct.field(pytree_node=False)
    noise_multiplier: jax.Array
    name: ClassVar[str] = "bin_counts"
    mechanism: ClassVar[str] = "gaussian"
    is_plain_sum: ClassVar[bool] = True
    weighed: ClassVar[bool] = False

    @property
    def bound(self) -> jax.Array:
        return jnp.sqrt(jnp.float32(self.num_columns))

    def noise_std(self, adjacency: Adjacency) -> jax.Array:
        """f32[], the standard deviation of every count's noise, in rows."""
        return self.noise_multiplier * self.bound * adjacency.sensitivity_factor**0.5

    def contributions(self, rows: Rows) -> jax.Array:
        chosen = jax.nn.one_hot(self._bins(rows.x), self.num_bins + 1)[..., 1:]
        return chosen.reshape(rows.x.shape[0], -1)

    def limit(self, contributions: jax.Array) -> jax.Array:
        return contributions  # each is at most one 1 in every column

    def add(self, aggregate: jax.Array, rows: Rows) -> jax.Array:
        return aggregate + self._counts(rows.x, rows.mask)

    def exact(self, rows: QuantizedRows) -> Quantized:
        counted = rows.block.counted.astype(jnp.float64)
        return Quantized(self._counts(rows.values(), counted), jnp.ones((), jnp.float64))

    def empty(self) -> jax.Array:
        return jnp.zeros(self.num_columns * self.num_bins, jnp.float32)

    def release(self, aggregate: jax.Array | ExactSum, noise: Noise, adjacency: Adjacency) -> jax.Array:
        dtype = jnp.float64 if isinstance(aggregate, ExactSum) else aggregate.dtype
        scale = jnp.asarray(self.noise_multiplier, dtype) * jnp.sqrt(jnp.asarray(self.num_columns, dtype))
        return noise.add(self.mechanism, aggregate, scale * adjacency.sensitivity_factor**0.5)

    def _bins(self, x: jax.Array) -> jax.Array:
        if x.shape[1] != self.num_columns:
            raise ValueError(f"{self.name} counts {self.num_columns} columns, but rows have {x.shape[1]}.")
        numbers = jnp.where(jnp.isfinite(x), jnp.rint(x * SCALE), 0.0)
        return jnp.clip(numbers, 0, self.num_bins).astype(jnp.int32)

    def _counts(self, x: jax.Array, weights: jax.Array) -> jax.Array:
        """Whole numbers below 2^53, so their sum is exact in any order: f[k B] in the type of `weights` f[n]."""
        width = self.num_bins + 1
        places = self._bins(x) + width * jnp.arange(self.num_columns, dtype=jnp.int32)[None, :]
        added = jnp.broadcast_to(weights[:, None], places.shape)
        counts = jnp.zeros(self.num_columns * width, weights.dtype).at[places].add(added)
        return counts.reshape(self.num_columns, width)[:, 1:].reshape(-1)
