"""The source that every table is read as: names, types where the table declares them, and blocks of raw cells."""

import abc
import contextlib
import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from l2p.base.errors import InputError
from l2p.tables.header import complaint_of_missing

#: Rows per block.
BLOCK = 2**13

#: Raw cells: columns of one length by name, each a NumPy array of numbers, booleans or objects (texts, None).
Block = Mapping[str, np.ndarray]


class RawSource(abc.ABC):
    """A table that is read block by block.

    Only what `names` and `types` hold is read when a source is opened. No message quotes a cell or counts rows.

    Attributes:
      title: its name in messages, such as "the table ward.csv".
      names: its columns, distinct and in order. Without a header line these may be cells: see `l2p.tables.header`.
      types: "number" or "category" for every column whose type the table itself declares.
      inexact: columns of decimals so long that reading them as floats may make two of them one: no names of units.
      files: that it is in; none for tables in memory and in databases.
      ordered: whether every pass gives the rows in one order.
      key: the unique column that rows are ordered by, if one was named.
    """

    title: str
    names: tuple[str, ...]
    types: Mapping[str, str]
    inexact: frozenset[str] = frozenset()
    files: tuple[Path, ...] = ()
    ordered: bool = True
    key: str | None = None

    @property
    def keeps_places(self) -> bool:
        """Whether a row whose cells change leaves the places of all others alone: no cells decide the order."""
        return self.ordered and self.key is None

    @abc.abstractmethod
    def blocks(self, wanted: Sequence[str]) -> Iterator[Block]:
        """One pass over the rows, with the columns `wanted` alone.

        Raises:
          InputError: the table is malformed, or a column holds what is neither a number, a text nor a boolean.
          RowsError: anything else.
        """

    def snapshot(self) -> contextlib.AbstractContextManager[None]:
        """A context in which every pass of a database reads one snapshot; for files see `version`."""
        return contextlib.nullcontext()

    def version(self) -> tuple[object, ...]:
        """Sizes, times and places on disk of its files, which differ once a file was written to."""
        try:
            stats = [path.stat() for path in self.files]
        except OSError as error:
            raise InputError(f"{self.title} can no longer be read ({error.strerror}); check the path.") from None
        return tuple((stat.st_size, stat.st_mtime_ns, stat.st_ino) for stat in stats)

    def about_rows(self) -> int | None:
        """Estimated number of rows, without reading them; None where that cannot be told.

        Text has at least two characters to a cell, and compressed text shrinks about tenfold.
        """
        if not self.files:
            return None
        sizes = [path.stat().st_size * (10 if path.suffix.lower() == ".gz" else 1) for path in self.files]
        return sum(sizes) // (2 * len(self.names))

    def check_columns(self, declared: Collection[str]) -> None:
        """Refuse a table that lacks a declared column."""
        if complaint := complaint_of_missing(self.names, declared):
            raise InputError(f"{self.title} {complaint}")


def distinct(columns: Sequence[str], table: str, before: int = 0) -> tuple[str, ...]:
    """Names as they are, or an `InputError` that quotes none of them; it counts columns, after `before` others."""
    if not columns:
        raise InputError(f"{table} is empty: it must name its columns")
    if "" in columns:
        place = before + columns.index("") + 1
        raise InputError(f"column {place} of {table} has no name: name it in the table, or take it out of there")
    first: dict[str, int] = {}
    for place, column in enumerate(columns, before + 1):
        if first.setdefault(column, place) < place:
            raise InputError(f"columns {first[column]} and {place} of {table} have the same name: rename one")
    return tuple(columns)


def objects(cells: Sequence[object]) -> np.ndarray:
    """Cells as an array of objects, whatever they are.

    >>> objects(["a", None]).tolist()
    ['a', None]
    """
    array = np.empty(len(cells), object)
    array[:] = cells
    return array


@dataclasses.dataclass(eq=False, repr=False)
class Joined(RawSource):
    """Several tables with the same columns, one after the other."""

    parts: tuple[RawSource, ...]

    @property
    def title(self) -> str:  # type: ignore[override]
        return f"the tables from {self.parts[0].title.removeprefix('the table ')} on"

    @property
    def names(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.parts[0].names

    @property
    def types(self) -> Mapping[str, str]:  # type: ignore[override]
        first, *others = (part.types for part in self.parts)
        return {name: kind for name, kind in first.items() if all(types.get(name) == kind for types in others)}

    @property
    def inexact(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset().union(*(part.inexact for part in self.parts))

    @property
    def files(self) -> tuple[Path, ...]:  # type: ignore[override]
        return tuple(file for part in self.parts for file in part.files)

    @property
    def ordered(self) -> bool:  # type: ignore[override]
        return all(part.ordered for part in self.parts)

    @property
    def keeps_places(self) -> bool:
        return all(part.keeps_places for part in self.parts)

    def about_rows(self) -> int | None:
        counts = [part.about_rows() for part in self.parts]
        return None if None in counts else sum(count or 0 for count in counts)

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for part in self.parts:
                stack.enter_context(part.snapshot())
            yield

    def blocks(self, wanted: Sequence[str]) -> Iterator[Block]:
        for part in self.parts:
            yield from part.blocks(wanted)

    def check_columns(self, declared: Collection[str]) -> None:
        for part in self.parts:
            part.check_columns(declared)
            if set(part.names) != set(self.names):
                raise InputError(
                    f"{part.title} has other columns than {self.parts[0].title}, so their rows do not make one table; "
                    "give files with the same names in their headers."
                )
