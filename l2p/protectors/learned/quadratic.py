"""The quadratic that a loss is taken for near its minimum: its curvature, how far away the minimum is, and how much of
a gradient clipping leaves, all from public facts, from what was bought, and from learned curves.

With few rows the sample minimiser misses the population's, with a variance of about 1 / (N h).
"""

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.models.base import INTERCEPT_COLUMN
from l2p.oracle.setup import Setup
from l2p.protectors.conditioning import Covariates, between_knots, covariates_of
from l2p.protectors.fields import Curve
from l2p.protectors.stepwise.eigenbasis import MAX_FEATURES
from l2p.protectors.stepwise.projectors import Projector
from l2p.protectors.stepwise.schedulers import Observation


@struct.dataclass
class AssumedQuadratic(Projector):
    """A projector that knows the quadratic; every constant is a curve over log(mu N), the same for all models.

    Attributes:
      log_curvature: f32[k, 6], log of the curvature over its typical value, `typical_curvature` times the second moment
        of the coordinate's feature.
      log_unknown: f32[k, 6], added where second moments were not bought: only the mean one is known there, and the
        largest, which bounds the curvature, is larger.
      log_spread: f32[k, 6], log of the length of the margins of w* at the start, over typical slope / curvature.
      spread_power: f32[k, 6], power of a coordinate's second moment that divides its part of that spread.
      log_intercept: f32[k, 6], the same as `log_spread` for the intercepts, beside the variance of the error of a start
        that was bought.
      log_steepest: f32[k, 6], log of the bound on the curvature over h where second moments were not bought. Where they
        were, the bound is the model's largest curvature times them. Steps are at most `kalman.LONGEST` over the bound;
        the distance to the minimum is still estimated by h.
      log_gradient_norm: f32[k, 6], log of the norm of a row's gradient, over the loss's `typical_slope` times the rows'
        length. Gradients that are clipped below it are smaller than by the curvature, as the filter then expects.
      rate_power: f32[k, 6], the power to which slope and curvature change with the classes' shares, where these were
        bought (`Model.scales_at_rates`).
      log_sampling: f32[k, 6], log of the variance that drawing N rows gives to their minimum, over that of a typical
        slope and curvature.
    """

    log_curvature: Curve
    log_unknown: Curve
    log_spread: Curve
    spread_power: Curve
    log_intercept: Curve
    log_steepest: Curve
    log_gradient_norm: Curve
    rate_power: Curve
    log_sampling: Curve

    def at_start(self, params: jax.Array, observation: Observation, setup: Setup) -> tuple[jax.Array, jax.Array]:
        """Variance f32[p] of the distance from params f32[p] to the minimum before any gradient, and curvature f32[p]
        there."""
        covariates = covariates_of(setup, params.shape[0])
        return self.guess(observation, params, covariates, setup), self.curvature(
            observation, params, params, covariates, setup
        )[0]

    def curvature(
        self, observation: Observation, params: jax.Array, start: jax.Array, covariates: Covariates, setup: Setup
    ) -> tuple[jax.Array, jax.Array]:
        """h f32[p], as clipped gradients show it; and the largest f32[p] that there may be, for whole gradients."""
        moment, of_feature = moments_of(observation, params)
        moment = moment * setup.model.moment_growth(params, start)
        curvature_at_rates = self._at_rates(observation, params, covariates, setup)[1]
        has_strength = jnp.array(False) if observation.strength is None else observation.strength.max() > 0.0
        unknown = of_feature & ~has_strength
        larger = jnp.where(unknown, between_knots(self.log_unknown, covariates), 0.0)
        scale = jnp.exp(between_knots(self.log_curvature, covariates) + larger)
        h = setup.model.typical_curvature(setup.kind) * scale * moment
        bound = jnp.maximum(h, setup.model.largest_curvature(setup.kind) * moment)
        assumed = h * jnp.exp(between_knots(self.log_steepest, covariates))
        num_features = setup.model.num_features(params.shape[0])
        if num_features > MAX_FEATURES and observation.length is not None:
            # No direction is longer than whole rows. No curve was trained on so many features at large budgets.
            whole = setup.model.largest_curvature(setup.kind) * jnp.square(observation.length)
            is_large = covariates.log_signal >= jnp.log(num_features)
            assumed = jnp.where(is_large, jnp.maximum(assumed, whole), assumed)
        steepest = jnp.where(unknown, assumed, bound)
        h = h * curvature_at_rates
        return h * self.share_after_clipping(observation, covariates, setup), jnp.maximum(h, steepest)

    def _at_rates(
        self, observation: Observation, params: jax.Array, covariates: Covariates, setup: Setup
    ) -> tuple[jax.Array | float, jax.Array | float]:
        """Slope and curvature f32[p] at the classes' shares, over those at even ones."""
        if observation.rates is None:
            return 1.0, 1.0
        power, model = between_knots(self.rate_power, covariates), setup.model
        scales = model.scales_at_rates(observation.rates, setup.kind)
        slope, curvature = (jnp.tile(scale**power, params.shape[0] // model.num_margins) for scale in scales)
        return slope, curvature

    def _unit(self, observation: Observation, params: jax.Array, covariates: Covariates, setup: Setup) -> jax.Array:
        """Typical length f32[p] of margins."""
        slope, curvature = self._at_rates(observation, params, covariates, setup)
        return jnp.broadcast_to(setup.model.typical_margin(setup.kind) * slope / curvature, params.shape)

    def sampling_variance(
        self, observation: Observation, params: jax.Array, covariates: Covariates, setup: Setup
    ) -> jax.Array:
        """Variance f32[p] of the minimum among draws of N rows; that of intercepts is too small to matter."""
        moment, of_feature = moments_of(observation, params)
        unit = jnp.square(self._unit(observation, params, covariates, setup)) * jnp.exp(
            between_knots(self.log_sampling, covariates)
        )
        return jnp.where(of_feature, unit / (setup.num_rows * moment), 0.0)

    def share_after_clipping(self, observation: Observation, covariates: Covariates, setup: Setup) -> jax.Array | float:
        """Share f32[] of a typical row's gradient that clipping leaves."""
        if observation.clip_norm is None or observation.length is None:
            return 1.0
        norm = (
            setup.model.typical_slope(setup.kind)
            * observation.length
            * jnp.exp(between_knots(self.log_gradient_norm, covariates))
        )
        return observation.clip_norm * jax.lax.rsqrt(jnp.square(observation.clip_norm) + jnp.square(norm))

    def guess(self, observation: Observation, params: jax.Array, covariates: Covariates, setup: Setup) -> jax.Array:
        """Variance f32[p] of the distance to the minimum before any measurement."""
        moment, of_feature = moments_of(observation, params)
        mean = jnp.where(of_feature, moment, 0.0).sum() / jnp.maximum(of_feature.sum(), 1)
        mean = jnp.maximum(mean, 1e-9)
        # Margins of length exp(log_spread) together, so each coordinate has its part of them.
        of_features = jnp.exp(2.0 * between_knots(self.log_spread, covariates)) / (mean * params.shape[0])
        of_features = of_features * (moment / mean) ** -between_knots(self.spread_power, covariates)
        of_intercept = jnp.exp(2.0 * between_knots(self.log_intercept, covariates)) / moment
        guess = jnp.square(self._unit(observation, params, covariates, setup)) * jnp.where(
            of_feature, of_features, of_intercept
        )
        return guess if observation.start_variance is None else guess + observation.start_variance


def moments_of(observation: Observation, params: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The second moment f32[p] of each param's feature or intercept column, and bool[p], true for features."""
    if observation.moment is None:
        return jnp.full_like(params, INTERCEPT_COLUMN**2), jnp.zeros(params.shape, bool)
    of_feature = observation.moment > 0.0
    return jnp.where(of_feature, jnp.maximum(observation.moment, 1e-9), INTERCEPT_COLUMN**2), of_feature
