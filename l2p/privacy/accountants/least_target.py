"""The smallest target that a filter would have held from the start, which it certifies for a finished trace."""

import math
from typing import TYPE_CHECKING, cast

from scipy.optimize import brentq

from l2p.privacy.budget import Budget

if TYPE_CHECKING:
    from l2p.privacy.accountants.base import FixedTrace, RunAccountant

# The searched range of targets; beyond it a guarantee is meaningless.
_TARGETS = (1e-9, 1e6)


def least_target(accountant: "RunAccountant", trace: "FixedTrace") -> float:
    """The least epsilon for which the accountant's filter has room for the trace.

    The order depends on the target, so the equation is solved for the target. Infinite if no target up to 1e6 suffices.

    >>> from l2p.privacy.accountants import find
    >>> from l2p.privacy.accountants.base import FixedTrace
    >>> from l2p.privacy.events import Adjacency, Answered
    >>> from l2p.privacy.cost.sampling import FullBatch
    >>> trace = FixedTrace([Answered(1, "gaussian", 100.0)], FullBatch(), Adjacency.ZERO_OUT, 1e-8)
    >>> round(least_target(find("gdp"), trace), 4)
    0.0443
    """

    def excess(log_target: float) -> float:
        """ln(spent / cap); infinite prices are cut off, so that the root finder gets numbers."""
        budget = Budget(math.exp(log_target), trace.delta, trace.adjacency)
        terms = accountant.terms(budget, trace.sampler, trace.num_steps)
        spent, limit = accountant.spent(terms, trace.answered), accountant.limit(terms)
        return math.log(min(spent, 1e300)) - math.log(limit) if limit > 0 else 1e3

    accountant.check_covers(trace.sampler, trace.budget.adjacency)
    if not trace.answered:
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
