"""The file of a ledger: an SQLite database that refuses statements which return budget, and reveals other changes.

Table `entry` says what each run counts as. Table `chain` only grows: each link holds an entry after one change, and the
hash of that and of the link before; the first holds the terms in `book`. Triggers let an entry change only as the
newest link says, and a link has to carry the right hash, computed by a function that a SQLite shell lacks. Triggers can
be dropped and files edited, so each use of the file compares its schema, its entries and its chain first.

The file holds no secret: whoever may write it can compute a whole new chain or restore an old copy, and nothing in the
file reveals that.
"""

import contextlib
import functools
import hashlib
import json
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from l2p.base.errors import InputError

_PATIENCE = 30.0  # seconds to wait for other processes, each of which holds the file for milliseconds
_APPLICATION, _VERSION = 1278365762, 3  # as in the schema; "L2PB" in ASCII
# BEFORE triggers fire before a statement's conflict clause acts: after it, REPLACE has deleted rows, and no trigger saw
# it. 9e999 is infinity; SQLite stores NaN as NULL.
_SCHEMA = (
    "PRAGMA application_id = 1278365762",
    "PRAGMA user_version = 3",
    """CREATE TABLE book (name TEXT NOT NULL, epsilon REAL NOT NULL, delta REAL NOT NULL, adjacency TEXT NOT NULL,
    unit TEXT NOT NULL, limit_amount REAL NOT NULL, limit_delta REAL NOT NULL, created TEXT NOT NULL)""",
    """CREATE TABLE entry (
    id TEXT NOT NULL UNIQUE, what TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('reserved', 'settled', 'released')),
    reserved_amount REAL NOT NULL CHECK (reserved_amount >= 0 AND reserved_amount < 9e999),
    reserved_delta REAL NOT NULL CHECK (reserved_delta >= 0 AND reserved_delta < 9e999),
    counted_amount REAL NOT NULL CHECK (counted_amount BETWEEN 0 AND reserved_amount),
    counted_delta REAL NOT NULL CHECK (counted_delta BETWEEN 0 AND reserved_delta),
    process INTEGER NOT NULL, host TEXT NOT NULL, created TEXT NOT NULL, changed TEXT NOT NULL, reason TEXT NOT NULL,
    protects TEXT, hash TEXT NOT NULL UNIQUE,
    CHECK (state != 'reserved' OR (counted_amount = reserved_amount AND counted_delta = reserved_delta)),
    CHECK (state != 'released' OR (counted_amount = 0 AND counted_delta = 0 AND reason != '')))""",
    "CREATE TABLE chain (number INTEGER PRIMARY KEY, content TEXT NOT NULL, hash TEXT NOT NULL)",
    """CREATE TRIGGER book_is_one BEFORE INSERT ON book WHEN EXISTS (SELECT 1 FROM book)
    BEGIN SELECT RAISE(ABORT, 'a ledger has one set of terms'); END""",
    "CREATE TRIGGER book_is_fixed BEFORE UPDATE ON book BEGIN SELECT RAISE(ABORT, 'a ledger keeps its terms'); END",
    "CREATE TRIGGER book_is_kept BEFORE DELETE ON book BEGIN SELECT RAISE(ABORT, 'a ledger keeps its terms'); END",
    """CREATE TRIGGER entry_is_new BEFORE INSERT ON entry
    WHEN new.id IN (SELECT id FROM entry) OR new.rowid IN (SELECT rowid FROM entry)
    OR new.hash IN (SELECT hash FROM entry)
    OR new.hash IS NOT (SELECT hash FROM chain WHERE number > 1 ORDER BY number DESC LIMIT 1)
    BEGIN SELECT RAISE(ABORT, 'a new entry follows the chain'); END""",
    """CREATE TRIGGER entry_moves_on BEFORE UPDATE ON entry
    WHEN old.state = 'settled' OR new.state IN ('reserved', old.state) OR new.rowid IS NOT old.rowid
    OR (new.id, new.what, new.reserved_amount, new.reserved_delta, new.process, new.host, new.created, new.protects)
    IS NOT (old.id, old.what, old.reserved_amount, old.reserved_delta, old.process, old.host, old.created, old.protects)
    OR new.hash IN (SELECT hash FROM entry)
    OR new.hash IS NOT (SELECT hash FROM chain WHERE number > 1 ORDER BY number DESC LIMIT 1)
    BEGIN SELECT RAISE(ABORT, 'entries only settle or are released, as the chain says'); END""",
    "CREATE TRIGGER entry_is_kept BEFORE DELETE ON entry BEGIN SELECT RAISE(ABORT, 'entries are kept'); END",
    """CREATE TRIGGER chain_goes_on BEFORE INSERT ON chain
    WHEN new.number IS NOT (SELECT coalesce(max(number), 0) + 1 FROM chain)
    OR new.hash IS NOT l2p_hash((SELECT hash FROM chain ORDER BY number DESC LIMIT 1), new.content)
    BEGIN SELECT RAISE(ABORT, 'a link carries the hash of the one before'); END""",
    "CREATE TRIGGER chain_is_fixed BEFORE UPDATE ON chain BEGIN SELECT RAISE(ABORT, 'links are kept'); END",
    "CREATE TRIGGER chain_is_kept BEFORE DELETE ON chain BEGIN SELECT RAISE(ABORT, 'links are kept'); END",
)
_JSON = json.JSONEncoder(default=repr)

Row = tuple[Any, ...]


def create(path: Path, terms: Row) -> None:
    """Make a file with the columns of `book`."""
    with change(path, "rwc") as connection:
        for statement in _SCHEMA:
            connection.execute(statement)
        connection.execute("INSERT INTO book VALUES (?, ?, ?, ?, ?, ?, ?, ?)", terms)
        _link(connection, 1, None, terms)


