"""One run's place in the ledger of all runs on a data set: what to set aside before it, and what it counts as after it.

A ledger adds up every query of every run in one unit, so it is one filter over all of them, whatever was seen in
between: a finished run counts what its answered queries cost, adaptive or not.
"""

import contextlib
import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from l2p.errors import InputError
from l2p.privacy.accountants import find
from l2p.privacy.book import AMOUNTS, Book, Cost, new_id
from l2p.privacy.budget import Budget
from l2p.privacy.events import Answered
from l2p.privacy.filter import Filter
from l2p.privacy.selection import Repetitions

# Of the conversion between two units.
_UP = 1 + 1e-12
# Between two ways to add up one trace.
_ROUNDING = 1 + 1e-9


def limit_of(unit: str, budget: Budget) -> Cost:
    """What `budget` comes to in a ledger's unit, rounded down.

    >>> limit_of("basic", Budget(1.0, 1e-6))
    Cost(amount=1.0, delta=1e-06)
    """
    return Cost(Filter(unit, budget).limit) if find(unit).composes else Cost(budget.epsilon, budget.delta)


@contextlib.contextmanager
def held(book: Book) -> Iterator[str]:
    """The id of a reservation to make inside; an exception that leaves while it is not settled has a note that says so.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     book = Book.create(f"{folder}/ward.book", "ward", Budget(1, 1e-6), "basic", Cost(1.0, 1e-6))
    ...     try:
    ...         with held(book) as id:
    ...             run = book.reserve(Cost(0.5, 1e-7), "a run", id)
    ...             raise KeyboardInterrupt
    ...     except KeyboardInterrupt as interrupt:
    ...         print(interrupt.__notes__[0].partition(":")[0])  # doctest: +ELLIPSIS
    The reservation of epsilon 0.5 and delta 1e-07 for this run (...) stays in the ledger of ward and counts as spent
    """
    id = new_id()
    try:
        yield id
    except BaseException as error:
        for note in _notes(book, id):
            error.add_note(note)
        raise


def _notes(book: Book, id: str) -> list[str]:
    try:
        costs = [book.say(entry.reserved) for entry in book.entries() if (entry.id, entry.state) == (id, "reserved")]
    except InputError as error:
        return [f"Whether the reservation {id} of this run stays in the ledger of {book.name} cannot be told: {error}"]
    return [
        f"The reservation of {cost} for this run ({id}) stays in the ledger of {book.name} and counts as spent: l2p "
        f"ledger show {book.path} lists it, and l2p ledger release may give it back only if no query was answered."
        for cost in costs
    ]


@dataclasses.dataclass(frozen=True)
class Reservation:
    """What one run holds of a ledger until it settles.

    Attributes:
      book: the ledger.
      id: of its entry.
      filter: what stops the run.
      cost: what was reserved.
      spent_before: what runs had spent or reserved before.
    """

    book: Book
    id: str
    filter: Filter
    cost: Cost
    spent_before: Cost

    @classmethod
    def make(
        cls,
        book: Book,
        filter: Filter,
        mechanisms: Iterable[str],
        what: str,
        id: str | None = None,
        unit: str | None = None,
    ) -> "Reservation":
        """Reserve the most that a run can cost, before it reads a row; under the `id` that `held` gave.

        `unit` is the column whose rows it protects together; None for single rows.

        Raises:
          InputError: the ledger counts other neighbours or units, cannot price this run, or has too little left.
        """
        _check_adjacency(book, filter.budget)
        before, cost = book.spent(), most_cost(book, filter, mechanisms)
        return cls(book, book.reserve(cost, what, id, unit), filter, cost, before)

    def settle(self, answered: Sequence[Answered], epsilon: float, adaptive: bool) -> tuple[dict[str, Any], list[str]]:
        """Count a finished run, and say so: the card's `composition`, and warnings.

        Args:
          answered: its granted queries.
          epsilon: certified for it.
          adaptive: whether its noise or its end depended on earlier answers; then what was spent is no guarantee by
            itself, and only a ledger that adds up queries gives back what was not spent.
        """
        counted = self.cost
        if find(self.book.unit).composes:
            spent = _pricer(self.book, self.filter).spent(answered)
            if not spent <= self.cost.amount * _ROUNDING:
                raise RuntimeError(
                    f"the run spent {spent!r} of the ledger's {self.book.unit}, above the {self.cost.amount!r} that it "
                    "had reserved, so its guarantee does not hold; withhold the result and report this as a bug."
                )
            counted = Cost(min(spent, self.cost.amount))
        elif not adaptive:
            counted = Cost(min(epsilon, self.cost.amount), self.cost.delta)
        return count(self.book, self.id, counted, self.cost, self.spent_before)


