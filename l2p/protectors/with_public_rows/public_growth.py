"""PPSGD's scheduler (Wang & Zhou, AAAI 2020, Algorithm 1): the gradient of public rows steers budget and clipping."""

from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import optax

from l2p.base import struct
from l2p.oracle import Oracle
from l2p.privacy.accountants.base import RHO
from l2p.privacy.accountants.paper_13 import FACTOR
from l2p.privacy.cost.prices import UP
from l2p.protectors.conditioning import value
from l2p.protectors.fields import Polynomial
from l2p.protectors.register import stored
from l2p.protectors.stepwise.public_parts import public_gradients
from l2p.protectors.stepwise.schedulers import SLACK, Observation, Scheduler, StepPlan


@struct.dataclass
class GrowthState:
    """State between two steps: price f32[] of the last one in the accountant's unit, and its clip_norm f32[]."""

    price: jax.Array
    clip_norm: jax.Array


@stored
@struct.dataclass
class PublicGrowth(Scheduler):
    """A price that grows where noise drowns the gradient, and a clipping norm that shrinks where gradients are short.

    After a step, with g the mean gradient of public rows at the new params, not clipped:

        price <- (1 + alpha) price        if phi |g| < the noise's root mean square length, sqrt(p) noise_std;
        clip_norm <- (1 - beta) clip_norm if varphi |g| < clip_norm.

    The run ends when the price exceeds the remaining budget, as in the paper; with `published` also when eq. 4 has no
    theorem for it. Every array is a polynomial in log(mu N), f32[k].

    Attributes:
      log_share: f32[k], log of the first price over the budget.
      log_clip_norm: f32[k], log of the first clipping norm.
      log_noise_ratio: f32[k], log of phi.
      log_clip_ratio: f32[k], log of varphi.
      log_growth: f32[k], log of alpha; -inf for none.
      logit_shrinking: f32[k], logit of beta; -inf for none.
      clip_by: whether the rule for the clipping norm looks at the mean gradient or at the longest one of a public row,
        which is better where no public row is an outlier (static).
      published: whether noise is that of the paper's eq. 4, for accountant `paper_13`, which refuses it where a
        precondition fails; else the least noise that the price pays for (static).
    """

    log_share: Polynomial
    log_clip_norm: Polynomial
    log_noise_ratio: Polynomial
    log_clip_ratio: Polynomial
    log_growth: Polynomial
    logit_shrinking: Polynomial
    clip_by: Literal["mean", "maximum"] = struct.field(pytree_node=False, default="mean")
    published: bool = struct.field(pytree_node=False, default=False)
    needs_public: ClassVar[bool] = True

    def init(self, oracle: Oracle) -> GrowthState:
        setup = oracle.setup
        share = jnp.exp(value(self.log_share, setup.log_signal))
        return GrowthState(
            share * (1.0 - SLACK) * setup.price_list.budget, jnp.exp(value(self.log_clip_norm, setup.log_signal))
        )

    def __call__(
        self, state: GrowthState, observation: Observation, oracle: Oracle, num_steps: int
    ) -> tuple[StepPlan, GrowthState]:
        del num_steps  # the budget ends the run
        signal = oracle.setup.log_signal
        mean, longest = self._norms(observation)
        noise = observation.noise_std * jnp.sqrt(float(observation.gradient.shape[0]))
        has_gradient = oracle.step > 0
        drowned = has_gradient & (jnp.exp(value(self.log_noise_ratio, signal)) * mean < noise)
        longest_or_mean = mean if self.clip_by == "mean" else longest
        short = has_gradient & (jnp.exp(value(self.log_clip_ratio, signal)) * longest_or_mean < state.clip_norm)
        growth, shrinking = jnp.exp(value(self.log_growth, signal)), jax.nn.sigmoid(value(self.logit_shrinking, signal))
        price = jnp.where(drowned, 1.0 + growth, 1.0) * state.price
        clip_norm = jnp.where(short, 1.0 - shrinking, 1.0) * state.clip_norm
        return StepPlan(self._noise(price, oracle), clip_norm), GrowthState(price, clip_norm)

    def _norms(self, observation: Observation) -> tuple[jax.Array, jax.Array]:
        """Length f32[] of the public rows' mean gradient, and of the longest one where that is asked for.

        Raises:
          InputError: at trace time, there are no public rows.
        """
        public = public_gradients(observation, "a budget that grows by public gradients")
        mean = jnp.asarray(optax.safe_norm(public.mean(), 1e-12))
        return mean, mean if self.clip_by == "mean" else public.norms().max()

    def _noise(self, price: jax.Array, oracle: Oracle) -> jax.Array:
        if not self.published:
            return oracle.noise_multiplier(price)
        return published_noise(price, oracle.setup.price_list.sampler.rate())


def published_noise(price: Any, rate: float) -> jax.Array:
    """The noise multiplier f32[] of eq. 4: a batch is paid for as rho_s = rho_t / (13 (s/m)^2), and eq. 4's
    N(0, 2 C^2 / (s^2 rho_s)) on the mean is sqrt(1 / (2 rho_s)) times the sensitivity 2 C / s.

    Larger by `UP` squared, by which float32 prices are rounded up, so that the charge is not above rho_t.

    >>> print(round(float(published_noise(1e-4, 0.05)), 3))
    12.748
    """
    return jnp.sqrt(FACTOR * rate**2 * RHO["gaussian"] / price) * UP**2
