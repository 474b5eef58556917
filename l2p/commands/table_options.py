"""Options of every command that reads a table."""

import dataclasses
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from l2p.data.reading import Format


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableOptions:
    """How text files are laid out, where their first line does not tell."""

    separator: str | None = None
    """The character between cells, `tab` for a tab; default the one that the first line has most of."""
    header: bool = True
    """Whether the first line names the columns."""
    columns: str | None = None
    """Names of the columns, separated by commas, for a table without a header."""

    @property
    def format(self) -> "Format":
        """The options as readers take them; `InputError` if they contradict each other."""
        from l2p.data.reading import Format

        names = None if self.columns is None else tuple(name.strip() for name in self.columns.split(","))
        return Format(self.separator, self.header, names)
