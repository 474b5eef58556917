"""Networks and curves of a Kalman filter: moments of networks, and networks that change its constants."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.base import struct
from l2p.checkpoints.checkpoint import load
from l2p.models import MODELS, find_model
from l2p.protectors import KalmanProjector, RecurrentProjector, RecurrentSteps, conditioning
from l2p.protectors.conditioning import (
    KNOT_RANGE,
    MOST_FEATURES,
    NARROW,
    Covariates,
    between_knots,
    covariates_for,
    covariates_of,
)
from l2p.protectors.learned.kalman import INPUTS, OUTPUTS
from l2p.protectors.stepwise.schedulers import Observation
from tests.protectors.kalman_filters import CURVATURE, MINIMUM, MOMENT, SETUP, WIDE, filter_of, recurrent, trajectory


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
    knots = jnp.array([[0.0] * 6, [4.0, 1.0, 2.0, 3.0, 5.0, 7.0], [2.0, *[0.0] * 5]])
    low, high = KNOT_RANGE
    places = (low - 9, low, (low + high) / 2, high, high + 9)
    for indicators, middle in (((0, 0, 0), 6.0), ((1, 0, 0), 9.0), ((0, 1, 0), 11.0), ((0, 1, 1), 18.0)):
        values = [float(between_knots(knots, Covariates(jnp.array(at), 1.0, 0.5, *indicators))) for at in places]
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
    most = conditioning.WIDE
    assert [of(features).very_wide for features in (NARROW + 1, most, most + 1, 10_000)] == [0.0, 0.0, 1.0, 1.0]
    networks = dataclasses.replace(SETUP, model=find_model("mlp"))
    assert covariates_for(networks, most + 1).very_wide == 0.0 < covariates_for(networks, most + 1).wide
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


@pytest.mark.slow
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


def with_lstm(cls, plain, bias):
    """A filter as one of a class with an LSTM whose outputs are always `bias` f32[OUTPUTS]."""
    network = jax.tree.map(jnp.zeros_like, recurrent(INPUTS, OUTPUTS))
    network = network | {"head": network["head"] | {"bias": jnp.asarray(bias)}}
    return cls(**struct.children(plain) | {"network": network})


@pytest.mark.slow
def test_an_lstm_starts_as_the_filter_and_corrects_it_as_a_network_does():
    plain, noise = filter_of(spread=1.0, certain=0.5, momentum=-1.0), jnp.float32(0.1)
    for bias in (jnp.zeros(OUTPUTS), jnp.array([-0.5, 0.3, -1.0, 1.0])):
        network = dataclasses.replace(plain, network=network_of(*bias))
        expected = trajectory(network if bias.any() else plain, noise, 5)
        np.testing.assert_allclose(trajectory(with_lstm(RecurrentProjector, plain, bias), noise, 5), expected)


def test_an_lstm_remembers():
    projector = RecurrentProjector(**struct.children(filter_of()) | {"network": recurrent(INPUTS, OUTPUTS)})
    memory = projector.init(jnp.zeros(4), SETUP).memory
    first, memory = projector._corrections(memory, jnp.ones((4, INPUTS)))
    second, _ = projector._corrections(memory, jnp.ones((4, INPUTS)))
    assert float(jnp.abs(second.longer - first.longer).min()) > 1e-3


@pytest.mark.slow
def test_an_lstm_may_take_the_filters_place():
    """At first it takes no step; from then on its output times the length that the filter expects of its own."""
    plain, noise = filter_of(spread=1.0, certain=0.5, momentum=-20.0), jnp.float32(0.1)
    assert not trajectory(with_lstm(RecurrentSteps, plain, jnp.zeros(OUTPUTS)), noise, 5).any()
    steps, firsts = (with_lstm(RecurrentSteps, plain, [size, 0.0, 0.0, 0.0]) for size in (-1.0, 2.0)), []
    for projector in steps:
        firsts.append(trajectory(projector, noise, 1)[0])
    np.testing.assert_allclose(firsts[1], -2.0 * firsts[0], rtol=1e-5)
    own = np.stack([trajectory(plain, noise, 1, key)[0] for key in range(40)])
    assert (np.abs(firsts[0]) < 3.0 * np.abs(own).max(0)).all()
    assert (firsts[0] < 0).all()
