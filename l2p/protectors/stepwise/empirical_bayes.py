"""The width of a prior, estimated from noised values of its distribution (empirical Bayes)."""

import jax
import jax.numpy as jnp
import numpy as np

#: Logarithms that the scale of a prior's variance may have, as a grid.
LOG_SCALES = np.linspace(-6.0, 12.0, 37, dtype=np.float32)

#: Far beyond the largest scale; squares of more overflow.
MOST = 1e12


def log_scale(signal: jax.Array, noise: jax.Array, count: jax.Array | float, width: jax.Array) -> jax.Array:
    """log f32[] of the factor by which a prior's variance exceeds the assumed one.

    Squared values are on average scale + noise, in units of the assumed variance. Their mean is taken as normal.

    Args:
      signal: f32[], mean squared value without the noise's part.
      noise: f32[], that part.
      count: f32[], number of independent values.
      width: f32[], standard deviation of log(scale) before the values are observed.

    Returns:
      Its mean given the values: near 0 as long as noise may explain them.
    """
    scales, signal = jnp.exp(LOG_SCALES), jnp.clip(signal, -MOST, MOST)
    deviation = jnp.sqrt(2.0 / count) * (scales + noise)
    # In units that do not overflow where noise is large.
    likely = -0.5 * jnp.square((signal - scales) / deviation) - jnp.log(deviation / (1.0 + noise))
    return jax.nn.softmax(likely - 0.5 * jnp.square(LOG_SCALES / width)) @ LOG_SCALES
