"""Schedulers: a step's share of the budget, and its clipping norm.

All but the paper's emit a share of the remaining budget, so they cannot overspend.
"""

import abc
import functools
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.base.compiled import as_one
from l2p.oracle import Oracle
from l2p.oracle.setup import Setup
from l2p.privacy.cap.spending import Spending
from l2p.privacy.cost.prices import PriceList
from l2p.protectors.conditioning import standardize, standardize_rate, standardize_size, value
from l2p.protectors.fields import MAX_LOG_BOUND, Line, Polynomial
from l2p.protectors.register import stored
from l2p.protectors.stepwise.networks import Layers, apply_mlp
from l2p.protectors.stepwise.public_rows import PublicGradients

#: Share held back when the last step takes all that is left, so that float32 rounding does not get it refused.
SLACK = 1e-5


@struct.dataclass
class StepPlan(struct.Struct):
    """Noise and clipping of one step: noise_multiplier f32[] and clip_norm f32[]; and by what gradients are scaled
    before they are clipped, scale f32[p], or None."""

    noise_multiplier: jax.Array
    clip_norm: jax.Array
    scale: jax.Array | None = None


@struct.dataclass
class Observation(struct.Struct):
    """Released answers of earlier steps, for schedulers and projectors.

    Attributes:
      gradient: f32[p], the last noised mean gradient.
      noise_std: f32[], its noise.
      norm: f32[], of the coming mean gradient if that was bought, else of the last noised one, which is free.
      strength: f32[p], log of the signal-to-noise ratio of each coordinate's feature; None if it was not bought.
      public: gradients of public rows at the params of this step; None without public rows, and between steps.
      moment: f32[p], the second moment of each coordinate's feature, as far as it was bought; 0 for params that
        belong to no feature, and None without an intercept.
      start_variance: f32[p], of the start's error where that was bought (`BaseRate`); None if nothing was.
      rates: f32[K], the shares of the classes, or two of which the last is the mean of numbers in [0, 1], where these
        were bought (`BaseRate`); else None.
      prior: f32[p], variance of the distance from the start to the minimum, where public rows tell it
        (`from_public_rows`); else None.
      length: f32[], root mean square length of the mapped rows with the intercept's column, as far as it is known; None
        without an intercept.
      log_length: f32[], mean log of the length of rows' gradients at the start, over a typical one, where that was
        bought (`GradientLength`); else None.
      clip_norm: f32[], that rows' gradients were clipped to in this step, for projectors; None between steps.
      scale: f32[p], that they were scaled by before, for projectors; None between steps, and where they were not.
      params: f32[p], of this step, for schedulers; None between steps.
    """

    gradient: jax.Array
    noise_std: jax.Array
    norm: jax.Array
    strength: jax.Array | None = None
    public: PublicGradients | None = None
    moment: jax.Array | None = None
    start_variance: jax.Array | None = None
    rates: jax.Array | None = None
    prior: jax.Array | None = None
    length: jax.Array | None = None
    log_length: jax.Array | None = None
    clip_norm: jax.Array | None = None
    scale: jax.Array | None = None
    params: jax.Array | None = None


class Scheduler(struct.Struct, abc.ABC):
    """Decides noise and clipping from public facts and released answers only.

    Attributes:
      adaptive: whether noise depends on answers; False only if it is the same on every table.
      needs_public: whether it works with public rows only.
    """

    adaptive: ClassVar[bool] = True
    needs_public: ClassVar[bool] = False

    def init(self, oracle: Oracle) -> Any:
        """Scheduler state before the first step."""
        del oracle
        return ()

    @abc.abstractmethod
    def __call__(self, state: Any, observation: Observation, oracle: Oracle, num_steps: int) -> tuple[StepPlan, Any]:
        """This step's plan and the next state."""


def noise_for_share(oracle: Oracle, share: jax.Array) -> jax.Array:
    """The noise multiplier f32[] of a Gaussian query that costs `share` of what is left."""
    return _noise_for_share(oracle.setup.price_list, oracle.spending, share, oracle.sampled)


@functools.partial(as_one, static=("sampled",))
def _noise_for_share(prices: PriceList, spending: Spending, share: jax.Array, sampled: bool) -> jax.Array:
    # With nothing left it would ask for infinite noise; the floor keeps the number finite, and the filter refuses it.
    cost = jnp.maximum(share * spending.left, 1e-9) * (1.0 - SLACK) * prices.budget
    return prices.noise_multiplier(cost, sampled=sampled)


