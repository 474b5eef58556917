"""Guarantees of runs with noise FIXED beforehand: epsilon at delta of a finished trace, by each accountant.

Filters (`l2p.privacy.cap.filter`) hold whatever the noise depended on. These epsilons hold only if the noise of every
query and the number of queries were fixed before the run, or for a plan; for the same trace they are lower.
"""

import time
from collections.abc import Sequence
from typing import NamedTuple

from l2p.base.errors import InputError
from l2p.privacy.accountants import every
from l2p.privacy.accountants.base import Accountant, FixedTrace
from l2p.privacy.cost.sampling import Sampler
from l2p.privacy.events import Adjacency, Answered


class Row(NamedTuple):
    """One accountant's certificate for a trace.

    Attributes:
      name: of the accountant, a key of `accountants()`.
      epsilon: None if it certifies nothing, see `note`.
      seconds: running time.
      valid_for_adaptive: whether it is also a filter: with this epsilon as target from the start the trace would have
        stayed within its cap, even with adaptive noise.
      note: a sentence on what it assumes, or why there is no epsilon; may be empty.
    """

    name: str
    epsilon: float | None
    seconds: float
    valid_for_adaptive: bool
    note: str


def accountants() -> dict[str, Accountant]:
    """Every accountant of a fixed trace, by the name of its row."""
    return {accountant.row: accountant for accountant in every() if accountant.row is not None}


def epsilon(name: str, answered: Sequence[Answered], sampler: Sampler, adjacency: Adjacency, delta: float) -> float:
    """Epsilon at `delta` of a trace by one of `accountants()`, rounded up.

    0 for an empty trace, infinite if an answer had no noise.

    Raises:
      InputError: the accountant has no theorem for this trace.

    >>> from l2p.privacy.cost.sampling import FullBatch
    >>> round(epsilon("gdp", [Answered(1, "gaussian", 500.0)] * 50, FullBatch(), Adjacency.ZERO_OUT, 1e-8), 4)
    0.0637
    """
    return accountants()[name].epsilon_of(FixedTrace(answered, sampler, adjacency, delta))


def table(answered: Sequence[Answered], sampler: Sampler, adjacency: Adjacency, delta: float) -> list[Row]:
    """Certificates of all accountants for this trace, as if its noise had been fixed, with their running times.

    >>> from l2p.privacy.cost.sampling import FullBatch
    >>> rows = table([Answered(1, "gaussian", 500.0)] * 50, FullBatch(), Adjacency.ZERO_OUT, 1e-8)
    >>> [(row.name, round(row.epsilon, 3)) for row in rows if row.epsilon is not None and row.valid_for_adaptive]
    [('gdp', 0.064), ('zcdp', 0.068), ('rdp_planned', 0.068), ('ctcdp', 0.086)]
    """
    import dp_accounting.pld  # noqa: F401 - so that no accountant's time is that of an import

    trace = FixedTrace(answered, sampler, adjacency, delta)
    return [_row(name, accountant, trace) for name, accountant in accountants().items()]


def _row(name: str, accountant: Accountant, trace: FixedTrace) -> Row:
    begun = time.perf_counter()
    try:
        if trace.delta == 0:
            raise InputError("certifies no epsilon at delta 0: only basic accounts for pure differential privacy.")
        bound, note = accountant.epsilon_of(trace), accountant.note(trace)
    except InputError as error:
        bound, note = float("inf"), str(error)
    seconds = time.perf_counter() - begun
    return Row(name, bound if bound < float("inf") else None, seconds, accountant.adaptive, note)
