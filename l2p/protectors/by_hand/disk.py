"""DiSK (Zhang et al., ICLR 2025): a simplified Kalman filter over the steps of a run, which averages noise away."""

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
from l2p.protectors.stepwise.projectors import Projector
from l2p.protectors.stepwise.schedulers import Decaying, Observation
from l2p.protectors.stepwise.stepwise import Stepwise


class Filtered(NamedTuple):
    """The filtered gradient f32[p] and the iterate f32[p], which is not where gradients are taken."""

    gradient: jax.Array
    iterate: jax.Array


@stored
@struct.dataclass
class DiSK(Projector):
    """Gradient descent on a filtered gradient, taken ahead of the iterate (Algorithm 1, of one gradient).

    A row's contribution in the paper mixes its gradients at the iterate x_t and at x_t + gamma (x_t - x_{t-1}), such
    that a running mean of them follows the gradient at x_t. With gamma = (1 - kappa) / kappa the first has no weight,
    and a step costs one gradient. So params here are the point ahead, and the run ends with the iterate.

    Attributes:
      log_learning_rate: f32[k], log of the learning rate, as a polynomial in log(mu N).
      logit_gain: f32[k], logit of kappa, the weight of the newest gradient.
    """

    log_learning_rate: Polynomial
    logit_gain: Polynomial
    any_model = True

    def init(self, params: jax.Array, setup: Setup) -> Filtered:
        return Filtered(jnp.zeros_like(params), params)

    @as_one
    def __call__(
        self, state: Filtered, observation: Observation, params: jax.Array, progress: jax.Array, setup: Setup
    ) -> tuple[jax.Array, Filtered]:
        gain = jax.nn.sigmoid(value(self.logit_gain, setup.log_signal))
        # Before the first gradient there is none to average it with.
        newest = jnp.where(progress > 0.0, gain, 1.0)
        gradient = (1.0 - newest) * state.gradient + newest * observation.gradient
        iterate = state.iterate - jnp.exp(value(self.log_learning_rate, setup.log_signal)) * gradient
        ahead = iterate + (1.0 - gain) / gain * (iterate - state.iterate)
        return ahead - params, Filtered(gradient, iterate)

    def at_end(self, state: Filtered, params: jax.Array, observation: Observation, setup: Setup) -> jax.Array:
        return state.iterate


@hand_designed(form="rival")
def disk(problem: Problem) -> Stepwise:
    """DiSK: gradient descent on gradients filtered over the steps.

    DiSK (Zhang et al. 2025) with its authors' kappa of 0.7, on all rows. Steps are as long as those of `noisygd`, which
    momentum lengthens tenfold.
    """
    del problem
    return Stepwise(
        Decaying(log_clip_norm=log_constant(1.0), rate=jnp.array([0.0])), DiSK(log_constant(5.0), logit_constant(0.7))
    )
