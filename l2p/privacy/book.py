"""What all runs on one data set have spent together: a file, kept between runs and shared by processes.

One file holds one data set, whose name people declare. Keep one file only: a copy, or a backup put back, has forgotten
what was spent since, and runs that obey it void the guarantee.
"""

import contextlib
import dataclasses
import datetime
import math
import os
import platform
import secrets
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from l2p.errors import InputError
from l2p.privacy.accountants import find, ledger_amounts
from l2p.privacy.budget import Budget

#: What an amount is in each unit. The first three sum over all queries of all runs (privacy filters, so noise may
#: depend on earlier answers); `basic` sums the (epsilon, delta) of whole runs, chosen as adaptively as one likes
#: (Rogers, Roth, Ullman & Vadhan 2016).
AMOUNTS = ledger_amounts()
UNITS = tuple(AMOUNTS)

_PATIENCE = 30.0  # seconds to wait for other processes, each of which holds the file for milliseconds
_APPLICATION, _VERSION = 1278365762, 1  # as in the schema; "L2PB" in ASCII
# The constraints keep a mistake, here or in a SQLite shell, from handing budget back: nothing is deleted, nothing
# settled changes, nothing counts as other than its state allows. 9e999 is infinity; SQLite stores NaN as NULL.
_SCHEMA = """
PRAGMA application_id = 1278365762;
PRAGMA user_version = 1;
CREATE TABLE book (name TEXT NOT NULL, epsilon REAL NOT NULL, delta REAL NOT NULL, adjacency TEXT NOT NULL,
    unit TEXT NOT NULL, limit_amount REAL NOT NULL, limit_delta REAL NOT NULL, created TEXT NOT NULL);
CREATE TABLE entry (
    id TEXT NOT NULL UNIQUE, what TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('reserved', 'settled', 'released')),
    reserved_amount REAL NOT NULL CHECK (reserved_amount >= 0 AND reserved_amount < 9e999),
    reserved_delta REAL NOT NULL CHECK (reserved_delta >= 0 AND reserved_delta < 9e999),
    counted_amount REAL NOT NULL CHECK (counted_amount BETWEEN 0 AND reserved_amount),
    counted_delta REAL NOT NULL CHECK (counted_delta BETWEEN 0 AND reserved_delta),
    process INTEGER NOT NULL, host TEXT NOT NULL, created TEXT NOT NULL, changed TEXT NOT NULL, reason TEXT NOT NULL,
    CHECK (state != 'reserved' OR (counted_amount = reserved_amount AND counted_delta = reserved_delta)),
    CHECK (state != 'released' OR (counted_amount = 0 AND counted_delta = 0 AND reason != '')));
CREATE TRIGGER book_is_fixed BEFORE UPDATE ON book BEGIN SELECT RAISE(ABORT, 'a ledger keeps its terms'); END;
CREATE TRIGGER entry_is_kept BEFORE DELETE ON entry BEGIN SELECT RAISE(ABORT, 'entries are kept'); END;
CREATE TRIGGER entry_moves_on BEFORE UPDATE ON entry WHEN old.state = 'settled' OR new.state IN ('reserved', old.state)
    OR (new.id, new.reserved_amount, new.reserved_delta) != (old.id, old.reserved_amount, old.reserved_delta)
    BEGIN SELECT RAISE(ABORT, 'entries only settle or are released'); END;
"""


class Cost(NamedTuple):
    """Privacy spent: `amount` in the book's unit (see `AMOUNTS`), and `delta`; summed and capped separately."""

    amount: float
    delta: float = 0.0


class Entry(NamedTuple):
    """One run in the book: what it asked for and what it counts as; times are UTC, ISO 8601."""

    id: str
    what: str
    state: str  # reserved, settled or released
    reserved: Cost
    counted: Cost
    process: int
    host: str
    created: str
    changed: str
    reason: str  # of a release, else empty


