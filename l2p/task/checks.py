"""Checks that a caller's private rows fit together. Messages quote no cell and no size of an array, because the number
of rows may be private."""

import dataclasses
import secrets
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np

from l2p.base.errors import InputError, RowsError, withheld
from l2p.privacy.budget import Budget
from l2p.privacy.cost.sampling import PermutationEpochs, Sampler
from l2p.privacy.events import Adjacency
from l2p.task.row_digest import PassDigest
from l2p.task.rows import Rows
from l2p.task.shuffled import check_room
from l2p.task.sources import ArraySource, RemoteRows, RowSource, WrappedSource


@dataclasses.dataclass(eq=False)
class Checked(WrappedSource):
    """A source whose blocks are checked as they come, whose passes are compared, and whose own errors quote nothing.

    Every price rests on all passes reading the same rows: a row that moves between two passes of an epoch of
    permutations is in two of its batches. A pass that reads other rows than the first ends the run before its answer,
    which is known only once all blocks have come.
    """

    source: RowSource  # pyrefly: ignore[bad-override]
    labels: tuple[float, ...] | None
    _key: int = dataclasses.field(default_factory=lambda: secrets.randbits(128))
    _first: object = None

    @classmethod
    def over(cls, source: RowSource, labels: tuple[float, ...] | None) -> RowSource:
        """The source with its blocks checked; rows on other machines are checked there."""
        return source if isinstance(source, RemoteRows) else cls(source, labels)

    def blocks(self) -> Iterator[Rows]:
        with withheld("reading a block of rows"):
            digest = PassDigest(self.source.ordered, self._key)
            for block in self.source.blocks():
                # An InputError would claim that nothing was spent.
                if fault := complaint(block) or (self.scaled and out_of_place(block, self.labels)):
                    raise RowsError(f"a block of the source does not fit: {fault}")
                digest.add(block)
                yield block
            self._first = self._first or digest.value()
            if digest.value() != self._first:
                raise RowsError(_CHANGED)


_CHANGED = (
    "the table gave other rows than in an earlier pass of the run, or the same in another order, but all passes must "
    "read the same: it was changed, or comes from a view or a source that is made anew at every pass. Keep it as it is "
    "until the run has ended, or copy it to a table or a file; a source that has no order says so (ordered = False). "
    "The run ends here without a result, and what its queries were charged stays charged."
)


def shape_of(rows: Rows | RowSource) -> tuple[int, int]:
    """Number of lines and of features; rows in memory are first checked to fit together and to be numbers.

    Raises:
      InputError: they do not fit, or `rows` is neither `Rows` nor a `RowSource`.
    """
    if not isinstance(rows, (Rows, RowSource)):
        raise InputError(
            f"rows came as {type(rows).__name__}, which does not say what are features and what are labels; declare "
            "that in a schema (schema=), or pass l2p.Rows(x, y, mask) or a source that yields them."
        )
    loaded = rows.rows if isinstance(rows, ArraySource) else rows
    if isinstance(loaded, RowSource):
        return loaded.num_rows, loaded.num_features
    if fault := complaint(loaded):
        raise InputError(f"the rows do not fit: {fault}")
    return loaded.x.shape[0], loaded.x.shape[1]


def complaint(rows: Rows) -> str | None:
    """Sentence on why x, y and mask do not fit together; None if they do."""
    parts = {"x": rows.x, "y": rows.y, "mask": rows.mask}
    for name, part in parts.items():
        if not hasattr(part, "shape"):
            return f"{name} is of type {type(part).__name__}, and only arrays can be computed with; pass arrays."
        if not _is_real(part):
            return f"{name} holds something other than real numbers, which no model takes; encode it as numbers first."
    axes = [len(part.shape) for part in parts.values()]
    if axes != [2, 1, 1]:
        return f"x, y and mask have {axes[0]}, {axes[1]} and {axes[2]} axes, but must be [n, d], [n] and [n]."
    if len({part.shape[0] for part in parts.values()}) > 1:
        return "x, y and mask differ in how many rows they have, but must be [n, d], [n] and [n] with one n."
    return None


def check_rows(
    rows: Rows | RowSource, sampler: Sampler, labels: tuple[float, ...] | None, releases: bool, scaled: bool = True
) -> None:
    """Refuse rows that a run cannot read as they are; see `check_ordered`, `check_mask` and, where they have to be
    `scaled`, `check_scaled`.

    Raises:
      InputError: they come in no order, weigh more than one in a release, or have values out of place.
    """
    check_ordered(rows, sampler)
    if releases:
        check_mask(rows)
    if scaled:
        check_scaled(rows, labels)


def check_scaled(rows: Rows | RowSource, labels: tuple[float, ...] | None) -> None:
    """Refuse rows in memory that are not what models learn from: features in [0, 1], and `labels` or, for None, targets
    in [0, 1]. A value that is not finite makes a null row, and a null row may hold anything.

    Raises:
      InputError: a value is out of place.
    """
    loaded = rows.rows if isinstance(rows, ArraySource) else rows
    if isinstance(loaded, Rows):  # a stream is looked at as it comes
        with withheld("checking rows"):
            fault = out_of_place(loaded, labels)
        if fault:
            raise InputError(f"the rows cannot be learned from as they are: {fault}")


