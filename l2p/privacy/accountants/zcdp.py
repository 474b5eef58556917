"""Zero-concentrated differential privacy: pure and Gaussian mechanisms on all rows, at every Renyi order at once."""

import math

from l2p.privacy.accountants.base import RHO, FixedTrace, RunAccountant, Terms
from l2p.privacy.budget import Budget
from l2p.privacy.cost import convert
from l2p.privacy.cost.sampling import FullBatch, PermutationEpochs


class ZeroConcentratedDP(RunAccountant):
    """Adds up rho, and converts it at the best order.

    >>> from l2p.privacy.events import Adjacency, Answered
    >>> trace = [Answered(1, "gaussian", 500.0)] * 50
    >>> round(ACCOUNTANT.epsilon_of(FixedTrace(trace, FullBatch(), Adjacency.ZERO_OUT, 1e-8)), 4)
    0.0681
    """

    name = row = "zcdp"
    unit = "rho"
    theorem = (
        "zCDP filter: while the sum of rho_t stays within rho the whole run is rho-zCDP, also when each rho_t "
        "depends on earlier answers (Whitehouse, Ramdas, Rogers & Wu 2023)."
    )
    samplers = (FullBatch, PermutationEpochs)
    coefficients = RHO
    counts = "rho"
    budgeting = "Canonne, Kamath & Steinke 2020, Proposition 12, at its best order"
    on_adaptive = "yes (Whitehouse, Ramdas, Rogers & Wu 2023)"
    binds = False
    per_rho = 1.0

    def limit(self, terms: Terms) -> float:
        return convert.zcdp_rho(terms.budget.epsilon, terms.budget.delta)

    def epsilon(self, spent: float, terms: Terms) -> float:
        return convert.zcdp_epsilon(spent, terms.budget.delta)

    def mu(self, budget: Budget) -> float:
        return math.sqrt(2 * convert.zcdp_rho(budget.epsilon, budget.delta))

    def epsilon_of_rho(self, rho: float, delta: float) -> float:
        return convert.zcdp_epsilon(rho, delta)

    def epsilon_of(self, trace: FixedTrace) -> float:
        """Sum of rho, converted at the best order (Bun & Steinke 2016; CKS 2020)."""
        self.check_covers(trace.sampler, trace.budget.adjacency)
        spent = self.spent(self.terms(trace.budget, trace.sampler), trace.answered)
        return convert.zcdp_epsilon(spent, trace.delta)


ACCOUNTANT = ZeroConcentratedDP()
