"""HyFreeDP (Liu and Bu, ICLR 2025): automatic clipping, and a learning rate from privately probed losses."""

import math
from typing import Annotated

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.models import NAMES
from l2p.oracle import Oracle
from l2p.oracle.setup import Setup
from l2p.privacy.cost.sampling import FullBatch, Sampler
from l2p.protectors.conditioning import value
from l2p.protectors.fields import MAX_LOG_BOUND, MAX_UNROLLED, Between, Count, Polynomial
from l2p.protectors.hand_designed import Problem, log_constant, logit_constant
from l2p.protectors.register import hand_designed
from l2p.protectors.stepwise.schedulers import noise_for_share, tail_share
from l2p.queries import ClippedLoss, NormalizedGradient
from l2p.run.protector import Protector
from l2p.task.feature_map import FeatureMap

#: Largest factor by which one probe changes the learning rate or the bound of the losses.
MAX_CHANGE = 4.0
#: Uncertainty assumed for a probe, in standard deviations of its noise.
DOUBT = 2.0


@struct.dataclass
class HyFreeState(struct.Struct):
    """State between two steps: momentum f32[p]; log_rate and log_loss_clip f32[]."""

    momentum: jax.Array
    log_rate: jax.Array
    log_loss_clip: jax.Array


@struct.dataclass
class HyFree(Protector):
    """A step here is `interval` moves along normalised gradients, the first of which sets the learning rate.

    It uses the losses L-, L0 and L+ at -1, 0 and 1 times the current rate along the move: a parabola through them has
    its least value at (L- - L+) / (2 (L- - 2 L0 + L+)) times that rate (GeN, section 3 of the paper). The bound on one
    row's loss follows the mean loss found. A step must ask the same queries whenever it is traced, so the paper's
    "every K iterations" is this unrolled step; a probe at every move would spread the probes' small share over K times
    as many answers, each sqrt(K) times noisier.

    The paper uses the probe's result directly, with large batches. On small tables the noise of a probe can exceed any
    curvature, so here rate and bound change only by the smallest amount that explains the probe within twice the
    standard deviation of its noise, and by at most a factor of 4. Without noise the rate is that of the line search.
    All of this is post-processing.

    Array fields are polynomials in log(mu N), f32[k]; f32[1] is a constant.

    Attributes:
      logit_probe_share: f32[k], logit of the share of the budget that goes to loss probes.
      log_learning_rate: f32[k], log of the rate before the first probe.
      log_loss_clip: f32[k], log of the first bound on one row's loss.
      log_loss_ratio: f32[k], log of that bound over the mean loss, from the first probe on. The mean is one of clipped
        losses, so a ratio of 1 (the last loss itself, as the paper has it) could only lower the bound, to 0 in the end;
        at 3 one row in 17 is clipped where losses are exponentially distributed.
      log_stability: f32[k], log of the constant that gradients are normalised with.
      logit_momentum: f32[k], logit of the decay of the average of gradients that a move follows.
      interval: K, moves per step (static).
      num_steps: T, so that a run makes K T moves (static).
      sampler: which rows a query reads (static).
    """

    logit_probe_share: Polynomial
    log_learning_rate: Polynomial
    log_loss_clip: Polynomial
    log_loss_ratio: Polynomial
    log_stability: Polynomial
    logit_momentum: Polynomial
    interval: Annotated[int, Between(MAX_UNROLLED)] = struct.field(pytree_node=False, default=5)
    num_steps: Count = struct.field(pytree_node=False, default=10)
    sampler: Sampler = struct.field(pytree_node=False, default=FullBatch())
    models = NAMES
    any_model = True
    adaptive_noise = False

    def init(self, params: jax.Array, oracle: Oracle) -> tuple[jax.Array, HyFreeState]:
        log_signal = oracle.setup.log_signal
        rate, clip = value(self.log_learning_rate, log_signal), value(self.log_loss_clip, log_signal)
        return params, HyFreeState(jnp.zeros_like(params), rate, clip)

    def step(self, params: jax.Array, state: HyFreeState, oracle: Oracle) -> tuple[jax.Array, HyFreeState]:
        setup, momentum = oracle.setup, state.momentum
        decay = jax.nn.sigmoid(value(self.logit_momentum, setup.log_signal))
        gradient_noise, probe_noise = self._plan(oracle)
        for move in range(self.interval):
            momentum = decay * momentum + (1.0 - decay) * self._gradient(params, gradient_noise, oracle)
            # Early averages are biased towards their zero start; dividing by their total weight corrects that.
            direction = momentum / (1.0 - decay ** (oracle.step * self.interval + move + 1.0))
            if move == 0:
                state = self._probe(params, direction, probe_noise, state, oracle)
            params = params - jnp.exp(state.log_rate) * direction
        return params, state.replace(momentum=momentum)

    def _plan(self, oracle: Oracle) -> tuple[jax.Array, jax.Array]:
        """Noise multipliers of each gradient and of the probe; all steps cost the same."""
        step_share = tail_share(jnp.zeros(oracle.setup.num_charges(self.num_steps)), oracle.charge)
        probe = jax.nn.sigmoid(value(self.logit_probe_share, oracle.setup.log_signal))
        gradient = noise_for_share(oracle, step_share * (1.0 - probe) / self.interval)
        return gradient, noise_for_share(oracle, step_share * probe)

    def _gradient(self, params: jax.Array, noise_multiplier: jax.Array, oracle: Oracle) -> jax.Array:
        setup = oracle.setup
        identity = FeatureMap.identity(setup.model.num_features(params.shape[0]))
        stability = jnp.exp(value(self.log_stability, setup.log_signal))
        query = NormalizedGradient(setup.model, params, identity, jnp.ones(()), stability, noise_multiplier)
        return oracle.ask(query) / setup.batch_rows

    def _probe(
        self, params: jax.Array, direction: jax.Array, noise_multiplier: jax.Array, state: HyFreeState, oracle: Oracle
    ) -> HyFreeState:
        """The state with the rate and the bound that three losses along the move suggest."""
        setup = oracle.setup
        sizes = jnp.exp(state.log_rate) * jnp.array([-1.0, 0.0, 1.0])
        candidates = params[None, :] - sizes[:, None] * direction[None, :]
        query = ClippedLoss(setup.model, candidates, jnp.exp(state.log_loss_clip), noise_multiplier)
        backward, current, forward = oracle.ask(query) / setup.batch_rows
        noise_std = noise_multiplier * query.bound * setup.adjacency.sensitivity_factor / setup.batch_rows
        doubt = DOUBT * noise_std
        # The first difference holds two noises, the second 1 + 4 + 1.
        rate_change = _least_change(
            backward - forward, 2**0.5 * doubt, 2.0 * (backward - 2.0 * current + forward), 24**0.5 * doubt
        )
        mean_loss = jnp.exp(state.log_loss_clip - value(self.log_loss_ratio, setup.log_signal))
        clip_change = _least_change(current, doubt, mean_loss, 0.0)
        # Kept within the oracle's range, or the answers could end the run by a refused bound.
        log_loss_clip = jnp.clip(state.log_loss_clip + clip_change, -MAX_LOG_BOUND, MAX_LOG_BOUND)
        return state.replace(log_rate=state.log_rate + rate_change, log_loss_clip=log_loss_clip)

    def finish(self, params: jax.Array, state: HyFreeState, setup: Setup) -> jax.Array:
        return params


