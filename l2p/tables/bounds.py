"""Declared bounds of a table's columns: check them, and scale columns to [0, 1] by them."""

import math
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from l2p.base.errors import InputError

Interval = tuple[float, float]  # low < high


def interval(column: str, pair: Any) -> Interval:
    """A declared pair as floats, or an `InputError` that names its column.

    >>> interval("age", [0, 120])
    (0.0, 120.0)
    """
    return checked_bounds(pair, of=f" of column {column!r}")


def checked_bounds(pair: Any, otherwise: str = "from public knowledge", of: str = "") -> Interval:
    """A pair [low, high] as floats that cells can be scaled by, or an `InputError`.

    Args:
      pair: to check.
      otherwise: what else may be written, to end a message with.
      of: whose bounds they are, to follow "bounds".

    >>> checked_bounds((0, 1))
    (0.0, 1.0)
    """
    if not (isinstance(pair, (list, tuple)) and len(pair) == 2 and all(map(is_finite, pair))):
        raise InputError(f"bounds{of} must be two finite numbers, to scale cells by; write [low, high], {otherwise}.")
    low, high = map(float, pair)
    if not low < high:
        raise InputError(
            f"bounds{of} [{low:g}, {high:g}] leave no room between low and high; write the smaller number first, "
            f"{otherwise}."
        )
    if not is_finite(high - low):
        raise InputError(
            f"bounds{of} [{low:g}, {high:g}] are too far apart: cells are divided by high - low, which is above "
            f"{sys.float_info.max:.1e}, the largest number that can be computed with; write closer ones, {otherwise}."
        )
    return low, high


def is_finite(value: Any) -> bool:
    """True if this is a number that a float can hold; booleans are not numbers here.

    >>> is_finite(3), is_finite(True), is_finite(10**400), is_finite(np.float32("inf"))
    (True, False, False, False)
    """
    if not isinstance(value, (int, float, np.integer, np.floating)) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def scale(values: np.ndarray, bounds: Sequence[Interval]) -> np.ndarray:
    """f32[n, d] in [0, 1] from values [n, d] and d pairs low < high: (value - low) / (high - low), clipped silently.

    >>> scale(np.array([[0.0], [30.0], [200.0]]), [(0, 120)]).tolist()
    [[0.0], [0.25], [1.0]]
    """
    low, high = np.array(bounds, dtype=np.float64).T
    return ((np.clip(values, low, high) - low) / (high - low)).astype(np.float32)
