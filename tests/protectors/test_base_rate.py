"""A start from private counts of the classes, or the mean of the targets."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.models import find_model
from l2p.oracle.setup import Setup
from l2p.privacy import Budget, Filter
from l2p.privacy.events import Adjacency
from l2p.protectors import BaseRate, Stepwise
from l2p.queries import TargetSum
from l2p.run.run import Simulation, start
from l2p.run.simulate import mean_loss
from l2p.task.noise import KeyNoise
from l2p.task.rows import Rows
from meta_train.training.untrained import BUILDERS

SPREAD = jnp.log(jnp.float32(0.35))
BASE_RATE = BaseRate(jnp.array([0.0]), SPREAD)
NAMES = ("logistic", "svm", "hinge", "square", "softmax:3", "mlp")


def constant_rows(num_rows=400):
    """Rows whose features say nothing: four in five of one class, or numbers of mean .8."""
    y = np.repeat([1.0, 1.0, 1.0, 1.0, 0.0], num_rows // 5).astype(np.float32)
    return Rows(np.full((num_rows, 2), 0.5, np.float32), y, np.ones(num_rows, np.float32))


def started(name, epsilon, key=0, base_rate=BASE_RATE):
    """Params f32[p] before the first step."""
    model, budget = find_model(name), Budget(epsilon, 1e-6)
    setup = Setup.create(model, budget.adjacency, Filter("gdp", budget).price_list(), 400)
    plain = BUILDERS["noisygd"](jax.random.key(0))
    protector = Stepwise(plain.scheduler, plain.projector, (base_rate,) if base_rate else ())
    begun, _ = start(protector, model.init(2), constant_rows(), setup, Simulation(jax.random.key(key)))
    return model, np.asarray(begun.params)


@pytest.mark.slow
@pytest.mark.long(but=["logistic"])
@pytest.mark.parametrize("name", NAMES)
def test_without_noise_the_start_is_the_best_that_ignores_features(name):
    model, params = started(name, 1e4)
    rows = constant_rows()
    loss = float(mean_loss(params, model, rows))
    shift = np.linspace(-3.0, 3.0, 61)[:, None] * np.eye(len(params))[-1:]
    around = [float(mean_loss((params + change).astype(np.float32), model, rows)) for change in shift]
    assert loss < float(mean_loss(model.init(2), model, rows)) - 0.01
    assert loss <= min(around) + 0.01
    others = slice(-1 if name != "softmax:3" else -3)
    np.testing.assert_array_equal(params[others], model.init(2)[others])


@pytest.mark.long(cases=["softmax:3", "mlp"])
@pytest.mark.slow(but=["svm"])
@pytest.mark.parametrize("name", NAMES)
def test_where_noise_hides_the_rates_it_stays_near_the_public_start(name):
    """At epsilon .001 the noise on a share is far above 1, so what was answered may not be followed."""
    losses = []
    for key in range(5):
        model, params = started(name, 0.001, key)
        losses.append(float(mean_loss(params, model, constant_rows())))
    assert np.mean(losses) < float(mean_loss(model.init(2), model, constant_rows())) + 0.05


@pytest.mark.slow(but=["1-add_remove", "2-add_remove"])
@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("num_classes", [1, 2])
def test_the_noise_of_a_release_is_that_of_its_price(num_classes, adjacency):
    """Two classes as one number: a row moves y - 1/2 by 1/2, another in its place by 1. As counts: by 1 and sqrt(2)."""
    query = TargetSum(num_classes, jnp.float32(3.0))
    replaced = adjacency is Adjacency.REPLACE_ONE
    scale = 3.0 * (0.5 * (2 if replaced else 1) if num_classes == 1 else 2**0.5 if replaced else 1.0)
    answer_of = jax.jit(lambda key: query.release(query.empty(), KeyNoise(key), adjacency))
    answers = np.asarray(jax.vmap(answer_of)(jax.random.split(jax.random.key(0), 20_000)))
    np.testing.assert_allclose(answers.std(0), scale, rtol=0.03)
    assert float(query.noise_std(adjacency)) == pytest.approx(scale)


def test_rates_are_shares_and_noise_shrinks_them():
    answer = np.array([0.9, 0.3, -0.2], np.float32)
    exact, noised = (
        np.asarray(BASE_RATE._rates(answer, jnp.float32(std), SPREAD, jnp.float32(100.0))[0]) for std in (1e-6, 0.5)
    )
    np.testing.assert_allclose(exact, np.array([0.9, 0.3, 0.005]) / 1.205, rtol=1e-3)
    assert noised.sum() == pytest.approx(1.0)
    assert (noised > 0.15).all()
    assert (noised < 0.6).all()
    assert (np.diff(noised) < 0).all()


def test_a_class_that_does_not_occur_keeps_a_finite_intercept():
    _, params = started("softmax:3", 1e4)
    assert np.isfinite(params).all()


def test_two_shares_from_one_number_are_those_of_both_classes():
    rates, _ = BASE_RATE._rates(jnp.array([0.3]), jnp.float32(1e-6), SPREAD, jnp.float32(100.0))
    np.testing.assert_allclose(rates, [0.2, 0.8], rtol=1e-4)


def test_without_the_query_the_start_is_the_models():
    model, params = started("logistic", 1.0, base_rate=None)
    np.testing.assert_array_equal(params, model.init(2))


@pytest.mark.long
@pytest.mark.parametrize("name", ["logistic", "softmax:3", "square"])
def test_the_error_of_the_start_is_as_large_as_it_is_said_to_be(name):
    model, budget = find_model(name), Budget(0.2, 1e-6)
    setup = Setup.create(model, budget.adjacency, Filter("gdp", budget).price_list(), 4000)
    plain = BUILDERS["noisygd"](jax.random.key(0))
    wide = dataclasses.replace(BASE_RATE, log_width=jnp.float32(0.0))
    protector = Stepwise(plain.scheduler, plain.projector, (wide,))
    rows = jax.tree.map(lambda leaf: np.repeat(leaf, 10, 0), constant_rows())
    if name == "softmax:3":
        rows = dataclasses.replace(rows, y=np.arange(4000.0, dtype=np.float32) % 3)

    @jax.vmap
    def begun(key):
        run, _ = start(protector, model.init(2), rows, setup, Simulation(key))
        return run.params, run.state.observation.start_variance

    params, variance = map(np.asarray, begun(jax.random.split(jax.random.key(0), 2000)))
    np.testing.assert_allclose(params[:, -1].std(), variance[:, -1].mean() ** 0.5, rtol=0.1)
    assert (variance[:, 0] == 0.0).all()


@pytest.mark.long
def test_counts_themselves_tell_how_uneven_classes_are():
    """Noise of .05 on ten shares: those of even classes are levelled further, and one large share is kept."""
    wide = dataclasses.replace(BASE_RATE, log_width=jnp.float32(1.0))
    even, uneven = np.full(10, 0.1), np.array([0.82] + 9 * [0.02])
    noise = 0.05 * np.random.default_rng(0).normal(size=(200, 10))

    def apart(base_rate, shares):
        rates = [
            base_rate._rates(jnp.float32(shares + draw), jnp.float32(0.05), SPREAD, jnp.float32(1e4))[0]
            for draw in noise
        ]
        return float((shares * np.log(shares / np.stack(rates))).sum(1).mean())

    assert apart(wide, even) < 0.6 * apart(BASE_RATE, even)
    assert apart(wide, uneven) < 1.02 * apart(BASE_RATE, uneven)


def test_a_model_without_intercepts_asks_for_no_rates():
    model, params = started("quadratic", 1e4)
    assert model.num_rates == 0
    np.testing.assert_array_equal(params, model.init(2))
