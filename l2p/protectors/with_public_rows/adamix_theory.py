"""AdaMix as its convergence theorem has it (Golatkar et al., CVPR 2022, Algorithm 3 and Theorems 3 and 4)."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base import struct
from l2p.base.errors import InputError
from l2p.models import INTERCEPT_COLUMN, Model, Softmax
from l2p.models.linear import GeneralizedLinear
from l2p.oracle import Oracle
from l2p.oracle.setup import Setup
from l2p.protectors.conditioning import value
from l2p.protectors.fields import Count, Polynomial
from l2p.protectors.hand_designed import Problem, log_constant
from l2p.protectors.register import hand_designed
from l2p.protectors.stepwise.public_rows import PublicGradients, check_classes, public_rows
from l2p.protectors.stepwise.schedulers import noise_for_share, tail_share
from l2p.protectors.with_public_rows.adamix import steps_for
from l2p.queries import ClippedGradient
from l2p.run.protector import Protector
from l2p.task.feature_map import FeatureMap
from l2p.task.rows import Rows

#: How far from 1 the length of a public row may be.
LENGTH_TOLERANCE = 1e-3


@struct.dataclass
class TheoryState:
    """w_ref f32[p], and the average f32[p] of the iterates, each weighted by its number."""

    reference: jax.Array
    average: jax.Array


@struct.dataclass
class AdaMixTheory(Protector):
    """One pass of SGD on public rows, then NoisyGD with eta_t = 2 / (lambda (t + 1)) on the sum of all losses plus
    lambda / 2 |w - w_ref|^2, iterates averaged with weight t.

    Gradients are clipped to the Lipschitz constant L of the loss on rows of length 1, which changes nothing where rows
    have that length; the guarantee holds for any rows. lambda minimises the bound's two terms, d L^2 / (lambda rho) and
    lambda / 2 |w* - w_ref|^2; the paper prints the inverse of that expression.

    Attributes:
      log_convexity: f32[k], log of c, the strong convexity of the expected loss that the public pass assumes; a
        polynomial in log(mu N), like the others.
      log_radius: f32[k], log of B: params are projected to a ball of this radius.
      log_distance: f32[k], log of |w* - w_ref|, a guess.
      num_steps: T (static).
    """

    log_convexity: Polynomial
    log_radius: Polynomial
    log_distance: Polynomial
    num_steps: Count = struct.field(pytree_node=False, default=200)
    models = ("logistic", "softmax", "svm")
    adaptive_noise = False
    needs_public = True

    def check_model(self, model: Model) -> None:
        if model.name not in self.models:
            raise InputError(
                f"adamix_theory needs a convex loss with bounded derivatives, which model {model} has not; choose "
                f"{', '.join(self.models)}, or adamix."
            )

    def check_public(self, public: Rows, model: Model, kind: str) -> None:
        check_classes(public, model, kind)
        lengths = np.linalg.norm(np.asarray(public.x, np.float64), axis=1)[np.asarray(public.mask) > 0]
        if (np.abs(lengths - 1.0) > LENGTH_TOLERANCE).any():
            raise InputError(
                "the theorem of adamix_theory is about rows of length 1, and public rows have other lengths; divide "
                "every row, public and private, by its length (l2p.tables.vision.starts.unit_rows), or choose adamix."
            )

    def init(self, params: jax.Array, oracle: Oracle) -> tuple[jax.Array, TheoryState]:
        rows, setup = public_rows(oracle, "adamix_theory"), oracle.setup
        # A fixed order, so that the same public rows give the same start.
        order = jax.random.permutation(jax.random.key(0), rows.y.shape[0])
        convexity = self._at(self.log_convexity, setup)

        def step(params: jax.Array, numbered: tuple[jax.Array, Rows]) -> tuple[jax.Array, None]:
            number, row = numbered
            gradient = PublicGradients.at(setup.model, params, jax.tree.map(lambda leaf: leaf[None], row)).total()
            return self._in_ball(params - 2.0 / (convexity * (number + 1.0)) * gradient, setup), None

        numbers = jnp.arange(1.0, rows.y.shape[0] + 1.0)
        params, _ = jax.lax.scan(step, params, (numbers, jax.tree.map(lambda leaf: leaf[order], rows)))
        return params, TheoryState(params, params)

    def step(self, params: jax.Array, state: TheoryState, oracle: Oracle) -> tuple[jax.Array, TheoryState]:
        setup, number = oracle.setup, oracle.step + 1.0
        lipschitz = lipschitz_on_unit_rows(setup.model)
        # The average is of iterates before the step: w_1 is the reference itself.
        average = state.average + 2.0 / (number + 1.0) * (params - state.average)
        raw = FeatureMap.identity(setup.model.num_features(params.shape[0]))
        share = tail_share(jnp.zeros(setup.num_charges(self.num_steps)), oracle.charge)
        bound, noise = jnp.float32(lipschitz), noise_for_share(oracle, share)
        private = oracle.ask(ClippedGradient(setup.model, params, raw, bound, noise))
        public = PublicGradients.at(setup.model, params, public_rows(oracle, "adamix_theory")).total()
        decay = self._decay(params.shape[0], lipschitz, setup)
        gradient = private + public + decay * (params - state.reference)
        params = self._in_ball(params - 2.0 / (decay * (number + 1.0)) * gradient, setup)
        return params, TheoryState(state.reference, average)

    def finish(self, params: jax.Array, state: TheoryState, setup: Setup) -> jax.Array:
        return state.average

    def _decay(self, num_params: int, lipschitz: float, setup: Setup) -> jax.Array:
        """lambda f32[] = sqrt(2 d L^2 / rho) / |w* - w_ref|, where rho = mu^2 / 2."""
        mu = setup.price_list.mu / setup.adjacency.sensitivity_factor
        return 2.0 * math.sqrt(num_params) * lipschitz / (mu * self._at(self.log_distance, setup))

    def _in_ball(self, params: jax.Array, setup: Setup) -> jax.Array:
        length = jnp.sqrt(jnp.maximum(jnp.square(params).sum(), 1e-24))
        return params * jnp.minimum(1.0, self._at(self.log_radius, setup) / length)

    def _at(self, coefficients: jax.Array, setup: Setup) -> jax.Array:
        return jnp.exp(value(coefficients, setup.log_signal))


def lipschitz_on_unit_rows(model: Model) -> float:
    """L: the largest gradient of a row of length 1, whose line has the intercept's column, too.

    >>> from l2p.models import Logistic
    >>> round(lipschitz_on_unit_rows(Logistic()), 4), round(lipschitz_on_unit_rows(Softmax(3)), 4)
    (1.118, 1.5811)
    """
    if isinstance(model, Softmax):
        bound = math.sqrt(2.0)  # softmax minus one-hot
    else:
        assert isinstance(model, GeneralizedLinear)
        bound = model.lipschitz
    return bound * math.sqrt(1.0 + INTERCEPT_COLUMN**2)


@hand_designed(form="paper")
def adamix_theory(problem: Problem) -> AdaMixTheory:
    """AdaMix of its convergence theorem, on rows of length 1.

    Algorithm 3: one public pass, decaying steps, averaged iterates; the constants c, B and |w* - w_ref| are guesses.
    """
    return AdaMixTheory(log_constant(0.1), log_constant(20.0), log_constant(5.0), num_steps=steps_for(problem.budget))
