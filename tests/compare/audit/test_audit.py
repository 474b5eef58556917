"""Diagnostics on runs: per-instance losses, membership inference, performance boost and subspaces."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from l2p.compare.audit.membership import auc_ceiling, threshold_attack
from l2p.compare.audit.mixed import performance_boost, subspace_errors
from l2p.compare.audit.per_instance import instance_losses
from l2p.models import MODELS, Logistic, Softmax
from l2p.oracle.setup import Setup
from l2p.privacy import Adjacency, Budget, Filter
from l2p.privacy.cost.convert import gdp_epsilon, gdp_mu
from l2p.protectors import HAND_DESIGNED, Centering
from l2p.protectors.stepwise.public_rows import PublicGradients
from l2p.run.run import run
from l2p.task.rows import Rows

BUDGET, KEY = Budget(2.0, 1e-5), jax.random.key(0)
MODEL, N, D = Logistic(), 40, 60


def table(seed, size=N):
    """Labels that have nothing to do with the features: what fits them is what was memorised."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(size, D)) / math.sqrt(D)
    return Rows(jnp.asarray(x, jnp.float32), jnp.asarray(random.integers(0, 2, size), jnp.float32), jnp.ones(size))


ROWS = table(1).replace(mask=jnp.ones(N).at[3].set(0.0))
PUBLIC = table(2, 8).replace(y=jnp.arange(8.0) % 2)


@functools.cache
def losses(name, adjacency=Adjacency.ZERO_OUT):
    budget = Budget(2.0, 1e-5, adjacency)
    here = Setup.create(MODEL, adjacency, Filter("gdp", budget).price_list(), N)
    protector = HAND_DESIGNED[name](budget, MODELS["logistic"], N).replace(num_steps=4)
    return instance_losses(protector, jnp.zeros(D + 1), ROWS, here, KEY, PUBLIC if protector.needs_public else None)


@pytest.mark.long(cases=["adamix"])
@pytest.mark.slow
@pytest.mark.parametrize("name", ["fully_private", "adamix"])
def test_no_row_loses_more_than_the_run_and_a_null_row_nothing(name):
    audit = losses(name)
    assert audit.total == pytest.approx(gdp_mu(2.0, 1e-5), rel=1e-3)
    assert audit.mu[3] == 0.0
    assert np.all((np.delete(audit.mu, 3) > 0) & (np.delete(audit.mu, 3) <= audit.total * (1 + 1e-6)))
    epsilons = audit.epsilon(1e-5)
    assert epsilons[3] == 0.0
    assert epsilons.max() <= 2.0 * (1 + 1e-3)
    assert epsilons[5] == pytest.approx(gdp_epsilon(audit.mu[5], 1e-5))
    counts, edges = audit.histogram(4)
    assert counts.sum() == N
    assert edges[-1] == 1.0


@pytest.mark.slow
def test_first_step_losses_are_norms_over_clipped_noise():
    """At zero params a logistic gradient is half the length of the row with its intercept column."""
    here = Setup.create(MODEL, Adjacency.ZERO_OUT, Filter("gdp", BUDGET).price_list(), N)
    protector = HAND_DESIGNED["fully_private"](BUDGET, MODELS["logistic"], N).replace(num_steps=1)
    audit = instance_losses(protector, jnp.zeros(D + 1), ROWS, here, KEY)
    norms = 0.5 * np.sqrt(np.square(np.asarray(ROWS.x, float)).sum(1) + 0.25) * np.asarray(ROWS.mask)
    np.testing.assert_allclose(audit.mu, np.minimum(norms, 1.0) * audit.total, rtol=1e-4)


@pytest.mark.slow
def test_a_replaced_row_counts_against_twice_the_bound():
    """The noise is twice as wide for the same guarantee, so a row's own removal shows half as much."""
    zero_out, replaced = losses("fully_private"), losses("fully_private", Adjacency.REPLACE_ONE)
    assert replaced.mu.max() < 0.7 * zero_out.mu.max()


def test_losses_of_rows_are_not_printed():
    assert repr(losses("adamix")) == "InstanceLosses(private, not shown)"
    assert "private" in str(losses("adamix"))


