"""Kalman filters on a quadratic of three features, and LSTMs for them."""

import jax
import jax.numpy as jnp
import numpy as np

from l2p.models import MODELS
from l2p.models.base import INTERCEPT_COLUMN
from l2p.oracle.setup import Setup
from l2p.privacy import Budget, Filter
from l2p.protectors import KalmanProjector
from l2p.protectors.learned.lstm import NUM_UNITS
from l2p.protectors.stepwise.networks import init_lstm
from l2p.protectors.stepwise.schedulers import Observation

MODEL, BUDGET, N = MODELS["square"], Budget(1.0, 1e-6), 1000
SETUP = Setup.create(MODEL, BUDGET.adjacency, Filter("gdp", BUDGET).price_list(), N)
MOMENT = jnp.array([0.5, 0.1, 0.02, 0.0])  # of three features, and of an intercept
CURVATURE = jnp.array([0.5, 0.1, 0.02, INTERCEPT_COLUMN**2])
MINIMUM = jnp.array([1.0, -2.0, 3.0, 0.5])


#: Far above the largest of `MINIMUM`, in margins.
WIDE = 6.0


def curve(number):
    return jnp.array([[number, *[0.0] * 5]])


def filter_of(spread=WIDE, certain=30.0, momentum=-30.0, width=1.0):
    """A filter without corrections for larger curvature, clipping, rare classes or few rows, and that never returns."""
    quadratic = {"log_spread": spread, "log_intercept": spread, "log_gradient_norm": -20.0, "log_sampling": -30.0}
    quadratic |= dict.fromkeys(("log_curvature", "log_unknown", "spread_power", "log_steepest", "rate_power"), 0.0)
    steps = {"log_width": width, "logit_certain": certain, "logit_momentum": momentum, "logit_return": -30.0}
    return KalmanProjector(**{name: curve(number) for name, number in (quadratic | steps).items()})


def recurrent(num_inputs, num_outputs):
    """Parameters of an LSTM, noise in every one, so that its head has an effect."""
    random = np.random.default_rng(17)
    like = jax.eval_shape(lambda key: init_lstm(key, num_inputs, NUM_UNITS, num_outputs), jax.random.key(0))
    return jax.tree.map(lambda leaf: jnp.asarray(0.2 * random.standard_normal(leaf.shape), jnp.float32), like)


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
