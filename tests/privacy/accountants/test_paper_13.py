"""The 13 q^2 rho rule where it is proved."""

import itertools
import math

import jax.numpy as jnp
import numpy as np
import pytest

from l2p.base.errors import InputError
from l2p.privacy import Adjacency, Budget, Event, Filter, FixedSize

FIXED, REPLACE_ONE = FixedSize(1000, 30400), Adjacency.REPLACE_ONE


def sampled_price(filter, mechanism, noise):
    return float(filter.prices(mechanism, np.array([noise]), True)[0])


def test_the_paper_s_rule_costs_13_q_squared_rho_where_its_preconditions_hold():
    """Bun et al. 2018, Theorem 11. While q and rho are at most 0.1, its condition 3 rho (2 + log2(1 / rho)) holds."""
    assert 3 * 0.1 * (2 + math.log2(10)) < math.log(10)
    with pytest.raises(InputError, match=r"sampling rates up to 0.1.*ctcdp"):
        Filter("paper_13", Budget(0.1, 1e-8, REPLACE_ONE), FixedSize(11, 100))
    Filter("paper_13", Budget(0.1, 1e-8, REPLACE_ONE), FixedSize(10, 100))
    # At a small epsilon the order bound decides, at a large one rho.
    for epsilon, sampler in itertools.product((0.05, 0.4, 1.6, 100.0), (FIXED, FixedSize(10, 100))):
        filter = Filter("paper_13", Budget(epsilon, 1e-8, REPLACE_ONE), sampler)
        accountant, rate = filter.price_list(), sampler.rate()
        most = min(0.1, -math.log(rate) / (4 * filter.order))
        assert (most == 0.1) == (epsilon == 100.0)
        least = math.sqrt(0.5 / most)
        for noise in (least * (1 - 1e-4), least / 3, 0.1, math.nan, 0.0, -1.0):
            assert sampled_price(filter, "gaussian", noise) == math.inf
            assert accountant.price(Event("gaussian", jnp.float32(noise)), sampled=True) == math.inf
        for noise in (least * (1 + 1e-4), 3 * least, 1e4):
            true = sampled_price(filter, "gaussian", float(np.float32(noise)))
            assert true == pytest.approx(13 * rate**2 / (2 * noise**2), rel=1e-6)
            cost = float(accountant.price(Event("gaussian", jnp.float32(noise)), sampled=True))
            assert true <= cost <= true * (1 + 1e-5)
        # It is far above the tight price in the same unit.
        tight = Filter("ctcdp", filter.budget, sampler)
        assert tight.order == filter.order
        assert sampled_price(tight, "gaussian", 2 * least) < sampled_price(filter, "gaussian", 2 * least)
