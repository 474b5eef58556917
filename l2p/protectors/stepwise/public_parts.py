"""Parts of a protector that learn from public rows: a start, a length of rows, a clipping norm, and what is done to a
noised gradient. Each wraps any other scheduler or projector, so that a learned one may be combined with them."""

import abc
from typing import ClassVar

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.models import INTERCEPT_COLUMN, Model
from l2p.oracle import Oracle
from l2p.oracle.setup import Setup
from l2p.protectors.conditioning import value
from l2p.protectors.fields import Count, Polynomial, Positive
from l2p.protectors.register import stored
from l2p.protectors.stepwise.projectors import Projector
from l2p.protectors.stepwise.public_rows import (
    Matrix,
    PublicGradients,
    fit,
    missing,
    moment_bound,
    projected,
    public_rows,
)
from l2p.protectors.stepwise.purchase import Purchase, Stage, Start
from l2p.protectors.stepwise.schedulers import Observation, Scheduler, StepPlan
from l2p.task.feature_map import FeatureMap
from l2p.task.rows import Rows

#: The clipping norms that are taken from public gradients; the oracle refuses bounds nearly zero or without end.
LEAST_CLIP_NORM, MOST_CLIP_NORM = 1e-6, 1e12


@stored
@struct.dataclass
class PublicLength(Purchase):
    """Scales rows by one number, so that public rows have a root mean square length of `target_norm`.

    AdaMix trains on features of length 1. Rows that have it already stay as they are, unless they are centred.

    Attributes:
      target_norm: f32[], the length.
      centered: whether the mean of public rows is subtracted first (static). Signed features of length 1, such as
        CLIP's, are far from zero once their bounds -1 and 1 are mapped to 0 and 1.
    """

    target_norm: Positive
    centered: bool = struct.field(pytree_node=False, default=False)
    fixed: ClassVar[tuple[str, ...]] = ("target_norm",)
    kind: ClassVar[str] = "public_length"
    stage: ClassVar[Stage] = Stage.SCALE
    replaces_maps: ClassVar[bool] = True
    is_free: ClassVar[bool] = True
    needs_public: ClassVar[bool] = True

    def buy(self, start: Start, oracle: Oracle) -> Start:
        return start.but(features=self(oracle.setup.model.num_features(start.params.shape[0]), oracle))

    def __call__(self, num_features: int, oracle: Oracle) -> FeatureMap:
        rows = public_rows(oracle, "a length of rows")
        counts = (rows.mask > 0) / jnp.maximum((rows.mask > 0).sum(), 1)
        center = counts @ rows.x if self.centered else jnp.zeros(num_features, jnp.float32)
        square = counts @ jnp.square(rows.x - center[None, :]).sum(-1)
        # Equal public rows have no length to scale by.
        scale = jnp.where(square > 0, self.target_norm * jax.lax.rsqrt(jnp.where(square > 0, square, 1.0)), 1.0)
        return FeatureMap(center, scale)


@stored
@struct.dataclass
class PublicFit(Purchase):
    """Starts at the model of public rows: gradient descent on their mean loss, from the public start (AdaMix).

    Attributes:
      log_learning_rate: f32[k], log of the learning rate, as a polynomial in log(mu N).
      log_decay: f32[k], log of the weight of the L2 term, likewise.
      num_steps: number of steps (static); few of them regularise, too.
    """

    log_learning_rate: Polynomial
    log_decay: Polynomial
    num_steps: Count = struct.field(pytree_node=False, default=200)
    kind: ClassVar[str] = "public_start"
    stage: ClassVar[Stage] = Stage.START
    maps_rows: ClassVar[bool] = False
    is_free: ClassVar[bool] = True
    needs_public: ClassVar[bool] = True

    def fits(self, model: Model) -> bool:
        return True

    def buy(self, start: Start, oracle: Oracle) -> Start:
        params = start.mapped_params(oracle.setup.model)
        return start.but(fitted=self(params, start.features, oracle))

    def __call__(self, params: jax.Array, features: FeatureMap, oracle: Oracle) -> jax.Array:
        rows = public_rows(oracle, "a start at the model of public rows")
        rate, decay = (
            jnp.exp(value(field, oracle.setup.log_signal)) for field in (self.log_learning_rate, self.log_decay)
        )
        return fit(oracle.setup.model, params, rows.replace(x=features.apply(rows.x)), rate, self.num_steps, decay)


