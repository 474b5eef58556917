"""Rows and tasks: the only forms in which data enters a run."""

import abc
import dataclasses
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np

from l2p import struct
from l2p.compiled import as_one
from l2p.features import FeatureMap
from l2p.fixed_point import ExactSum
from l2p.progress import Progress

if TYPE_CHECKING:
    from l2p.models import Model
    from l2p.protector import Protector
    from l2p.queries import PassDescent
    from l2p.schema.schema import Schema


@struct.dataclass
class Rows:
    """A block of rows.

    Attributes:
      x: f32[n, d], features scaled to [0, 1] by declared bounds.
      y: f32[n], targets: classes 0 to K - 1, or values scaled to [0, 1] by declared bounds.
      mask: f32[n], 1 for a row, 0 for a null row (padding, or an invalid row counted as null). Simulations on
        public rows may use other weights: a weight of w stands for w copies of the row.
      squares: f32[n], the squared norms of rows that have been mapped, or None.
    """

    x: jax.Array
    y: jax.Array
    mask: jax.Array
    squares: jax.Array | None = None

    def squared_norms(self, features: FeatureMap) -> jax.Array:
        """Squared norms f32[n] of rows read through a map. Where `squares` are known, rows were mapped before, and the
        map is the identity (`FeatureMap.remaining_map`)."""
        return features.squared_norms(self.x) if self.squares is None else self.squares

    def __repr__(self) -> str:
        # Errors and tracebacks print it, and must show neither rows nor their number.
        return "Rows(not shown)"


class RowSource(abc.ABC):
    """Rows that are read block by block, once per query, because they do not fit on the device or in memory.

    Attributes:
      num_rows: N, public by declaration.
      num_features: d.
      progress: told of every step of a run, where somebody waits for it.
      ordered: whether every pass gives the rows in one order. Batches of permutation epochs ask for it.
      schema: the declaration of the table that rows are encoded from; None for rows that came encoded.
      caps_units: whether, where the schema protects units, all but the first `max_rows` valid rows of each come as
        null rows (`l2p.schema.units.FirstRows`). Without that no run protects them.
    """

    num_rows: int
    num_features: int
    progress: Progress | None = None
    ordered: bool = True
    schema: "Schema | None" = None
    caps_units: bool = False

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
    def schema(self) -> "Schema | None":  # type: ignore[override]
        return self.source.schema

    @property
    def caps_units(self) -> bool:  # type: ignore[override]
        return self.source.caps_units


class RemoteRows(RowSource):
    """Rows on other machines, which add them up where they lie: what comes back are exact sums.

    Sums are exact in simulations, too, so that how rows are spread over machines changes no bit of any run.
    """

    @abc.abstractmethod
    def exact_sum(self, summed: Callable[[Iterator[Rows]], ExactSum], lines: np.ndarray | None) -> ExactSum:
        """What `summed` gives for all blocks of the table at once.

        Args:
          summed: adds up blocks of any size; sums of several calls add up. It can be pickled.
          lines: as in `members`; None for all rows.
        """

    def blocks(self) -> Iterator[Rows]:
        raise TypeError("rows on other machines are added up there and do not come here.")


class PassRows(RemoteRows):
    """Rows on a machine that takes the passes of stochastic gradient descent over them, and adds nothing up."""

    @abc.abstractmethod
    def check(self, protector: "Protector", model: "Model") -> None:
        """Refuse, before anything is read, a protector or a model of which this machine cannot answer every query.

        Raises:
          InputError: it cannot.
        """

    @abc.abstractmethod
    def passes(self, query: "PassDescent", order: jax.Array) -> np.ndarray:
        """`PassDescent.result` f64[p], without noise, with the rows in this order i32[k, T / k * b]."""

    def exact_sum(self, summed: Callable[[Iterator[Rows]], ExactSum], lines: np.ndarray | None) -> ExactSum:
        raise TypeError("these rows are passed over, and not added up.")


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


@as_one
def null_invalid(rows: Rows) -> Rows:
    """Rows with a value that is not finite become null rows: they contribute nothing, before any clipping."""
    valid = jnp.isfinite(rows.x).all(-1) & jnp.isfinite(rows.y) & jnp.isfinite(rows.mask)
    return Rows(jnp.where(valid[:, None], rows.x, 0.0), jnp.where(valid, rows.y, 0.0), jnp.where(valid, rows.mask, 0.0))


def mapped(rows: Rows, view: FeatureMap) -> Rows:
    """Rows read through a map; one that overflows becomes a null row."""
    return null_invalid(dataclasses.replace(rows, x=view.apply(rows.x)))


def mapped_as_constants(rows: Rows, view: FeatureMap) -> tuple[Rows, FeatureMap]:
    """Rows that were read through a map, as constants but for their squared norms, and what they are still to be read
    through, which is the identity and has the map's derivative.

    A derivative in all entries of a mapped table would be added up at each step of a run, which may take as long as all
    other work of a meta-gradient; a map is smaller than a table.
    """
    found = mapped(rows, view)
    constant = dataclasses.replace(found, x=jax.lax.stop_gradient(found.x), squares=jnp.square(found.x).sum(-1))
    return constant, view.remaining_map()


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


def in_blocks(rows: Rows, block: int) -> Rows:
    """The rows with a leading axis of blocks of at most `block`, the last padded with null rows.

    >>> rows = Rows(jnp.ones((5, 2)), jnp.ones(5), jnp.ones(5))
    >>> in_blocks(rows, 2).mask.tolist()
    [[1.0, 1.0], [1.0, 1.0], [1.0, 0.0]]
    """
    block = min(block, max(1, rows.y.shape[0]))
    count = -(-rows.y.shape[0] // block)

    def split(leaf: jax.Array) -> jax.Array:
        padded = jnp.pad(leaf, [(0, count * block - leaf.shape[0])] + [(0, 0)] * (leaf.ndim - 1))
        return padded.reshape(count, block, *leaf.shape[1:])

    return jax.tree.map(split, rows)


@dataclasses.dataclass(frozen=True)
class Task:
    """One learning problem: private rows, rows to score on, and public rows that cost nothing.

    Attributes:
      private: the rows that only the oracle may read, or a source that streams them.
      test: rows outside the guarantee, for scoring.
      public: rows that a protector may read freely, or None.
    """

    private: Rows | RowSource
    test: Rows | None = None
    public: Rows | None = None
