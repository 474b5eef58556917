"""DP-AGD (Lee and Kifer, KDD 2018): gradient descent whose step sizes are chosen by noisy minimum.

Its three nested loops are one flat step here: buy or improve the gradient, choose a step size, then move or raise the
price.
"""

import dataclasses
import math
from typing import Literal

import jax
import jax.numpy as jnp
import optax

from l2p.base import struct
from l2p.models import NAMES
from l2p.oracle import Oracle
from l2p.oracle.setup import Setup
from l2p.privacy.accountants import covering
from l2p.privacy.cap.filter import Filter, default_accountant
from l2p.privacy.cost.sampling import FullBatch
from l2p.protectors.conditioning import value
from l2p.protectors.fields import Count, Polynomial
from l2p.protectors.hand_designed import Problem, log_constant
from l2p.protectors.register import hand_designed
from l2p.queries import ClippedGradient, NoisyLineSearch
from l2p.run.protector import Protector
from l2p.task.feature_map import FeatureMap

NUM_CANDIDATES = 20
#: After this many moves the largest candidate becomes 1.1 times the largest step taken during them.
WINDOW = 10


@struct.dataclass
class AGDState:
    """State between two steps.

    Attributes:
      gradient: f32[p], the noised gradient sum bought so far at this point; zeros once a move was made.
      bought: f32[], its price so far in the accountant's unit.
      price: f32[], target price of this step's gradient.
      max_step: f32[], largest candidate step size.
      largest: f32[], largest step taken in this window.
      moves: i32[], moves made.
    """

    gradient: jax.Array
    bought: jax.Array
    price: jax.Array
    max_step: jax.Array
    largest: jax.Array
    moves: jax.Array


@struct.dataclass
class AGD(Protector):
    """Adaptive gradient descent. Prices are shares of the budget, so that one setting serves every epsilon.

    Every field is a polynomial in log(mu N), f32[k]; f32[1] is a constant.

    Attributes:
      log_gradient_share: f32[k], log of the share of the budget that a gradient costs at first.
      log_selection_share: f32[k], log of the share that a choice of step size costs.
      log_increase: f32[k], log of gamma: a rejected gradient's price grows by the factor 1 + gamma.
      log_gradient_clip: f32[k], log of the clipping norm of gradients.
      log_loss_clip: f32[k], log of the largest loss of one row.
      log_max_step: f32[k], log of the largest candidate step size.
      log_regularization: f32[k], log of the weight of the L2 term in the direction.
      selection: "exponential" as in the paper, or "gumbel", which costs a quarter at the same noise (static).
      num_steps: maximum number of steps (static); the budget usually ends the run earlier.
    """

    log_gradient_share: Polynomial
    log_selection_share: Polynomial
    log_increase: Polynomial
    log_gradient_clip: Polynomial
    log_loss_clip: Polynomial
    log_max_step: Polynomial
    log_regularization: Polynomial
    selection: Literal["exponential", "gumbel"] = struct.field(pytree_node=False, default="exponential")
    num_steps: Count = struct.field(pytree_node=False, default=1024)
    models = NAMES
    any_model = True

    @property
    def mechanisms(self) -> tuple[str, ...]:  # type: ignore[override]
        return ("gaussian", self.selection)

    def init(self, params: jax.Array, oracle: Oracle) -> tuple[jax.Array, AGDState]:
        zero = jnp.zeros((), jnp.float32)
        price = self._at(self.log_gradient_share, oracle.setup) * oracle.setup.price_list.budget
        max_step = self._at(self.log_max_step, oracle.setup)
        return params, AGDState(jnp.zeros_like(params), zero, price, max_step, zero, jnp.zeros((), jnp.int32))

    def _at(self, coefficients: jax.Array, setup: Setup) -> jax.Array:
        return jnp.exp(value(coefficients, setup.log_signal))

    def step(self, params: jax.Array, state: AGDState, oracle: Oracle) -> tuple[jax.Array, AGDState]:
        setup = oracle.setup
        identity = FeatureMap.identity(setup.model.num_features(params.shape[0]))
        # After a rejection only the difference is bought. Independent estimates are averaged by inverse variance, which
        # for Gaussian noise is proportional to the price.
        topup = oracle.noise_multiplier(state.price - state.bought)
        fresh = oracle.ask(
            ClippedGradient(setup.model, params, identity, self._at(self.log_gradient_clip, setup), topup)
        )
        gradient = (state.bought * state.gradient + (state.price - state.bought) * fresh) / state.price

        direction = gradient / optax.safe_norm(gradient, 1e-12) + self._at(self.log_regularization, setup) * params
        sizes = state.max_step * jnp.arange(NUM_CANDIDATES + 1) / NUM_CANDIDATES
        choice = oracle.noise_multiplier(
            self._at(self.log_selection_share, setup) * setup.price_list.budget, self.selection
        )
        loss_clip = self._at(self.log_loss_clip, setup)
        search = NoisyLineSearch(setup.model, params, direction, sizes, loss_clip, choice, self.selection)
        index = oracle.ask(search)

        moved = index > 0
        moves = state.moves + moved
        largest = jnp.maximum(state.largest, sizes[index])
        close = moved & (moves % WINDOW == 0)
        next_max = jnp.minimum(1.1 * largest, self._at(self.log_max_step, setup))
        after = AGDState(
            gradient=jnp.where(moved, 0.0, gradient),
            bought=jnp.where(moved, 0.0, state.price),
            price=jnp.where(moved, state.price, state.price * (1.0 + self._at(self.log_increase, setup))),
            max_step=jnp.where(close, next_max, state.max_step),
            largest=jnp.where(close, 0.0, largest),
            moves=moves,
        )
        return jnp.where(moved, search.point(index), params), after

    def finish(self, params: jax.Array, state: AGDState, setup: Setup) -> jax.Array:
        return params


@hand_designed(form="paper")
def agd(problem: Problem) -> AGD:
    """AGD: steps by private line search, more budget when stuck.

    AGD at its authors' settings: epsilon / 120 for the first choice and, by the classic Gaussian calibration, the
    first gradient; clipping norms 3, gamma 0.1, 20 step sizes up to 2, L2 weight 0.001 (Lee and Kifer 2018)."""
    budget, accountant = problem.budget, problem.accountant
    first_epsilon = 0.5 * budget.epsilon / 60
    selection_rho = 0.5 * first_epsilon**2
    gradient_rho = 0.5 * first_epsilon**2 / (2.0 * math.log(1.25 / budget.delta))
    # An accountant without a theorem for it is refused when the run is planned; the settings only need some unit here.
    if accountant not in covering(FullBatch(), "gaussian"):
        accountant = default_accountant(("gaussian", "exponential"))
    filter = Filter(accountant, budget)
    rho = filter.limit / filter.coefficients["gaussian"] / 2.0
    return AGD(
        log_gradient_share=log_constant(gradient_rho / rho),
        log_selection_share=log_constant(selection_rho / rho),
        log_increase=log_constant(0.1),
        log_gradient_clip=log_constant(3.0),
        log_loss_clip=log_constant(3.0),
        log_max_step=log_constant(2.0),
        log_regularization=log_constant(0.001),
    )


@hand_designed()
def agd_gumbel(problem: Problem) -> AGD:
    """AGD with Gumbel noise in its choices, a quarter of the price.

    `agd` with Gumbel noise in its choices: the same scale for a quarter of the price, which leaves more steps.
    """
    paper = agd(problem)
    return dataclasses.replace(paper, log_selection_share=paper.log_selection_share - math.log(4.0), selection="gumbel")
