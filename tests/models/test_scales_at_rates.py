"""Slope and curvature of a loss at the shares of its classes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.models import find_model
from l2p.models.linear import SPREAD

BINARY = ("logistic", "svm", "hinge", "square", "mlp")


def scales(name, rates, kind=None):
    model = find_model(name)
    at_rates = model.scales_at_rates(jnp.asarray(rates, jnp.float32), kind or model.kind(model.labels))
    return [np.asarray(scale) for scale in at_rates]


@pytest.mark.parametrize("name", BINARY)
def test_even_shares_are_the_scale(name):
    for scale in scales(name, [0.5, 0.5]):
        np.testing.assert_allclose(scale, [1.0], rtol=1e-5)


@pytest.mark.parametrize("name", BINARY)
def test_neither_of_two_classes_is_special(name):
    np.testing.assert_allclose(scales(name, [0.1, 0.9]), scales(name, [0.9, 0.1]), rtol=1e-4)


@pytest.mark.slow(but=["square"])
@pytest.mark.parametrize("name", ["logistic", "svm", "square"])
def test_they_are_means_over_rows_whose_margins_spread_around_the_base_rate(name):
    model, rates, rows = find_model(name), jnp.array([0.94, 0.06]), 400_000
    kind = model.kind(model.labels)
    spread = SPREAD * model.typical_slope(kind) / model.typical_curvature(kind)
    labels, margins = jax.random.split(jax.random.key(0))
    margins = spread * jax.random.normal(margins, (rows,))

    def means(rates):
        y = (jax.random.uniform(labels, (rows,)) < rates[1]).astype(jnp.float32)
        around = model.base_margin(rates) + margins
        return jnp.abs(model.residual(around, y)).mean(), model.curvature(around, y).mean()

    expected = [scale / even for scale, even in zip(means(rates), means(jnp.full(2, 0.5)), strict=True)]
    # 21 nodes leave some of the bend of Huber's hinge out.
    np.testing.assert_allclose(np.ravel(scales(name, rates)), expected, rtol=0.2 if name == "svm" else 0.02)


def test_rare_classes_have_little_of_either_in_softmax_and_logistic_loss():
    slope, curvature = scales("softmax:4", [0.9, 0.06, 0.03, 0.01])
    np.testing.assert_allclose(slope, curvature)
    np.testing.assert_allclose(curvature, np.array([0.09, 0.0564, 0.0291, 0.0099]) / 0.1875, rtol=1e-4)
    assert scales("logistic", [0.99, 0.01])[1] < 0.06


def test_nothing_is_said_of_numbers_whose_spread_is_not_known():
    for scale in scales("square", [0.9, 0.1], "regression"):
        np.testing.assert_array_equal(scale, [1.0])