def _least_change(
    numerator: jax.Array, doubt: jax.Array, denominator: jax.Array, denominator_doubt: jax.typing.ArrayLike
) -> jax.Array:
    """The value nearest to 0 among the logarithms of numerator / denominator, given their uncertainties; all f32[].

    A denominator below 0 means an infinite ratio (the loss falls ever faster), a numerator below 0 means 0.
    """

    def log_ratio(numerator: jax.Array, denominator: jax.Array) -> jax.Array:
        # The unused side of a `where` is differentiated too, so it divides by a safe value.
        rises, bends = numerator > 0.0, denominator > 0.0
        valid = rises & bends
        log = jnp.log(jnp.where(valid, numerator, 1.0) / jnp.where(valid, denominator, 1.0))
        limit = math.log(MAX_CHANGE)
        return jnp.where(rises, jnp.where(bends, jnp.clip(log, -limit, limit), limit), -limit)

    low = log_ratio(numerator - doubt, denominator + denominator_doubt)
    high = log_ratio(numerator + doubt, denominator - denominator_doubt)
    return jnp.maximum(low, 0.0) + jnp.minimum(high, 0.0)


@hand_designed(form="rival")
def hyfree(problem: Problem) -> HyFree:
    """HyFreeDP: a learning rate from privately probed losses.

    HyFreeDP at its authors' 1 % for probes, every 5 moves, on full batches.

    Its first rate is that of `noisygd`, 0.5, over the weight 1 - 0.9 of a gradient in the average that is followed.
    """
    del problem
    return HyFree(
        logit_probe_share=logit_constant(0.01),
        log_learning_rate=log_constant(5.0),
        log_loss_clip=log_constant(3.0 * math.log(2.0)),
        log_loss_ratio=log_constant(3.0),
        log_stability=log_constant(0.01),
        logit_momentum=logit_constant(0.9),
    )
