"""Boosted sufficient statistics for least squares (BoostedAdaSSP; Tang et al., NeurIPS 2023)."""

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.base.errors import InputError
from l2p.models import Model
from l2p.oracle import Oracle
from l2p.oracle.setup import Setup
from l2p.protectors.by_hand.adassp import adaptive_ridge
from l2p.protectors.by_hand.centred import OnCentredRows
from l2p.protectors.by_hand.gradient_descent import private_mean
from l2p.protectors.by_hand.smooth import check_norm_bound
from l2p.protectors.conditioning import value
from l2p.protectors.fields import Count, Polynomial
from l2p.protectors.hand_designed import Problem, log_constant, logit_constant
from l2p.protectors.register import hand_designed
from l2p.protectors.stepwise.centering import Centering
from l2p.protectors.stepwise.schedulers import noise_for_share, tail_share
from l2p.queries import ClippedGradient, LeastEigenvalue, SecondMoment
from l2p.queries.moments import unfolded
from l2p.task.feature_map import FeatureMap


@struct.dataclass
class BoostedState:
    """The map that rows are read through, and the noised second moment with its ridge f32[p, p]."""

    features: FeatureMap
    moment: jax.Array


@struct.dataclass
class BoostedAdaSSP(OnCentredRows):
    """Rounds of least squares on residuals, with one noised second moment for all of them and clipping that is fixed.

    The second moment and its least eigenvalue are bought once, as in `l2p.protectors.by_hand.adassp`; a round buys the
    sum of residuals times rows and adds a share of the solution. That sum is a clipped gradient of the squares: a row's
    part is limited as a whole, where Tang et al. limit features and residual one by one. Rows are only shrunk for the
    second moment, which merely decides how far a round goes; so predictions are for raw rows, and labels stay 0 and 1.
    The noise is calibrated by this package's accountant; the authors' code (3a7198b) multiplies by mu where it should
    divide. All arrays are polynomials in log(mu N), f32[k].

    Attributes:
      centering: the private mean that is bought first.
      log_norm_bound: f32[k], log of the norm that mapped rows, with their intercept column, are shrunk to.
      log_clip_norm: f32[k], log of the clipping norm of residual times row.
      logit_share: f32[k], logit of the share of second moment and eigenvalue together in the budget after the mean.
      log_failure: f32[k], log of the probability that the noise exceeds what the ridge allows for.
      logit_shrinkage: f32[k], logit of the share of a round's solution that is added.
      num_steps: T, rounds (static).
    """

    centering: Centering
    log_norm_bound: Polynomial
    log_clip_norm: Polynomial
    logit_share: Polynomial
    log_failure: Polynomial
    logit_shrinkage: Polynomial
    num_steps: Count = struct.field(pytree_node=False, default=10)
    models = ("square",)
    adaptive_noise = False

    def check_model(self, model: Model) -> None:
        if model.name not in self.models:
            raise InputError(
                f"boosted_adassp fits least squares to residuals, and the loss of {model.name} is another one; choose "
                "model square, or dp_newton or dp_fc."
            )
        check_norm_bound("boosted_adassp", self.log_norm_bound)

    def init(self, params: jax.Array, oracle: Oracle) -> tuple[jax.Array, BoostedState]:
        params, features = super().init(params, oracle)
        setup, size, log_signal = oracle.setup, params.shape[0], oracle.setup.log_signal
        share = jax.nn.sigmoid(value(self.logit_share, log_signal))
        multiplier = noise_for_share(oracle, share / 2.0)  # for both, before either is paid for
        moment = SecondMoment(size - 1, jnp.exp(value(self.log_norm_bound, log_signal)), multiplier, features)
        least_eigenvalue = oracle.ask(LeastEigenvalue(moment, multiplier))[0]
        second = unfolded(oracle.ask(moment), size)
        noise_std = multiplier * moment.bound * setup.adjacency.sensitivity_factor
        ridge = adaptive_ridge(least_eigenvalue, noise_std, size, value(self.log_failure, log_signal))
        return params, BoostedState(features, second + ridge * jnp.eye(size))

    def view(self, state: BoostedState) -> FeatureMap | None:
        return state.features

    def step(self, params: jax.Array, state: BoostedState, oracle: Oracle) -> tuple[jax.Array, BoostedState]:
        setup, log_signal = oracle.setup, oracle.setup.log_signal
        share = tail_share(jnp.zeros(setup.num_charges(self.num_steps)), oracle.charge)
        as_given = FeatureMap.identity(setup.model.num_features(params.shape[0]))
        clip_norm = jnp.exp(value(self.log_clip_norm, log_signal))
        query = ClippedGradient(setup.model, params, as_given, clip_norm, noise_for_share(oracle, share))
        shrinkage = jax.nn.sigmoid(value(self.logit_shrinkage, log_signal))
        return params - shrinkage * jnp.linalg.solve(state.moment, oracle.ask(query)), state

    def finish(self, params: jax.Array, state: BoostedState, setup: Setup) -> jax.Array:
        return setup.model.params_for_raw_rows(params, state.features)


@hand_designed(form="rival")
def boosted_adassp(problem: Problem) -> BoostedAdaSSP:
    """AdaSSP in rounds on residuals, with fixed clipping.

    Ten rounds after a private mean for a twentieth of the budget; second moment and least eigenvalue cost half of the
    rest. Three tenths of each solution are added, 1 / sqrt(10) as in the authors' code: full ones would leave the noise
    of the last round alone.
    """
    del problem
    return BoostedAdaSSP(
        private_mean(length=1.0),
        log_norm_bound=log_constant(1.2),
        log_clip_norm=log_constant(0.5),
        logit_share=logit_constant(0.5),
        log_failure=log_constant(0.05),
        logit_shrinkage=logit_constant(0.3),
    )
