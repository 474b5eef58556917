"""Width of a prior, estimated from noised values."""

import jax.numpy as jnp
import numpy as np
import pytest

from l2p.protectors.stepwise.empirical_bayes import LOG_SCALES, log_scale


def shown(value, noise, count=400.0, width=2.0):
    return float(log_scale(*map(jnp.float32, (value, noise, count, width))))


@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
def test_without_noise_many_values_tell_the_scale(scale):
    assert shown(scale, 0.0) == pytest.approx(np.log(scale), abs=0.25)  # half a step of the grid


def test_values_that_noise_explains_tell_nothing():
    assert shown(0.0, 1e6) == pytest.approx(0.0, abs=0.01)
    assert shown(-300.0, 1e6, width=1.0) == pytest.approx(0.0, abs=0.05)


def test_fewer_values_and_a_narrower_width_keep_it_nearer_to_what_was_assumed():
    far = [shown(20.0, 1.0, count, width) for count, width in ((400.0, 2.0), (4.0, 2.0), (4.0, 0.3))]
    assert far[0] > far[1] > far[2] > 0.0
    assert shown(0.0, 1.0) < shown(0.0, 1.0, count=2.0) < 0.0


def test_nothing_beyond_the_grid_and_nothing_that_is_not_finite():
    for value, noise in ((1e30, 0.0), (-1e12, 1e12), (0.0, 0.0), (1e12, 1e12)):
        assert LOG_SCALES[0] <= shown(value, noise, width=20.0) <= LOG_SCALES[-1]
