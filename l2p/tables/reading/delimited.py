"""Separated text: CSV and its relatives.

Read by Python's own csv module: pyarrow takes half its time (1.2 against 2.3 s for 300,000 x 20 cells on one core,
conversion to numbers included), which is not worth two readers that might see different cells.
"""

import csv
import dataclasses
import itertools
import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from l2p.base.errors import InputError, TableWarning
from l2p.tables.reading.format import Format
from l2p.tables.reading.source import BLOCK, Block, RawSource, distinct, objects
from l2p.tables.reading.text import opened, refused_as, undecodable

_BROKEN = "cannot be read as text; check that the file is whole"
_WORDS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar", " ": "space"}


@dataclasses.dataclass(eq=False, repr=False)
class Delimited(RawSource):
    """A file of separated text. `Delimited.of` opens one.

    Attributes:
      unnamed: number of leading columns without a name, which are not read: the index that pandas writes.
    """

    path: Path
    format: Format
    separator: str
    names: tuple[str, ...]
    unnamed: int = 0
    types = {}  # noqa: RUF012 - the cells alone would tell

    @property
    def title(self) -> str:  # type: ignore[override]
        return f"the table {self.path}"

    @property
    def files(self) -> tuple[Path, ...]:  # type: ignore[override]
        return (self.path,)

    @classmethod
    def of(cls, path: Path, format: Format) -> "Delimited":
        table = f"the table {path}"
        encoding = format.encoding
        with refused_as(f"{table} {_BROKEN}", encoding=encoding), opened(path, encoding) as text:
            line = text.readline()  # alone, so that a stray quote cannot pull private rows into a name
        if "\0" in line:  # as UTF-16 without its mark has
            raise InputError(undecodable(f"{table} {_BROKEN}", encoding))
        separator = format.separator or (_sniffed(line) if format.header else ";" if format.decimal == "," else ",")
        first = _cells(line, separator)
        if not format.header:
            names = format.columns or tuple(f"column_{place}" for place in range(1, len(first) + 1))
            if first and len(first) != len(names):
                raise InputError(
                    f"{table} has another number of columns than are named; compare --columns and --separator."
                )
            return cls(path, format, separator, distinct(names, table))
        unnamed = next((place for place, name in enumerate(first) if name), 0)
        names = distinct(first[unnamed:], table, unnamed)
        if any(map(_is_number, names)):
            raise InputError(
                f"the first line of {path} holds numbers: it must name the columns, not be a private row (--no-header "
                "reads a table without names)"
            )
        if unnamed:
            which = "first column has" if unnamed == 1 else f"first {unnamed} columns have"
            warnings.warn(
                f"the {which} no name in {path}, as an index written by to_csv() has none, so nothing is read from "
                "there; name it in the file if it is a column.",
                TableWarning,
                stacklevel=2,
            )
        return cls(path, format, separator, names, unnamed)

    def blocks(self, wanted: Sequence[str]) -> Iterator[Block]:
        places = {name: self.unnamed + self.names.index(name) for name in wanted}
        width, encoding = self.unnamed + len(self.names), self.format.encoding
        with refused_as(self._unreadable, csv.Error, encoding=encoding), opened(self.path, encoding) as text:
            if self.format.header:
                text.readline()
            lines = (line.strip() + "\n" for line in text) if self.separator == " " else text
            reader = csv.reader(lines, delimiter=self.separator, skipinitialspace=True, strict=True)
            filled = (row for row in reader if row)
            while rows := list(itertools.islice(filled, BLOCK)):
                if any(len(row) != width for row in rows):
                    raise InputError(
                        f"{self.title} has a row with more or fewer cells than the header has names: give every row "
                        "one cell for each, or name another --separator"
                    )
                columns = list(zip(*rows, strict=True))
                yield {name: objects(columns[place]) for name, place in places.items()}

    @property
    def _unreadable(self) -> str:
        word = _WORDS.get(self.separator, repr(self.separator))
        return f"{self.title} cannot be read as {word}-separated text, or is broken; check that the file is whole"


def _cells(line: str, separator: str) -> list[str]:
    line = line.strip() if separator == " " else line.rstrip("\r\n")
    try:
        return [cell.strip() for cell in next(csv.reader([line], delimiter=separator, skipinitialspace=True), [])]
    except csv.Error:
        return []


def _sniffed(line: str) -> str:
    """The separator that a header has most of."""
    bare = re.sub(r'"[^"]*"', "", line)
    return max([",", ";", "\t", "|"], key=bare.count)


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
