"""The Renyi order at which a sampled run is counted; chosen from its plan, before it starts."""

import functools
import math

import numpy as np
from scipy.optimize import minimize_scalar

from l2p.privacy.budget import Budget
from l2p.privacy.cost import convert
from l2p.privacy.cost.renyi import Neighbours, divergence_up


@functools.lru_cache(maxsize=256)
def order_for_steps(budget: Budget, rate: float, neighbours: Neighbours, num_steps: int) -> float:
    """The order at which `num_steps` equal sampled Gaussian queries need the least noise for `budget`.

    The best order for full batches can lie beyond the one where amplification ends; then a smaller one is much better,
    especially for few steps at a large epsilon.

    >>> round(order_for_steps(Budget(0.8, 1e-8), 1000 / 30400, Neighbours.ONE_SIDED, 20), 1)
    22.3
    """

    def log_noise(log_x: float) -> float:
        order = 1 + math.exp(log_x)
        cap = convert.rdp_budget(order, budget.epsilon, budget.delta)
        if cap <= 0:
            return 1e3 - log_x  # too small an order certifies nothing at this delta
        low, high = math.log(1e-3), math.log(1e9)
        for _ in range(40):
            middle = (low + high) / 2
            dear = num_steps * divergence_up(np.array([math.exp(middle)]), rate, order, neighbours)[0] > cap
            low, high = (middle, high) if dear else (low, middle)
        return high

    planned = math.log(convert.planned_order(budget.epsilon, budget.delta) - 1)
    best = minimize_scalar(log_noise, bounds=(planned - 4, planned + 1), method="bounded", options={"xatol": 1e-3})
    # Rounded to float32, so that a run and its certificate count at exactly the same order.
    return float(np.float32(1 + math.exp(best.x)))
