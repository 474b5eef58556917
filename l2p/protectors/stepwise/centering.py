"""Rows centred on a private feature mean, and scaled to a common length."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.oracle import Oracle
from l2p.protectors.conditioning import at, covariates_for
from l2p.protectors.fields import Positive, Scalar, Share
from l2p.protectors.register import stored
from l2p.protectors.stepwise import empirical_bayes
from l2p.protectors.stepwise.purchase import Purchase, Stage, Start
from l2p.protectors.stepwise.schedulers import SLACK
from l2p.queries import FeatureSum
from l2p.task.feature_map import FeatureMap

#: Typical mean square of a feature in [0, 1]; used for a row's length while the mean is unknown.
TYPICAL_SQUARE = 1.0 / 6.0


@stored
@struct.dataclass
class Centering(Purchase):
    """Buys a private feature mean first, centres rows on it and scales them to a common length.

    If noise dominates the mean, rows are not centred and a typical length is assumed. The average of all features'
    means has less noise than each of them, by the square root of their number, so it is useful at much smaller budgets;
    with `log_level_spread` means are shrunk towards it, and not towards zero.

    Attributes:
      logit_share: f32[k], logit of the share of the budget, a polynomial in log(mu N); or f32[k, 6], knots of a curve.
      log_spread: f32[], log of the distance of feature means from zero, or from their average: noise of this size
        halves the trust in them.
      row_norm: f32[], clipping norm of a row over the square root of its dimension.
      target_norm: f32[], length that centred rows are scaled to, estimated from the mean alone: a feature in [0, 1] of
        mean m has variance at most m (1 - m).
      log_level_spread: f32[], the same for the distance of that average from zero; None shrinks means towards zero.
      log_width: f32[], log of the standard deviation, among tables, of the logarithm of what scales the square of
        `log_spread`'s distance, which is estimated from the means. Only beside `log_level_spread`; None for the same
        always.
    """

    logit_share: Share
    log_spread: Scalar
    row_norm: Positive
    target_norm: Positive
    log_level_spread: Scalar | None = None
    log_width: Scalar | None = None
    #: Public choices of how rows are clipped and scaled, never tuned.
    fixed: ClassVar[tuple[str, ...]] = ("row_norm", "target_norm")
    kind: ClassVar[str] = "centering"
    stage: ClassVar[Stage] = Stage.CENTER

    def buy(self, start: Start, oracle: Oracle) -> Start:
        return start.but(features=self(start.features.num_mapped, oracle), length=self.target_norm)

    def __call__(self, num_features: int, oracle: Oracle) -> FeatureMap:
        setup = oracle.setup
        share = jax.nn.sigmoid(at(self.logit_share, covariates_for(setup, num_features)))
        multiplier = oracle.noise_multiplier(share * (1.0 - SLACK) * setup.price_list.budget)
        clip_norm = self.row_norm * num_features**0.5
        mean = oracle.ask(FeatureSum(num_features, clip_norm, multiplier)) / setup.num_rows
        noise_std = multiplier * clip_norm * setup.adjacency.sensitivity_factor / setup.num_rows
        center, trust = self._shrunk(mean, noise_std)
        variance = trust * jnp.sum(center * (1.0 - center)) + (1.0 - trust) * num_features * TYPICAL_SQUARE
        # A refused query answers zeros; rows are then not changed.
        return jax.tree.map(
            lambda learned, plain: jnp.where(oracle.refused, plain, learned),
            FeatureMap(center, self.target_norm * jax.lax.rsqrt(variance + 0.01)),
            FeatureMap.identity(num_features),
        )

    def _shrunk(self, mean: jax.Array, noise_std: jax.Array) -> tuple[jax.Array, jax.Array]:
        """A noised mean f32[d] shrunk according to its noise, and the trust f32[] in the shrinkage target."""
        trust = jax.nn.sigmoid(2.0 * (self.log_spread - jnp.log(noise_std)))
        bounded = jnp.clip(mean, 0.0, 1.0)
        if self.log_level_spread is None:
            return trust * bounded, trust
        level_noise = jnp.log(noise_std) - 0.5 * jnp.log(mean.shape[0])
        level_trust = jax.nn.sigmoid(2.0 * (self.log_level_spread - level_noise))
        level = level_trust * jnp.clip(mean.mean(), 0.0, 1.0)
        if self.log_width is not None and mean.shape[0] > 1:
            spread, noise = jnp.exp(2.0 * self.log_spread), jnp.square(noise_std)
            excess = jnp.var(mean, ddof=1) - noise
            width = jnp.exp(self.log_width)
            log_scale = empirical_bayes.log_scale(excess / spread, noise / spread, mean.shape[0] - 1, width)
            trust = 1.0 / (1.0 + noise / spread * jnp.exp(-log_scale))
        return level + trust * (bounded - level), level_trust