@stored
@struct.dataclass
class PublicClip(Scheduler):
    """Another scheduler's noise, and the clipping norm of AdaMix: a quantile of the norms of public rows' gradients.

    The norm is a function of public rows and of params that were released, so clipping at it is free and a step's
    price is that of its noise multiplier.

    Attributes:
      scheduler: decides the noise; its clipping norm is not used.
      logit_share: f32[k], logit of the quantile, as a polynomial in log(mu N).
    """

    scheduler: Scheduler
    logit_share: Polynomial
    needs_public: ClassVar[bool] = True

    @property
    def adaptive(self) -> bool:  # type: ignore[override]
        return self.scheduler.adaptive

    def init(self, oracle: Oracle):
        return self.scheduler.init(oracle)

    def __call__(self, state, observation: Observation, oracle: Oracle, num_steps: int):
        plan, state = self.scheduler(state, observation, oracle, num_steps)
        share = jax.nn.sigmoid(value(self.logit_share, oracle.setup.log_signal))
        clip_norm = public_gradients(observation, "a clipping norm from public rows").quantile(share)
        # Kept within the oracle's range, or params that diverged, and so the answers, could end the run by a refused
        # bound, where `adaptive` says that they cannot.
        clip_norm = jnp.where(jnp.isnan(clip_norm), MOST_CLIP_NORM, clip_norm)
        return StepPlan(plan.noise_multiplier, jnp.clip(clip_norm, LEAST_CLIP_NORM, MOST_CLIP_NORM)), state


class Wrapper(Projector):
    """A projector that changes the gradient and leaves the update to another, `projector`."""

    projector: Projector
    needs_public: ClassVar[bool] = True

    def check_public(self, public: Rows, model: Model, kind: str) -> None:
        self.projector.check_public(public, model, kind)

    def init(self, params: jax.Array, setup: Setup):
        return self.projector.init(params, setup)

    def __call__(self, state, observation: Observation, params: jax.Array, progress: jax.Array, setup: Setup):
        return self.projector(state, self.changed(observation, progress, setup), params, progress, setup)

    @abc.abstractmethod
    def changed(self, observation: Observation, progress: jax.Array, setup: Setup) -> Observation:
        """The observation that `projector` gets."""


@stored
@struct.dataclass
class PublicSubspace(Wrapper):
    """Keeps what lies in the directions of public gradients (AdaMix): noise elsewhere is taken out again.

    The clipped sum is noised and then projected, which has the distribution of a projected sum with noise in the
    subspace. It is a function of the answer, so it costs nothing.

    Attributes:
      projector: what gets the projected gradient.
      num_directions: P (static); None takes as many as there are.
      matrix: whose singular vectors they are, see `PublicGradients.directions` (static).
    """

    projector: Projector
    num_directions: Count | None = struct.field(pytree_node=False, default=None)
    matrix: Matrix = struct.field(pytree_node=False, default="total")

    def check_public(self, public: Rows, model: Model, kind: str) -> None:
        if self.num_directions is not None:
            zeros = model.init(public.x.shape[1])
            PublicGradients.at(model, zeros, public).check_rank(self.num_directions, self.matrix)
        super().check_public(public, model, kind)

    def changed(self, observation: Observation, progress: jax.Array, setup: Setup) -> Observation:
        directions = public_gradients(observation, "a projection onto public gradients").directions(
            self.num_directions, self.matrix
        )
        return with_gradient(observation, projected(observation.gradient, directions))


@stored
@struct.dataclass
class PublicSum(Wrapper):
    """Adds the gradient of public rows to the noised one of private rows: the mean over both (AdaMix).

    Attributes:
      projector: what gets that mean.
    """

    projector: Projector

    def changed(self, observation: Observation, progress: jax.Array, setup: Setup) -> Observation:
        public = public_gradients(observation, "a gradient of public rows")
        share = setup.num_rows / (setup.num_rows + public.count)
        mixed = share * observation.gradient + (1.0 - share) * public.mean()
        return with_gradient(observation, mixed, share * observation.noise_std)


