"""From raw numbers to rows to learn from, in two parts: what is public is checked once, then each row goes alone.

A whole table and a stream of blocks share both parts, so they give the same rows bit for bit. No message quotes a cell
or counts cells; `l2p.data.header` says when a message may show a column's name.
"""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from l2p.data.bounds import Bounds, Interval, interval, is_finite, scale
from l2p.data.header import complaint_of_missing, is_header, listed
from l2p.data.table import Table
from l2p.errors import InputError, withheld

if TYPE_CHECKING:
    from l2p.task import Rows

#: Kinds of targets: 0 and 1, 0 to K - 1, and values in [0, 1] by public bounds.
Kind = Literal["binary", "multiclass", "regression"]

_REMEDY = "correct the table, or choose on_invalid 'null' (--on-invalid null) to count such rows as null"


@dataclasses.dataclass(frozen=True)
class Preparation:
    """How raw rows become rows to learn from. `Preparation.of` makes one and checks all that is public.

    Attributes:
      columns: names of the columns of raw rows, in order.
      features: d of them, in the order of the model's features.
      limits: [low, high] of every feature, in its own units.
      target: the column of targets.
      target_limits: [low, high] of a regression's target; None for classes.
      classes: the labels that become 0, 1, 2 and so on; None for a binary target of 0 and 1, or -1 and 1.
    """

    columns: tuple[str, ...]
    features: tuple[str, ...]
    limits: tuple[Interval, ...]
    target: str
    target_limits: Interval | None
    classes: tuple[float, ...] | None

    @classmethod
    def of(
        cls,
        columns: Sequence[str],
        target: str,
        bounds: Bounds,
        classes: Sequence[float] | None = None,
        features: Sequence[str] | None = None,
        kind: Kind = "binary",
    ) -> "Preparation":
        """The preparation of rows with these columns; the other arguments are those of `prepare`.

        Raises:
          InputError: unknown target or feature, bounds that are missing, malformed or of no column, or classes that are
            missing or do not fit.
        """
        declared = tuple(dict.fromkeys((target, *(features or ()), *bounds)))
        if said := complaint_of_missing(columns, declared):
            raise InputError(f"the table {said}")
        chosen = tuple(name for name in columns if name != target) if features is None else tuple(features)
        if not chosen or target in chosen or len(set(chosen)) != len(chosen):
            raise InputError(f"features must be distinct columns other than the target {target!r}, at least one")
        limits = _limits(chosen, bounds, is_header(columns, declared))
        check_classes(classes, kind)
        target_limits = _limits((target,), bounds, shown=True)[0] if kind == "regression" else None
        labels = None if classes is None else tuple(map(float, classes))
        return cls(tuple(columns), chosen, limits, target, target_limits, labels)

    @withheld("preparing rows")
    def rows_of(self, values: np.ndarray) -> "Rows":
        """Rows of a block, each of which depends on its own raw row alone: NumPy f32 arrays x [n, d], y [n], mask [n].

        A row with an empty, NaN or infinite cell or a label outside the classes is null: its x, y and mask are 0.
        Without declared classes, 0 and -1 both stand for class 0.

        Args:
          values: real numbers [n, c], a column for each of `columns`; an empty cell is NaN.

        Raises:
          InputError: the block is not such an array.
          RowsError: anything else, such as a lack of memory.

        >>> ward = Preparation.of(("age", "readmit"), "readmit", {"age": (0, 120)})
        >>> rows = ward.rows_of(np.array([[30.0, 1.0], [150.0, -1.0], [np.nan, 1.0]]))
        >>> rows.x.tolist(), rows.y.tolist(), rows.mask.tolist()
        ([[0.25], [1.0], [0.0]], [1.0, 0.0, 0.0], [1.0, 1.0, 0.0])
        """
        from l2p.task import Rows  # imports JAX, which is not needed to read tables

        self._check_block(values)
        raw = values[:, [self.columns.index(name) for name in self.features]]
        y, valid = self._targets(self._target_of(values))
        mask = valid & np.isfinite(raw).all(axis=1)
        x = np.where(mask[:, None], scale(raw, self.limits), np.float32(0))
        y = np.where(mask, y, 0).astype(np.float32)
        return Rows(x=x, y=y, mask=mask.astype(np.float32))  # pyrefly: ignore[bad-argument-type]

    @withheld("checking a table")
    def refuse_invalid(self, values: np.ndarray) -> None:
        """Refuse a whole table that has null rows, or that mixes the labels 0 and -1 where no classes are declared.

        Raises:
          InputError: it does, or it is not an array as `rows_of` takes it.
          RowsError: anything else.
        """
        self._check_block(values)
        for name in self.features:
            if not np.isfinite(values[:, self.columns.index(name)]).all():
                raise InputError(f"column {name!r} has empty, NaN or infinite cells: {_REMEDY}")
        column = self._target_of(values)
        valid = bool(self._targets(column)[1].all())
        if self.target_limits is not None:
            if not valid:
                raise InputError(f"target {self.target!r} has empty, NaN or infinite cells: {_REMEDY}")
        elif not valid or (self.classes is None and np.isin((0, -1), column).all()):
            known = "0 and 1, or -1 and 1" if self.classes is None else " and ".join(f"{c:g}" for c in self.classes)
            others = (
                "its two classes (--classes 1 2), or take --model square if it is a number, or softmax for more classes"
            )
            remedy = f"declare {others if self.classes is None else 'other classes'}"
            raise InputError(f"target {self.target!r} has labels other than {known}: {remedy}, or {_REMEDY}")

    def _check_block(self, values: np.ndarray) -> None:
        if values.shape[1:] != (len(self.columns),) or values.dtype.kind not in "fiub":
            raise InputError("the table's values must be an array of real numbers with as many columns as it has names")

    def _target_of(self, values: np.ndarray) -> np.ndarray:
        return values[:, self.columns.index(self.target)]

    def _targets(self, column: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of the classes, or scaled values [n], and which of them are valid [n]."""
        if self.target_limits is not None:
            return scale(column[:, None], [self.target_limits])[:, 0], np.isfinite(column)
        if self.classes is None:
            return (column == 1).astype(float), np.isin(column, (0, -1, 1))
        found = column[:, None] == np.asarray(self.classes)
        return found.argmax(axis=1).astype(float), found.any(axis=1)


@withheld("preparing a table")
def prepare(
    table: Table,
    target: str,
    bounds: Bounds,
    classes: Sequence[float] | None = None,
    on_invalid: Literal["refuse", "null"] = "refuse",
    features: Sequence[str] | None = None,
    kind: Kind = "binary",
) -> "Rows":
    """Rows of a whole table: NumPy f32 arrays x [n, d] in [0, 1], y [n], mask [n].

    Args:
      table, target: the table, of which only the columns are public, and its column of targets.
      bounds: [low, high] of every feature, in its own units; for "regression" of the target too. Others are unused.
      classes: the labels that become 0, 1, 2 and so on; default for "binary": all 0 or 1, or all -1 or 1.
      on_invalid: what an empty, NaN or infinite cell or a label outside the classes does: "refuse" refuses the table,
        "null" makes its row null (x, y, mask 0). Only "refuse" looks at more than one row at a time.
      features: the features in order, as in the table trained on; default all columns but the target, in table order.
      kind: what y holds: "binary" 0 or 1, "multiclass" 0 to K - 1, and "regression" the target scaled to [0, 1] by its
        bounds, values outside them clipped silently.

    Raises:
      InputError: as `Preparation.of`; an unknown `on_invalid`; or an invalid row under "refuse".
      RowsError: anything else, such as a lack of memory.

    >>> table = Table(("age", "readmit"), np.array([[30.0, 1.0], [150.0, -1.0]]))
    >>> rows = prepare(table, "readmit", {"age": (0, 120)})
    >>> rows.x.tolist(), rows.y.tolist(), rows.mask.tolist()
    ([[0.25], [1.0]], [1.0, 0.0], [1.0, 1.0])
    """
    if on_invalid not in ("refuse", "null"):
        raise InputError(f"on_invalid must be 'refuse' or 'null', not {on_invalid!r}")
    preparation = Preparation.of(table.columns, target, bounds, classes, features, kind)
    if on_invalid == "refuse":
        preparation.refuse_invalid(table.values)
    return preparation.rows_of(table.values)


def check_classes(classes: Sequence[float] | None, kind: Kind) -> None:
    """Refuse declared classes that a target of this kind cannot have.

    >>> check_classes((3, 5, 9), "multiclass")
    """
    if kind == "multiclass" and classes is None:
        raise InputError(
            "a multiclass target needs its classes declared (--classes 0 1 2): reading them off the labels would leak"
        )
    if classes is None:
        return
    if any(is_finite(value) and abs(value) >= 2**53 for value in classes):
        raise InputError(
            "classes (--classes) hold a number from 2^53 on, but without a schema cells are read as floating-point "
            "numbers, which take such whole numbers for one another: declare them in a schema (l2p schema)"
        )
    distinct = len(classes) >= 2 and all(map(is_finite, classes)) and len(set(classes)) == len(classes)
    if kind == "regression":
        raise InputError("classes are declared, but a regression has none: leave them out, or choose a classifier")
    if kind == "binary" and not (distinct and len(classes) == 2):
        raise InputError("classes (--classes) must be two different numbers (A, B): labels A become 0 and B become 1")
    if not distinct:
        raise InputError(
            "classes (--classes) must be different numbers, at least two: their labels become 0, 1, 2 and so on"
        )


def _limits(names: Sequence[str], bounds: Bounds, shown: bool) -> tuple[Interval, ...]:
    """Bounds of some columns; a refusal shows the columns' names only if `shown`."""
    if missing := [name for name in names if name not in bounds]:
        which = f"column {listed(missing)}" if shown else f"{len(missing)} columns"
        why = "reading them off private rows would leak; declare [low, high] from public knowledge"
        raise InputError(f"bounds are missing for {which}: {why}")
    return tuple(interval(name, bounds[name]) for name in names)
