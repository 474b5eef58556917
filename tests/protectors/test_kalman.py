"""Steps by a Kalman filter: its limits, and what they are by formulas."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.checkpoints.checkpoint import load
from l2p.models import MODELS, Softmax, find_model
from l2p.models.base import INTERCEPT_COLUMN
from l2p.oracle.setup import Setup
from l2p.privacy import Budget, Filter
from l2p.protectors import KalmanProjector
from l2p.protectors.conditioning import KNOT_RANGE, MOST_FEATURES, NARROW, Covariates, between_knots, covariates_of
from l2p.protectors.learned.belief import Measured
from l2p.protectors.learned.kalman import INPUTS, LONGEST, OUTPUTS
from l2p.protectors.stepwise.schedulers import Observation

MODEL, BUDGET, N = MODELS["square"], Budget(1.0, 1e-6), 1000
SETUP = Setup.create(MODEL, BUDGET.adjacency, Filter("gdp", BUDGET).price_list(), N)
MOMENT = jnp.array([0.5, 0.1, 0.02, 0.0])  # of three features, and of an intercept
CURVATURE = jnp.array([0.5, 0.1, 0.02, INTERCEPT_COLUMN**2])
MINIMUM = jnp.array([1.0, -2.0, 3.0, 0.5])
#: Far above the largest of `MINIMUM`, in margins.
WIDE = 6.0


def curve(number):
    return jnp.array([[number, 0.0, 0.0, 0.0, 0.0]])


def filter_of(spread=WIDE, certain=30.0, momentum=-30.0, width=1.0):
    """A filter that knows neither of larger curvature, nor of clipping, rare classes or few rows, and that never
    returns."""
    neutral = 0.0, -20.0, -30.0, 0.0, -30.0
    return KalmanProjector(*map(curve, (0.0, 0.0, spread, 0.0, spread, width, certain, momentum, *neutral)))


def trajectory(projector, noise_std, num_steps, key=0, steeper=1.0):
    """Params after each step f32[T, 4] on a quadratic with curvature `CURVATURE`, or so many times that, and minimum
    `MINIMUM`."""
    keys = jax.random.split(jax.random.key(key), num_steps)
    return np.asarray(steps_of(projector, noise_std, keys, steeper))


@jax.jit
def steps_of(projector, noise_std, keys, steeper):
    """Params after each step of a trajectory, one for each of `keys`."""

    def step(carry, key):
        params, state = carry
        gradient = steeper * CURVATURE * (params - MINIMUM) + noise_std * jax.random.normal(key, params.shape)
        observation = Observation(gradient, noise_std, jnp.ones(()), jnp.ones(4), None, MOMENT)
        update, state = projector(state, observation, params, jnp.zeros(()), SETUP)
        return (params + update, state), params + update

    start = jnp.zeros(4)
    return jax.lax.scan(step, (start, projector.init(start, SETUP)), keys)[1]


@pytest.mark.slow
def test_without_noise_the_first_step_is_newtons():
    np.testing.assert_allclose(trajectory(filter_of(), jnp.float32(0.0), 1)[0], MINIMUM, rtol=1e-3)


@pytest.mark.slow
def test_with_noise_it_ends_at_the_mean_of_all_measurements():
    """Each gradient is a measurement of the minimum with noise_std / curvature of noise; a wide start adds nothing."""
    num_steps, noise_std = 40, 0.05
    ends = np.stack([trajectory(filter_of(), jnp.float32(noise_std), num_steps, key)[-1] for key in range(60)])
    deviation = noise_std / np.asarray(CURVATURE) / num_steps**0.5
    np.testing.assert_allclose(ends.std(0), deviation, rtol=0.3)
    assert (np.abs(ends.mean(0) - MINIMUM) < 4 * deviation / 60**0.5).all()


def test_a_narrow_start_keeps_params_near_it():
    """With all noise and no signal to trust, the step is that of the posterior mean, which is nearly no step."""
    moved = trajectory(filter_of(spread=-12.0), jnp.float32(10.0), 50)
    assert np.abs(moved).max() < 1e-3


@pytest.mark.slow(cases=["0.001-0.0"])
@pytest.mark.parametrize("scale", [0.0, 1.0, 40.0])
@pytest.mark.parametrize("noise_std", [1e-3, 1.0, 1e3])
def test_the_scale_of_the_start_is_what_measurements_show_as_far_as_noise_allows(scale, noise_std):
    """Distances of w* with `scale` times the expected variance, in 400 coordinates, measured 10 times."""
    random = np.random.default_rng(0)
    prior = np.linspace(0.5, 2.0, 400).astype(np.float32)
    measured = Measured(jnp.zeros((20, 400)), jnp.zeros((20, 400)))
    truth = np.sqrt(scale * prior) * random.normal(size=(20, 400))
    for _ in range(10):
        measured = measured.after(truth + noise_std * random.normal(size=(20, 400)), jnp.full((20, 400), noise_std**2))
    of_all = jax.vmap(Measured.log_scale, (0, None, None, None, None))
    mean = float(of_all(measured, prior, jnp.zeros(400), np.arange(400) < 390, 2.0).mean())
    if noise_std == 1e3:  # as much as nothing
        assert abs(mean) < 0.1
    elif scale == 0.0:  # no more than what the measurements vary by
        assert mean < (-3.0 if noise_std < 1 else -1.0)
    else:
        assert mean == pytest.approx(np.log(scale), abs=0.25)


@pytest.mark.slow
def test_coordinates_that_do_not_count_do_not_change_the_scale():
    counts, scales = jnp.array([True, True, True, False]), []
    for last in (0.0, 1e3):
        measured = Measured(jnp.zeros(4), jnp.zeros(4)).after(jnp.array([1.0, 1.0, 1.0, last]), jnp.full(4, 1e-6))
        scales.append(float(measured.log_scale(jnp.ones(4), jnp.zeros(4), counts, jnp.float32(2.0))))
    assert scales[0] == scales[1]
    assert abs(scales[0]) < 0.7


def test_what_drawing_rows_does_to_their_minimum_is_not_taken_for_distance():
    """Minima of few rows that are 3 times as far from the start, in squares, as that of all rows is."""
    random = np.random.default_rng(0)
    distances = random.normal(size=4000) * 3.0**0.5
    measured = Measured(jnp.zeros(4000), jnp.zeros(4000)).after(jnp.asarray(distances), jnp.full(4000, 1e-6))
    of_all, of_these = (
        float(measured.log_scale(jnp.ones(4000), jnp.full(4000, sampling), jnp.ones(4000, bool), jnp.float32(2.0)))
        for sampling in (2.0, 0.0)
    )
    assert of_all == pytest.approx(0.0, abs=0.15)
    assert of_these == pytest.approx(np.log(3.0), abs=0.2)


@pytest.mark.slow
@pytest.mark.parametrize("num_rows", [20, 200, 10**6])
def test_few_rows_get_the_ridge_of_their_prior(num_rows):
    """Without noise params end at the minimum of the mean loss and |w|^2 / (2 N P), for squares of variance 1 around
    the margins: the posterior mean, which is the minimum itself for many rows."""
    unit = MODEL.typical_margin(SETUP.kind) ** 2
    projector = dataclasses.replace(filter_of(spread=1.0, width=-30.0), log_sampling=curve(0.0))
    setup = dataclasses.replace(SETUP, num_rows=jnp.float32(num_rows))
    noiseless = Observation(jnp.zeros(4), jnp.float32(0.0), jnp.ones(()), jnp.ones(4), None, MOMENT)
    prior = np.asarray(projector.at_start(jnp.zeros(4), noiseless, setup)[0])[:3]
    params, state = jnp.zeros(4), projector.init(jnp.zeros(4), setup)
    for _ in range(60):
        observed = noiseless.replace(gradient=CURVATURE * (params - MINIMUM))
        update, state = projector(state, observed, params, jnp.zeros(()), setup)
        params = params + update
    curvature, minimum = np.asarray(CURVATURE), np.asarray(MINIMUM)
    ridge = unit / (num_rows * prior)
    np.testing.assert_allclose(params[:3], (curvature / (curvature + np.r_[ridge, 0.0]) * minimum)[:3], rtol=1e-2)
    assert float(params[3]) == pytest.approx(float(MINIMUM[3]), rel=1e-2)  # the intercept has no ridge
    if num_rows == 20:
        assert (np.abs(params[:3]) < 0.9 * np.abs(minimum[:3])).any()


@pytest.mark.slow
def test_a_start_that_is_too_narrow_is_widened_where_there_is_signal():
    """A spread of e^-3 margins would keep it near the start for long; so does a filter whose start is never wrong."""
    widened, stayed_wide = (
        np.abs(trajectory(filter_of(-3.0, width=width), jnp.float32(0.01), 20)[-1] - MINIMUM)[:3].max()
        for width in (1.0, -4.0)
    )
    assert widened < 0.5 < 1.5 < stayed_wide


@pytest.mark.slow
def test_steps_are_bounded_by_the_largest_curvature_where_second_moments_are_unknown():
    """Curvature may be ten times what is assumed; distances are still told by the latter."""

    def first(log_steepest):
        projector = dataclasses.replace(filter_of(), log_steepest=curve(1.0) * log_steepest)
        observation = Observation(CURVATURE * -MINIMUM, jnp.float32(0.0), jnp.ones(()), jnp.zeros(4), None, MOMENT)
        return projector(projector.init(jnp.zeros(4), SETUP), observation, jnp.zeros(4), jnp.zeros(()), SETUP)[0]

    bounded = np.asarray(first(np.log(10.0)) / MINIMUM)
    np.testing.assert_allclose(bounded, [LONGEST / 10, LONGEST / 10, LONGEST / 10, 1.0], rtol=1e-3)
    assert (np.asarray(jax.jacfwd(first)(np.log(10.0)))[:3] != 0.0).all()


def returning(projector):
    """The same filter, whose params return all the way to what a narrower prior believes."""
    return dataclasses.replace(projector, logit_return=curve(30.0))


@pytest.mark.slow
def test_what_noise_moved_is_taken_back_once_it_is_known_to_be_noise():
    """A wide start follows the noise of the first gradient, and the others show that the minimum is at the start."""
    size, noise_stds = 200, [3.0] + 10 * [0.3]
    moment = jnp.append(jnp.full(size, 0.5), 0.0)

    def ends(projector):
        def step(carry, key_and_noise):
            (params, state), (key, noise_std) = carry, key_and_noise
            gradient = moment * params + noise_std * jax.random.normal(key, params.shape)
            observation = Observation(gradient, noise_std, jnp.ones(()), jnp.ones(size + 1), None, moment)
            update, state = projector(state, observation, params, jnp.zeros(()), SETUP)
            return (params + update, state), jnp.linalg.norm(params[:-1] + update[:-1])

        start = jnp.zeros(size + 1)
        keys = jax.random.split(jax.random.key(0), len(noise_stds))
        return np.asarray(jax.lax.scan(step, (start, projector.init(start, SETUP)), (keys, jnp.array(noise_stds)))[1])

    stayed, returned = (
        ends(projector) for projector in (filter_of(4.0, width=0.5), returning(filter_of(4.0, width=0.5)))
    )
    assert returned[0] == pytest.approx(stayed[0])
    assert returned[-1] < 0.5 * min(stayed[-1], returned[0])


@pytest.mark.slow
def test_returning_changes_nothing_where_there_is_no_noise_or_the_prior_stays():
    for projector, noise_std in ((filter_of(), 0.0), (filter_of(width=-30.0), 0.1)):
        stayed, returned = (
            trajectory(kalman, jnp.float32(noise_std), 10) for kalman in (projector, returning(projector))
        )
        np.testing.assert_allclose(returned, stayed, rtol=1e-3, atol=1e-4)


def test_the_error_of_a_start_that_was_bought_is_part_of_the_prior():
    """An intercept that the prior takes to be known is corrected as far as the start may be wrong."""
    projector = dataclasses.replace(filter_of(), log_intercept=curve(-12.0))
    variance = jnp.array([0.0, 0.0, 0.0, 4.0])
    observation = Observation(CURVATURE * -MINIMUM, jnp.float32(0.1), jnp.ones(()), jnp.ones(4), None, MOMENT)
    moved = [
        float(projector(projector.init(jnp.zeros(4), SETUP), start, jnp.zeros(4), jnp.zeros(()), SETUP)[0][3])
        for start in (observation, observation.replace(start_variance=variance))
    ]
    assert abs(moved[0]) < 1e-3
    expected = 4.0 * CURVATURE[3] ** 2 / (4.0 * CURVATURE[3] ** 2 + 0.01) * MINIMUM[3]
    assert moved[1] == pytest.approx(float(expected), rel=1e-3)


@pytest.mark.slow
def test_momentum_is_dropped_in_coordinates_whose_gradient_points_back():
    """Params turn around as soon as they have passed the minimum, however much momentum there is."""
    projector = dataclasses.replace(filter_of(certain=-2.0, momentum=30.0), log_curvature=curve(float(np.log(3.0))))
    params = trajectory(projector, jnp.float32(0.0), 40)
    gradients, updates = (params - np.asarray(MINIMUM))[1:-1], np.diff(params, axis=0)
    passed = gradients * updates[:-1] > 1e-9
    assert passed.any(0).all()
    assert (updates[1:] * updates[:-1])[passed].max() < 0.0
    assert np.abs(params[-1] - np.asarray(MINIMUM)).max() < 0.05


@pytest.mark.slow
def test_curvature_above_its_bound_shows_in_the_change_of_gradients():
    """Ten times the curvature that moments tell, as where rows of a heavy tail were clipped: the first step goes
    fifteen times too far, and the next ones are bounded."""
    flat = dataclasses.replace(filter_of(), log_curvature=curve(-1.0), log_steepest=curve(0.0))
    distances = np.abs(trajectory(flat, jnp.float32(0.0), 200, steeper=10.0) - np.asarray(MINIMUM))
    assert distances[0].max() > 10.0
    assert distances[-1].max() < 0.1


@pytest.mark.slow
def test_noise_alone_shows_no_curvature():
    belief = filter_of().init(jnp.zeros(4), SETUP).replace(change=jnp.array([1.0, -1.0, 0.5, 2.0]), last_noise=4.0)
    shown = jax.vmap(lambda gradient: belief.steeper_after(gradient, jnp.float32(4.0), CURVATURE))
    alone = 2.0 * jax.random.normal(jax.random.key(0), (2000, 4)) + (CURVATURE * belief.change)[None, :]
    assert float((shown(alone) > 1.0).mean()) < 0.05
    steep = 1e-3 * alone[0] + 7.0 * CURVATURE * belief.change
    steepest = belief.replace(last_noise=1e-12).steeper_after(steep, jnp.float32(1e-12), CURVATURE)
    assert float(steepest) == pytest.approx(7.0, rel=0.05)
    # What was shown is forgotten.
    later = belief.replace(steeper=jnp.float32(10.0)).steeper_after(alone[0], jnp.float32(4.0), CURVATURE)
    assert 5.0 < float(later) < 10.0


@pytest.mark.slow
def test_where_moments_are_known_no_step_is_unstable_at_the_largest_curvature():
    """Steps stay stable however small the filter takes curvature to be."""
    flat = dataclasses.replace(filter_of(), log_curvature=curve(-4.0), log_steepest=curve(-3.0))
    moved = trajectory(flat, jnp.float32(0.0), 200)
    longest = LONGEST / (MODEL.largest_curvature(SETUP.kind) * CURVATURE)
    assert (np.abs(moved[0]) <= longest * np.abs(CURVATURE * MINIMUM) * (1 + 1e-5)).all()
    np.testing.assert_allclose(moved[-1], MINIMUM, rtol=1e-2)


@pytest.mark.slow(but=["logistic", "square"])
@pytest.mark.parametrize("name", ["logistic", "square", "softmax:3", "softmax:12"])
def test_no_curvature_in_margins_is_above_the_largest(name):
    model = find_model(name)
    random = np.random.default_rng(0)
    if isinstance(model, Softmax):
        margins = 4.0 * random.normal(size=(200, model.num_classes)).astype(np.float32)
        hessians = jax.vmap(jax.hessian(model.margin_loss), (0, None))(jnp.asarray(margins), jnp.float32(1.0))
        largest = np.linalg.eigvalsh(np.asarray(hessians)).max()
    else:
        largest = np.asarray(model.newton_curvature(jnp.linspace(-3.0, 3.0, 601), jnp.ones(601))).max()
    kind = model.kinds[0]
    assert 0.5 * model.largest_curvature(kind) < largest <= model.largest_curvature(kind) + 1e-6
    assert model.typical_curvature(kind) <= model.largest_curvature(kind)


def one_step(projector, observation):
    """The first update f32[4]."""
    return np.asarray(
        projector(projector.init(jnp.zeros(4), SETUP), observation, jnp.zeros(4), jnp.zeros(()), SETUP)[0]
    )


def test_clipped_gradients_move_params_as_far_as_whole_ones():
    """Clipping to 1 / sqrt(15) of a gradient's norm leaves a quarter, and so it does of the noise."""
    noise, narrow = jnp.float32(5.0), filter_of(spread=-1.0)  # so that steps are far below the longest
    unclipped_gradient = Observation(CURVATURE * -MINIMUM, noise, jnp.ones(()), jnp.ones(4), None, MOMENT)
    expected = one_step(narrow, unclipped_gradient)
    projector = dataclasses.replace(narrow, log_gradient_norm=curve(0.0))
    norm = MODEL.typical_slope(SETUP.kind) * 2.0
    clipped = unclipped_gradient.replace(
        gradient=unclipped_gradient.gradient / 4.0,
        noise_std=noise / 4.0,
        length=jnp.float32(2.0),
        clip_norm=norm / 15.0**0.5,
    )
    np.testing.assert_allclose(one_step(projector, clipped), expected, rtol=1e-4)
    # A filter that does not know takes the smaller noise for more precise measurements, and goes too far.
    assert (np.abs(one_step(narrow, clipped)) > 2.0 * np.abs(expected)).all()
    # A clipping norm far above all gradients changes nothing.
    unclipped = unclipped_gradient.replace(length=jnp.float32(2.0), clip_norm=jnp.float32(1e4))
    np.testing.assert_allclose(one_step(projector, unclipped), expected, rtol=1e-4)
    # However small, steps are stable for gradients that are not clipped in truth.
    tiny = clipped.replace(clip_norm=norm * 1e-6, noise_std=jnp.float32(0.0))
    longest = LONGEST / np.asarray(CURVATURE) * np.abs(np.asarray(tiny.gradient))
    assert (np.abs(one_step(projector, tiny)) <= longest * (1 + 1e-5)).all()


