"""Queries whose sums are exact, their rows, and sums in whole units."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from l2p.models import find_model
from l2p.oracle.sums import add_quantized
from l2p.queries import (
    ClippedGradient,
)
from l2p.task.exact_sums import BLOCK, ExactSum, quantize
from l2p.task.feature_map import FeatureMap

D, CLIP = 5, 0.7


#: Powers of two and their neighbours, up to three blocks, and lengths at which a kernel of XLA was seen to change.
COUNTS = sorted({n + step for n in (2, 8, 16, 128, 1024, 4096) for step in (-1, 0, 1)} | {24, 25, 5000})


def f32(value):
    return jnp.asarray(value, jnp.float32)


def moved(size, basis=None):
    return FeatureMap(f32(np.linspace(0.2, 0.9, size)), f32(1.7), basis)


def params_for(model, size=D, scale=1.0, seed=1):
    return f32(np.random.default_rng(seed).normal(size=model.num_params(size)) * scale)


def gradient(model="logistic", features=None, size=D, scale=1.0):
    model = find_model(model) if isinstance(model, str) else model
    features = FeatureMap.identity(size) if features is None else features
    return ClippedGradient(model, params_for(model, size, scale), features, f32(CLIP), f32(1.0))


def table(count, size=D, seed=0, equal=False):
    """Rows of which some are null and some not finite; or the same row again and again."""
    random = np.random.default_rng(seed)
    x = np.full((count, size), 1 / 3) if equal else random.random((count, size)) ** 2
    y = np.ones(count) if equal else random.integers(0, 3, count) / 1.0
    mask = np.ones(count) if equal else random.random(count) < 0.9
    if not equal and count > 11:
        x[11, 0] = np.nan
    return tuple(np.asarray(leaf, np.float32) for leaf in (x, y, mask))


_raw = jax.jit(quantize)
_add = jax.jit(add_quantized)


def stacked(x, y, mask, blocks=3):
    """Blocks as a release makes them, followed by null ones, so that tests compile for one number of blocks."""
    with jax.enable_x64(True):
        lines = _raw(jnp.asarray(x), jnp.asarray(y), jnp.asarray(mask))
        assert lines.block.y.shape == (-(-len(y) // BLOCK), BLOCK)  # of one size for any table
        more = blocks - lines.block.y.shape[0]
        pad = lambda leaf: jnp.pad(leaf, [(0, more)] + [(0, 0)] * (leaf.ndim - 1))  # noqa: E731
        return lines.replace(block=jax.tree.map(pad, lines.block))


def units(total):
    return np.asarray(total.high).astype(np.int64) * 2**32 + np.asarray(total.low).astype(np.int64)


def summed(query, lines):
    with jax.enable_x64(True):
        return _add(query, lines, ExactSum.empty(query.empty().shape[0]))


def total(query, rows):
    return units(summed(query, stacked(*rows)))


@functools.cache
def alone(place):
    return stacked(*(leaf[place : place + 1] for leaf in table(max(COUNTS))))


def is_broken(sum_of, rows):
    """True if the last row's contribution to the table differs from its sum alone."""
    alone = sum_of(*(leaf[-1:] for leaf in rows))
    without, full = sum_of(*(leaf[:-1] for leaf in rows)), sum_of(*rows)
    return not np.array_equal(full, without + alone)
