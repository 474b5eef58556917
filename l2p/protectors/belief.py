"""What a Kalman filter knows of each coordinate between two steps, and where it aims."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from l2p import struct
from l2p.protectors import empirical_bayes

#: How fast the averages that the network sees forget.
MEMORY = 0.8
#: How fast measurements of the minimum are forgotten: early ones fall short where the curvature is less than assumed.
REMEMBERED = 0.97
#: How fast a curvature that gradients showed is forgotten, and the most that it may be over its bound.
STEEPER_MEMORY, MOST_STEEPER = 0.9, 1e3
#: Measurements as noisy as this, over the distance that is expected, tell nothing; squares of more overflow.
NOISIEST = 1e6
#: The largest ridge, over the curvature that it is added to.
MOST_RIDGE = 1e4


@struct.dataclass
class Measured:
    """What the gradients so far say of the minimum's place, apart from where the steps have led: f32[p] each.

    A noised gradient g at w measures the minimum as w - g / h, with the variance noise^2 / h^2.

    Attributes:
      total: measured distances from the start, each over its variance.
      precision: the sum of one over these variances.
    """

    total: jax.Array
    precision: jax.Array

    def after(self, distance: jax.Array, variance: jax.Array) -> "Measured":
        """With another distance f32[p] of the given variance f32[p]."""
        return Measured(REMEMBERED * self.total + distance / variance, REMEMBERED * self.precision + 1.0 / variance)

    def log_scale(self, prior: jax.Array, sampling: jax.Array, counts: jax.Array, width: jax.Array) -> jax.Array:
        """log f32[] of how many times the variance `prior` f32[p] the distances show, over `counts` bool[p].

        Squared distances are on average scale * prior + sampling + 1 / precision, with the variance f32[p] of what
        drawing the rows does to their minimum, and each is weighted by how little it varies if the scale is 1; `width`
        f32[] is the deviation of log(scale) among tables.
        """
        ratio = jnp.minimum((1.0 / self.precision + sampling) / prior, NOISIEST)
        weight = jnp.where(counts, jnp.square(1.0 / (1.0 + ratio)), 0.0)
        total = weight.sum() + 1e-18  # far below the weight of one coordinate, for a table without features
        weight = weight / total
        found = (weight * (jnp.square(self.total / self.precision) / prior - ratio)).sum()
        return empirical_bayes.log_scale(found, (weight * ratio).sum(), total, width)


@struct.dataclass
class Belief:
    """Between two steps, for each coordinate f32[p].

    Attributes:
      start: the params at the start.
      left: the share of the distance from the start to the minimum that is left, as far as the filter knows.
      variance: of the noise in the params.
      measured: where the gradients so far place the minimum.
      update: the last one, in each coordinate.
      change: the last update with what was added along the line.
      average: running average of gradients.
      noise: the variance of that average's noise.
      surprise: running average of squared gradients over what the filter expected of them.
      weight: f32[], the total weight of what is in the averages.
      last: the last gradient.
      last_noise: f32[], the variance of its noise.
      steeper: f32[], how many times larger the curvature is than its bound, by what gradients showed; at least 1.
      line: f32[], variance of the logarithm of how many times as far as the params the minimum along their line is; 0
        before the first gradient.
    """

    start: jax.Array
    left: jax.Array
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

    def after(self, gradient: jax.Array, noise: jax.Array, curvature: jax.Array, prior: jax.Array) -> "Belief":
        """With another gradient f32[p] and its noise's variance f32[] in the averages, where its square is expected for
        this curvature f32[p] and variance f32[p] of the distance at the start."""
        new = 1.0 - MEMORY
        expected = jnp.square(curvature) * (jnp.square(self.left) * prior + self.variance) + noise
        return self.replace(  # type: ignore[attr-defined]
            average=MEMORY * self.average + new * gradient,
            noise=MEMORY**2 * self.noise + new**2 * noise,
            surprise=MEMORY * self.surprise + new * jnp.square(gradient) / expected,
            weight=MEMORY * self.weight + new,
        )

    def shown(self, gradient: jax.Array, noise: jax.Array, bound: jax.Array) -> jax.Array:
        """`steeper` f32[] given the next gradient f32[p], its noise's variance f32[], and the bound f32[p].

        How much the gradient changed along the last step shows the curvature there. Two standard deviations of the
        noise are taken off."""
        square = jnp.square(self.change).sum()
        has_moved = square > 1e-12
        std = jnp.sqrt((noise + self.last_noise) * jnp.where(has_moved, square, 1.0))
        change = jnp.vdot(gradient - self.last, self.change) - 2.0 * std
        expected = jnp.vdot(self.change * bound, self.change)
        found = jnp.where(has_moved, change / jnp.where(has_moved, expected, 1.0), 1.0)
        return jnp.maximum(jnp.clip(found, 1.0, MOST_STEEPER), self.steeper**STEEPER_MEMORY)


class Aim(NamedTuple):
    """Where gradients lead to once a ridge is added: the most likely minimum of all that the rows were drawn from.

    Attributes:
      ridge: f32[p].
      curvature: f32[p], with the ridge.
      prior: variance f32[p] of the distance from the start to there.
    """

    ridge: jax.Array
    curvature: jax.Array
    prior: jax.Array

    @classmethod
    def at(cls, curvature: jax.Array, prior: jax.Array, sampling: jax.Array) -> "Aim":
        """Of that curvature f32[p], the variance f32[p] of the distance to the minimum of all, and that f32[p] of what
        drawing rows adds."""
        ratio = jnp.minimum(sampling / prior, MOST_RIDGE)
        return cls(ratio * curvature, (1.0 + ratio) * curvature, prior / (1.0 + ratio))
