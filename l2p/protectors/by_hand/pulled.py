"""A pull back to the start, which keeps noise from piling up in params that no row moves."""

from typing import Any

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.oracle.setup import Setup
from l2p.protectors.by_hand.gradient_descent import noisygd
from l2p.protectors.conditioning import value
from l2p.protectors.fields import Polynomial
from l2p.protectors.hand_designed import Problem, log_constant
from l2p.protectors.register import hand_designed, stored
from l2p.protectors.stepwise.projectors import Projector
from l2p.protectors.stepwise.schedulers import Observation
from l2p.protectors.stepwise.stepwise import Stepwise


@stored
@struct.dataclass
class TowardsStart(Projector):
    """A projector on the gradient of the loss with a ridge around the start.

    Attributes:
      projector: makes the update.
      log_ridge: f32[k], log of the ridge, as a polynomial in log(mu N).
    """

    projector: Projector
    log_ridge: Polynomial

    @property
    def any_model(self) -> bool:  # type: ignore[override]
        return self.projector.any_model

    def init(self, params: jax.Array, setup: Setup) -> tuple[jax.Array, Any]:
        return params, self.projector.init(params, setup)

    def __call__(
        self,
        state: tuple[jax.Array, Any],
        observation: Observation,
        params: jax.Array,
        progress: jax.Array,
        setup: Setup,
    ) -> tuple[jax.Array, tuple[jax.Array, Any]]:
        start, inner = state
        ridge = jnp.exp(value(self.log_ridge, setup.log_signal))
        pulled = observation.replace(gradient=observation.gradient + ridge * (params - start))
        update, inner = self.projector(inner, pulled, params, progress, setup)
        return update, (start, inner)

    def at_end(
        self, state: tuple[jax.Array, Any], params: jax.Array, observation: Observation, setup: Setup
    ) -> jax.Array:
        return self.projector.at_end(state[1], params, observation, setup)


@hand_designed(form="rival")
def noisygd_pulled(problem: Problem) -> Stepwise:
    """`noisygd` with a pull back to the start.

    A ridge of 0.002 around it: over a run, a pull of a half.
    """
    plain = noisygd(problem)
    return plain.replace(projector=TowardsStart(plain.projector, log_constant(0.002)))
