"""One noised gradient per step: a scheduler decides its price, and a projector turns it into an update."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, Self, TypeVar

import jax
import jax.numpy as jnp
import optax

from l2p.base import struct
from l2p.base.compiled import as_one
from l2p.models import NAMES, Model
from l2p.models.base import INTERCEPT_COLUMN
from l2p.oracle import Oracle
from l2p.oracle.setup import Setup
from l2p.privacy.cost.sampling import FullBatch, Sampler
from l2p.protectors.conditioning import value
from l2p.protectors.fields import Count, Polynomial
from l2p.protectors.stepwise.centering import TYPICAL_SQUARE
from l2p.protectors.stepwise.norm_query import NormQuery
from l2p.protectors.stepwise.projectors import Projector
from l2p.protectors.stepwise.public_rows import PublicGradients, check_classes
from l2p.protectors.stepwise.purchase import KINDS, Purchase, Start
from l2p.protectors.stepwise.schedulers import Observation, Scheduler, StepPlan
from l2p.queries import ClippedGradient, Query
from l2p.run.protector import Protector
from l2p.task.feature_map import FeatureMap
from l2p.task.rows import Rows, null_invalid

#: The order of leaves, which a meta-training's sums over leaves and its keys for them follow. Purchases of other kinds
#: come after these.
LEAVES = (
    "scheduler",
    "projector",
    "centering",
    "averaging",
    "eigenbasis",
    "norm_query",
    "row_length",
    "geometry",
    "public_length",
    "public_start",
    "base_rate",
)

Kind = TypeVar("Kind", bound=Purchase)


@struct.dataclass
class StepwiseState(struct.Struct):
    """Between two steps: scheduler and projector states, the last observation, feature map, average of params."""

    scheduler: Any
    projector: Any
    observation: Observation
    features: FeatureMap
    average: jax.Array


@struct.dataclass
class Stepwise(Protector, struct.Composite):
    """Scheduler x projector: DP-SGD with any optimizer, L2P, AdaMix, and every pair between them.

    Attributes:
      scheduler: noise and clipping per step.
      projector: update from the noised mean gradient.
      purchases: what is bought, or taken from public rows, before the first step; at most one of each kind, kept in the
        order of their stages, which is that of the queries.
      averaging: f32[k], log of the inverse horizon of an exponential average of the iterates, as a polynomial in
        log(mu N); the released params are that average. None releases the last iterate.
      norm_query: the private norm of the coming gradient, bought before its noise is decided, or None.
      num_steps: T (static).
      sampler: which rows a step's gradient is summed over (static).
    """

    scheduler: Scheduler
    projector: Projector
    purchases: tuple[Purchase, ...] = ()
    averaging: Polynomial | None = None
    norm_query: NormQuery | None = None
    num_steps: Count = struct.field(pytree_node=False, default=50)
    sampler: Sampler = struct.field(pytree_node=False, default=FullBatch())
    models = NAMES
    reads_remaining_map = True

    def __post_init__(self) -> None:
        if all(isinstance(purchase, Purchase) for purchase in self.purchases):
            # Files and trees name purchases by kind and in an order of their own.
            in_order = tuple(sorted(self.purchases, key=lambda purchase: purchase.stage))
            kinds = [purchase.kind for purchase in in_order]
            if twice := next((kind for kind in kinds if kinds.count(kind) > 1), None):
                raise ValueError(f"two purchases of kind {twice!r} would answer the same, so one of them is wasted.")
            object.__setattr__(self, "purchases", in_order)

    def children(self) -> dict[str, Any]:
        """Parts by name, purchases by kind."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        named = {name: fields[name] for name in _parts(type(self))} | {
            purchase.kind: purchase for purchase in self.purchases
        }
        return {name: named[name] for name in sorted(named, key=_place)}

    @classmethod
    def of_children(cls, children: Mapping[str, Any], static: Mapping[str, Any]) -> Self:
        parts, purchases = _parts(cls), []
        for name, child in children.items():
            if name not in parts and (name not in KINDS or (isinstance(child, Purchase) and child.kind != name)):
                raise TypeError(f"{cls.__name__} has no part {name!r} of this class.")
            if name not in parts and child is not None:
                purchases.append(child)
        given_parts = {name: child for name, child in children.items() if name in parts}
        return cls(purchases=tuple(purchases), **given_parts, **static)

    def purchase(self, kind: type[Kind]) -> Kind | None:
        """The purchase of this class; None without one."""
        return next((purchase for purchase in self.purchases if isinstance(purchase, kind)), None)

    def with_purchases(self, *purchases: Purchase) -> Self:
        """A copy with these purchases, in place of those of their kinds."""
        others = self.without(*map(type, purchases)).purchases
        return dataclasses.replace(self, purchases=(*others, *purchases))

    def without(self, *kinds: type[Purchase]) -> Self:
        """A copy without purchases of these classes."""
        return dataclasses.replace(
            self, purchases=tuple(purchase for purchase in self.purchases if not isinstance(purchase, kinds))
        )

    @property
    def adaptive_noise(self) -> bool:  # type: ignore[override]
        return self.scheduler.adaptive or any(purchase.adaptive for purchase in self.purchases)

    @property
    def any_model(self) -> bool:  # type: ignore[override]
        return self.projector.any_model

    @property
    def needs_public(self) -> bool:  # type: ignore[override]
        return any(part.needs_public for part in (*self.purchases, self.scheduler, self.projector))

    def check_public(self, public: Rows, model: Model, kind: str) -> None:
        if self.needs_public:
            check_classes(public, model, kind)
            self.projector.check_public(public, model, kind)

    def misfit(self) -> str | None:
        """Reason why its parts do not fit together; None if they do."""
        maps = [purchase for purchase in self.purchases if purchase.maps_rows]
        replacing = next((purchase for purchase in reversed(maps) if purchase.replaces_maps), None)
        if replacing is None or len(maps) < 2:
            return None
        replaced = next(purchase for purchase in maps if purchase is not replacing)
        return f"has {replaced.kind} beside {replacing.kind}, which replaces it"

    def init(self, params: jax.Array, oracle: Oracle) -> tuple[jax.Array, StepwiseState]:
        model = oracle.setup.model
        start = Start(params, FeatureMap.identity(model.num_features(params.shape[0])))
        for purchase in self.purchases:
            if purchase.fits(model):
                start = purchase.buy(start, oracle)
        params = start.mapped_params(model)
        observation = _first_observation(params, start.features, start.strength, start.moment, start.length, model)
        observation = observation.replace(
            start_variance=start.start_variance, rates=start.rates, log_length=start.log_length
        )
        projector = self.projector.init(params, oracle.setup)
        return params, StepwiseState(self.scheduler.init(oracle), projector, observation, start.features, params)

    def plan(self, state: StepwiseState, observation: Observation, oracle: Oracle) -> tuple[StepPlan, Any]:
        """Noise and clipping of a step, and the scheduler's next state."""
        return self.scheduler(state.scheduler, observation, oracle, self.num_steps)

    def query(self, params: jax.Array, features: FeatureMap, plan: StepPlan, setup: Setup) -> Query:
        """The query of a step: a gradient sum with the noise multiplier and the clip norm of `plan`."""
        return ClippedGradient(setup.model, params, features, plan.clip_norm, plan.noise_multiplier)

    def view(self, state: StepwiseState) -> FeatureMap | None:
        # Without a basis the map is a shift and a scale, which queries apply without forming the mapped table.
        return None if state.features.basis is None else state.features

    def step(self, params: jax.Array, state: StepwiseState, oracle: Oracle) -> tuple[jax.Array, StepwiseState]:
        setup = oracle.setup
        observation, features = state.observation, state.features
        if oracle.public is not None:
            public = PublicGradients.at(setup.model, params, null_invalid(oracle.public), features)
            observation = observation.replace(public=public)
        if features.basis is not None:  # rows come through `view`
            features = (
                FeatureMap.identity(features.num_mapped) if oracle.remaining_map is None else oracle.remaining_map
            )
        if self.norm_query is not None:
            observation = observation.replace(norm=self.norm_query(params, features, oracle, self.num_steps))
        observation = observation.replace(params=params)
        plan, scheduler = self.plan(state, observation, oracle)
        answer = oracle.ask(self.query(params, features, plan, setup))
        gradient, noise_std, norm = _mean_gradient(answer, plan, setup)
        answered = {"gradient": gradient, "noise_std": noise_std, "norm": norm, "clip_norm": plan.clip_norm}
        observation = observation.replace(scale=plan.scale, **answered)
        progress = oracle.step / self.num_steps
        update, projector = self.projector(state.projector, observation, params, progress, setup)
        observation = observation.replace(public=None, clip_norm=None, scale=None, params=None)
        params = params + update
        average = params
        if self.averaging is not None:
            # A plain mean until the horizon is reached, an exponential average from then on.
            rate = jnp.exp(-jax.nn.softplus(-value(self.averaging, setup.log_signal)))
            rate = jnp.maximum(rate, 1.0 / (oracle.step + 1.0))
            average = state.average + rate * (params - state.average)
        return params, StepwiseState(scheduler, projector, observation, state.features, average)

    def finish(self, params: jax.Array, state: StepwiseState, setup: Setup) -> jax.Array:
        params = self.projector.at_end(state.projector, state.average, state.observation, setup)
        return setup.model.params_for_raw_rows(params, state.features)


