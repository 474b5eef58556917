"""Curvature that a Kalman filter assumes or measures: with clipping, with rare classes, and at the start."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.models import MODELS, Softmax, find_model
from l2p.models.base import INTERCEPT_COLUMN
from l2p.oracle.setup import Setup
from l2p.privacy import Filter
from l2p.protectors.learned import quadratic
from l2p.protectors.learned.kalman import LONGEST
from l2p.protectors.stepwise.schedulers import Observation
from tests.protectors.kalman_filters import (
    BUDGET,
    CURVATURE,
    MINIMUM,
    MODEL,
    MOMENT,
    SETUP,
    curve,
    filter_of,
    trajectory,
)


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


@pytest.mark.parametrize(("most", "num_rows", "bounded"), [(2, 1000, True), (2, 1, False), (3, 1000, False)])
def test_of_too_many_features_for_a_basis_steps_are_stable_along_whole_rows(monkeypatch, most, num_rows, bounded):
    """From one mu N per feature on: all of a row's length, 4, may lie along one direction."""
    monkeypatch.setattr(quadratic, "MAX_FEATURES", most)
    length, setup = (
        jnp.float32(4.0),
        Setup.create(MODEL, BUDGET.adjacency, Filter("gdp", BUDGET).price_list(), num_rows),
    )
    gradient, noise_std, unknown = CURVATURE * -MINIMUM, jnp.float32(1e-3), jnp.zeros(4)
    observation = Observation(gradient, noise_std, jnp.ones(()), unknown, None, MOMENT, length=length)
    update, _ = filter_of()(filter_of().init(unknown, setup), observation, unknown, jnp.zeros(()), setup)
    longest = LONGEST / (MODEL.largest_curvature(setup.kind) * length**2)
    assert bounded == bool((jnp.abs(update)[:3] <= longest * jnp.abs(gradient)[:3] * (1 + 1e-5)).all())


@pytest.mark.long(but=["logistic", "square"])
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


@pytest.mark.long(but=["square"])
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