def out_of_place(rows: Rows, labels: tuple[float, ...] | None) -> str | None:
    """Sentence on values that no model learns from; None if there are none."""
    with np.errstate(over="ignore", invalid="ignore"):
        x, y, mask = (np.asarray(part).astype(np.float32, copy=False) for part in (rows.x, rows.y, rows.mask))
    counted = np.isfinite(x).all(axis=1) & np.isfinite(y) & (mask > 0)
    if (counted & ((x < 0) | (x > 1)).any(axis=1)).any():
        return (
            "x holds values outside [0, 1], and budgets are made for features that public bounds scale; give the raw "
            "table with a schema (schema=), or (X, y) with bounds from public knowledge (bounds=)."
        )
    if labels is None:
        if (counted & ((y < 0) | (y > 1))).any():
            return (
                "y holds values outside [0, 1], and a number to predict is scaled by public bounds; give the raw table "
                "with a schema (schema=), or scale it."
            )
    elif (counted & ~np.isin(y, np.asarray(labels, np.float32))).any():
        named = "0 and 1" if len(labels) == 2 else f"0 to {len(labels) - 1}"
        return (
            f"y holds labels other than {named}, which are all that the model learns; give the raw table with a schema "
            "(schema=) that names the classes, or number them so."
        )
    return None


def _is_real(array: Any) -> bool:
    dtype = getattr(array, "dtype", None)
    dtype = dtype if isinstance(dtype, np.dtype) else np.asarray(array).dtype  # a DataFrame has one per column
    return any(jnp.issubdtype(dtype, kind) for kind in (jnp.floating, jnp.integer, jnp.bool_))


def number_of_rows(num_lines: int, declared: int | None, budget: Budget) -> int:
    """N: the declared number, else the number of lines if all neighbours have the same.

    Raises:
      InputError: neighbours differ in N, and none is declared; or the table, whose lines are public, has more.
    """
    if declared is not None:
        if declared < num_lines and budget.adjacency is not Adjacency.ADD_REMOVE:
            raise InputError(
                f"N is declared as {int(declared):,}, but the table has more rows, so the card would be about another "
                "table, and delta would be checked against fewer people than there are; leave N out, which is public "
                f"under {budget.adjacency}, or declare the right number."
            )
        return int(declared)
    if budget.adjacency is Adjacency.ADD_REMOVE:
        raise InputError(
            "neighbours under add_remove differ in how many rows they have, so N must not be read off the table; pass "
            "num_rows, known from elsewhere or rounded, or choose zero_out, where N is public."
        )
    return num_lines


def check_mask(rows: Rows | RowSource) -> None:
    """Refuse weights, which are for simulations."""
    # A stream is not read through beforehand; a release counts each of its rows at most once (`exact_sum`).
    if isinstance(rows, Rows) and not np.isin(np.asarray(rows.mask), (0.0, 1.0)).all():
        raise InputError(
            "the mask holds values other than 0 and 1, and a row that counts for more than one breaks the guarantee; "
            "weights are for simulations, so pass 0 for null rows and 1 for others."
        )


def check_whole(name: str, rows: Rows | RowSource, num_rows: int, streams: bool) -> None:
    """Refuse rows that protector `name`, whose queries are no sums, cannot take; where it `streams` it can, but
    for rows on other machines, if there is room to shuffle them."""
    if isinstance(rows, RowSource) and not rows.solves:
        if not streams or isinstance(rows, RemoteRows):
            raise InputError(
                f"protector {name!r} solves on all rows at once, or reads them in another way than once in each of "
                "its passes, but these stream, a block at a time; load them into memory, or choose a method that goes "
                "step by step."
            )
        check_room(num_rows, rows.num_features)
    if shape_of(rows)[0] > num_rows:
        raise InputError(
            f"the table has more lines than N, declared as {num_rows}, and the sensitivity of a solve is proved for at "
            "most N; declare a larger N, or, under zero_out and replace_one, leave it out."
        )


def check_planned(name: str, planned_rows: int | None, num_lines: int) -> None:
    """Refuse a table with more lines than protector `name` is planned for: every query of it would be refused."""
    if planned_rows is not None and num_lines > planned_rows:
        raise InputError(
            f"protector {name!r} is planned for at most {planned_rows} rows, but the table has {num_lines}, for which "
            "nothing is proved, so none of its queries would be answered; plan it for this table, or name a method, "
            "such as bolt_on, which plans itself."
        )


def check_ordered(rows: Rows | RowSource, sampler: Sampler) -> None:
    """Refuse epochs over a stream without an order: their price rests on a row being in one batch of an epoch."""
    if isinstance(rows, RowSource) and not rows.ordered and isinstance(sampler, PermutationEpochs):
        raise InputError(
            "the table may come in another order at every pass, so a row could be in two batches of one epoch, which "
            "its price excludes; name a unique column as &key= in the address."
        )
