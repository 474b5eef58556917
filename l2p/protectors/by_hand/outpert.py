"""Output perturbation (Zhang, Zheng, Mou & Wang, IJCAI 2017): solve without noise, then add it once."""

import math

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.base.errors import InputError
from l2p.models import GeneralizedLinear, Model
from l2p.oracle import Oracle
from l2p.oracle.setup import Setup
from l2p.privacy.events import Adjacency
from l2p.protectors.by_hand.smooth import check_norm_bound, check_smooth
from l2p.protectors.conditioning import value
from l2p.protectors.fields import Count, Polynomial, Positive
from l2p.protectors.hand_designed import Problem, log_constant
from l2p.protectors.register import hand_designed
from l2p.protectors.stepwise.schedulers import SLACK
from l2p.queries.descent import Descent
from l2p.run.protector import Protector


@struct.dataclass
class OutputPerturbation(Protector):
    """Gradient descent on rows shrunk to a public norm, with Gaussian noise on its last point.

    Its params are fitted to shrunk rows, see `l2p.queries.shrunk`. Every array but the last is a polynomial in
    log(mu N), f32[k].

    Attributes:
      log_norm_bound: f32[k], log of the norm that rows, with their intercept column, are shrunk to.
      log_ridge: f32[k], log of the weight of ||params||^2 / 2 beside the mean loss; -inf for none.
      logit_step: f32[k], step sizes are 2 sigmoid(logit_step) / beta, so never above 2 / beta.
      noise_multiplier: f32[], standard deviation over sensitivity, for a calibration of its own; None for that of the
        whole budget.
      num_iterations: T (static).
    """

    log_norm_bound: Polynomial
    log_ridge: Polynomial
    logit_step: Polynomial
    noise_multiplier: Positive | None = None
    num_iterations: Count = struct.field(pytree_node=False, default=50)
    num_steps: Count = struct.field(pytree_node=False, default=1)
    models = ("logistic", "svm")
    adaptive_noise = False
    additive = False

    @classmethod
    def create(
        cls, norm_bound: float, ridge: float, step_size: float, num_iterations: int = 50
    ) -> "OutputPerturbation":
        """Constant settings; `step_size` in multiples of 1 / beta.

        Raises:
          InputError: a step size outside (0, 2].

        >>> OutputPerturbation.create(norm_bound=1.0, ridge=1e-3, step_size=1.0).logit_step.tolist()
        [0.0]
        """
        if not 0 < step_size <= 2:
            raise InputError(
                f"a step size of {step_size!r} / beta is outside (0, 2 / beta], beyond which two runs may move apart "
                "without bound; choose 1, say."
            )
        # Beyond 20 the sigmoid is 1 in float32.
        logit = min(math.log(step_size) - math.log(max(2 - step_size, 1e-30)), 20.0)
        log_ridge = jnp.array([math.log(ridge) if ridge > 0 else -math.inf], jnp.float32)
        return cls(log_constant(norm_bound), log_ridge, jnp.array([logit], jnp.float32), num_iterations=num_iterations)

    def check_model(self, model: Model) -> None:
        check_smooth("output perturbation", model)
        check_norm_bound("output perturbation", self.log_norm_bound)

    def init(self, params: jax.Array, oracle: Oracle) -> tuple[jax.Array, tuple]:
        return params, ()

    def step(self, params: jax.Array, state: tuple, oracle: Oracle) -> tuple[jax.Array, tuple]:
        setup = oracle.setup
        assert isinstance(setup.model, GeneralizedLinear)
        multiplier = self.noise_multiplier
        if multiplier is None:
            multiplier = oracle.noise_multiplier((1.0 - SLACK) * setup.price_list.budget)
        query = Descent(
            setup.model,
            params,
            jnp.exp(value(self.log_norm_bound, setup.log_signal)),
            jnp.exp(value(self.log_ridge, setup.log_signal)),
            2.0 * jax.nn.sigmoid(value(self.logit_step, setup.log_signal)),
            setup.num_rows,
            multiplier,
            self.num_iterations,
        )
        return oracle.ask(query), state

    def finish(self, params: jax.Array, state: tuple, setup: Setup) -> jax.Array:
        return params


@hand_designed()
def outpert(problem: Problem) -> OutputPerturbation:
    """Output perturbation with exact Gaussian-DP noise.

    Output perturbation with exact Gaussian-DP noise on the sensitivity of its adjacency.
    """
    del problem
    return OutputPerturbation.create(norm_bound=1.0, ridge=1e-3, step_size=1.0)


@hand_designed("gdp", Adjacency.REPLACE_ONE, "paper")
def outpert_paper(problem: Problem) -> OutputPerturbation:
    """Output perturbation as published.

    As published: no ridge, steps of 1 / beta, sensitivity 3 L T eta / N, and sqrt(2 ln(1.25 / delta)) / epsilon.

    Replacing a row moves the result by 2 L T eta / N, so 3 L T eta / N is 1.5 times the sensitivity; the certificate
    accounts for that.
    """
    classic = math.sqrt(2.0 * math.log(1.25 / problem.budget.delta)) / problem.budget.epsilon
    protector = OutputPerturbation.create(norm_bound=1.0, ridge=0.0, step_size=1.0)
    return protector.replace(noise_multiplier=jnp.float32(1.5 * classic))
