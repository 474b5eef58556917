"""Public second moments as preconditioner (AdaDPS; Li, Zaheer, Reddi and Smith, ICML 2022)."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.models import Model
from l2p.oracle import Oracle
from l2p.oracle.setup import Setup
from l2p.protectors.conditioning import value
from l2p.protectors.fields import Count, Polynomial
from l2p.protectors.hand_designed import Problem, log_constant, logit_constant
from l2p.protectors.register import hand_designed
from l2p.protectors.stepwise.projectors import Projector
from l2p.protectors.stepwise.public_parts import PublicClip, PublicFit, PublicLength
from l2p.protectors.stepwise.public_rows import PublicGradients, check_classes, public_rows
from l2p.protectors.stepwise.schedulers import Decaying, Observation, Scheduler
from l2p.protectors.with_public_rows.adamix import CLIPPED_RATE, PUBLIC_RATE, descent, steps_for
from l2p.queries import ClippedGradient
from l2p.run.protector import Protector
from l2p.task.feature_map import Basis, FeatureMap
from l2p.task.rows import Rows


@struct.dataclass
class MomentsState:
    """State between two steps: states of the scheduler and the projector, the map of the rows that params are for, the
    last noised gradient f32[p], its norm f32[] and the deviation f32[] of its noise."""

    scheduler: Any
    projector: Any
    features: FeatureMap
    norm: jax.Array
    noise_std: jax.Array
    gradient: jax.Array


@struct.dataclass
class PublicMoments(Protector):
    """Every row's gradient is divided by the root of public second moments before it is clipped, feature by feature.

    A feature whose gradients are small gets as much of the clipping norm as any other, and so less noise than signal.
    The moments are those of public gradients at the present params, summed over classes. Dividing the gradient of a
    linear model's feature is the same as dividing the feature, so the query is a `ClippedGradient` on scaled rows.

    Attributes:
      scheduler: noise and clipping per step; a clip of public gradients sees scaled ones.
      projector: update from the noised gradient that was scaled once.
      log_stability: f32[k], log of what is added to a root, over the root mean square of all; a polynomial in
        log(mu N).
      public_length: the length that rows are scaled to beforehand, or None; without it the learning rate depends on
        how long rows are.
      public_start: where training starts, or None.
      num_steps: T (static).
    """

    scheduler: Scheduler
    projector: Projector
    log_stability: Polynomial
    public_length: PublicLength | None = None
    public_start: PublicFit | None = None
    num_steps: Count = struct.field(pytree_node=False, default=50)
    models: ClassVar[tuple[str, ...]] = ("logistic", "softmax", "svm")
    needs_public = True

    @property
    def adaptive_noise(self) -> bool:  # type: ignore[override]
        return self.scheduler.adaptive

    def check_public(self, public: Rows, model: Model, kind: str) -> None:
        check_classes(public, model, kind)
        self.projector.check_public(public, model, kind)

    def init(self, params: jax.Array, oracle: Oracle) -> tuple[jax.Array, MomentsState]:
        model = oracle.setup.model
        features = FeatureMap.identity(model.num_features(params.shape[0]))
        if self.public_length is not None:
            features = self.public_length(model.num_features(params.shape[0]), oracle)
        params = model.params_for_mapped_rows(params, features)
        if self.public_start is not None:
            params = self.public_start(params, features, oracle)
        zeros, unit = jnp.zeros_like(params), jnp.ones(())
        projector = self.projector.init(params, oracle.setup)
        return params, MomentsState(self.scheduler.init(oracle), projector, features, jnp.zeros(()), unit, zeros)

    def step(self, params: jax.Array, state: MomentsState, oracle: Oracle) -> tuple[jax.Array, MomentsState]:
        setup, model = oracle.setup, oracle.setup.model
        rows = public_rows(oracle, "public_moments")
        plain = state.features
        scaling = self.scaling(PublicGradients.at(model, params, rows, plain), setup)
        mapped = model.params_for_mapped_rows(params, scaling)
        features = FeatureMap(plain.center, plain.scale, scaling.basis)
        public = PublicGradients.at(model, mapped, rows, features)
        observation = Observation(state.gradient, state.noise_std, state.norm, None, public)
        plan, scheduler = self.scheduler(state.scheduler, observation, oracle, self.num_steps)
        query = ClippedGradient(model, mapped, features, plan.clip_norm, plan.noise_multiplier)
        gradient = oracle.ask(query) / setup.batch_rows
        noise_std = plan.noise_multiplier * plan.clip_norm * setup.adjacency.sensitivity_factor / setup.batch_rows
        norm = jnp.sqrt(jnp.maximum(jnp.square(gradient).sum(), 1e-24))
        observation = Observation(gradient, noise_std, norm, None, public)
        update, projector = self.projector(state.projector, observation, params, oracle.step / self.num_steps, setup)
        return params + update, MomentsState(scheduler, projector, plain, norm, noise_std, gradient)

    def scaling(self, public: PublicGradients, setup: Setup) -> FeatureMap:
        """The map that divides features by the roots of their gradients' second moments; 1 on average."""
        design, residuals = public.factors()
        weights = jnp.square(residuals).sum(-1) / public.count
        roots = jnp.sqrt(jnp.maximum(weights @ jnp.square(design[:, :-1]), 1e-24))
        floor = jnp.exp(value(self.log_stability, setup.log_signal)) * jnp.sqrt(jnp.square(roots).mean())
        inverse = 1.0 / (roots + floor)
        inverse = inverse / inverse.mean()
        return FeatureMap(jnp.zeros_like(roots), jnp.ones(()), Basis(jnp.diag(inverse), jnp.diag(1.0 / inverse)))

    def finish(self, params: jax.Array, state: MomentsState, setup: Setup) -> jax.Array:
        return setup.model.params_for_raw_rows(params, state.features)


@hand_designed(form="rival")
def public_moments(problem: Problem) -> PublicMoments:
    """Gradients divided by the root of public second moments.

    AdaDPS with public gradients as side information, from the model of public rows; clipped at the 90 % quantile of
    scaled public gradients, since one fixed norm would not suit every scaling. Rows are centred and scaled as by
    `adamix`, which its learning rate is for.
    """
    even = Decaying(log_clip_norm=log_constant(1.0), rate=jnp.array([0.0]))
    return PublicMoments(
        PublicClip(even, logit_constant(0.9)),
        descent(CLIPPED_RATE),
        log_constant(0.1),
        PublicLength(jnp.float32(1.0), centered=True),
        PublicFit(log_constant(PUBLIC_RATE), log_constant(1e-3)),
        num_steps=steps_for(problem.budget),
    )
