"""The sum of a query over rows as a release forms it: exact, in memory or block by block."""

from collections.abc import Iterator

import jax

from l2p.base import struct
from l2p.privacy import class_weights
from l2p.queries.base import Query
from l2p.task.exact_sums import Block, ExactSum, QuantizedRows, as_they_are, mapped, quantize
from l2p.task.feature_map import FeatureMap
from l2p.task.rows import Rows


def exact_sum(query: Query, rows: Rows, view: FeatureMap | None = None, weights: jax.Array | None = None) -> ExactSum:
    """The aggregate [k] of rows read through a view, as a release forms it; call under `jax.enable_x64(True)`."""
    return add_rows(query, rows, view, ExactSum.empty(query.empty().shape[0]), weights)


def add_rows(
    query: Query,
    rows: Rows,
    view: FeatureMap | None,
    total: ExactSum,
    weights: jax.Array | None = None,
    scaled: bool = True,
) -> ExactSum:
    """The aggregate with rows added, which are `scaled` (`RowSource.scaled`) or taken as they are."""
    quantized = (quantize if scaled else as_they_are)(rows.x, rows.y, rows.mask)
    return add_quantized(query, quantized if view is None else mapped(quantized, view), total, weights)


_add_rows = jax.jit(add_rows, static_argnames="scaled")


@struct.dataclass
class BlockSum:
    """The sum of a query over blocks of rows, as a release forms it: what other machines are asked for, too.

    Attributes:
      query: whose contributions are added up.
      view: the map that rows are read through, or None.
      weights: f32[K] of the classes, or None.
      scaled: whether rows are (`RowSource.scaled`; static).
    """

    query: Query
    view: FeatureMap | None
    weights: jax.Array | None
    scaled: bool = struct.field(pytree_node=False, default=True)

    def __call__(self, blocks: Iterator[Rows]) -> ExactSum:
        """The sum [k]; blocks of one size compile once. Call it under `jax.enable_x64(True)`."""
        # Its shape alone is needed, and an array of zeros would be a compiled function more.
        total = ExactSum.empty(jax.eval_shape(self.query.empty).shape[0])
        for block in blocks:
            jax.block_until_ready(total)  # as in simulations: one block is added while the next is read
            total = _add_rows(self.query, block, self.view, total, self.weights, scaled=self.scaled)
        return total


def add_quantized(
    query: Query, quantized: QuantizedRows, total: ExactSum, weights: jax.Array | None = None
) -> ExactSum:
    """The aggregate with stacked blocks of rows added, one after the other; each counts as much as its class, by
    weights f32[K], or in full."""

    def add(total: ExactSum, block: Block) -> tuple[ExactSum, None]:
        if weights is not None:
            block = block.replace(counted=block.counted * class_weights.of_rows(weights, block.y))
        return total.plus(query.exact(quantized.replace(block=block))), None

    return jax.lax.scan(add, total, quantized.block)[0]
