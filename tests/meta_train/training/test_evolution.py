import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from l2p.base import struct
from l2p.base.errors import InputError
from meta_train.config import Perturbed
from meta_train.training import evolution

KEYS = jax.random.split(jax.random.key(3), 4000)


@struct.dataclass
class Point:
    place: jax.Array
    public: jax.Array
    fixed = ("public",)


START = Point(jnp.array([0.7, -1.2, 0.1]), jnp.array(2.0))


def estimates(loss):
    """f64[keys, 3], and whether a fixed field ever had a slope."""
    gradients, _ = jax.jit(jax.vmap(lambda key: evolution.gradient(loss, START, key)))(KEYS)
    return np.asarray(gradients.place, np.float64), bool(jnp.any(gradients.public != 0))


def smooth(point):
    return jnp.sum(jnp.sin(point.place)) * point.public, 0.0


def stairs(point):
    """A step function, whose derivative is 0 nearly everywhere; on average it rises by 2 per unit of the first
    place."""
    return 2.0 * 0.01 * jnp.floor(point.place[0] / 0.01), 0.0


def p_values(gradients, slopes):
    deviation = gradients.std(0, ddof=1) / len(gradients) ** 0.5
    return 2 * stats.norm.sf(np.abs(gradients.mean(0) - slopes) / np.maximum(deviation, 1e-12))


def test_it_is_unbiased_and_a_wrong_slope_is_told():
    gradients, fixed_moved = estimates(smooth)
    assert not fixed_moved
    true = 2.0 * np.cos(np.asarray(START.place)) * np.exp(-(evolution.SPREAD**2) / 2)  # of the loss averaged around
    assert p_values(gradients, true).min() > 1e-6
    assert p_values(gradients, 1.2 * true).min() < 1e-6


def test_where_a_derivative_says_nothing_it_says_which_way_is_up():
    assert not jax.grad(lambda point: stairs(point)[0])(START).place.any()
    gradients, _ = estimates(stairs)
    assert p_values(gradients, np.array([2.0, 0.0, 0.0])).min() > 1e-6
    assert p_values(gradients, np.zeros(3)).min() < 1e-6


def test_runs_that_are_compared_share_their_noise():
    """Difference of two noises over twice the spread would otherwise dominate any slope."""

    def noisy(point, key):
        return point.place.sum() + 100.0 * jax.random.normal(key), point.place.sum()

    draw = jax.jit(jax.vmap(lambda key: evolution.gradient(noisy, START, key, jax.random.fold_in(key, 9))))
    gradients, middle = draw(KEYS)
    assert p_values(np.asarray(gradients.place, np.float64), np.ones(3)).min() > 1e-6
    np.testing.assert_allclose(middle, float(START.place.sum()), atol=1e-5)


def test_segments_are_refused():
    """Segments would continue runs without their perturbation; nor is there a derivative that could be damped."""
    for name, value in (("unroll", 5), ("damping", 1.0)):
        with pytest.raises(InputError, match=f"kind 'perturbed' has no {name}; choose among name, protector"):
            Perturbed.of("x", "control", **{name: value})
