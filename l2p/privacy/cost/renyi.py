"""Renyi divergences of sampled Gaussian sums at one real order: one formula for float64 and, inside jit, for float32.

With mu = 1 / noise_multiplier, r(z) = 1 - q + q exp(mu z - mu^2 / 2) and l = ln r, the ratio of the mixture
(1 - q) N(0, 1) + q N(mu, 1) to N(0, 1), write E for the mean over z ~ N(0, 1). Then exp((order - 1) D) is at most

- `one_sided`: E[r^order] = 1 + E[r^order - 1 - order (r - 1)], for Poisson batches when one row leaves or enters
  (Mironov, Talwar & Zhang 2019); the second form has only positive terms, so there is no cancellation.
- `two_sided`: 1 + E[(r^order - 1)(1 - r^(1 - order)); z > mu / 2]. When a row of a fixed-size batch is replaced, the
  hockey-stick divergence of both directions is at most h(ln(1 + q (e^x - 1))) = q delta_mu(x) (Balle, Barthe & Gaboardi
  2018), for x > 0 that of the mixture above; integrating 1 + order (order - 1) (e^((order - 1) y) + e^(-order y)) h(y)
  over y > 0 gives this mean. The same bound covers Poisson batches when a row is replaced.

Sampling never costs more than reading every row: D <= order mu^2 / 2 (joint quasi-convexity).
"""

import enum
import functools
import math
from types import ModuleType
from typing import Any

import numpy as np

# Composite Gauss-Legendre with 8 points on each panel, of at most one standard deviation.
_POINTS = 8
#: Panels inside jit. Where they do not reach, order / noise_multiplier above 40, the price is that of a full batch:
#: within ln(1/q) order / (order - 1) of the truth, and far above what a run of more than a few steps spends per query.
PANELS = 64
_MANY_PANELS = 2048
_MAX_NOISE = 2.0**40  # as inside jit
# Standard deviations beyond which the integrand's Gaussian factor is below 1e-31 of its peak.
_TAIL = 12.0
# r^order - 1 - order (r - 1) in powers of l: the terms left out are below 1e-16 of the first while order * l <= 0.5.
_TERMS = 14
# Quadrature and float64 rounding together are below 1e-11, relative to the divergence.
_UP = 1 + 1e-9


class Neighbours(enum.StrEnum):
    """Ways in which the batches of two neighbouring tables may differ."""

    ONE_SIDED = "one_sided"
    TWO_SIDED = "two_sided"


@functools.cache
def _nodes(panels: int) -> tuple[np.ndarray, np.ndarray]:
    """Points and log weights on [0, 1], f64[8 panels] each."""
    points, weights = np.polynomial.legendre.leggauss(_POINTS)
    starts = np.arange(panels)[:, None] / panels
    return (starts + (points + 1) / 2 / panels).ravel(), np.log(np.tile(weights / 2 / panels, panels))


def divergence(
    noise_multiplier: Any,
    rate: Any,
    order: Any,
    neighbours: Neighbours,
    xp: ModuleType = np,
    unit_error: float = 0.0,
    panels: int = PANELS,
) -> Any:
    """Divergence of one sampled Gaussian sum: f[...] for noise_multiplier f[...] > 0, finite.

    Args:
      rate: q, probability that a given row is read.
      order: real, above 1.
      neighbours: selects the bound.
      xp: NumPy (float64) or jax.numpy (the dtype of noise_multiplier); the arithmetic is the same.
      unit_error: half the spacing of floats near 1; each term is raised by its possible rounding error.
      panels: of the quadrature; where order / noise_multiplier is beyond `panels - 2 * 12` the full batch's price is
        returned.

    >>> round(float(divergence(np.array(21.0), 1000 / 30400, 472.0, Neighbours.ONE_SIDED)), 6)
    0.0006
    """
    widest = panels - 2 * _TAIL
    mu = xp.minimum(1 / noise_multiplier, widest / order)[..., None]
    low = mu / 2 if neighbours is Neighbours.TWO_SIDED else xp.full_like(mu, -_TAIL)
    length = order * mu + _TAIL - low
    unit, log_weights = (xp.asarray(nodes, mu.dtype) for nodes in _nodes(panels))
    z = low + length * unit
    exponent = mu * z - mu * mu / 2
    log_ratio = xp.where(
        exponent < 1,
        xp.log1p(rate * xp.expm1(xp.minimum(exponent, 1.0))),
        xp.logaddexp(xp.log1p(-rate), xp.log(rate) + exponent),
    )
    log_density = log_weights + xp.log(length) - z * z / 2 - math.log(2 * math.pi) / 2
    grown = (_log_two_sided if neighbours is Neighbours.TWO_SIDED else _log_one_sided)(log_ratio, order, xp)
    # Rounding errors of an exponent grow with the terms whose difference it is.
    raised = 8 * unit_error * (z * z / 2 + xp.abs(order * log_ratio) + 16)
    sampled = _log1p_sum_exp(log_density + grown + raised, xp) / (order - 1)
    full_batch = order / noise_multiplier / noise_multiplier / 2 * (1 + 8 * unit_error)
    return xp.where(order > widest * noise_multiplier, full_batch, xp.minimum(sampled, full_batch))


