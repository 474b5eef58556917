"""Tables in databases, read as Arrow batches in one snapshot; DuckDB and PostgreSQL are its kinds.

A database orders rows and hands them over; it draws nothing. No message quotes a driver, because drivers quote cells,
statements and logins.
"""

import abc
import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from l2p.base.errors import InputError, withheld
from l2p.tables.header import listed
from l2p.tables.reading.address import Address
from l2p.tables.reading.arrow import cells_of, import_pyarrow
from l2p.tables.reading.source import BLOCK, Block, RawSource, distinct


class Description(NamedTuple):
    """A table as its database describes it: columns in order, types of those that can be read, whether scans without a
    key keep one order, and which columns are `inexact`."""

    names: Sequence[str]
    types: Mapping[str, str]
    ordered: bool
    inexact: frozenset[str]


class Database(RawSource):
    """A table in a database.

    Columns that have another type than those in `types` can be ignored, but not read.

    Attributes:
      address: of the table.
      driver_errors: exceptions of its driver, set by each kind.
    """

    driver_errors: tuple[type[Exception], ...] = ()

    def __init__(self, address: Address):
        self.address = address
        self.title = f"the table {address.shown}"
        self._connection: Any = None
        with self._refused(), self._connected() as connection:
            names, self.types, scans_in_order, self.inexact = self._describe(connection)
        self.names = distinct(list(names), self.title)
        self.key = address.key
        self.ordered = scans_in_order or self.key is not None
        if self.key is not None and self.key not in self.names:
            raise InputError(
                f"{self.title} has no column {self.key!r} to order its rows by; name one of its columns as key= in "
                "the address."
            )

    @abc.abstractmethod
    def _connected(self) -> contextlib.AbstractContextManager[Any]:
        """A connection that sees one snapshot and cannot write."""

    @abc.abstractmethod
    def _describe(self, connection: Any) -> Description:
        """The table's columns; `InputError` if it is not there."""

    @abc.abstractmethod
    def _batches(self, connection: Any, statement: str) -> contextlib.AbstractContextManager[Any]:
        """A reader of the Arrow batches that a statement gives, open within the context."""

    @abc.abstractmethod
    def _complaint(self, error: Exception) -> str:
        """A sentence on a driver's error that quotes nothing of it."""

    def _selected(self, name: str) -> str:
        """Expression by which a statement selects a column."""
        return quoted(name)

    def _order(self, key: str) -> str:
        """Expression by which a statement sorts. Texts sort by their bytes, since a collation may take two for equal,
        whose order would be open."""
        return self._bytes(key) if self.types.get(key) == "category" else quoted(key)

    @abc.abstractmethod
    def _bytes(self, name: str) -> str:
        """Expression of the bytes of a column of texts."""

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[None]:
        if self._connection is not None:
            yield
            return
        with contextlib.ExitStack() as stack:
            with self._refused():
                self._connection = stack.enter_context(self._connected())
            try:
                yield
            finally:
                self._connection = None

    def blocks(self, wanted: Sequence[str]) -> Iterator[Block]:
        self._check_types(wanted)
        key = self.key
        names = tuple(dict.fromkeys((*wanted, *(() if key is None else (key,)))))
        statement = selection(map(self._selected, names), self.address.table, None if key is None else self._order(key))
        pa = import_pyarrow("reading a database")
        with contextlib.ExitStack() as stack:
            with self._refused():
                connection = self._connection or stack.enter_context(self._connected())
                reader = stack.enter_context(self._batches(connection, statement))
            last = None
            while (batch := self._next(reader)) is not None:
                for start in range(0, batch.num_rows, BLOCK):
                    part = batch.slice(start, BLOCK)
                    if key is not None:
                        last = self._check_key(pa, part.column(key), last)
                    yield {name: cells_of(part.column(name), name, self, wanted) for name in wanted}

    def _next(self, reader: Any) -> Any:
        """The next batch, or None after the last."""
        with self._refused():
            try:
                return reader.read_next_batch()
            except StopIteration:
                return None

    def _check_types(self, wanted: Collection[str]) -> None:
        if unreadable := [name for name in wanted if name in self.names and name not in self.types]:
            raise InputError(
                f"column {listed(unreadable)} of {self.title} holds neither numbers nor texts nor booleans (dates or "
                "lists, say): turn it into one of these in a view, or declare it as ignored."
            )

    @withheld("ordering rows")
    def _check_key(self, pa: Any, column: Any, last: Any) -> Any:
        """Refuse a key that leaves the order of rows open; rows come in its order, so equal ones are neighbours."""
        column = pa.concat_arrays([pa.array([last.as_py()], column.type), column]) if last is not None else column
        repeated = pa.compute.any(pa.compute.equal(column.slice(1), column.slice(0, len(column) - 1))).as_py()
        # NaN equals nothing, so that several of them would look like a settled order.
        absent = column.null_count or (
            pa.types.is_floating(column.type) and pa.compute.any(pa.compute.is_nan(column)).as_py()
        )
        if absent or repeated:
            raise self._unsettled()
        return column[-1]

    def _unsettled(self) -> InputError:
        return InputError(
            f"{self.title} is to be ordered by {self.key!r}, but rows share a value of it or have none, so their order "
            "is not settled; name a column that is unique, such as the primary key."
        )

    @contextlib.contextmanager
    def _refused(self) -> Iterator[None]:
        with withheld("reading a database"):
            try:
                yield
            except (OSError, *self.driver_errors) as error:
                raise InputError(self._complaint(error)) from None


def quoted(name: str) -> str:
    """A name as statements have it.

    >>> quoted('the "ward"')
    '"the ""ward""\"'
    """
    return '"' + name.replace('"', '""') + '"'


def selection(columns: Iterator[str], table: Sequence[str], key: str | None) -> str:
    """The statement that selects columns of a table in the order of an expression."""
    # Names cannot be bound as parameters. Each is quoted, so that it is a name whatever it holds.
    order = "" if key is None else f" ORDER BY {key}"
    return f"SELECT {', '.join(columns)} FROM {'.'.join(map(quoted, table))}{order}"  # noqa: S608
