"""Renyi differential privacy at one order fixed beforehand: for all samplers, and all mechanisms but `objective`."""

import math

from l2p.privacy.accountants.base import RHO, SINH_RHO
from l2p.privacy.accountants.families import OneOrder
from l2p.privacy.budget import Budget
from l2p.privacy.cost import convert
from l2p.privacy.cost.sampling import FixedSize, FullBatch, PermutationEpochs, Poisson


class RenyiDP(OneOrder):
    """Adds up divergences at one order.

    A finished trace certifies the least target that the filter at the target's own order would have held.

    >>> from l2p.privacy.accountants.base import FixedTrace
    >>> from l2p.privacy.events import Adjacency, Answered
    >>> trace = [Answered(1, "gaussian", 20.0)] * 50
    >>> round(ACCOUNTANT.epsilon_of(FixedTrace(trace, Poisson(1000 / 30400), Adjacency.ZERO_OUT, 1e-8)), 4)
    0.0566
    """

    name = "rdp"
    row = "rdp_planned"
    theorem = (
        "Renyi filter at one order fixed beforehand: while the divergences sum to within the budget, so does the "
        "whole run's, also when each depends on earlier answers (Feldman & Zrnic 2021; Lecuyer 2021)."
    )
    samplers = (FullBatch, Poisson, FixedSize, PermutationEpochs)
    coefficients = RHO | SINH_RHO
    counts = "divergence at one order"
    budgeting = "Canonne, Kamath & Steinke 2020, Proposition 12"
    on_adaptive = "yes (Feldman & Zrnic 2021; Lecuyer 2021)"
    default = True
    binds = False

    def unit_at(self, order: float) -> str:
        return f"{self.unit} at order {order:.4g}"

    def mu(self, budget: Budget) -> float:
        return math.sqrt(2 * convert.zcdp_rho(budget.epsilon, budget.delta))


ACCOUNTANT = RenyiDP()
