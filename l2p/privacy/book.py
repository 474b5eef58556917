"""What all runs on one data set have spent together: a file, kept between runs and shared by processes.

One file holds one data set, whose name people declare. Keep one file only: a copy, or a backup put back, has forgotten
what was spent since, and runs that obey it void the guarantee. Nothing can detect that; other changes to the file are
refused or noticed (`l2p.privacy.book_file`).
"""

import dataclasses
import datetime
import math
import os
import platform
import secrets
from collections.abc import Iterable
from pathlib import Path
from sqlite3 import Connection
from typing import NamedTuple

from l2p.errors import InputError
from l2p.privacy import book_file
from l2p.privacy.accountants import find, ledger_amounts
from l2p.privacy.book_file import Row
from l2p.privacy.budget import Budget

#: What an amount is in each unit. The first three sum over all queries of all runs (privacy filters, so noise may
#: depend on earlier answers); `basic` sums the (epsilon, delta) of whole runs, chosen as adaptively as one likes
#: (Rogers, Roth, Ullman & Vadhan 2016).
AMOUNTS = ledger_amounts()
UNITS = tuple(AMOUNTS)
#: In the description of a run, what stands before the column of the unit that it protects.
_PROTECTS = "; protects all rows of one "


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
        path, limit = Path(path).resolve(), _numbers(limit)
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
            book_file.create(part, terms)
            os.link(part, path)  # unlike a rename, it never replaces a file
        except FileExistsError:
            raise InputError(
                f"{path} exists, and overwriting a ledger would lose what was spent; open it, or name a new file."
            ) from None
        except OSError as error:
            raise InputError(f"{path.parent} can hold no ledger ({error.strerror}); name another folder.") from error
        finally:
            part.unlink(missing_ok=True)
        return book

    @classmethod
    def open(cls, path: str | Path) -> "Book":
        """The book in a file that `create` wrote, brought up to date if an older l2p did.

        Raises:
          InputError: there is none, a newer l2p made it, or something other than l2p changed it.
        """
        path = Path(path).resolve()
        if not path.is_file():
            raise InputError(f"there is no ledger {path} to say what was spent; create it with l2p ledger create.")
        book_file.upgrade(path)
        (name, epsilon, delta, adjacency, unit, *limit, created), _ = book_file.load(path)
        return cls(path, name, Budget(epsilon, delta, adjacency), unit, Cost(*limit), created)

    def reserve(self, cost: Cost, what: str, reservation: str | None = None, unit: str | None = None) -> str:
        """Set budget aside for one run before it reads a row; on disk when this returns the reservation's id.

        The cost is the most that the run may spend, and counts as spent from now on, whatever happens to the process,
        until `settle` or `release`. `what` describes the run in one line: its protector, epsilon and delta.
        `reservation` is an id that `new_id` gave, for callers that have to know it before it is on disk. `unit` is the
        column that says whose rows a run protects together; None for single rows. What protects the one says nothing of
        the other, so a book counts one of them.
        An `InputError` says that the cost does not fit into what is left, that other runs protect something else, or
        that the file cannot be used.
        """
        what = what if unit is None else f"{what}{_PROTECTS}{unit}"
        cost, what = _numbers(cost), _line("the description of a run", what)
        if not all(0 <= number < math.inf for number in cost) or not any(cost):
            raise InputError(f"{cost} cannot be counted; reserve finite numbers, none below 0 and one above it.")
        reservation, now = reservation or new_id(), _now()
        with book_file.change(self.path) as connection:
            _, rows = book_file.read(connection, self.path)
            self._check_unit(unit, rows)
            if max(total([cost, *(_entry(row).counted for row in rows)], self.limit)) > 0:
                raise InputError(
                    f"{self.name} has {self.say(self.left())} left and this run asks for {self.say(cost)}, so it "
                    f"must not start; ask for less, or see what other runs hold with l2p ledger show {self.path}."
                )
            entry = Entry(reservation, what, "reserved", cost, cost, os.getpid(), platform.node(), now, now, "")
            book_file.append(connection, _row(entry))
        return reservation

    def _check_unit(self, unit: str | None, rows: Iterable[Row]) -> None:
        counting = [entry for entry in map(_entry, rows) if entry.state != "released"]
        others = {_unit_of(entry.what) for entry in counting} - {unit}
        if others:
            other = next(iter(others))
            said = ["single rows" if one is None else f"all rows of one {one!r} together" for one in (unit, other)]
            raise InputError(
                f"this run would protect {said[0]}, but runs in the ledger of {self.name} protect {said[1]}, and what "
                "they spend does not add up; keep a ledger for each."
            )

    def settle(self, reservation: str, cost: Cost) -> None:
        """Count a finished run as what it spent, at most what it had reserved.

        In a `basic` book, settle for less only if the smaller (epsilon, delta) did not depend on the answers, or is the
        sum over the answered queries of their own: one that the answers chose otherwise guarantees nothing.

        Raises:
          RuntimeError: a bug in the caller, or the file cannot be used. A cost beyond the reservation is recorded as
            the reservation in full; a run that was released counts again, even beyond the limit.
        """
        cost = _numbers(cost)
        try:
            with book_file.change(self.path) as connection:
                entry = self._find(connection, reservation)
                if entry.state == "settled":
                    raise InputError(f"run {reservation} has settled, and what it counts as is final; settle it once.")
                within = all(0 <= spent <= most for spent, most in zip(cost, entry.reserved, strict=True))
                counted = cost if within else entry.reserved
                settled = entry._replace(state="settled", counted=counted, changed=_now())
                book_file.append(connection, _row(settled))
        except InputError as error:
            raise RuntimeError(str(error)) from error  # an InputError would claim that nothing was spent
        if not within:
            raise RuntimeError(
                f"run {reservation} spent {self.say(cost)}, beyond the {self.say(entry.reserved)} that it reserved "
                "and now counts as; withhold its result and report this as a bug."
            )
        if entry.state == "released" and any(cost):
            raise RuntimeError(
                f"run {reservation} was released ({entry.reason}) but has spent {self.say(cost)}, which counts again; "
                f"see with l2p ledger show {self.path} whether the guarantee of {self.name} still holds."
            )

    def release(self, reservation: str, reason: str) -> None:
        """Give back what a run reserved; for people to call, never for programs.

        Whoever releases asserts that no query of that run was answered nor will be: it ended before its first answer.
        If that is wrong, the book's guarantee is void. The entry stays in the history, with the one-line reason.
        An `InputError` says that the run is unknown, settled or released, or that the file cannot be used.
        """
        reason = _line("the reason of a release", reason)
        with book_file.change(self.path) as connection:
            entry = self._find(connection, reservation)
            if entry.state != "reserved":
                raise InputError(f"run {reservation} is {entry.state}, so it holds nothing to be released; leave it.")
            released = entry._replace(state="released", counted=Cost(0.0), changed=_now(), reason=reason)
            book_file.append(connection, _row(released))

    def entries(self) -> list[Entry]:
        """Every run there ever was, in order of reservation."""
        _, rows = book_file.load(self.path)
        return [_entry(row) for row in rows]

    def spent(self) -> Cost:
        """What settled and reserved runs come to, rounded up."""
        return total(entry.counted for entry in self.entries())

    def left(self) -> Cost:
        """The most that one run may still reserve, rounded down."""
        excess = total((entry.counted for entry in self.entries()), minus=self.limit)
        return Cost(*(max(0.0, -number) for number in excess))

    def _find(self, connection: Connection, reservation: str) -> Entry:
        _, rows = book_file.read(connection, self.path)
        for entry in map(_entry, rows):
            if entry.id == reservation:
                return entry
        raise InputError(f"no run {reservation!r} is in the ledger; l2p ledger show {self.path} lists them.")

    def say(self, cost: Cost) -> str:
        """A cost in words."""
        delta = f" and delta {cost.delta!r}" if cost.delta or not find(self.unit).composes else ""
        return f"{AMOUNTS[self.unit]} {cost.amount!r}{delta}"


