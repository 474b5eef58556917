"""Format of a table's text, as far as the table itself does not tell it."""

import codecs
import dataclasses
import re

from l2p.base.errors import InputError
from l2p.tables.reading.source import distinct

#: What stands between the digits of a number and its fraction.
DECIMALS = (".", ",")
_FRACTION = re.compile(r"\s*[+-]?(\d+,\d*|,\d+)([eE][+-]?\d+)?\s*")
#: Digits in groups of three, as 1.234.567,8 has them.
_GROUPED = re.compile(r"\s*[+-]?[1-9]\d{0,2}(\.\d{3})+(,\d*)?\s*")


@dataclasses.dataclass(frozen=True)
class Format:
    """Format of a table's text, and the columns that are left out.

    Attributes:
      separator: one character; None takes the one that the header has most of. Without a header, whose place a private
        row takes, None is a comma, or a semicolon where commas are decimal.
      header: whether the first line names the columns.
      columns: names to use where it does not.
      encoding: of the characters in text and ARFF files, as Python names encodings; None is UTF-8. A file that starts
        with a byte-order mark is decoded by that.
      decimal: "," where the texts of a table, of any kind, write 7,5 for 7.5 and 1.234 for 1234; None is ".".
      ignore: columns that are not read.
    """

    separator: str | None = None
    header: bool = True
    columns: tuple[str, ...] | None = None
    encoding: str | None = None
    decimal: str | None = None
    ignore: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        separator = {"\\t": "\t", "tab": "\t"}.get(self.separator or "", self.separator)
        object.__setattr__(self, "separator", separator)
        object.__setattr__(self, "ignore", tuple(self.ignore))
        if separator is not None and (len(separator) != 1 or separator in '"\r\n'):
            raise InputError(
                f"the separator {separator!r} must be one character, by which each line is cut; write , ; | or tab."
            )
        if self.columns is not None:
            if self.header:
                raise InputError(
                    "columns are named, but the first line of the table is taken to name them too; say that it does "
                    "not (--no-header), or leave the names out."
                )
            distinct(self.columns, "the list of names")
        check_text(self.encoding, self.decimal)

    def filled(self, encoding: str | None, decimal: str | None) -> "Format":
        """This format, with an encoding and a decimal mark where it leaves them open."""
        return dataclasses.replace(self, encoding=self.encoding or encoding, decimal=self.decimal or decimal)


def check_text(encoding: str | None, decimal: str | None) -> None:
    """Refuse an encoding that Python does not know, and a decimal mark that is neither a point nor a comma."""
    if decimal not in (None, *DECIMALS):
        raise InputError(f"the decimal mark is {decimal!r}, but numbers are written as 7.5 or 7,5; write . or ,")
    try:
        is_text = encoding is None or codecs.lookup(encoding)._is_text_encoding  # type: ignore[attr-defined]
    except (LookupError, TypeError, ValueError):
        is_text = False
    if not is_text:
        raise InputError(
            f"the encoding {encoding!r} is none that Python knows; write utf-8, cp1252 (Windows, Western Europe), "
            "latin-1, utf-16-le or another of its names."
        )


def has_comma(cell: object) -> bool:
    """True if a cell is a number with a decimal comma.

    >>> [has_comma(cell) for cell in ("7,5", "-,5", "1.234,5", "7.5", "7", "a,b", 7.5)]
    [True, True, True, False, False, False, False]
    """
    return isinstance(cell, str) and "," in cell and bool(_FRACTION.fullmatch(cell) or _GROUPED.fullmatch(cell))


def with_point(cell: object) -> object:
    """A cell of a table with decimal commas, a number in it written with a point; anything else as it is.

    >>> [with_point(cell) for cell in ("7,5", " -,5 ", "1.234", "1.234.567,8", "north", 7.5, None)]
    ['7.5', ' -.5 ', '1234', '1234567.8', 'north', 7.5, None]
    """
    if not isinstance(cell, str):
        return cell
    if has_comma(cell):
        return cell.replace(".", "").replace(",", ".")
    return cell.replace(".", "") if _GROUPED.fullmatch(cell) else cell