def divergence_up(noise_multiplier: np.ndarray, rate: float, order: float, neighbours: Neighbours) -> np.ndarray:
    """`divergence` in float64, rounded up: f64[n]; infinite where the multiplier is NaN or not above 0."""
    noise_multiplier = np.asarray(noise_multiplier, np.float64)
    usable = (noise_multiplier > 1e-100) & (noise_multiplier <= _MAX_NOISE)
    # Less noise costs infinity, more noise is charged as the most: both err on the safe side.
    safe = np.where(usable, noise_multiplier, np.where(noise_multiplier > 1, _MAX_NOISE, 1.0))
    distinct, index = np.unique(safe, return_inverse=True)
    price = np.empty_like(distinct)
    near = order <= (PANELS - 2 * _TAIL) * distinct
    for group, panels in ((near, PANELS), (~near, _MANY_PANELS)):
        multipliers = distinct[group]
        pieces = np.array_split(multipliers, len(multipliers) * panels // 2**15 + 1)
        price[group] = np.concatenate([divergence(p, rate, order, neighbours, panels=panels) for p in pieces])
    return np.where(noise_multiplier > 1e-100, price[index.reshape(safe.shape)] * _UP, np.inf)


def _log_one_sided(log_ratio: Any, order: Any, xp: ModuleType) -> Any:
    """ln(r^order - 1 - order (r - 1)) from l = ln r."""
    power = order * log_ratio
    small = xp.abs(power) < 0.5
    near = xp.where(small, power, 0.5)
    series = xp.zeros_like(near)
    for k in range(_TERMS, 1, -1):
        series = series * near + (1 - order ** (1.0 - k)) / float(math.factorial(k))
    series = xp.log(series) + 2 * xp.log(xp.maximum(xp.abs(near), xp.finfo(power.dtype).tiny))
    # For large powers r^order is factored out, so that nothing overflows; r is capped, which raises the result.
    far = xp.where(small, 1.0, power)
    shift = xp.maximum(far, 0.0)
    reduced = xp.exp(far - shift) - xp.exp(-shift) * (1 + order * xp.expm1(xp.minimum(far / order, 60.0)))
    return xp.where(small, series, shift + xp.log(xp.maximum(reduced, xp.finfo(power.dtype).tiny)))


def _log_two_sided(log_ratio: Any, order: Any, xp: ModuleType) -> Any:
    """ln((r^order - 1)(1 - r^(1 - order))) from l = ln r > 0."""
    positive = xp.maximum(log_ratio, xp.finfo(log_ratio.dtype).tiny)
    up, down = order * positive, (order - 1) * positive
    return up + xp.log(-xp.expm1(-up)) + xp.log(-xp.expm1(-down))


def _log1p_sum_exp(terms: Any, xp: ModuleType) -> Any:
    """ln(1 + sum of exp(terms)) over the last axis, whatever the size of the terms."""
    top = xp.max(terms, axis=-1)
    log_sum = top + xp.log(xp.sum(xp.exp(terms - top[..., None]), axis=-1))
    return xp.maximum(log_sum, 0.0) + xp.log1p(xp.exp(-xp.abs(log_sum)))
