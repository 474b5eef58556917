import dataclasses

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
from l2p.protectors import LSTMProjector, LSTMScheduler, NormQuery, Stepwise
from l2p.protectors.stepwise.networks import init_lstm
from l2p.run.run import run
from l2p.task.feature_map import FeatureMap
from l2p.task.noise import KeyNoise
from l2p.task.rows import Rows

MODEL, N, D, STEPS = MODELS["logistic"], 400, 4, 6


def rows_of(seed: int) -> Rows:
    random = np.random.default_rng(seed)
    x = random.random((N, D)).astype(np.float32)
    return Rows(jnp.asarray(x), jnp.asarray((x[:, 0] > 0.5).astype(np.float32)), jnp.ones(N))


ROWS = rows_of(0)


def setup(epsilon: float) -> Setup:
    budget = Budget(epsilon, 1e-6)
    return Setup.create(MODEL, budget.adjacency, Filter("zcdp", budget).price_list(), N)


def ask(epsilon: float, key: jax.Array, share: float = 0.1, step: int = 0):
    """The norm at zero params, and what was recorded."""
    here = setup(epsilon)
    spending = Spending(jnp.zeros(()), here.cap)
    oracle = Oracle(reader_of(ROWS), here, spending, KeyNoise(key, key), jnp.array(step))
    query = NormQuery(jnp.array([np.log(share / (1 - share))], jnp.float32), jnp.log(jnp.float32(0.5)))
    return query(jnp.zeros(D + 1), FeatureMap.identity(D), oracle, STEPS), oracle.records[0]


def true_norm() -> float:
    gradients = np.asarray(MODEL.gradients(jnp.zeros(D + 1), ROWS.x, ROWS.y))
    gradients = gradients * np.minimum(1.0, 0.5 / np.linalg.norm(gradients, axis=1, keepdims=True))
    return float(np.linalg.norm(gradients.mean(0)))


@pytest.mark.slow
def test_without_noise_it_is_the_norm_of_the_mean_clipped_gradient():
    norm, _ = ask(1e5, jax.random.key(0))
    assert float(norm) == pytest.approx(true_norm(), rel=1e-3)


@pytest.mark.slow
def test_its_error_is_the_noise_it_paid_for():
    norms, records = jax.jit(jax.vmap(lambda key: ask(3.0, key)))(jax.random.split(jax.random.key(1), 2000))
    std = float(records.noise_multiplier[0]) * 0.5 / N
    assert true_norm() > 5 * std  # far from zero, where it is cut off
    np.testing.assert_allclose(norms.mean(), true_norm(), atol=4 * std / 2000**0.5)
    np.testing.assert_allclose(norms.std(), std, rtol=0.08)


@pytest.mark.slow
def test_it_takes_its_share_of_an_even_part_of_what_is_left():
    for step, charges_left in ((0, 6), (4, 2)):
        _, record = ask(1.0, jax.random.key(0), share=0.25, step=step)
        np.testing.assert_allclose(record.cost, setup(1.0).price_list.budget * 0.25 / charges_left, rtol=1e-3)


@pytest.mark.slow
def test_a_noised_norm_is_never_negative():
    norms, _ = jax.jit(jax.vmap(lambda key: ask(0.01, key)))(jax.random.split(jax.random.key(2), 50))
    assert (norms >= 0).all()
    assert (norms == 0).any()


@pytest.mark.slow
def test_the_scheduler_prices_a_gradient_by_its_norm():
    # A scheduler with a large weight on its first input: a different norm gives different noise, all else equal.
    scheduler = LSTMScheduler(init_lstm(jax.random.key(3), 3, 20, 1), jnp.zeros(()))
    scheduler.network["head"]["kernel"] = jax.random.normal(
        jax.random.key(4), scheduler.network["head"]["kernel"].shape
    )
    plain = Stepwise(scheduler, LSTMProjector.create(jax.random.key(5)), num_steps=2)
    asking = dataclasses.replace(plain, norm_query=NormQuery(jnp.array([-2.0]), jnp.zeros(())))
    shuffled = dataclasses.replace(ROWS, y=1.0 - ROWS.y * (ROWS.x[:, 1] > 0.5))

    @jax.jit
    def first_noise(protector: Stepwise, rows: Rows) -> jax.Array:
        _, _, (_, records), _ = run(protector, jnp.zeros(D + 1), rows, setup(3.0), jax.random.key(6))
        return records[-1].noise_multiplier[0]

    assert float(first_noise(plain, ROWS)) == float(first_noise(plain, shuffled))
    assert float(first_noise(asking, ROWS)) != pytest.approx(float(first_noise(asking, shuffled)), rel=1e-3)