@pytest.mark.slow
def test_steps_follow_the_curvature_at_the_classes_shares():
    """With one class rare the curvature of logistic loss is a fifth, the prior is the same, and so steps that noise
    bounds are a fifth, and steps without noise five times as long, as far as the largest curvature allows."""
    setup = dataclasses.replace(SETUP, model=MODELS["logistic"], kind="binary")
    rates = jnp.array([0.95, 0.05])
    slope, curvature = (float(scale[0]) for scale in setup.model.scales_at_rates(rates, setup.kind))
    assert slope == pytest.approx(curvature, rel=0.15) == pytest.approx(0.2, rel=0.15)

    def step(projector, rates, noise):
        observation = Observation(jnp.full(4, 1e-3), noise, jnp.ones(()), jnp.ones(4), None, MOMENT, rates=rates)
        return np.asarray(
            projector(projector.init(jnp.zeros(4), setup), observation, jnp.zeros(4), jnp.zeros(()), setup)[0]
        )

    noisy, exact = jnp.float32(30.0), jnp.float32(0.0)
    projector = filter_of(spread=-1.0, width=-9.0)  # so that noise has the last word, and no scale is found
    knowing = dataclasses.replace(projector, rate_power=curve(1.0))
    even = step(knowing, jnp.full(2, 0.5), noisy)
    np.testing.assert_allclose(even, step(projector, rates, noisy), rtol=1e-5)
    np.testing.assert_allclose(step(knowing, rates, noisy), even * slope**2 / curvature, rtol=1e-3)
    none = dataclasses.replace(projector, rate_power=curve(0.0))
    np.testing.assert_allclose(step(none, rates, noisy), even, rtol=1e-5)
    # Newton's step for the curvature that there is, and never beyond the largest.
    uneven = jnp.array([0.75, 0.25])
    newtons = step(knowing, None, exact) / setup.model.scales_at_rates(uneven, setup.kind)[1]
    np.testing.assert_allclose(step(knowing, uneven, exact), newtons, rtol=1e-3)
    longest = LONGEST / (setup.model.largest_curvature(setup.kind) * np.asarray(CURVATURE)) * 1e-3
    np.testing.assert_allclose(np.abs(step(knowing, rates, exact)), longest, rtol=1e-3)


