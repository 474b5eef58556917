"""Adam on noised gradients: as it is, with decoupled weight decay, and without the noise in its second moments."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.base.compiled import as_one
from l2p.oracle.setup import Setup
from l2p.protectors.conditioning import value
from l2p.protectors.fields import Polynomial
from l2p.protectors.hand_designed import Problem, log_constant, logit_constant
from l2p.protectors.register import hand_designed, stored
from l2p.protectors.stepwise.projectors import Optax, Projector
from l2p.protectors.stepwise.schedulers import Decaying, Observation
from l2p.protectors.stepwise.stepwise import Stepwise

#: Adam moves each coordinate by about this much a step: 50 steps take a weight from 0 to 1.5.
RATE = 0.03
#: Decay of the second moments. The usual 0.999 is for runs of thousands of steps.
SECOND_DECAY = 0.99


class Moments(NamedTuple):
    """Running means f32[p] of gradients and of their squares, and the number f32[] of steps so far."""

    mean: jax.Array
    square: jax.Array
    count: jax.Array

    @classmethod
    def none(cls, params: jax.Array) -> "Moments":
        """Those before the first step."""
        return cls(jnp.zeros_like(params), jnp.zeros_like(params), jnp.zeros((), params.dtype))

    def after(self, gradient: jax.Array, first: jax.Array, second: jax.Array) -> "Moments":
        """Those after another gradient f32[p], by the decays f32[] of both."""
        mean = first * self.mean + (1.0 - first) * gradient
        square = second * self.square + (1.0 - second) * jnp.square(gradient)
        return Moments(mean, square, self.count + 1.0)


@stored
@struct.dataclass
class AdamBC(Projector):
    """Adam whose second moments are less the noise's variance (Tang, Shpilevskiy & Lecuyer, AAAI 2024, Algorithm 1).

    Noise adds its variance to every second moment, so that, where it dominates, Adam is gradient descent with momentum.
    Its variance is public, and what is left of a moment without it tells coordinates apart. The paper's floor is a
    number that is tuned for each table; here it is a multiple of the noise's variance, the size of what is uncertain.

    Attributes:
      log_learning_rate: f32[k], log of the learning rate, as a polynomial in log(mu N), like the others.
      logit_first, logit_second: f32[k], logits of the decay of the running means.
      log_floor: f32[k], log of the least second moment, over the noise's variance.
    """

    log_learning_rate: Polynomial
    logit_first: Polynomial
    logit_second: Polynomial
    log_floor: Polynomial
    any_model = True

    def init(self, params: jax.Array, setup: Setup) -> Moments:
        return Moments.none(params)

    @as_one
    def __call__(
        self, state: Moments, observation: Observation, params: jax.Array, progress: jax.Array, setup: Setup
    ) -> tuple[jax.Array, Moments]:
        gradient, variance = observation.gradient, jnp.square(observation.noise_std)
        first, second = (
            jax.nn.sigmoid(value(logit, setup.log_signal)) for logit in (self.logit_first, self.logit_second)
        )
        moments = state.after(gradient, first, second)
        floor = jnp.exp(value(self.log_floor, setup.log_signal)) * variance + 1e-16
        without_noise = jnp.maximum(moments.square / (1.0 - second**moments.count) - variance, floor)
        rate = jnp.exp(value(self.log_learning_rate, setup.log_signal)) / (1.0 - first**moments.count)
        return -rate * moments.mean * jax.lax.rsqrt(without_noise), moments


@hand_designed(form="rival")
def dp_adam(problem: Problem) -> Stepwise:
    """Adam on clipped and noised gradients of all rows."""
    del problem
    return Stepwise(_constant_noise(), _of_optax("adam"))


@hand_designed(form="rival")
def dp_adamw(problem: Problem) -> Stepwise:
    """`dp_adam` with decoupled weight decay.

    Weight decay of 0.1 (Loshchilov & Hutter 2019): over a run it takes a seventh of the weights away.
    """
    del problem
    return Stepwise(_constant_noise(), _of_optax("adamw", weight_decay=log_constant(0.1)))


@hand_designed(form="rival")
def dp_adambc(problem: Problem) -> Stepwise:
    """`dp_adam` without the noise in its second moments.

    DP-AdamBC (Tang et al. 2024); a second moment is at least the noise's variance.
    """
    del problem
    adam = AdamBC(log_constant(RATE), logit_constant(0.9), logit_constant(SECOND_DECAY), log_constant(1.0))
    return Stepwise(_constant_noise(), adam)


def _constant_noise() -> Decaying:
    return Decaying(log_clip_norm=log_constant(1.0), rate=jnp.array([0.0]))


def _of_optax(name: str, **others: jax.Array) -> Optax:
    """One of optax's relatives of Adam; numbers beside its rate and decays are given as logarithms."""
    decays = {"b1": logit_constant(0.9), "b2": logit_constant(SECOND_DECAY)}
    numbers = {"learning_rate": log_constant(RATE), **decays, **others}
    return Optax(name, numbers, log_scale=("learning_rate", *others), logit_scale=tuple(decays))
