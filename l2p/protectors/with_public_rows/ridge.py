"""An L2 term of the loss, added to the noised gradient: it does not depend on rows, so it costs nothing."""

from typing import Any

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.models import Model
from l2p.oracle.setup import Setup
from l2p.protectors.conditioning import value
from l2p.protectors.fields import Polynomial
from l2p.protectors.register import stored
from l2p.protectors.stepwise.projectors import Projector
from l2p.protectors.stepwise.schedulers import Observation
from l2p.task.rows import Rows


@stored
@struct.dataclass
class Ridge(Projector):
    """Any projector, on the loss + weight ||w||^2; w are the params of features, without intercepts.

    Attributes:
      inner: the projector that gets the regularised gradient.
      log_weight: f32[k], log of the weight, a polynomial in log(mu N).
    """

    inner: Projector
    log_weight: Polynomial

    @property
    def needs_public(self) -> bool:  # type: ignore[override]
        return self.inner.needs_public

    def check_public(self, public: Rows, model: Model, kind: str) -> None:
        self.inner.check_public(public, model, kind)

    def init(self, params: jax.Array, setup: Setup) -> Any:
        return self.inner.init(params, setup)

    def __call__(
        self, state: Any, observation: Observation, params: jax.Array, progress: jax.Array, setup: Setup
    ) -> tuple[jax.Array, Any]:
        model = setup.model
        shrunk = model.per_param(jnp.ones(model.num_features(params.shape[0]))) * params
        slope = 2.0 * jnp.exp(value(self.log_weight, setup.log_signal)) * shrunk
        observation = observation.replace(gradient=observation.gradient + slope)
        return self.inner(state, observation, params, progress, setup)
