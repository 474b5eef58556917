"""Tables and views in a DuckDB file. duckdb is an extra, imported only for them."""

import contextlib
import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from l2p.base.errors import InputError
from l2p.tables.reading.address import Address
from l2p.tables.reading.arrow import import_pyarrow, inexact_in, types_of
from l2p.tables.reading.database import Database, Description, quoted, selection
from l2p.tables.reading.source import BLOCK

#: MB that DuckDB may hold in memory, and MB for each column of a wide table: it keeps what it has read as long as there
#: is room, although a pass reads it once.
#: A scan holds a block of 256 KiB or two of each column. Sorts need more, and those of larger tables go to its own
#: folder beside the file.
SCAN_LIMIT, SCAN_COLUMN, SORT_LIMIT, SORT_COLUMN = 50, 0.6, 200, 4
#: Nothing but this file is read: DuckDB would take a name that its catalogue lacks for a file or a Python variable, and
#: views read files, servers and extensions, which others may change between two passes.
_CLOSED = {
    "enable_external_access": "false",
    "python_enable_replacements": "false",
    "autoload_known_extensions": "false",
}
#: Tables and views of this file that a name may stand for, whatever its capitals; without a schema the current one.
_ENTRIES = """
SELECT database_name, schema_name, name, is_table
FROM (
  SELECT database_name, schema_name, table_name AS name, true AS is_table FROM duckdb_tables() WHERE NOT internal
  UNION ALL
  SELECT database_name, schema_name, view_name, false FROM duckdb_views() WHERE NOT internal
)
WHERE database_name = current_database() AND lower($1) IN ('', lower(database_name))
AND lower(schema_name) = lower(CASE $2 WHEN '' THEN current_schema() ELSE $2 END) AND lower(name) = lower($3)
"""


class DuckDB(Database):
    """A table or view in a DuckDB file, opened for reading, which keeps other processes from changing it meanwhile."""

    def __init__(self, address: Address):
        self.names = ()  # not known yet, and `_limit` asks how many there are
        self.driver_errors = (import_duckdb().Error, import_pyarrow("reading DuckDB").ArrowException)
        if not Path(address.location).is_file():
            raise InputError(f"there is no file {address.location}, so there is nothing to read; check the path.")
        super().__init__(address)

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Any]:
        # One thread, because its rows are encoded in one, and each takes memory of its own.
        config = {"memory_limit": self._limit, "threads": "1", "preserve_insertion_order": "true", **_CLOSED}
        with import_duckdb().connect(self.address.location, read_only=True, config=config) as connection:
            yield connection

    @property
    def _limit(self) -> str:
        columns = len(self.names)
        if self.address.key is None:
            return f"{max(SCAN_LIMIT, math.ceil(SCAN_COLUMN * columns))}MB"
        return f"{max(SORT_LIMIT, SORT_COLUMN * columns)}MB"

    def _describe(self, connection: Any) -> Description:
        named = ("", "", *self.address.table)[-3:]
        entries = connection.execute(_ENTRIES, named).fetchall()
        if len(entries) != 1:
            raise InputError(self._absent)
        (*name, is_table), *_ = entries
        self.address = dataclasses.replace(self.address, table=tuple(name))
        columns = connection.sql(selection(iter("*"), self.address.table, None)).limit(0).to_arrow_table().schema
        # Scans of tables keep the order of insertion; those of views need not.
        return Description(columns.names, types_of(columns), is_table, inexact_in(columns))

    def _bytes(self, name: str) -> str:
        return f"encode(CAST({quoted(name)} AS VARCHAR))"

    @contextlib.contextmanager
    def _batches(self, connection: Any, statement: str) -> Iterator[Any]:
        with connection.cursor() as cursor:  # of its own, for a pass may end before its last row
            yield cursor.sql(statement).to_arrow_reader(BLOCK)

    def about_rows(self) -> int | None:
        with self.snapshot(), self._refused():
            return self._connection.sql(selection(iter(["count(*)"]), self.address.table, None)).fetchall()[0][0]

    def _complaint(self, error: Exception) -> str:
        duckdb = import_duckdb()
        if isinstance(error, duckdb.CatalogException):
            return self._absent
        if isinstance(error, duckdb.PermissionException):
            return (
                f"{self.title} is a view that reads other files or servers, whose rows could change between two passes "
                "of a run; copy them into a table of the database (CREATE TABLE ... AS FROM the view), and read that."
            )
        if isinstance(error, duckdb.ConnectionException):
            return f"{self.address.place} is open for writing in this process; close it there first."
        if isinstance(error, duckdb.IOException):
            return (
                f"{self.address.place} cannot be read: it is open for writing elsewhere, no DuckDB file, of a newer "
                "version, or its disk has no room to sort it; close it there, check the file, or leave key= out."
            )
        if isinstance(error, duckdb.OutOfMemoryException):
            if self.address.key is None:
                return f"{self.title} cannot be read in {self._limit}; make a view of fewer columns, and read that."
            return (
                f"{self.title} cannot be sorted in {self._limit}; leave key= out, or free disk space beside the file."
            )
        return f"{self.title} cannot be read; check that DuckDB itself can read all of it."

    @property
    def _absent(self) -> str:
        return (
            f"there is no {self.title.removeprefix('the ')}; check table= in the address, which names a table or view "
            "of that file, with its schema where it is not main."
        )


def import_duckdb() -> Any:
    """The module, or an `InputError`."""
    try:
        import duckdb
    except ImportError as error:
        raise InputError("reading duckdb:// needs duckdb: pip install 'l2p-jax[data]'.") from error
    return duckdb
