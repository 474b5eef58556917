"""Noise and clipping norms by curves, and by a network that sees what was released."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.models import MODELS
from l2p.oracle import MAX_BOUND, MIN_BOUND
from l2p.oracle.setup import Setup
from l2p.privacy import Budget, Filter
from l2p.privacy.cap.spending import Spending
from l2p.privacy.events import Event
from l2p.protectors import CurveScheduler, PublicRecurrentScheduler, RecurrentScheduler
from l2p.protectors.learned.curve_scheduler import PUBLIC_INPUTS, SCHEDULE_INPUTS
from l2p.protectors.learned.recurrent import MOST_LOGIT
from l2p.protectors.stepwise.schedulers import Observation
from tests.protectors.kalman_filters import recurrent

MODEL, BUDGET = MODELS["logistic"], Budget(1.0, 1e-6)
SETUP = Setup.create(MODEL, BUDGET.adjacency, Filter("gdp", BUDGET).price_list(), 1000)
SPENDING = Spending(jnp.float32(0), jnp.float32(1))
#: Of three features, and of an intercept.
MOMENT = jnp.array([0.5, 0.1, 0.02, 0.0])
SEEN = Observation(jnp.zeros(4), jnp.ones(()), jnp.ones(()), moment=MOMENT, params=jnp.zeros(4))
#: Places in what the network is told.
MARGIN, STRENGTH, SIGNAL, SLOPE, PROGRESS = range(5)


def curve(value):
    return jnp.array([[value, *[0.0] * 5]])


def plan(scheduler, observation=SEEN, step=0, num_steps=20, charge=0):
    oracle: Any = SimpleNamespace(
        setup=SETUP, step=jnp.array(step), charge=jnp.array(charge), spending=SPENDING, sampled=False
    )
    return scheduler(scheduler.init(oracle), observation, oracle, num_steps)[0]


def network_input(place, **changed):
    """The network's input at `place`, for `SEEN` with changes."""
    reads = {"layer0": {"w": jnp.zeros((SCHEDULE_INPUTS, 1)).at[place].set(1.0), "b": jnp.zeros(1)}}
    step = changed.pop("step", 0)
    plan_of_step = plan(CurveScheduler(*[curve(0.0)] * 3, network=reads), dataclasses.replace(SEEN, **changed), step)
    return float(jnp.log(plan_of_step.clip_norm / MODEL.typical_slope(SETUP.kind)))


def test_clipping_norms_change_over_the_run_as_their_rate_says():
    scheduler = CurveScheduler(curve(0.0), curve(0.0), clip_rate=curve(float(np.log(4.0))))
    norms = np.array([float(plan(scheduler, step=step).clip_norm) for step in (0, 10, 20)])
    np.testing.assert_allclose(norms, np.array([1.0, 2.0, 4.0]) * norms[0], rtol=1e-5)
    assert norms[0] == pytest.approx(MODEL.typical_slope(SETUP.kind))


def test_a_network_changes_clipping_norms_and_not_what_is_paid():
    plain = CurveScheduler(curve(0.2), curve(0.5), curve(-0.3))
    halves = {"layer0": {"w": jnp.zeros((SCHEDULE_INPUTS, 1)), "b": -jnp.log(2.0)[None]}}
    for step in (0, 7):
        before, after = plan(plain, step=step), plan(dataclasses.replace(plain, network=halves), step=step)
        np.testing.assert_allclose(after.clip_norm, before.clip_norm / 2.0, rtol=1e-5)
        np.testing.assert_array_equal(after.noise_multiplier, before.noise_multiplier)


@pytest.mark.parametrize("output", [np.inf, -np.inf, np.nan, 1e30])
def test_whatever_a_network_says_is_a_bound_that_the_oracle_takes(output):
    """The run's noise counts as fixed in advance, so that no answer may end it."""
    wild = {"layer0": {"w": jnp.zeros((SCHEDULE_INPUTS, 1)), "b": jnp.full(1, output)}}
    for constant in (-80.0, 0.0, 80.0):
        bounded = plan(CurveScheduler(curve(constant), curve(0.0), curve(0.0), network=wild))
        assert MIN_BOUND < float(bounded.clip_norm) < MAX_BOUND


