"""Rows at a private length: the same run for any spread of the features, and no harm where noise dominates."""

import dataclasses
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.models import MODELS
from l2p.oracle import Oracle, reader_of
from l2p.oracle.setup import Setup
from l2p.privacy.budget import Budget
from l2p.privacy.cap.filter import Filter
from l2p.privacy.cap.spending import Spending
from l2p.privacy.events import Adjacency
from l2p.protectors import RowLength
from l2p.protectors.learned.tunable import tunable
from l2p.protectors.stepwise import row_length
from l2p.task.feature_map import FeatureMap
from l2p.task.noise import KeyNoise
from l2p.task.rows import Rows

N, D, TARGET = 3000, 6, 2.5
CONSTANT = RowLength(jnp.array([-5.0]), jnp.float32(TARGET))


def stretched(spread: float, epsilon: float, spent: float = 0.0, seed: int = 0) -> tuple[FeatureMap, FeatureMap, float]:
    """The map of centred rows with this feature spread, before and after the query, and the mean row length."""
    x = 0.5 + spread * np.random.default_rng(seed).uniform(-1.0, 1.0, (N, D))
    rows = Rows(jnp.asarray(x, jnp.float32), jnp.zeros(N), jnp.ones(N))
    # As `Centering` would: a feature of mean 1/2 may have a variance of 1/4.
    before = FeatureMap(rows.x.mean(0), jnp.float32(TARGET / (D / 4.0) ** 0.5))
    budget = Budget(epsilon, 1e-6)
    setup = Setup.create(MODELS["logistic"], budget.adjacency, Filter("gdp", budget).price_list(), N)
    noise = KeyNoise(jax.random.key(seed), jax.random.key(seed))
    after = CONSTANT(
        before, Oracle(reader_of(rows), setup, Spending(setup.cap * spent, setup.cap), noise, jnp.array(0))
    )
    return before, after, float(jnp.sqrt(after.squared_norms(rows.x)).mean())


@pytest.mark.slow
@pytest.mark.parametrize("spread", [0.05, 0.1, 0.4])
def test_rows_come_out_at_the_target_whatever_their_spread(spread):
    *_, length = stretched(spread, 5.0)
    assert length == pytest.approx(TARGET, rel=0.1)


def test_drowned_in_noise_it_changes_little_and_refused_nothing():
    scales = [np.array([float(part.scale) for part in stretched(0.03, 0.002, seed=seed)[:2]]) for seed in range(20)]
    factors = np.array([after / before for before, after in scales])
    assert np.median(factors) < 4.0  # where 20 would be right
    assert (factors >= 1.0).all()
    before, after, _ = stretched(0.03, 5.0, spent=1.0)
    assert float(after.scale) == float(before.scale)


def test_a_length_is_trusted_by_its_signal_over_twice_the_noise(monkeypatch):
    before = FeatureMap(jnp.zeros(D), jnp.float32(1.0))
    setup = Setup.create(MODELS["logistic"], Adjacency.ZERO_OUT, Filter("gdp", Budget(1.0, 1e-6)).price_list(), N)
    noise_std, length = 0.5 * TARGET, 0.8
    monkeypatch.setattr(row_length, "noise_for_share", lambda oracle, share: jnp.float32(0.5 * N))
    oracle = types.SimpleNamespace(setup=setup, ask=lambda query: jnp.array([length * N]))
    trust = length**2 / (length**2 + 2 * noise_std**2)
    assert float(CONSTANT(before, oracle).scale) == pytest.approx((TARGET / length) ** trust, rel=1e-5)


def test_its_target_is_not_tuned():
    assert dataclasses.asdict(tunable(CONSTANT)) == {"logit_share": True, "target_norm": False}
