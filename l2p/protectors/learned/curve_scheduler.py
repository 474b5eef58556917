"""Noise and clipping norms as curves over log(mu N), for one protector that trains every model."""

from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.models.base import INTERCEPT_COLUMN
from l2p.oracle import Oracle
from l2p.oracle.setup import Setup
from l2p.protectors.conditioning import KNOT_RANGE, Covariates, between_knots, covariates_of, standardize
from l2p.protectors.fields import MAX_LOG_BOUND, Curve
from l2p.protectors.register import stored
from l2p.protectors.stepwise.networks import Layers, apply_mlp
from l2p.protectors.stepwise.schedulers import Observation, Scheduler, StepPlan, noise_for_share, tail_share

#: Inputs of a network that are public (`public_inputs`), and all of them (`schedule_inputs`).
PUBLIC_INPUTS, SCHEDULE_INPUTS = 5, 9


@stored
@struct.dataclass
class CurveScheduler(Scheduler):
    """Noise and clipping norms that change geometrically over the run; norms are in units of the loss's slope.

    Where rows are fitted well their gradients are short, and a shorter clipping norm means less noise. On an easy table
    that happens soon, on a hard one never. Released values tell the two apart: the length of margins, and the ratio of
    gradients to their noise. A network may decide by these. Noise multipliers, and so prices, do not depend on it.

    Attributes:
      log_clip_norm: f32[k, 6], log of the first step's clipping norm over the loss's `typical_slope`.
      rate: f32[k, 6], spending grows by exp(rate) from the first step to the last.
      clip_rate: f32[k, 6], clipping norms grow by exp(clip_rate) from the first step to the last, because gradients
        shrink as rows are fitted.
      network: with `SCHEDULE_INPUTS` inputs; its output is added to the log of the clipping norm. Or None.
    """

    log_clip_norm: Curve
    rate: Curve
    clip_rate: Curve
    network: Annotated[dict, Layers(SCHEDULE_INPUTS, 1)] | None = None
    adaptive: ClassVar[bool] = False

    def __call__(self, state: Any, observation: Observation, oracle: Oracle, num_steps: int) -> tuple[StepPlan, Any]:
        covariates = covariates_of(oracle.setup, observation.gradient.shape[0])
        share, log_clip_norm = self._curves(covariates, oracle, num_steps)
        if self.network is not None:
            progress = oracle.step / num_steps
            output = apply_mlp(self.network, schedule_inputs(observation, progress, covariates, oracle.setup))[0]
            log_clip_norm = log_clip_norm + jnp.where(jnp.isnan(output), 0.0, output)
        return step_plan(share, log_clip_norm, oracle), state

    def _curves(self, covariates: Covariates, oracle: Oracle, num_steps: int) -> tuple[jax.Array, jax.Array]:
        """What the curves say: the step's share f32[] of what is left, and the log f32[] of its clipping norm."""
        charge, num_charges = oracle.charge, oracle.setup.num_charges(num_steps)
        share = tail_share(between_knots(self.rate, covariates) * jnp.arange(num_charges) / num_charges, charge)
        progress = oracle.step / num_steps
        log_clip_norm = (
            between_knots(self.log_clip_norm, covariates) + between_knots(self.clip_rate, covariates) * progress
        )
        return share, log_clip_norm


def step_plan(share: jax.Array, log_clip_norm: jax.Array, oracle: Oracle) -> StepPlan:
    """The plan of a step that gets a share f32[] of what is left, with the log f32[] of its clipping norm over the
    loss's `typical_slope`."""
    setup = oracle.setup
    # Noise that is fixed in advance must be spent whatever the answers are: a bound that the oracle refuses would
    # let a network end the run.
    bound = jnp.exp(jnp.clip(log_clip_norm, -MAX_LOG_BOUND, MAX_LOG_BOUND))
    return StepPlan(noise_for_share(oracle, share), setup.model.typical_slope(setup.kind) * bound)


def schedule_inputs(observation: Observation, progress: jax.Array, covariates: Covariates, setup: Setup) -> jax.Array:
    """The network's inputs, f32[SCHEDULE_INPUTS]."""
    model, size = setup.model, observation.gradient.shape[0]
    noise = size * jnp.square(observation.noise_std)
    square = jnp.square(observation.gradient).sum()
    # How much of the last gradient is signal, and how long that is for rows whose losses have a typical slope.
    strength = jnp.log(square / (noise + 1e-20) + 0.1) / 2.0
    length = INTERCEPT_COLUMN if observation.length is None else observation.length
    unit = jnp.square(model.typical_slope(setup.kind) * length)
    signal = jnp.log(jnp.maximum(square - noise, 0.0) / unit + 1e-4) / 4.0
    margin = jnp.zeros(())
    if observation.params is not None and observation.moment is not None:
        margin = (
            jnp.log1p(
                observation.moment @ jnp.square(observation.params) / jnp.square(model.typical_margin(setup.kind))
            )
            / 2.0
        )
    slope = (
        jnp.zeros(())
        if observation.rates is None
        else jnp.log(model.scales_at_rates(observation.rates, setup.kind)[0].mean())
    )
    return jnp.concatenate([jnp.stack([margin, strength, signal, slope]), public_inputs(progress, covariates)])


def public_inputs(progress: jax.Array, covariates: Covariates) -> jax.Array:
    """Those that depend on no answer, f32[PUBLIC_INPUTS]."""
    return jnp.stack([2.0 * progress - 1.0, standardize(covariates.log_signal, KNOT_RANGE), *covariates.inputs])
