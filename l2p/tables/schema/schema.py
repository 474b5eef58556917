"""The declaration of a table: what its columns hold, what is predicted, and whom the guarantee protects."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from l2p.base.errors import InputError
from l2p.tables.bounds import Interval
from l2p.tables.reading.format import Format, check_text, has_comma
from l2p.tables.schema.columns import Category, Column, Ignore, Number
from l2p.tables.schema.names import names_of
from l2p.tables.schema.target import Target, Unit

#: Cells that count as missing unless a schema says otherwise; empty cells, None and NaN always do.
MISSING_WORDS = ("?", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "none", "<NA>", "#N/A")


@dataclasses.dataclass(frozen=True)
class Schema:
    """A table as its owner declares it. All of it is public.

    Attributes:
      columns: every column but the target and the unit, by name, in the order of the encoded features.
      target: what is predicted.
      unit: whom the guarantee protects, if not a single row.
      missing_words: cells that count as missing, unless the column declares them as values.
      encoding, decimal: how the texts of its tables are written, where a `Format` does not say it.

    >>> ward = Schema({"age": Number(0, 120), "id": Ignore()}, Target("readmit", classes=(False, True)))
    >>> ward.names, ward.features
    (('age', 'id', 'readmit'), ('age',))
    """

    columns: Mapping[str, Column]
    target: Target
    unit: Unit | None = None
    missing_words: Sequence[str] = MISSING_WORDS
    encoding: str | None = None
    decimal: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.columns, Mapping) or not all(isinstance(name, str) for name in self.columns):
            raise InputError("columns must be declared by name; write {name: what the column holds}.")
        for name, column in self.columns.items():
            if not isinstance(column, Column):
                raise InputError(f"column {name!r} must be a Number, Category or Ignore; declare it as one of these.")
            if not name.strip():
                raise InputError(
                    "a column has no name, so no table can have it; write the one that stands in the table."
                )
        object.__setattr__(self, "columns", dict(self.columns))
        if self.target.column in self.columns:
            raise InputError(
                f"column {self.target.column!r} is both the target and a column to learn from, so a model would copy "
                "it; declare it as the target alone."
            )
        if self.unit is not None and self.unit.column == self.target.column:
            raise InputError(f"column {self.target.column!r} is both the target and the unit; name another unit.")
        if self.unit is not None and not isinstance(self.columns.get(self.unit.column, Ignore()), Ignore):
            raise InputError(
                f"column {self.unit.column!r} is both the unit and a column to learn from, so a model would learn who "
                "is who; declare it as the unit alone."
            )
        if not self.features:
            raise InputError("no column is left to learn from; declare at least one number or category.")
        words = self.missing_words
        if isinstance(words, str) or not all(isinstance(word, str) for word in words):
            raise InputError('missing_words must be a list of texts, such as ["?", "NA"]; write one.')
        object.__setattr__(self, "missing_words", tuple(dict.fromkeys(word.strip() for word in words)))
        self._check_encoded_names()
        self._check_text()

    def _check_text(self) -> None:
        """Refuse texts that no cell can be, because it is read as the number that it stands for."""
        check_text(self.encoding, self.decimal)
        if self.decimal != ",":
            return
        categories = [
            value for column in self.columns.values() if isinstance(column, Category) for value in column.values
        ]
        for value in (*categories, *(self.target.classes or ()), *self.target.aliases, *self.missing_words):
            if has_comma(value):
                raise InputError(
                    f"{value!r} is declared, but commas are decimal in this table, so no cell is read as it; write "
                    "a point in place of its comma."
                )

    def _check_encoded_names(self) -> None:
        names = [name for column in self.features for name in names_of(column, self.columns[column])]
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(f"two columns would both give a feature named {twice!r}; rename one of them.")
        # Its knots have names once its bounds are bought, when a refusal would be of what was paid for.
        private = [name for name in self.private_bounds if cast(Number, self.columns[name]).curve is not None]
        for name, column in itertools.product(private, self.features):
            if column.startswith(f"{name} near "):
                raise InputError(
                    f"the column {column!r} has a name as the knots of the curve of {name!r} have; rename one of them."
                )

    @property
    def features(self) -> tuple[str, ...]:
        """The columns to learn from, before encoding."""
        return tuple(name for name, column in self.columns.items() if not isinstance(column, Ignore))

    @property
    def names(self) -> tuple[str, ...]:
        """All declared columns: those to learn from and to ignore, the unit, and the target last."""
        unit = () if self.unit is None else (self.unit.column,)
        return tuple(dict.fromkeys((*self.columns, *unit, self.target.column)))

    @property
    def private_bounds(self) -> tuple[str, ...]:
        """The columns whose bounds are still to be bought."""
        return tuple(n for n, column in self.columns.items() if isinstance(column, Number) and column.is_private)

    def with_bounds(self, bounds: Mapping[str, Interval]) -> "Schema":
        """The schema with bounds in place of "private" ones. A fill outside them moves to the nearer one.

        >>> Schema({"age": Number.private()}, Target("y", (0, 1))).with_bounds({"age": (0, 64)}).columns["age"].high
        64.0
        """
        columns = dict(self.columns)
        for name, (low, high) in bounds.items():
            column = columns.get(name)
            if not (isinstance(column, Number) and column.is_private):
                raise InputError(f"column {name!r} has no private bounds; give bounds to {self.private_bounds} alone.")
            missing = column.missing
            if missing is not None:
                fill = min(max(float(missing.fill or 0), low), high)
                missing = dataclasses.replace(missing, fill=fill)
            columns[name] = dataclasses.replace(column, low=low, high=high, missing=missing)
        return dataclasses.replace(self, columns=columns)

    def written_as(self, format: Format | None) -> "Schema":
        """The schema with the encoding and the decimal mark of `format`, where it says them: predictions then read
        their tables as training did."""
        if format is None or (format.encoding is None and format.decimal is None):
            return self
        return dataclasses.replace(
            self, encoding=format.encoding or self.encoding, decimal=format.decimal or self.decimal
        )

    def format(self, override: Format | None = None) -> Format:
        """Format of a table: `override`, else as declared here."""
        return (override or Format()).filled(self.encoding, self.decimal)

    @classmethod
    def read(cls, path: str | Path) -> "Schema":
        """The schema in a JSON file (docs/tables.md says how to write one).

        Raises:
          InputError: the file is missing, is no such JSON, is unfinished or contradicts itself.
        """
        from l2p.tables.schema.file import read

        return read(Path(path))

    def write(self, path: str | Path) -> None:
        """Write it as JSON that `read` takes.

        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "schema.json"
        >>> from l2p.tables.schema import Category
        >>> ward = Schema({"stay": Category(("short", "long"), ordered=True)}, Target("cost", bounds=(0, 9)))
        >>> ward.write(path)
        >>> Schema.read(path) == ward
        True
        """
        from l2p.tables.schema.file import write

        write(self, Path(path))


def schema_of(source: object) -> Schema | None:
    """Declaration of the table whose rows a source encodes; None for rows in memory, and where rows came encoded.

    >>> schema_of([1.0, 2.0]) is None
    True
    """
    schema = getattr(source, "schema", None)
    return schema if isinstance(schema, Schema) else None
