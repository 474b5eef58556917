"""ARFF, dense and sparse: the format of most public tables.

Own code, because no kept reader does it: SciPy's knows neither sparse rows nor texts and reads whole files, liac-arff
has seen no release since 2020 and quotes cells in its errors.
"""

import dataclasses
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from l2p.base.errors import InputError
from l2p.tables.reading.source import BLOCK, Block, RawSource, distinct, objects
from l2p.tables.reading.text import opened, refused_as

_QUOTED = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_ATTRIBUTE = re.compile(rf"@attribute\s+({_QUOTED}|[^\s{{]+(?=[\s{{]))\s*(.+)", re.IGNORECASE)
#: A cell and what ends it. Cells end at commas; a tab is white space.
_CELL = re.compile(rf"\s*({_QUOTED}|[^,'\"]*)\s*(,|$)")
_PAIR = re.compile(rf"\s*(\d{{1,9}})\s+({_QUOTED}|[^,'\"]*)\s*(,|$)")
_NUMBERS = ("numeric", "real", "integer")
_RAGGED = "has a row with more or fewer cells than it has attributes: give every row one cell for each"


class _Malformed(Exception):
    """A line that is no ARFF."""


@dataclasses.dataclass(eq=False, repr=False)
class Arff(RawSource):
    """An ARFF file. `Arff.of` opens one.

    Attributes:
      absent: cells that a sparse row leaves out: 0, or the first declared value.
    """

    path: Path
    names: tuple[str, ...]
    types: Mapping[str, str]
    absent: tuple[str | None, ...]
    encoding: str | None = None

    @property
    def title(self) -> str:  # type: ignore[override]
        return f"the table {self.path}"

    @property
    def files(self) -> tuple[Path, ...]:  # type: ignore[override]
        return (self.path,)

    @classmethod
    def of(cls, path: Path, encoding: str | None = None) -> "Arff":
        names, types, absent = [], {}, []
        table = f"the table {path}"
        with (
            refused_as(_unreadable(table), _Malformed, encoding=encoding),
            opened(path, encoding, "surrogateescape") as text,
        ):
            for line in _lines(text):
                word = line.split(None, 1)[0].lower()
                if word == "@data":
                    return cls(path, distinct(names, table), types, tuple(absent), encoding)
                if word == "@attribute":
                    name, kind, first = _attribute(line, table)
                    names.append(name)
                    types |= {name: kind} if kind else {}
                    absent.append(first)
                elif word != "@relation":
                    raise _Malformed
        raise InputError(f"{table} has no line @data, so it has no rows; check that the file is whole.")

    def blocks(self, wanted: Sequence[str]) -> Iterator[Block]:
        places = {name: self.names.index(name) for name in wanted}
        with (
            refused_as(_unreadable(self.title), _Malformed, encoding=self.encoding),
            opened(self.path, self.encoding, "surrogateescape") as text,
        ):
            lines = itertools.dropwhile(lambda line: line.split(None, 1)[0].lower() != "@data", _lines(text))
            next(lines)
            parsed = map(self._row, lines)
            while rows := list(itertools.islice(parsed, BLOCK)):
                columns = list(zip(*rows, strict=True))
                yield {name: objects(columns[place]) for name, place in places.items()}

    def _row(self, line: str) -> Sequence[str | None]:
        if line.startswith("{"):
            return self._sparse(line)
        if "'" in line or '"' in line:
            row = [_unquoted(groups[0]) for groups in _matches(_CELL, line)]
        else:
            row = [None if cell == "?" else cell for cell in map(str.strip, line.split(","))]
        if len(row) == len(self.names) + 1 and row[-1] == "":  # many files end each line in a comma
            row.pop()
        if len(row) != len(self.names):
            raise InputError(f"{self.title} {_RAGGED}")
        return row

    def _sparse(self, line: str) -> Sequence[str | None]:
        if not line.endswith("}"):
            raise _Malformed
        row = list(self.absent)
        inside = line[1:-1].strip()
        for place, cell in _matches(_PAIR, inside) if inside else ():
            if int(place) >= len(row):
                raise InputError(f"{self.title} {_RAGGED}")
            row[int(place)] = _unquoted(cell)
        return row


def _lines(text: Iterator[str]) -> Iterator[str]:
    """Lines without blank ones and comments. Comments may be in any encoding; the rest is in the file's own."""
    for line in text:
        line = line.strip()
        if line and not line.startswith("%"):
            if not line.isascii():
                line.encode("utf-8")  # raises where bytes were no characters
            yield line


def _attribute(line: str, table: str) -> tuple[str, str, str | None]:
    """Name, type, and the value that a sparse row leaves out."""
    match = _ATTRIBUTE.fullmatch(line)
    if not match:
        raise _Malformed
    name, kind = _unquoted(match[1]) or "", match[2].strip()
    if kind.startswith("{"):
        inside = kind[1:].rstrip("} \t")
        return name.strip(), "category", _unquoted(next(_matches(_CELL, inside))[0]) if inside.strip() else None
    word = kind.split()[0].lower()
    if word == "relational":
        raise InputError(f"{table} has a relational attribute, which holds tables in cells; flatten it to columns.")
    return name.strip(), _type_of(word), "0" if word in _NUMBERS else None


def _type_of(word: str) -> str:
    return "number" if word in _NUMBERS else "category" if word == "string" else ""


def _matches(pattern: re.Pattern[str], line: str) -> Iterator[tuple[str, ...]]:
    """Groups of all cells of a line but the last group, which ends them."""
    start = 0
    while True:
        match = pattern.match(line, start)
        if not match:
            raise _Malformed
        yield match.groups()[:-1]
        if not match[match.lastindex or 0]:
            return
        start = match.end()


def _unquoted(cell: str) -> str | None:
    """A cell's text; None for a bare ?, which stands for a missing one."""
    if cell[:1] in ("'", '"'):
        return re.sub(r"\\(.)", r"\1", cell[1:-1])
    cell = cell.strip()
    return None if cell == "?" else cell


def _unreadable(table: str) -> str:
    return f"{table} cannot be read as ARFF; check that the file is whole, or export the table as CSV"
