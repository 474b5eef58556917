"""Scale-then-privatize (Ganesh, McMahan & Thakurta 2025): Adam whose earlier moments shape clipping and noise."""

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.base.compiled import as_one
from l2p.oracle import Oracle
from l2p.oracle.setup import Setup
from l2p.protectors.by_hand.adam import RATE, SECOND_DECAY, Moments
from l2p.protectors.conditioning import value
from l2p.protectors.fields import Polynomial
from l2p.protectors.hand_designed import Problem, log_constant, logit_constant
from l2p.protectors.register import hand_designed, stored
from l2p.protectors.stepwise.projectors import Projector
from l2p.protectors.stepwise.schedulers import Decaying, Observation, StepPlan
from l2p.protectors.stepwise.stepwise import Stepwise, StepwiseState
from l2p.queries import Query, ScaledGradient
from l2p.task.feature_map import FeatureMap


@stored
@struct.dataclass
class ScaledAdam(Projector):
    """Adam on gradients that were scaled before they were clipped and noised, and are scaled back here.

    Attributes:
      log_learning_rate: f32[k], log of the learning rate, as a polynomial in log(mu N), like the others.
      logit_first, logit_second: f32[k], logits of the decay of the running means.
      log_floor: f32[k], log of what is added to second moments for the scale, over the noise's variance.
    """

    log_learning_rate: Polynomial
    logit_first: Polynomial
    logit_second: Polynomial
    log_floor: Polynomial
    any_model = True

    def init(self, params: jax.Array, setup: Setup) -> Moments:
        return Moments.none(params)

    @as_one
    def scale(self, state: Moments, noise_std: jax.Array, setup: Setup) -> jax.Array:
        """The scale f32[p] of the next gradient, of released answers alone.

        1 / sqrt(second moment + a floor), times the root of the mean of what is under the root, so that clipping norms
        mean the same as without it: where second moments are all alike, as before the first step, it is 1.
        """
        second = jax.nn.sigmoid(value(self.logit_second, setup.log_signal))
        floor = jnp.exp(value(self.log_floor, setup.log_signal)) * jnp.square(noise_std) + 1e-16
        square = state.square / jnp.maximum(1.0 - second**state.count, 1e-6) + floor
        return jnp.sqrt(square.mean()) * jax.lax.rsqrt(square)

    @as_one
    def __call__(
        self, state: Moments, observation: Observation, params: jax.Array, progress: jax.Array, setup: Setup
    ) -> tuple[jax.Array, Moments]:
        assert observation.scale is not None
        first, second = (
            jax.nn.sigmoid(value(logit, setup.log_signal)) for logit in (self.logit_first, self.logit_second)
        )
        moments = state.after(observation.gradient / observation.scale, first, second)
        rate = jnp.exp(value(self.log_learning_rate, setup.log_signal)) / (1.0 - first**moments.count)
        length = jnp.sqrt(moments.square / (1.0 - second**moments.count)) + 1e-8
        return -rate * moments.mean / length, moments


@struct.dataclass
class ScaleThenPrivatize(Stepwise):
    """`Stepwise` whose projector, a `ScaledAdam`, says how each gradient is scaled before it is clipped."""

    def plan(self, state: StepwiseState, observation: Observation, oracle: Oracle) -> tuple[StepPlan, object]:
        plan, scheduler = super().plan(state, observation, oracle)
        assert isinstance(self.projector, ScaledAdam)
        scale = self.projector.scale(state.projector, observation.noise_std, oracle.setup)
        return plan.replace(scale=scale), scheduler

    def query(self, params: jax.Array, features: FeatureMap, plan: StepPlan, setup: Setup) -> Query:
        assert plan.scale is not None
        return ScaledGradient(setup.model, params, features, plan.clip_norm, plan.noise_multiplier, plan.scale)

    def misfit(self) -> str | None:
        if not isinstance(self.projector, ScaledAdam):
            return "has a projector that says no scale of gradients"
        return super().misfit()


@hand_designed(form="rival")
def dp_adam_scaled(problem: Problem) -> ScaleThenPrivatize:
    """`dp_adam` on gradients scaled by earlier second moments.

    Scale-then-privatize (Ganesh, McMahan & Thakurta 2025): noise is small where gradients were.
    """
    del problem
    adam = ScaledAdam(log_constant(RATE), logit_constant(0.9), logit_constant(SECOND_DECAY), log_constant(1.0))
    return ScaleThenPrivatize(Decaying(log_clip_norm=log_constant(1.0), rate=jnp.array([0.0])), adam)
