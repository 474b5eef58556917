"""Steps as long as curvature and noise allow, by a Kalman filter in each coordinate.

The constants of a `MixProjector` are rates for gradients: they were learned at some curvature, and at another they are
several times too large, or too small. Here a step is derived from public facts. Near the minimum w* a noised gradient
at w is h (w - w*) plus noise of known size, with h at most the loss's curvature times the second moment of the
coordinate's feature, which is known from the moments that the run has bought. So a noised gradient is a noised
measurement of w*, and a filter keeps a variance P of the distance from it: the step is K = P h / (h^2 P + noise^2)
times the gradient. Where noise vanishes K is 1 / h, the step of Newton's method; where it dominates, K is small, and
falls as P does, which averages the noise away. What is learned are the variance at the start, how much smaller than its
bound the curvature may be, and a momentum, which makes up for curvature that is smaller.

How far w* is differs much between a table whose classes are hard to tell apart and an easy one. So the variance at the
start is only a first guess, and is scaled by what the measurements of w* show (empirical Bayes): pooled over the
coordinates of all features they tell soon whether there is signal. A network may correct the filter in each coordinate,
by how the gradients seen so far compare with what it expected.

The minimum of few rows is not that of all that they were drawn from: it is off by about what one over N times the
curvature tells, and a prior that is not much wider says how far to go towards it. So gradients get the ridge under
which their minimum is the most likely place of the other one; it vanishes as N grows.

Gradient descent is stable up to 2 over the largest curvature, and no step becomes longer than `LONGEST` over the
largest that there may be. Rows that are clipped to a length bound it too low, a hinge's has no bound, and that of a
network changes. So the bound grows where gradients change more along an update than it allows, beyond their noise; and
in coordinates whose gradient points back along the last update, momentum is dropped.
"""

from typing import Annotated

import jax
import jax.numpy as jnp

from l2p import struct
from l2p.models.base import INTERCEPT_COLUMN
from l2p.protectors.belief import NOISIEST, Aim, Belief, Measured
from l2p.protectors.conditioning import KNOT_RANGE, Facts, between_knots, facts_of, standardize
from l2p.protectors.fields import MAX_LOG, Curve
from l2p.protectors.line import AT_START, LineStep
from l2p.protectors.networks import Layers, apply_known
from l2p.protectors.projectors import Projector
from l2p.protectors.register import stored
from l2p.protectors.schedulers import Observation
from l2p.public_facts import Setup

#: Steps of gradient descent are stable up to 2 / h.
LONGEST = 1.5
#: Inputs of the network, see `KalmanProjector._seen`, and outputs: the logarithms of factors for the step and for the
#: prior's variance, and what is added to the logits of certainty and momentum.
INPUTS, OUTPUTS = 15, 4


