"""Rivals for networks beside NumPy and optax: Adam without the noise's variance, a filtered gradient, a pull."""

import jax.numpy as jnp
import numpy as np
import pytest

from l2p.models import Logistic
from l2p.oracle.setup import Setup
from l2p.privacy import Adjacency, Budget, Filter
from l2p.protectors import HAND_DESIGNED, AdamBC, DiSK, Optax, ScaledAdam, TowardsStart
from l2p.protectors.hand_designed import log_constant, logit_constant
from l2p.protectors.stepwise.schedulers import Observation

D, STEPS = 3, 12
BUDGET = Budget(1.0, 1e-6)
SETUP = Setup.create(Logistic(), Adjacency.ZERO_OUT, Filter("gdp", BUDGET).price_list(), 300)
RANDOM = np.random.default_rng(0)
CURVATURE = RANDOM.uniform(0.1, 1.0, (D + 1, D + 1))
CURVATURE = CURVATURE @ CURVATURE.T / (D + 1)
MINIMUM = RANDOM.normal(size=D + 1)
NOISE = RANDOM.normal(size=(STEPS, D + 1))


def gradient(params):
    return CURVATURE @ (params - MINIMUM)


def trajectory(projector, std=0.0):
    """Params of a run on a quadratic with this noise, and what it ends with."""
    params = jnp.zeros(D + 1)
    state, path = projector.init(params, SETUP), []
    for step in range(STEPS):
        noised = jnp.asarray(gradient(np.asarray(params, float)) + std * NOISE[step], jnp.float32)
        observation = Observation(noised, jnp.float32(std), jnp.linalg.norm(noised))
        update, state = projector(state, observation, params, jnp.float32(step / STEPS), SETUP)
        params = params + update
        path.append(np.asarray(params))
    return np.stack(path), np.asarray(projector.at_end(state, params, observation, SETUP))


def adam(floor=1.0):
    return AdamBC(log_constant(0.1), logit_constant(0.9), logit_constant(0.99), log_constant(floor))


def test_without_noise_dp_adambc_is_adam():
    expected = Optax("adam", {"learning_rate": log_constant(0.1), "b1": jnp.array([0.9]), "b2": jnp.array([0.99])})
    np.testing.assert_allclose(trajectory(adam())[0], trajectory(expected)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("std", [0.03, 3.0])
def test_dp_adambc_takes_the_noises_variance_from_second_moments(std):
    params, mean, square, path = np.zeros(D + 1), 0.0, 0.0, []
    for step in range(STEPS):
        noised = gradient(params) + std * NOISE[step]
        mean, square = 0.9 * mean + 0.1 * noised, 0.99 * square + 0.01 * noised**2
        moment = np.maximum(square / (1 - 0.99 ** (step + 1)) - std**2, 0.5 * std**2)
        params = params - 0.1 * mean / (1 - 0.9 ** (step + 1)) / np.sqrt(moment)
        path.append(params)
    np.testing.assert_allclose(trajectory(adam(0.5), std)[0], path, rtol=1e-3, atol=1e-4)


def test_dp_adam_scaled_is_algorithm_8_of_its_paper():
    """On gradients that were clipped and noised after they were scaled (Ganesh et al. 2025)."""
    std, projector = 0.05, ScaledAdam(log_constant(0.1), logit_constant(0.9), logit_constant(0.99), log_constant(1.0))
    params, mean, square, path = np.zeros(D + 1), 0.0, np.zeros(D + 1), []
    ours, state, taken, before = jnp.zeros(D + 1), projector.init(jnp.zeros(D + 1), SETUP), [], 1.0
    for step in range(STEPS):
        moment = square / max(1 - 0.99**step, 1e-6) + before**2
        scale = np.sqrt(moment.mean() / moment)
        noised = (scale * gradient(params) + std * NOISE[step]) / scale
        mean, square = 0.9 * mean + 0.1 * noised, 0.99 * square + 0.01 * noised**2
        params = params - 0.1 * mean / (1 - 0.9 ** (step + 1)) / (np.sqrt(square / (1 - 0.99 ** (step + 1))) + 1e-8)
        path.append(params)
        own_scale = projector.scale(state, jnp.float32(before), SETUP)
        np.testing.assert_allclose(own_scale, scale, rtol=1e-3)
        answer = jnp.asarray(np.asarray(own_scale) * gradient(np.asarray(ours, float)) + std * NOISE[step], jnp.float32)
        observation = Observation(answer, jnp.float32(std), jnp.linalg.norm(answer), scale=own_scale)
        update, state = projector(state, observation, ours, jnp.float32(step / STEPS), SETUP)
        ours, before = ours + update, std
        taken.append(np.asarray(ours))
    np.testing.assert_allclose(taken, path, rtol=1e-3, atol=1e-4)
    assert np.ptp(scale) > 0.3


def test_disk_filters_what_the_paper_filters_and_ends_with_the_iterate():
    """The paper's two gradients, of which one has no weight at this gamma."""
    kappa = 0.7
    gamma = (1 - kappa) / kappa
    iterate = before = np.zeros(D + 1)
    for step in range(STEPS):
        weight = (1 - kappa) / (kappa * gamma)
        mixed = weight * gradient(iterate + gamma * (iterate - before)) + (1 - weight) * gradient(iterate)
        newest = mixed + 0.3 * NOISE[step]
        filtered = newest if step == 0 else (1 - kappa) * filtered + kappa * newest  # noqa: F821
        before, iterate = iterate, iterate - 0.5 * filtered
    path, end = trajectory(DiSK(log_constant(0.5), logit_constant(kappa)), std=0.3)
    np.testing.assert_allclose(end, iterate, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(path[-1], iterate + gamma * (iterate - before), rtol=1e-4, atol=1e-5)


def test_a_pull_ends_where_a_ridge_around_the_start_does():
    end = trajectory(TowardsStart(Optax("sgd", {"learning_rate": log_constant(0.2)}), log_constant(3.0)))[1]
    expected = np.linalg.solve(CURVATURE + 3.0 * np.eye(D + 1), CURVATURE @ MINIMUM)
    np.testing.assert_allclose(end, expected, atol=0.03 * np.linalg.norm(expected))


@pytest.mark.parametrize(
    "name", ["dp_adam", "dp_adamw", "dp_adambc", "dp_adam_scaled", "disk", "noisygd_pulled", "dp_adam_pulled"]
)
def test_they_train_models_of_users_own(name):
    assert HAND_DESIGNED[name](BUDGET).any_model


def test_weight_decay_is_on_released_params():
    """Without a gradient params shrink by the rate times the decay."""
    decayed = HAND_DESIGNED["dp_adamw"](BUDGET).projector
    start = jnp.ones(D + 1)
    silent = Observation(jnp.zeros(D + 1), jnp.float32(0.0), jnp.float32(0.0))
    update, _ = decayed(decayed.init(start, SETUP), silent, start, jnp.float32(0.0), SETUP)
    rate = float(jnp.exp(decayed.hyperparameters["learning_rate"][0]))
    np.testing.assert_allclose(update, -rate * 0.1 * np.ones(D + 1), rtol=1e-5)
