"""Automatic clipping (Bu, Wang, Zha & Karypis, NeurIPS 2023): gradients are normalised, so there is no threshold to
choose."""

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.oracle.setup import Setup
from l2p.protectors.conditioning import value
from l2p.protectors.fields import Polynomial
from l2p.protectors.hand_designed import Problem, log_constant, logit_constant
from l2p.protectors.register import hand_designed
from l2p.protectors.stepwise.projectors import Optax
from l2p.protectors.stepwise.schedulers import Decaying, StepPlan
from l2p.protectors.stepwise.stepwise import Stepwise
from l2p.queries import NormalizedGradient, Query
from l2p.task.feature_map import FeatureMap


@struct.dataclass
class AutoClip(Stepwise):
    """`Stepwise` on normalised gradients: the scheduler's clip norm is the length that they are scaled to.

    Attributes:
      log_stability: f32[k], log of the stability constant, as a polynomial in log(mu N).
    """

    log_stability: Polynomial = struct.field(kw_only=True)

    def query(self, params: jax.Array, features: FeatureMap, plan: StepPlan, setup: Setup) -> Query:
        stability = jnp.exp(value(self.log_stability, setup.log_signal))
        return NormalizedGradient(setup.model, params, features, plan.clip_norm, stability, plan.noise_multiplier)


@hand_designed(form="rival")
def auto_clip(problem: Problem) -> AutoClip:
    """Momentum SGD on normalised gradients (Bu et al. 2023).

    Full-batch momentum SGD at its authors' constant, 0.01 (AUTO-S): constant noise, the rate of `noisygd`.
    """
    del problem
    scheduler = Decaying(log_clip_norm=log_constant(1.0), rate=jnp.array([0.0]))
    rates = {"learning_rate": log_constant(0.5), "momentum": logit_constant(0.9)}
    return AutoClip(scheduler, Optax("sgd", rates), log_stability=log_constant(0.01))
