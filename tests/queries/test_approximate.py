"""Approximate minima perturbation: budgets add up, output noise hides the distance to the minimum, and limits."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import l2p
from l2p.base.errors import InputError
from l2p.models import MODELS, Logistic, find_model
from l2p.privacy import Adjacency, Budget
from l2p.privacy.cost import convert
from l2p.protectors import HAND_DESIGNED
from l2p.queries import ApproximateMinimum, PerturbedMinimum, newton
from l2p.queries.newton import Objective, minimize
from l2p.queries.shrunk import shrunk
from l2p.release.admission import admit
from l2p.task.noise import Noise
from l2p.task.rows import Rows
from l2p.task.sources import ArraySource
from tests.unsupported_models import UNSUPPORTED_MODELS

D, N = 3, 300
EPSILON, DELTA = 0.8, 1e-6


def f32(value):
    return jnp.asarray(value, jnp.float32)


def table(seed=0):
    random = np.random.default_rng(seed)
    return Rows(*(np.asarray(leaf, np.float32) for leaf in (random.random((N, D)), random.random(N) < 0.5, np.ones(N))))


def query(output_share=0.1, tolerance=1e-4):
    facts = f32(0.8), f32(0.0), f32(N), f32(0.3), f32(math.log(DELTA)), f32(np.nan)
    inner = PerturbedMinimum(Logistic(), jnp.zeros(D + 1), *facts)
    return ApproximateMinimum(inner, f32(output_share), f32(tolerance), f32(1 / EPSILON))


class Scripted(Noise):
    """Scripted noise, one value per call."""

    def __init__(self, *draws):
        self._draws = iter(draws)

    def standard(self, distribution, shape):
        assert distribution == "gaussian"
        return jnp.asarray(next(self._draws)).reshape(shape)

    def batch(self, sampler, num_rows, step):
        raise AssertionError("it draws no rows")


@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
def test_epsilons_and_deltas_of_the_two_parts_add_up_to_the_budget(share, adjacency):
    approximate = query(share)
    inner = approximate.inner
    first = 1 / float(inner.noise_multiplier), math.exp(float(inner.log_delta))
    assert first == pytest.approx(((1 - share) * EPSILON, (1 - share) * DELTA), rel=1e-5)
    calibration = inner.calibrate(adjacency)
    distance = float(approximate.tolerance) * float(calibration.noise_scale) / float(calibration.convexity)
    # The exact curve of the output's noise, at what the objective leaves of the budget.
    mu = 2 * distance / float(approximate.output_scale(calibration))
    assert convert.gdp_delta(mu, share * EPSILON) <= share * DELTA
    assert convert.gdp_delta(mu * 1.01, share * EPSILON) > share * DELTA  # and not much more noise than that
    event = approximate.event()
    assert (event.mechanism, float(event.noise_multiplier)) == ("objective", float(f32(1 / EPSILON)))
    assert float(event.log_delta) == float(f32(math.log(DELTA)))


def test_points_with_short_gradients_lie_within_what_the_noise_hides():
    """The premise: ||w - w*|| <= ||gradient at w|| / Delta, and two such points lie up to twice as far apart."""
    random = np.random.default_rng(1)
    approximate = query()
    with jax.enable_x64(True):
        rows = Rows(*(jnp.asarray(leaf, jnp.float64) for leaf in (table().x, table().y, table().mask)))
        calibration = approximate.inner.calibrate(Adjacency.ZERO_OUT)
        lines, labels = shrunk(rows, approximate.minimum.norm_bound)
        convexity = jnp.asarray(float(calibration.convexity))
        noised = Objective(
            Logistic(), lines, labels, rows.mask, convexity, float(calibration.noise_scale) * jnp.ones(D + 1)
        )
        exact, _ = minimize(noised, jnp.zeros(D + 1), jnp.asarray(1e-11))
        tau = float(approximate.tolerance) * float(calibration.noise_scale)
        moves = random.normal(size=(300, D + 1)) * random.random((300, 1)) * tau / float(convexity)
        gradients = jax.vmap(lambda point: noised.gradient(point, lines @ point))(exact[None] + moves)
        farthest = np.linalg.norm(moves[np.linalg.norm(gradients, axis=1) <= tau], axis=1).max()
    assert 0.1 * tau / float(convexity) < farthest <= tau / float(convexity)
    # The noise on answers has that scale: one standard deviation in the first coordinate moves the answer by it.
    rows = jax.tree.map(jnp.asarray, table())
    quiet, loud = (
        approximate.answer(rows, Scripted(jnp.ones(D + 1), jnp.zeros(D + 1).at[0].set(size)), Adjacency.ZERO_OUT)
        for size in (0.0, 100.0)
    )
    assert float((loud - quiet)[0]) / 100 == pytest.approx(float(approximate.output_scale(calibration)), rel=1e-2)
    assert np.abs((loud - quiet)[1:]).max() == 0


def test_rounding_of_huge_tables_is_hidden_too():
    small = query(tolerance=0.0)
    huge = small.replace(minimum=small.minimum.replace(num_rows=f32(1e8)))
    scales = [float(sized.output_scale(sized.inner.calibrate(Adjacency.ZERO_OUT))) for sized in (small, huge)]
    assert 0 < scales[0] < 1e-6
    assert scales[1] > 1e9 * scales[0]


def test_a_gradient_that_is_too_long_is_not_answered(monkeypatch):
    monkeypatch.setattr(newton, "_MAX_ITERATIONS", 0)
    noise = Scripted(jnp.ones(D + 1), jnp.zeros(D + 1))
    assert np.isnan(query().answer(jax.tree.map(jnp.asarray, table()), noise, Adjacency.ZERO_OUT)).all()
    with pytest.raises(RuntimeError, match="not finite"):
        l2p.private_train(Rows(table().x[:299], table().y[:299], table().mask[:299]), "amp", Budget(0.8, 1e-6))


@pytest.mark.long
def test_a_release_is_certified_and_at_a_huge_budget_is_that_of_objective_perturbation():
    result = l2p.private_train(table(), "amp", Budget(EPSILON, DELTA))
    assert (result.card.accountant, result.card.epsilon_certified, len(result.trace)) == ("basic", EPSILON, 1)
    same = {"budget": Budget(1e6, 1e-4), "key": jax.random.key(0)}  # and so the same noise in the objective
    ends = [l2p.private_train(table(), name, **same).params for name in ("amp", "objpert")]
    np.testing.assert_allclose(*ends, atol=1e-4)
    assert np.abs(ends[0]).max() > 0.3


@pytest.mark.parametrize(("name", "phrase"), UNSUPPORTED_MODELS.items())
def test_losses_that_the_proof_does_not_cover_are_refused_at_the_door(name, phrase):
    with pytest.raises(InputError, match=phrase):
        admit("amp", Budget(EPSILON, DELTA), find_model(name))


@pytest.mark.slow
def test_streams_and_bounds_that_are_none_are_refused():
    budget = Budget(EPSILON, DELTA)
    with pytest.raises(InputError, match="stream"):
        l2p.private_train(ArraySource(table(), 100), "amp", budget)
    protector = HAND_DESIGNED["amp"](budget)
    protector = protector.replace(minimum=protector.minimum.replace(log_norm_bound=f32([math.nan])))
    with pytest.raises(InputError, match="positive and finite"):
        admit(protector, budget, MODELS["logistic"])
