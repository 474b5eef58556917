"""Least squares from private second moments and cross moments (DP-LS; Mehta et al., TMLR 2023)."""

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.base.errors import InputError
from l2p.models import Model, Softmax
from l2p.oracle import Oracle
from l2p.protectors.by_hand.adassp import predicting_labels
from l2p.protectors.by_hand.gradient_descent import private_mean
from l2p.protectors.by_hand.noised_moments import Moments, NoisedMoments
from l2p.protectors.conditioning import value
from l2p.protectors.fields import Count, Polynomial
from l2p.protectors.hand_designed import Problem, log_constant, logit_constant
from l2p.protectors.register import hand_designed
from l2p.protectors.stepwise.centering import Centering


@struct.dataclass
class DPLeastSquares(NoisedMoments):
    """Ridge regression on noised moments; several classes are fitted as one-hot targets, and two as -1 and 1.

    For numbers the fit is a change of the public start, so that a dominating ridge predicts the middle of the targets'
    range and not zero. For softmax, margins are the fitted one-hot targets, less their average over classes, times a
    scale, because class probabilities need larger margins than targets of 0 and 1: a scale of K minimises the
    second-order approximation of the softmax loss at zero. The scale does not change which class is predicted.

    Attributes:
      centering, log_norm_bound, logit_share, log_ridge: as in `NoisedMoments`.
      log_scale: f32[k], log of the scale over K, a polynomial in log(mu N); for softmax only.
    """

    centering: Centering
    log_norm_bound: Polynomial
    logit_share: Polynomial
    log_ridge: Polynomial
    log_scale: Polynomial
    num_steps: Count = struct.field(pytree_node=False, default=1)
    models = ("square", "softmax")

    def check_model(self, model: Model) -> None:
        if model.name not in self.models:
            raise InputError(
                f"dp_ls solves least squares from second moments, which do not determine the loss of {model.name}; "
                "choose model square or softmax, or for logistic regression from the same sums pass_glm."
            )
        super().check_model(model)

    def solution(self, params: jax.Array, moments: Moments, oracle: Oracle) -> jax.Array:
        setup = oracle.setup
        if isinstance(setup.model, Softmax):
            centred = moments.cross - moments.cross.mean(1, keepdims=True)
            scale = setup.model.num_classes * jnp.exp(value(self.log_scale, setup.log_signal))
            return scale * moments.solve(centred).ravel()
        if setup.kind == "binary":
            return predicting_labels(moments.solve(moments.cross))
        return params + moments.solve(moments.cross - moments.second @ params)


@hand_designed(form="rival")
def dp_ls(problem: Problem) -> DPLeastSquares:
    """Least squares from noised second and cross moments.

    In one step after a private mean for a twentieth of the budget; both sums cost the same.
    """
    del problem
    return DPLeastSquares(
        private_mean(length=1.0),
        log_norm_bound=log_constant(1.2),
        logit_share=logit_constant(0.5),
        log_ridge=log_constant(1.5),
        log_scale=log_constant(1.0),
    )
