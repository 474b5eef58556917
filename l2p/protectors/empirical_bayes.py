"""How wide a prior is, by what noised values of its distribution show (empirical Bayes)."""

import jax
import jax.numpy as jnp
import numpy as np

#: Logarithms that the scale of a prior's variance may have, as a grid.
LOG_SCALES = np.linspace(-6.0, 12.0, 37, dtype=np.float32)

#: Far beyond the largest scale; squares of more overflow.
MOST = 1e12


def log_scale(found: jax.Array, noise: jax.Array, count: jax.Array | float, width: jax.Array) -> jax.Array:
    """log f32[] of how many times wider than assumed a prior's variance is.

    Squared values are on average scale + noise, in units of the assumed variance. Their mean is taken as normal.

    Args:
      found: f32[], mean squared value without the noise's part.
      noise: f32[], that part.
      count: f32[], how many independent values there are.
      width: f32[], standard deviation of log(scale) before they are seen.

    Returns:
      Its mean given the values: near 0 as long as noise may explain them.
    """
    scales, found = jnp.exp(LOG_SCALES), jnp.clip(found, -MOST, MOST)
    deviation = jnp.sqrt(2.0 / count) * (scales + noise)
    # In units that do not overflow where noise is large.
    likely = -0.5 * jnp.square((found - scales) / deviation) - jnp.log(deviation / (1.0 + noise))
    return jax.nn.softmax(likely - 0.5 * jnp.square(LOG_SCALES / width)) @ LOG_SCALES
