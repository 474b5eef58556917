"""Steps by a Kalman filter in each coordinate, from curvature and noise.

The constants of a `MixProjector` are rates for gradients, learned at some curvature; at another they are several times
too large or too small. Here a step is derived from public facts. Near the minimum w* a noised gradient at w is
h (w - w*) plus noise of known size, where h is at most the loss's curvature times the second moment of the coordinate's
feature, which the run has bought. So a noised gradient is a noised measurement of w*, and a filter tracks the variance
P of the distance from it: the step is K = P h / (h^2 P + noise^2) times the gradient. Where noise vanishes K is 1 / h,
the step of Newton's method; where noise dominates, K is small and falls with P, which averages the noise away. Learned
are the variance at the start, the ratio of the curvature to its bound, and a momentum, which makes up for smaller
curvature.

The distance of w* differs much between a table whose classes are hard to tell apart and an easy one. So the variance at
the start is a first guess, which is scaled by the measurements of w* (empirical Bayes): pooled over the coordinates of
all features they soon show whether there is signal. A network may correct the filter in each coordinate, by comparing
the gradients so far with the expected ones.

With few rows the sample minimiser misses the population's (`AssumedQuadratic`); the ridge corrects for it. Under this
ridge the minimiser is the most likely place of the population's, given the prior; the ridge vanishes as N grows.

Gradient descent is stable up to 2 over the largest curvature, and no step is longer than `LONGEST` over the bound on
it. For rows that are clipped to a length the bound is too low, for a hinge there is none, and for a network it changes.
So the bound grows where gradients change more along an update than it allows, beyond their noise; and in coordinates
whose gradient points back along the last update, momentum is dropped.
"""

from typing import Annotated, Any, NamedTuple, cast

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.oracle.setup import Setup
from l2p.protectors.conditioning import KNOT_RANGE, Covariates, between_knots, covariates_of, standardize
from l2p.protectors.fields import MAX_LOG, Curve
from l2p.protectors.learned.belief import NOISIEST, Aim, Belief, Measured
from l2p.protectors.learned.line import AT_START, LineStep
from l2p.protectors.learned.quadratic import AssumedQuadratic, moments_of
from l2p.protectors.learned.retreat import Retreat
from l2p.protectors.register import stored
from l2p.protectors.stepwise.networks import Layers, apply_mlp
from l2p.protectors.stepwise.schedulers import Observation

#: Steps of gradient descent are stable up to 2 / h.
LONGEST = 1.5
#: Inputs of the network, see `KalmanProjector._inputs`, and outputs, see `Corrections`.
INPUTS, OUTPUTS = 15, 4


class Corrections(NamedTuple):
    """Outputs of a network for each coordinate, f32[p], or f32[] zeros without one.

    Attributes:
      longer: log of a factor on the step.
      wider: log of a factor on the prior's variance.
      surer: added to the logit of certainty.
      faster: added to the logit of momentum.
      step: the step over the expected length of the filter's own; None leaves the step to the filter.
    """

    longer: jax.Array
    wider: jax.Array
    surer: jax.Array
    faster: jax.Array
    step: jax.Array | None = None


