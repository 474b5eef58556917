"""What a run with noise FIXED beforehand guarantees: epsilon at delta of a finished trace, by each accountant.

Filters (`l2p.privacy.accountants`) hold whatever the noise depended on. Here is what holds only if the noise of every
query and the number of queries were fixed before the run, or is a plan: sharper for the same trace. Every function
takes `(answered, sampler, adjacency, delta)` and returns epsilon in nats, rounded up: 0 for an empty trace, infinite
where an answer had no noise; it raises `InputError` where the accountant has no theorem for this trace.
"""

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

import numpy as np
from scipy.optimize import brentq, minimize_scalar

from l2p.errors import InputError
from l2p.privacy import convert, published
from l2p.privacy.accountants import Filter
from l2p.privacy.budget import Budget
from l2p.privacy.events import Adjacency, Answered
from l2p.privacy.losses import pld
from l2p.privacy.sampling import Poisson, Sampler

Accountant = Callable[[Sequence[Answered], Sampler, Adjacency, float], float]

# Renyi orders are searched from 1 + 1e-3, which serves epsilon in the thousands.
_LEAST_ORDER, _GRID = 1e-3, 16
# Targets among which `ctcdp` and `rdp_planned` look; beyond them a guarantee is empty.
_TARGETS = (1e-9, 1e6)


class Row(NamedTuple):
    """What one accountant makes of a trace.

    Attributes:
      name: of the accountant, a key of `ACCOUNTANTS`.
      epsilon: in nats; None where it certifies nothing, see `note`.
      seconds: what it took.
      valid_for_adaptive: it is also a filter: with this epsilon for its target from the start, the trace would have
        stayed within its cap, and adaptive noise would have been covered too.
      note: a sentence on what it assumes, or why there is no epsilon; may be empty.
    """

    name: str
    epsilon: float | None
    seconds: float
    valid_for_adaptive: bool
    note: str


@dataclasses.dataclass(frozen=True)
class _AtOrder(Filter):
    """The Renyi accountant at a given order, which `Filter` itself would plan."""

    order: float = 2.0


def gdp(answered: Sequence[Answered], sampler: Sampler, adjacency: Adjacency, delta: float) -> float:
    """The Gaussian curve, exact for Gaussian queries on all rows (Dong, Roth & Su 2022); a bound for epochs.

    >>> from l2p.privacy.sampling import FullBatch
    >>> round(gdp([Answered(1, "gaussian", 500.0)] * 50, FullBatch(), Adjacency.ZERO_OUT, 1e-8), 4)
    0.0637
    """
    spent = Filter("gdp", Budget(1.0, delta, adjacency), sampler).spent(answered)
    return convert.gdp_epsilon(math.nextafter(math.sqrt(spent), math.inf), delta) if spent else 0.0


def zcdp(answered: Sequence[Answered], sampler: Sampler, adjacency: Adjacency, delta: float) -> float:
    """Sum of rho, converted at the best order (Bun & Steinke 2016; CKS 2020). For queries on all rows, and epochs.

    >>> from l2p.privacy.sampling import FullBatch
    >>> round(zcdp([Answered(1, "gaussian", 500.0)] * 50, FullBatch(), Adjacency.ZERO_OUT, 1e-8), 4)
    0.0681
    """
    return convert.zcdp_epsilon(Filter("zcdp", Budget(1.0, delta, adjacency), sampler).spent(answered), delta)


def rdp_all_orders(answered: Sequence[Answered], sampler: Sampler, adjacency: Adjacency, delta: float) -> float:
    """Renyi accounting at the best real order, chosen after the fact (Mironov 2017; conversion by CKS 2020).

    Any order gives a bound, so what the search misses can only raise the result.

    >>> round(rdp_all_orders([Answered(1, "gaussian", 20.0)] * 50, Poisson(1000 / 30400), Adjacency.ZERO_OUT, 1e-8), 4)
    0.0566
    """
    budget = Budget(1.0, delta, adjacency)

    def epsilon(log_x: float) -> float:
        order = 1 + math.exp(log_x)
        return convert.rdp_epsilon(_AtOrder("rdp", budget, sampler, order=order).spent(answered), order, delta)

    if not answered:
        return 0.0
    # Divergence over order grows with the order, so beyond the best order for its least value nothing is gained. The
    # best order never exceeds 1 / delta, where CKS has nothing left to convert.
    slope = _AtOrder("rdp", budget, sampler, order=1.01).spent(answered) / 1.01
    if math.isinf(slope):
        return math.inf
    most = min(max(1.1 * math.sqrt(-math.log(delta) / slope), 0.1), 1 / delta)
    grid = np.linspace(math.log(_LEAST_ORDER), math.log(most), _GRID)
    found = [epsilon(float(log_x)) for log_x in grid]
    best = int(np.argmin(found))
    ends = grid[max(best - 1, 0)], grid[min(best + 1, _GRID - 1)]
    refined = minimize_scalar(epsilon, bounds=ends, method="bounded", options={"xatol": 1e-4})
    return max(min(found[best], float(refined.fun)), 0.0)


