"""A pull back to the start, which keeps noise from piling up in params that no row moves."""

import math
from typing import Annotated, Any

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.oracle.setup import Setup
from l2p.protectors.by_hand.adam import RATE, SECOND_DECAY, Moments
from l2p.protectors.by_hand.gradient_descent import noisygd
from l2p.protectors.conditioning import value
from l2p.protectors.fields import Coefficients, Polynomial
from l2p.protectors.hand_designed import Problem, log_constant, logit_constant
from l2p.protectors.register import hand_designed, stored
from l2p.protectors.stepwise.projectors import Projector
from l2p.protectors.stepwise.schedulers import Decaying, Observation
from l2p.protectors.stepwise.stepwise import Stepwise

#: A value, and its slopes in the numbers of rows, params and matrices and in the length of gradients at the start, each
#: a polynomial in log(mu N).
BySize = Annotated[jax.Array, Coefficients((5,))]
#: Logarithms of the numbers of rows and of params of a typical network, and half of the range beside them.
TYPICAL_ROWS, TYPICAL_PARAMS, HALF_RANGE = math.log(2000.0), math.log(1800.0), 3.0
#: What a step takes back of a coordinate's distance from the start, over the learning rate. More is better on tasks
#: with label noise, up to 1 or 2, and less on digits where the budget is small (`benchmarks/network_pull.py`).
PULL = 0.3
#: Of gradients of networks, which are longer than those of linear models.
CLIP_NORM = 3.0


@stored
@struct.dataclass
class TowardsStart(Projector):
    """A projector on the gradient of the loss with a ridge around the start.

    Attributes:
      projector: makes the update.
      log_ridge: f32[k], log of the ridge, as a polynomial in log(mu N).
    """

    projector: Projector
    log_ridge: Polynomial

    @property
    def any_model(self) -> bool:  # type: ignore[override]
        return self.projector.any_model

    def init(self, params: jax.Array, setup: Setup) -> tuple[jax.Array, Any]:
        return params, self.projector.init(params, setup)

    def __call__(
        self,
        state: tuple[jax.Array, Any],
        observation: Observation,
        params: jax.Array,
        progress: jax.Array,
        setup: Setup,
    ) -> tuple[jax.Array, tuple[jax.Array, Any]]:
        start, inner = state
        ridge = jnp.exp(value(self.log_ridge, setup.log_signal))
        pulled = observation.replace(gradient=observation.gradient + ridge * (params - start))
        update, inner = self.projector(inner, pulled, params, progress, setup)
        return update, (start, inner)

    def at_end(
        self, state: tuple[jax.Array, Any], params: jax.Array, observation: Observation, setup: Setup
    ) -> jax.Array:
        return self.projector.at_end(state[1], params, observation, setup)


def sizes_of(setup: Setup, num_params: int) -> jax.Array:
    """Logarithms of the numbers of rows and of params, f32[2], -2 to 2 over the range of usual networks, and clipped.

    >>> import types
    >>> [round(float(size), 2) for size in sizes_of(types.SimpleNamespace(num_rows=jnp.float32(2000.0)), 36_000)]
    [0.0, 2.0]
    """
    rows = jnp.log(jnp.maximum(setup.num_rows, 1.0)) - TYPICAL_ROWS
    return jnp.clip(jnp.stack([rows, jnp.asarray(math.log(num_params) - TYPICAL_PARAMS)]) * 2.0 / HALF_RANGE, -2.0, 2.0)


def depth_of(setup: Setup) -> jax.Array:
    """Logarithm to base 2 of the number of matrices that are trained, f32[], 0 for two, and 2 at most.

    >>> import types
    >>> [float(depth_of(types.SimpleNamespace(model=types.SimpleNamespace(depth=depth)))) for depth in (1, 2, 4, 99)]
    [-1.0, 0.0, 1.0, 2.0]
    """
    return jnp.float32(min(math.log2(setup.model.depth) - 1.0, 2.0))


@stored
@struct.dataclass
class PulledAdam(Projector):
    """Adam with a decoupled pull back to the start.

    Weight decay (Loshchilov & Hutter 2019) towards the params that a run starts with. A coordinate that Adam moves by
    its learning rate at every step ends no farther than 1 / pull from there, however many steps there are.

    Attributes:
      log_learning_rate: f32[k, 5], log of the learning rate.
      log_pull: f32[k, 5], log of the pull: a step takes the learning rate times the pull of the distance back.
      logit_first, logit_second: f32[k], logits of the decays of the running means, as polynomials in log(mu N).
    """

    log_learning_rate: BySize
    log_pull: BySize
    logit_first: Polynomial
    logit_second: Polynomial
    any_model = True

    def init(self, params: jax.Array, setup: Setup) -> tuple[jax.Array, Moments]:
        return params, Moments.none(params)

    def __call__(
        self,
        state: tuple[jax.Array, Moments],
        observation: Observation,
        params: jax.Array,
        progress: jax.Array,
        setup: Setup,
    ) -> tuple[jax.Array, tuple[jax.Array, Moments]]:
        start, moments = state
        step, moments = self._step(moments, observation, setup)
        rate, pull = self._rate_and_pull(params.shape[0], observation, setup)
        return -rate * step + jnp.expm1(-rate * pull) * (params - start), (start, moments)

    def _step(self, moments: Moments, observation: Observation, setup: Setup) -> tuple[jax.Array, Moments]:
        """Adam's step f32[p] over its learning rate, and the next moments."""
        first, second = (
            jax.nn.sigmoid(value(logit, setup.log_signal)) for logit in (self.logit_first, self.logit_second)
        )
        moments = moments.after(observation.gradient, first, second)
        square = moments.square / (1.0 - second**moments.count) + 1e-16
        return moments.mean / (1.0 - first**moments.count) * jax.lax.rsqrt(square), moments

    def _rate_and_pull(self, num_params: int, observation: Observation, setup: Setup) -> tuple[jax.Array, jax.Array]:
        length = jnp.zeros(()) if observation.log_length is None else observation.log_length
        terms = jnp.concatenate([jnp.ones(1), sizes_of(setup, num_params), depth_of(setup)[None], length[None]])
        rate, pull = (
            jnp.exp(value(curve, setup.log_signal) @ terms) for curve in (self.log_learning_rate, self.log_pull)
        )
        return rate, pull


@hand_designed(form="rival")
def noisygd_pulled(problem: Problem) -> Stepwise:
    """`noisygd` with a pull back to the start.

    A ridge of 0.002 around it: over a run, a pull of a half.
    """
    plain = noisygd(problem)
    return plain.replace(projector=TowardsStart(plain.projector, log_constant(0.002)))


@hand_designed(form="rival")
def dp_adam_pulled(problem: Problem) -> Stepwise:
    """`dp_adam` with a decoupled pull back to the start.

    Over its 50 steps of .03, a pull of .45 in all.
    """
    del problem
    adam = PulledAdam(_for_any_size(RATE), _for_any_size(PULL), logit_constant(0.9), logit_constant(SECOND_DECAY))
    return Stepwise(Decaying(log_clip_norm=log_constant(CLIP_NORM), rate=jnp.array([0.0])), adam)


def _for_any_size(constant: float) -> jax.Array:
    """The same for any budget and size, f32[1, 5], whose exponential is `constant`."""
    return jnp.zeros((1, 5)).at[0, 0].set(math.log(constant))
