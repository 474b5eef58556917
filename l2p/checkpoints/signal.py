"""Conversions between epsilon, rows and log(mu N / sensitivity_factor), by which a budget resolves a table.

Protectors are made for a range of it (`Setup.log_signal`); people know rows and epsilon.
"""

import dataclasses
import math
from typing import cast

from scipy.optimize import brentq

from l2p.base.errors import InputError
from l2p.privacy.accountants import find, for_runs
from l2p.privacy.budget import Budget

#: The range searched for the smallest sufficient epsilon.
EPSILONS = (1e-6, 1e4)


def log_signal(accountant: str, budget: Budget, rows: int) -> float:
    """log(mu N / sensitivity_factor) in float64, as `Setup.log_signal` has it in float32.

    >>> round(log_signal("gdp", Budget(0.1, 1e-8), 30_400), 2)
    6.49
    """
    return math.log(_mu(accountant, budget) * rows / budget.adjacency.sensitivity_factor)


def epsilon_for(target: float, accountant: str, budget: Budget, rows: int) -> float | None:
    """Smallest epsilon in `EPSILONS` at which log_signal reaches `target`, all else as in `budget`; None if none does.

    >>> round(epsilon_for(6.4945, "gdp", Budget(3.0, 1e-8), 30_400), 3)
    0.1
    """

    def missing(log_epsilon: float) -> float:
        return target - log_signal(accountant, dataclasses.replace(budget, epsilon=math.exp(log_epsilon)), rows)

    low, high = map(math.log, EPSILONS)
    if missing(low) <= 0:
        return EPSILONS[0]
    return math.exp(cast(float, brentq(missing, low, high, xtol=1e-12))) if missing(high) <= 0 else None


def rows_for(target: float, accountant: str, budget: Budget) -> int | None:
    """Fewest rows at which log_signal reaches `target`; None if `budget.delta` would not be below 1/N there."""
    mu = _mu(accountant, budget)
    least = math.ceil(math.exp(target) * budget.adjacency.sensitivity_factor / mu)
    return least if budget.delta * least < 1 else None


def _mu(accountant: str, budget: Budget) -> float:
    """The Gaussian-DP parameter of one Gaussian query that spends the whole budget under `accountant`."""
    mu = find(accountant).mu(budget)
    if mu is None:
        capping = ", ".join(candidate.name for candidate in for_runs() if candidate.mu(budget) is not None)
        raise InputError(
            f"accountant {accountant!r} caps no sum of Gaussian queries, so it cannot plan; use {capping}."
        )
    return mu
