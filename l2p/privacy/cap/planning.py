"""Planning a run: how much noise T equal Gaussian steps need, how many steps a given noise allows, and what they cost.

Accountants that may stop runs with adaptive noise are used as in a run: by a `Filter` for the budget and T. The others
are sharper or older and only hold for noise that is fixed beforehand (`l2p.privacy.fixed`).
"""

import math
from collections.abc import Callable
from typing import cast

import numpy as np
from scipy.optimize import brentq

from l2p.base.errors import InputError
from l2p.privacy.accountants import every
from l2p.privacy.accountants.base import Accountant, FixedTrace
from l2p.privacy.budget import Budget
from l2p.privacy.cap.filter import Filter
from l2p.privacy.cost import convert
from l2p.privacy.cost.sampling import Sampler
from l2p.privacy.events import Adjacency, Answered

# The searched range of noise multipliers, and its tolerance. Results are on the safe side whatever the tolerance.
_MIN_NOISE, _MAX_NOISE = 1e-2, 1e9
_TOLERANCE = 1e-7
_MAX_STEPS = 2**30
# The most steps for an accountant that lists every query.
_MAX_LISTED = 2**20


def names() -> list[str]:
    """The accountants that can plan: those proved for Gaussian steps.

    >>> names()[:3]
    ['gdp', 'zcdp', 'rdp']
    """
    return [accountant.name for accountant in every() if accountant.proved and "gaussian" in accountant.coefficients]


def noise_multiplier(budget: Budget, sampler: Sampler, num_steps: int, accountant: str) -> float:
    """The least noise multiplier (over the sensitivity) at which `num_steps` equal Gaussian steps stay within budget.

    Rounded up: the accountant certifies `budget` at the result, which is within 1e-6 of the least one.

    Args:
      budget: epsilon, delta, adjacency.
      sampler: which rows a step reads.
      num_steps: T, public.
      accountant: one of `names()`.

    Raises:
      InputError: the accountant is unknown, has no theorem for this sampler, or cannot certify this budget with any
        noise.

    >>> from l2p.privacy.cost.sampling import FullBatch, Poisson
    >>> round(noise_multiplier(Budget(0.05, 1e-8), FullBatch(), 50, "gdp"))
    630
    >>> round(noise_multiplier(Budget(0.05, 1e-8), Poisson(1000 / 30400), 50, "rdp"), 1)
    22.5
    """
    _check_steps(num_steps)
    excess = _excess(accountant, budget, sampler, num_steps)

    def at(log_noise: float) -> float:
        return excess(math.exp(log_noise))

    low, high = math.log(_MIN_NOISE), math.log(_MAX_NOISE)
    if at(high) > 0:
        raise InputError(
            f"accountant {accountant!r} certifies {budget} for {num_steps} steps at no noise multiplier up to "
            f"{_MAX_NOISE:g}, so none can be planned; choose a larger epsilon or delta, or another accountant."
        )
    # Searched from 1 outwards by factors: accountants are slow far below the needed noise.
    low, high = _bracket(at, low, high)
    if at(low) <= 0:
        return math.exp(low)
    while math.isinf(at(low)) and high - low > _TOLERANCE:  # a root finder cannot start from there
        middle = (low + high) / 2
        low, high = (middle, high) if at(middle) > 0 else (low, middle)
    root = high if math.isinf(at(low)) else float(cast(float, brentq(at, low, high, xtol=_TOLERANCE)))
    step = _TOLERANCE
    while at(root) > 0:
        root, step = root + step, 2 * step
    return math.exp(root)


def num_steps(budget: Budget, sampler: Sampler, noise_multiplier: float, accountant: str) -> int:
    """The most equal Gaussian steps at `noise_multiplier` (over the sensitivity) that stay within `budget`; 0 if none.

    At most 2^20 for an accountant of fixed noise, which lists every query, and 2^30 for others.

    Raises:
      InputError: the accountant is unknown or has no theorem for this sampler, or the multiplier is not above 0.

    >>> from l2p.privacy.cost.sampling import FullBatch
    >>> num_steps(Budget(3.0, 1e-5), FullBatch(), 20.0, "gdp")
    206
    """
    _check_noise(noise_multiplier)

    def fits(steps: int) -> bool:
        return _excess(accountant, budget, sampler, steps)(noise_multiplier) <= 0

    if not fits(1):
        return 0
    least, most, ceiling = 1, 2, _MAX_STEPS if _find(accountant).adaptive else _MAX_LISTED
    while most <= ceiling and fits(most):
        least, most = most, 2 * most
    if most > ceiling:
        return ceiling
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (middle, most) if fits(middle) else (least, middle)
    return least


