"""Tables in memory: DataFrames of pandas and Polars, NumPy arrays, columns by name.

No frame library is imported: a frame is what has `columns` and gives a column with `to_numpy` by its name.
"""

import dataclasses
import decimal
import numbers
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from l2p.base.errors import InputError, withheld
from l2p.tables.header import called, listed
from l2p.tables.reading.source import BLOCK, Block, RawSource, distinct, objects

_KINDS = (str, numbers.Real, decimal.Decimal, np.bool_, type(None))  # NumPy's real numbers are among the second


@dataclasses.dataclass(eq=False, repr=False)
class InMemory(RawSource):
    """Columns in memory.

    Attributes:
      columns: by name, each a list or an array of cells, or what has `to_numpy`.
    """

    names: tuple[str, ...]
    types: Mapping[str, str]
    columns: Mapping[str, Any]
    title = "the table"

    @classmethod
    @withheld("reading columns")
    def of(cls, columns: Mapping[str, Any]) -> "InMemory":
        """Columns by name, of one length."""
        names = distinct([str(name) for name in columns], "the table")
        columns = dict(zip(names, columns.values(), strict=True))
        if any(getattr(column, "ndim", 1) != 1 for column in columns.values()):
            raise InputError("a column of the table has more than one axis, so it is no column; give arrays [n].")
        if len({len(column) for column in columns.values()}) > 1:
            raise InputError("the columns of the table differ in how many rows they have; give columns of one table.")
        return cls(names, {name: kind for name, c in columns.items() if (kind := _type_of(c))}, columns)

    @classmethod
    @withheld("reading a frame")
    def of_frame(cls, frame: Any) -> "InMemory":
        """A DataFrame; its index is no column."""
        names = list(frame.columns)
        distinct([str(name) for name in names], "the table")
        return cls.of({str(name): frame[name] for name in names})

    @classmethod
    @withheld("reading an array")
    def of_array(cls, array: np.ndarray, names: Sequence[str]) -> "InMemory":
        """An array [n, c] and the names of its columns; one with named fields has its own."""
        if array.dtype.names is not None:
            return cls.of({name: array[name] for name in array.dtype.names})
        if array.ndim != 2 or array.shape[1] != len(names):
            raise InputError(
                f"an array is read as [rows, columns], with columns named {listed(names) or 'nothing'}, but it has "
                "another shape; name its columns, or give a DataFrame."
            )
        return cls.of({name: array[:, place] for place, name in enumerate(names)})

    def blocks(self, wanted: Sequence[str]) -> Iterator[Block]:
        with withheld("reading columns"):
            columns = {name: self._cells(name, wanted) for name in wanted}
            count = len(next(iter(columns.values()), ()))
            for start in range(0, count, BLOCK):
                yield {name: column[start : start + BLOCK] for name, column in columns.items()}

    def _cells(self, name: str, wanted: Sequence[str]) -> np.ndarray:
        column = self.columns[name]
        if hasattr(column, "to_numpy"):
            cells = column.to_numpy()
        elif hasattr(column, "dtype"):
            cells = np.asarray(column)
        else:  # NumPy would give all cells of a list one type, so that one text turned the others into texts
            cells = objects(list(column))
        if cells.dtype.kind in "US":
            cells = cells.astype(str).astype(object)
        if cells.dtype.kind == "O":
            # Libraries have missing values of their own, which compare with nothing.
            if hasattr(column, "isna"):
                cells = cells.copy()
                cells[np.asarray(column.isna(), bool)] = None
            if all(isinstance(cell, _KINDS) for cell in cells):
                return cells
        elif cells.dtype.kind in "biuf":
            return cells
        raise InputError(
            f"{called(self.names.index(name), self.names, wanted)} of the table holds neither numbers nor texts nor "
            "booleans (dates or lists, say): turn it into one of these, or declare it as ignored"
        )


def _type_of(column: Any) -> str:
    """The type that a column declares: "number", "category", or nothing for objects, whose cells alone would tell."""
    kind = getattr(getattr(column, "dtype", None), "kind", None)
    return {"i": "number", "u": "number", "f": "number", "b": "category", "U": "category"}.get(kind or "", "")
