"""Numbers as curves: a few hat functions over a column's bounds, by which a linear model becomes an additive one.

A hat is 1 at its own knot, 0 at all others and linear in between (a B-spline of degree 1). At every value the hats sum
to 1, and at most two differ from 0, so their squares sum to between 1/2 and 1.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from l2p.base.errors import InputError
from l2p.tables.bounds import Interval, is_finite

#: How many knots a curve may have. Two would be a straight line, which needs no curve.
LEAST, MOST = 3, 64
#: Values crowd if their standard deviation is below this share of their bounds (benchmarks/pages/curves.md).
CROWDED = 0.14
#: How many knots, or the knots themselves, in order, from the lower bound to the upper one.
Curve = int | Sequence[float]


def checked_curve(curve: Any, bounds: Interval | None) -> Curve:
    """A declared curve of a number with `bounds`, which are None while they are still to be bought.

    Raises:
      InputError: it has too few or too many knots, or they are no increasing numbers between the bounds.

    >>> checked_curve(8, None), checked_curve([0, 10, 50], (0.0, 50.0))
    (8, (0.0, 10.0, 50.0))
    """
    if isinstance(curve, Sequence) and not isinstance(curve, str):
        return _checked_knots(curve, bounds)
    count = checked_count(curve)
    if bounds is not None and not (np.diff(knots_of(count, bounds)) > 0).all():
        raise InputError("the knots of a curve lie too close for numbers to tell them apart; write fewer.")
    return count


def _checked_knots(knots: Sequence[Any], bounds: Interval | None) -> tuple[float, ...]:
    checked_count(len(knots))
    if bounds is None:
        raise InputError(
            "the knots of a curve lie between its number's bounds, which are private; write how many "
            f'("curve": {len(knots)}), or declare bounds [low, high].'
        )
    if not all(map(is_finite, knots)):
        raise InputError("the knots of a curve must be finite numbers; write them in the column's own units.")
    checked = tuple(map(float, knots))
    if not all(low < high for low, high in itertools.pairwise(checked)):
        raise InputError(
            "the knots of a curve must increase, so that there is a line from each to the next; sort them."
        )
    if (checked[0], checked[-1]) != bounds:
        raise InputError(
            f"the knots of a curve begin at {checked[0]:g} and end at {checked[-1]:g}, but values reach from "
            f"{bounds[0]:g} to {bounds[1]:g}; write both bounds as knots."
        )
    return checked


def checked_count(count: Any) -> int:
    """A declared number of knots, or an `InputError`."""
    if not isinstance(count, int) or isinstance(count, bool) or not LEAST <= count <= MOST:
        raise InputError(
            f"a curve has from {LEAST} to {MOST} knots, between which it is straight; write how many "
            '("curve": 8), or the knots themselves ("curve": [0, 10, 20, 50]).'
        )
    return count


def knots_of(curve: Curve, bounds: Interval) -> np.ndarray:
    """Knots f64[k] of a curve between bounds; evenly spaced unless it names them.

    >>> knots_of(3, (0.0, 10.0)).tolist()
    [0.0, 5.0, 10.0]
    """
    return np.linspace(*bounds, curve) if isinstance(curve, int) else np.array(curve, np.float64)


def knots_among(values: np.ndarray, bounds: Interval, count: int) -> tuple[float, ...]:
    """Up to `count` knots for public values f64[n]: the bounds and, between them, the commonest values and quantiles of
    the others, so that about as many lie near each.

    >>> knots_among(np.array([*[0.0] * 90, 1.0, 2.0, 3.0, 40.0, 40.0, 90.0]), (0.0, 99.0), 5)
    (0.0, 2.0, 3.0, 40.0, 99.0)
    """
    low, high = bounds
    values, knots = values[(values > low) & (values < high)], {low, high}
    while len(values) and len(knots) < count:
        distinct, counts = np.unique(values, return_counts=True)
        if counts.max() * (count - len(knots) + 1) < len(values):
            break
        knots.add(float(distinct[counts.argmax()]))
        values = values[values != distinct[counts.argmax()]]
    if len(values) and len(knots) < count:
        shares = np.linspace(0, 1, count - len(knots) + 2)[1:-1]
        knots |= set(np.quantile(values, shares, method="nearest").tolist())
    return tuple(sorted(knots))


def crowds(values: np.ndarray, bounds: Interval) -> bool:
    """True if public values f64[n] lie so close together between their bounds that a line hardly tells them apart.

    >>> crowds(np.array([*[0.0] * 90, 1.0, 2.0, 3.0, 40.0, 40.0, 90.0]), (0.0, 99.0)), crowds(np.arange(99), (0, 99))
    (True, False)
    """
    low, high = bounds
    return float(np.clip(values, low, high).std()) < CROWDED * (high - low)


def hats(values: np.ndarray, knots: np.ndarray) -> np.ndarray:
    """Hats f32[n, k] of values f64[n], clipped to the k >= 1 increasing knots.

    >>> hats(np.array([-3.0, 1.0, 5.0, 20.0]), np.array([0.0, 4.0, 6.0])).tolist()
    [[1.0, 0.0, 0.0], [0.75, 0.25, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]]
    """
    x = np.zeros((len(values), len(knots)), np.float32)
    if len(knots) == 1:
        return x + np.float32(1)
    values = np.clip(values, knots[0], knots[-1])
    place = np.minimum(np.searchsorted(knots, values, side="right"), len(knots) - 1) - 1
    share = (values - knots[place]) / (knots[place + 1] - knots[place])
    rows = np.arange(len(values))
    x[rows, place], x[rows, place + 1] = 1.0 - share, share
    return x


def labels(knots: np.ndarray) -> tuple[str, ...]:
    """Knots in words that tell them apart, with few decimals.

    >>> labels(np.linspace(0, 100, 8)), labels(np.array([-0.2, 0.125, 1.0])), labels(np.array([0.0, 1e-300, 1e300]))
    (('0', '14', '29', '43', '57', '71', '86', '100'), ('-0.2', '0.1', '1'), ('0', '1e-300', '1e+300'))
    """
    decimals = math.ceil(-math.log10(np.diff(knots).min() / 2.0))  # half a step: no two round to one number
    if decimals > 15 or np.abs(knots).max() >= 1e15:
        return tuple(f"{knot!r}".removesuffix(".0") for knot in knots.tolist())
    rounded = [round(knot, max(0, decimals)) + 0.0 for knot in knots.tolist()]
    return tuple(f"{knot!r}".removesuffix(".0") for knot in rounded)
