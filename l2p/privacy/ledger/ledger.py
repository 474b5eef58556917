"""The sum of what all runs on one data set have spent: a file, kept between runs and shared by processes.

One file belongs to one data set, whose name people declare. Keep one file only: a copy or a restored backup does not
count what was spent since, and runs that use it void the guarantee. Nothing can detect that; other changes to the file
are refused or detected (`l2p.privacy.ledger.ledger_file`).
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

from l2p.base.errors import InputError
from l2p.privacy.accountants import either, find, ledger_amounts
from l2p.privacy.budget import Budget
from l2p.privacy.cost.sampling import FullBatch
from l2p.privacy.ledger import ledger_file
from l2p.privacy.ledger.ledger_file import Row
from l2p.privacy.rounded import rounded

#: Meaning of amounts in each unit. The first three sum over all queries of all runs (privacy filters, so noise may
#: depend on earlier answers); `basic` sums the (epsilon, delta) of whole runs, which may be chosen adaptively (Rogers,
#: Roth, Ullman & Vadhan 2016).
AMOUNTS = ledger_amounts()
UNITS = tuple(AMOUNTS)
#: The units that add up whole runs instead of their queries.
WHOLE_RUNS = tuple(unit for unit in UNITS if not find(unit).composes)


class Cost(NamedTuple):
    """Privacy spent: `amount` in the ledger's unit (see `AMOUNTS`), and `delta`; summed and capped separately."""

    amount: float
    delta: float = 0.0


class NotEnough(InputError):
    """A run asked for more than a ledger has left."""

    def __init__(self, message: str, left: Cost):
        super().__init__(message)
        self.left = left


class Entry(NamedTuple):
    """One run in the ledger: what it reserved and what it counts as; times are UTC, ISO 8601."""

    id: str
    what: str
    state: str  # reserved, settled or released
    reserved: Cost
    counted: Cost
    process: int
    host: str
    created: str
    changed: str
    reason: str  # of a release; else empty
    protects: str | None = None  # the column that says whose rows are protected together; None for single rows


