"""Batches of rows that stream, read ahead: one pass serves as many steps as fit in memory.

A release draws its batches for many steps at once (`l2p.run.run.Release`). Read one by one, each would take a pass over
the table, and a thousand small batches of a large table a thousand passes. Here lines are looked up as the rows pass,
in one join of the lines of a window of steps with the table.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import jax
import numpy as np

from l2p.task.noise import AnyDraw, BatchDraw
from l2p.task.rows import Rows
from l2p.task.sources import RowSource, WrappedSource

#: Bytes of rows that are held for later steps.
WINDOW = 2**26


@dataclasses.dataclass(eq=False)
class Lookahead(WrappedSource):
    """A source that is told which batches will be asked for.

    It gives the rows that `source.members` gives, as one block of the batch's own size instead of all blocks of the
    table. A batch that does not fit the window alone is read in a pass of its own.

    Attributes:
      source: the source to read.
      coming: batches i32[capacity], -1 for none, in the order in which they will be asked for. One may be asked for
        several times in a row, or not at all.
      window: bytes of rows to hold.
    """

    source: RowSource
    coming: Sequence[np.ndarray]
    window: int = WINDOW
    _held: dict[bytes, Rows] = dataclasses.field(default_factory=dict)
    _next: int = 0

    @classmethod
    def over(cls, source: RowSource, drawn: Sequence[jax.Array], plan: Sequence[AnyDraw]) -> RowSource:
        """The source that foresees the batches among what was drawn by a plan; `source` itself if there are none."""
        batches = [np.asarray(lines) for lines, draw in zip(drawn, plan, strict=True) if isinstance(draw, BatchDraw)]
        return cls(source, [lines for step in zip(*batches, strict=True) for lines in step]) if batches else source

    def blocks(self) -> Iterator[Rows]:
        return self.source.blocks()

    def members(self, lines: np.ndarray) -> Iterator[Rows]:
        if lines.tobytes() not in self._held:
            self._read_from(lines)
        if lines.tobytes() not in self._held:
            return self.source.members(lines)
        return iter((self._held[lines.tobytes()],))

    def _read_from(self, lines: np.ndarray) -> None:
        """Hold this batch and those after it, as far as the window goes."""
        first = next(
            (place for place in range(self._next, len(self.coming)) if np.array_equal(self.coming[place], lines)), None
        )
        if first is None:
            raise RuntimeError("a batch was asked for that is not among those drawn for this run.")
        room = self.window // (4 * (self.num_features + 2))
        ends = np.cumsum([len(batch) for batch in self.coming[first:]])
        count = int(np.searchsorted(ends, room, side="right"))
        self._next = first
        self._held = {}
        if count:
            batches = [np.asarray(batch) for batch in self.coming[first : first + count]]
            self._held = dict(zip((batch.tobytes() for batch in batches), self._joined(batches), strict=True))

    def _joined(self, batches: Sequence[np.ndarray]) -> list[Rows]:
        """The rows of all batches, in one pass."""
        lines = np.concatenate(batches)
        places = np.argsort(lines, kind="stable")
        lines = lines[places]  # first of all -1, which no block reaches
        x = np.zeros((sum(map(len, batches)), self.num_features), np.float32)
        y, mask = np.zeros(len(x), np.float32), np.zeros(len(x), np.float32)
        offset = 0
        for block in self.source.blocks():
            start, end = np.searchsorted(lines, (offset, offset + block.y.shape[0]))
            indices, at = lines[start:end] - offset, places[start:end]
            for array, part in ((x, block.x), (y, block.y), (mask, block.mask)):
                array[at] = np.asarray(part)[indices]
            offset += block.y.shape[0]
        ends = np.cumsum([len(batch) for batch in batches])[:-1]
        parts = (np.split(array, ends) for array in (x, y, mask))
        return [Rows(*batch) for batch in zip(*parts, strict=True)]  # pyrefly: ignore[bad-argument-type]
