"""One query that is private as a whole, with epsilon alone or with delta: it takes the whole budget, and nothing is
composed."""

import math

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import log_expit, ndtri_exp

from l2p.base import struct
from l2p.base.errors import InputError
from l2p.privacy.accountants.base import FixedTrace, RunAccountant, Terms
from l2p.privacy.budget import Budget
from l2p.privacy.cost import convert
from l2p.privacy.cost.prices import PriceList, coefficient_of, float32_down, float32_up
from l2p.privacy.cost.sampling import FullBatch
from l2p.privacy.events import PURE, Event

# The query's share of the budget: nearly all, so that despite rounding there is room for one, but not for two.
_WHOLE = 1 - 2.0**-19
# Each is (1 / m, delta)-private: `objective` at the delta that it was calibrated for, the others at delta = 0.
_COEFFICIENTS = dict.fromkeys(("objective", *PURE), 1.0)


@struct.dataclass
class WholePriceList(PriceList):
    """Prices of one query that is private as a whole, which is all or nothing.

    Attributes:
      least: f32[], 1 / epsilon of the budget, rounded up: the least noise multiplier that is granted.
      log_delta: f32[], logarithm of the budget's delta, rounded down: the largest delta that a query may be calibrated
        for; -inf where only pure queries are answered.
      signal: f32[], mu of one Gaussian query with this budget.
    """

    least: jax.Array = struct.field(kw_only=True)
    log_delta: jax.Array = struct.field(kw_only=True)
    signal: jax.Array = struct.field(kw_only=True)

    def price(
        self, event: Event, sampled: bool = False, step: jax.Array | None = None, slot: int | None = None
    ) -> jax.Array:
        del sampled, step, slot
        multiplier = jnp.asarray(event.noise_multiplier, jnp.float32)
        if event.mechanism == "none":
            return jnp.full_like(multiplier, jnp.inf)
        coefficient_of(self.name, self.coefficients, event.mechanism)  # refuses all others
        covered = (multiplier >= self.least) & (event.log_delta <= self.log_delta)
        return jnp.where(covered, self.budget * (1 - (1 - _WHOLE) / 2), jnp.inf)

    def noise_multiplier(
        self, cost: jax.typing.ArrayLike, mechanism: str = "gaussian", sampled: bool = False
    ) -> jax.Array:
        """f32[], 1 / epsilon of the budget for any cost, as the query takes it all."""
        del sampled
        coefficient_of(self.name, self.coefficients, mechanism)
        return jnp.broadcast_to(self.least, jnp.shape(cost))

    @property
    def mu(self) -> jax.Array:
        return self.signal


class Basic(RunAccountant):
    """Counts epsilon of a single query, at the budget's delta."""

    name = "basic"
    row = None
    unit = "epsilon"
    theorem = (
        "A single query that is private as a whole and takes the whole budget, so that nothing is composed: pure where "
        "its noise is gamma, laplace, exponential or gumbel (McSherry & Talwar 2007; Wu et al. 2017), and "
        "(epsilon, delta) for objective perturbation (Kifer, Smith & Thakurta 2012; for generalized linear models, "
        "Redberg, Koskela & Wang 2023) and for solves whose proof has a delta of its own."
    )
    samplers = (FullBatch,)
    coefficients = _COEFFICIENTS
    counts = "epsilon, of one query that takes all of it"
    budgeting = "epsilon itself, at delta"
    on_adaptive = "nothing is left to depend"
    default = True
    composes = False
    pure = True

    def limit(self, terms: Terms) -> float:
        return terms.budget.epsilon

    def epsilon(self, spent: float, terms: Terms) -> float:
        return self.limit(terms) if spent <= self.limit(terms) else math.inf

    def mu(self, budget: Budget) -> float:
        """Tells such a run's protector how large its budget is; it asks no Gaussian query."""
        return _signal(budget.epsilon, budget.delta)

    def price_list(self, terms: Terms, limit: float) -> WholePriceList:
        base = super().price_list(terms, limit)
        epsilon, delta = terms.budget.epsilon, terms.budget.delta
        log_delta = math.log(delta) if delta else -math.inf
        return WholePriceList(
            base.name,
            base.coefficients,
            base.budget,
            base.order,
            base.sampler,
            base.neighbours,
            base.sampled_price,
            least=jnp.asarray(float32_up(math.nextafter(1 / epsilon, math.inf))),
            log_delta=jnp.asarray(np.nextafter(np.float32(log_delta), np.float32(-np.inf))),
            signal=jnp.asarray(float32_down(_signal(epsilon, delta))),
        )

    def prices(
        self, terms: Terms, mechanism: str, noise_multiplier: np.ndarray, sampled: bool, tail: float = math.inf
    ) -> np.ndarray:
        del sampled, tail
        multiplier = np.asarray(noise_multiplier, np.float64)
        if mechanism == "none":
            return np.full(multiplier.shape, np.inf)
        coefficient_of(self.name, self.coefficients, mechanism)  # refuses all others
        # As in `WholePriceList`, whose multiplier exceeds 1 / epsilon by at least a rounding.
        limit = self.limit(terms)
        return np.where(multiplier * limit >= 1.0, _WHOLE * limit, np.inf)

    def epsilon_of(self, trace: FixedTrace) -> float:
        raise InputError(
            "a query that is private as a whole may hold only at the delta that it was calibrated for, which a trace "
            "does not tell; its epsilon is that of the budget on its card."
        )


def _signal(epsilon: float, delta: float) -> float:
    """mu of a Gaussian query with this budget; for delta = 0 the least mu of which epsilon-privacy is a case.

    The trade-off curve of epsilon-privacy meets the diagonal at 1 / (1 + e^epsilon), and that of mu at Phi(-mu / 2)
    (Dong, Roth & Su 2022).
    """
    if delta:
        return convert.gdp_mu(epsilon, delta)
    return -2.0 * float(ndtri_exp(log_expit(-epsilon)))


ACCOUNTANT = Basic()
