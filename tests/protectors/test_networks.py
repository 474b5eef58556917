"""The inputs of a learned protector's networks."""

import chex
import flax.nnx as nnx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p import Adjacency, Budget, Oracle, Rows, Setup
from l2p.models import Logistic
from l2p.oracle import Terms, reader_of
from l2p.privacy import Filter, Poisson
from l2p.privacy.cap.spending import Spending
from l2p.protectors import MixProjector
from l2p.protectors.conditioning import standardize_rate, standardize_size
from l2p.protectors.stepwise.networks import apply_lstm, init_mlp, lstm_carry
from l2p.protectors.stepwise.projectors import COORDINATE_INPUTS, TENSOR_INPUTS
from l2p.protectors.stepwise.schedulers import Observation, ShareScheduler
from l2p.protectors.stepwise.stacked_lstm import StackedLSTM
from l2p.task.noise import KeyNoise
from tests.protectors.kalman_filters import recurrent

SETUP = Setup.create(Logistic(), Adjacency.ZERO_OUT, Filter("gdp", Budget(0.5, 1e-6)).price_list(), 100)
ROWS = Rows(jnp.zeros((100, 8)), jnp.zeros(100), jnp.ones(100))
PLAIN = MixProjector(jnp.array([[0.5, 0.2]]), jnp.array([[0.5, 0.0, 0.0, 1.0, 0.0]]))
SIZE, STD = 9, 0.3
#: As long as its noise on average.
NOISE = STD * jnp.where(jnp.arange(SIZE) % 2 == 0, 1.0, -1.0)
SIZE_AT, NEWEST_AT, MEAN_AT, MAX_AT, RATE_AT = 2, 3, TENSOR_INPUTS - 3, TENSOR_INPUTS - 2, TENSOR_INPUTS - 1


def update(projector, gradient=NOISE, strength=None, setup=SETUP):
    observation = Observation(gradient, jnp.float32(STD), jnp.linalg.norm(gradient), strength)
    return projector(projector.init(gradient, setup), observation, jnp.zeros(SIZE), jnp.float32(0.4), setup)[0]


def scaled_by(index):
    """A projector whose gain is the exponential of its network's input at `index`."""
    weight = jnp.zeros((TENSOR_INPUTS, 6)).at[index, 0].set(1.0)
    return PLAIN.replace(tensor_network={"layer0": {"w": weight, "b": jnp.zeros(6)}})


def log_gain(index, gradient=NOISE, strength=None):
    ratio = np.asarray(update(scaled_by(index), gradient, strength) / update(PLAIN, gradient, strength))
    assert np.ptp(ratio) < 1e-5 * ratio.max()
    return float(np.log(ratio[0]))


@pytest.mark.slow
def test_it_is_told_how_many_params_there_are():
    assert log_gain(SIZE_AT) == pytest.approx(standardize_size(SIZE), abs=1e-5)
    assert standardize_size(1) == standardize_size(2) < standardize_size(3) < standardize_size(5000) == 2.0


@pytest.mark.slow(but=["3", "4"])
@pytest.mark.parametrize("average", range(5))
def test_it_is_told_how_far_each_average_stands_out_of_its_noise(average):
    # Every average holds only the first gradient: pure noise gives an input of 0, and k times its length this value.
    assert log_gain(NEWEST_AT + average) == pytest.approx(0.0, abs=1e-5)
    assert log_gain(NEWEST_AT + average, 7 * NOISE) == pytest.approx(np.log(50 / 2) / 2, abs=1e-4)


def test_it_is_told_the_spectrum_that_was_bought():
    strength = jnp.arange(SIZE, dtype=jnp.float32)
    assert (log_gain(MEAN_AT), log_gain(MAX_AT)) == (0.0, 0.0)
    assert log_gain(MEAN_AT, strength=strength) == pytest.approx(1.0, abs=1e-5)
    assert log_gain(MAX_AT, strength=strength) == pytest.approx(2.0, abs=1e-5)