@stored
@struct.dataclass
class KalmanProjector(Projector):
    """The filter above. Every constant is a curve over log(mu N), the same for all models.

    Attributes:
      log_curvature: f32[k, 5], log of the curvature over its typical value, `typical_curvature` times the second moment
        of the coordinate's feature.
      log_unknown: f32[k, 5], added where second moments were not bought: the mean one is known there, and the largest,
        which bounds the curvature, is larger.
      log_spread: f32[k, 5], log of the length of the margins of w* at the start, over typical slope / curvature.
      spread_power: f32[k, 5], by what power of its second moment a coordinate has less of that spread.
      log_intercept: f32[k, 5], the same as `log_spread` for the intercepts, beside what is known of the error of a
        start that was bought.
      log_width: f32[k, 5], log of the standard deviation, among tables, of the logarithm of what scales the variance
        of features at the start.
      logit_certain: f32[k, 5], logit of the curvature assumed where the filter narrows P, over that of its steps.
      logit_momentum: f32[k, 5], logit of the share of the last update that is added, where noise vanishes.
      log_steepest: f32[k, 5], log of how much larger than h the curvature may be where second moments were not bought.
        Steps are at most `LONGEST` over that and, where they were, over the model's largest curvature times them; the
        distance to the minimum is still told by h.
      log_gradient_norm: f32[k, 5], log of the norm of a row's gradient, over the loss's `typical_slope` times the rows'
        length. Gradients that are clipped below it are smaller than curvature makes them, and the filter expects them
        to be.
      logit_return: f32[k, 5], logit of the power to which params return to what a prior that has become narrower would
        have made of them, between 0 for staying and 1.
      rate_power: f32[k, 5], the power to which slope and curvature change with the classes' shares, where these were
        bought (`Model.scales_at_rates`).
      log_sampling: f32[k, 5], log of the variance that drawing N rows gives to their minimum, over that of a typical
        slope and curvature.
      network: with up to `INPUTS` inputs and `OUTPUTS` outputs, or None.
      line: scales the distance from the start, or None.
    """

    log_curvature: Curve
    log_unknown: Curve
    log_spread: Curve
    spread_power: Curve
    log_intercept: Curve
    log_width: Curve
    logit_certain: Curve
    logit_momentum: Curve
    log_steepest: Curve
    log_gradient_norm: Curve
    logit_return: Curve
    rate_power: Curve
    log_sampling: Curve
    network: Annotated[dict, Layers(INPUTS, OUTPUTS)] | None = None
    line: LineStep | None = None

    def init(self, params: jax.Array, setup: Setup) -> Belief:
        zeros = jnp.zeros_like(params)
        return Belief(
            start=params,
            left=jnp.ones_like(params),
            variance=zeros,
            measured=Measured(zeros, zeros),
            update=zeros,
            change=zeros,
            average=zeros,
            noise=zeros,
            surprise=zeros,
            weight=jnp.zeros((), params.dtype),
            last=zeros,
            last_noise=jnp.zeros((), params.dtype),
            steeper=jnp.ones((), params.dtype),
            line=jnp.zeros((), params.dtype),
        )

    def __call__(
        self, state: Belief, seen: Observation, params: jax.Array, progress: jax.Array, setup: Setup
    ) -> tuple[jax.Array, Belief]:
        facts = facts_of(setup, params.shape[0])
        curvature, steepest = self._curvature(seen, params, state.start, facts, setup)
        noise = jnp.square(seen.noise_std) + 1e-20
        moved = params - state.start
        measured = state.measured.after(moved - seen.gradient / curvature, noise / jnp.square(curvature))
        sampling = self._sampling(seen, params, facts, setup)
        prior, log_scale = self._prior(seen, params, measured, sampling, facts, setup)
        steeper = state.shown(seen.gradient, noise, steepest)
        longer = wider = surer = faster = jnp.zeros(())
        if self.network is not None:
            aim = Aim.at(curvature, prior, sampling)
            state = state.after(seen.gradient + aim.ridge * moved, noise, aim.curvature, aim.prior)
            told = self._seen(state, seen, measured, aim, log_scale, progress, facts)
            longer, wider, surer, faster = apply_known(self.network, told).T
            prior = prior * jnp.exp(jnp.clip(wider, -MAX_LOG, MAX_LOG))
        ridge, curvature, prior = Aim.at(curvature, prior, sampling)
        state, returned = self._returned(state, moved, prior, facts)
        gradient = seen.gradient + ridge * moved + curvature * returned  # what it would have been there
        variance = jnp.square(state.left) * prior + state.variance
        gain = variance * curvature / (jnp.square(curvature) * variance + noise)
        wanted = jnp.minimum(gain * jnp.exp(longer), LONGEST / curvature)
        bound = steepest * steeper + ridge
        gain = jnp.minimum(wanted, LONGEST / bound)
        left = 1.0 - jax.nn.sigmoid(between_knots(self.logit_certain, facts) + surer) * gain * curvature
        # wanted * curvature is the share of signal: momentum would keep noise that the filter has averaged away.
        momentum = jax.nn.sigmoid(between_knots(self.logit_momentum, facts) + faster) * wanted * curvature
        # A gradient that points back along the last update tells that this went too far (O'Donoghue and Candes 2015).
        kept = jnp.where(gradient * state.update > 0.0, 0.0, jnp.minimum(momentum, 1.0))
        update = kept * state.update - gain * gradient
        lengthened, line = self._lengthened(state.line, seen, moved, gain * bound, bound, setup)
        return returned + update + lengthened, state.replace(  # type: ignore[attr-defined]
            left=left * state.left,
            variance=jnp.square(left) * state.variance + jnp.square(gain) * noise,
            measured=measured,
            update=update,
            change=update + lengthened,
            last=seen.gradient,
            last_noise=noise,
            steeper=steeper,
            line=line,
        )

    def _lengthened(
        self, line: jax.Array, seen: Observation, moved: jax.Array, used: jax.Array, bound: jax.Array, setup: Setup
    ) -> tuple[jax.Array, jax.Array]:
        """What `LineStep` adds f32[p] to params that had `moved` f32[p] from the start, and the next `line` f32[].

        The filter's own step leads along the line, too: its gains use `used` f32[p] of the `LONGEST` over the curvature
        `bound` f32[p] that are stable, so that no more than the rest is left.
        """
        if self.line is None or seen.moment is None:
            return jnp.zeros_like(moved), line
        facts, model = facts_of(setup, moved.shape[0]), setup.model
        of_features = jnp.where(seen.moment > 0.0, moved, 0.0)
        square = jnp.square(of_features)
        begun = seen.moment @ square > AT_START
        length, norm, reach = (
            jnp.where(begun, sizes @ square, 1.0) for sizes in (seen.moment, jnp.ones_like(square), bound)
        )
        kept = self._clipped(seen, facts, setup)
        noise = norm * (jnp.square(seen.noise_std / kept) + 1e-20)
        curvature = model.line_curvature(jnp.sqrt(length), setup.kind)
        # In each coordinate the filter's gains are for the loss at its steepest.
        longest = jnp.maximum(LONGEST / curvature - ((used * bound) @ square / reach) / reach, 0.0)
        change, left = self.line(line, of_features @ seen.gradient / kept, noise, curvature, longest, facts)
        return jnp.where(begun, jnp.expm1(change), 0.0) * of_features, jnp.where(begun, left, line)

    def _returned(self, state: Belief, moved: jax.Array, prior: jax.Array, facts: Facts) -> tuple[Belief, jax.Array]:
        """The belief after params that had `moved` f32[p] from the start took back what a prior that is narrower by now
        would not have made of them, and that change f32[p] of params."""
        # Params are `share` of the distance, and noise. Given that, the mean distance is this multiple of them, which
        # is 1 while the prior stays; before the first step nothing has moved.
        share = 1.0 - state.left
        has_moved = share > 0.0
        mean = share * prior / jnp.where(has_moved, jnp.square(share) * prior + state.variance, 1.0)
        power = jax.nn.sigmoid(between_knots(self.logit_return, facts))
        kept = jnp.clip(jnp.where(has_moved, mean, 1.0), 1e-6, 1.0) ** power
        left, variance = 1.0 - kept * share, jnp.square(kept) * state.variance
        return state.replace(left=left, variance=variance), (kept - 1.0) * moved  # type: ignore[attr-defined]

    def _seen(
        self,
        state: Belief,
        seen: Observation,
        measured: Measured,
        aim: Aim,
        log_scale: jax.Array,
        progress: jax.Array,
        facts: Facts,
    ) -> jax.Array:
        """What the network is told of each coordinate, f32[p, INPUTS]; `state` has the gradient in its averages."""
        recent = state.average / jnp.sqrt(state.noise + 1e-20)
        # 1 if the filter is right about curvature, distance and noise; 0 on this scale.
        surprise = state.surprise / state.weight
        distance = measured.total * jax.lax.rsqrt(measured.precision)
        # How large that is expected to be, from 0 where noise hides the minimum.
        visible = jnp.log1p(jnp.minimum(measured.precision * aim.prior, NOISIEST)) / 4.0
        signal = jnp.square(aim.curvature) * (jnp.square(state.left) * aim.prior + state.variance)
        signal = signal / (signal + jnp.square(seen.noise_std) + 1e-20)
        strength = jnp.zeros_like(signal) if seen.strength is None else seen.strength / 4.0
        of_feature = jnp.zeros_like(signal) if seen.moment is None else jnp.sign(seen.moment)
        tests = [jnp.arcsinh(jnp.abs(one)) for one in (recent, distance)]
        each = [*tests, visible, jnp.log(surprise + 0.1) / 2.0, signal, strength, of_feature]
        # Of all coordinates together far less is chance.
        together = [jnp.log(jnp.square(recent).mean() + 0.1) / 2.0, jnp.log(surprise.mean() + 0.1) / 2.0]
        run = [2.0 * progress - 1.0, standardize(facts.log_signal, KNOT_RANGE), *facts.told]
        shared = jnp.stack([*together, log_scale / 4.0, *run])
        return jnp.concatenate([jnp.stack(each, 1), jnp.broadcast_to(shared, (*signal.shape, len(shared)))], 1)

    def _curvature(
        self, seen: Observation, params: jax.Array, start: jax.Array, facts: Facts, setup: Setup
    ) -> tuple[jax.Array, jax.Array]:
        """h f32[p], as clipped gradients show it; and the largest f32[p] that there may be, for whole gradients."""
        moment, of_feature = _moments(seen, params)
        moment = moment * setup.model.moment_growth(params, start)
        curvature_at_rates = self._at_rates(seen, params, facts, setup)[1]
        bought = jnp.array(False) if seen.strength is None else seen.strength.max() > 0.0
        unknown = of_feature & ~bought
        larger = jnp.where(unknown, between_knots(self.log_unknown, facts), 0.0)
        scale = jnp.exp(between_knots(self.log_curvature, facts) + larger)
        h = setup.model.typical_curvature(setup.kind) * scale * moment
        bound = jnp.maximum(h, setup.model.largest_curvature(setup.kind) * moment)
        steepest = jnp.where(unknown, h * jnp.exp(between_knots(self.log_steepest, facts)), bound)
        h = h * curvature_at_rates
        return h * self._clipped(seen, facts, setup), jnp.maximum(h, steepest)

    def _at_rates(
        self, seen: Observation, params: jax.Array, facts: Facts, setup: Setup
    ) -> tuple[jax.Array | float, jax.Array | float]:
        """Slope and curvature f32[p] at the classes' shares, over those at even ones."""
        if seen.rates is None:
            return 1.0, 1.0
        power, model = between_knots(self.rate_power, facts), setup.model
        scales = model.scales_at_rates(seen.rates, setup.kind)
        slope, curvature = (jnp.tile(scale**power, params.shape[0] // model.num_margins) for scale in scales)
        return slope, curvature

    def _unit(self, seen: Observation, params: jax.Array, facts: Facts, setup: Setup) -> jax.Array:
        """Typical length f32[p] of margins."""
        slope, curvature = self._at_rates(seen, params, facts, setup)
        return jnp.broadcast_to(setup.model.typical_margin(setup.kind) * slope / curvature, params.shape)

    def _sampling(self, seen: Observation, params: jax.Array, facts: Facts, setup: Setup) -> jax.Array:
        """Variance f32[p] of the minimum among draws of N rows; that of intercepts is too small to matter."""
        moment, of_feature = _moments(seen, params)
        unit = jnp.square(self._unit(seen, params, facts, setup)) * jnp.exp(between_knots(self.log_sampling, facts))
        return jnp.where(of_feature, unit / (setup.num_rows * moment), 0.0)

    def _clipped(self, seen: Observation, facts: Facts, setup: Setup) -> jax.Array | float:
        """What clipping leaves f32[] of a typical row's gradient."""
        if seen.clip_norm is None or seen.length is None:
            return 1.0
        norm = (
            setup.model.typical_slope(setup.kind) * seen.length * jnp.exp(between_knots(self.log_gradient_norm, facts))
        )
        return seen.clip_norm * jax.lax.rsqrt(jnp.square(seen.clip_norm) + jnp.square(norm))

    def at_start(self, params: jax.Array, seen: Observation, setup: Setup) -> tuple[jax.Array, jax.Array]:
        """Variance f32[p] of the distance from params f32[p] to the minimum before any gradient, and curvature f32[p]
        there."""
        facts = facts_of(setup, params.shape[0])
        return self._guess(seen, params, facts, setup), self._curvature(seen, params, params, facts, setup)[0]

    def _prior(
        self,
        seen: Observation,
        params: jax.Array,
        measured: Measured,
        sampling: jax.Array,
        facts: Facts,
        setup: Setup,
    ) -> tuple[jax.Array, jax.Array]:
        """P f32[p] at the start, and the log f32[] of the scale that the measurements give that of features."""
        _, of_feature = _moments(seen, params)
        guess = self._guess(seen, params, facts, setup) if seen.prior is None else seen.prior
        log_scale = measured.log_scale(guess, sampling, of_feature, jnp.exp(between_knots(self.log_width, facts)))
        return guess * jnp.where(of_feature, jnp.exp(log_scale), 1.0), log_scale

    def _guess(self, seen: Observation, params: jax.Array, facts: Facts, setup: Setup) -> jax.Array:
        """P f32[p] before any measurement."""
        moment, of_feature = _moments(seen, params)
        mean = jnp.where(of_feature, moment, 0.0).sum() / jnp.maximum(of_feature.sum(), 1)
        mean = jnp.maximum(mean, 1e-9)
        # Margins of length exp(log_spread) together, so each coordinate has its part of them.
        of_features = jnp.exp(2.0 * between_knots(self.log_spread, facts)) / (mean * params.shape[0])
        of_features = of_features * (moment / mean) ** -between_knots(self.spread_power, facts)
        of_intercept = jnp.exp(2.0 * between_knots(self.log_intercept, facts)) / moment
        guess = jnp.square(self._unit(seen, params, facts, setup)) * jnp.where(of_feature, of_features, of_intercept)
        return guess if seen.start_variance is None else guess + seen.start_variance


def _moments(seen: Observation, params: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The second moment f32[p] of what each param multiplies, and bool[p], whether that is a feature."""
    if seen.moment is None:
        return jnp.full_like(params, INTERCEPT_COLUMN**2), jnp.zeros(params.shape, bool)
    of_feature = seen.moment > 0.0
    return jnp.where(of_feature, jnp.maximum(seen.moment, 1e-9), INTERCEPT_COLUMN**2), of_feature
