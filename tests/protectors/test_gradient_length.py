"""The length of gradients at the start: what is bought of it, and what it changes."""

import dataclasses
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.models import Logistic
from l2p.oracle import Oracle, reader_of
from l2p.oracle.setup import Setup
from l2p.privacy.budget import Budget
from l2p.privacy.cap.filter import Filter
from l2p.privacy.cap.spending import Spending
from l2p.protectors import DecayingByLength, GradientLength, PulledAdam
from l2p.protectors.hand_designed import log_constant, logit_constant
from l2p.protectors.stepwise import gradient_length
from l2p.protectors.stepwise.gradient_length import MOST, SPREAD, TYPICAL
from l2p.protectors.stepwise.purchase import Start
from l2p.protectors.stepwise.schedulers import Observation
from l2p.task.feature_map import FeatureMap
from l2p.task.noise import KeyNoise
from l2p.task.rows import Rows

N, D = 3000, 6
PURCHASE = GradientLength(jnp.array([-3.0]))


def oracle_of(rows: Rows | None = None, epsilon: float = 1.0, spent: float = 0.0, seed: int = 0) -> Oracle:
    """That of a run on rows, by default on one of zeros, with a share of its budget spent."""
    rows = Rows(jnp.zeros((1, D)), jnp.zeros(1), jnp.ones(1)) if rows is None else rows
    budget = Budget(epsilon, 1e-6)
    setup = Setup.create(Logistic(), budget.adjacency, Filter("gdp", budget).price_list(), N)
    noise = KeyNoise(jax.random.key(seed), jax.random.key(seed))
    return Oracle(reader_of(rows), setup, Spending(setup.cap * spent, setup.cap), noise, jnp.array(0))


def bought(scale: float, epsilon: float, spent: float = 0.0, seed: int = 0) -> tuple[float, float]:
    """The log length that is bought for rows of this scale, and the mean that is asked for, without noise."""
    x = scale * np.random.default_rng(seed).normal(size=(N, D))
    rows = Rows(jnp.asarray(x, jnp.float32), jnp.zeros(N), jnp.ones(N))
    oracle = oracle_of(rows, epsilon, spent, seed)
    start = PURCHASE.buy(Start(jnp.zeros(D + 1), FeatureMap.identity(D)), oracle)
    lengths = np.linalg.norm(np.asarray(Logistic().gradients(jnp.zeros(D + 1), rows.x, rows.y)), axis=1)
    return float(start.log_length), float(np.clip(np.log(lengths / TYPICAL), -MOST, MOST).mean())


@pytest.mark.parametrize("scale", [0.3, 3.0, 30.0])
def test_it_is_the_mean_log_length_whatever_the_scale(scale):
    log_length, mean = bought(scale, 5.0)
    assert log_length == pytest.approx(mean, abs=0.05)


def test_drowned_in_noise_it_is_nearly_the_typical_one_and_refused_it_is():
    drowned = [bought(30.0, 0.002, seed=seed)[0] for seed in range(10)]
    assert np.abs(drowned).max() < 0.2
    assert bought(30.0, 5.0, spent=1.0)[0] == 0.0


def test_no_answer_ends_a_run():
    """Noise is fixed in advance, so that a clipping norm that the oracle refuses would stop it by what rows say."""
    scheduler = DecayingByLength(log_constant(1.0), jnp.array([0.0]), jnp.array([40.0]))
    observation = Observation(jnp.ones(2), jnp.float32(0.1), jnp.float32(1.0))
    for log_length in (-3.0, 3.0):
        plan, _ = scheduler((), observation.replace(log_length=jnp.float32(log_length)), oracle_of(), 10)
        assert -41 < np.log2(float(plan.clip_norm)) < 41


def test_an_answer_is_trusted_by_its_noise_beside_the_spread_over_tasks(monkeypatch):
    setup = oracle_of().setup
    noise_std = 0.5 * SPREAD
    monkeypatch.setattr(gradient_length, "noise_for_share", lambda oracle, share: jnp.float32(noise_std * N / MOST))
    oracle = types.SimpleNamespace(setup=setup, ask=lambda query: jnp.array([0.8 * N]))
    start = PURCHASE.buy(Start(jnp.zeros(D + 1), FeatureMap.identity(D)), oracle)
    assert float(start.log_length) == pytest.approx(0.8 / (1 + 0.5**2), rel=1e-5)


def test_clipping_norms_rates_and_pulls_follow_it():
    """All are what they are for a typical length where it was not bought."""
    oracle = oracle_of()
    scheduler = DecayingByLength(log_constant(2.0), jnp.array([0.0]), jnp.array([0.5]))
    adam = PulledAdam(
        *(jnp.array([[np.log(constant), 0.0, 0.0, 0.0, slope]]) for constant, slope in ((0.1, -1.0), (0.4, 2.0))),
        logit_constant(0.9),
        logit_constant(0.99),
    )
    none = Observation(jnp.ones(2), jnp.float32(0.1), jnp.float32(1.0))
    expected = {None: (2.0, 0.1, 0.4), 0.0: (2.0, 0.1, 0.4), 2.0: (2.0 * np.e, 0.1 * np.exp(-2.0), 0.4 * np.exp(4.0))}
    for length, (clip_norm, rate, pull) in expected.items():
        observation = dataclasses.replace(none, log_length=None if length is None else jnp.float32(length))
        plan, _ = scheduler((), observation, oracle, 10)
        assert float(plan.clip_norm) == pytest.approx(clip_norm, rel=1e-5)
        params, start = jnp.full(2, 3.0), jnp.full(2, 1.0)
        _, moments = adam.init(start, oracle.setup)
        update, _ = adam((start, moments), observation, params, jnp.float32(0.0), oracle.setup)
        np.testing.assert_allclose(update, -rate + np.expm1(-rate * pull) * 2.0, rtol=1e-4)