@stored
@struct.dataclass
class KalmanProjector(AssumedQuadratic):
    """The filter above. Every constant is a curve over log(mu N), the same for all models.

    Attributes:
      log_width: f32[k, 6], log of the standard deviation, among tables, of the logarithm of the factor on the variance
        of features at the start.
      logit_certain: f32[k, 6], logit of the curvature assumed where the filter narrows P, over that of its steps.
      logit_momentum: f32[k, 6], logit of the share of the last update that is added, where noise vanishes.
      logit_return: f32[k, 6], logit of how far params shrink back once the prior narrows, from 0, not at all, to 1.
      network: with `INPUTS` inputs and `OUTPUTS` outputs, or None.
      line: scales the distance from the start, or None.
      retreat: takes back at the end what does not stand out from noise, or None.
    """

    log_width: Curve
    logit_certain: Curve
    logit_momentum: Curve
    logit_return: Curve
    network: Annotated[dict, Layers(INPUTS, OUTPUTS)] | None = None
    line: LineStep | None = None
    retreat: Retreat | None = None

    def init(self, params: jax.Array, setup: Setup) -> Belief:
        zeros = jnp.zeros_like(params)
        return Belief(
            start=params,
            remaining=jnp.ones_like(params),
            variance=zeros,
            measured=Measured.none(params),
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
            memory=self._memory(params.shape[0]),
        )

    def _memory(self, num_params: int) -> Any:
        """The network's memory before the first step; a feed-forward one has none."""
        del num_params
        return ()

    def _corrections(self, memory: Any, inputs: jax.Array) -> tuple[Corrections, Any]:
        """The network's output for inputs f32[p, INPUTS], and its next memory."""
        return Corrections(*apply_mlp(cast(dict, self.network), inputs).T), memory

    def __call__(
        self, state: Belief, observation: Observation, params: jax.Array, progress: jax.Array, setup: Setup
    ) -> tuple[jax.Array, Belief]:
        covariates = covariates_of(setup, params.shape[0])
        curvature, steepest = self.curvature(observation, params, state.start, covariates, setup)
        noise = jnp.square(observation.noise_std) + 1e-20
        moved = params - state.start
        measured = state.measured.after(moved - observation.gradient / curvature, noise / jnp.square(curvature))
        sampling = self.sampling_variance(observation, params, covariates, setup)
        prior, log_scale = self._prior(observation, params, measured, sampling, covariates, setup)
        steeper = state.steeper_after(observation.gradient, noise, steepest)
        corrections = Corrections(*[jnp.zeros(())] * OUTPUTS)
        memory = state.memory
        if self.network is not None:
            aim = Aim.at(curvature, prior, sampling)
            state = state.after(observation.gradient + aim.ridge * moved, noise, aim.curvature, aim.prior)
            inputs = self._inputs(state, observation, measured, aim, log_scale, progress, covariates)
            corrections, memory = self._corrections(memory, inputs)
            prior = prior * jnp.exp(jnp.clip(corrections.wider, -MAX_LOG, MAX_LOG))
        ridge, curvature, prior = Aim.at(curvature, prior, sampling)
        state, correction = self._shrunk_to_prior(state, moved, prior, covariates)
        gradient = observation.gradient + ridge * moved + curvature * correction  # at the corrected params
        variance = jnp.square(state.remaining) * prior + state.variance
        gain = variance * curvature / (jnp.square(curvature) * variance + noise)
        wanted = jnp.minimum(gain * jnp.exp(corrections.longer), LONGEST / curvature)
        bound = steepest * steeper + ridge
        gain = jnp.minimum(wanted, LONGEST / bound)
        certain = jax.nn.sigmoid(between_knots(self.logit_certain, covariates) + corrections.surer)
        factor = 1.0 - certain * gain * curvature
        # wanted * curvature is the share of signal: momentum would keep noise that the filter has averaged away.
        momentum = jax.nn.sigmoid(between_knots(self.logit_momentum, covariates) + corrections.faster)
        momentum = momentum * wanted * curvature
        # A gradient that points back along the last update tells that this went too far (O'Donoghue and Candes 2015).
        damped = jnp.where(gradient * state.update > 0.0, 0.0, jnp.minimum(momentum, 1.0))
        update = damped * state.update - gain * gradient
        if corrections.step is not None:
            update = corrections.step * gain * jnp.sqrt(jnp.square(curvature) * variance + noise)
        lengthened, line = self._lengthened(state.line, observation, moved, gain * bound, bound, setup)
        return correction + update + lengthened, state.replace(
            remaining=factor * state.remaining,
            variance=jnp.square(factor) * state.variance + jnp.square(gain) * noise,
            measured=measured,
            update=update,
            change=update + lengthened,
            last=observation.gradient,
            last_noise=noise,
            steeper=steeper,
            line=line,
            memory=memory,
        )

    def at_end(self, state: Belief, params: jax.Array, observation: Observation, setup: Setup) -> jax.Array:
        if self.retreat is None:
            return params
        covariates, moved = covariates_of(setup, params.shape[0]), params - state.start
        of_feature = moments_of(observation, params)[1]
        curvature, _ = self.curvature(observation.replace(clip_norm=None), params, state.start, covariates, setup)
        share = self.retreat(moved, state.variance, jnp.where(of_feature, curvature, 0.0), covariates)
        return state.start + jnp.where(of_feature, share, 1.0) * moved

    def _lengthened(
        self,
        line: jax.Array,
        observation: Observation,
        moved: jax.Array,
        used: jax.Array,
        bound: jax.Array,
        setup: Setup,
    ) -> tuple[jax.Array, jax.Array]:
        """Change f32[p] of params, `moved` f32[p] from the start, by `LineStep`, and the next `line` f32[].

        The filter's own step moves along the line, too: its gains use up `used` f32[p] of the stable `LONGEST` over the
        curvature `bound` f32[p], and the line gets the rest.
        """
        if self.line is None or observation.moment is None:
            return jnp.zeros_like(moved), line
        covariates, model = covariates_of(setup, moved.shape[0]), setup.model
        of_features = jnp.where(observation.moment > 0.0, moved, 0.0)
        square = jnp.square(of_features)
        has_moved = observation.moment @ square > AT_START
        length, norm, reach = (
            jnp.where(has_moved, sizes @ square, 1.0) for sizes in (observation.moment, jnp.ones_like(square), bound)
        )
        clipping = self.share_after_clipping(observation, covariates, setup)
        noise = norm * (jnp.square(observation.noise_std / clipping) + 1e-20)
        curvature = model.line_curvature(jnp.sqrt(length), setup.kind)
        # In each coordinate the filter's gains are for the loss at its steepest.
        longest = jnp.maximum(LONGEST / curvature - ((used * bound) @ square / reach) / reach, 0.0)
        change, remaining = self.line(
            line, of_features @ observation.gradient / clipping, noise, curvature, longest, covariates
        )
        return jnp.where(has_moved, jnp.expm1(change), 0.0) * of_features, jnp.where(has_moved, remaining, line)

    def _shrunk_to_prior(
        self, state: Belief, moved: jax.Array, prior: jax.Array, covariates: Covariates
    ) -> tuple[Belief, jax.Array]:
        """The belief after params, `moved` f32[p] from the start, shrink back to those that a narrower prior would have
        given, and that change f32[p] of params."""
        # Params are `share` of the distance plus noise. Given them, share times the mean distance is this multiple of
        # them, 1 while the prior stays; before the first step nothing has moved.
        share = 1.0 - state.remaining
        has_moved = share > 0.0
        mean = share * prior / jnp.where(has_moved, jnp.square(share) * prior + state.variance, 1.0)
        power = jax.nn.sigmoid(between_knots(self.logit_return, covariates))
        shrinkage = jnp.clip(jnp.where(has_moved, mean, 1.0), 1e-6, 1.0) ** power
        remaining, variance = 1.0 - shrinkage * share, jnp.square(shrinkage) * state.variance
        return state.replace(remaining=remaining, variance=variance), (shrinkage - 1.0) * moved

    def _inputs(
        self,
        state: Belief,
        observation: Observation,
        measured: Measured,
        aim: Aim,
        log_scale: jax.Array,
        progress: jax.Array,
        covariates: Covariates,
    ) -> jax.Array:
        """The network's inputs for each coordinate, f32[p, INPUTS]; `state` has the gradient in its averages."""
        recent = state.average / jnp.sqrt(state.noise + 1e-20)
        # 1 if the filter is right about curvature, distance and noise; 0 on this scale.
        surprise = state.surprise / state.weight
        distance = measured.total * jax.lax.rsqrt(measured.square)
        # Expected size of the distance, from 0 where noise hides the minimum.
        visible = jnp.log1p(jnp.minimum(aim.prior / measured.variance, NOISIEST)) / 4.0
        signal = jnp.square(aim.curvature) * (jnp.square(state.remaining) * aim.prior + state.variance)
        signal = signal / (signal + jnp.square(observation.noise_std) + 1e-20)
        strength = jnp.zeros_like(signal) if observation.strength is None else observation.strength / 4.0
        of_feature = jnp.zeros_like(signal) if observation.moment is None else jnp.sign(observation.moment)
        tests = [jnp.arcsinh(self._sized(ratio)) for ratio in (recent, distance)]
        each = [*tests, visible, jnp.log(surprise + 0.1) / 2.0, signal, strength, of_feature]
        # Of all coordinates together far less is chance.
        together = [jnp.log(jnp.square(recent).mean() + 0.1) / 2.0, jnp.log(surprise.mean() + 0.1) / 2.0]
        run = [2.0 * progress - 1.0, standardize(covariates.log_signal, KNOT_RANGE), *covariates.inputs]
        shared = jnp.stack([*together, log_scale / 4.0, *run])
        return jnp.concatenate([jnp.stack(each, 1), jnp.broadcast_to(shared, (*signal.shape, len(shared)))], 1)

    def _sized(self, ratio: jax.Array) -> jax.Array:
        """A ratio f32[p] to noise as an input: without its sign, which no correction may depend on."""
        return jnp.abs(ratio)

    def _prior(
        self,
        observation: Observation,
        params: jax.Array,
        measured: Measured,
        sampling: jax.Array,
        covariates: Covariates,
        setup: Setup,
    ) -> tuple[jax.Array, jax.Array]:
        """P f32[p] at the start, and the log f32[] of the scale that the measurements give that of features."""
        _, of_feature = moments_of(observation, params)
        guess = self.guess(observation, params, covariates, setup) if observation.prior is None else observation.prior
        log_scale = measured.log_scale(guess, sampling, of_feature, jnp.exp(between_knots(self.log_width, covariates)))
        return guess * jnp.where(of_feature, jnp.exp(log_scale), 1.0), log_scale
