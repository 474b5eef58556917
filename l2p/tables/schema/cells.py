"""Raw cells as numbers and as places in a list of declared values. The result of a cell depends on that cell alone.

Cells come as one-dimensional NumPy arrays: of numbers, of booleans, or of objects that are texts, numbers, booleans or
None. A text, a number and a boolean that mean the same are taken for the same: files do not agree on how to write them.
"""

import decimal
import math
import numbers as kinds
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from l2p.base.errors import InputError
from l2p.tables.schema.columns import INEXACT, Value, kind_of

#: No declared number has more digits, for a float must hold it.
_MOST_DIGITS = 310
#: A whole number as texts have it, with or without a point; 007 is a word.
_WHOLE = re.compile(rf"(0|-?[1-9]\d{{0,{_MOST_DIGITS}}})(?:\.0+)?")
#: The code of a value that is not declared, and of a missing cell.
OTHER, MISSING = -1, -2


def numbers(cells: np.ndarray, missing_words: Collection[str] = ()) -> np.ndarray:
    """Cells as f64[n]: NaN where a cell is missing, infinite where it is infinite or no number.

    >>> numbers(np.array([" 7", "?", "seven", None, 1], object), {"?"}).tolist()
    [7.0, nan, inf, nan, 1.0]
    """
    words = frozenset(missing_words)
    with np.errstate(over="ignore", invalid="ignore"):  # a warning would tell of a single cell
        floats = cells.astype(np.float64) if cells.dtype.kind in "biuf" else _of_objects(cells.tolist(), words)
    values = [value for value in map(_float, words) if math.isfinite(value)]  # of words such as -999
    return np.where(np.isin(floats, values), np.nan, floats) if values else floats


def _of_objects(cells: list, words: frozenset[str]) -> np.ndarray:
    try:
        floats = np.array(list(map(float, cells)), np.float64)
    except (TypeError, ValueError, OverflowError):
        return np.array([_number(cell, words) for cell in cells], np.float64)
    if np.isinf(floats).any():  # a word for missing may read as infinite
        return np.array([_number(cell, words) for cell in cells], np.float64)
    return floats


def _number(cell: object, words: frozenset[str]) -> float:
    if isinstance(cell, str):
        cell = cell.strip()
    return math.nan if cell is None or cell == "" or (isinstance(cell, str) and cell in words) else _float(cell)


def _float(cell: Any) -> float:
    try:
        return float(cell)
    except (TypeError, ValueError, OverflowError):
        return math.inf


def codes(
    cells: np.ndarray,
    values: Sequence[Value],
    missing_words: Collection[str] = (),
    aliases: Mapping[str, Value] | None = None,
) -> np.ndarray:
    """Places of cells in `values`, i64[n]: `OTHER` where it is none of them, `MISSING` where the cell is.

    >>> codes(np.array(["b", "a ", "?", "c", None], object), ("a", "b"), {"?"}).tolist()
    [1, 0, -2, -1, -2]
    >>> codes(np.array([1.0, 3.0, np.nan]), ("1", "2")).tolist(), codes(np.array(["1.0"]), (1,)).tolist()
    ([0, -1, -2], [0])
    >>> [codes(np.array(cells), ("0.0", "1")).tolist() for cells in ([0, 1], [0.0, 1.0], [-0.0, 0.0], ["0", "1.0"])]
    [[0, 1], [0, 1], [0, 0], [0, 1]]

    Raises:
      InputError: the cells are floating-point numbers, which cannot hold a declared whole number.
    """
    place = _Places(values, missing_words, aliases or {})
    if cells.dtype.kind == "f":
        _refuse_inexact(cells.dtype, values)
    if cells.dtype.kind in "biuf":
        distinct, inverse = np.unique(cells, return_inverse=True)
        return np.array([place.of(cell) for cell in distinct.tolist()], np.int64)[inverse.reshape(-1)]
    # Only texts are remembered: as keys of a dictionary, 1 and True would be one.
    return np.array([place[cell] if type(cell) is str else place.of(cell) for cell in cells.tolist()], np.int64)


