"""Rows that are read block by block, or that lie on other machines."""

import abc
import dataclasses
from collections.abc import Callable, Iterator
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base.progress import Progress
from l2p.task.exact_sums import ExactSum
from l2p.task.feature_map import FeatureMap
from l2p.task.rows import Rows, mapped, null_invalid


class RowSource(abc.ABC):
    """Rows that are read block by block, once per query, because they do not fit on the device or in memory.

    Attributes:
      num_rows: N, public by declaration.
      num_features: d.
      progress: told of every step of a run, where somebody waits for it.
      ordered: whether every pass gives the rows in one order. Batches of permutation epochs ask for it.
      schema: the declaration of the table that rows are encoded from (`l2p.tables.schema.schema_of`, since rows know
        no tables); None for rows that came encoded.
      scaled: whether rows are features and targets in the ranges of l2p's own models; otherwise they are numbers of any
        size, which a loss of the user's own reads.
      caps_units: whether, where the schema protects units, all but the first `max_rows` valid rows of each come as
        null rows (`l2p.tables.schema.units.FirstRows`). Without that no run protects them.
      solves: whether a query that is solved on all rows at once, and is no sum over them, can be answered.
    """

    num_rows: int
    num_features: int
    progress: Progress | None = None
    ordered: bool = True
    schema: object | None = None
    solves: ClassVar[bool] = False
    caps_units: bool = False
    scaled: bool = True

    @abc.abstractmethod
    def blocks(self) -> Iterator[Rows]:
        """One pass over all rows. Blocks of one size compile once; pad the last with null rows (mask 0)."""

    def members(self, lines: np.ndarray) -> Iterator[Rows]:
        """The rows of one batch: here one pass in which all others are null rows.

        Args:
          lines: i32[capacity], distinct lines of the table, from 0; -1 for none.
        """
        member = np.zeros(self.num_rows, np.float32)
        member[lines[lines >= 0]] = 1.0
        done = 0
        for block in self.blocks():
            size = block.y.shape[0]
            part = member[done : done + size]
            yield dataclasses.replace(block, mask=block.mask * np.pad(part, (0, size - len(part))))
            done += size


class WrappedSource(RowSource):
    """Another source's rows, changed block by block: as many, and in its order.

    Attributes:
      source: that other one.
    """

    source: RowSource

    @property
    def num_rows(self) -> int:  # type: ignore[override]
        return self.source.num_rows

    @property
    def num_features(self) -> int:  # type: ignore[override]
        return self.source.num_features

    @property
    def progress(self) -> Progress | None:  # type: ignore[override]
        return self.source.progress

    @property
    def ordered(self) -> bool:  # type: ignore[override]
        return self.source.ordered

    @property
    def schema(self) -> object | None:  # type: ignore[override]
        return self.source.schema

    @property
    def caps_units(self) -> bool:  # type: ignore[override]
        return self.source.caps_units

    @property
    def scaled(self) -> bool:  # type: ignore[override]
        return self.source.scaled


class RemoteRows(RowSource):
    """Rows on other machines, which add them up where they lie: what comes back are exact sums.

    Sums are exact in simulations, too, so that how rows are spread over machines changes no bit of any run.
    """

    @abc.abstractmethod
    def exact_sum(self, summed: Callable[[Iterator[Rows]], ExactSum], lines: np.ndarray | None) -> ExactSum:
        """The result of `summed` for all blocks of the table at once.

        Args:
          summed: adds up blocks of any size; sums of several calls add up. It can be pickled.
          lines: as in `members`; None for all rows.
        """

    def blocks(self) -> Iterator[Rows]:
        raise TypeError("rows on other machines are added up there and do not come here.")


@dataclasses.dataclass(frozen=True)
class ArraySource(RowSource):
    """Rows in arrays on the host (a NumPy memory map, say), moved to the device a block at a time.

    Attributes:
      rows: NumPy arrays.
      block: rows per block.

    >>> import numpy as np
    >>> source = ArraySource(Rows(np.ones((5, 2)), np.ones(5), np.ones(5)), block=2)
    >>> [int(block.mask.sum()) for block in source.blocks()]
    [2, 2, 1]
    """

    rows: Rows
    block: int

    @property
    def num_rows(self) -> int:  # type: ignore[override]
        return self.rows.x.shape[0]

    @property
    def num_features(self) -> int:  # type: ignore[override]
        return self.rows.x.shape[1]

    def blocks(self) -> Iterator[Rows]:
        for start in range(0, self.num_rows, self.block):
            piece = jax.tree.map(lambda leaf: jnp.asarray(leaf[start : start + self.block], jnp.float32), self.rows)  # noqa: B023
            missing = self.block - piece.y.shape[0]
            yield jax.tree.map(lambda leaf: jnp.pad(leaf, [(0, missing)] + [(0, 0)] * (leaf.ndim - 1)), piece)  # noqa: B023


@dataclasses.dataclass(frozen=True)
class Mapped(WrappedSource):
    """A source read through a map."""

    source: RowSource  # pyrefly: ignore[bad-override]
    view: FeatureMap

    @property
    def num_features(self) -> int:  # type: ignore[override]
        return self.view.num_mapped

    def blocks(self) -> Iterator[Rows]:
        return (mapped(null_invalid(block), self.view) for block in self.source.blocks())