@pytest.mark.slow
def test_derivatives_of_a_run_that_returns_are_finite():
    """At the first step nothing has moved, and its share of the distance is 0 over 0."""

    def end(number):
        projector = dataclasses.replace(filter_of(), log_spread=curve(1.0) * number, logit_return=curve(0.5) * number)
        params, state = jnp.zeros(4), projector.init(jnp.zeros(4), SETUP)
        for key in range(3):
            gradient = CURVATURE * (params - MINIMUM) + 0.1 * jax.random.normal(jax.random.key(key), (4,))
            observation = Observation(gradient, jnp.float32(0.1), jnp.ones(()), jnp.ones(4), None, MOMENT)
            update, state = projector(state, observation, params, jnp.zeros(()), SETUP)
            params = params + update
        return params.sum()

    assert np.isfinite(jax.grad(end)(1.0))


@pytest.mark.slow
def test_smaller_curvature_than_assumed_only_takes_more_steps():
    """Steps are then too short; a filter that is not certain goes on."""
    flat = dataclasses.replace(filter_of(certain=0.0), log_curvature=curve(float(np.log(4.0))))
    assert np.abs(trajectory(flat, jnp.float32(0.0), 60)[-1] - MINIMUM).max() < 1e-2
    faster = dataclasses.replace(flat, logit_momentum=curve(0.0))
    slow, fast = (np.abs(trajectory(kalman, jnp.float32(0.0), 8)[-1] - MINIMUM).max() for kalman in (flat, faster))
    assert fast < 0.75 * slow