def new_id() -> str:
    """An id for a reservation."""
    return secrets.token_hex(6)


def total(costs: Iterable[Cost], minus: Cost = Cost(0.0)) -> Cost:  # noqa: B008  (immutable)
    """The sum beyond `minus`, each number the least float64 not below the true one: above 0 just where that is.

    >>> total([Cost(0.1), Cost(0.2)], minus=Cost(0.3)).amount > 0  # in float64, 0.1 + 0.2 is above 0.3
    True
    """
    return Cost(*map(_sum_up, zip((-minus.amount, -minus.delta), *costs, strict=True)))


def _sum_up(numbers: tuple[float, ...]) -> float:
    nearest = math.fsum(numbers)  # rounded once, so that its sign is exact; so is the sign of what was rounded off
    return nearest if math.fsum((-nearest, *numbers)) <= 0 else math.nextafter(nearest, math.inf)


def _numbers(cost: Cost) -> Cost:
    return Cost(*(float(number) + 0.0 for number in cost))  # SQLite stores -0.0 as 0.0


def _unit_of(what: str) -> str | None:
    """The column whose rows a run protects together, by its description; None for single rows."""
    return what.rpartition(_PROTECTS)[2] if _PROTECTS in what else None


def _entry(row: Row) -> Entry:
    run, what, state, *numbers = row[:7]
    return Entry(run, what, state, Cost(*numbers[:2]), Cost(*numbers[2:]), *row[7:])


def _row(entry: Entry) -> Row:
    return *entry[:3], *entry.reserved, *entry.counted, *entry[5:]


def _line(what: str, text: str) -> str:
    if len(text.splitlines()) == 1 and text.strip():
        return text.strip()
    raise InputError(f"{what} is {text!r}, but people must recognise it in a list; give one line of text.")


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
