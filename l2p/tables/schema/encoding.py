"""From raw cells to rows to learn from, and from predictions back to words and units.

An encoded row depends on the raw row and on the schema alone, so training, testing and prediction, whole tables and
blocks of them, all see the same rows bit for bit. No message quotes a cell or counts cells.
"""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import numpy as np

from l2p.base.errors import InputError, withheld
from l2p.tables.bounds import scale
from l2p.tables.header import complaint_of_missing, listed
from l2p.tables.schema.cells import MISSING, OTHER, codes, numbers
from l2p.tables.schema.columns import Category, Number, Value, as_array, same
from l2p.tables.schema.curves import hats
from l2p.tables.schema.names import names_of
from l2p.tables.schema.schema import Schema

if TYPE_CHECKING:
    from l2p.task.rows import Rows

#: Raw cells: columns of one length by name, each a NumPy array as `l2p.tables.schema.cells` takes it.
Block = Mapping[str, np.ndarray]
#: Treatment of a row that cannot be encoded: its table is refused, or it counts as null.
OnInvalid = Literal["refuse", "null"]

_DECLARE_MISSING = 'declare what stands in for missing ones ("missing" in the schema), '
_COMMAS = "if it writes 7,5 for 7.5, say so (--decimal ,); "
_REMEDY = 'correct the table, or choose on_invalid "null" (--on-invalid null) to count such rows as null'


