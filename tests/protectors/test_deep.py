"""Adam with a pull to the start, and the network that corrects it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from l2p.models.custom import CustomLoss
from l2p.protectors import DeepProjector, Optax, PulledAdam
from l2p.protectors.by_hand.pulled import sizes_of
from l2p.protectors.hand_designed import log_constant, logit_constant
from l2p.protectors.learned.deep import INPUTS, OUTPUTS, tensor_sizes
from l2p.protectors.stepwise.networks import init_mlp
from l2p.protectors.stepwise.schedulers import Observation
from meta_train.tasks.networks import find
from tests.protectors.examples import network
from tests.protectors.test_network_rivals import SETUP, D, trajectory

STEPS = 60


def pulled(pull, cls=PulledAdam, **others):
    rate, pull = (jnp.zeros((1, 5)).at[0, 0].set(np.log(constant)) for constant in (0.1, pull))
    return cls(rate, pull, logit_constant(0.9), logit_constant(0.99), **others)


def run(projector, gradients, start, setup=SETUP, std=0.3):
    """Params after steps on these noised gradients f32[T, p]."""

    @jax.jit
    def go(gradients, start):
        def step(carry, gradient):
            params, state = carry
            observation = Observation(gradient, jnp.float32(std), jnp.float32(1.0))
            update, state = projector(state, observation, params, jnp.float32(0.5), setup)
            return (params + update, state), None

        return jax.lax.scan(step, (start, projector.init(start, setup)), gradients)[0][0]

    return np.asarray(go(gradients, start))


def drawn(seed, size):
    return jax.random.normal(jax.random.key(seed), (STEPS, size)) + 0.5


def test_without_a_pull_it_is_adam():
    expected = Optax("adam", {"learning_rate": log_constant(0.1), "b1": jnp.array([0.9]), "b2": jnp.array([0.99])})
    expected = dataclasses.replace(expected, logit_scale=())
    np.testing.assert_allclose(trajectory(pulled(1e-9))[0], trajectory(expected)[0], rtol=1e-4, atol=1e-5)


def test_no_coordinate_goes_farther_than_the_pull_allows():
    """Gradients that never change move it by the learning rate at every step; it ends 1 / pull from its start."""
    end = run(pulled(2.0), jnp.tile(jnp.array([1.0, -1e-3]), (300, 1)), jnp.ones(2))
    np.testing.assert_allclose(end, [0.5, 1.5], atol=0.06)


def test_a_new_network_changes_nothing_and_one_that_learned_does():
    start, gradients = jnp.zeros(D + 1), drawn(0, D + 1)
    plain = run(pulled(0.5), gradients, start)
    new = pulled(0.5, DeepProjector, network=init_mlp(jax.random.key(0), (INPUTS, 8, OUTPUTS)))
    learned = new.replace(network=network((INPUTS, 8, OUTPUTS)))
    np.testing.assert_allclose(run(pulled(0.5, DeepProjector), gradients, start), plain, rtol=1e-5)
    np.testing.assert_allclose(run(new, gradients, start), plain, rtol=1e-5)
    assert np.abs(run(learned, gradients, start) - plain).max() > 0.01


def test_a_loss_and_its_mirror_image_end_in_mirror_images():
    learned = pulled(0.5, DeepProjector, network=network((INPUTS, 8, OUTPUTS)))
    signs, start = jnp.array([1.0, -1.0, 1.0, -1.0]), jnp.arange(4.0)
    gradients = drawn(1, 4)
    end = run(learned, gradients, start)
    np.testing.assert_allclose(
        run(learned, signs[None, :] * gradients, signs * start), signs * end, rtol=1e-4, atol=1e-5
    )


def test_the_unit_of_gradients_does_not_matter():
    """Where clipping norm and noise have it, too: inputs are over the noise, but for the noise itself."""
    layers = network((INPUTS, 8, OUTPUTS))
    layers["layer0"]["w"] = layers["layer0"]["w"].at[10].set(0.0)
    learned, gradients = pulled(0.5, DeepProjector, network=layers), drawn(2, 4)
    end = run(learned, gradients, jnp.zeros(4))
    np.testing.assert_allclose(run(learned, 30.0 * gradients, jnp.zeros(4), std=9.0), end, rtol=1e-3, atol=1e-4)


def test_tensors_are_told_apart():
    """What one of them is given changes the steps of its own coordinates, and of others through the whole run alone."""
    model = find("relu:2:2", 3)
    sizes = tensor_sizes(model, model.num_params(4))
    assert sizes == (2, 6, 2, 4)
    assert tensor_sizes(CustomLoss.stand_in(7, 3), 7) == (7,)
    assert tensor_sizes(SETUP.model, 5) == (5,)


def test_sizes_are_clipped():
    setup = dataclasses.replace(SETUP, num_rows=jnp.float32(1e9))
    np.testing.assert_allclose(sizes_of(setup, 10**9), [2.0, 2.0])
    np.testing.assert_allclose(sizes_of(dataclasses.replace(SETUP, num_rows=jnp.float32(0.0)), 1), [-2.0, -2.0])
