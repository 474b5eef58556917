"""One run in the ledger of its data set: what to reserve before it, and what it counts as afterwards.

A ledger adds up every query of every run in one unit, so it is one filter over all of them, whatever the analyst saw in
between. A finished run counts as what its answered queries cost, adaptive or not.
"""

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from l2p.base.errors import InputError
from l2p.privacy.accountants import either, find
from l2p.privacy.budget import Budget
from l2p.privacy.cap.filter import Filter
from l2p.privacy.cost.selection import Repetitions
from l2p.privacy.events import PURE, Answered
from l2p.privacy.ledger.ledger import AMOUNTS, WHOLE_RUNS, Cost, Entry, Ledger, NotEnough, new_id, total
from l2p.privacy.rounded import rounded

# Margin for rounding in the conversion between two units.
_UP = 1 + 1e-12
# Below this share of what a run asks for, no epsilon is offered instead.
_SMALLEST = 1e-6
# Relative precision of the largest epsilon that fits.
_WITHIN = 1e-6
# Margin for the difference between two ways to add up one trace.
_ROUNDING = 1 + 1e-9


def open_ledger(ledger: Ledger | str | Path, releases: bool) -> Ledger:
    """The ledger for runs; `InputError` if the file is broken, or they release nothing but simulate."""
    if not releases:
        raise InputError(
            "a simulation's noise is known to whoever has its key, so a ledger cannot count it as private; leave out "
            "the ledger, or the key."
        )
    return ledger if isinstance(ledger, Ledger) else Ledger.open(ledger)


def limit_of(unit: str, budget: Budget) -> Cost:
    """`budget` converted to a ledger's unit, rounded down.

    >>> limit_of("basic", Budget(1.0, 1e-6))
    Cost(amount=1.0, delta=1e-06)
    """
    return Cost(Filter(unit, budget).limit) if find(unit).composes else Cost(budget.epsilon, budget.delta)


@contextlib.contextmanager
def held(ledger: Ledger, id: str | None = None) -> Iterator[str]:
    """Gives the id for a reservation to make inside; an exception that leaves while it is unsettled gets a note on it.

    The `id` is that of a run which goes on; None for a new one.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ledger = Ledger.create(f"{folder}/ward.ledger", "ward", Budget(1, 1e-6), "basic", Cost(1.0, 1e-6))
    ...     try:
    ...         with held(ledger) as id:
    ...             run = ledger.reserve(Cost(0.5, 1e-7), "a run", id)
    ...             raise KeyboardInterrupt
    ...     except KeyboardInterrupt as interrupt:
    ...         print(interrupt.__notes__[0].partition(":")[0])  # doctest: +ELLIPSIS
    The reservation of epsilon 0.5 at delta 1e-07 for this run (...) stays in the ledger of ward and counts as spent
    """
    id = id or new_id()
    try:
        yield id
    except BaseException as error:
        for note in _notes(ledger, id):
            error.add_note(note)
        raise


def _notes(ledger: Ledger, id: str) -> list[str]:
    try:
        reserved = [entry.reserved for entry in ledger.entries() if (entry.id, entry.state) == (id, "reserved")]
        costs = [ledger.in_epsilon(cost) for cost in reserved]
    except InputError as error:
        return [
            f"Whether the reservation {id} of this run stays in the ledger of {ledger.name} cannot be told: {error}"
        ]
    return [
        f"The reservation of {cost} for this run ({id}) stays in the ledger of {ledger.name} and counts as spent: l2p "
        f"ledger show {ledger.path} lists it, and l2p ledger release may give it back only if no query was answered."
        for cost in costs
    ]