def test_the_network_is_told_how_long_margins_have_become():
    assert network_input(MARGIN) == 0.0
    long = jnp.array([3.0, 0.0, 0.0, 5.0])
    square = 0.5 * 9.0 / MODEL.typical_margin(SETUP.kind) ** 2
    assert network_input(MARGIN, params=long) == pytest.approx(np.log1p(square) / 2.0, rel=1e-4)
    # Intercepts move no margin away from the others.
    assert network_input(MARGIN, params=long.at[3].set(-9.0)) == network_input(MARGIN, params=long)


def test_the_network_is_told_how_much_of_a_gradient_is_signal():
    gradient = jnp.full(4, 0.1)
    precise, noisy = ({"gradient": gradient, "noise_std": jnp.float32(std)} for std in (0.001, 0.1))
    assert network_input(STRENGTH, **precise) > 4.0
    assert network_input(STRENGTH, **noisy) == pytest.approx(np.log(1.1) / 2.0, rel=1e-4)
    assert network_input(SIGNAL, **precise) > network_input(SIGNAL, **noisy) + 0.5


def test_the_network_is_told_how_uneven_classes_are_and_how_far_the_run_is():
    assert network_input(SLOPE) == 0.0
    assert network_input(SLOPE, rates=jnp.array([0.5, 0.5])) == pytest.approx(0.0, abs=1e-6)
    assert network_input(SLOPE, rates=jnp.array([0.9, 0.1])) == pytest.approx(np.log(0.36), abs=0.05)
    assert [network_input(PROGRESS, step=step) for step in (0, 10, 20)] == pytest.approx([-1.0, 0.0, 1.0])


def share_of(plan_of_step):
    """The share of the budget that a step's query costs."""
    return float(SETUP.price_list.price(Event("gaussian", plan_of_step.noise_multiplier)) / SETUP.price_list.budget)


def with_outputs(*outputs):
    """An LSTM whose outputs are always these."""
    network = jax.tree.map(jnp.zeros_like, recurrent(SCHEDULE_INPUTS, len(outputs)))
    return network | {"head": network["head"] | {"bias": jnp.array(outputs)}}


CURVES = curve(0.2), curve(0.5), curve(-0.3)


def test_an_lstm_starts_as_the_curves():
    for step in (0, 19):
        plans = [
            plan(scheduler(*CURVES, network), step=step, charge=step)
            for scheduler, network in ((CurveScheduler, None), (RecurrentScheduler, with_outputs(0.0, 0.0)))
        ]
        chex.assert_trees_all_equal(*plans)


@pytest.mark.parametrize("output", [np.inf, -np.inf, np.nan, 1e30])
def test_whatever_an_lstm_says_a_step_pays_some_of_what_is_left_and_the_last_one_all(output):
    wild = RecurrentScheduler(*CURVES, with_outputs(output, output))
    first, last = plan(wild), plan(wild, step=19, charge=19)
    assert MIN_BOUND < float(first.clip_norm) < MAX_BOUND
    even, odds = (
        share_of(plan(CurveScheduler(*CURVES))),
        np.exp(np.clip(np.nan_to_num(output), -MOST_LOGIT, MOST_LOGIT)),
    )
    assert share_of(first) == pytest.approx(even * odds / (1.0 + even * (odds - 1.0)), rel=1e-3)
    assert share_of(last) == pytest.approx(1.0, rel=1e-4)
    assert share_of(last) < 1.0


def test_prices_follow_released_answers_unless_noise_is_fixed_in_advance():
    strong = dataclasses.replace(SEEN, gradient=jnp.full(4, 30.0))
    for cls, inputs in ((RecurrentScheduler, SCHEDULE_INPUTS), (PublicRecurrentScheduler, PUBLIC_INPUTS)):
        scheduler = cls(*CURVES, recurrent(inputs, 2))
        multipliers = {float(plan(scheduler, observation).noise_multiplier) for observation in (SEEN, strong)}
        assert (len(multipliers) > 1) is scheduler.adaptive