@pytest.mark.slow(but=["square"])
@pytest.mark.parametrize("name", ["logistic", "svm", "hinge", "square", "softmax:4"])
def test_typical_slopes_and_curvatures_are_those_at_the_start(name):
    """Slopes and curvatures of random labels at margins 0; the hinge's is that of the flattest parabola above it."""
    model = find_model(name)
    kind = model.kinds[0] if name != "square" else "binary"
    features, labels = jnp.zeros((8, 2)), jnp.arange(8.0) % len(model.labels)
    gradients = model.gradients(model.init(2), features, labels) / INTERCEPT_COLUMN
    slopes = np.linalg.norm(np.asarray(gradients), axis=1)
    assert slopes.mean() == pytest.approx(model.typical_slope(kind), rel=1e-3)
    if isinstance(model, Softmax):
        hessian = jax.hessian(lambda params: model.loss(params, features[0], labels[0]))(model.init(2))
        largest = np.linalg.eigvalsh(np.asarray(hessian)).max() / INTERCEPT_COLUMN**2
        assert largest < model.typical_curvature(kind) < 2.0 * largest + 1e-6
    elif name != "hinge":
        at_start = model.margin(model.init(2), features[0])
        curvature = model.newton_curvature(at_start, labels[0])
        assert float(curvature) == pytest.approx(model.typical_curvature(kind), rel=1e-3)


