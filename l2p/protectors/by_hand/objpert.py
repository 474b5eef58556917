"""Objective perturbation (Kifer, Smith & Thakurta, COLT 2012): noise in the objective, then its exact minimiser."""

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.models import GeneralizedLinear, Model
from l2p.oracle import Oracle
from l2p.oracle.setup import Setup
from l2p.privacy.accountants.basic import WholePriceList
from l2p.protectors.by_hand.smooth import check_norm_bound, check_smooth
from l2p.protectors.conditioning import value
from l2p.protectors.fields import Count, Polynomial
from l2p.protectors.hand_designed import Problem, log_constant
from l2p.protectors.register import hand_designed
from l2p.queries.perturbed import PerturbedMinimum
from l2p.run.protector import Protector


@struct.dataclass
class ObjectivePerturbation(Protector):
    """One noised minimiser, on rows shrunk to a public norm; (epsilon, delta) as a whole, so its accountant is `basic`.

    Its params are fitted to shrunk rows, see `l2p.queries.shrunk`. Every array is a polynomial in log(mu N), f32[k].

    Attributes:
      log_norm_bound: f32[k], log of the norm that rows, with their intercept column, are shrunk to.
      log_ridge: f32[k], log of the weight of ||params||^2 / 2 beside the mean loss; -inf for the least that privacy
        requires.
      logit_share: f32[k], logit of the largest share of epsilon for the convexity, see
        `l2p.privacy.sensitivity.objective.exact`; the noise gets the rest.
      published: whether to calibrate as in the paper, where that share is a half (static).
    """

    log_norm_bound: Polynomial
    log_ridge: Polynomial
    logit_share: Polynomial
    published: bool = struct.field(pytree_node=False, default=False)
    num_steps: Count = struct.field(pytree_node=False, default=1)
    models = ("logistic", "svm")
    mechanisms = ("objective",)
    adaptive_noise = False
    additive = False

    def check_model(self, model: Model) -> None:
        check_smooth("objective perturbation", model)
        check_norm_bound("objective perturbation", self.log_norm_bound)

    def init(self, params: jax.Array, oracle: Oracle) -> tuple[jax.Array, tuple]:
        return params, ()

    def step(self, params: jax.Array, state: tuple, oracle: Oracle) -> tuple[jax.Array, tuple]:
        return oracle.ask(self.query(params, oracle)), state

    def query(self, params: jax.Array, oracle: Oracle) -> PerturbedMinimum:
        """Its query: a minimiser that takes the whole budget."""
        setup = oracle.setup
        multiplier = oracle.noise_multiplier(setup.price_list.budget, "objective")
        assert isinstance(setup.model, GeneralizedLinear)
        assert isinstance(setup.price_list, WholePriceList)
        return PerturbedMinimum(
            setup.model,
            params,
            jnp.exp(value(self.log_norm_bound, setup.log_signal)),
            jnp.exp(value(self.log_ridge, setup.log_signal)),
            setup.num_rows,
            jax.nn.sigmoid(value(self.logit_share, setup.log_signal)),
            setup.price_list.log_delta,
            multiplier,
            self.published,
        )

    def finish(self, params: jax.Array, state: tuple, setup: Setup) -> jax.Array:
        return params


@hand_designed()
def objpert(problem: Problem) -> ObjectivePerturbation:
    """Objective perturbation, noise by the exact Gaussian curve.

    A tenth of epsilon pays for the convexity.
    """
    del problem
    return ObjectivePerturbation(log_constant(1.0), log_constant(1e-4), log_constant(1 / 9))


@hand_designed("basic", form="paper")
def objpert_paper(problem: Problem) -> ObjectivePerturbation:
    """Objective perturbation as published.

    As published: Delta = 2 lambda / epsilon and sigma = zeta sqrt(8 ln(2 / delta) + 4 epsilon) / epsilon.
    """
    del problem
    return ObjectivePerturbation(log_constant(1.0), jnp.array([-jnp.inf]), jnp.zeros(1), published=True)
