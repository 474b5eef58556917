"""Newton's method with noise on gradients and on Hessians (DP-Newton; Ganesh et al. and Mehta et al., 2023)."""

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.base.errors import InputError
from l2p.models import GeneralizedLinear, Model
from l2p.oracle import Oracle
from l2p.protectors.by_hand.centred import OnCentredRows
from l2p.protectors.by_hand.gradient_descent import private_mean
from l2p.protectors.by_hand.smooth import check_norm_bound, check_smooth
from l2p.protectors.conditioning import value
from l2p.protectors.fields import Count, Polynomial
from l2p.protectors.hand_designed import Problem, log_constant, logit_constant
from l2p.protectors.register import hand_designed
from l2p.protectors.stepwise.centering import Centering
from l2p.protectors.stepwise.schedulers import noise_for_share, tail_share
from l2p.queries import ClippedGradient, HessianSum
from l2p.queries.moments import noise_radius, unfolded
from l2p.task.feature_map import FeatureMap


@struct.dataclass
class DPNewton(OnCentredRows):
    """Steps of a noised gradient times the inverse of a noised Hessian with a ridge, of limited length.

    Both are released sums, and post-processing is free. Ganesh et al. noise the gradient, too, but then the step and
    not the Hessian; Mehta et al. noise gradient and Hessian as here. A row's Hessian moves the sum by at most
    beta R^2 in Frobenius norm, which holds for rows that are longer than R, too, because the query limits them. The
    ridge is a multiple of the noise's spectral radius. Where noise dominates, the limit on a step's length keeps
    params from going anywhere at random. All arrays are polynomials in log(mu N), f32[k].

    Attributes:
      centering: the private mean that is bought first.
      log_clip_norm: f32[k], log of the clipping norm of gradients.
      log_norm_bound: f32[k], log of R, for mapped rows with their intercept column.
      logit_hessian_share: f32[k], logit of the Hessian's share of a step's budget.
      log_ridge: f32[k], log of the ridge over the spectral radius of the noise on the Hessian.
      log_max_step: f32[k], log of the largest length of a step, in params of mapped rows.
      num_steps: T (static).
    """

    centering: Centering
    log_clip_norm: Polynomial
    log_norm_bound: Polynomial
    logit_hessian_share: Polynomial
    log_ridge: Polynomial
    log_max_step: Polynomial
    num_steps: Count = struct.field(pytree_node=False, default=8)
    models = ("logistic", "svm")
    adaptive_noise = False

    def check_model(self, model: Model) -> None:
        if model.name == "square":
            raise InputError(
                "dp_newton would buy the same Hessian at every step, because that of least squares does not depend on "
                "params; choose dp_ls or boosted_adassp, which buy it once."
            )
        if model.name in ("softmax", "mlp"):
            raise InputError(
                f"dp_newton buys a matrix with a row for each param, and model {model.name} has so many that noise "
                "would be all of it; choose dp_fc, which buys second moments of the features alone."
            )
        check_smooth("dp_newton", model)
        check_norm_bound("dp_newton", self.log_norm_bound)

    def step(self, params: jax.Array, state: FeatureMap, oracle: Oracle) -> tuple[jax.Array, FeatureMap]:
        setup, size = oracle.setup, params.shape[0]
        assert isinstance(setup.model, GeneralizedLinear)
        log_signal = setup.log_signal
        share = tail_share(jnp.zeros(setup.num_charges(self.num_steps)), oracle.charge)
        hessian_share = jax.nn.sigmoid(value(self.logit_hessian_share, log_signal))
        # Both are planned before either is paid for.
        multipliers = [noise_for_share(oracle, share * part) for part in (hessian_share, 1.0 - hessian_share)]
        query = HessianSum(setup.model, params, jnp.exp(value(self.log_norm_bound, log_signal)), multipliers[0])
        hessian = unfolded(oracle.ask(query), size)
        as_given = FeatureMap.identity(setup.model.num_features(size))
        clip_norm = jnp.exp(value(self.log_clip_norm, log_signal))
        gradient = oracle.ask(ClippedGradient(setup.model, params, as_given, clip_norm, multipliers[1]))
        ridge = jnp.exp(value(self.log_ridge, log_signal)) * noise_radius(
            multipliers[0], query.bound, size, setup.adjacency
        )
        direction = jnp.linalg.solve(hessian + ridge * jnp.eye(size), gradient)
        length = jnp.sqrt(jnp.square(direction).sum() + 1e-24)
        max_length = jnp.exp(value(self.log_max_step, log_signal))
        return params - direction * jnp.minimum(1.0, max_length / length), state


@hand_designed(form="rival")
def dp_newton(problem: Problem) -> DPNewton:
    """Newton steps by noised gradients and noised Hessians.

    Eight steps after a private mean for a twentieth of the budget; Hessians take 40 % of the rest.
    """
    del problem
    return DPNewton(
        private_mean(),
        log_clip_norm=log_constant(1.0),
        log_norm_bound=log_constant(2.5),
        logit_hessian_share=logit_constant(0.4),
        log_ridge=log_constant(1.5),
        log_max_step=log_constant(4.0),
    )