@pytest.mark.slow
def test_they_are_told_the_sampling_rate():
    sampled = Filter("rdp", Budget(0.5, 1e-6), Poisson(0.05), 20).price_list()
    batches = Setup.create(Logistic(), Adjacency.ZERO_OUT, sampled, 100)
    ratio = update(scaled_by(RATE_AT), setup=batches) / update(PLAIN, setup=batches)
    np.testing.assert_allclose(jnp.log(ratio), standardize_rate(0.05), rtol=1e-4)
    assert log_gain(RATE_AT) == pytest.approx(0.0, abs=1e-6)

    # A schedule whose clipping norm is the exponential of its input.
    last = {"layer0": {"w": jnp.zeros((4, 2)).at[3, 1].set(1.0), "b": jnp.zeros(2)}}
    schedule = ShareScheduler(jnp.zeros((1, 2)), jnp.zeros((1, 2)), network=last)
    observation = Observation(NOISE, jnp.float32(STD), jnp.float32(1.0))
    for setup, rate in ((SETUP, 1.0), (batches, 0.05)):
        noise, spending = KeyNoise(*[jax.random.key(0)] * 2), Spending(jnp.array(0.0), setup.cap)
        plan, _ = schedule(
            (), observation, Oracle(reader_of(ROWS), setup, spending, noise, jnp.array(0), Terms(sampled=True)), 20
        )
        assert float(jnp.log(plan.clip_norm)) == pytest.approx(standardize_rate(rate), abs=1e-5)
    assert standardize_rate(1e-4) == -2.0


def test_an_lstm_is_flaxs():
    params, inputs = recurrent(3, 2), jax.random.normal(jax.random.key(1), (2, 7, 3))
    theirs = StackedLSTM(3, 20, 2, nnx.Rngs(0))
    graph, state = nnx.split(theirs)
    nnx.replace_by_pure_dict(state, params)
    theirs, zeros = nnx.merge(graph, state), jnp.zeros((7, 20))
    expected, carry = ((zeros, zeros), (zeros, zeros)), lstm_carry(7, 20)
    for step in inputs:
        expected, output = theirs(expected, step)
        carry, own = apply_lstm(params, carry, step)
        np.testing.assert_allclose(own, output, rtol=1e-4, atol=1e-6)
    chex.assert_trees_all_close(jax.tree.map(jnp.transpose, carry), expected, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_seeds_side_by_side_take_their_own_averages():
    # From 2 x 6 runs of 2,731 numbers up, XLA for CPUs used the first seed's averages for all seeds (`MixProjector`).
    num_seeds, num_budgets, size = 3, 6, 2890
    network = init_mlp(jax.random.key(1), (COORDINATE_INPUTS, 8, 6))
    network["layer1"]["w"] += 0.1 * jax.random.normal(jax.random.key(2), (8, 6))
    gradient = jax.random.normal(jax.random.key(3), (num_seeds, num_budgets, size))
    setups = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (num_budgets, *jnp.shape(leaf))), SETUP)

    def end(projector, setup, gradient):
        params = jnp.zeros(size)
        observation = Observation(gradient, jnp.float32(STD), jnp.linalg.norm(gradient))
        return params + projector(projector.init(params, setup), observation, params, jnp.float32(0.4), setup)[0]

    for projector in (PLAIN, PLAIN.replace(coordinate_network=network)):
        projectors = jax.tree.map(lambda leaf: jnp.stack([leaf] * num_budgets), projector)
        run = jax.jit(jax.vmap(jax.vmap(end), (None, None, 0)))
        together = run(projectors, setups, gradient)
        for seed in range(num_seeds):
            alone = run(projectors, setups, gradient[seed : seed + 1])[0]
            np.testing.assert_allclose(together[seed], alone, rtol=1e-4, atol=1e-5)
