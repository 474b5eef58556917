"""Moves params back towards their start at the end of a run, as far as they do not stand out from noise."""

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.protectors.conditioning import Covariates, between_knots
from l2p.protectors.fields import Curve
from l2p.protectors.register import stored

#: Slope, per standard error, of the logit of what counts as signal.
SHARPNESS = 2.0
#: The most that a squared distance may be over what noise explains.
MOST = 1e3


@stored
@struct.dataclass
class Retreat:
    """Share of their distance from the start that the params of features keep, by what the filter knows of its noise.

    On a table that is hard to learn, params that a small budget buys are noise nearly alone, and worse than the start,
    whatever the prior expected; on an easy one most of the same distance is signal. A filter in each coordinate cannot
    tell the two apart, but all of them together can: the squared distance, weighted by curvature, is what their noise
    explains, or more. It is compared with that noise, which is known, so that nothing private is read: this is a
    function of released gradients.

    Attributes:
      logit_kept: f32[k, 6], logit of the share that is kept where the distance is far less than noise explains.
      threshold: f32[k, 6], by how many standard errors the squared distance has to exceed what noise explains for half
        of the rest to be kept, too.
    """

    logit_kept: Curve
    threshold: Curve

    def __call__(
        self, moved: jax.Array, variance: jax.Array, curvature: jax.Array, covariates: Covariates
    ) -> jax.Array:
        """The share f32[] that is kept.

        Args:
          moved: f32[p], from the start.
          variance: f32[p], of its noise.
          curvature: f32[p], weights of squared distances; 0 for coordinates that do not count.
          covariates: of the run.
        """
        parts, square = curvature * variance, curvature @ jnp.square(moved)
        noise = jnp.maximum(parts.sum(), square / MOST + 1e-9)
        errors = (square / noise - 1.0) * jax.lax.rsqrt(2.0 * jnp.square(parts / noise).sum() + 1.0 / MOST)
        least = jax.nn.sigmoid(between_knots(self.logit_kept, covariates))
        return least + (1.0 - least) * jax.nn.sigmoid(SHARPNESS * (errors - between_knots(self.threshold, covariates)))
