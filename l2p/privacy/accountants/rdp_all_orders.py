"""Renyi accounting at the best real order, chosen after the fact: sharper than `rdp`, but not a filter."""

import math

import numpy as np
from scipy.optimize import minimize_scalar

from l2p.privacy.accountants.base import Accountant, FixedTrace, Terms
from l2p.privacy.accountants.rdp import ACCOUNTANT as RDP
from l2p.privacy.cost import convert

# Renyi orders are searched from 1 + 1e-3, which suffices for epsilon in the thousands.
_MIN_ORDER, _GRID = 1e-3, 16


class AllOrders(Accountant):
    """The least epsilon over orders (Mironov 2017; conversion by CKS 2020).

    Any order gives a bound, so an inexact search can only raise the result.

    >>> from l2p.privacy.events import Adjacency, Answered
    >>> from l2p.privacy.cost.sampling import Poisson
    >>> trace = [Answered(1, "gaussian", 20.0)] * 50
    >>> round(ACCOUNTANT.epsilon_of(FixedTrace(trace, Poisson(1000 / 30400), Adjacency.ZERO_OUT, 1e-8)), 4)
    0.0566
    """

    name = row = "rdp_all_orders"
    theorem = (
        "Renyi differential privacy of noise fixed beforehand, at whichever order converts best (Mironov 2017; "
        "Canonne, Kamath & Steinke 2020)."
    )
    samplers = RDP.samplers
    coefficients = RDP.coefficients

    def epsilon_of(self, trace: FixedTrace) -> float:
        budget, delta = trace.budget, trace.delta

        def spent(order: float) -> float:
            return RDP.spent(Terms(budget, trace.sampler, order), trace.answered)

        def epsilon(log_x: float) -> float:
            order = 1 + math.exp(log_x)
            return convert.rdp_epsilon(spent(order), order, delta)

        if not trace.answered:
            return 0.0
        RDP.check_covers(trace.sampler, budget.adjacency)
        # Divergence over order grows with the order, so no order beyond the best one for its least value is better. The
        # best order never exceeds 1 / delta, where the conversion of CKS cannot improve.
        slope = spent(1.01) / 1.01
        if math.isinf(slope):
            return math.inf
        most = min(max(1.1 * math.sqrt(-math.log(delta) / slope), 0.1), 1 / delta)
        grid = np.linspace(math.log(_MIN_ORDER), math.log(most), _GRID)
        epsilons = [epsilon(float(log_x)) for log_x in grid]
        best = int(np.argmin(epsilons))
        ends = grid[max(best - 1, 0)], grid[min(best + 1, _GRID - 1)]
        refined = minimize_scalar(epsilon, bounds=ends, method="bounded", options={"xatol": 1e-4})
        return max(min(epsilons[best], float(refined.fun)), 0.0)


ACCOUNTANT = AllOrders()
