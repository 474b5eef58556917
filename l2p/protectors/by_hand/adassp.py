"""Sufficient statistics perturbation with an adaptive ridge, for least squares (AdaSSP; Wang, UAI 2018)."""

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.base.errors import InputError
from l2p.models import INTERCEPT_COLUMN, Model
from l2p.oracle import Oracle
from l2p.oracle.setup import Setup
from l2p.protectors.by_hand.smooth import check_norm_bound
from l2p.protectors.conditioning import value
from l2p.protectors.fields import Count, Polynomial
from l2p.protectors.hand_designed import Problem, log_constant
from l2p.protectors.register import hand_designed
from l2p.protectors.stepwise.schedulers import SLACK
from l2p.queries.moments import CrossMoment, LeastEigenvalue, SecondMoment, unfolded
from l2p.run.protector import Protector


@struct.dataclass
class AdaSSP(Protector):
    """Noised X'X and X'y, and a ridge just large enough for the noise, chosen from a noised least eigenvalue.

    As in Wang (2018), with two changes: three equal shares of mu^2 instead of epsilon and delta, and symmetric noise
    whose deviation off the diagonal is calibrated to the Frobenius norm, 1 / sqrt(2) of the paper's. Its params are
    fitted to shrunk rows, see `l2p.queries.shrunk`. A prediction for a shrunk row is smaller than that for the raw one,
    by a factor that differs between rows, and has the same sign. So two classes are fitted as -1 and 1 and predicted by
    the sign. Both arrays are polynomials in log(mu N), f32[k].

    Attributes:
      log_norm_bound: f32[k], log of the norm that rows, with their intercept column, are shrunk to.
      log_failure: f32[k], log of the probability rho that the noise exceeds what the ridge allows for.
    """

    log_norm_bound: Polynomial
    log_failure: Polynomial
    num_steps: Count = struct.field(pytree_node=False, default=1)
    models = ("square",)
    adaptive_noise = False

    def check_model(self, model: Model) -> None:
        if model.name not in self.models:
            raise InputError(
                f"adassp solves least squares from X'X and X'y, which do not determine the loss of {model.name}; "
                "choose model square, or another method."
            )
        check_norm_bound("adassp", self.log_norm_bound)

    def init(self, params: jax.Array, oracle: Oracle) -> tuple[jax.Array, tuple]:
        return params, ()

    def step(self, params: jax.Array, state: tuple, oracle: Oracle) -> tuple[jax.Array, tuple]:
        setup, size = oracle.setup, params.shape[0]
        norm_bound = jnp.exp(value(self.log_norm_bound, setup.log_signal))
        multiplier = oracle.noise_multiplier((1.0 - SLACK) / 3.0 * setup.price_list.budget)
        moment = SecondMoment(size - 1, norm_bound, multiplier)
        least_eigenvalue = oracle.ask(LeastEigenvalue(moment, multiplier))[0]
        second = unfolded(oracle.ask(moment), size)
        is_binary = setup.kind == "binary"
        cross = oracle.ask(CrossMoment(size - 1, norm_bound, multiplier, is_binary))
        noise_std = multiplier * moment.bound * setup.adjacency.sensitivity_factor
        ridge = adaptive_ridge(least_eigenvalue, noise_std, size, value(self.log_failure, setup.log_signal))
        solution = jnp.linalg.solve(second + ridge * jnp.eye(size), cross)
        return predicting_labels(solution) if is_binary else solution, state

    def finish(self, params: jax.Array, state: tuple, setup: Setup) -> jax.Array:
        return params


def adaptive_ridge(least_eigenvalue: jax.Array, noise_std: jax.Array, size: int, log_failure: jax.Array) -> jax.Array:
    """The ridge f32[] of Wang (2018).

    Args:
      least_eigenvalue: f32[], the noised least eigenvalue of a second moment f32[size, size].
      noise_std: f32[], standard deviation of the noise on it, and on the matrix, `folded`.
      size: number of params.
      log_failure: f32[], log of the probability that the noise exceeds what the ridge allows for.
    """
    # With high probability the eigenvalue is at least `eigenvalue_bound`, and the noise on the matrix at most
    # `noise_bound`.
    eigenvalue_bound = jnp.maximum(least_eigenvalue - noise_std * jnp.sqrt(-2.0 * log_failure), 0.0)
    noise_bound = noise_std * jnp.sqrt(size * (jnp.log(2.0 * size**2) - log_failure))
    return jnp.maximum(noise_bound - eigenvalue_bound, 0.0)


def predicting_labels(params: jax.Array) -> jax.Array:
    """Params f32[p] that predict labels y, 0 and 1, from those that predict 2 y - 1: the sign of one prediction tells
    on which side of 1/2 the other lies, which decides the class."""
    return (0.5 * params).at[-1].add(0.5 / INTERCEPT_COLUMN)


@hand_designed(form="rival")
def adassp(problem: Problem) -> AdaSSP:
    """AdaSSP: noised sums and an adaptive ridge, for least squares.

    AdaSSP at its author's failure probability, 0.05, on rows of norm at most 1.
    """
    del problem
    return AdaSSP(log_constant(1.0), log_constant(0.05))
