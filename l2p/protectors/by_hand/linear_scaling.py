"""The linear scaling rule for step sizes, its trials charged (Panda et al., ICML 2024; arXiv 2212.04486)."""

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.models import NAMES
from l2p.oracle import Oracle
from l2p.oracle.setup import Setup
from l2p.protectors.conditioning import value
from l2p.protectors.fields import Count, Polynomial
from l2p.protectors.hand_designed import Problem, log_constant, logit_constant
from l2p.protectors.register import hand_designed
from l2p.protectors.stepwise.schedulers import noise_for_share
from l2p.queries import ClippedGradient, ClippedLoss
from l2p.run.protector import Protector
from l2p.task.feature_map import FeatureMap

#: Share of the budget for a loss that nobody reads, because compiled code cannot skip the query.
MIN_SHARE = 1e-6
#: Price of trials at the second level over those at the first: their mu is twice as large.
LEVEL_COST = 4.0


@struct.dataclass
class LinearScalingState:
    """State between two steps.

    Attributes:
      start: f32[p], where every trial and the final run begin.
      velocity: f32[p].
      loss: f32[2], the least noised mean loss of each level's trials so far.
      travel: f32[2], the travel of the trial that had it.
    """

    start: jax.Array
    velocity: jax.Array
    loss: jax.Array
    travel: jax.Array


