"""Approximate minima perturbation (Iyengar, Near, Song, Thakkar, Thakurta & Wang, IEEE S&P 2019)."""

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.models import Model
from l2p.oracle import Oracle
from l2p.oracle.setup import Setup
from l2p.protectors.by_hand.objpert import ObjectivePerturbation, objpert
from l2p.protectors.by_hand.smooth import check_norm_bound, check_smooth
from l2p.protectors.conditioning import value
from l2p.protectors.fields import Count, Polynomial
from l2p.protectors.hand_designed import Problem, log_constant, logit_constant
from l2p.protectors.register import hand_designed
from l2p.queries.perturbed import ApproximateMinimum
from l2p.run.protector import Protector


@struct.dataclass
class ApproximateMinima(Protector):
    """Objective perturbation with an approximate minimum, for a small extra share of the budget.

    Attributes:
      minimum: the objective perturbation.
      logit_output_share: f32[k], logit of the share of epsilon and delta for the noise that hides how exact the minimum
        is, a polynomial in log(mu N).
      log_tolerance: f32[k], log of the largest gradient there, relative to the objective's noise; a polynomial in
        log(mu N).
    """

    minimum: ObjectivePerturbation
    logit_output_share: Polynomial
    log_tolerance: Polynomial
    num_steps: Count = struct.field(pytree_node=False, default=1)
    models = ("logistic", "svm")
    mechanisms = ("objective",)
    adaptive_noise = False
    additive = False

    def check_model(self, model: Model) -> None:
        check_smooth("approximate minima perturbation", model)
        check_norm_bound("approximate minima perturbation", self.minimum.log_norm_bound)

    def init(self, params: jax.Array, oracle: Oracle) -> tuple[jax.Array, tuple]:
        return params, ()

    def step(self, params: jax.Array, state: tuple, oracle: Oracle) -> tuple[jax.Array, tuple]:
        minimum, log_signal = self.minimum.query(params, oracle), oracle.setup.log_signal
        share = jax.nn.sigmoid(value(self.logit_output_share, log_signal))
        tolerance = jnp.exp(value(self.log_tolerance, log_signal))
        return oracle.ask(ApproximateMinimum(minimum, share, tolerance, minimum.noise_multiplier)), state

    def finish(self, params: jax.Array, state: tuple, setup: Setup) -> jax.Array:
        return params


@hand_designed(form="rival")
def amp(problem: Problem) -> ApproximateMinima:
    """Approximate minima perturbation (Iyengar et al. 2019).

    Gradients down to a millionth of the noise, for a hundredth of the budget.
    """
    return ApproximateMinima(objpert(problem), logit_constant(0.01), log_constant(1e-6))