def epsilon(
    sampler: Sampler, adjacency: Adjacency, delta: float, num_steps: int, noise_multiplier: float, accountant: str
) -> float:
    """Epsilon at `delta` of `num_steps` equal Gaussian steps; for a filter, the smallest target that has room for them.

    Infinite if the accountant certifies nothing.

    Raises:
      InputError: the accountant is unknown or has no theorem for this sampler, or a number is not above 0.

    >>> from l2p.privacy.cost.sampling import FullBatch
    >>> round(epsilon(FullBatch(), Adjacency.ZERO_OUT, 1e-8, 50, 630.0, "gdp"), 4)
    0.05
    """
    convert.log_inverse(delta)  # refuses 0
    answered = equal_steps(num_steps, noise_multiplier)
    return _find(accountant).epsilon_of(FixedTrace(answered, sampler, adjacency, delta, num_steps))


def equal_steps(num_steps: int, noise_multiplier: float) -> list[Answered]:
    """The trace of that many steps with one Gaussian query each.

    >>> equal_steps(1, 20.0)
    [Answered(step=1, mechanism='gaussian', noise_multiplier=20.0, tail=inf)]
    """
    _check_steps(num_steps)
    _check_noise(noise_multiplier)
    if num_steps > _MAX_LISTED:
        raise InputError(
            f"{num_steps} steps are too many to list one by one; choose at most {_MAX_LISTED}, or ask for a noise "
            "multiplier by one of the filters, which need no list."
        )
    return [Answered(step, "gaussian", noise_multiplier) for step in range(1, num_steps + 1)]


def _excess(accountant: str, budget: Budget, sampler: Sampler, num_steps: int) -> Callable[[float], float]:
    """A function of the noise multiplier that is at most 0 exactly where the accountant certifies the budget."""
    convert.log_inverse(budget.delta)  # refuses 0
    certifier = _find(accountant)
    if certifier.adaptive:
        planned = Filter(accountant, budget, sampler, num_steps)
        met = math.ceil(num_steps / sampler.steps_per_charge)
        # The margin covers what `Filter.spent` may round up when it adds the steps one by one.
        log_room = math.log(planned.limit / met * (1 - 1e-12)) if planned.limit > 0 else -math.inf
        return lambda noise: _log(float(planned.prices("gaussian", np.array([noise]), sampled=True)[0])) - log_room

    def excess(noise: float) -> float:
        trace = FixedTrace(equal_steps(num_steps, noise), sampler, budget.adjacency, budget.delta)
        reached = certifier.epsilon_of(trace)
        return _log(reached) - math.log(budget.epsilon * (1 - 1e-12))  # logarithms round

    return excess


def _log(value: float) -> float:
    return math.log(value) if value > 0 else -1e3 if value == 0 else math.inf  # NaN means that the steps do not fit


def _find(name: str) -> Accountant:
    if name not in names():
        raise InputError(
            f"accountant {name!r} is unknown, so nothing can be planned with it; choose one of {', '.join(names())}."
        )
    return next(accountant for accountant in every() if accountant.name == name)


def _bracket(at: Callable[[float], float], least: float, most: float) -> tuple[float, float]:
    """Ends of an interval in which `at` falls to 0, found by factors of e^2 from 1."""
    low = high = 0.0
    while at(high) > 0 and high < most:
        low, high = high, min(high + 2, most)
    if low == high:
        while at(low) <= 0 and low > least:
            low, high = max(low - 2, least), low
    return low, high


def _check_steps(num_steps: int) -> None:
    if num_steps != int(num_steps) or num_steps < 1:
        raise InputError(
            f"the number of steps is {num_steps!r}, but a plan is for at least one step; choose a whole number above 0."
        )


def _check_noise(noise_multiplier: float) -> None:
    if not 0 < noise_multiplier < math.inf:
        raise InputError(
            f"the noise multiplier is {noise_multiplier!r}, but only finite noise above 0 has a price; choose such a "
            "number."
        )
