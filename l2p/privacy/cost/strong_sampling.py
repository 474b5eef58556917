"""The noise of many Gaussian queries on random batches, by strong composition: BST14's calibration, made sound.

Each of T queries sums a batch of a share q of the rows, drawn afresh without replacement; a replaced row moves a sum by
at most its sensitivity. With standard deviation sqrt(2 ln(1.25 / d)) / e2 over the sensitivity, e2 <= 1, one query is
(e2, d)-private on its batch (Dwork & Roth 2014, Theorem A.1), so (e1, q d) on all rows, where e^e1 - 1 = q (e^e2 - 1)
(Balle, Barthe & Gaboardi 2018, Theorem 9), and all of them together are (epsilon, T q d + delta / 2)-private, where

    epsilon = T e1 (e^e1 - 1) + sqrt(2 T ln(2 / delta)) e1     (Dwork, Rothblum & Vadhan 2010).

So d = delta / (2 T q). Wu et al. (2017) use delta / T in both places, without adding them up, and a sensitivity of one
gradient's bound, where a replaced row needs two.
"""

import math

import jax
import jax.numpy as jnp

# Above the rounding of the few factors here in float32.
_MARGIN = 2.0**-16


def noise_ratio(epsilon: jax.Array, log_delta: jax.Array, num_queries: int, rate: float) -> jax.Array:
    """Standard deviation f32[] of each query's noise over its sensitivity to a replaced row; never too small.

    Args:
      epsilon, log_delta: f32[] each, of all queries together; log_delta the natural logarithm of delta, below 0.
      num_queries: T.
      rate: q, in (0, 1].

    >>> round(float(noise_ratio(jnp.float32(1.0), jnp.log(jnp.float32(1e-6)), 1000, 0.01)), 2)
    12.95
    """
    root = jnp.sqrt(2.0 * num_queries * (math.log(2.0) - log_delta))

    def spent(each: jax.Array) -> jax.Array:
        return num_queries * each * jnp.expm1(each) + root * each

    def halve(_: int, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = ends
        middle = (low + high) / 2
        fits = spent(middle) <= epsilon
        return jnp.where(fits, middle, low), jnp.where(fits, high, middle)

    each = jax.lax.fori_loop(0, 40, halve, (jnp.zeros_like(epsilon), epsilon / root))[0] * (1.0 - _MARGIN)
    on_batch = jnp.minimum(jnp.log1p(jnp.expm1(each) / rate), 1.0) * (1.0 - _MARGIN)
    log_share = log_delta - math.log(2.0 * num_queries * rate)
    return jnp.sqrt(2.0 * (math.log(1.25) - log_share)) / on_batch * (1.0 + _MARGIN)
