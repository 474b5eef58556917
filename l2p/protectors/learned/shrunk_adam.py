"""Adam whose steps shrink, tensor by tensor, by how much of an averaged gradient is noise, which released answers show.

Noise has a known variance, so the squared length of an averaged gradient of n numbers says what is left of it without
noise, up to a share of about (2 / n)^(1/2): precise for a network's tensors. The settings that suit an easy table and a
hard one at the same budget differ, and this is what tells the two apart. All of it is post-processing.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.base.compiled import as_one
from l2p.oracle.setup import Setup
from l2p.protectors.conditioning import value
from l2p.protectors.fields import Polynomial
from l2p.protectors.register import stored
from l2p.protectors.stepwise.projectors import Projector
from l2p.protectors.stepwise.schedulers import Observation

#: A tensor's own share of signal counts as much as that of all params if it has so many numbers.
NUMBERS = 50.0
#: A typical scale of a network's weights, the inverse root of 100 inputs.
TYPICAL = 0.1


class Moments(NamedTuple):
    """Between two steps.

    Attributes:
      start: f32[p], the params that the run started from.
      mean, square: f32[p], running means of gradients and of their squares.
      variance, squares_variance: f32[], the noise's variance in `mean`, and its running mean.
      first, second: f32[], decays to the power of the number of steps so far.
    """

    start: jax.Array
    mean: jax.Array
    square: jax.Array
    variance: jax.Array
    square_variance: jax.Array
    first: jax.Array
    second: jax.Array


@stored
@struct.dataclass
class ShrunkAdam(Projector):
    """Adam without the noise in its second moments, each tensor's step times a power of its share of signal, and a
    pull to the start.

    All fields are f32[k], polynomials in log(mu N).

    Attributes:
      log_learning_rate: log of the learning rate before the first step.
      decay: by how much that logarithm falls over the run.
      logit_first, logit_second: logits of the decays of the running means.
      logit_removed: logit of the share of the noise's variance that is taken out of second moments.
      log_floor: log of the least second moment, over the noise's variance.
      log_power: log of the power of a tensor's share of signal.
      scale_power: power of a tensor's scale at the start, by which its steps are longer than those of a typical one.
      log_pull: log of the share of the way to the start that a step goes, over the learning rate.
    """

    log_learning_rate: Polynomial
    decay: Polynomial
    logit_first: Polynomial
    logit_second: Polynomial
    logit_removed: Polynomial
    log_floor: Polynomial
    log_power: Polynomial
    scale_power: Polynomial
    log_pull: Polynomial
    any_model = True

    def init(self, params: jax.Array, setup: Setup) -> Moments:
        zeros, zero, one = jnp.zeros_like(params), jnp.zeros((), jnp.float32), jnp.ones((), jnp.float32)
        return Moments(params, zeros, zeros, zero, zero, one, one)

    @as_one
    def __call__(
        self, state: Moments, observation: Observation, params: jax.Array, progress: jax.Array, setup: Setup
    ) -> tuple[jax.Array, Moments]:
        gradient, noise = observation.gradient, jnp.square(observation.noise_std)

        def now(coefficients: jax.Array) -> jax.Array:
            return value(coefficients, setup.log_signal)

        first, second = jax.nn.sigmoid(now(self.logit_first)), jax.nn.sigmoid(now(self.logit_second))
        state = Moments(
            state.start,
            first * state.mean + (1.0 - first) * gradient,
            second * state.square + (1.0 - second) * jnp.square(gradient),
            first**2 * state.variance + (1.0 - first) ** 2 * noise,
            second * state.square_variance + (1.0 - second) * noise,
            first * state.first,
            second * state.second,
        )
        left = state.square - jax.nn.sigmoid(now(self.logit_removed)) * state.square_variance
        least = jnp.exp(now(self.log_floor)) * state.square_variance
        square = jnp.maximum(left, least + 1e-16) / (1.0 - state.second)
        direction = state.mean / (1.0 - state.first) * jax.lax.rsqrt(square)
        sizes = setup.model.tensor_sizes(params.shape[0])
        gain = jnp.exp(jnp.exp(now(self.log_power)) * jnp.log(signal_shares(state.mean, state.variance, sizes)))
        gain = gain * jnp.exp(now(self.scale_power) * jnp.log(scales(state.start, sizes) / TYPICAL))
        rate = jnp.exp(now(self.log_learning_rate) - now(self.decay) * progress)
        pull = -jnp.expm1(-rate * jnp.exp(now(self.log_pull)))
        step = rate * jnp.repeat(gain, jnp.array(sizes), total_repeat_length=params.shape[0]) * direction
        return -step + pull * (state.start - params), state


def signal_shares(mean: jax.Array, variance: jax.Array, sizes: tuple[int, ...]) -> jax.Array:
    """Shares f32[tensors] of the squared length of each tensor's averaged gradient f32[p] that are not noise of this
    variance f32[]; those of small tensors are drawn to that of all.

    >>> mean = jnp.concatenate([jnp.full(400, 2.0), jnp.full(400, 1.0)])
    >>> [round(float(share), 2) for share in signal_shares(mean, jnp.float32(1.0), (400, 400))]
    [0.73, 0.07]
    """
    squares = jnp.stack([jnp.square(part).sum() for part in _parts(mean, sizes)])
    numbers = jnp.array(sizes, jnp.float32)
    share = jnp.maximum(1.0 - numbers * variance / jnp.maximum(squares, 1e-30), 0.0)
    of_all = jnp.maximum(1.0 - numbers.sum() * variance / jnp.maximum(squares.sum(), 1e-30), 0.0)
    pooled = (numbers * share + NUMBERS * of_all) / (numbers + NUMBERS)
    # A share that is 0 has no logarithm, and is uncertain by as much as this.
    return jnp.maximum(pooled, 1.0 / math.sqrt(sum(sizes) + NUMBERS))


def scales(start: jax.Array, sizes: tuple[int, ...]) -> jax.Array:
    """Root mean squares f32[tensors] of the params f32[p] of each tensor, or the inverse root of their number where
    that is more, as where all are zero."""
    means = jnp.stack([jnp.square(part).mean() for part in _parts(start, sizes)])
    return jnp.sqrt(jnp.maximum(means, 1.0 / jnp.array(sizes, jnp.float32)))


def _parts(vector: jax.Array, sizes: tuple[int, ...]) -> list[jax.Array]:
    return jnp.split(vector, [sum(sizes[: place + 1]) for place in range(len(sizes) - 1)])