@dataclasses.dataclass(frozen=True)
class Reservation:
    """Budget of a ledger that one run has reserved until it settles.

    Attributes:
      ledger: the ledger.
      id: of the entry.
      filter: what stops the run.
      cost: what was reserved.
      earlier: the runs that counted before.
      settled: what it counts as if it was settled before the process of the run was killed; else None.
    """

    ledger: Ledger
    id: str
    filter: Filter
    cost: Cost
    earlier: tuple[Entry, ...]
    settled: Cost | None = None

    @classmethod
    def make(
        cls,
        ledger: Ledger,
        filter: Filter,
        mechanisms: Iterable[str],
        description: str,
        id: str | None = None,
        unit: str | None = None,
    ) -> "Reservation":
        """Reserve the most that a run can cost, before it reads a row; under the `id` that `held` gave.

        A run that goes on has that reserved already, under the same id. `unit` is the column whose rows it protects
        together; None for single rows.

        Raises:
          InputError: the ledger has another adjacency or counts other units, cannot price this run, or has too little
            left.
        """
        before, cost = counting(ledger), cost_of(ledger, filter, mechanisms)
        entry = next((entry for entry in ledger.entries() if entry.id == id), None)
        if entry is not None:
            earlier = tuple(itertools.takewhile(lambda other: other.id != id, before))
            settled = entry.counted if entry.state == "settled" else None
            return cls(ledger, entry.id, filter, entry.reserved, earlier, settled)
        try:
            return cls(ledger, ledger.reserve(cost, description, id, unit), filter, cost, before)
        except NotEnough as error:
            raise InputError(not_enough(ledger, filter, mechanisms, error.left)) from None

    def settle(self, answered: Sequence[Answered], epsilon: float, adaptive: bool) -> tuple[dict[str, Any], list[str]]:
        """Settle a finished run; returns the card's `composition` and warnings.

        Args:
          answered: its granted queries.
          epsilon: certified for it.
          adaptive: whether its noise or its end depended on earlier answers; then the amount spent is not a guarantee
            by itself, and only a ledger that adds up queries gives back the rest.
        """
        counted = self.cost
        if find(self.ledger.unit).composes:
            spent = _pricer(self.ledger, self.filter).spent(answered)
            if not spent <= self.cost.amount * _ROUNDING:
                raise RuntimeError(
                    f"the run spent {spent!r} of the ledger's {self.ledger.unit}, above the {self.cost.amount!r} that "
                    "it had reserved, so its guarantee does not hold; withhold the result and report this as a bug."
                )
            counted = Cost(min(spent, self.cost.amount))
        elif not adaptive:
            counted = Cost(min(epsilon, self.cost.amount), self.cost.delta)
        if self.settled is not None:
            if counted.amount > self.settled.amount * _ROUNDING:
                raise RuntimeError(
                    f"the run spent {self.ledger.say(counted)}, above the {self.ledger.say(self.settled)} that it has "
                    "settled as, so its guarantee does not hold; withhold the result and report this as a bug."
                )
            return _composition(self.ledger, self.id, self.settled, self.earlier), []
        return count(self.ledger, self.id, counted, self.cost, self.earlier)


def counting(ledger: Ledger) -> tuple[Entry, ...]:
    """The runs that count in a ledger now: all but those whose reservation was released."""
    return tuple(entry for entry in ledger.entries() if entry.state != "released")


def count(
    ledger: Ledger, id: str, counted: Cost, reserved: Cost, earlier: Sequence[Entry]
) -> tuple[dict[str, Any], list[str]]:
    """Settle a reservation; returns the card's `composition`, where `earlier` runs count before it, and warnings."""
    warnings = []
    try:
        ledger.settle(id, counted)
    except RuntimeError as error:
        counted = reserved
        warnings.append(f"The ledger could not be settled ({error}); it says what this run counts as there.")
    return _composition(ledger, id, counted, earlier), warnings


def _composition(ledger: Ledger, id: str, counted: Cost, earlier: Sequence[Entry]) -> dict[str, Any]:
    return {
        "data_set": ledger.name,
        "unit": f"{ledger.unit}: {AMOUNTS[ledger.unit]}",
        "reservation": id,
        "spent_before": total(entry.counted for entry in earlier).amount,
        "counted": counted.amount,
        "limit": ledger.limit.amount,
        "earlier": [
            {
                "reservation": entry.id,
                "run": entry.what,
                "state": entry.state,
                "counted": entry.counted.amount,
                "delta": entry.counted.delta,
                "reserved_on": entry.created[:10],
            }
            for entry in earlier
        ],
    }


def cost_of(ledger: Ledger, filter: Filter, mechanisms: Iterable[str]) -> Cost:
    """Cost that a run has to reserve; `InputError` if the ledger counts other neighbours or cannot price it."""
    _check_adjacency(ledger, filter.budget)
    return most_cost(ledger, filter, mechanisms)


