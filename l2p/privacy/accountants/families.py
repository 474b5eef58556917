"""Bases of several accountants: Renyi divergences at one order, and truncated CDP with its order bound fixed."""

import jax
import jax.numpy as jnp
import numpy as np

from l2p.privacy.accountants.base import RHO, RunAccountant, Terms
from l2p.privacy.budget import Budget
from l2p.privacy.cost import convert
from l2p.privacy.cost.orders import order_for_steps
from l2p.privacy.cost.prices import SAMPLED_UP, UNIT_ERROR, PriceList
from l2p.privacy.cost.renyi import divergence, divergence_up
from l2p.privacy.cost.sampling import Sampler

#: Ends the theorem of an accountant of fixed noise.
ENVELOPE = (
    "of a public lower envelope of the noise, fixed beforehand for the whole run: noisier queries are a "
    "post-processing of it"
)
# Pure mechanisms above epsilon = 50 are not amplified in float32, where e^50 does not overflow yet; in float64, above
# 700.
_MAX_EPSILON, _MAX_EPSILON_64 = 50.0, 700.0


class OneOrder(RunAccountant):
    """Counts Renyi divergences at one order, fixed before the run; the measure of filters and of envelopes' caps."""

    unit = "divergence"
    coefficients = RHO
    at_order = True

    def order(self, budget: Budget, sampler: Sampler, num_steps: int | None) -> float:
        neighbours = sampler.neighbours(budget.adjacency)
        if neighbours is None or num_steps is None:
            return convert.planned_order(budget.epsilon, budget.delta)
        return order_for_steps(budget, sampler.rate(), neighbours, num_steps)

    def limit(self, terms: Terms) -> float:
        return convert.rdp_budget(terms.order, terms.budget.epsilon, terms.budget.delta)

    def epsilon(self, spent: float, terms: Terms) -> float:
        return max(convert.rdp_epsilon(spent, terms.order, terms.budget.delta), 0.0)

    def sampled_price(
        self, terms: PriceList, mechanism: str, multiplier: jax.Array, full_batch: jax.Array
    ) -> jax.Array:
        return sampled_divergence(terms, mechanism, multiplier, full_batch, 1.0)

    def sampled_prices(
        self, terms: Terms, mechanism: str, multiplier: np.ndarray, full_batch: np.ndarray
    ) -> np.ndarray:
        return sampled_divergences(terms, mechanism, multiplier, full_batch, 1.0)


class EnvelopeOnly(OneOrder):
    """Certifies a public lower envelope of the noise, which is fixed before the run, and not what the run spent.

    Inside the run it counts divergences like a Renyi filter, which only divides the schedule into shares (see
    `l2p.privacy.cap.envelope`).
    """

    adaptive = False
    budgeting = "epsilon itself"
    on_adaptive = "only above a public lower envelope"


class TruncatedCDP(RunAccountant):
    """Counts rho up to an order bound omega that the budget fixes (Hong et al., Definition 0.1)."""

    unit = "rho"
    budgeting = "simple conversion"

    def order(self, budget: Budget, sampler: Sampler, num_steps: int | None) -> float:
        del sampler, num_steps
        return convert.ctcdp(budget.epsilon, budget.delta).omega

    def limit(self, terms: Terms) -> float:
        return convert.ctcdp(terms.budget.epsilon, terms.budget.delta).rho

    def epsilon(self, spent: float, terms: Terms) -> float:
        return convert.ctcdp_epsilon(spent, terms.order, terms.budget.delta)


def sampled_divergence(
    terms: PriceList, mechanism: str, multiplier: jax.Array, full_batch: jax.Array, per_order: float | jax.Array
) -> jax.Array:
    """f32[], the divergence of a sampled query at one order, times `per_order`; at most its price on all rows.

    A Gaussian sum's is in `l2p.privacy.cost.renyi`; a pure epsilon shrinks to ln(1 + q (e^epsilon - 1)) (Balle, Barthe
    & Gaboardi 2018).
    """
    rate, order = terms.sampler.rate(), terms.order
    if mechanism == "gaussian":
        assert terms.neighbours is not None
        counted = divergence(multiplier, rate, order, terms.neighbours, jnp, UNIT_ERROR)
        return jnp.minimum(counted * per_order * SAMPLED_UP, full_batch)
    if mechanism == "sinh_normal":
        return full_batch
    epsilon = 1 / multiplier
    amplified = jnp.log1p(rate * jnp.expm1(jnp.minimum(epsilon, _MAX_EPSILON)))
    counted = order * jnp.square(amplified) / 2 * per_order * SAMPLED_UP
    return jnp.where(epsilon < _MAX_EPSILON, jnp.minimum(counted, full_batch), full_batch)


def sampled_divergences(
    terms: Terms, mechanism: str, multiplier: np.ndarray, full_batch: np.ndarray, per_order: float
) -> np.ndarray:
    """`sampled_divergence` in float64, f64[n], rounded up."""
    rate, order = terms.sampler.rate(), terms.order
    if mechanism == "sinh_normal":
        return full_batch
    if mechanism == "gaussian":
        assert terms.neighbours is not None
        counted = divergence_up(multiplier, rate, order, terms.neighbours)
    else:
        amplified = np.log1p(rate * np.expm1(np.minimum(1 / multiplier, _MAX_EPSILON_64)))
        counted = np.where(multiplier > 1 / _MAX_EPSILON_64, order * amplified * amplified / 2 * (1 + 1e-12), np.inf)
    return np.minimum(counted * per_order * (1 + 1e-15), full_batch)