@functools.cache
def _parts(cls: type[Stepwise]) -> tuple[str, ...]:
    """Names of the fields that are single parts, unlike `purchases`."""
    fields = dataclasses.fields(cls)
    return tuple(
        field.name for field in fields if field.name != "purchases" and field.metadata.get("pytree_node", True)
    )


def _place(name: str) -> int:
    return LEAVES.index(name) if name in LEAVES else len(LEAVES)


@functools.partial(as_one, static=("model",))
def _first_observation(
    params: jax.Array,
    features: FeatureMap,
    of_feature: jax.Array | None,
    moment: jax.Array | None,
    length: jax.Array | None,
    model: Model,
) -> Observation:
    """The observation before the first answer. Without second moments f32[k] of the mapped features, all features have
    the same; without a length, rows have a typical one."""
    zeros, strength = jnp.zeros_like(params), None if of_feature is None else model.per_param(of_feature)
    observation = Observation(zeros, jnp.ones(()), _norm(zeros), strength)
    if not model.has_intercept:
        return observation
    if moment is None:
        size = features.num_mapped
        moment = jnp.full(size, TYPICAL_SQUARE if length is None else jnp.square(length) / size)
    # An eigenbasis keeps the length; its moments are upper bounds, and sum to more.
    square = moment.sum() if length is None else jnp.square(length)
    typical_length = jnp.sqrt(square + INTERCEPT_COLUMN**2)
    return observation.replace(moment=model.moment_per_param(moment), length=typical_length)


@as_one
def _mean_gradient(answer: jax.Array, plan: StepPlan, setup: Setup) -> tuple[jax.Array, jax.Array, jax.Array]:
    """A noised gradient sum over the rows that it is expected to read; its noise in each coordinate; its L2 norm."""
    gradient = answer / setup.batch_rows
    noise_std = plan.noise_multiplier * plan.clip_norm * setup.adjacency.sensitivity_factor / setup.batch_rows
    return gradient, noise_std, _norm(gradient)


@as_one
def _norm(gradient: jax.Array) -> jax.Array:
    """L2 norm f32[] with a finite derivative at zero."""
    return jnp.asarray(optax.safe_norm(gradient, 1e-12))
