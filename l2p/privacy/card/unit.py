"""The unit that a card's guarantee protects: a row, or a unit such as a person with several rows."""

from typing import Any

#: The unit of a guarantee for single rows.
ROW: dict[str, Any] = {"name": "row", "max_rows": 1, "how": "every row counts"}


def unit_on_card(name: str, max_rows: int) -> dict[str, Any]:
    """The unit of a guarantee for all rows with one value in the column `name`, of which `max_rows` count at most.

    >>> unit_on_card("patient", 3)["how"]
    'the first 3 valid rows of each, in the order of the table; a row without one is a null row'
    """
    first = "first valid row" if max_rows == 1 else f"first {max_rows} valid rows"
    how = f"the {first} of each, in the order of the table; a row without one is a null row"
    return {"name": name, "max_rows": max_rows, "how": how}


def is_row(unit: dict[str, Any]) -> bool:
    """True if single rows are protected.

    A column may be called "row", too: then the other fields differ.
    """
    return unit == ROW


def described(unit: dict[str, Any]) -> str:
    """The protected unit, in words that stand by themselves.

    >>> described(ROW), described(unit_on_card("patient", 3))
    ('a single row, whoever it is of', "all rows with one value of 'patient', of which at most 3 count")
    """
    if is_row(unit):
        return "a single row, whoever it is of"
    return f"all rows with one value of {unit['name']!r}, of which at most {unit['max_rows']} count"


def in_words(unit: dict[str, Any], num_rows: int) -> str:
    """The protected unit in a table of N lines, in words that follow "for".

    >>> in_words(ROW, 900), in_words(unit_on_card("patient", 3), 900)
    ('one row of N = 900', "all rows of one 'patient' together, in N = 900 lines")
    """
    if is_row(unit):
        return f"one row of N = {num_rows}"
    return f"all rows of one {unit['name']!r} together, in N = {num_rows} lines"
