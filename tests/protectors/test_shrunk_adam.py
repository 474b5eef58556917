"""Adam with steps that shrink by what of an averaged gradient is noise."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from l2p.models.custom import CustomLoss
from l2p.oracle.setup import Setup
from l2p.privacy import Adjacency, Budget, Filter
from l2p.protectors.learned.shrunk_adam import ShrunkAdam, scales, signal_shares
from l2p.protectors.stepwise.schedulers import Observation

SIZE = 600
SETUP = Setup.create(
    CustomLoss.stand_in(SIZE, 2), Adjacency.ZERO_OUT, Filter("gdp", Budget(1.0, 1e-5)).price_list(), 900
)
NOTHING = -40.0


def adam(**changes):
    numbers = {
        "log_learning_rate": np.log(0.01), "decay": 0.0, "logit_first": np.log(9.0), "logit_second": np.log(99.0),
        "logit_removed": NOTHING, "log_floor": NOTHING, "log_power": NOTHING, "scale_power": 0.0, "log_pull": NOTHING,
    }  # fmt: skip
    return ShrunkAdam(**{name: jnp.full(1, number) for name, number in (numbers | changes).items()})


def walked(projector, gradients, noise_std, start):
    """Params after steps on these gradients."""
    step, state, params = jax.jit(type(projector).__call__), projector.init(start, SETUP), start
    for number, gradient in enumerate(gradients):
        observation = Observation(gradient, jnp.float32(noise_std), None, None, None)
        update, state = step(projector, state, observation, params, jnp.float32(number / len(gradients)), SETUP)
        params = params + update
    return params


GRADIENTS = np.random.default_rng(0).normal(size=(5, SIZE)).astype(np.float32)
START = jnp.asarray(np.random.default_rng(1).normal(size=SIZE), jnp.float32)


def test_without_noise_pull_and_scale_it_is_adam():
    transformation = optax.adam(0.01, 0.9, 0.99, eps=0.0)
    state, expected = transformation.init(START), START
    for gradient in GRADIENTS:
        updates, state = transformation.update(gradient, state)
        expected = optax.apply_updates(expected, updates)
    np.testing.assert_allclose(walked(adam(), GRADIENTS, 0.0, START), expected, atol=1e-6)
    # Powers of a share of signal that is 1 are 1.
    np.testing.assert_allclose(walked(adam(log_power=0.0), GRADIENTS, 0.0, START), expected, atol=1e-6)


def test_of_noise_alone_little_is_taken_and_of_a_signal_as_much_as_there_is():
    noise = np.random.default_rng(2).normal(size=(8, SIZE)).astype(np.float32)
    plain, shrunk = (walked(adam(log_power=power), noise, 1.0, START) - START for power in (NOTHING, 0.0))
    assert jnp.linalg.norm(shrunk) < 0.2 * jnp.linalg.norm(plain)
    signal = noise + 3.0
    plain, shrunk = (walked(adam(log_power=power), signal, 1.0, START) - START for power in (NOTHING, 0.0))
    assert 0.85 < jnp.linalg.norm(shrunk) / jnp.linalg.norm(plain) < 0.99


def test_shares_are_those_of_each_tensor_and_of_all_where_one_is_small():
    sizes, deviation = (5, 4000), 1.5
    draw = np.random.default_rng(3).normal(size=(400, 4005)) * deviation + np.r_[np.zeros(5), np.full(4000, 2.0)]
    shares = np.array(
        jax.vmap(lambda mean: signal_shares(mean, jnp.float32(deviation**2), sizes))(jnp.asarray(draw, jnp.float32))
    )
    true = 4.0 / (4.0 + deviation**2)
    np.testing.assert_allclose(shares[:, 1].mean(), true, atol=0.01)
    assert shares[:, 1].std() < 0.02
    assert (shares[:, 0] > 0.5 * true).all()


def test_a_pull_ends_where_it_began_and_scales_are_those_of_the_start():
    pulled = walked(adam(log_pull=40.0), GRADIENTS, 0.0, START)
    plain = walked(adam(), GRADIENTS, 0.0, START)
    assert jnp.linalg.norm(pulled - START) < 0.5 * jnp.linalg.norm(plain - START)
    np.testing.assert_allclose(scales(jnp.r_[jnp.full(4, 3.0), jnp.zeros(16)], (4, 16)), [3.0, 0.25])
    longer = walked(adam(scale_power=1.0), GRADIENTS, 0.0, START) - START
    ratio = float(jnp.sqrt(jnp.square(START).mean())) / 0.1
    np.testing.assert_allclose(longer, ratio * (plain - START), rtol=2e-3, atol=1e-4)


def test_a_loss_that_is_counted_in_other_units_is_trained_alike():
    one, other = (
        walked(adam(log_power=0.0, logit_removed=0.0, log_floor=0.0), unit * (GRADIENTS + 1.0), unit, START)
        for unit in (1.0, 1000.0)
    )
    np.testing.assert_allclose(one, other, atol=1e-5)
