"""One noised gradient per step: a scheduler decides its price, and a projector turns it into an update."""

import functools
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import optax

from l2p import struct
from l2p.compiled import as_one
from l2p.features import FeatureMap
from l2p.models import NAMES, Model
from l2p.models.base import INTERCEPT_COLUMN
from l2p.oracle import Oracle
from l2p.privacy.sampling import FullBatch, Sampler
from l2p.protector import Protector
from l2p.protectors import empirical_bayes
from l2p.protectors.base_rate import BaseRate
from l2p.protectors.conditioning import at, facts_for, value
from l2p.protectors.eigenbasis import Eigenbasis
from l2p.protectors.fields import Count, Polynomial, Positive, Scalar, Share
from l2p.protectors.geometry import PublicGeometry
from l2p.protectors.norm_query import NormQuery
from l2p.protectors.projectors import Projector
from l2p.protectors.public_parts import PublicFit, PublicLength
from l2p.protectors.public_rows import PublicGradients, check_classes
from l2p.protectors.register import stored
from l2p.protectors.row_length import RowLength
from l2p.protectors.schedulers import SLACK, Observation, Plan, Scheduler
from l2p.public_facts import Setup
from l2p.queries import ClippedGradient, FeatureSum, Query
from l2p.task import Rows, null_invalid

#: Typical mean square of a feature in [0, 1]; used for a row's length while the mean is unknown.
TYPICAL_SQUARE = 1.0 / 6.0


