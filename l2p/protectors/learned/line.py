"""Scales the distance from the start along the line to the present params, by the gradients along it."""

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.protectors.conditioning import Covariates, between_knots
from l2p.protectors.fields import Curve
from l2p.protectors.register import stored

#: Mean square of margins below which params are at the start, where there is no line and derivatives overflow.
AT_START = 1e-8
#: The most that a step may add to the logarithm of the distance, or take from it.
MOST = 0.2


@stored
@struct.dataclass
class LineStep:
    """A filter for one number, log(distance of the minimum along the line of the params / their distance).

    A filter in each coordinate is limited by that coordinate's noise, and in wide tables it remains uncertain. Along
    one direction there is far less noise: the gradients of d coordinates determine its slope as well as each determines
    that of its own coordinate. Where classes are separable the loss goes on falling along the line to the params long
    after the coordinates have settled, because its curvature falls with the margins; where noise made the params too
    long the loss rises. The slope comes with gradients that are paid for anyway.

    Attributes:
      log_curvature: f32[k, 6], log of the curvature along the line, over the model's `line_curvature`.
      log_spread: f32[k, 6], log of the standard deviation of that logarithm, before any gradient.
      logit_renewed: f32[k, 6], logit of the share of that variance that every step adds again, because the other steps
        change the line.
    """

    log_curvature: Curve
    log_spread: Curve
    logit_renewed: Curve

    def __call__(
        self,
        variance: jax.Array,
        slope: jax.Array,
        noise: jax.Array,
        curvature: jax.Array,
        longest: jax.Array,
        covariates: Covariates,
    ) -> tuple[jax.Array, jax.Array]:
        """Change f32[] of the logarithm of the distance, and the variance f32[] of the change that remains.

        Args:
          variance: f32[], of the change that is to be made; 0 before the first gradient.
          slope: f32[], the loss's derivative in that logarithm, noised.
          noise: f32[], the variance of its noise.
          curvature: f32[], the typical second derivative (`Model.line_curvature`); above 0.
          longest: f32[], the most that the slope may be multiplied by.
          covariates: of the run.
        """
        initial = jnp.exp(2.0 * between_knots(self.log_spread, covariates))
        variance = jnp.where(variance > 0.0, variance, initial)
        expected = jnp.exp(between_knots(self.log_curvature, covariates)) * curvature
        gain = jnp.minimum(variance * expected / (jnp.square(expected) * variance + noise), longest)
        remaining = jnp.square(1.0 - gain * expected) * variance + jnp.square(gain) * noise
        renewed = jax.nn.sigmoid(between_knots(self.logit_renewed, covariates))
        return jnp.clip(-gain * slope, -MOST, MOST), remaining + renewed * jnp.maximum(initial - remaining, 0.0)
