"""Public rows beside private ones: their checks, their entry on a card, and the nulling of private rows that equal one.

A private row that equals a public one counts as a null row. No message says so: a count of such rows, or an error,
would tell whether somebody's row is in the private table. Whether a row is nulled depends on that row and on the public
ones alone, so tables that differ in one row still differ in one.
"""

import dataclasses
import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from l2p.base import struct
from l2p.base.errors import InputError
from l2p.task import checks
from l2p.task.exact_sums import ExactSum
from l2p.task.rows import Rows
from l2p.task.sources import RemoteRows, RowSource, WrappedSource

#: Rows compared at a time, to bound memory.
_BLOCK = 2**14


def checked(public: Rows, num_features: int, labels: tuple[float, ...] | None) -> Rows:
    """The public rows as NumPy f32 arrays; `labels` None is for targets in [0, 1].

    Raises:
      InputError: they do not fit the private rows: other shapes, no row, a number that is not finite, or values out of
        place.
    """
    if not isinstance(public, Rows):
        raise InputError(
            f"public rows came as {type(public).__name__}, which does not say what are features and what are labels; "
            "pass l2p.Rows(x, y, mask), or the raw table with its schema."
        )
    if fault := checks.complaint(public):
        raise InputError(f"the public rows do not fit: {fault}")
    with np.errstate(over="ignore", invalid="ignore"):
        rows = jax.tree.map(lambda part: np.asarray(part).astype(np.float32), public)
    if rows.x.shape[1] != num_features:
        raise InputError(
            f"the public rows have {rows.x.shape[1]} features and the private ones {num_features}, so they are not of "
            "one kind; give both the same columns."
        )
    if not np.isin(rows.mask, (0.0, 1.0)).all() or not (rows.mask > 0).any():
        raise InputError(
            "there is no public row to read, or the mask of the public rows holds values other than 0 and 1; give at "
            "least one row, with mask 1, or leave the public rows out."
        )
    counted = rows.mask > 0
    if not (np.isfinite(rows.x[counted]).all() and np.isfinite(rows.y[counted]).all()):
        raise InputError(
            "the public rows hold numbers that are not finite, which would spoil whatever is computed from them; "
            "leave these rows out or correct them: they are public."
        )
    if fault := checks.out_of_place(rows, labels):
        raise InputError(f"the public rows cannot be read as they are: {fault}")
    return rows


def on_card(public: Rows | None) -> dict[str, Any] | None:
    """Entry of a card on the public rows: their number, and the SHA-256 of the bytes of their features and target,
    encoded, as little-endian float32 [n, d + 1].

    >>> from l2p.task.rows import Rows
    >>> on_card(Rows(np.zeros((2, 3)), np.ones(2), np.ones(2)))["num_rows"]
    2
    """
    if public is None:
        return None
    table = _table(np.asarray(public.x), np.asarray(public.y))[np.asarray(public.mask) > 0]
    return {"num_rows": len(table), "sha256": hashlib.sha256(table.astype("<f4").tobytes()).hexdigest()}


@dataclasses.dataclass(frozen=True, repr=False)
class PublicRowSet:
    """The public rows as bytes, to recognise them among private ones."""

    rows: frozenset[bytes]

    @classmethod
    def of(cls, public: Rows) -> "PublicRowSet":
        counted = np.asarray(public.mask) > 0
        return cls(frozenset(row for row, counts in zip(rows_as_bytes(public), counted, strict=True) if counts))

    def nulled(self, rows: Rows) -> Rows:
        """The rows with those that equal a public one turned into null rows; NumPy arrays of the same shapes."""
        is_private = np.array([row not in self.rows for row in rows_as_bytes(rows)], bool)
        return jax.tree.map(lambda leaf: np.where(is_private if leaf.ndim == 1 else is_private[:, None], leaf, 0), rows)


@dataclasses.dataclass(frozen=True)
class Apart(WrappedSource):
    """A source whose rows that equal a public one come as null rows."""

    source: RowSource  # pyrefly: ignore[bad-override]
    public: PublicRowSet

    def blocks(self) -> Iterator[Rows]:
        return map(self.public.nulled, self.source.blocks())


@struct.dataclass
class ApartSum:
    """A sum over blocks of rows, of which those that equal a public one come as null rows.

    Attributes:
      summed: of what comes; a pytree.
      public: those rows (static).
    """

    summed: Callable[[Iterator[Rows]], ExactSum]
    public: PublicRowSet = struct.field(pytree_node=False)

    def __call__(self, blocks: Iterator[Rows]) -> ExactSum:
        """The sum."""
        return self.summed(map(self.public.nulled, blocks))


@dataclasses.dataclass(frozen=True)
class ApartElsewhere(WrappedSource, RemoteRows):
    """Rows on other machines, which tell those that equal a public one apart there."""

    source: RemoteRows  # pyrefly: ignore[bad-override]
    public: PublicRowSet

    def exact_sum(self, summed: Callable[[Iterator[Rows]], ExactSum], lines: np.ndarray | None) -> ExactSum:
        return self.source.exact_sum(ApartSum(summed, self.public), lines)


def apart(rows: Rows | RowSource, public: Rows) -> Rows | RowSource:
    """Private rows, wherever they lie, with those that equal a public one as null rows."""
    row_set = PublicRowSet.of(public)
    if isinstance(rows, Rows):
        return row_set.nulled(rows)
    return ApartElsewhere(rows, row_set) if isinstance(rows, RemoteRows) else Apart(rows, row_set)


def rows_as_bytes(rows: Rows) -> Iterator[bytes]:
    """Every row's features and target as bytes."""
    x, y = np.asarray(rows.x), np.asarray(rows.y)
    for start in range(0, len(y), _BLOCK):
        table = _table(x[start : start + _BLOCK], y[start : start + _BLOCK])
        yield from map(bytes, table.view(np.uint8))


def _table(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Features and target f32[n, d + 1] as a run reads them; -0 is 0."""
    with np.errstate(over="ignore", invalid="ignore"):
        parts = [part.astype(np.float32) for part in (x, y[:, None])]
        return np.ascontiguousarray(np.concatenate(parts, axis=1) + np.float32(0))
