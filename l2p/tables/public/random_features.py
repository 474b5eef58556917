"""Frozen random features of small images, so that a linear probe needs no trained network."""

import itertools

import numpy as np

from l2p.base.errors import InputError

#: Responses are averaged over a grid of GRID x GRID cells, so each filter gives PER_FILTER features.
GRID = 3
PER_FILTER = GRID * GRID
#: Default number of features: those of 32 filters.
FEATURES = 32 * PER_FILTER
#: Mean responses are divided by this public constant; the few that exceed it are clipped.
MAX_RESPONSE = 0.6
#: Images convolved at a time, to bound memory.
_BLOCK = 250
#: Pixels are multiples of 1 / 255 or 1 / 16, and filters are rounded to multiples of 1 / 1024, so sums
#: are over integers and exact, and a table has the same digest on every machine.
_PIXEL, _TAP = 4080.0, 1024.0


def random_features(images: np.ndarray, num_features: int = FEATURES) -> np.ndarray:
    """Random convolutions, rectified and averaged over a grid (Jarrett, Kavukcuoglu, Ranzato & LeCun 2009).

    Filters are drawn once from a fixed seed, have mean 0 and length 1 up to rounding, and are 5 x 5, or 3 x 3 on
    images of side 8.

    Args:
      images: f32[n, side, side] in [0, 1].
      num_features: nine per filter.

    Returns:
      f32[n, num_features] in [0, 1].

    Raises:
      InputError: the number is not a positive multiple of nine.

    >>> random_features(np.zeros((2, 28, 28), np.float32)).shape
    (2, 288)
    """
    if num_features < 1 or num_features % PER_FILTER:
        raise InputError(
            f"{num_features} frozen features were asked for, but each random filter gives {PER_FILTER}; choose a "
            f"multiple of {PER_FILTER}, such as {FEATURES} or {4 * FEATURES}."
        )
    side = images.shape[1]
    patch = 5 if side > 8 else 3
    filters = np.random.default_rng(0).normal(size=(patch * patch, num_features // PER_FILTER))
    filters -= filters.mean(0)
    filters = np.rint(_TAP * filters / np.linalg.norm(filters, axis=0))
    pixels = np.rint(_PIXEL * images.astype(np.float64))
    features = [_pooled(pixels[i : i + _BLOCK], filters, patch) for i in range(0, len(images), _BLOCK)]
    return np.clip(np.concatenate(features) / (_PIXEL * _TAP * MAX_RESPONSE), 0.0, 1.0).astype(np.float32)


def _pooled(images: np.ndarray, filters: np.ndarray, patch: int) -> np.ndarray:
    """f64[n, features] from integers stored as f64: sums are exact in any order, and a mean is rounded once."""
    windows = np.lib.stride_tricks.sliding_window_view(images, (patch, patch), axis=(1, 2))
    responses = np.maximum(windows.reshape(*windows.shape[:3], -1) @ filters, 0.0)
    edges = np.linspace(0, responses.shape[1], GRID + 1).round().astype(int)
    cells = [slice(low, high) for low, high in itertools.pairwise(edges)]
    means = [responses[:, rows, columns].mean((1, 2)) for rows in cells for columns in cells]
    return np.stack(means, 1).reshape(len(images), -1)