@dataclasses.dataclass(frozen=True)
class Ledger:
    """The ledger of one data set; made by `create` or `open`, and safe to share between threads and processes.

    Attributes:
      path, created: the file, and when it was made: UTC, ISO 8601.
      name: of the data set, as people declared it.
      budget: the limit for all runs together.
      unit, limit: one of `UNITS`, and the cap on the sum of all runs in it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ledger = Ledger.create(Path(folder, "ward.ledger"), "ward", Budget(1, 1e-6), "basic", Cost(1.0, 1e-6))
    ...     run = ledger.reserve(Cost(0.75, 1e-7), "noisygd, epsilon 0.75")
    ...     ledger.settle(run, Cost(0.5, 1e-7))
    ...     ledger.left()
    Cost(amount=0.5, delta=9e-07)
    """

    path: Path
    name: str
    budget: Budget
    unit: str
    limit: Cost
    created: str

    @classmethod
    def create(cls, path: str | Path, name: str, budget: Budget, unit: str, limit: Cost) -> "Ledger":
        """Write a new ledger, whole or not at all.

        `limit` is `budget` converted to `unit`, rounded down, with delta 0 unless the unit is in `WHOLE_RUNS`. An
        `InputError` says that the file exists or cannot be written, or that the terms make no sense.
        """
        path, limit = Path(path).resolve(), _numbers(limit)
        if unit not in UNITS:
            raise InputError(f"unit {unit!r} is unknown, so costs would not add up; choose one of {', '.join(UNITS)}.")
        if not 0 < limit.amount < math.inf or not 0 <= limit.delta < 1 or (limit.delta > 0 and find(unit).composes):
            raise InputError(
                f"{limit} in {unit} would cap or grant nothing; give a finite limit above 0, and a delta only in "
                f"{either(WHOLE_RUNS)}."
            )
        ledger = cls(path, _line("a data set's name", name), budget, unit, limit, _now())
        terms = ledger.name, *dataclasses.astuple(budget), unit, *limit, ledger.created
        if not path.parent.is_dir():
            raise InputError(f"there is no folder {path.parent} to hold a ledger; make it, or name another.")
        part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            ledger_file.create(part, terms)
            os.link(part, path)  # unlike a rename, it never replaces a file
        except FileExistsError:
            raise InputError(
                f"{path} exists, and overwriting a ledger would lose what was spent; open it, or name a new file."
            ) from None
        except OSError as error:
            raise InputError(f"{path.parent} can hold no ledger ({error.strerror}); name another folder.") from error
        finally:
            part.unlink(missing_ok=True)
        return ledger

    @classmethod
    def open(cls, path: str | Path) -> "Ledger":
        """The ledger in a file that `create` wrote.

        Raises:
          InputError: there is no such file, another version of l2p made it, or something other than l2p changed it.
        """
        path = Path(path).resolve()
        if not path.is_file():
            raise InputError(f"there is no ledger {path} to say what was spent; create it with l2p ledger create.")
        return cls._by_terms(path, ledger_file.load(path)[0])

    @classmethod
    def _by_terms(cls, path: Path, terms: ledger_file.Row) -> "Ledger":
        name, epsilon, delta, adjacency, unit, *limit, created = terms
        if not str(name).isprintable():  # `create` gives none such, and messages name it
            raise InputError(
                f"the ledger {path} has control characters in its name, so something other than l2p made or changed "
                "it; keep the file, and create a new ledger for what is left according to the privacy cards."
            )
        return cls(path, name, Budget(epsilon, delta, adjacency), unit, Cost(*limit), created)

    def _rows(self, content: tuple[ledger_file.Row, list[ledger_file.Row]]) -> list[ledger_file.Row]:
        """The entries of a file's content; refuses the content of another ledger, whose limit may differ."""
        terms, rows = content
        if self._by_terms(self.path, terms) != self:
            raise InputError(
                f"another ledger lies at {self.path} than was opened there, so runs would be held to a limit that is "
                "not its own; open it again (Ledger.open)."
            )
        return rows

    def reserve(self, cost: Cost, description: str, reservation: str | None = None, unit: str | None = None) -> str:
        """Reserve budget for one run before it reads a row; returns the reservation's id once it is on disk.

        The cost is the most that the run may spend. It counts as spent until `settle` or `release`, whatever happens to
        the process. `description` is one line on the run: its protector, epsilon and delta. `reservation` is an id from
        `new_id`, for callers that must know it before it is on disk. `unit` is the column that says whose rows the run
        protects together; None for single rows. Neither guarantee implies the other, so a ledger counts only one of
        them. An `InputError` says that the cost does not fit into what is left, that other runs protect something
        else, or that the file cannot be used.
        """
        cost, description = _numbers(cost), _line("the description of a run", description)
        if not all(0 <= number < math.inf for number in cost) or not any(cost):
            raise InputError(f"{cost} cannot be counted; reserve finite numbers, none below 0 and one above it.")
        reservation, now = reservation or new_id(), _now()
        with ledger_file.change(self.path) as connection:
            rows = self._rows(ledger_file.read(connection, self.path))
            self._check_unit(unit, map(_entry, rows))
            if max(total([cost, *(_entry(row).counted for row in rows)], self.limit)) > 0:
                raise NotEnough(
                    f"{self.name} has {self.in_epsilon(self.left(), up=False)} left and this run asks for "
                    f"{self.in_epsilon(cost)}, so it must not start; ask for less, or see what other runs hold with "
                    f"l2p ledger show {self.path}.",
                    self.left(),
                )
            host = platform.node()
            entry = Entry(reservation, description, "reserved", cost, cost, os.getpid(), host, now, now, "", unit)
            ledger_file.append(connection, _row(entry))
        return reservation

    def check_unit(self, unit: str | None) -> None:
        """Refuse a run that protects all rows of one `unit` (None: single rows) where other runs protect others."""
        self._check_unit(unit, self.entries())

    def _check_unit(self, unit: str | None, entries: Iterable[Entry]) -> None:
        counting = [entry for entry in entries if entry.state != "released"]
        other_units = {entry.protects for entry in counting} - {unit}
        if other_units:
            other_column = next(iter(other_units))
            own_unit, other_unit = (
                "single rows" if column is None else f"all rows of one {column!r} together"
                for column in (unit, other_column)
            )
            raise InputError(
                f"this run would protect {own_unit}, but runs in the ledger of {self.name} protect {other_unit}, and "
                "what they spend does not add up; keep a ledger for each."
            )

    def settle(self, reservation: str, cost: Cost) -> None:
        """Count a finished run as what it spent, at most what it had reserved.

        In a `basic` ledger, settle for less only if the smaller (epsilon, delta) did not depend on the answers, or is
        the sum of those of the answered queries; an amount that the answers determine in any other way guarantees
        nothing.

        Raises:
          RuntimeError: a bug in the caller, or the file cannot be used. A cost beyond the reservation is recorded as
            the reservation in full; a run that was released counts again, even beyond the limit.
        """
        cost = _numbers(cost)
        try:
            with ledger_file.change(self.path) as connection:
                entry = self._find(connection, reservation)
                if entry.state == "settled":
                    raise InputError(f"run {reservation} has settled, and what it counts as is final; settle it once.")
                within = all(0 <= spent <= most for spent, most in zip(cost, entry.reserved, strict=True))
                counted = cost if within else entry.reserved
                settled = entry._replace(state="settled", counted=counted, changed=_now())
                ledger_file.append(connection, _row(settled))
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

        Whoever releases asserts that no query of that run was or will be answered.
        If that is wrong, the ledger's guarantee is void. The entry stays in the history, with the one-line reason.
        An `InputError` says that the run is unknown, settled or released, or that the file cannot be used.
        """
        reason = _line("the reason of a release", reason)
        with ledger_file.change(self.path) as connection:
            entry = self._find(connection, reservation)
            if entry.state != "reserved":
                raise InputError(f"run {reservation} is {entry.state}, so it holds nothing to be released; leave it.")
            released = entry._replace(state="released", counted=Cost(0.0), changed=_now(), reason=reason)
            ledger_file.append(connection, _row(released))

    def entries(self) -> list[Entry]:
        """Every run ever reserved, in order of reservation."""
        return [_entry(row) for row in self._rows(ledger_file.load(self.path))]

    def spent(self) -> Cost:
        """The sum over settled and reserved runs, rounded up."""
        return total(entry.counted for entry in self.entries())

    def left(self) -> Cost:
        """The most that one run may still reserve, rounded down."""
        excess = total((entry.counted for entry in self.entries()), minus=self.limit)
        return Cost(*(max(0.0, -number) for number in excess))

    def _find(self, connection: Connection, reservation: str) -> Entry:
        for entry in map(_entry, self._rows(ledger_file.read(connection, self.path))):
            if entry.id == reservation:
                return entry
        raise InputError(f"no run {reservation!r} is in the ledger; l2p ledger show {self.path} lists them.")

    def epsilon(self, cost: Cost) -> float:
        """Epsilon at the ledger's own delta of one run that costs so much: what people know a cost by.

        Costs add up and their epsilons do not. At one Renyi order it is that of Gaussian queries on all rows.
        """
        accountant = find(self.unit)
        if not accountant.composes or cost.amount == 0:
            return cost.amount
        terms = accountant.terms(self.budget, FullBatch())
        if accountant.at_order:
            return find("zcdp").epsilon_of_rho(cost.amount / terms.order, self.budget.delta)
        return accountant.epsilon(cost.amount, terms)

    def in_epsilon(self, cost: Cost, up: bool = True) -> str:
        """A cost as epsilon and delta, in three digits."""
        epsilon = f"epsilon {rounded(self.epsilon(cost), up)}"
        if not find(self.unit).composes:
            return f"{epsilon} at delta {cost.delta:g}"
        return f"{epsilon} at delta {self.budget.delta:g}" + (f" and {cost.delta:g} more" if cost.delta else "")

    def say(self, cost: Cost) -> str:
        """A cost as the ledger counts it, exactly."""
        delta = f" and delta {cost.delta!r}" if cost.delta or not find(self.unit).composes else ""
        return f"{AMOUNTS[self.unit]} {cost.amount!r}{delta}"


def new_id() -> str:
    """An id for a reservation."""
    return secrets.token_hex(6)


def total(costs: Iterable[Cost], minus: Cost = Cost(0.0)) -> Cost:  # noqa: B008  (immutable)
    """The sum minus `minus`, each number rounded up to a float64: above 0 if and only if the exact difference is.

    >>> total([Cost(0.1), Cost(0.2)], minus=Cost(0.3)).amount > 0  # in float64, 0.1 + 0.2 is above 0.3
    True
    """
    return Cost(*map(_sum_up, zip((-minus.amount, -minus.delta), *costs, strict=True)))


def _sum_up(numbers: tuple[float, ...]) -> float:
    nearest = math.fsum(numbers)  # rounded once, so that its sign is exact; so is the sign of what was rounded off
    return nearest if math.fsum((-nearest, *numbers)) <= 0 else math.nextafter(nearest, math.inf)


def _numbers(cost: Cost) -> Cost:
    return Cost(*(float(number) + 0.0 for number in cost))  # SQLite stores -0.0 as 0.0


def _entry(row: Row) -> Entry:
    run, description, state, *numbers = row[:7]
    return Entry(run, description, state, Cost(*numbers[:2]), Cost(*numbers[2:]), *row[7:])


def _row(entry: Entry) -> Row:
    return *entry[:3], *entry.reserved, *entry.counted, *entry[5:]


def _line(subject: str, text: str) -> str:
    if text.strip() and text.strip().isprintable():
        return text.strip()
    raise InputError(
        f"{subject} is {text!r}, but people must recognise it in a list; give one line of text, without control "
        "characters."
    )


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
