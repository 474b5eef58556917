"""The L2P paper's own price of a fixed-size batch, 13 q^2 rho, kept for reproduction."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base.errors import InputError
from l2p.privacy.accountants.base import RHO, Terms
from l2p.privacy.accountants.families import TruncatedCDP
from l2p.privacy.cost.prices import UP, PriceList
from l2p.privacy.cost.sampling import FixedSize, Sampler
from l2p.privacy.events import Adjacency

#: Bun et al. 2018, Theorem 11: price of a fixed-size sample, and the rate and rho up to which it is proved.
FACTOR, MAX_RATE, MAX_RHO = 13.0, 0.1, 0.1


class ThirteenRule(TruncatedCDP):
    """Adds up 13 q^2 rho; a query that misses a precondition of the theorem costs infinity."""

    name = "paper_13"
    row = None  # tables show `tcdp`, the rule as papers apply it
    theorem = (
        "Truncated CDP with its order bound fixed beforehand, each query priced at 13 q^2 rho by the "
        "subsampling theorem for fixed-size batches, whose preconditions every query met (Bun, Dwork, Rothblum & "
        "Steinke 2018, Theorem 11), composed by the Renyi filter (Feldman & Zrnic 2021) at the order bound."
    )
    samplers = (FixedSize,)
    coefficients = RHO
    counts = "13 q^2 rho"
    on_adaptive = "yes, where the preconditions hold"

    def check_covers(self, sampler: Sampler, adjacency: Adjacency) -> None:
        super().check_covers(sampler, adjacency)
        if sampler.rate() > MAX_RATE:
            raise InputError(
                f"accountant {self.name!r} is proved for sampling rates up to {MAX_RATE}, but this run's is "
                f"{sampler.rate():.3g}; choose smaller batches, or 'ctcdp', the same measure priced tightly."
            )

    def sampled_price(
        self, terms: PriceList, mechanism: str, multiplier: jax.Array, full_batch: jax.Array
    ) -> jax.Array:
        del mechanism, multiplier
        rate, rho = terms.sampler.rate(), full_batch
        fits = (rho <= MAX_RHO) & (3 * rho * (2 - jnp.log2(rho)) * UP <= -math.log(rate))
        fits &= 4 * rho * terms.order * UP <= -math.log(rate)
        return jnp.where(fits, FACTOR * rate**2 * rho * UP, jnp.inf)

    def sampled_prices(
        self, terms: Terms, mechanism: str, multiplier: np.ndarray, full_batch: np.ndarray
    ) -> np.ndarray:
        del mechanism, multiplier
        rate = terms.sampler.rate()
        amplifies = -math.log(rate) * (1 - 1e-12)
        fits = (full_batch <= MAX_RHO) & (3 * full_batch * (2 - np.log2(full_batch)) <= amplifies)
        fits &= 4 * full_batch * terms.order <= amplifies
        return np.where(fits, FACTOR * rate**2 * full_batch * (1 + 1e-12), np.inf)


ACCOUNTANT = ThirteenRule()