@dataclasses.dataclass(frozen=True)
class Book:
    """The ledger of one data set; made by `create` or `open`, and safe to share between threads and processes.

    Attributes:
      path, created: the file, and when it was made: UTC, ISO 8601.
      name: the data set's, as people declared it.
      budget: what all runs together are held to.
      unit, limit: one of `UNITS`, and the cap on the sum of all runs in it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     book = Book.create(Path(folder, "ward.book"), "ward", Budget(1, 1e-6), "basic", Cost(1.0, 1e-6))
    ...     run = book.reserve(Cost(0.75, 1e-7), "noisygd, epsilon 0.75")
    ...     book.settle(run, Cost(0.5, 1e-7))
    ...     book.left()
    Cost(amount=0.5, delta=9e-07)
    """

    path: Path
    name: str
    budget: Budget
    unit: str
    limit: Cost
    created: str

    @classmethod
    def create(cls, path: str | Path, name: str, budget: Budget, unit: str, limit: Cost) -> "Book":
        """Write a new book, whole or not at all.

        `limit` is what `budget` comes to in `unit`, rounded down; its delta is 0 unless the unit is "basic".
        An `InputError` says that the file exists or cannot be written, or that the terms make no sense.
        """
        path, limit = Path(path).resolve(), Cost(*map(float, limit))
        if unit not in UNITS:
            raise InputError(f"unit {unit!r} is unknown, so costs would not add up; choose one of {', '.join(UNITS)}.")
        if not 0 < limit.amount < math.inf or not 0 <= limit.delta < 1 or (limit.delta > 0 and find(unit).composes):
            raise InputError(
                f"{limit} in {unit} would cap or grant nothing; give a finite limit above 0, with delta 0 but in basic."
            )
        book = cls(path, _line("a data set's name", name), budget, unit, limit, _now())
        terms = book.name, *dataclasses.astuple(budget), unit, *limit, book.created
        if not path.parent.is_dir():
            raise InputError(f"there is no folder {path.parent} to hold a ledger; make it, or name another.")
        part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            with _connection(part, "rwc") as connection:
                connection.executescript(_SCHEMA)
                connection.execute("INSERT INTO book VALUES (?, ?, ?, ?, ?, ?, ?, ?)", terms)
            os.link(part, path)  # unlike a rename, it never replaces a file
        except FileExistsError:
            raise InputError(
                f"{path} exists, and a ledger that forgets is none; open it, or name a new file."
            ) from None
        except OSError as error:
            raise InputError(f"{path.parent} can hold no ledger ({error.strerror}); name another folder.") from error
        finally:
            part.unlink(missing_ok=True)
        return book

    @classmethod
    def open(cls, path: str | Path) -> "Book":
        """The book in a file that `create` wrote; `InputError` if there is none, or one of a newer format."""
        path = Path(path).resolve()
        if not path.is_file():
            raise InputError(f"there is no ledger {path} to say what was spent; create it with l2p ledger create.")
        with _connection(path) as connection:
            if connection.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION:
                raise InputError(f"{path} is not a ledger, so it cannot say what was spent; name one of l2p's.")
            if connection.execute("PRAGMA user_version").fetchone()[0] > _VERSION:
                raise InputError(f"a newer l2p made the ledger {path}, and this one might miscount; upgrade l2p.")
            name, epsilon, delta, adjacency, unit, *limit, created = connection.execute("SELECT * FROM book").fetchone()
        return cls(path, name, Budget(epsilon, delta, adjacency), unit, Cost(*limit), created)

    def reserve(self, cost: Cost, what: str) -> str:
        """Set budget aside for one run before it reads a row; on disk when this returns the reservation's id.

        The cost is the most that the run may spend, and counts as spent from now on, whatever happens to the process,
        until `settle` or `release`. `what` describes the run in one line: its protector, epsilon and delta.
        An `InputError` says that the cost does not fit into what is left, or that the file cannot be used.
        """
        cost, what = Cost(*map(float, cost)), _line("the description of a run", what)
        if not all(0 <= number < math.inf for number in cost) or not any(cost):
            raise InputError(f"{cost} cannot be counted; reserve finite numbers, none below 0 and one above it.")
        reservation, now = secrets.token_hex(6), _now()
        with _change(self.path) as connection:
            if max(total([cost, *(entry.counted for entry in _entries(connection))], self.limit)) > 0:
                raise InputError(
                    f"{self.name} has {self._say(self.left())} left and this run asks for {self._say(cost)}, so it "
                    f"must not start; ask for less, or see what other runs hold with l2p ledger show {self.path}."
                )
            row = reservation, what, "reserved", *cost, *cost, os.getpid(), platform.node(), now, now, ""
            connection.execute("INSERT INTO entry VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        return reservation

    def settle(self, reservation: str, cost: Cost) -> None:
        """Count a finished run as what it spent, at most what it had reserved.

        In a `basic` book, settle for less only if the smaller (epsilon, delta) did not depend on the answers, or is the
        sum over the answered queries of their own: one that the answers chose otherwise guarantees nothing.

        Raises:
          RuntimeError: a bug in the caller, or the file cannot be used. A cost beyond the reservation is recorded as
            the reservation in full; a run that was released counts again, even beyond the limit.
        """
        cost = Cost(*map(float, cost))
        try:
            with _change(self.path) as connection:
                entry = self._find(connection, reservation)
                if entry.state == "settled":
                    raise InputError(f"run {reservation} has settled, and what it counts as is final; settle it once.")
                within = all(0 <= spent <= most for spent, most in zip(cost, entry.reserved, strict=True))
                connection.execute(
                    "UPDATE entry SET state='settled', counted_amount=?, counted_delta=?, changed=? WHERE id=?",
                    (*(cost if within else entry.reserved), _now(), reservation),
                )
        except InputError as error:
            raise RuntimeError(str(error)) from error  # an InputError would claim that nothing was spent
        if not within:
            raise RuntimeError(
                f"run {reservation} spent {self._say(cost)}, beyond the {self._say(entry.reserved)} that it reserved "
                "and now counts as; withhold its result and report this as a bug."
            )
        if entry.state == "released" and any(cost):
            raise RuntimeError(
                f"run {reservation} was released ({entry.reason}) but has spent {self._say(cost)}, which counts again; "
                f"see with l2p ledger show {self.path} whether the guarantee of {self.name} still holds."
            )

    def release(self, reservation: str, reason: str) -> None:
        """Give back what a run reserved; for people to call, never for programs.

        Whoever releases asserts that no query of that run was answered nor will be: it ended before its first answer.
        If that is wrong, the book's guarantee is void. The entry stays in the history, with the one-line reason.
        An `InputError` says that the run is unknown, settled or released, or that the file cannot be used.
        """
        reason = _line("the reason of a release", reason)
        with _change(self.path) as connection:
            entry = self._find(connection, reservation)
            if entry.state != "reserved":
                raise InputError(f"run {reservation} is {entry.state}, so it holds nothing to be released; leave it.")
            connection.execute(
                "UPDATE entry SET state='released', counted_amount=0, counted_delta=0, changed=?, reason=? WHERE id=?",
                (_now(), reason, reservation),
            )

    def entries(self) -> list[Entry]:
        """Every run there ever was, in order of reservation."""
        with _connection(self.path) as connection:
            return _entries(connection)

    def spent(self) -> Cost:
        """What settled and reserved runs come to, rounded up."""
        return total(entry.counted for entry in self.entries())

    def left(self) -> Cost:
        """The most that one run may still reserve, rounded down."""
        excess = total((entry.counted for entry in self.entries()), minus=self.limit)
        return Cost(*(max(0.0, -number) for number in excess))

    def _find(self, connection: sqlite3.Connection, reservation: str) -> Entry:
        for entry in _entries(connection):
            if entry.id == reservation:
                return entry
        raise InputError(f"no run {reservation!r} is in the ledger; l2p ledger show {self.path} lists them.")

    def _say(self, cost: Cost) -> str:
        delta = f" and delta {cost.delta!r}" if cost.delta or not find(self.unit).composes else ""
        return f"{AMOUNTS[self.unit]} {cost.amount!r}{delta}"


def total(costs: Iterable[Cost], minus: Cost = Cost(0.0)) -> Cost:  # noqa: B008  (immutable)
    """The sum beyond `minus`, each number the least float64 not below the true one: above 0 just where that is.

    >>> total([Cost(0.1), Cost(0.2)], minus=Cost(0.3)).amount > 0  # in float64, 0.1 + 0.2 is above 0.3
    True
    """
    return Cost(*map(_sum_up, zip((-minus.amount, -minus.delta), *costs, strict=True)))


def _sum_up(numbers: tuple[float, ...]) -> float:
    nearest = math.fsum(numbers)  # rounded once, so that its sign is exact; so is the sign of what was rounded off
    return nearest if math.fsum((-nearest, *numbers)) <= 0 else math.nextafter(nearest, math.inf)


def _entries(connection: sqlite3.Connection) -> list[Entry]:
    rows = connection.execute("SELECT * FROM entry ORDER BY rowid")
    return [Entry(run, what, state, Cost(a, b), Cost(c, d), *rest) for run, what, state, a, b, c, d, *rest in rows]


def _line(what: str, text: str) -> str:
    if len(text.splitlines()) == 1 and text.strip():
        return text.strip()
    raise InputError(f"{what} is {text!r}, but people must recognise it in a list; give one line of text.")


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


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
            yield connection
    except sqlite3.DatabaseError as error:
        raise InputError(
            f"the ledger {path} cannot be used ({error}), and no run may start without it; check the file, its folder "
            f"and, if it is locked, who has held it for {_PATIENCE:g} seconds."
        ) from error


@contextlib.contextmanager
def _change(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection whose changes are one transaction, alone in the file; an exception undoes them."""
    with _connection(path) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield connection
        connection.execute("COMMIT")