def load(path: Path) -> tuple[Row, list[Row]]:
    """`read` on a connection of its own."""
    with _connection(path) as connection:
        connection.execute("BEGIN")  # all statements read the same state of the file
        return read(connection, path)


def read(connection: sqlite3.Connection, path: Path) -> tuple[Row, list[Row]]:
    """The columns of `book`, and those of every entry but its hash, in order of reservation.

    Raises:
      InputError: the file is no ledger or of another version of l2p, or the schema, an entry or the chain is not as l2p
        left it.
    """
    _check_version(connection, path)
    if changes := _listing(connection) ^ _expected_listing():
        names = ", ".join(sorted(f"{kind} {name!r}" for kind, name, *_ in changes))
        raise _changed(path, f"its schema is another one in {names}")
    terms = connection.execute("SELECT * FROM book").fetchall()
    entries = connection.execute("SELECT * FROM entry ORDER BY rowid").fetchall()
    links = connection.execute("SELECT number, content, hash FROM chain ORDER BY number").fetchall()
    previous = None
    for place, (number, content, link_hash) in enumerate(links, start=1):
        if number != place or link_hash != _hash(previous, content):
            raise _changed(path, f"link {place} of its chain does not carry the hash of its content")
        previous = link_hash
    if [_content(row) for row in terms] != [content for _, content, _ in links[:1]]:
        raise _changed(path, "its terms are not those that its chain starts from")
    newest: dict[str, Row] = {}
    for _, content, link_hash in links[1:]:
        newest[str(content).partition(",")[0]] = content, link_hash  # by the entry's id, which holds no comma
    if [(_content(columns), link_hash) for *columns, link_hash in entries] != list(newest.values()):
        raise _changed(path, "its entries are not those that its chain holds")
    return terms[0], [tuple(columns) for *columns, _ in entries]


def append(connection: sqlite3.Connection, row: Row) -> None:
    """Add an entry, given by all its columns but the hash; or change the one of that id."""
    run, _, state, *_, changed, reason, _ = row
    number, previous = connection.execute("SELECT number, hash FROM chain ORDER BY number DESC LIMIT 1").fetchone()
    link_hash = _link(connection, number + 1, previous, row)
    if connection.execute("SELECT 1 FROM entry WHERE id = ?", (run,)).fetchone() is None:
        connection.execute("INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (*row, link_hash))
    else:
        connection.execute(
            "UPDATE entry SET state=?, counted_amount=?, counted_delta=?, changed=?, reason=?, hash=? WHERE id=?",
            (state, *row[5:7], changed, reason, link_hash, run),
        )


@contextlib.contextmanager
def change(path: Path, mode: str = "rw") -> Iterator[sqlite3.Connection]:
    """A connection with an exclusive lock, whose changes are one transaction; an exception undoes them."""
    with _connection(path, mode) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield connection
        connection.execute("COMMIT")


def _link(connection: sqlite3.Connection, number: int, previous: str | None, row: Row) -> str:
    content = _content(row)
    link_hash = _hash(previous, content)
    connection.execute("INSERT INTO chain VALUES (?, ?, ?)", (number, content, link_hash))
    return link_hash


def _content(row: Sequence[Any]) -> str:
    """A row exactly: floats as their shortest repr, and what is of no type that l2p writes as something else."""
    return _JSON.encode(row)


def _hash(previous: str | None, content: str) -> str:
    return hashlib.sha256(f"{previous or ''}\n{content}".encode()).hexdigest()


def _check_version(connection: sqlite3.Connection, path: Path) -> None:
    if connection.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION:
        raise InputError(f"{path} is not a ledger, so it cannot say what was spent; name one of l2p's.")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != _VERSION:
        age, instead = ("a newer", "upgrade l2p") if version > _VERSION else ("an older", "go on with that one")
        raise InputError(f"{age} l2p made the ledger {path}, and this one might miscount; {instead}.")


def _listing(connection: sqlite3.Connection) -> set[Row]:
    return set(connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master"))


@functools.cache
def _expected_listing() -> set[Row]:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        for statement in _SCHEMA:
            connection.execute(statement)
        return _listing(connection)


def _changed(path: Path, problem: str) -> InputError:
    return InputError(
        f"the ledger {path} was changed by something other than l2p ({problem}), so more may have been spent than it "
        "says and no run may start with it; keep the file, add up what its runs spent from their privacy cards, and "
        "create a new ledger for what is then left."
    )


@contextlib.contextmanager
def _connection(path: Path, mode: str = "rw") -> Iterator[sqlite3.Connection]:
    """A connection that commits each statement; what SQLite refuses becomes a sentence."""
    try:
        uri = f"{path.as_uri()}?mode={mode}"
        with contextlib.closing(sqlite3.connect(uri, timeout=_PATIENCE, isolation_level=None, uri=True)) as connection:
            # The journal is SQLite's default, a file deleted on commit: a log (WAL) does not work on network file
            # systems, and one commit per run needs no speed. EXTRA is FULL that also syncs the folder after deleting
            # the journal: else a power cut could bring it back and undo a reservation whose run has read data.
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute("PRAGMA fullfsync = ON")  # macOS: plain fsync leaves data in the drive's cache
            connection.execute("PRAGMA trusted_schema = ON")  # some builds keep triggers from functions like this one
            connection.create_function("l2p_hash", 2, _hash, deterministic=True)
            yield connection
    except sqlite3.DatabaseError as error:
        raise InputError(
            f"the ledger {path} cannot be used ({error}), and no run may start without it; check the file, its folder "
            f"and, if it is locked, who has held it for {_PATIENCE:g} seconds."
        ) from error
