"""A table with its format applied: without the columns to ignore, and with points for decimal commas."""

import contextlib
import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from l2p.base.errors import withheld
from l2p.tables.reading.format import Format, with_point
from l2p.tables.reading.source import Block, RawSource, objects


def adjusted(source: RawSource, format: Format) -> RawSource:
    """The source with `format` applied; the source itself if that changes nothing.

    >>> from l2p.tables.reading import open_table
    >>> source = open_table({"row": [1, 2], "dose": ["7,5", "8"]}, Format(decimal=",", ignore=("row",)))
    >>> source.names, [block["dose"].tolist() for block in source.blocks(["dose"])]
    (('dose',), [['7.5', '8']])
    """
    return Adjusted(source, format) if format.decimal == "," or format.ignore else source


@dataclasses.dataclass(eq=False, repr=False)
class Adjusted(RawSource):
    """A source without its ignored columns, and with decimal points in its numbers."""

    source: RawSource
    format: Format

    def __post_init__(self) -> None:
        self.title, self.inexact, self.ordered, self.key = (
            getattr(self.source, name) for name in ("title", "inexact", "ordered", "key")
        )
        self.names = tuple(name for name in self.source.names if name not in self.format.ignore)

    @property
    def types(self) -> Mapping[str, str]:  # type: ignore[override]
        return {name: kind for name, kind in self.source.types.items() if name in self.names}

    @property
    def files(self) -> tuple[Path, ...]:  # type: ignore[override]
        return self.source.files

    def blocks(self, wanted: Sequence[str]) -> Iterator[Block]:
        for block in self.source.blocks(wanted):
            with withheld("reading a table"):
                yield block if self.format.decimal != "," else {name: _pointed(block[name]) for name in block}

    def snapshot(self) -> contextlib.AbstractContextManager[None]:
        return self.source.snapshot()

    def version(self) -> tuple[object, ...]:
        return self.source.version()

    def about_rows(self) -> int | None:
        return self.source.about_rows()

    def check_columns(self, declared: Collection[str]) -> None:
        super().check_columns(declared)
        self.source.check_columns(declared)


def _pointed(cells: np.ndarray) -> np.ndarray:
    return objects([with_point(cell) for cell in cells.tolist()]) if cells.dtype.kind == "O" else cells
