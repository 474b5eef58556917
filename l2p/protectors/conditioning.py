"""Hyper-parameters as functions of the budget and the table's size."""

import jax
import jax.numpy as jnp

#: log(mu N) is centred and scaled by these before it enters a polynomial or a network.
LOG_SIGNAL_CENTER = 4.7
LOG_SIGNAL_SCALE = 2.0


def standardize(log_signal: jax.Array) -> jax.Array:
    """log(mu N) -> about [-2, 2] over the range that protectors are meta-trained on."""
    return (log_signal - LOG_SIGNAL_CENTER) / LOG_SIGNAL_SCALE


def value(coefficients: jax.Array, log_signal: jax.Array) -> jax.Array:
    """A hyper-parameter at a given log(mu N).

    Args:
      coefficients: f32[k, ...], a polynomial's coefficients, constant term first; f32[1, ...] is a constant.
      log_signal: f32[].

    Returns:
      f32[...].

    >>> import jax.numpy as jnp
    >>> float(value(jnp.array([2.0]), jnp.array(9.0)))
    2.0
    """
    coefficients = jnp.asarray(coefficients)
    powers = standardize(log_signal) ** jnp.arange(coefficients.shape[0])
    return jnp.tensordot(powers, coefficients, 1)
