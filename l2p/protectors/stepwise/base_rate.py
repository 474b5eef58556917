"""A start at the rates of the classes, or at the mean of the targets."""

import functools
from typing import ClassVar

import jax
import jax.numpy as jnp
from jax.scipy.stats import norm

from l2p.base import struct
from l2p.models import Model
from l2p.oracle import Oracle
from l2p.protectors.conditioning import Covariates, at, covariates_of
from l2p.protectors.fields import Curve, Scalar, Share
from l2p.protectors.register import stored
from l2p.protectors.stepwise import empirical_bayes
from l2p.protectors.stepwise.purchase import Purchase, Stage, Start
from l2p.protectors.stepwise.schedulers import noise_for_share
from l2p.queries import TargetSum


@stored
@struct.dataclass
class BaseRate(Purchase):
    """Buys the counts of the classes, or the mean of the targets, and starts from the intercepts that fit them.

    Where noise hides the features' effect, rates are all that can be learned, and where classes are rare they matter
    much. Gradients contain them, too, but are clipped to the length of whole rows, of which the intercept is a small
    part: here the same budget gives several times less noise.

    Attributes:
      logit_share: f32[k], logit of the query's share of the remaining budget, a polynomial in log(mu N); or
        f32[k, 6], knots of a curve.
      log_spread: f32[] or f32[k, 6], knots of a curve: log of how much classes' shares differ, times the square root of
        their number; they are shrunk towards one another as far as noise is larger.
      log_width: f32[], log of the standard deviation, among tables, of the logarithm of what scales the square of that
        spread: how uneven classes are differs much, and is estimated from the counts. None for the same spread always.
      logit_again: f32[k, 6], knots of the logit of a second purchase's share of the remaining budget, where the error
        that is left costs one unit of loss; None to buy once.
      urgency: f32[k, 6], knots of how much that logit grows with the logarithm of that loss: an error costs most where
        classes are rare, which a cheap first purchase shows.
    """

    logit_share: Share
    log_spread: Share
    log_width: Scalar | None = None
    logit_again: Curve | None = None
    urgency: Curve | None = None
    kind: ClassVar[str] = "base_rate"
    stage: ClassVar[Stage] = Stage.RATES
    maps_rows: ClassVar[bool] = False

    def fits(self, model: Model) -> bool:
        return model.num_rates > 0

    def buy(self, start: Start, oracle: Oracle) -> Start:
        params, variance, rates = self(start.params, oracle)
        return start.but(params=params, start_variance=variance, rates=rates)

    def __call__(self, params: jax.Array, oracle: Oracle) -> tuple[jax.Array, jax.Array, jax.Array]:
        """Params with these intercepts; the variance f32[p] of their error, which is 0 for all other params, and
        without `log_width`, because protectors without it were trained before their filters were told of the error;
        and the rates f32[K]."""
        model = oracle.setup.model
        rates, variance = self._bought_rates(oracle, covariates_of(oracle.setup, params.shape[0]))
        error = self._error(model, rates, variance) if self.log_width is not None else 0.0
        zeros = jnp.zeros_like(params)
        informed = model.params_at_rates(params, rates), zeros.at[-model.num_margins :].set(error), rates
        public = params, zeros, jnp.full_like(rates, 1.0 / len(rates))
        return jax.tree.map(lambda learned, start: jnp.where(oracle.refused, start, learned), informed, public)

    @property
    def adaptive(self) -> bool:  # type: ignore[override]
        """True if the price of the second purchase depends on the answer to the first one."""
        return self.logit_again is not None and self.urgency is not None

    def _bought_rates(self, oracle: Oracle, covariates: Covariates) -> tuple[jax.Array, jax.Array]:
        """`_rates` of one purchase, or of two taken together."""
        setup, log_spread = oracle.setup, at(self.log_spread, covariates)
        noised, noise = self._noised_shares(oracle, jax.nn.sigmoid(at(self.logit_share, covariates)))
        rates, variance = self._rates(noised, jnp.sqrt(noise), log_spread, setup.num_rows)
        if self.logit_again is not None and self.urgency is not None:
            share = at(self.logit_again, covariates) + at(self.urgency, covariates) * jnp.log(
                0.5 * (variance / rates).sum()
            )
            second, second_noise = self._noised_shares(oracle, jax.nn.sigmoid(share))
            noised = (noised * second_noise + second * noise) / (noise + second_noise)
            noise = noise * second_noise / (noise + second_noise)
            rates, variance = self._rates(noised, jnp.sqrt(noise), log_spread, setup.num_rows)
        return rates, variance

    @staticmethod
    def _error(model: Model, rates: jax.Array, variance: jax.Array) -> jax.Array:
        """Variance f32[m] of the intercepts' error, from that f32[] of the error of each share."""
        intercepts = functools.partial(model.params_at_rates, jnp.zeros(model.num_margins))
        slopes = jax.jacfwd(intercepts)(rates)
        # Two shares from one number have opposite errors; the errors of more shares are independent.
        slopes = slopes @ jnp.array([[-1.0], [1.0]]) if model.num_rates == 1 else slopes
        return jnp.square(slopes).sum(1) * variance

    def _noised_shares(self, oracle: Oracle, share: jax.Array) -> tuple[jax.Array, jax.Array]:
        """Noised shares f32[K] of the classes, or f32[1], how far the only number is from the middle; and the noise's
        variance f32[]; for a share of the remaining budget."""
        setup = oracle.setup
        query = TargetSum(setup.model.num_rates, noise_for_share(oracle, share))
        return oracle.ask(query) / setup.num_rows, jnp.square(query.noise_std(setup.adjacency) / setup.num_rows)

    def _rates(
        self, noised: jax.Array, noise_std: jax.Array, log_spread: jax.Array, num_rows: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        """Shares f32[K] of the classes, from noised ones; two for a number in [0, 1], that of 1 last. And the variance
        f32[] of their error."""
        if len(noised) == 1:
            noised = 0.5 + jnp.concatenate([-noised, noised])
        even = 1.0 / len(noised)
        variance, noise = jnp.exp(2.0 * log_spread) * even, jnp.square(noise_std)
        if self.log_width is not None:
            # Shares sum to one, so that one of them is no independent value.
            count, width = len(noised) - 1, jnp.exp(self.log_width)
            spread = jnp.square(noised - even).sum() / len(noised)
            log_scale = empirical_bayes.log_scale((spread - noise) / variance, noise / variance, count, width)
            variance = variance * jnp.exp(log_scale)
        trust = variance / (variance + noise)
        shrunk = even + trust * (noised - even)
        # No share is negative: this is the mean of a normal distribution that is cut off at 0.
        std = noise_std * jnp.sqrt(trust)
        scaled = shrunk / std
        rates = shrunk + std * jnp.exp(norm.logpdf(scaled) - norm.logcdf(scaled))
        rates = jnp.maximum(rates, 0.5 / num_rows)
        return rates / rates.sum(), jnp.square(std)
