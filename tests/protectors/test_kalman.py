"""Steps by a Kalman filter: its limits, its prior, and params that return, beside formulas."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.protectors.learned.belief import Measured
from l2p.protectors.learned.kalman import LONGEST
from l2p.protectors.stepwise.schedulers import Observation
from tests.protectors.kalman_filters import CURVATURE, MINIMUM, MODEL, MOMENT, SETUP, curve, filter_of, trajectory


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


@pytest.mark.slow(cases=["0.001-*"])
@pytest.mark.parametrize("scale", [0.0, 1.0, 40.0])
@pytest.mark.parametrize("noise_std", [1e-3, 1.0, 1e3])
def test_the_scale_of_the_start_is_what_measurements_show_as_far_as_noise_allows(scale, noise_std):
    """Distances of w* with `scale` times the expected variance, in 400 coordinates, measured 10 times."""
    random = np.random.default_rng(0)
    prior = np.linspace(0.5, 2.0, 400).astype(np.float32)
    measured = Measured.none(jnp.zeros((20, 400)))
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
        measured = Measured.none(jnp.zeros(4)).after(jnp.array([1.0, 1.0, 1.0, last]), jnp.full(4, 1e-6))
        scales.append(float(measured.log_scale(jnp.ones(4), jnp.zeros(4), counts, jnp.float32(2.0))))
    assert scales[0] == scales[1]
    assert abs(scales[0]) < 0.7


def test_what_drawing_rows_does_to_their_minimum_is_not_taken_for_distance():
    """Minima of few rows that are 3 times as far from the start, in squares, as that of all rows is."""
    random = np.random.default_rng(0)
    distances = random.normal(size=4000) * 3.0**0.5
    measured = Measured.none(jnp.zeros(4000)).after(jnp.asarray(distances), jnp.full(4000, 1e-6))
    of_all, of_these = (
        float(measured.log_scale(jnp.ones(4000), jnp.full(4000, sampling), jnp.ones(4000, bool), jnp.float32(2.0)))
        for sampling in (2.0, 0.0)
    )
    assert of_all == pytest.approx(0.0, abs=0.15)
    assert of_these == pytest.approx(np.log(3.0), abs=0.2)


@pytest.mark.long
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


@pytest.mark.long
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


@pytest.mark.long
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
