"""The L2P paper's compact truncated CDP, priced tightly: Renyi divergence over the order, at the order bound."""

import math

import jax
import numpy as np

from l2p.privacy.accountants.base import RHO, SINH_RHO, Terms
from l2p.privacy.accountants.families import TruncatedCDP, sampled_divergence, sampled_divergences
from l2p.privacy.budget import Budget
from l2p.privacy.cost import convert
from l2p.privacy.cost.prices import PriceList
from l2p.privacy.cost.sampling import FixedSize, FullBatch, PermutationEpochs, Poisson


class CompactTruncatedCDP(TruncatedCDP):
    """Adds up rho, each query's divergence over the order at the order bound.

    >>> from l2p.privacy.accountants.base import FixedTrace
    >>> from l2p.privacy.events import Adjacency, Answered
    >>> trace = [Answered(1, "gaussian", 20.0)] * 50
    >>> round(ACCOUNTANT.epsilon_of(FixedTrace(trace, Poisson(1000 / 30400), Adjacency.ZERO_OUT, 1e-8)), 4)
    0.0722
    """

    name = row = "ctcdp"
    theorem = (
        "Truncated CDP with its order bound fixed beforehand composes by adding rho (Bun, Dwork, Rothblum & "
        "Steinke 2018), also adaptively, by the Renyi filter (Feldman & Zrnic 2021) at the order bound."
    )
    samplers = (FullBatch, Poisson, FixedSize, PermutationEpochs)
    coefficients = RHO | SINH_RHO
    counts = "divergence over order at the order bound omega"
    on_adaptive = "yes, as `rdp` at omega"

    def mu(self, budget: Budget) -> float:
        return math.sqrt(2 * convert.ctcdp(budget.epsilon, budget.delta).rho)

    def sampled_price(
        self, terms: PriceList, mechanism: str, multiplier: jax.Array, full_batch: jax.Array
    ) -> jax.Array:
        return sampled_divergence(terms, mechanism, multiplier, full_batch, 1.0 / terms.order)

    def sampled_prices(
        self, terms: Terms, mechanism: str, multiplier: np.ndarray, full_batch: np.ndarray
    ) -> np.ndarray:
        return sampled_divergences(terms, mechanism, multiplier, full_batch, 1.0 / terms.order)


ACCOUNTANT = CompactTruncatedCDP()
