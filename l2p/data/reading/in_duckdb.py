"""Tables and views in a DuckDB file. duckdb is an extra, imported only for them."""

import contextlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from l2p.data.reading.address import Address
from l2p.data.reading.arrow import import_pyarrow, inexact_in, types_of
from l2p.data.reading.database import Database, Held, selection
from l2p.data.reading.source import BLOCK
from l2p.errors import InputError

#: MB that DuckDB may hold in memory, and MB for each column of a wide table: it keeps what it has read as long as there
#: is room, although a pass reads it once.
#: A scan holds a block of 256 KiB or two of each column. Sorts need more, and those of larger tables go to its own
#: folder beside the file.
SCAN_LIMIT, SCAN_COLUMN, SORT_LIMIT, SORT_COLUMN = 50, 0.6, 200, 4


class DuckDB(Database):
    """A table in a DuckDB file, opened for reading, which keeps other processes from changing it meanwhile."""

    def __init__(self, address: Address):
        self.names = ()  # not known yet, and `_limit` asks how many there are
        self.driver_errors = (import_duckdb().Error, import_pyarrow("reading DuckDB").ArrowException)
        if not Path(address.location).is_file():
            raise InputError(f"there is no file {address.location}, so there is nothing to read; check the path.")
        super().__init__(address)

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Any]:
        # One thread, for what it gives is encoded in one, and each takes memory of its own.
        config = {"memory_limit": self._limit, "threads": "1", "preserve_insertion_order": "true"}
        with import_duckdb().connect(self.address.location, read_only=True, config=config) as connection:
            yield connection

    @property
    def _limit(self) -> str:
        columns = len(self.names)
        if self.address.key is None:
            return f"{max(SCAN_LIMIT, math.ceil(SCAN_COLUMN * columns))}MB"
        return f"{max(SORT_LIMIT, SORT_COLUMN * columns)}MB"

    def _describe(self, connection: Any) -> Held:
        *_, schema, table = ("", *self.address.table)
        columns = connection.sql(selection(iter("*"), self.address.table, None)).limit(0).to_arrow_table().schema
        found = "SELECT table_type FROM information_schema.tables WHERE table_name = $1 AND $2 IN ('', table_schema)"
        kinds = connection.execute(found, [table, schema]).fetchall()
        # Scans of tables keep the order of insertion; of a view nobody knows what it reads.
        ordered = all(kind == "BASE TABLE" for (kind,) in kinds)
        return Held(columns.names, types_of(columns), ordered, inexact_in(columns))

    @contextlib.contextmanager
    def _batches(self, connection: Any, statement: str) -> Iterator[Any]:
        with connection.cursor() as cursor:  # of its own, for a pass may end before its last row
            yield cursor.sql(statement).to_arrow_reader(BLOCK)

    def about_rows(self) -> int | None:
        with self.held(), self._refused():
            return self._connection.sql(selection(iter(["count(*)"]), self.address.table, None)).fetchall()[0][0]

    def _complaint(self, error: Exception) -> str:
        duckdb = import_duckdb()
        if isinstance(error, duckdb.CatalogException):
            return f"there is no {self.said.removeprefix('the ')}; check table= in the address."
        if isinstance(error, duckdb.ConnectionException):
            return f"{self.address.place} is open for writing in this process; close it there first."
        if isinstance(error, duckdb.IOException):
            return (
                f"{self.address.place} cannot be read: it is open for writing elsewhere, no DuckDB file, of a newer "
                "version, or its disk has no room to sort it; close it there, check the file, or leave key= out."
            )
        if isinstance(error, duckdb.OutOfMemoryException):
            if self.address.key is None:
                return f"{self.said} cannot be read in {self._limit}; make a view of fewer columns, and read that."
            return f"{self.said} cannot be sorted in {self._limit}; leave key= out, or free disk space beside the file."
        return f"{self.said} cannot be read; check that DuckDB itself can read all of it."


def import_duckdb() -> Any:
    """The module, or an `InputError`."""
    try:
        import duckdb
    except ImportError as error:
        raise InputError("reading duckdb:// needs duckdb: pip install 'l2p-jax[data]'.") from error
    return duckdb
