"""Margins of exact sums: those of exact arithmetic, and a hinge that turns where it says."""

import math
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.models import INTERCEPT_COLUMN, MODELS
from l2p.queries import (
    ClippedGradient,
)
from l2p.task import exact_sums
from l2p.task.exact_sums import BLOCK, Block, QuantizedRows, feature_bits
from l2p.task.feature_map import Basis, FeatureMap
from tests.task.rows_and_queries import D, f32, gradient, is_broken, moved, stacked, summed, table, total, units

RANDOM = np.random.default_rng(20261124)


def exact_dot(steps, shift, unit, weights, constant):
    """The sum that `Lines.dot` specifies, of weights rounded to whole units, in exact fractions."""
    bits = 52 - (feature_bits(len(weights)) + 1) - math.ceil(math.log2(len(weights)))
    scaled = [float(weight) * float(unit) for weight in np.asarray(weights, float)]
    step = max(max(map(abs, scaled)) * 2.0**-bits, abs(float(constant)) * 2.0**-52)
    units_of_weights = [Fraction(float(np.rint(weight / step))) for weight in scaled]
    moved_steps = [Fraction(float(s)) - Fraction(float(c)) for s, c in zip(steps, shift, strict=True)]
    terms = sum((s * w for s, w in zip(moved_steps, units_of_weights, strict=True)), Fraction(0))
    return float(terms + Fraction(float(np.rint(float(constant) / step)))) * step


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1.0, 1e9])
def test_margins_are_those_of_exact_arithmetic(scale):
    x, y, mask = table(40, seed=5)
    x[3] = x[4] = np.nan
    weights, constant = RANDOM.normal(size=D) * scale, RANDOM.normal() * scale
    weights[1] = -weights[0]  # cancels on rows that are equal there
    x[:, 1] = x[:, 0]
    with jax.enable_x64(True):
        lines = stacked(x, y, mask).map(moved(D))
        first = lines.replace(block=jax.tree.map(lambda leaf: leaf[0], lines.block))
        sums = np.asarray(jax.jit(QuantizedRows.dot)(first, f32(weights), jnp.asarray(constant)))[:40]
        steps, shift, unit = np.asarray(first.steps)[:40], np.asarray(first.shift), float(first.unit)
    exact = [exact_dot(line, shift, unit, np.float32(weights), constant) for line in steps]
    assert np.array_equal(sums, exact)
    # Rounding is small: features to 2^-22, weights to 2^-27 of the largest.
    valid = (mask > 0) & np.isfinite(x).all(1)
    values = (np.where(valid[:, None], x, 0) - np.asarray(moved(D).center)) * 1.7
    np.testing.assert_allclose(sums, values @ np.float32(weights) + constant, atol=5 * scale * 2e-6)


def hinge_gradient(x, y, params):
    """A hinge gradient's sign, by exact arithmetic on rounded features: -(2 y - 1) where (2 y - 1) margin < 1."""
    steps = np.rint(np.float32(x) * 2.0 ** feature_bits(D))
    constant = INTERCEPT_COLUMN * float(params[-1])
    margin = exact_dot(steps, np.zeros(D), 2.0 ** -feature_bits(D), np.float32(params[:-1]), constant)
    sign = 2 * y - 1
    return -sign if sign * margin < 1 else 0


def kinks():
    """Rows whose margin is 1 up to differences that float32 cannot represent: params of 2^26 that cancel."""
    params = np.float32([2.0**26, 1.0, -(2.0**26), 0.0, 0.0, 0.0])
    x = np.repeat(RANDOM.random((40, 1)), D, 1).astype(np.float32)
    x[:, 1] = 1.0
    x[::2, 1] -= 2.0**-20
    return x, np.ones(40, np.float32), params


def hinge_signs(margins, y):
    return np.asarray(MODELS["hinge"].residual(jnp.asarray(margins), jnp.asarray(y)))


def test_a_hinge_turns_where_exact_arithmetic_says():
    x, y, params = kinks()
    query = ClippedGradient(MODELS["hinge"], f32(params), FeatureMap.identity(D), f32(10.0), f32(1.0))
    expected = [hinge_gradient(line, label, params) for line, label in zip(x, y, strict=True)]
    assert 0 < np.count_nonzero(expected) < 40
    for place in range(40):
        part = total(query, (x[place : place + 1], y[place : place + 1], np.ones(1, np.float32)))
        assert np.sign(part[1]) == expected[place]


@pytest.mark.slow
def test_rows_mapped_outside_the_block_are_caught():
    size, bits = 128, feature_bits(128)
    forward = f32(np.random.default_rng(0).normal(size=(size, size)))
    features = moved(size, Basis(forward, jnp.linalg.inv(forward)))
    query, apply = gradient("logistic", None, size), jax.jit(features.apply)

    def mapped_before(x, y, mask):
        mapped, unit = np.asarray(apply(x)), 2.0 ** (5 - bits)
        with jax.enable_x64(True):
            empty = stacked(np.zeros_like(mapped), y, mask)
            steps = np.zeros((3 * BLOCK, size), np.float32)
            steps[: len(y)] = np.rint(mapped / unit)
            block = Block.of(jnp.asarray(steps.reshape(3, BLOCK, size)), empty.block.y, empty.block.counted)
            public = jnp.zeros(size), jnp.asarray(unit), jnp.asarray(-(2.0**bits))
            return units(summed(query, QuantizedRows(block, *public)))

    def mapped_within(x, y, mask):
        with jax.enable_x64(True):
            return units(summed(query, exact_sums.mapped(stacked(x, y, mask), features)))

    tables = [table(count, size, seed=count) for count in range(2, 12)]
    assert any(is_broken(mapped_before, rows) for rows in tables)
    assert not any(is_broken(mapped_within, rows) for rows in tables)


def test_a_kink_met_by_rounded_margins_is_caught():
    x, y, params = kinks()
    expected = [hinge_gradient(line, label, params) for line, label in zip(x, y, strict=True)]
    rounded = x @ params[:-1] + np.float32(INTERCEPT_COLUMN) * params[-1]
    assert not np.array_equal(hinge_signs(rounded, y), expected)
