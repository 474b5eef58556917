"""Steps along the line from the start to the params: their limits, and what they are by formulas."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.models import MODELS, find_model
from l2p.oracle.setup import Setup
from l2p.privacy import Budget, Filter
from l2p.protectors.conditioning import Covariates
from l2p.protectors.learned.kalman import LONGEST
from l2p.protectors.learned.line import MOST, LineStep
from l2p.protectors.stepwise.schedulers import Observation
from tests.protectors.kalman_filters import MOMENT, curve, filter_of

COVARIATES = Covariates(jnp.float32(5.0), 0.0, 0.0, 0.0, 0.0, 0.0)
FREE = 1e9


def line_of(spread=0.0, renewed=-30.0, curvature=0.0):
    return LineStep(curve(curvature), curve(spread), curve(renewed))


def step_along(line, slope, noise=0.0, curvature=1.0, variance=0.0, longest=FREE):
    """The change and the variance left."""
    return line(*map(jnp.float32, (variance, slope, noise, curvature, longest)), COVARIATES)


def test_without_noise_a_step_is_newtons():
    change, variance_left = step_along(line_of(), slope=-0.3, curvature=2.0)
    assert float(change) == pytest.approx(0.15, rel=1e-4)
    assert float(variance_left) == pytest.approx(0.0, abs=1e-6)


def test_where_noise_hides_the_slope_nothing_changes_and_nothing_is_learned():
    change, variance_left = step_along(line_of(spread=math.log(0.5)), slope=-0.3, noise=1e12)
    assert abs(float(change)) < 1e-9
    assert float(variance_left) == pytest.approx(0.25, rel=1e-4)


def test_a_narrow_spread_changes_nothing():
    assert abs(float(step_along(line_of(spread=-30.0), slope=-5.0, noise=0.1)[0])) < 1e-12


def test_no_step_is_longer_than_most_nor_than_what_is_left_of_the_stable_length():
    assert float(step_along(line_of(), slope=-9.0)[0]) == pytest.approx(MOST)
    assert float(step_along(line_of(), slope=9.0)[0]) == pytest.approx(-MOST)
    assert float(step_along(line_of(), slope=-0.3, longest=0.1)[0]) == pytest.approx(0.03, rel=1e-4)
    assert float(step_along(line_of(), slope=-0.3, longest=0.0)[0]) == 0.0


def test_a_share_of_the_variance_comes_back_with_every_step():
    half = line_of(renewed=0.0)
    assert float(step_along(half, slope=-0.3)[1]) == pytest.approx(0.5, rel=1e-4)


@pytest.mark.parametrize("wrong", [1.0, 5.0])
def test_the_variance_left_is_the_mean_squared_error(wrong):
    """Over distances and noise drawn as the filter expects; not where noise is `wrong` times as wide as it is told."""
    spread, curvature, noise, count = 0.05, 1.7, 0.01, 4000
    keys = jax.random.split(jax.random.key(0), 2)
    wanted = spread * jax.random.normal(keys[0], (count,))
    slopes = -curvature * wanted + wrong * math.sqrt(noise) * jax.random.normal(keys[1], (count,))
    line = line_of(spread=math.log(spread))
    changes, variance_left = jax.vmap(lambda slope: step_along(line, slope, noise, curvature))(slopes)
    squares = np.square(np.asarray(wanted - changes))
    error = squares.std() / count**0.5
    if wrong == 1.0:
        assert abs(squares.mean() - float(variance_left[0])) < 4.0 * error
    else:
        assert squares.mean() - float(variance_left[0]) > 10.0 * error


# In a filter.

MODEL, BUDGET, N = MODELS["logistic"], Budget(1.0, 1e-6), 1000
SETUP = Setup.create(MODEL, BUDGET.adjacency, Filter("gdp", BUDGET).price_list(), N)
#: Gradients are hardly used in each coordinate.
TIMID = filter_of(spread=-6.0, width=-20.0)


def update(projector, params, gradient, noise_std=1e-4):
    """The update f32[4] from params that came from a start of zeros."""
    observation = Observation(gradient, jnp.float32(noise_std), jnp.ones(()), jnp.ones(4), None, MOMENT)
    return projector(projector.init(jnp.zeros(4), SETUP), observation, params, jnp.float32(0.5), SETUP)[0]


def test_a_filter_changes_features_along_the_line_alone_and_no_intercept():
    params, gradient = jnp.array([1.0, -2.0, 0.5, 0.7]), jnp.array([-0.3, 0.1, 0.0, 0.2])
    with_line = dataclasses.replace(TIMID, line=line_of(spread=-2.0))
    added = update(with_line, params, gradient) - update(TIMID, params, gradient)
    share = np.asarray(added[:3] / params[:3])
    np.testing.assert_allclose(share, share[0], rtol=1e-3)
    assert 0.0 < share[0] <= np.expm1(MOST) * 1.001
    assert float(added[3]) == 0.0


def test_at_the_start_there_is_no_line():
    gradient = jnp.array([-0.3, 0.1, 0.0, 0.2])
    with_line = dataclasses.replace(TIMID, line=line_of())
    np.testing.assert_array_equal(update(with_line, jnp.zeros(4), gradient), update(TIMID, jnp.zeros(4), gradient))


@pytest.mark.parametrize("params", [jnp.zeros(4), jnp.full(4, 1e-7), jnp.array([1.0, -2.0, 0.5, 0.7])])
def test_derivatives_are_finite_wherever_params_are_and_those_of_finite_differences(params):
    gradient, direction = jnp.array([-0.3, 0.1, 0.05, 0.2]), jnp.array([0.3, -0.2, 0.4, 0.1])

    @jax.jit
    def total(spread, params):
        line = LineStep(curve(0.3), spread * jnp.array([[1.0, *[0.0] * 5]]), curve(-2.0))
        return direction @ update(dataclasses.replace(TIMID, line=line), params, gradient, 0.1)

    spread = jnp.float32(-1.0)
    in_spread, in_params = jax.grad(total, (0, 1))(spread, params)
    assert np.isfinite(in_spread)
    assert np.isfinite(in_params).all()
    step = 1e-2
    slope = (total(spread + step, params) - total(spread - step, params)) / (2 * step)
    assert float(in_spread) == pytest.approx(float(slope), rel=0.05, abs=1e-5)


def test_the_line_takes_what_the_filters_own_steps_leave_of_the_stable_length():
    """Without noise each coordinate steps by `LONGEST` over its largest curvature. The loss along the line is flatter
    than that, so that something is left."""
    bold = dataclasses.replace(TIMID, log_spread=curve(6.0), log_intercept=curve(6.0), log_curvature=curve(-3.0))
    params = jnp.array([1.0, -2.0, 0.5, 0.7])
    gradient = 1e-3 * jnp.array([-0.3, 0.1, 0.0, 0.2])
    added = update(dataclasses.replace(bold, line=line_of()), params, gradient, 1e-8) - update(
        bold, params, gradient, 1e-8
    )
    square = MOMENT @ jnp.square(params)
    curvature = float(MODEL.line_curvature(jnp.sqrt(square), "binary"))
    steepest = float(MODEL.largest_curvature("binary") * square)
    length_left = LONGEST / curvature - LONGEST / steepest
    assert length_left < 1.0 / curvature  # which is what it would take otherwise
    assert float(jnp.log1p(added[0] / params[0])) == pytest.approx(
        -length_left * float(params[:3] @ gradient[:3]), rel=0.02
    )


@pytest.mark.parametrize("length", [0.3, 1.0, 3.0, 10.0, 30.0])
def test_the_curvature_along_a_line_is_at_least_that_of_normal_margins_and_little_more(length):
    """Curvature of the logistic loss is by a fine sum over margins; that of least squares is exact."""
    places = np.linspace(-8.0, 8.0, 20001)
    weights = np.exp(-0.5 * places**2) / np.exp(-0.5 * places**2).sum()
    margins = length * places
    chance = 1.0 / (1.0 + np.exp(-margins))
    expected = weights @ (margins**2 * chance * (1.0 - chance))
    curvature = float(MODELS["logistic"].line_curvature(jnp.float32(length), "binary"))
    assert 0.99 < curvature / expected < 1.6
    assert float(MODELS["square"].line_curvature(jnp.float32(length), "regression")) == pytest.approx(length**2)


@pytest.mark.parametrize("name", ["logistic", "svm", "hinge", "softmax", "mlp"])
def test_where_slopes_are_bounded_the_curvature_along_a_line_vanishes_at_long_margins(name):
    model = find_model(name, 3 if name == "softmax" else 2)
    kind = model.known_kind(None)
    near, far = (float(model.line_curvature(jnp.float32(length), kind)) for length in (2.0, 2000.0))
    assert 0.0 < far < near / 100.0