@dataclasses.dataclass(frozen=True)
class Encoding:
    """Encoder of raw rows by a schema.

    Attributes:
      schema: the declaration, with all bounds known.

    Raises:
      InputError: bounds are still to be bought.

    >>> from l2p.tables.schema import Target
    >>> ward = Encoding(Schema({"age": Number(0, 120), "sex": Category(("f", "m"))}, Target("back", classes=(0, 1))))
    >>> ward.names
    ('age', 'sex=f', 'sex=m')
    >>> block = {"age": np.array(["30", "?"]), "sex": np.array(["m", "f"]), "back": np.array([1, 0])}
    >>> rows = ward.rows(block)
    >>> rows.x.tolist(), rows.y.tolist(), rows.mask.tolist()
    ([[0.25, 0.0, 1.0], [0.0, 0.0, 0.0]], [1.0, 0.0], [1.0, 0.0])
    """

    schema: Schema

    def __post_init__(self) -> None:
        if names := self.schema.private_bounds:
            raise InputError(
                f"bounds of column {listed(names)} are private and have not been bought, so nothing can be scaled by "
                "them; declare [low, high]."
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The d encoded features, in order."""
        columns = self.schema.columns
        return tuple(name for column in self.schema.features for name in names_of(column, columns[column]))

    @withheld("encoding features")
    def features(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        """Encoded features f32[n, d] in [0, 1], and which rows are valid, bool[n]; the others are 0.

        Raises:
          InputError: the block lacks a column.
          RowsError: anything else, such as a lack of memory.
        """
        self._check_columns(block, self.schema.features)
        return self._features(block, "null")

    def _features(self, block: Block, on_invalid: OnInvalid) -> tuple[np.ndarray, np.ndarray]:
        parts = []
        for name in self.schema.features:
            part, valid = self.column(name, block)
            if on_invalid == "refuse" and not valid.all():
                raise InputError(self._complaint_of_feature(name))
            parts.append((part, valid))
        valid = np.logical_and.reduce([ok for _, ok in parts])
        x = np.concatenate([part for part, _ in parts], axis=1)
        x[~valid] = 0
        return x, valid

    @withheld("encoding targets")
    def targets(self, block: Block) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of classes, or values scaled to [0, 1], f32[n], and which are valid, bool[n]; the others are 0."""
        target, words = self.schema.target, self.schema.missing_words
        self._check_columns(block, (target.column,))
        cells = block[target.column]
        if target.classes is not None:
            classes = codes(cells, target.classes, words, target.aliases)
            return np.maximum(classes, 0).astype(np.float32), classes >= 0
        assert target.bounds is not None
        values = numbers(cells, words)
        valid = np.isfinite(values)
        return scale(np.where(valid, values, target.bounds[0])[:, None], [target.bounds])[:, 0], valid

    @withheld("encoding rows")
    def rows(self, block: Block, on_invalid: OnInvalid = "null") -> "Rows":
        """Rows to learn from: NumPy f32 arrays x [n, d], y [n], mask [n]. Under "null" an invalid row is null: all
        three are 0.

        A row is invalid if a number is missing where nothing stands in for it, infinite or no number, or if its target
        is none of the classes.

        Raises:
          InputError: the block lacks a column or, under "refuse", has an invalid row; the message names the column and
            its declaration.
        """
        from l2p.task.rows import Rows  # imports JAX, which is not needed to declare and read tables

        self._check_columns(block, (*self.schema.features, self.schema.target.column))
        x, valid = self._features(block, on_invalid)
        y, labelled = self.targets(block)
        if on_invalid == "refuse" and not labelled.all():
            raise InputError(self._complaint_of_target())
        mask = valid & labelled
        x[~mask] = 0
        return Rows(x=x, y=np.where(mask, y, np.float32(0)), mask=mask.astype(np.float32))  # pyrefly: ignore[bad-argument-type]

    def _complaint_of_feature(self, name: str) -> str:
        """Sentence on a column with invalid cells, by its declaration."""
        column, unmarked = self.schema.columns[name], self.schema.decimal is None
        if isinstance(column, Number):
            fault = "are infinite or no numbers" if column.missing else "are missing, infinite or no numbers"
        else:
            fault = "are missing"
        fill = "" if getattr(column, "missing", None) else _DECLARE_MISSING
        commas = _COMMAS if isinstance(column, Number) and unmarked else ""
        return f"column {name!r} has cells that {fault}: {fill}{commas}{_REMEDY}"

    def _complaint_of_target(self) -> str:
        target = self.schema.target
        if target.classes is None:
            commas = _COMMAS if self.schema.decimal is None else ""
            return f"target {target.column!r} has cells that are missing, infinite or no numbers: {commas}{_REMEDY}"
        return (
            f"target {target.column!r} has labels other than {listed([*map(str, target.classes)])}: declare them as "
            f"classes or aliases, or {_REMEDY}"
        )

    def decode(self, predicted: np.ndarray) -> np.ndarray:
        """Predictions [n] in the target's own words or units: numbers of classes, or values in [0, 1], to labels.

        >>> from l2p.tables.schema import Target
        >>> Encoding(Schema({"age": Number(0, 1)}, Target("pay", classes=("low", "high")))).decode(np.ones(2)).tolist()
        ['high', 'high']
        """
        target = self.schema.target
        if target.classes is not None:
            is_text = isinstance(target.classes[0], str)
            labels = np.asarray(target.classes, object) if is_text else as_array(target.classes)
            return labels[np.asarray(predicted).astype(int)]
        assert target.bounds is not None
        low, high = target.bounds
        return low + (high - low) * np.asarray(predicted, np.float64)

    def _check_columns(self, block: Block, needed: tuple[str, ...]) -> None:
        if complaint := complaint_of_missing(tuple(block), needed):
            raise InputError(f"the table {complaint}")

    def column(self, name: str, block: Block) -> tuple[np.ndarray, np.ndarray]:
        """One column's features f32[n, k], and which of its cells are valid, bool[n]."""
        column, cells = self.schema.columns[name], block[name]
        if isinstance(column, Number):
            return _encoded_number(column, numbers(cells, self.schema.missing_words))
        assert isinstance(column, Category)
        return _encoded_category(column, codes(cells, column.values, self.schema.missing_words))


def _encoded_number(column: Number, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Features f32[n, k] and which are valid, bool[n], of values as `numbers` gives them."""
    bounds = column.bounds
    assert bounds != "private"
    missing, valid = np.isnan(values), ~np.isinf(values)
    if column.missing is None:
        valid &= ~missing
    stand_in = bounds[0] if column.missing is None else float(column.missing.fill or 0)  # finite, by declaration
    values = np.where(missing, stand_in, values)
    x = scale(values[:, None], [bounds]) if column.curve is None else hats(values, column.knots)
    return _with_indicators(x, column, missing), valid


def _encoded_category(column: Category, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Features f32[n, k] and which are valid, bool[n], of `places` as `codes` gives them.

    A cell of which nothing is known counts as the average of the declared values. It then lies among what rows of
    those values train, in every model, where zeros or a column of its own would get the noise of an untrained weight.
    """
    missing, undeclared = places == MISSING, places == OTHER
    valid = ~missing if column.missing is None else np.ones(len(places), bool)
    if column.missing is not None and column.missing.fill is not None:
        places = np.where(missing, _place(column.missing.fill, column), places)
    count = len(column.values)
    of_values = np.linspace(0, 1, count)[:, None] if column.ordered else np.eye(count)
    table = np.concatenate([of_values, [column.average @ of_values]]).astype(np.float32)
    x = table[np.where(places >= 0, places, count)]
    return _with_indicators(x, column, missing, undeclared), valid


def _place(value: Value, column: Category) -> int:
    return next(place for place, declared in enumerate(column.values) if same(declared, value))


def _with_indicators(
    x: np.ndarray, column: Number | Category, missing: np.ndarray, undeclared: np.ndarray | None = None
) -> np.ndarray:
    """Features with indicators of undeclared and of missing cells, in the order of `names_of`."""
    parts = [x]
    if isinstance(column, Category) and column.other and undeclared is not None:
        parts.append(undeclared[:, None])
    if column.missing is not None and column.missing.indicator:
        parts.append(missing[:, None])
    return np.concatenate(parts, axis=1, dtype=np.float32)