@pytest.mark.slow
def test_the_networks_moments_are_those_of_its_margins_derivatives():
    """Moments of one feature's weights together, and of all units together, within a factor of 3: units are random."""
    model, x = find_model("mlp"), np.random.default_rng(0).uniform(size=(500, 6)).astype(np.float32)
    params = model.init(6)
    slopes = np.asarray(jax.vmap(jax.grad(lambda params, x: model.margin(params, x[None])[0]), (None, 0))(params, x))
    moments = np.asarray(model.moment_per_param(jnp.asarray(np.square(x).mean(0))))
    units = model.num_units
    for feature in range(6):
        block = slice(feature * units, (feature + 1) * units)
        largest = np.linalg.eigvalsh(slopes[:, block].T @ slopes[:, block] / len(x))[-1]
        assert largest / 3 < moments[block][0] < 3 * largest
    output = slopes[:, -units - 1 : -1]
    largest = np.linalg.eigvalsh(output.T @ output / len(x))[-1]
    assert largest / 3 < moments[-2] < 3 * largest
    assert moments[-1] == 0.0


def test_a_networks_moments_grow_with_its_weights_and_a_linear_models_do_not():
    linear, network = MODELS["logistic"], find_model("mlp")
    assert (np.asarray(linear.moment_growth(jnp.full(7, 5.0), jnp.ones(7))) == 1.0).all()
    start, units = network.init(6), network.num_units
    output = jnp.arange(len(start)) >= len(start) - units - 1
    assert (np.asarray(network.moment_growth(start, start)) == 1.0).all()
    wider = np.asarray(network.moment_growth(jnp.where(output, 3.0 * start, start), start))
    np.testing.assert_allclose(wider[: -units - 1], 9.0, rtol=1e-5)
    np.testing.assert_allclose(wider[-units - 1 :], 1.0)
    steeper = np.asarray(network.moment_growth(jnp.where(output, start, 2.0 * start), start))
    np.testing.assert_allclose(steeper[-units - 1 : -1], 4.0, rtol=1e-5)
    # Units are between -1 and 1.
    largest = np.asarray(network.moment_growth(100.0 * start, start))[-2] * network.moment_per_param(jnp.ones(6))[-2]
    assert largest == pytest.approx(units, rel=1e-5)