@stored
@struct.dataclass
class Centering:
    """Buys a private feature mean first, centres rows on it and scales them to a common length.

    If noise dominates the mean, rows are not centred and a typical length is assumed. The average of all features'
    means has less noise than each of them, by the square root of their number, so it is useful at much smaller budgets;
    with `log_level_spread` means are shrunk towards it, and not towards zero.

    Attributes:
      logit_share: f32[k], logit of the share of the budget, a polynomial in log(mu N); or f32[k, 5], knots of a curve.
      log_spread: f32[], log of the distance of feature means from zero, or from their average: noise of this size
        halves the trust in them.
      row_norm: f32[], clipping norm of a row over the square root of its dimension.
      target_norm: f32[], length that centred rows are scaled to, estimated from the mean alone: a feature in [0, 1] of
        mean m has variance at most m (1 - m).
      log_level_spread: f32[], the same for the distance of that average from zero; None shrinks means towards zero.
      log_width: f32[], log of the standard deviation, among tables, of the logarithm of what scales the square of
        `log_spread`'s distance, which the means themselves tell. Only beside `log_level_spread`; None for the same
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

    def __call__(self, num_features: int, oracle: Oracle) -> FeatureMap:
        setup = oracle.setup
        share = jax.nn.sigmoid(at(self.logit_share, facts_for(setup, num_features)))
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
        known = jax.nn.sigmoid(2.0 * (self.log_level_spread - level_noise))
        level = known * jnp.clip(mean.mean(), 0.0, 1.0)
        if self.log_width is not None and mean.shape[0] > 1:
            spread, noise = jnp.exp(2.0 * self.log_spread), jnp.square(noise_std)
            found = jnp.var(mean, ddof=1) - noise
            width = jnp.exp(self.log_width)
            log_scale = empirical_bayes.log_scale(found / spread, noise / spread, mean.shape[0] - 1, width)
            trust = 1.0 / (1.0 + noise / spread * jnp.exp(-log_scale))
        return level + trust * (bounded - level), known


@struct.dataclass
class StepwiseState:
    """Between two steps: scheduler and projector states, the last observation, feature map, average of params."""

    scheduler: Any
    projector: Any
    seen: Observation
    features: FeatureMap
    average: jax.Array


@struct.dataclass
class Stepwise(Protector):
    """Scheduler x projector: DP-SGD with any optimizer, L2P, AdaMix, and every pair between them.

    Attributes:
      scheduler: noise and clipping per step.
      projector: update from the noised mean gradient.
      centering: the private mean bought first, or None; not used for models without an intercept.
      row_length: the private mean length of mapped rows, bought next, or None; not used without an intercept.
      eigenbasis: private second moments, bought after that, whose eigenbasis the run uses, or None; not used without an
        intercept.
      geometry: directions of public rows, used instead of these three, or None; not used without an intercept.
      public_length: the length that rows are scaled to by a number from public rows, used instead of these four, or
        None; not used without an intercept.
      public_start: where training starts, from public rows, or None.
      base_rate: the private counts of the classes, or mean of the targets, bought before all else, whose intercepts
        training starts from; or None. Not used with `public_start`, nor for models without rates.
      norm_query: the private norm of the coming gradient, bought before its noise is decided, or None.
      averaging: f32[k], log of the inverse horizon of an exponential average of the iterates, as a polynomial in
        log(mu N); the released params are that average. None releases the last iterate.
      num_steps: T (static).
      sampler: which rows a step's gradient is summed over (static).
    """

    scheduler: Scheduler
    projector: Projector
    centering: Centering | None = None
    averaging: Polynomial | None = None
    eigenbasis: Eigenbasis | None = None
    norm_query: NormQuery | None = None
    row_length: RowLength | None = None
    geometry: PublicGeometry | None = None
    public_length: PublicLength | None = None
    public_start: PublicFit | None = None
    base_rate: BaseRate | None = None
    num_steps: Count = struct.field(pytree_node=False, default=50)
    sampler: Sampler = struct.field(pytree_node=False, default=FullBatch())
    models = NAMES
    reads_remaining_map = True

    @property
    def adaptive_noise(self) -> bool:  # type: ignore[override]
        return self.scheduler.adaptive or (self.base_rate is not None and self.base_rate.adaptive)

    @property
    def needs_public(self) -> bool:  # type: ignore[override]
        of_its_own = self.public_length is not None or self.public_start is not None
        return of_its_own or self.scheduler.needs_public or self.projector.needs_public

    def check_public(self, public: Rows, model: Model, kind: str) -> None:
        if self.needs_public:
            check_classes(public, model, kind)
            self.projector.check_public(public, model, kind)

    def misfit(self) -> str | None:
        """Why its parts do not fit together; None if they do."""
        parts = ("centering", "row_length", "eigenbasis", "geometry", "public_length")
        present = [name for name in parts if getattr(self, name) is not None]
        if len(present) < 2 or present[-1] not in ("geometry", "public_length"):
            return None
        return f"has {present[0]} beside {present[-1]}, which replaces it"

    def init(self, params: jax.Array, oracle: Oracle) -> tuple[jax.Array, StepwiseState]:
        model = oracle.setup.model
        num_features = model.num_features(params.shape[0])
        features, start_variance, rates = FeatureMap.identity(num_features), None, None
        if self.base_rate is not None and model.num_rates and self.public_start is None:
            params, start_variance, rates = self.base_rate(params, oracle)
        if self.centering is not None and model.has_intercept:
            features = self.centering(num_features, oracle)
        if self.row_length is not None and model.has_intercept:
            features = self.row_length(features, oracle)
        of_feature = moment = None
        if self.geometry is not None and model.has_intercept:
            features, of_feature = self.geometry(num_features, oracle.setup)
        if self.eigenbasis is not None and model.has_intercept:
            features, of_feature, moment = self.eigenbasis(features, oracle)
        if self.public_length is not None and model.has_intercept:
            features = self.public_length(num_features, oracle)
        params = model.params_for_mapped_rows(params, features)
        if self.public_start is not None:
            params = self.public_start(params, features, oracle)
        length = None if self.centering is None else self.centering.target_norm
        seen = _nothing_seen(params, features, of_feature, moment, length, model)
        seen = seen.replace(start_variance=start_variance, rates=rates)  # type: ignore[attr-defined]
        projector = self.projector.init(params, oracle.setup)
        return params, StepwiseState(self.scheduler.init(oracle), projector, seen, features, params)

    def query(self, params: jax.Array, features: FeatureMap, plan: Plan, setup: Setup) -> Query:
        """The query of a step: a gradient sum with the noise multiplier and the clip norm of `plan`."""
        return ClippedGradient(setup.model, params, features, plan.clip_norm, plan.noise_multiplier)

    def view(self, state: StepwiseState) -> FeatureMap | None:
        # Without a basis the map is a shift and a scale, which queries apply without forming the mapped table.
        return None if state.features.basis is None else state.features

    def step(self, params: jax.Array, state: StepwiseState, oracle: Oracle) -> tuple[jax.Array, StepwiseState]:
        setup = oracle.setup
        seen, features = state.seen, state.features
        if oracle.public is not None:
            public = PublicGradients.at(setup.model, params, null_invalid(oracle.public), features)
            seen = seen.replace(public=public)  # type: ignore[attr-defined]
        if features.basis is not None:  # rows come through `view`
            features = (
                FeatureMap.identity(features.num_mapped) if oracle.remaining_map is None else oracle.remaining_map
            )
        if self.norm_query is not None:
            seen = seen.replace(norm=self.norm_query(params, features, oracle, self.num_steps))  # type: ignore[attr-defined]
        seen = seen.replace(params=params)  # type: ignore[attr-defined]
        plan, scheduler = self.scheduler(state.scheduler, seen, oracle, self.num_steps)
        answer = oracle.ask(self.query(params, features, plan, setup))
        gradient, noise_std, norm = _mean_gradient(answer, plan, setup)
        answered = {"gradient": gradient, "noise_std": noise_std, "norm": norm, "clip_norm": plan.clip_norm}
        seen = seen.replace(**answered)  # type: ignore[attr-defined]
        progress = oracle.step / self.num_steps
        update, projector = self.projector(state.projector, seen, params, progress, setup)
        seen = seen.replace(public=None, clip_norm=None, params=None)  # type: ignore[attr-defined]
        params = params + update
        average = params
        if self.averaging is not None:
            # A plain mean until the horizon is reached, an exponential average from then on.
            rate = jnp.exp(-jax.nn.softplus(-value(self.averaging, setup.log_signal)))
            rate = jnp.maximum(rate, 1.0 / (oracle.step + 1.0))
            average = state.average + rate * (params - state.average)
        return params, StepwiseState(scheduler, projector, seen, state.features, average)

    def finish(self, params: jax.Array, state: StepwiseState, setup: Setup) -> jax.Array:
        return setup.model.params_for_raw_rows(state.average, state.features)


@functools.partial(as_one, static=("model",))
def _nothing_seen(
    params: jax.Array,
    features: FeatureMap,
    of_feature: jax.Array | None,
    moment: jax.Array | None,
    length: jax.Array | None,
    model: Model,
) -> Observation:
    """What a projector sees before the first answer; without second moments f32[k] of the mapped features, all have the
    same, and rows this length, or a typical one."""
    zeros, strength = jnp.zeros_like(params), None if of_feature is None else model.per_param(of_feature)
    seen = Observation(zeros, jnp.ones(()), _norm(zeros), strength)
    if not model.has_intercept:
        return seen
    if moment is None:
        size = features.num_mapped
        moment = jnp.full(size, TYPICAL_SQUARE if length is None else jnp.square(length) / size)
    # An eigenbasis keeps the length; its moments are upper bounds, and sum to more.
    square = moment.sum() if length is None else jnp.square(length)
    whole = jnp.sqrt(square + INTERCEPT_COLUMN**2)
    return seen.replace(moment=model.moment_per_param(moment), length=whole)  # type: ignore[attr-defined]


@as_one
def _mean_gradient(answer: jax.Array, plan: Plan, setup: Setup) -> tuple[jax.Array, jax.Array, jax.Array]:
    """A noised gradient sum over the rows that it is expected to read; its noise in each coordinate; its L2 norm."""
    gradient = answer / setup.batch_rows
    noise_std = plan.noise_multiplier * plan.clip_norm * setup.adjacency.sensitivity_factor / setup.batch_rows
    return gradient, noise_std, _norm(gradient)


@as_one
def _norm(gradient: jax.Array) -> jax.Array:
    """L2 norm f32[] with a finite derivative at zero."""
    return jnp.asarray(optax.safe_norm(gradient, 1e-12))
