"""The private feature mean, and what happens where noise dominates it."""

import dataclasses

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
from l2p.protectors import Centering
from l2p.task.noise import KeyNoise
from l2p.task.rows import Rows

D, N = 8, 4000
CENTERING = Centering(jnp.array([-2.0]), jnp.log(jnp.float32(0.3)), jnp.float32(1.0), jnp.float32(2.5))
TO_LEVEL = dataclasses.replace(CENTERING, log_level_spread=jnp.log(jnp.float32(0.3)))
BOTH = pytest.mark.parametrize("centering", [CENTERING, TO_LEVEL], ids=["towards zero", "towards their average"])


@pytest.fixture(scope="module")
def rows() -> Rows:
    x = (np.random.default_rng(0).random((N, D)) < np.linspace(0.1, 0.8, D)).astype(np.float32)
    return Rows(jnp.asarray(x), jnp.zeros(N), jnp.ones(N))


def centre(rows: Rows, epsilon: float, key: int = 0, cap: float | None = None, centering: Centering = CENTERING):
    budget = Budget(epsilon, 1e-6)
    num_rows, num_features = rows.x.shape
    setup = Setup.create(Logistic(), budget.adjacency, Filter("gdp", budget).price_list(), num_rows)
    spending = Spending(jnp.float32(0), setup.cap if cap is None else jnp.float32(cap))
    oracle = Oracle(reader_of(rows), setup, spending, KeyNoise(jax.random.key(key)), jnp.zeros((), jnp.int32))
    return centering(num_features, oracle), oracle


@pytest.mark.slow
@BOTH
def test_with_budget_to_spare_rows_are_centred_and_brought_to_length(rows, centering):
    features, _ = centre(rows, 100.0, centering=centering)
    np.testing.assert_allclose(features.center, rows.x.mean(0), atol=0.01)
    assert np.sqrt(float(features.squared_norms(rows.x).mean())) == pytest.approx(2.5, rel=0.02)


@pytest.mark.slow
@BOTH
def test_drowned_in_noise_rows_stay_near_where_they_are(rows, centering):
    for key in range(20):
        features, _ = centre(rows, 1e-4, key, centering=centering)
        assert float(jnp.abs(features.center).max()) < 0.01
        assert float(features.scale) == pytest.approx(2.5 / np.sqrt(D / 6 + 0.01), rel=0.02)


@pytest.mark.slow
def test_where_no_mean_stands_out_of_its_noise_their_average_does():
    x = (np.random.default_rng(0).random((N, 400)) < np.linspace(0.4, 0.6, 400)).astype(np.float32)
    wide = Rows(jnp.asarray(x), jnp.zeros(N), jnp.ones(N))
    for key in range(5):
        features, _ = centre(wide, 0.06, key, centering=TO_LEVEL)
        distances = [float(jnp.linalg.norm(x.mean(0) - centre)) for centre in (features.center, 0.0)]
        assert distances[0] < 0.5 * distances[1]
        # Half of all features are ones, so that a row's squared distance from 1/2 is known exactly.
        assert np.sqrt(float(features.squared_norms(wide.x).mean())) == pytest.approx(2.5, rel=0.15)
        towards_zero, _ = centre(wide, 0.06, key)
        assert float(jnp.linalg.norm(x.mean(0) - towards_zero.center)) > 0.8 * distances[1]


@pytest.mark.slow
def test_it_costs_the_share_it_was_given(rows):
    _, oracle = centre(rows, 1.0)
    assert float(oracle.spending.spent / oracle.spending.budget) == pytest.approx(float(jax.nn.sigmoid(-2.0)), rel=1e-4)


def test_refused_it_changes_nothing(rows):
    features, oracle = centre(rows, 1.0, cap=0.0)
    assert bool(oracle.refused)
    assert float(oracle.spending.spent) == 0.0
    np.testing.assert_array_equal(features.apply(rows.x), rows.x)