def test_knots_are_met_and_nothing_is_extrapolated():
    knots = jnp.array([[0.0, 0.0, 0.0, 0.0, 0.0], [4.0, 1.0, 2.0, 3.0, 5.0], [2.0, 0.0, 0.0, 0.0, 0.0]])
    low, high = KNOT_RANGE
    places = (low - 9, low, (low + high) / 2, high, high + 9)
    for hidden, wide, middle in ((0.0, 0.0, 6.0), (1.0, 0.0, 9.0), (0.0, 1.0, 11.0)):
        values = [float(between_knots(knots, Covariates(jnp.array(at), 1.0, 0.5, hidden, wide))) for at in places]
        np.testing.assert_allclose(values, [0.0, 0.0, middle, 2.0, 2.0], atol=1e-5)


def test_facts_tell_features_margins_and_hidden_layers_apart():
    of = [
        covariates_of(dataclasses.replace(SETUP, model=find_model(name)), find_model(name).num_params(8))
        for name in ("square", "softmax:4", "mlp")
    ]
    assert of[0].size == of[1].size == of[2].size
    assert of[0].margins == of[2].margins == 0.0 < of[1].margins
    assert [covariates.hidden for covariates in of] == [0.0, 0.0, 1.0]


def test_features_beyond_those_of_training_change_no_constant():
    def of(features):
        return covariates_of(SETUP, find_model("square").num_params(features))

    sizes = [of(features).size for features in (3, 100, MOST_FEATURES, MOST_FEATURES + 1, 10_000)]
    assert sizes[0] < sizes[1] < sizes[2] == sizes[3] == sizes[4]
    assert [of(features).wide for features in (3, NARROW, NARROW + 1, 10_000)] == [0.0, 0.0, 1.0, 1.0]
    assert load("control-universal-narrow").card["range"]["num_features"][1] == MOST_FEATURES