def ctcdp(answered: Sequence[Answered], sampler: Sampler, adjacency: Adjacency, delta: float) -> float:
    """The least target that the ctCDP filter, priced tightly, would have held (Hong et al., Definition 0.1).

    Its order bound depends on the target, which is therefore solved for.

    >>> round(ctcdp([Answered(1, "gaussian", 20.0)] * 50, Poisson(1000 / 30400), Adjacency.ZERO_OUT, 1e-8), 4)
    0.0722
    """
    return least_target("ctcdp", answered, sampler, adjacency, delta)


def rdp_planned(answered: Sequence[Answered], sampler: Sampler, adjacency: Adjacency, delta: float) -> float:
    """The least target that the Renyi filter at the target's own order would have held (Feldman & Zrnic 2021).

    >>> round(rdp_planned([Answered(1, "gaussian", 20.0)] * 50, Poisson(1000 / 30400), Adjacency.ZERO_OUT, 1e-8), 4)
    0.0566
    """
    return least_target("rdp", answered, sampler, adjacency, delta)


def least_target(
    name: str,
    answered: Sequence[Answered],
    sampler: Sampler,
    adjacency: Adjacency,
    delta: float,
    num_steps: int | None = None,
) -> float:
    """The least epsilon for which `Filter(name, Budget(epsilon, delta, adjacency), sampler, num_steps)` has room.

    Infinite where no target up to 1e6 will do.

    >>> from l2p.privacy.sampling import FullBatch
    >>> round(least_target("gdp", [Answered(1, "gaussian", 100.0)], FullBatch(), Adjacency.ZERO_OUT, 1e-8), 4)
    0.0443
    """

    def excess(log_target: float) -> float:
        """ln(spent / cap); infinite prices are cut off, so that the root finder sees numbers."""
        planned = Filter(name, Budget(math.exp(log_target), delta, adjacency), sampler, num_steps)
        spent, limit = planned.spent(answered), planned.limit
        return math.log(min(spent, 1e300)) - math.log(limit) if limit > 0 else 1e3

    if not answered:
        Filter(name, Budget(1.0, delta, adjacency), sampler)  # refuses what has no theorem
        return 0.0
    least, most = map(math.log, _TARGETS)
    high = 0.0
    while excess(high) > 0:
        if high >= most:
            return math.inf
        high = min(high + math.log(10), most)
    low = high - math.log(10)
    while excess(low) <= 0:
        if low < least:
            return math.exp(low)
        low, high = low - math.log(10), low
    root = float(cast(float, brentq(excess, low, high, xtol=1e-9)))
    step = 1e-9
    while excess(root) > 0:
        root, step = root + step, 2 * step
    return math.exp(root) * (1 + 1e-12)


#: Every accountant of a fixed trace, sharpest first.
ACCOUNTANTS: dict[str, Accountant] = {
    "gdp": gdp,
    "pld": pld,
    "rdp_all_orders": rdp_all_orders,
    "rdp_planned": rdp_planned,
    "zcdp": zcdp,
    "ctcdp": ctcdp,
    "tcdp": published.tcdp,
    "moments": published.moments,
    "strong_composition": published.strong_composition,
}
#: Those that are filters as well, at a target fixed beforehand.
FILTERS = ("gdp", "rdp_planned", "zcdp", "ctcdp")


def table(answered: Sequence[Answered], sampler: Sampler, adjacency: Adjacency, delta: float) -> list[Row]:
    """What each accountant would have certified for this trace, had its noise been fixed, and how long that took.

    >>> from l2p.privacy.sampling import FullBatch
    >>> rows = table([Answered(1, "gaussian", 500.0)] * 50, FullBatch(), Adjacency.ZERO_OUT, 1e-8)
    >>> [(row.name, round(row.epsilon, 3)) for row in rows if row.epsilon is not None and row.valid_for_adaptive]
    [('gdp', 0.064), ('rdp_planned', 0.068), ('zcdp', 0.068), ('ctcdp', 0.086)]
    """
    import dp_accounting.pld  # noqa: F401 - so that no accountant's time is that of an import

    return [_row(name, answered, sampler, adjacency, delta) for name in ACCOUNTANTS]


def _row(name: str, answered: Sequence[Answered], sampler: Sampler, adjacency: Adjacency, delta: float) -> Row:
    begun = time.perf_counter()
    try:
        epsilon, note = ACCOUNTANTS[name](answered, sampler, adjacency, delta), _note(name, answered, sampler, delta)
    except InputError as error:
        epsilon, note = math.inf, str(error)
    seconds = time.perf_counter() - begun
    return Row(name, epsilon if epsilon < math.inf else None, seconds, name in FILTERS, note)


def _note(name: str, answered: Sequence[Answered], sampler: Sampler, delta: float) -> str:
    if name == "tcdp" and isinstance(sampler, Poisson):
        failing = published.tcdp_preconditions(answered, sampler)
        return failing or "not proved for Poisson batches, to which the papers apply it."
    if name == "tcdp":
        return published.tcdp_preconditions(answered, sampler) or ""
    if name == "moments":
        return f"cannot certify below ln(1/delta) / {published.MOST_MOMENT} = {-math.log(delta) / 32:.3g}."
    if name == "strong_composition":
        return "proved for queries whose textbook epsilon before sampling is at most 1."
    return ""
