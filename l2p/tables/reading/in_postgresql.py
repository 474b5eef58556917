"""Tables and views on a PostgreSQL server, read through ADBC. Its driver is an extra, imported only for them."""

import contextlib
from collections.abc import Iterator
from typing import Any

from l2p.base.errors import InputError, alone
from l2p.tables.reading.address import Address
from l2p.tables.reading.arrow import import_pyarrow
from l2p.tables.reading.database import Database, Description, quoted

#: Types of columns of numbers.
NUMBERS = {"int2", "int4", "int8", "float4", "float8", "numeric"}
_WORDS = {"bool", "text", "varchar", "bpchar", "citext", "name", "uuid", "enum"}
#: Types that the driver gives as something else than numbers or texts, and what statements turn them into.
_CASTS = {"numeric": "float8"} | dict.fromkeys(_WORDS - {"bool", "text"}, "text")
#: Columns with the name of their type, that of a domain being what it is made of, and whether this role may read them.
_COLUMNS = """
SELECT
  a.attname::text,
  CASE b.typtype WHEN 'e' THEN 'enum' ELSE b.typname::text END,
  has_column_privilege(a.attrelid, a.attnum, 'SELECT')
FROM pg_catalog.pg_attribute a
JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
JOIN pg_catalog.pg_type b ON b.oid = CASE WHEN t.typbasetype = 0 THEN t.oid ELSE t.typbasetype END
WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""
#: Also where a server's settings say otherwise, scans go through a table from its start, in one process.
_SETTINGS = (
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",
    "SET LOCAL synchronize_seqscans = off",
    "SET LOCAL max_parallel_workers_per_gather = 0",
)
_UNREACHED = (
    "no server answers there, it has no such database, or it refuses the user or the password; check the address, and "
    "~/.pgpass for the password"
)
#: By the start of SQLSTATE.
_MEANINGS = {
    "42501": "this role may not read it; have SELECT granted on its columns",
    "42P01": "there is no such table; check table= in the address, with its schema where it is not on the search path",
    "42703": "a column is no longer there; check the schema",
    "53": "it has no more room, memory or connections for this",
    "22": "a column cannot be turned into numbers or texts; have a view do it, or declare the column as ignored",
}
_OTHERWISE = "the server ended the connection before the last row"


class PostgreSQL(Database):
    """A table on a server, read in one read-only transaction, which sees one snapshot.

    Rows have no order of their own there, so `ordered` asks for a key.

    Args:
      address: of the table.
      server: a connection to its server, of which sessions are clones, since the driver asks for all types of a server
        when it connects, and clones know them; None to connect for each.
    """

    def __init__(self, address: Address, server: Any = None):
        self.driver_errors = (import_adbc().Error, import_pyarrow("reading PostgreSQL").ArrowException)
        self._kinds: dict[str, str] = {}
        self._server = server
        super().__init__(address)

    @contextlib.contextmanager
    def _connected(self) -> Iterator[Any]:
        with connected(self.address, self._server) as connection:
            self._prepare(connection)
            for setting in _SETTINGS:
                with connection.cursor() as cursor:
                    cursor.execute(setting)
            yield connection

    def _prepare(self, connection: Any) -> None:
        """Prepare a session before the transaction that reads; nothing here."""

    def _describe(self, connection: Any) -> Description:
        with connection.cursor() as cursor:
            cursor.execute(_COLUMNS, parameters=(".".join(map(quoted, self.address.table)),))
            columns = cursor.fetchall()
        if not columns:
            raise InputError(f"{self.title} cannot be read: {_MEANINGS['42P01']}.")
        self._kinds = {name: kind for name, kind, may in columns if may}
        if not self._kinds:
            raise InputError(f"{self.title} cannot be read: {_MEANINGS['42501']}.")
        types = {name: "number" for name, kind in self._kinds.items() if kind in NUMBERS}
        types |= {name: "category" for name, kind in self._kinds.items() if kind in _WORDS}
        decimals = frozenset(name for name, kind in self._kinds.items() if kind == "numeric")
        return Description(list(self._kinds), types, ordered=False, inexact=decimals)

    def _selected(self, name: str) -> str:
        cast = _CASTS.get(self._kinds[name])
        return quoted(name) if cast is None else f"{quoted(name)}::{cast} AS {quoted(name)}"

    def _bytes(self, name: str) -> str:
        return f'{quoted(name)}::text COLLATE "C"'

    @contextlib.contextmanager
    def _batches(self, connection: Any, statement: str) -> Iterator[Any]:
        with connection.cursor() as cursor:
            cursor.execute(statement)
            yield cursor.fetch_record_batch()

    def about_rows(self) -> int | None:
        with self.snapshot(), self._refused(), self._connection.cursor() as cursor:
            cursor.execute(
                "SELECT reltuples::float8 FROM pg_catalog.pg_class WHERE oid = to_regclass($1)",
                parameters=(".".join(map(quoted, self.address.table)),),
            )
            rows = cursor.fetchall()
        return int(rows[0][0]) if rows and rows[0][0] > 0 else None

    def _complaint(self, error: Exception) -> str:
        state = getattr(error, "sqlstate", None) or ""
        meaning = next((text for start, text in _MEANINGS.items() if state.startswith(start)), None)
        return f"{self.title} cannot be read: {meaning or _OTHERWISE}."


@alone()
def connected(address: Address, server: Any = None) -> Any:
    """A connection to the server of a table, or a clone of one."""
    dbapi = import_adbc()
    try:
        return dbapi.connect(address.location) if server is None else server.adbc_clone()
    except dbapi.Error:
        reason = _UNREACHED if server is None else _MEANINGS["53"]
        raise InputError(f"the table {address.shown} cannot be read: {reason}.") from None


def import_adbc() -> Any:
    """The driver's module, or an `InputError`."""
    try:
        from adbc_driver_postgresql import dbapi
    except ImportError as error:
        raise InputError("reading postgresql:// needs a driver: pip install 'l2p-jax[postgres]'.") from error
    return dbapi
