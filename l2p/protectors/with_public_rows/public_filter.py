"""A filter that learned, over many tasks, what to take from public rows: start, trust, directions and clipping."""

from typing import Any, ClassVar, cast

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.models import Model
from l2p.oracle import Oracle
from l2p.protectors.conditioning import Covariates, between_knots, covariates_of
from l2p.protectors.fields import Curve
from l2p.protectors.learned.kalman import KalmanProjector
from l2p.protectors.register import stored
from l2p.protectors.stepwise.public_rows import PublicGradients
from l2p.protectors.stepwise.schedulers import Observation, StepPlan
from l2p.protectors.stepwise.stepwise import Stepwise, StepwiseState
from l2p.protectors.with_public_rows.public_prior import Taken, from_public_rows
from l2p.task.rows import Rows, null_invalid

#: The factor by which public rows may change a clipping norm at most: those that are fitted perfectly have none.
MOST_CHANGE = 100.0


@stored
@struct.dataclass
class PublicTrust:
    """How much a run takes from public rows; every number is a curve over log(mu N).

    Attributes:
      log_reach: f32[k, 6], log of how far along the line to the most likely minimum of public rows the run starts.
      logit_shift: f32[k, 6], logit of the share of the prior's variance that stays after any number of public rows,
        since private rows differ from them.
      logit_off: f32[k, 6], logit of the share of that variance that is taken away off the directions of public rows'
        gradients.
      logit_clip: f32[k, 6], logit of the power of a quantile of public rows' gradients in the clipping norm, from 0,
        the filter's own norm, to 1.
      logit_quantile: f32[k, 6], logit of that quantile.
    """

    log_reach: Curve
    logit_shift: Curve
    logit_off: Curve
    logit_clip: Curve
    logit_quantile: Curve

    def taken(self, covariates: Covariates) -> Taken:
        """Numbers of a run that its prior takes from here."""
        return Taken(
            reach=jnp.exp(between_knots(self.log_reach, covariates)),
            shift=jax.nn.sigmoid(between_knots(self.logit_shift, covariates)),
            off=jax.nn.sigmoid(between_knots(self.logit_off, covariates)),
        )

    def clip_norm(self, own: jax.Array, gradients: PublicGradients, covariates: Covariates) -> jax.Array:
        """The clipping norm f32[] in place of a filter's own."""
        power = jax.nn.sigmoid(between_knots(self.logit_clip, covariates))
        quantile = gradients.quantile(jax.nn.sigmoid(between_knots(self.logit_quantile, covariates)))
        return own * jnp.clip(quantile / own, 1.0 / MOST_CHANGE, MOST_CHANGE) ** power


@stored
@struct.dataclass
class PublicFilter(Stepwise):
    """A filter whose prior and clipping norm take from public rows what `trust` says; without any it is the filter.

    All of it is a function of public rows and of released params, so queries and prices are those of the filter.

    Attributes:
      trust: what is taken.
    """

    trust: PublicTrust = struct.field(kw_only=True)
    needs_public: ClassVar[bool] = True  # type: ignore[override]

    def check_public(self, public: Rows, model: Model, kind: str) -> None:
        """Public rows need not have every class: what they do not tell stays as it is in the prior."""

    def init(self, params: jax.Array, oracle: Oracle) -> tuple[jax.Array, StepwiseState]:
        params, state = super().init(params, oracle)
        if oracle.public is None:
            return params, state
        setup, rows = oracle.setup, null_invalid(oracle.public)
        taken = self.trust.taken(covariates_of(setup, params.shape[0]))
        started = from_public_rows(params, state, _never_empty(rows), setup, self, taken)
        prior, _ = cast(KalmanProjector, self.projector).at_start(params, state.observation, setup)
        alone = state.replace(observation=state.observation.replace(prior=prior))
        return _where_any(rows, started, (params, alone))

    def plan(self, state: StepwiseState, observation: Observation, oracle: Oracle) -> tuple[StepPlan, Any]:
        plan, scheduler = super().plan(state, observation, oracle)
        if observation.public is None:
            return plan, scheduler
        public, own = observation.public, plan.clip_norm
        some = PublicGradients(public.model, public.params, _never_empty(public.rows))
        from_public = self.trust.clip_norm(own, some, covariates_of(oracle.setup, public.params.shape[0]))
        return StepPlan(plan.noise_multiplier, _where_any(public.rows, from_public, own)), scheduler


def _never_empty(rows: Rows) -> Rows:
    """`rows`, or all of them as if they counted where none does, so that no number computed from them is infinite."""
    return rows.replace(mask=jnp.where(rows.mask.sum() > 0, rows.mask, 1.0))


def _where_any(rows: Rows, with_rows: Any, without: Any) -> Any:
    """The first of two pytrees where some row counts, else the second."""
    return jax.tree.map(lambda *leaves: jnp.where(rows.mask.sum() > 0, *leaves), with_rows, without)
