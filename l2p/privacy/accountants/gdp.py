"""Gaussian differential privacy: exact for Gaussian queries on all rows, whatever their noise depends on."""

import math

from l2p.privacy.accountants.base import FixedTrace, RunAccountant, Terms
from l2p.privacy.budget import Budget
from l2p.privacy.cost import convert
from l2p.privacy.cost.sampling import FullBatch, PermutationEpochs

_COEFFICIENTS = {"gaussian": 1.0}


class GaussianDP(RunAccountant):
    """Adds up mu^2 = 1 / m^2 of Gaussian queries.

    >>> from l2p.privacy.events import Adjacency, Answered
    >>> trace = [Answered(1, "gaussian", 500.0)] * 50
    >>> round(ACCOUNTANT.epsilon_of(FixedTrace(trace, FullBatch(), Adjacency.ZERO_OUT, 1e-8)), 4)
    0.0637
    """

    name = row = "gdp"
    unit = "mu^2"
    theorem = (
        "Gaussian-DP filter: while the sum of mu_t^2 stays within mu^2 the whole run is mu-Gaussian-DP, also when "
        "each mu_t depends on earlier answers (Smith & Thakurta 2022; Koskela, Tobaben & Honkela 2023)."
    )
    samplers = (FullBatch, PermutationEpochs)
    coefficients = _COEFFICIENTS
    counts = "mu^2 = 1/m^2"
    budgeting = "root of the exact Gaussian curve (Balle & Wang 2018)"
    on_adaptive = "yes (Smith & Thakurta 2022; Koskela, Tobaben & Honkela 2023)"
    default = True
    binds = False
    per_rho = 2.0

    def limit(self, terms: Terms) -> float:
        return math.nextafter(convert.gdp_mu(terms.budget.epsilon, terms.budget.delta) ** 2, 0.0)

    def epsilon(self, spent: float, terms: Terms) -> float:
        return convert.gdp_epsilon(math.nextafter(math.sqrt(spent), math.inf), terms.budget.delta)

    def mu(self, budget: Budget) -> float:
        return convert.gdp_mu(budget.epsilon, budget.delta)

    def gaussian_mu(self, spent: float) -> float:
        return math.nextafter(math.sqrt(spent), math.inf)

    def epsilon_of_rho(self, rho: float, delta: float) -> float:
        return convert.gdp_epsilon(math.sqrt(2 * rho), delta)

    def epsilon_of(self, trace: FixedTrace) -> float:
        """The Gaussian curve, exact for queries on all rows (Dong, Roth & Su 2022); a bound for epochs."""
        self.check_covers(trace.sampler, trace.budget.adjacency)
        terms = self.terms(trace.budget, trace.sampler)
        spent = self.spent(terms, trace.answered)
        return self.epsilon(spent, terms) if spent else 0.0


ACCOUNTANT = GaussianDP()