@stored
@struct.dataclass
class PublicMirror(Wrapper):
    """Mirror descent with the public loss as mirror map, in its practical form (PDA-DPMD; Amid et al., ICML 2022).

    The gradient is alpha g_private + (1 - alpha) g_public, alpha = cos(pi t / (2 K)): with K = T public rows decide the
    end, with a large K they hardly matter.

    Attributes:
      projector: what gets the mixture.
      log_horizon: f32[k], log of K / T, as a polynomial in log(mu N); from t = K on, alpha is 0.
    """

    projector: Projector
    log_horizon: Polynomial

    def changed(self, observation: Observation, progress: jax.Array, setup: Setup) -> Observation:
        share = progress / jnp.exp(value(self.log_horizon, setup.log_signal))
        alpha = jnp.cos(0.5 * jnp.pi * jnp.minimum(share, 1.0))
        public = public_gradients(observation, "mirror descent").mean()
        return with_gradient(
            observation, alpha * observation.gradient + (1.0 - alpha) * public, alpha * observation.noise_std
        )


class AroundProjector(Projector):
    """A projector that changes the gradient and leaves the update to another one.

    Attributes:
      projector: makes the update.
    """

    projector: Projector

    @property
    def needs_public(self) -> bool:  # type: ignore[override]
        return self.projector.needs_public

    def check_public(self, public: Rows, model: Model, kind: str) -> None:
        self.projector.check_public(public, model, kind)


@stored
@struct.dataclass
class Decay(AroundProjector):
    """Adds the gradient of an L2 term, lambda / 2 |w - w_ref|^2 over the sum of losses.

    Attributes:
      projector: what gets the gradient with that of the term.
      log_decay: f32[k], log of lambda, as a polynomial in log(mu N).
      to_start: whether w_ref is where the run starts, else zero (static).
    """

    projector: Projector
    log_decay: Polynomial
    to_start: bool = struct.field(pytree_node=False, default=False)

    def init(self, params: jax.Array, setup: Setup):
        reference = params if self.to_start else jnp.zeros_like(params)
        return reference, self.projector.init(params, setup)

    def __call__(self, state, observation: Observation, params: jax.Array, progress: jax.Array, setup: Setup):
        reference, inner = state
        weight = jnp.exp(value(self.log_decay, setup.log_signal)) / setup.num_rows
        observation = with_gradient(observation, observation.gradient + weight * (params - reference))
        update, inner = self.projector(inner, observation, params, progress, setup)
        return update, (reference, inner)


@stored
@struct.dataclass
class OverCurvature(AroundProjector):
    """Divides gradients by a bound on the largest second moment of rows, as least squares needs it: its gradients grow
    with the error, so steps beyond the stable length diverge.

    The bound is of public rows where there are any, else of rows in [0, 1]^d.

    Attributes:
      projector: what gets the shorter gradient; learning rates below 2 are stable for a curvature of 1.
    """

    projector: Projector

    def init(self, params: jax.Array, setup: Setup):
        return self.projector.init(params, setup)

    def __call__(self, state, observation: Observation, params: jax.Array, progress: jax.Array, setup: Setup):
        longest = setup.model.num_features(params.shape[0]) + INTERCEPT_COLUMN**2
        bound = longest if observation.public is None else moment_bound(setup.model, observation.public.rows)
        observation = with_gradient(observation, observation.gradient / bound, observation.noise_std / bound)
        return self.projector(state, observation, params, progress, setup)


def public_gradients(observation: Observation, part: str) -> PublicGradients:
    """The public gradients of this step.

    Raises:
      InputError: at trace time, there are no public rows.
    """
    if observation.public is None:
        raise missing(part)
    return observation.public


def with_gradient(observation: Observation, gradient: jax.Array, noise_std: jax.Array | None = None) -> Observation:
    """`observation` with another gradient, and with its noise where that changed."""
    std = observation.noise_std if noise_std is None else noise_std
    return observation.replace(gradient=gradient, noise_std=std)