@struct.dataclass
class LinearScaling(Protector):
    """Momentum SGD whose step size is extrapolated from short trials at two small budgets.

    The travel of a run, its step size times its steps, should grow linearly with mu. So a few candidates are tried at
    two small levels of mu, 1 and 2 in some unit, each scored by a noised mean loss, and a line through the best of both
    levels gives the travel of the final run. It is kept between the best of the second level and its proportional
    extrapolation, because noise may tilt the line. Trials, scores and the final run are steps of one run, and all of
    them are paid for: prices do not depend on answers. All arrays are polynomials in log(mu N), f32[k].

    Attributes:
      log_clip_norm: f32[k], log of the clipping norm of gradients.
      log_loss_clip: f32[k], log of the most that a row's loss counts.
      logit_trial_share: f32[k], logit of the share of the budget for all trials.
      logit_score_share: f32[k], logit of the share of a trial's price for its score.
      log_travel: f32[k], log of the travel in the middle of the first level's candidates; twice that at the second.
      log_spread: f32[k], log of the ratio of a candidate to the next.
      logit_momentum: f32[k], logit of the momentum.
      num_steps: T, trials included (static).
      num_trials: candidates of a level (static).
      trial_steps: of a trial (static).
    """

    log_clip_norm: Polynomial
    log_loss_clip: Polynomial
    logit_trial_share: Polynomial
    logit_score_share: Polynomial
    log_travel: Polynomial
    log_spread: Polynomial
    logit_momentum: Polynomial
    num_steps: Count = struct.field(pytree_node=False, default=130)
    num_trials: Count = struct.field(pytree_node=False, default=4)
    trial_steps: Count = struct.field(pytree_node=False, default=10)
    models = NAMES
    any_model = True
    adaptive_noise = False

    def misfit(self) -> str | None:
        """Reason why its parts do not fit together; None if they do."""
        if self._final_steps > 0:
            return None
        return f"has {self.num_steps} steps, which its trials take up; none are left for the final run"

    @property
    def _first_final(self) -> int:
        return 2 * self.num_trials * self.trial_steps

    @property
    def _final_steps(self) -> int:
        return self.num_steps - self._first_final

    def _prices(self, setup: Setup) -> tuple[jax.Array, jax.Array]:
        """Prices of the gradient and the score of every step, f32[T] each, in any unit."""
        trials, score = (
            jax.nn.sigmoid(value(logit, setup.log_signal)) for logit in (self.logit_trial_share, self.logit_score_share)
        )
        step = jnp.arange(self.num_steps)
        is_trial, level = step < self._first_final, step // (self.num_trials * self.trial_steps)
        trial = trials * jnp.where(level > 0, LEVEL_COST, 1.0) / ((1.0 + LEVEL_COST) * self.num_trials)
        final = (1.0 - trials) / max(self._final_steps, 1)
        gradients = jnp.where(is_trial, trial * (1.0 - score) / self.trial_steps, final)
        is_scored = is_trial & (step % self.trial_steps == self.trial_steps - 1)
        return gradients, jnp.where(is_scored, trial * score, MIN_SHARE)

    def init(self, params: jax.Array, oracle: Oracle) -> tuple[jax.Array, LinearScalingState]:
        worst = jnp.full(2, jnp.inf)
        return params, LinearScalingState(params, jnp.zeros_like(params), worst, jnp.zeros(2))

    def step(
        self, params: jax.Array, state: LinearScalingState, oracle: Oracle
    ) -> tuple[jax.Array, LinearScalingState]:
        setup, log_signal = oracle.setup, oracle.setup.log_signal
        step, trial = oracle.step, oracle.step // self.trial_steps
        is_trial, level = step < self._first_final, jnp.clip(trial // self.num_trials, 0, 1)
        gradient_price, score_price = self._prices(setup)
        to_pay = jnp.where(jnp.arange(self.num_steps) >= step, gradient_price + score_price, 0.0).sum()
        # Both are planned before either is paid for.
        multipliers = [noise_for_share(oracle, price[step] / to_pay) for price in (gradient_price, score_price)]

        since = jnp.where(is_trial, step % self.trial_steps, step - self._first_final)
        params = jnp.where(since == 0, state.start, params)
        velocity = jnp.where(since == 0, 0.0, state.velocity)
        candidate = trial % self.num_trials - 0.5 * (self.num_trials - 1)
        tried = jnp.exp(value(self.log_travel, log_signal) + candidate * value(self.log_spread, log_signal)) * (
            1.0 + level
        )
        travel = jnp.where(is_trial, tried, self._extrapolated(state.travel, gradient_price))
        steps = jnp.where(is_trial, self.trial_steps, max(self._final_steps, 1))

        raw = FeatureMap.identity(setup.model.num_features(params.shape[0]))
        clip_norm = jnp.exp(value(self.log_clip_norm, log_signal))
        gradient = oracle.ask(ClippedGradient(setup.model, params, raw, clip_norm, multipliers[0])) / setup.num_rows
        momentum = jax.nn.sigmoid(value(self.logit_momentum, log_signal))
        velocity = momentum * velocity + (1.0 - momentum) * gradient
        # An average that starts from zero is too short at first, and more so in a trial than in the final run.
        params = params - travel / steps * velocity / (1.0 - momentum ** (since + 1.0))

        loss_clip = jnp.exp(value(self.log_loss_clip, log_signal))
        loss = oracle.ask(ClippedLoss(setup.model, params[None, :], loss_clip, multipliers[1]))[0] / setup.num_rows
        is_best = is_trial & (step % self.trial_steps == self.trial_steps - 1) & (loss < state.loss[level])
        return params, LinearScalingState(
            state.start,
            velocity,
            state.loss.at[level].set(jnp.where(is_best, loss, state.loss[level])),
            state.travel.at[level].set(jnp.where(is_best, travel, state.travel[level])),
        )

    def _extrapolated(self, travel: jax.Array, gradient_price: jax.Array) -> jax.Array:
        """The travel f32[] of the final run, from the best f32[2] at levels 1 and 2."""
        trial, final = gradient_price[0] * self.trial_steps, gradient_price[-1] * max(self._final_steps, 1)
        level = jnp.sqrt(final / trial)
        line = travel[0] + (travel[1] - travel[0]) * (level - 1.0)
        return jnp.clip(line, travel[1], travel[1] * jnp.maximum(0.5 * level, 1.0))

    def finish(self, params: jax.Array, state: LinearScalingState, setup: Setup) -> jax.Array:
        return params


@hand_designed(form="rival")
def linear_scaling(problem: Problem) -> LinearScaling:
    """Momentum SGD with a step size from charged trials.

    The linear scaling rule with four candidates at each of two levels, a fifth of the budget for them, and 50 steps of
    the final run. Candidates reach from a third to 50 times what gradients of length 1 move params, and more in the
    final run, so that what `noisygd` moves lies in the middle.
    """
    del problem
    return LinearScaling(
        log_clip_norm=log_constant(1.0),
        log_loss_clip=log_constant(1.0),
        logit_trial_share=logit_constant(0.2),
        logit_score_share=logit_constant(0.2),
        log_travel=log_constant(10.0),
        log_spread=log_constant(3.0),
        logit_momentum=logit_constant(0.9),
    )
