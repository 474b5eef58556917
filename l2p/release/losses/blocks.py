"""Rows of a loss of one's own that come block by block, because they do not fit in memory."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base.errors import InputError, RowsError, withheld
from l2p.base.layout import Layout
from l2p.release.losses.row_layout import laid_out, row_layout
from l2p.task.rows import Rows
from l2p.task.sources import RowSource


@dataclasses.dataclass(frozen=True, repr=False)
class BlockSource:
    """Blocks of rows, read anew for every query or batch.

    Attributes:
      blocks: begins a pass over all rows: a function without arguments that returns blocks, pytrees of arrays whose
        first axis is rows, at every pass the same in the same order. Blocks of one size compile once.
      num_rows: of all blocks together. A run fails where it is another. Under add_remove adjacency, where the number of
        rows is private, pass the number that is counted, here alone, and a public one to `private_train`: with a guess
        here, that a run does not fail tells that the guess is right, which nothing pays for.

    >>> BlockSource(lambda: iter([np.zeros((2, 3)), np.ones((1, 3))]), num_rows=3).num_rows
    3
    """

    blocks: Callable[[], Iterator[Any]]
    num_rows: int

    def __post_init__(self) -> None:
        """Check what can be checked without a row."""
        if not callable(self.blocks):
            raise InputError(
                f"blocks is of type {type(self.blocks).__name__}, of which there would be one pass alone, but every "
                "query takes its own; pass a function without arguments that returns an iterator over blocks."
            )
        if not (isinstance(self.num_rows, (int, np.integer)) and self.num_rows > 0):
            raise InputError(
                f"num_rows is of type {type(self.num_rows).__name__} or not above 0, and batches are drawn from the "
                "lines of all blocks; pass how many there are."
            )


@dataclasses.dataclass(frozen=True, repr=False)
class LaidOut(RowSource):
    """Blocks of a user's own as a run reads them.

    Attributes:
      blocks_of: those of a `BlockSource`.
      layout: of a row.
      size: rows of the first block, to which the last is filled up.
    """

    blocks_of: Callable[[], Iterator[Any]]
    num_rows: int  # pyrefly: ignore[bad-override]
    layout: Layout
    size: int
    scaled = False

    @classmethod
    def of(cls, source: BlockSource) -> "LaidOut":
        """The source, whose first block says how a row lies in a line; no value of it is refused."""
        with withheld("reading the first block"):
            first = next(iter(source.blocks()), None)
        if first is None:
            raise InputError("the source gives no block, so there is nothing to learn from; check what it reads.")
        layout = row_layout(first)
        return cls(source.blocks, int(source.num_rows), layout, max(1, len(jax.tree.leaves(first)[0])))

    @property
    def num_features(self) -> int:  # type: ignore[override]
        return self.layout.size

    def blocks(self) -> Iterator[Rows]:
        lines, held = 0, None
        for block in self.blocks_of():
            if held is not None:
                yield jax.tree.map(jnp.asarray, held)
            held = self._rows_of(block)
            lines += len(held.y)
        if lines != self.num_rows:
            raise RowsError(
                "the source gave more or fewer rows than its num_rows, so batches would not be drawn from all of them; "
                "count them again. The run ends here without a result, and what its queries were charged stays charged."
            )
        if held is not None:
            short = max(0, self.size - len(held.y))
            yield jax.tree.map(lambda leaf: jnp.pad(leaf, [(0, short)] + [(0, 0)] * (leaf.ndim - 1)), held)

    def _rows_of(self, block: Any) -> Rows:
        try:
            fits = row_layout(block) == self.layout
        except InputError as error:  # which would say that nothing was spent
            raise RowsError(f"a block of the source does not fit: {error}") from None
        if not fits:
            raise RowsError(
                "a block of the source has rows of another structure, shape or type than the first one, so the loss "
                "was not checked for it; give every block the same. The run ends here without a result, and what its "
                "queries were charged stays charged."
            )
        return laid_out(block, self.layout)
