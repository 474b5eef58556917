"""Columns of a public sample: their types, and the reasons for which some are left out, in words."""

import datetime
import re
from collections import Counter

import numpy as np

from l2p.base.errors import InputError
from l2p.tables.reading.format import has_comma
from l2p.tables.schema.columns import Category, Column, Number

#: Texts with more values than this are ignored; a target with more is none.
MAX_VALUES = 100
#: A target of whole numbers with more values than this is a number; one with fewer may be classes.
MAX_CLASSES = 20
#: Words in the name of a column that says whose row it is.
_ID_WORDS = frozenset(("id", "ids", "uid", "uuid", "guid"))
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_DATE = re.compile(
    r"(\d{4}-\d{1,2}-\d{1,2}|\d{4}/\d{1,2}/\d{1,2}|\d{1,2}([./-])\d{1,2}\2\d{2,4})"
    r"([T ]\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?\s*(Z|[AP]M|[+-]\d{2}:?\d{2})?)?"
)
_UNIT = 'if it says whose row it is and somebody has several, declare "unit": {"column": NAME, "max_rows": 1} or so'
_DATES = "dates; if time matters, add a column of numbers to the table, such as days since a day that everybody knows"


def why_ignored(
    name: str, present: np.ndarray, values: np.ndarray, kind: str, some_missing: bool = False
) -> str | None:
    """Reason to learn nothing from a column; None if something may be learned.

    Args:
      present: its cells that are not missing.
      values: the same as numbers f64[n], infinite where they are none.
      kind: "number" or "category" if the table declares the column's type, else "".
      some_missing: whether further cells are missing, which may tell something even of texts that are all the same.

    >>> why_ignored("name", np.array(["Ann", "Bob", "Eve"]), np.full(3, np.inf), "")
    '3 values in 3 rows, most of them in one row alone, as names and addresses are'
    >>> why_ignored("ward", np.array(["a", "b", "a", "b"]), np.full(4, np.inf), "") is None
    True
    """
    count = len(present)
    if not count:
        return "no cell of the sample holds anything"
    numeric = kind != "category" and np.isfinite(values).all()
    distinct = set(values.tolist()) if numeric else {_text(cell) for cell in present.tolist()}
    if len(distinct) == 1:
        return None if some_missing and not numeric else "one value in the whole sample"
    if numeric:
        return _why_no_number(name, values, len(distinct))
    texts = [_text(cell) for cell in present.tolist()]
    if all(_DATE.fullmatch(text) for text in distinct):
        return _DATES
    alone = sum(times == 1 for times in Counter(texts).values())
    if alone > max(2, len(distinct) / 2):
        reason = f"{len(distinct)} values in {count} rows, most of them in one row alone, as "
        return reason + (f"ids are; {_UNIT}" if _is_id(name) else "names and addresses are")
    if len(distinct) > MAX_VALUES:
        return f"{len(distinct)} values, more than the {MAX_VALUES} that a category may have" + (
            f"; {_UNIT}" if _is_id(name) else ""
        )
    return None


def _why_no_number(name: str, values: np.ndarray, distinct: int) -> str | None:
    if not (values == np.floor(values)).all() or distinct <= MAX_CLASSES:
        return None
    if all(map(_is_day, values.tolist())):
        return _DATES
    every_other = distinct == len(values)
    counted = every_other and (bool((np.diff(values) > 0).all()) or np.ptp(values) < 2 * len(values))
    return f"numbers of rows or ids; {_UNIT}" if counted or _is_id(name) else None


def _is_id(name: str) -> bool:
    return not _ID_WORDS.isdisjoint(word.lower() for word in _WORD.findall(name))


def _is_day(value: float) -> bool:
    """True if a number is a day written as YYYYMMDD."""
    if not 1900_01_01 <= value <= 2099_12_31:
        return False
    year, rest = divmod(int(value), 10_000)
    try:
        datetime.date(year, *divmod(rest, 100))
    except ValueError:
        return False
    return True


def _text(cell: object) -> str:
    return str(cell).strip()


def refuse_commas(name: str, present: np.ndarray, values: np.ndarray, table: str) -> None:
    """Refuse a column whose texts look like numbers with decimal commas, of a table without a declared decimal mark.

    Raises:
      InputError: they do; any other reading would drop the column, or make a category of each number.
    """
    commas = [has_comma(cell) for cell in present.tolist()]
    if any(commas) and all(comma or np.isfinite(value) for comma, value in zip(commas, values, strict=True)):
        raise InputError(
            f"column {name!r} of {table} looks like numbers with decimal commas, such as 7,5 for 7.5; say that it is "
            "(--decimal ,), or that commas are no decimal mark (--decimal .)."
        )


def described(column: Column) -> tuple[str, str]:
    """The type of a column, and what was taken from the sample for it.

    >>> described(Category(("a", "b")))
    ('category', '2 values')
    """
    if isinstance(column, Number):
        curve = "" if column.curve is None else f", a curve of {len(column.knots)} knots"
        return "number", f"bounds {column.low:g} to {column.high:g}{curve}"
    assert isinstance(column, Category)
    count = len(column.values)
    return "category", f"{count} value{'s' if count > 1 else ''}"
