"""Objective perturbation: the convexity and the noise that make the minimiser of a noised objective private.

Let F(w) = sum of l(w, row) + (Delta/2) ||w||^2 + b.w with b ~ N(0, sigma^2 I), and release the minimiser. Every loss
depends on its row x through the margin x.w alone, with ||grad l|| <= zeta and a Hessian of at most lambda (rank 1).
The minimiser and b determine each other, b = -grad(F - b.w), so for one more row the densities of the minimiser differ
by two factors (Chaudhuri, Monteleoni & Sarwate 2011; Kifer, Smith & Thakurta 2012):

- The Jacobians' ratio is at most 1 + lambda / Delta, a loss of kappa = ln(1 + lambda / Delta). For a replaced row both
  Jacobians have one more term of rank 1 than what they share, so the ratio is at most the same.
- The noise is shifted by v = s x with |s| ||x|| <= zeta, a loss of (2 b.v + ||v||^2) / (2 sigma^2). Here v depends on w
  and hence on b, but its direction does not: |b.v| <= zeta |z| sigma with a standard normal z. So with m = zeta / sigma
  the loss is at most kappa + m |z| + m^2 / 2 in distribution, and integrating max(0, 1 - e^(epsilon - loss)) gives

      delta = 2 gdp_delta(m, epsilon - kappa)   while m^2 / 2 <= epsilon - kappa

  (compare Redberg, Koskela & Wang 2023 on generalized linear models, and there the gap of the published proof, which
  treats v as if it did not depend on b). For a replaced row v is a difference of two such terms,
  |b.v| <= zeta (|z1| + |z2|) sigma <= 2 zeta max(|z1|, |z2|) sigma, so m = 2 zeta / sigma and delta doubles once more.

The loss need not be twice differentiable: where its gradient is Lipschitz in the margin, as for the Huber SVM, w and b
are bi-Lipschitz functions of each other, and all of this holds almost everywhere.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

_LOG_ROOT = 0.5 * math.log(2 * math.pi)
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(5)
# The root found in float32 is within 1e-4 of the true one (tests/privacy/test_objective.py).
_MARGIN = 1 - 2.0**-10
_ROUNDING = 2.0**-18


class Calibration(NamedTuple):
    """Convexity and noise of a private objective.

    Attributes:
      convexity: f32[], Delta, the least strong convexity of the whole objective, regulariser included.
      noise_scale: f32[], sigma, the standard deviation of each coordinate of b.
    """

    convexity: jax.Array
    noise_scale: jax.Array


def published(
    epsilon: jax.Array, log_delta: jax.Array, lipschitz: jax.Array, smoothness: jax.Array, factor: float
) -> Calibration:
    """The calibration of Kifer, Smith & Thakurta (2012): Delta = 2 lambda / epsilon, and half of epsilon for the noise.

    sigma^2 = zeta^2 (8 ln(2 / delta) + 4 epsilon) / epsilon^2. Sound as argued above: kappa <= epsilon / 2, and the
    loss of the noise exceeds epsilon / 2 only where |z| > t = sqrt(2 ln(2 / delta)), whose probability is at most
    e^(-t^2/2) = delta / 2; where a row is replaced, with 2 zeta for zeta, only where one of two does, at most delta.

    Args:
      epsilon, log_delta: f32[] each, log_delta the natural logarithm of delta.
      lipschitz: f32[], zeta, bound on one row's gradient.
      smoothness: f32[], lambda, bound on one row's Hessian.
      factor: 2 where a row is replaced, else 1 (`Adjacency.sensitivity_factor`).
    """
    convexity = 2.0 * smoothness / epsilon * (1.0 + _ROUNDING)
    root = jnp.sqrt(8.0 * (math.log(2.0) - log_delta) + 4.0 * epsilon)
    return Calibration(convexity, factor * lipschitz * root / epsilon * (1.0 + _ROUNDING))


def exact(
    epsilon: jax.Array,
    log_delta: jax.Array,
    lipschitz: jax.Array,
    smoothness: jax.Array,
    factor: float,
    share: jax.Array,
    convexity: jax.Array,
) -> Calibration:
    """The calibration by the exact curve of the Gaussian: about 1.4 times less noise than `published` at small epsilon.

    Args:
      epsilon, log_delta, lipschitz, smoothness, factor: as for `published`.
      share: f32[], of epsilon that the Jacobians may take, in (0, 1).
      convexity: f32[], that the objective already has; if it exceeds what the share asks for, the Jacobians take less
        and the noise gets the rest.
    """
    convexity = jnp.maximum(convexity, smoothness / jnp.expm1(share * epsilon) * (1.0 + _ROUNDING))
    remaining = epsilon - jnp.log1p(smoothness / convexity) * (1.0 + _ROUNDING)
    ratio = gaussian_ratio(remaining * (1.0 - _ROUNDING), log_delta - math.log(2.0 * factor))
    return Calibration(convexity, factor * lipschitz / ratio * (1.0 + _ROUNDING))


def gaussian_ratio(epsilon: jax.Array, log_delta: jax.Array) -> jax.Array:
    """About the largest m f32[] with gdp_delta(m, epsilon) <= delta and m^2 / 2 <= epsilon, and never more.

    `convert.gdp_mu` is this in float64 on the host; here it is differentiable, and within 2e-3 below.

    >>> round(float(gaussian_ratio(jnp.float32(0.1), jnp.log(jnp.float32(1e-8)))), 4)
    0.0217
    """

    def excess(log_ratio: jax.Array) -> jax.Array:
        return _log_delta(jnp.exp(log_ratio), epsilon) - log_delta

    # rho + 2 sqrt(rho ln(1 / delta)) <= epsilon is enough.
    rho = jnp.square(epsilon / (jnp.sqrt(epsilon - log_delta) + jnp.sqrt(-log_delta)))
    low, high = 0.5 * jnp.log(2.0 * rho), 0.5 * jnp.log(2.0 * epsilon)

    def halve(_: int, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = ends
        middle = (low + high) / 2
        fits = excess(middle) <= 0
        return jnp.where(fits, middle, low), jnp.where(fits, high, middle)

    def solve(_: object, low: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, 32, halve, (low, jax.lax.stop_gradient(high)))[0]

    root = jax.lax.custom_root(excess, jax.lax.stop_gradient(low), solve, lambda g, y: y / g(jnp.ones_like(y)))
    return jnp.exp(root) * _MARGIN


def _log_delta(mu: jax.Array, epsilon: jax.Array) -> jax.Array:
    """log gdp_delta(mu, epsilon) f32[] for mu^2 / 2 <= epsilon: with low and high = epsilon / mu -+ mu / 2, the
    logarithm of phi(low) (M(low) - M(high)), where M(x) = Phi(-x) / phi(x), for phi(low) = e^epsilon phi(high)."""
    low, high = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    # Close together, the two nearly cancel: integrate -M'(x) = 1 - x M(x) > 0 between them.
    points = epsilon / mu + mu / 2 * jnp.asarray(_NODES, jnp.float32)
    slope = jnp.maximum(1.0 - points * _mills(points), 1e-6) @ jnp.asarray(_WEIGHTS / 2, jnp.float32)
    near = mu < 0.5
    apart = jnp.where(near, 1.0, _mills(low) - _mills(high))
    return -low * low / 2 - _LOG_ROOT + jnp.where(near, jnp.log(mu) + jnp.log(slope), jnp.log(apart))


def _mills(x: jax.Array) -> jax.Array:
    return jnp.exp(jax.scipy.special.log_ndtr(-x) + x * x / 2 + _LOG_ROOT)