def count(book: Book, id: str, counted: Cost, reserved: Cost, spent_before: Cost) -> tuple[dict[str, Any], list[str]]:
    """Settle a reservation: the card's `composition`, and warnings."""
    warnings = []
    try:
        book.settle(id, counted)
    except RuntimeError as error:
        counted = reserved
        warnings.append(f"The ledger could not be settled ({error}); it says what this run counts as there.")
    composition = {
        "data_set": book.name,
        "unit": f"{book.unit}: {AMOUNTS[book.unit]}",
        "reservation": id,
        "spent_before": spent_before.amount,
        "counted": counted.amount,
        "limit": book.limit.amount,
    }
    return composition, warnings


def most_cost(book: Book, filter: Filter, mechanisms: Iterable[str]) -> Cost:
    """The most that a run can cost in the ledger's unit while its own filter holds."""
    if not find(book.unit).composes:
        return Cost(filter.budget.epsilon, filter.budget.delta)
    if not filter.accountant.composes:
        raise InputError(
            f"the ledger of {book.name} adds up {AMOUNTS[book.unit]}, but what this run guarantees is one epsilon and "
            "delta as a whole, which does not convert to it; keep a ledger with unit basic."
        )
    if filter.neighbours is not None:
        raise InputError(
            f"the ledger of {book.name} adds up {AMOUNTS[book.unit]}, which {filter.sampler} does not convert to; "
            "read every row with full batches, or keep a ledger with unit basic."
        )
    if book.unit == filter.name and book.budget == filter.budget:
        return Cost(filter.limit)
    # Both prices are a coefficient over the squared noise multiplier, so their ratio is that of the coefficients.
    pricer, mechanisms = _pricer(book, filter), tuple(mechanisms)
    if "sinh_normal" in mechanisms and pricer.order > filter.order:
        raise InputError(
            f"the ledger of {book.name} counts at order {pricer.order:.4g}, but the tails of this run's sinh_normal "
            f"queries are checked up to order {filter.order:.4g} only; keep a ledger with unit basic."
        )
    ratios = [pricer.prices(name, np.ones(()), False) / filter.coefficients[name] for name in mechanisms]
    return Cost(float(max(ratios)) * filter.limit * _UP)


def cost_of_best(book: Book, budget: Budget, law: Repetitions, rho: float) -> Cost:
    """What the best of a random number of runs costs in the ledger's unit, where each is `rho`-zCDP, score included.

    It is about all runs that might have been drawn, so nothing of it comes back, however few were.

    Args:
      budget: what the best run is certified for as a whole.

    Raises:
      InputError: the ledger counts other neighbours, or in a unit that bounds no such choice.
    """
    _check_adjacency(book, budget)
    if book.unit == "basic":
        return Cost(budget.epsilon, budget.delta)
    if book.unit == "rdp":
        return Cost(law.divergence(rho, Filter("rdp", book.budget).order))
    raise InputError(
        f"the ledger of {book.name} adds up {AMOUNTS[book.unit]}, which bounds no single run chosen among several, "
        "only a Renyi divergence or an epsilon and delta do; keep a ledger with unit rdp or basic."
    )


def _check_adjacency(book: Book, budget: Budget) -> None:
    if book.budget.adjacency is not budget.adjacency:
        raise InputError(
            f"the ledger of {book.name} counts {book.budget.adjacency} neighbours, but this run is planned for "
            f"{budget.adjacency}, and the two do not add up; choose the ledger's adjacency."
        )


def _pricer(book: Book, filter: Filter) -> Filter:
    """The filter over all runs, pricing what this run's sampler read."""
    return Filter(book.unit, book.budget, filter.sampler)