def most_cost(ledger: Ledger, filter: Filter, mechanisms: Iterable[str]) -> Cost:
    """The most that a run can cost in the ledger's unit while its own filter holds."""
    mechanisms = tuple(mechanisms)
    if not find(ledger.unit).composes:
        # One query that is pure never needs the delta that its run was asked to keep to.
        is_pure = filter.accountant.pure and set(mechanisms) <= set(PURE)
        return Cost(filter.budget.epsilon, 0.0 if is_pure else filter.budget.delta)
    if not filter.accountant.composes:
        raise InputError(
            f"the ledger of {ledger.name} adds up {AMOUNTS[ledger.unit]}, but what this run guarantees is one epsilon "
            f"and delta as a whole, which does not convert to it; keep a ledger with unit {either(WHOLE_RUNS)}."
        )
    if filter.neighbours is not None:
        raise InputError(
            f"the ledger of {ledger.name} adds up {AMOUNTS[ledger.unit]}, which {filter.sampler} does not convert to; "
            f"read every row with full batches, or keep a ledger with unit {either(WHOLE_RUNS)}."
        )
    if ledger.unit == filter.name and ledger.budget == filter.budget:
        return Cost(filter.limit)
    # Both prices are a coefficient over the squared noise multiplier, so their ratio is that of the coefficients.
    pricer = _pricer(ledger, filter)
    if "sinh_normal" in mechanisms and pricer.order > filter.order:
        raise InputError(
            f"the ledger of {ledger.name} counts at order {pricer.order:.4g}, but the tails of this run's sinh_normal "
            f"queries are checked up to order {filter.order:.4g} only; keep a ledger with unit {either(WHOLE_RUNS)}."
        )
    ratios = [pricer.prices(name, np.ones(()), False) / filter.coefficients[name] for name in mechanisms]
    return Cost(float(max(ratios)) * filter.limit * _UP)


def largest_epsilon(ledger: Ledger, filter: Filter, mechanisms: Iterable[str], left: Cost) -> float:
    """The largest epsilon, to within a millionth, at which a run fits into the cost `left`; 0 if none does.

    At most that of `filter`, from which all else is taken.
    """
    mechanisms = tuple(mechanisms)

    def fits(epsilon: float) -> bool:
        smaller = dataclasses.replace(filter, budget=dataclasses.replace(filter.budget, epsilon=epsilon))
        cost = most_cost(ledger, smaller, mechanisms)
        return cost.amount <= left.amount and cost.delta <= left.delta

    low, high = filter.budget.epsilon * _SMALLEST, filter.budget.epsilon
    if not fits(low):
        return 0.0
    while high > low * (1 + _WITHIN):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if fits(middle) else (low, middle)
    shown = float(f"{low:.3g}")  # the number that people would ask for, if it fits
    return shown if low < shown <= high * (1 + _WITHIN) and fits(shown) else low


def not_enough(ledger: Ledger, filter: Filter, mechanisms: Iterable[str], left: Cost) -> str:
    """The sentence on a run that does not fit into the cost `left`, with the largest epsilon that does."""
    budget, largest = filter.budget, largest_epsilon(ledger, filter, mechanisms, left)
    fits = (
        f"the largest epsilon that fits is {rounded(largest, up=False)} at this delta"
        if largest
        else "no run like it fits"
    )
    return (
        f"{ledger.name} has {ledger.in_epsilon(left, up=False)} left and this run asks for epsilon {budget.epsilon:g} "
        f"at delta {budget.delta:g}, so it must not start; {fits}, and l2p ledger show {ledger.path} lists the other "
        "runs."
    )


def cost_of_best(ledger: Ledger, budget: Budget, law: Repetitions, rho: float) -> Cost:
    """Cost of the best of a random number of runs in the ledger's unit, where each is `rho`-zCDP, score included.

    It covers all runs that might have been drawn, so nothing is given back, however few were.

    Args:
      budget: what the best run is certified for as a whole.

    Raises:
      InputError: the ledger has another adjacency, or a unit that cannot bound such a choice.
    """
    _check_adjacency(ledger, budget)
    if not find(ledger.unit).composes:
        return Cost(budget.epsilon, budget.delta)
    if ledger.unit == "rdp":
        return Cost(law.divergence(rho, Filter("rdp", ledger.budget).order))
    raise InputError(
        f"the ledger of {ledger.name} adds up {AMOUNTS[ledger.unit]}, which bounds no single run chosen among several, "
        f"only a Renyi divergence or an epsilon and delta do; keep a ledger with unit {either(['rdp', *WHOLE_RUNS])}."
    )


def _check_adjacency(ledger: Ledger, budget: Budget) -> None:
    if ledger.budget.adjacency is not budget.adjacency:
        raise InputError(
            f"the ledger of {ledger.name} counts {ledger.budget.adjacency} neighbours, but this run is planned for "
            f"{budget.adjacency}, and the two do not add up; choose the ledger's adjacency."
        )


def _pricer(ledger: Ledger, filter: Filter) -> Filter:
    """The filter over all runs, pricing what this run's sampler read."""
    return Filter(ledger.unit, ledger.budget, filter.sampler)