@as_one
def tail_share(log_weights: jax.Array, step: jax.Array) -> jax.Array:
    """Share f32[] of what is left that makes spending proportional to exp(log_weights), f32[T], at `step`."""
    tail = jnp.where(jnp.arange(log_weights.shape[0]) >= step, log_weights, -jnp.inf)
    return jnp.exp(log_weights[step] - jax.nn.logsumexp(tail))


@stored
@struct.dataclass
class Decaying(Scheduler):
    """Noise that changes geometrically over the run; a rate of zero is the constant schedule of plain DP-SGD.

    Attributes:
      log_clip_norm: f32[k], log of the clipping norm, as a polynomial in log(mu N).
      rate: f32[k], spending grows by exp(rate) from the first step to the last.
    """

    log_clip_norm: Polynomial
    rate: Polynomial
    adaptive: ClassVar[bool] = False

    def __call__(self, state: Any, observation: Observation, oracle: Oracle, num_steps: int) -> tuple[StepPlan, Any]:
        share, clip_norm = self._share_and_clip_norm(oracle.setup, oracle.step, num_steps)
        return StepPlan(noise_for_share(oracle, share), clip_norm), state

    @functools.partial(as_one, static=("num_steps",))
    def _share_and_clip_norm(self, setup: Setup, step: jax.Array, num_steps: int) -> tuple[jax.Array, jax.Array]:
        log_signal, num_charges = setup.log_signal, setup.num_charges(num_steps)
        log_weights = value(self.rate, log_signal) * jnp.arange(num_charges) / num_charges
        return tail_share(log_weights, setup.charge(step)), jnp.exp(value(self.log_clip_norm, log_signal))


@stored
@struct.dataclass
class DecayingByLength(Decaying):
    """`Decaying` with clipping norms that follow the length of gradients at the start, where that was bought.

    Attributes:
      log_clip_by_length: f32[k], what the log of the clipping norm gains with that of the length, as a polynomial in
        log(mu N); 1 keeps their ratio.
    """

    log_clip_by_length: Polynomial

    def __call__(self, state: Any, observation: Observation, oracle: Oracle, num_steps: int) -> tuple[StepPlan, Any]:
        plan, state = super().__call__(state, observation, oracle, num_steps)
        if observation.log_length is None:
            return plan, state
        slope = value(self.log_clip_by_length, oracle.setup.log_signal)
        log_clip_norm = jnp.log(plan.clip_norm) + slope * observation.log_length
        # A bound that the oracle refuses would let an answer end the run.
        return plan.replace(clip_norm=jnp.exp(jnp.clip(log_clip_norm, -MAX_LOG_BOUND, MAX_LOG_BOUND))), state


@stored
@struct.dataclass
class ShareScheduler(Scheduler):
    """An open-loop schedule of shares and clipping norms, each a function of progress and log(mu N).

    The share's logit is that of the uniform schedule, 1 / (T - t), plus a line in t / T; a zero-initialised network
    of (t / T, log(mu N), log of the number of params, log of the sampling rate) may add to both. It uses no answer, so
    the schedule is fixed before the run.

    Attributes:
      share: f32[k, 2], intercept and slope of the logit's line.
      log_clip_norm: f32[k, 2], the same for the log of the clipping norm.
      network: parameters of a network with 4 inputs, in this order, and 2 outputs; or None.
    """

    share: Line
    log_clip_norm: Line
    network: Annotated[dict, Layers(4, 2)] | None = None
    adaptive: ClassVar[bool] = False

    def __call__(self, state: Any, observation: Observation, oracle: Oracle, num_steps: int) -> tuple[StepPlan, Any]:
        log_signal = oracle.setup.log_signal
        charge, num_charges = oracle.charge, oracle.setup.num_charges(num_steps)
        progress = charge / num_charges
        line = jnp.stack([jnp.ones(()), progress])
        logit = value(self.share, log_signal) @ line
        log_clip_norm = value(self.log_clip_norm, log_signal) @ line
        if self.network is not None:
            size = jnp.asarray(standardize_size(observation.gradient.shape[0]))
            rate = jnp.asarray(standardize_rate(oracle.setup.price_list.sampler.rate()))
            extra = apply_mlp(self.network, jnp.stack([2 * progress - 1, standardize(log_signal), size, rate]))
            logit, log_clip_norm = logit + extra[0], log_clip_norm + extra[1]
        charges_left = jnp.maximum(num_charges - charge, 1)
        # logit(1 / n) = -log(n - 1), and the last charge takes all that is left, whatever the network's output.
        share = jnp.where(charges_left > 1, jax.nn.sigmoid(logit - jnp.log(jnp.maximum(charges_left - 1, 1))), 1.0)
        return StepPlan(noise_for_share(oracle, share), jnp.exp(log_clip_norm)), state
