"""ADADP (Koskela and Honkela, AISTATS 2020): the learning rate follows the difference between one step and two
half-steps.

Both gradients are noised and charged; comparing the two resulting points is post-processing and costs nothing.
"""

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.models import NAMES
from l2p.oracle import Oracle
from l2p.oracle.setup import Setup
from l2p.privacy.cost.sampling import FullBatch, Sampler
from l2p.protectors.conditioning import value
from l2p.protectors.fields import Count, Polynomial
from l2p.protectors.hand_designed import Problem, log_constant
from l2p.protectors.register import hand_designed
from l2p.protectors.stepwise.schedulers import noise_for_share, tail_share
from l2p.queries import ClippedGradient
from l2p.run.protector import Protector
from l2p.task.feature_map import FeatureMap

#: The largest change of the learning rate in one step, down and up (alpha_min and alpha_max of the paper).
MIN_CHANGE, MAX_CHANGE = 0.9, 1.1


@struct.dataclass
class AdaDPState:
    """State between two steps: log_rate f32[], log of the learning rate."""

    log_rate: jax.Array


@struct.dataclass
class AdaDP(Protector):
    """Gradient descent by pairs of half-steps, with constant noise.

    From params, with a noised mean gradient g at params and a second one, h, at params - rate / 2 * g:

        full = params - rate * g,  half = params - rate / 2 * (g + h),
        error = ||(full - half) / max(1, |full|)||_2,  rate <- rate * clip(sqrt(tolerance / error), 0.9, 1.1).

    The step goes to `half`, or stays if the error exceeds the tolerance (Algorithm 2 of the paper; the square root and
    the point that scales the error are those of the authors' code). Under Poisson sampling each gradient reads a batch
    of its own, as in the paper; with permutation epochs both read the same.

    Every array is a polynomial in log(mu N), f32[k]; f32[1] is a constant.

    Attributes:
      log_clip_norm: f32[k], log of the clipping norm.
      log_learning_rate: f32[k], log of the first learning rate.
      log_tolerance: f32[k], log of the target error. Noise in the gradients counts as error, so a smaller tolerance
        also means smaller steps under more noise.
      num_steps: T, each of two gradients (static).
      sampler: which rows a gradient is summed over (static).
    """

    log_clip_norm: Polynomial
    log_learning_rate: Polynomial
    log_tolerance: Polynomial
    num_steps: Count = struct.field(pytree_node=False, default=50)
    sampler: Sampler = struct.field(pytree_node=False, default=FullBatch())
    models = NAMES
    any_model = True
    adaptive_noise = False

    def init(self, params: jax.Array, oracle: Oracle) -> tuple[jax.Array, AdaDPState]:
        return params, AdaDPState(value(self.log_learning_rate, oracle.setup.log_signal))

    def step(self, params: jax.Array, state: AdaDPState, oracle: Oracle) -> tuple[jax.Array, AdaDPState]:
        setup = oracle.setup
        identity = FeatureMap.identity(setup.model.num_features(params.shape[0]))
        clip_norm = jnp.exp(value(self.log_clip_norm, setup.log_signal))
        # Planned once for both, so that they are equally noisy.
        share = tail_share(jnp.zeros(setup.num_charges(self.num_steps)), oracle.charge)
        noise_multiplier = noise_for_share(oracle, share / 2.0)

        def gradient(point: jax.Array) -> jax.Array:
            query = ClippedGradient(setup.model, point, identity, clip_norm, noise_multiplier)
            return oracle.ask(query) / setup.batch_rows

        rate = jnp.exp(state.log_rate)
        first = gradient(params)
        middle = params - 0.5 * rate * first
        full, half = params - rate * first, middle - 0.5 * rate * gradient(middle)

        square = jnp.square((full - half) / jnp.maximum(1.0, jnp.abs(full))).sum()
        # The floor only keeps the logarithm and its derivative finite.
        log_excess = 0.5 * jnp.log(square + 1e-24) - value(self.log_tolerance, setup.log_signal)
        change = jnp.clip(-0.5 * log_excess, jnp.log(MIN_CHANGE), jnp.log(MAX_CHANGE))
        return jnp.where(log_excess <= 0.0, half, params), AdaDPState(state.log_rate + change)

    def finish(self, params: jax.Array, state: AdaDPState, setup: Setup) -> jax.Array:
        return params


@hand_designed(form="rival")
def adadp(problem: Problem) -> AdaDP:
    """ADADP: a learning rate from the difference of two half-steps.

    ADADP at its authors' tolerance, 1, on full batches, with as many steps and the first rate of `noisygd`.
    """
    del problem
    return AdaDP(log_clip_norm=log_constant(1.0), log_learning_rate=log_constant(0.5), log_tolerance=log_constant(1.0))