@pytest.mark.slow
def test_a_run_with_other_queries_is_refused():
    protector = HAND_DESIGNED["noisygd"](BUDGET)
    bought = Centering(jnp.zeros(1), jnp.float32(-1.0), jnp.float32(1.0), jnp.float32(1.0))
    here = Setup.create(MODEL, Adjacency.ZERO_OUT, Filter("gdp", BUDGET).price_list(), N)
    with pytest.raises(ValueError, match="a query before the first step"):
        instance_losses(protector.with_purchases(bought), jnp.zeros(D + 1), ROWS, here, KEY)


def test_the_auc_is_the_share_of_pairs_in_the_right_order():
    random = np.random.default_rng(0)
    members, others = random.normal(size=30).round(1), random.normal(0.5, 1, size=20).round(1)
    pairs = (members[:, None] < others).mean() + 0.5 * (members[:, None] == others).mean()
    assert threshold_attack(members, others).auc == pytest.approx(pairs)


def test_the_standard_error_of_an_auc_is_that_of_repeated_draws():
    random = np.random.default_rng(1)
    attacks = [threshold_attack(random.normal(size=60), random.normal(1.0, 1, size=50)) for _ in range(400)]
    assert np.std([a.auc for a in attacks]) == pytest.approx(np.mean([a.standard_error for a in attacks]), rel=0.15)


def test_the_ceiling_is_the_auc_of_the_best_test_of_two_normals():
    mu = 1.3
    random = np.random.default_rng(2)
    attack = threshold_attack(random.normal(0, 1, 20_000), random.normal(mu, 1, 20_000))
    assert attack.auc == pytest.approx(auc_ceiling(mu), abs=3 * attack.standard_error)
    assert auc_ceiling(0.0) == 0.5
    assert auc_ceiling(mu) == pytest.approx(stats.norm.cdf(mu / 2**0.5))


@functools.cache
def attacked(name, private):
    """The attack on 20 runs of 40 rows each against as many other rows; without privacy noise is as good as none."""
    here = Setup.create(MODEL, Adjacency.ZERO_OUT, Filter("gdp", BUDGET).price_list(), N)
    if not private:
        here = here.replace(price_list=here.price_list.replace(budget=jnp.float32(1e12)), cap=jnp.float32(1e12))
    protector = HAND_DESIGNED[name](BUDGET, MODELS["logistic"], N).replace(num_steps=60)
    go = jax.jit(lambda rows, key: run(protector, jnp.zeros(D + 1), rows, here, key, PUBLIC)[0])
    members, others = [], []
    for seed in range(20):
        rows, rest = table(100 + seed), table(500 + seed)
        params = go(rows, jax.random.key(seed))
        for where, which in ((members, rows), (others, rest)):
            where.append(np.asarray(MODEL.losses(params[None], which.x, which.y)[0]))
    return threshold_attack(np.concatenate(members), np.concatenate(others))


@pytest.mark.long(cases=["adamix"])
@pytest.mark.slow
@pytest.mark.parametrize("name", ["adamix", "ngd"])
def test_an_attack_stays_below_its_ceiling(name):
    attack = attacked(name, True)
    assert attack.auc <= auc_ceiling(gdp_mu(2.0, 1e-5)) + 2 * attack.standard_error


@pytest.mark.slow
def test_the_same_attack_without_noise_is_above_that_ceiling():
    attack = attacked("ngd", False)
    assert attack.auc > auc_ceiling(gdp_mu(2.0, 1e-5)) + 2 * attack.standard_error


def test_the_boost_is_one_for_no_gain_and_infinite_for_the_paragon():
    assert performance_boost(0.4, 0.4, 0.2) == pytest.approx(1.0)
    assert performance_boost(0.4, 0.3, 0.2) == pytest.approx(2.0)
    assert performance_boost(0.4, 0.2, 0.2) == math.inf


@pytest.mark.long
def test_public_directions_hold_more_of_a_private_gradient_than_random_ones():
    random = np.random.default_rng(0)
    model, means = Softmax(3), np.eye(3, 20)

    def rows(size):
        y = np.arange(size) % 3
        x = means[y] + 0.05 * random.normal(size=(size, 20))
        return Rows(jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32), jnp.ones(size))

    public, private = (PublicGradients.at(model, jnp.zeros(63), rows(size)) for size in (9, 90))
    of_public, of_random = subspace_errors(public, private, 2, KEY)
    assert of_public < 0.1 < 0.7 < of_random <= 1.0
    assert subspace_errors(private, private, 2, KEY)[0] < 1e-6  # two directions are all that there are
