"""PNSGD (Feldman, Mironov, Talwar & Thakurta, FOCS 2018): the noise of later steps hides the rows of earlier ones."""

import math

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.base.errors import InputError
from l2p.models import INTERCEPT_COLUMN, GeneralizedLinear, Model
from l2p.oracle import Oracle
from l2p.oracle.setup import Setup
from l2p.protectors.by_hand.smooth import check_norm_bound
from l2p.protectors.conditioning import value
from l2p.protectors.fields import Count, Polynomial
from l2p.protectors.hand_designed import Problem, log_constant
from l2p.protectors.register import hand_designed
from l2p.protectors.stepwise.public_rows import public_rows
from l2p.protectors.stepwise.schedulers import SLACK
from l2p.queries.one_pass import OnePass
from l2p.run.protector import Protector


@struct.dataclass
class PNSGD(Protector):
    """One noisy pass over the private rows and then the public ones; only its end is released.

    The step size is that of Feldman et al., Corollary 30: the ball's diameter over sqrt(n (L^2 + p sigma^2)), sigma the
    noise on a gradient, and 2 / beta at most. Rows are shrunk to a norm. Least squares on shrunk rows predicts too
    large values for raw ones, so there it is the norm of the longest public row, which most rows do not exceed: the
    longest one in [0, 1]^d would need noise some d times as large.

    Attributes:
      log_norm_bound: f32[k], log of the norm that rows, with their intercept column, are shrunk to; not used for least
        squares.
      log_radius: f32[k], log of the radius of the ball that params stay in.
      log_step: f32[k], log of the step size over that of the corollary.
    """

    log_norm_bound: Polynomial
    log_radius: Polynomial
    log_step: Polynomial
    num_steps: Count = struct.field(pytree_node=False, default=1)
    models = ("logistic", "svm", "square")
    adaptive_noise = False
    additive = False
    needs_public = True
    reads_in_order = True

    def check_model(self, model: Model) -> None:
        if not isinstance(model, GeneralizedLinear) or not math.isfinite(model.smoothness) or not model.has_intercept:
            raise InputError(
                f"PNSGD is proved for smooth losses of one margin, which model {model} does not have, so nothing would "
                "be guaranteed; choose model logistic, square, or svm (Huber's smooth form of the hinge)."
            )
        check_norm_bound("PNSGD", self.log_norm_bound)

    def init(self, params: jax.Array, oracle: Oracle) -> tuple[jax.Array, tuple]:
        public_rows(oracle, "PNSGD")
        return params, ()

    def step(self, params: jax.Array, state: tuple, oracle: Oracle) -> tuple[jax.Array, tuple]:
        return oracle.ask(self.query(params, oracle)), state

    def query(self, params: jax.Array, oracle: Oracle) -> OnePass:
        """Its query, which takes the whole budget."""
        setup, signal = oracle.setup, oracle.setup.log_signal
        model = setup.model
        assert isinstance(model, GeneralizedLinear)
        public = public_rows(oracle, "PNSGD")
        norm_bound = jnp.exp(value(self.log_norm_bound, signal))
        if not math.isfinite(model.lipschitz):
            squares = jnp.square(model.design(public.x)).sum(-1)
            norm_bound = jnp.sqrt(jnp.max(jnp.where(public.mask > 0, squares, INTERCEPT_COLUMN**2)))
        multiplier = oracle.noise_multiplier((1.0 - SLACK) * setup.price_list.budget)
        longest = OnePass(
            model,
            params,
            public,
            norm_bound,
            jnp.exp(value(self.log_radius, signal)),
            jnp.full((), 2.0),
            setup.num_rows,
            multiplier,
        )
        sigma = multiplier * setup.adjacency.sensitivity_factor / longest.num_last**0.5  # over L
        steps = setup.num_rows + longest.num_last - 1
        step_size = 2.0 * longest.radius / longest.lipschitz
        step_size = step_size * jax.lax.rsqrt(steps * (1.0 + params.shape[0] * jnp.square(sigma)))
        multiple = step_size * jnp.exp(value(self.log_step, signal)) * model.smoothness * jnp.square(norm_bound)
        return longest.replace(step_size=jnp.minimum(multiple, 2.0))

    def finish(self, params: jax.Array, state: tuple, setup: Setup) -> jax.Array:
        return params


#: Radius of the ball and steps over the corollary's, chosen on `breast_cancer`; for least squares, whose noise grows
#: with the ball, on `diabetes`. At the corollary's own step noise alone crosses the whole ball in a pass.
RADIUS, STEP, SQUARE_RADIUS, SQUARE_STEP = 5.0, 0.3, 2.0, 0.1


@hand_designed(form="paper")
def pnsgd(problem: Problem) -> PNSGD:
    """One noisy pass, public rows last (Feldman et al. 2018).

    In a ball of radius 5, on rows shrunk to norm 1, at .3 of the corollary's step size; for least squares in a ball of
    radius 2, on rows shrunk to the longest public one, at .1.
    """
    radius, step = (SQUARE_RADIUS, SQUARE_STEP) if problem.model.name == "square" else (RADIUS, STEP)
    return PNSGD(log_constant(1.0), log_constant(radius), log_constant(step))
