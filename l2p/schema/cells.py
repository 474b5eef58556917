"""Raw cells as numbers and as places in a list of declared values. What a cell becomes depends on that cell alone.

Cells come as one-dimensional NumPy arrays: of numbers, of booleans, or of objects that are texts, numbers, booleans or
None. A text, a number and a boolean that mean the same are taken for the same: files do not agree on how to write them.
"""

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from l2p.schema.columns import Value, kind_of

#: A whole number as texts have it, with or without a point; 007 is a word.
_WHOLE = re.compile(r"(0|-?[1-9]\d*)(?:\.0+)?")
#: The code of a value that is not declared, and of a missing cell.
OTHER, MISSING = -1, -2


def numbers(cells: np.ndarray, missing_words: Collection[str] = ()) -> np.ndarray:
    """Cells as f64[n]: NaN where a cell is missing, infinite where it is infinite or no number.

    >>> numbers(np.array([" 7", "?", "seven", None, 1], object), {"?"}).tolist()
    [7.0, nan, inf, nan, 1.0]
    """
    words = frozenset(missing_words)
    with np.errstate(over="ignore"):  # a warning would tell of a single cell
        found = cells.astype(np.float64) if cells.dtype.kind in "biuf" else _of_objects(cells.tolist(), words)
    values = [value for value in map(_float, words) if math.isfinite(value)]  # of words such as -999
    return np.where(np.isin(found, values), np.nan, found) if values else found


def _of_objects(cells: list, words: frozenset[str]) -> np.ndarray:
    try:
        found = np.array(list(map(float, cells)), np.float64)
    except (TypeError, ValueError, OverflowError):
        return np.array([_number(cell, words) for cell in cells], np.float64)
    if np.isinf(found).any():  # a word for missing may read as infinite
        return np.array([_number(cell, words) for cell in cells], np.float64)
    return found


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
    >>> [codes(np.array(one), ("0.0", "1")).tolist() for one in ([0, 1], [0.0, 1.0], [-0.0, 0.0], ["0", "1.0"])]
    [[0, 1], [0, 1], [0, 0], [0, 1]]
    """
    place = _Places(values, missing_words, aliases or {})
    if cells.dtype.kind in "biuf":
        distinct, inverse = np.unique(cells, return_inverse=True)
        return np.array([place.of(cell) for cell in distinct.tolist()], np.int64)[inverse.reshape(-1)]
    # Only texts are remembered: as keys of a dictionary, 1 and True would be one.
    return np.array([place[cell] if type(cell) is str else place.of(cell) for cell in cells.tolist()], np.int64)


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
        if cell is None or cell != cell:
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
        """What a text means as a value of the declared kind."""
        if self._kind is str:
            return text
        if self._kind is float:
            return _float(text)
        known = {"true": True, "false": False}.get(text.casefold())
        return {1.0: True, 0.0: False}.get(_float(text)) if known is None else known


def _spellings(cell: object) -> Iterator[str]:
    """How files write a cell: a whole number with or without its .0, a boolean with or without its capital.

    Those of a cell do not depend on its type, which other cells of its column may have decided: a column of whole
    numbers becomes one of floats where one is missing, and one of texts where one is no number.
    """
    if isinstance(cell, str):
        text = cell.strip()
        yield text
    elif isinstance(cell, bool):
        yield from (str(cell), str(cell).lower())
        text = str(int(cell))
    elif isinstance(cell, int):
        text = str(cell)
    elif math.isfinite(number := _float(cell)):
        text = str(int(number)) if number == int(number) else repr(number)
    else:
        return
    if whole := _WHOLE.fullmatch(text):
        yield from (whole[1], f"{whole[1]}.0")
    elif not isinstance(cell, str):
        yield text
