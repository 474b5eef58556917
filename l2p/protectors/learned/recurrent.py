"""The paper's pair of LSTMs as parts of the filter's frame: corrections with memory, and shares of what is left.

Heads start at zero: an LSTM that corrects starts as its control, the filter or the curves without a network, and one
whose output is the step starts without moving.
"""

from typing import Annotated, Any, ClassVar, cast

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.oracle import Oracle
from l2p.oracle.setup import Setup
from l2p.protectors.conditioning import Covariates, covariates_of
from l2p.protectors.learned.curve_scheduler import (
    PUBLIC_INPUTS,
    SCHEDULE_INPUTS,
    CurveScheduler,
    public_inputs,
    schedule_inputs,
    step_plan,
)
from l2p.protectors.learned.kalman import INPUTS, OUTPUTS, Corrections, KalmanProjector
from l2p.protectors.learned.lstm import NUM_UNITS
from l2p.protectors.register import stored
from l2p.protectors.stepwise.networks import LikeLSTM, apply_lstm, lstm_carry
from l2p.protectors.stepwise.schedulers import Observation, StepPlan

#: The most that a network adds to the logit of a share: one step then takes at most 3/4 of what 50 even ones have left.
MOST_LOGIT = 5.0
#: Outputs of a schedule: a term for the logit of the share, and one for the log of the clipping norm.
SCHEDULE_OUTPUTS = 2


@stored
@struct.dataclass
class RecurrentProjector(KalmanProjector):
    """The filter, corrected in each coordinate by an LSTM that sees what a `KalmanProjector`'s network sees.

    Attributes:
      network: parameters of the LSTM, which all coordinates share, or None.
    """

    network: Annotated[dict, LikeLSTM(INPUTS, NUM_UNITS, OUTPUTS)] | None = None

    def _memory(self, num_params: int) -> Any:
        return lstm_carry(num_params, NUM_UNITS)

    def _corrections(self, memory: Any, inputs: jax.Array) -> tuple[Corrections, Any]:
        memory, outputs = apply_lstm(cast(dict, self.network), memory, inputs)
        return Corrections(*outputs.T), memory


@stored
@struct.dataclass
class RecurrentSteps(RecurrentProjector):
    """The same, but the first output is the step itself, over the expected length of the filter's.

    A step has a direction, so the LSTM sees the signs that the filter's corrections do without. At first no step moves
    the params. What the filter expects to be left after a step is what its own step would leave.
    """

    def _corrections(self, memory: Any, inputs: jax.Array) -> tuple[Corrections, Any]:
        corrections, memory = super()._corrections(memory, inputs)
        return corrections._replace(longer=jnp.zeros(()), step=corrections.longer), memory

    def _sized(self, ratio: jax.Array) -> jax.Array:
        return ratio


@stored
@struct.dataclass
class RecurrentScheduler(CurveScheduler):
    """The curves, corrected by an LSTM that sees what was released: it adds to the logit of the step's share of what is
    left, so that it cannot overspend, and to the log of the clipping norm.

    Prices depend on answers. Under an accountant that is a filter this costs nothing but what a run leaves unspent.

    Attributes:
      network: parameters of the LSTM, or None.
    """

    network: Annotated[dict, LikeLSTM(SCHEDULE_INPUTS, NUM_UNITS, SCHEDULE_OUTPUTS)] | None = None
    adaptive: ClassVar[bool] = True

    def init(self, oracle: Oracle) -> Any:
        del oracle
        return lstm_carry(1, NUM_UNITS)

    def __call__(self, state: Any, observation: Observation, oracle: Oracle, num_steps: int) -> tuple[StepPlan, Any]:
        covariates = covariates_of(oracle.setup, observation.gradient.shape[0])
        share, log_clip_norm = self._curves(covariates, oracle, num_steps)
        if self.network is not None:
            inputs = self._inputs(observation, oracle.step / num_steps, covariates, oracle.setup)
            state, outputs = apply_lstm(self.network, state, inputs[None, :])
            logit, log_factor = jnp.where(jnp.isnan(outputs[0]), 0.0, outputs[0])
            odds = jnp.exp(jnp.clip(logit, -MOST_LOGIT, MOST_LOGIT))
            # The sigmoid of the share's logit plus `logit`, where a share of 1 stays 1.
            share = share * odds / (1.0 + share * (odds - 1.0))
            log_clip_norm = log_clip_norm + log_factor
        return step_plan(share, log_clip_norm, oracle), state

    def _inputs(self, observation: Observation, progress: jax.Array, covariates: Covariates, setup: Setup) -> jax.Array:
        return schedule_inputs(observation, progress, covariates, setup)


@stored
@struct.dataclass
class PublicRecurrentScheduler(RecurrentScheduler):
    """The same for noise that is fixed in advance, as accountants that are no filters need it: the LSTM sees no answer.

    Attributes:
      network: parameters of the LSTM, with the public inputs alone, or None.
    """

    network: Annotated[dict, LikeLSTM(PUBLIC_INPUTS, NUM_UNITS, SCHEDULE_OUTPUTS)] | None = None
    adaptive: ClassVar[bool] = False

    def _inputs(self, observation: Observation, progress: jax.Array, covariates: Covariates, setup: Setup) -> jax.Array:
        del observation, setup
        return public_inputs(progress, covariates)
