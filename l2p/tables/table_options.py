"""Options of every command that reads a table."""

import dataclasses
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from l2p.tables.reading import Format


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableOptions:
    """Layout of tables of text, as far as the text does not show it, and the columns to leave out."""

    separator: str | None = None
    """The character between cells, `tab` for a tab; default the one that the first line has most of."""
    header: bool = True
    """Take the names of the columns from the first line."""
    columns: str | None = None
    """Names of the columns, separated by commas, for a table without a header."""
    encoding: str | None = None
    """Of the characters, such as cp1252 (Windows, Western Europe), latin-1 or utf-16-le; default what the file's
    byte-order mark says, else what the schema says, else UTF-8. The schema keeps it."""
    decimal: Literal[".", ","] | None = None
    """The decimal mark: `,` reads 7,5 as 7.5 and 1.234 as 1234. Default what the schema says, else the point. The
    schema keeps it."""
    ignore: tuple[str, ...] = ()
    """Columns that are not read."""

    @property
    def format(self) -> "Format":
        """The options as readers take them; `InputError` if they contradict each other."""
        from l2p.tables.reading import Format

        names = None if self.columns is None else tuple(name.strip() for name in self.columns.split(","))
        return Format(self.separator, self.header, names, self.encoding, self.decimal, self.ignore)