def whole_number(cell: object) -> int:
    """The whole number that a cell holds, without a digit lost where the cell has them all.

    >>> whole_number(" 9007199254740993 "), whole_number("1e2")
    (9007199254740993, 100)
    """
    spellings = (_WHOLE.fullmatch(spelling) for spelling in _spellings(cell))
    return next((int(match[1]) for match in spellings if match), None) or int(_float(cell))


def _refuse_inexact(kind: np.dtype, values: Sequence[Value]) -> None:
    """Refuse declared whole numbers that floating-point numbers of a kind take for one another."""
    limit = 2.0 ** (np.finfo(kind).nmant + 1)
    for value in values:
        match = _WHOLE.fullmatch(value) if isinstance(value, str) else None
        number = int(match[1]) if match else value
        if not isinstance(number, str) and abs(number) >= limit:
            raise InputError(
                f"the value {value!r} is declared, but its column holds floating-point numbers ({kind}), which take "
                f"whole numbers from {limit:,.0f} on for one another; read the column as whole numbers or as text."
            )


class _Places(dict[str, int]):
    """Texts seen so far and their codes."""

    def __init__(self, values: Sequence[Value], missing_words: Collection[str], aliases: Mapping[str, Value]):
        super().__init__()
        self._kind = kind_of(values[0])
        self._places = {value: place for place, value in enumerate(values)}
        self._aliases = {alias: self._places[value] for alias, value in aliases.items()}
        self._missing = frozenset(missing_words) | {""}

    def __missing__(self, text: str) -> int:
        self[text] = code = self.of(text)
        return code

    def of(self, cell: object) -> int:
        """The code of one cell."""
        if cell is None or (isinstance(cell, decimal.Decimal) and cell.is_nan()) or cell != cell:
            return MISSING
        spellings = list(_spellings(cell))
        for spelling in spellings:
            if spelling in self._aliases:
                return self._aliases[spelling]
            value = self._read(spelling)
            if value is not None and value in self._places:
                return self._places[value]
        return MISSING if any(spelling in self._missing for spelling in spellings) else OTHER

    def _read(self, text: str) -> Value | None:
        """A text as a value of the declared kind; None where it is none."""
        if self._kind is str:
            return text
        if self._kind is float:
            match = _WHOLE.fullmatch(text)
            number = int(match[1]) if match else _float(text)
            return number if match or abs(number) < INEXACT else None
        value = {"true": True, "false": False}.get(text.casefold())
        return {1.0: True, 0.0: False}.get(_float(text)) if value is None else value


def _spellings(cell: object) -> Iterator[str]:
    """Spellings of a cell in files: a whole number with or without its .0, a boolean with or without its capital.

    They do not depend on the cell's type, which other cells of its column may have decided: a column of whole numbers
    becomes one of floats where one is missing, and one of texts where one is no number.
    """
    if isinstance(cell, str):
        text = cell.strip()
        yield text
    elif isinstance(cell, bool):
        yield from (str(cell), str(cell).lower())
        text = str(int(cell))
    elif isinstance(cell, kinds.Integral):
        if abs(int(cell)) > 10**_MOST_DIGITS:
            return
        text = str(int(cell))
    elif isinstance(cell, decimal.Decimal) and cell.is_finite() and cell == cell.to_integral_value():
        if cell.adjusted() > _MOST_DIGITS:
            return
        text = str(int(cell))
    elif abs(number := _float(cell)) < INEXACT:  # a larger one may have been another whole number before it was rounded
        text = str(int(number)) if number == int(number) else repr(number)
    else:
        return
    if match := _WHOLE.fullmatch(text):
        yield from (match[1], f"{match[1]}.0")
    elif not isinstance(cell, str):
        yield text
