"""The learned pair of Hong et al. (AAAI 2021): coordinate-wise two-layer LSTMs for scheduler and projector."""

from typing import Annotated, Any

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.oracle import Oracle
from l2p.oracle.setup import Setup
from l2p.protectors.conditioning import standardize
from l2p.protectors.fields import Scalar
from l2p.protectors.register import stored
from l2p.protectors.stepwise.networks import LikeLSTM, apply_lstm, init_lstm, lstm_carry
from l2p.protectors.stepwise.projectors import Projector
from l2p.protectors.stepwise.schedulers import SLACK, Observation, Scheduler, StepPlan, noise_for_share

NUM_UNITS = 20
#: log(|g|) is divided by this before it enters the projector (Andrychowicz et al. 2016, appendix A).
LOG_MAGNITUDE_SCALE = 10.0
LSTM = Annotated[dict, LikeLSTM(3, NUM_UNITS, 1)]


@stored
@struct.dataclass
class LSTMScheduler(Scheduler):
    """sigma(.): the noise multiplier, relative to the one that spends the budget evenly.

    It emits noise, not a share, so it may try to overspend: an augmented Lagrangian limits it in meta-training, the
    filter in deployment. Its feedback is a norm: the paper's private query s_t if `Stepwise` has a `norm_query`, else
    the norm of the last released gradient, which is free.

    Attributes:
      network: parameters of the LSTM.
      log_clip_norm: f32[], C_g, fixed in the paper.
    """

    network: LSTM
    log_clip_norm: Scalar

    @classmethod
    def create(cls, key: jax.Array, clip_norm: float) -> "LSTMScheduler":
        return cls(init_lstm(key, 3, NUM_UNITS, 1), jnp.log(jnp.float32(clip_norm)))

    def init(self, oracle: Oracle) -> Any:
        return lstm_carry(1, NUM_UNITS)

    def __call__(self, state: Any, observation: Observation, oracle: Oracle, num_steps: int) -> tuple[StepPlan, Any]:
        clip_norm = jnp.exp(self.log_clip_norm)
        norm = observation.norm / clip_norm
        progress = 2.0 * oracle.step / num_steps - 1.0
        inputs = jnp.stack([jnp.log(norm + 1e-3), progress, standardize(oracle.setup.log_signal)])
        state, output = apply_lstm(self.network, state, inputs[None, :])
        even = oracle.noise_multiplier(
            oracle.setup.price_list.budget * (1.0 - SLACK) / oracle.setup.num_charges(num_steps)
        )
        return StepPlan(_or_rest(even * jnp.exp(output[0, 0]), oracle), clip_norm), state


def _or_rest(noise_multiplier: jax.Array, oracle: Oracle) -> jax.Array:
    """The demanded noise f32[], or that of the whole remaining budget where this pays for at least half of the demand
    but not for all of it."""
    rest = noise_for_share(oracle, jnp.ones(()))
    return jnp.where((rest > noise_multiplier) & (rest < noise_multiplier * 2.0**0.5), rest, noise_multiplier)


@stored
@struct.dataclass
class LSTMProjector(Projector):
    """pi(.): the update of each coordinate from that coordinate's noised gradients.

    Inputs are Andrychowicz et al.'s log magnitude and sign, and the ratio of the gradient to its (public) noise.

    Attributes:
      network: parameters of the LSTM.
      log_step: f32[], log of the scale of its output.
    """

    network: LSTM
    log_step: Scalar

    @classmethod
    def create(cls, key: jax.Array, step: float = 0.1) -> "LSTMProjector":
        return cls(init_lstm(key, 3, NUM_UNITS, 1), jnp.log(jnp.float32(step)))

    def init(self, params: jax.Array, setup: Setup) -> Any:
        return lstm_carry(params.shape[0], NUM_UNITS)

    def __call__(
        self, state: Any, observation: Observation, params: jax.Array, progress: jax.Array, setup: Setup
    ) -> tuple[jax.Array, Any]:
        gradient = observation.gradient
        magnitude = jnp.log(jnp.abs(gradient) + 1e-8) / LOG_MAGNITUDE_SCALE
        ratio = jnp.arcsinh(gradient / (observation.noise_std + 1e-12))
        sign = jnp.clip(gradient * 100.0, -1.0, 1.0)
        state, output = apply_lstm(self.network, state, jnp.stack([magnitude, sign, ratio], axis=1))
        return jnp.exp(self.log_step) * output[:, 0], state
