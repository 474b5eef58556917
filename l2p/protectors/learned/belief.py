"""State of a Kalman filter in each coordinate between two steps, and the minimum that it aims at."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.protectors.stepwise import empirical_bayes

#: Decay of the averages that are inputs of the network.
MEMORY = 0.8
#: Decay of measurements of the minimum: early ones fall short where the curvature is less than assumed.
REMEMBERED = 0.97
#: Decay of a curvature that gradients showed, and the most that it may be over its bound.
STEEPER_MEMORY, MOST_STEEPER = 0.9, 1e3
#: Largest ratio of a measurement's variance to that of the expected distance; squares of larger ones overflow.
NOISIEST = 1e6
#: The largest ridge, over the curvature that it is added to.
MOST_RIDGE = 1e4


@struct.dataclass
class Measured:
    """The minimum's distance from the start as the gradients so far measure it, f32[p] each.

    A noised gradient g at w measures the minimum as w - g / h, with the variance noise^2 / h^2.

    Attributes:
      total: measured distances from the start, each over its variance; early ones count less.
      weight: the sum of one over these variances, with the same weights.
      square: the sum of one over these variances, with the squares of these weights: the variance of `total`'s noise.
    """

    total: jax.Array
    weight: jax.Array
    square: jax.Array

    @classmethod
    def none(cls, like: jax.Array) -> "Measured":
        """No measurement yet, of params f32[p]."""
        return cls(*[jnp.zeros_like(like)] * 3)

    def after(self, distance: jax.Array, variance: jax.Array) -> "Measured":
        """These measurements and another distance f32[p] with its variance f32[p]."""
        return Measured(
            REMEMBERED * self.total + distance / variance,
            REMEMBERED * self.weight + 1.0 / variance,
            REMEMBERED**2 * self.square + 1.0 / variance,
        )

    @property
    def distance(self) -> jax.Array:
        """f32[p], the mean of the measured distances from the start."""
        return self.total / self.weight

    @property
    def variance(self) -> jax.Array:
        """f32[p], of that mean's noise."""
        return self.square / self.weight / self.weight  # the square of a weight may overflow

    def log_scale(self, prior: jax.Array, sampling: jax.Array, counts: jax.Array, width: jax.Array) -> jax.Array:
        """log f32[] of the factor on the variance `prior` f32[p] that the distances show, over `counts` bool[p].

        Squared distances are on average scale * prior + sampling + their noise, where `sampling` f32[p] is the variance
        of the minimum among draws of rows. Each is weighted by its precision if the scale is 1; `width` f32[]
        is the deviation of log(scale) among tables.
        """
        ratio = jnp.minimum((self.variance + sampling) / prior, NOISIEST)
        weight = jnp.where(counts, jnp.square(1.0 / (1.0 + ratio)), 0.0)
        total = weight.sum() + 1e-18  # far below the weight of one coordinate, for a table without features
        weight = weight / total
        signal = (weight * (jnp.square(self.distance) / prior - ratio)).sum()
        return empirical_bayes.log_scale(signal, (weight * ratio).sum(), total, width)


@struct.dataclass
class Belief(struct.Struct):
    """State between two steps, for each coordinate f32[p].

    Attributes:
      start: the params at the start.
      remaining: expected share of the distance from the start to the minimum that is left.
      variance: of the noise in the params.
      measured: the minimum as the gradients so far measure it.
      update: the last one, in each coordinate.
      change: the last update with the step along the line.
      average: running average of gradients.
      noise: the variance of that average's noise.
      surprise: running average of squared gradients over those that the filter expected.
      weight: f32[], the total weight of the gradients in the averages.
      last: the last gradient.
      last_noise: f32[], the variance of its noise.
      steeper: f32[], the factor by which gradients showed the curvature to exceed its bound; at least 1.
      line: f32[], variance of log(distance to the minimum along the line of the params / their distance), both from
        the start; 0 before the first gradient.
      memory: of a network that has one, else ().
    """

    start: jax.Array
    remaining: jax.Array
    variance: jax.Array
    measured: Measured
    update: jax.Array
    change: jax.Array
    average: jax.Array
    noise: jax.Array
    surprise: jax.Array
    weight: jax.Array
    last: jax.Array
    last_noise: jax.Array
    steeper: jax.Array
    line: jax.Array
    memory: Any = ()

    def after(self, gradient: jax.Array, noise: jax.Array, curvature: jax.Array, prior: jax.Array) -> "Belief":
        """The state with another gradient f32[p] and its noise's variance f32[] in the averages; its square is expected
        from the curvature f32[p] and the variance `prior` f32[p] of the distance at the start."""
        new = 1.0 - MEMORY
        expected = jnp.square(curvature) * (jnp.square(self.remaining) * prior + self.variance) + noise
        return self.replace(
            average=MEMORY * self.average + new * gradient,
            noise=MEMORY**2 * self.noise + new**2 * noise,
            surprise=MEMORY * self.surprise + new * jnp.square(gradient) / expected,
            weight=MEMORY * self.weight + new,
        )

    def steeper_after(self, gradient: jax.Array, noise: jax.Array, bound: jax.Array) -> jax.Array:
        """`steeper` f32[] given the next gradient f32[p], its noise's variance f32[], and the bound f32[p].

        The change of the gradient along the last step shows the curvature there. Two standard deviations of the noise
        are subtracted."""
        square = jnp.square(self.change).sum()
        has_moved = square > 1e-12
        std = jnp.sqrt((noise + self.last_noise) * jnp.where(has_moved, square, 1.0))
        change = jnp.vdot(gradient - self.last, self.change) - 2.0 * std
        expected = jnp.vdot(self.change * bound, self.change)
        ratio = jnp.where(has_moved, change / jnp.where(has_moved, expected, 1.0), 1.0)
        return jnp.maximum(jnp.clip(ratio, 1.0, MOST_STEEPER), self.steeper**STEEPER_MEMORY)


class Aim(NamedTuple):
    """The minimum that gradients lead to with a ridge: the most likely minimiser of the population of the rows.

    Attributes:
      ridge: f32[p].
      curvature: f32[p], with the ridge.
      prior: variance f32[p] of the distance from the start to that minimiser.
    """

    ridge: jax.Array
    curvature: jax.Array
    prior: jax.Array

    @classmethod
    def at(cls, curvature: jax.Array, prior: jax.Array, sampling: jax.Array) -> "Aim":
        """The aim for this curvature f32[p], the variance `prior` f32[p] of the distance to the population's minimiser,
        and the variance `sampling` f32[p] that drawing rows adds."""
        ratio = jnp.minimum(sampling / prior, MOST_RIDGE)
        return cls(ratio * curvature, (1.0 + ratio) * curvature, prior / (1.0 + ratio))
