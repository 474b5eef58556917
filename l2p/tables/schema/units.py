"""The cap on the rows of a unit, where one person may have several: the first k count, in the order of the table."""

import decimal
import re
from collections.abc import Collection

import numpy as np

from l2p.base.errors import InputError, withheld
from l2p.tables.schema.target import Unit

#: Long numbers as spreadsheets and programs write them.
_ROUNDED = re.compile(r"[+-]?\d*[.,]\d*[eE][+-]?\d+")
#: The same without a point, which are exact where they are not long; 12e5 may be a name.
_POWER = re.compile(r"[+-]?\d+[eE]\+\d+")
#: Whole numbers that a file writes with a point, as one with gaps among its numbers does.
_WHOLE = re.compile(r"([+-]?\d+)\.0*", re.ASCII)
#: Whole numbers from here on may have been others before they were kept as floats.
_LEAST_ROUNDED = 2.0**53


class FirstRows:
    """Keeps the first `max_rows` valid rows of every unit over one pass of a table; others become null rows.

    Whether a row is kept depends on its own unit's rows alone. Proof: let a unit's valid rows be r1, r2 and so on in
    the table's order. Row ri is kept if and only if fewer than `max_rows` valid rows of that unit came before it, which
    is if i <= max_rows. Rows of others, nulled, inserted, removed or moved, change neither the order of r1, r2 and so
    on among themselves nor which of them are valid (a row's own matter), so they do not change i; nor do the ends of
    blocks, over which the counts are carried. Hence two tables that differ in all rows of one unit keep the same rows
    of every other unit, and at most `max_rows` of this one each.

    That asks for units that are told apart by what their own cells say, never by a hash, of which two could agree.
    Numbers, and texts that are the same whole number (7, 7.0, "7", " 7.0"), are one unit; "007" is another, and so are
    texts in capitals. A row without a unit (missing, or one of the words for it) is null, whosoever it is.

    Floats may stand for several units each: whole ones from 2^53 on (2^24 in single precision), others with more digits
    than their precision tells apart, and texts such as 1.23457E+17 or 9007199254740992.0, to which programs round long
    numbers: refused.

    It holds the name and the count of every unit that it has met, which is all that grows with the table.

    Args:
      unit: the column and the most rows.
      missing_words: texts that stand for no unit.

    >>> rule = FirstRows(Unit("person", 2), {"NA"})
    >>> valid = np.ones(4, bool)
    >>> rule.keep(np.array(["a", "a", "NA", "a"], object), valid).tolist()
    [True, True, False, False]
    >>> rule.keep(np.array(["a", "b"], object), valid[:2]).tolist()
    [False, True]
    """

    def __init__(self, unit: Unit, missing_words: Collection[str] = ()):
        self._most = unit.max_rows
        self._missing = {"", *missing_words}
        # A word that is a number stands for it however a cell writes it, as in columns of numbers.
        self._missing_numbers = {number for word in missing_words if (number := _number(word)) is not None}
        self._counts: dict[str, int] = {}

    @withheld("counting the rows of units")
    def keep(self, cells: np.ndarray, valid: np.ndarray) -> np.ndarray:
        """Mask bool[n] of the rows of the next block that count, of those `valid`, bool[n]; cells [n] name their units.

        Raises:
          InputError: units are numbers that were rounded, so that several may be one.
        """
        counted = np.zeros(len(cells), bool)
        for row, cell in enumerate(cells if cells.dtype.kind == "f" else cells.tolist()):
            name = unit_of(cell) if valid[row] else ""
            if name in self._missing or (self._missing_numbers and _number(name) in self._missing_numbers):
                continue
            count = self._counts.get(name, 0)
            if count < self._most:
                self._counts[name] = count + 1
                counted[row] = True
        return counted


def unit_of(cell: object) -> str:
    """The unit that a cell names, as text; empty for none.

    >>> [unit_of(cell) for cell in (7, 7.0, " 7.0", "007", 2**63 + 1, None, float("nan"))]
    ['7', '7', '7', '007', '9223372036854775809', '', '']
    >>> unit_of(decimal.Decimal("12.50")), unit_of(decimal.Decimal("1E+2"))
    ('12.5', '100')
    """
    if cell is None or cell != cell:
        return ""
    if isinstance(cell, decimal.Decimal) and cell.is_finite():
        cell = f"{cell:.0f}" if cell == cell.to_integral_value() else f"{cell:f}".rstrip("0")
    if isinstance(cell, (float, np.floating)):
        if not _is_exact(cell):
            raise InputError(
                "the column of the unit holds floating-point numbers with more digits than they tell apart, so two "
                "units might be taken for one; give them as texts or whole numbers."
            )
        return str(int(cell)) if cell == np.floor(cell) else str(cell)
    text = str(cell).strip()
    if _ROUNDED.fullmatch(text) or (_POWER.fullmatch(text) and abs(float(text)) >= _LEAST_ROUNDED):
        raise InputError(
            "the column of the unit holds numbers in scientific notation, as spreadsheets write long ones after "
            "rounding them, so two units might be taken for one; export the column as text."
        )
    whole = _WHOLE.fullmatch(text)
    if whole is not None and abs(float(text)) >= _LEAST_ROUNDED:
        raise InputError(
            "the column of the unit holds long numbers with a decimal point, as programs write whole numbers that they "
            "rounded, so two units might be taken for one; export the column as text."
        )
    return text if whole is None else whole[1]


def _number(text: str) -> float | None:
    """The number that a text is; None for another."""
    try:
        return float(text)
    except ValueError:
        return None


def _is_exact(cell: float | np.floating) -> bool:
    """True if no other number of as many digits is the same float.

    >>> [_is_exact(cell) for cell in (np.float32(2**24 - 1), np.float32(2**24), 2.0**24, 0.1, 0.1 + 0.2, np.inf)]
    [True, False, True, True, False, False]
    """
    about = np.finfo(type(cell))
    if cell == np.floor(cell):
        return bool(abs(cell) < 2.0 ** (about.nmant + 1))
    digits = np.format_float_scientific(cell).partition("e")[0].lstrip("-").replace(".", "")
    return len(digits) <= about.precision
