import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from l2p.base import struct
from l2p.protectors.learned.tunable import partition
from meta_train.training import differences
from meta_train.training.untrained.filters import control_line

KEYS = jax.random.split(jax.random.key(5), 2000)
WEIGHTS = jnp.array([0.25, 0.75, 0.0])


@struct.dataclass
class Part:
    """A share that costs 1 and earns 3 in its value, a threshold above which the run earns 2, and a plain number."""

    share: jax.Array
    least: jax.Array
    plain: jax.Array
    by_difference = ("share", "least")


KNOTS = jnp.zeros((3, 5)).at[:, 0].set(jnp.array([-1.0, 0.5, 9.0]))
START = Part(KNOTS, jnp.array(0.1), jnp.array(2.0))


def loss(part, key):
    """Its derivative sees what the share costs, as of one that buys eigenvectors."""
    value = WEIGHTS @ part.share @ jnp.array([1.0, 0.5, 0.0, 0.0, 0.0])
    earned = 2.0 * (part.least < 0.4 * jax.random.uniform(key))
    return value - 3.0 * jax.lax.stop_gradient(jnp.sin(value)) - earned + part.plain**2, value


@pytest.mark.slow
def test_a_misleading_derivative_is_scaled_to_the_slope_that_runs_show():
    measured = differences.gradient(loss)
    slopes, _ = jax.jit(jax.vmap(measured, (None, 0, None)))(START, KEYS, jax.random.key(0))
    # At the moved values, so that sin's slope is averaged over the move.
    value = float(WEIGHTS @ KNOTS[:, 0])
    true = 1.0 - 3.0 * np.cos(value) * np.sin(differences.SPREAD) / differences.SPREAD
    expected = true * np.outer(WEIGHTS, [1.0, 0.5, 0.0, 0.0, 0.0])
    mean, error = slopes.share.mean(0), slopes.share.std(0) / len(KEYS) ** 0.5
    np.testing.assert_array_less(np.abs(mean - expected), 4.0 * error + 1e-5)
    derivative = jax.grad(lambda part: loss(part, jax.random.key(0))[0])(START).share
    assert derivative[1, 0] > 0.0 > expected[1, 0]  # it says to spend less where more would earn
    assert np.all(slopes.plain == 4.0)


def test_a_threshold_without_a_derivative_has_the_slope_of_its_runs():
    """A run earns with probability 1 - least / .4, which a move of .3 to either side changes from 1 to 0."""
    keys = jax.random.split(jax.random.key(6), len(KEYS))
    slopes, _ = jax.jit(jax.vmap(differences.gradient(loss), (None, 0, 0)))(START, KEYS, keys)
    slope = 2.0 / (2.0 * differences.SPREAD)
    p_value, steeper = (stats.ttest_1samp(slopes.least, mean).pvalue for mean in (slope, 1.2 * slope))
    assert p_value > 1e-4 > steeper


def test_what_is_not_bought_has_no_slope():
    derivative = differences._scaled(jnp.zeros((3, 5)), jnp.ones((3, 5)), jnp.float32(7.0))
    assert not derivative.any()


@pytest.mark.parametrize(
    ("tunes", "expected"), [("all", True), ("narrow", True), ("guards", True), ("very_wide", False)]
)
def test_runs_are_compared_only_where_such_a_constant_is_tuned(tunes, expected):
    floats, _ = partition(control_line(jax.random.key(0)))
    assert differences.has_any(floats, tunes) == expected
    assert jax.jit(lambda floats: jnp.array(differences.has_any(floats, tunes)))(floats) == expected