def network_of(longer=0.0, wider=0.0, surer=0.0, faster=0.0):
    """A network of one layer with the same outputs for all inputs."""
    return {"layer0": {"w": jnp.zeros((INPUTS, OUTPUTS)), "b": jnp.array([longer, wider, surer, faster])}}


@pytest.mark.slow
def test_a_network_of_zeros_changes_nothing_and_others_do():
    plain = filter_of(spread=1.0, certain=0.5, momentum=-1.0)
    noise = jnp.float32(0.1)
    expected = trajectory(plain, noise, 5)
    np.testing.assert_array_equal(trajectory(dataclasses.replace(plain, network=network_of()), noise, 5), expected)
    for name in ("longer", "wider", "surer", "faster"):
        changed = trajectory(dataclasses.replace(plain, network=network_of(**{name: -1.0})), noise, 5)
        assert np.abs(changed - expected).max() > 1e-3, name


@pytest.mark.slow
def test_no_network_makes_a_filter_diverge():
    """Steps of gradient descent are stable up to 2 / h, and a network's are at most 1.5 / h."""
    wild = dataclasses.replace(filter_of(certain=0.0), network=network_of(longer=20.0))
    assert np.abs(trajectory(wild, jnp.float32(0.0), 60)[-1] - MINIMUM).max() < 1e-3


def test_a_network_sees_whether_gradients_are_what_the_filter_expects(monkeypatch):
    """Gradients surprise a filter that wrongly takes its start to be near the minimum."""

    def surprise(spread):
        projector = filter_of(spread)
        gradient, noise_std = CURVATURE * -MINIMUM, jnp.float32(0.01)
        observation = Observation(gradient, noise_std, jnp.ones(()), jnp.ones(4), None, MOMENT)
        inputs = []
        watched = dataclasses.replace(projector, network=network_of())
        original = KalmanProjector._inputs
        monkeypatch.setattr(KalmanProjector, "_inputs", lambda *args: inputs.append(original(*args)) or inputs[0])
        watched(projector.init(MINIMUM, SETUP), observation, jnp.zeros(4), jnp.zeros(()), SETUP)
        monkeypatch.undo()
        assert inputs[0].shape == (4, INPUTS)
        return np.asarray(inputs[0][:, 3])

    assert (surprise(-6.0) > 1.0).all()
    assert (surprise(WIDE) < 0.5).all()
