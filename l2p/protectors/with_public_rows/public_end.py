"""Ends of a private run with public rows: a fine-tuning of its result, or its mean with a fit to them alone."""

from typing import Any

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.oracle import Oracle
from l2p.oracle.setup import Setup
from l2p.protectors.conditioning import value
from l2p.protectors.fields import Polynomial
from l2p.protectors.stepwise.public_rows import public_rows
from l2p.protectors.with_public_rows.public_fit import FITTED, fit
from l2p.protectors.wrapper import ProtectorWrapper
from l2p.run.protector import Protector
from l2p.task.feature_map import FeatureMap
from l2p.task.rows import Rows


@struct.dataclass
class WithPublic:
    """State between two steps: public rows, and the inner protector's state."""

    public: Rows
    inner: Any


@struct.dataclass
class PublicEnd(ProtectorWrapper):
    """A private run by any protector, and post-processing of its result with public rows.

    Public rows travel in the state, since `finish` has no oracle.

    Attributes:
      inner: the protector that runs.
      log_weight: f32[k], log of the weight of the distance in the fit, a polynomial in log(mu N).
    """

    inner: Protector
    log_weight: Polynomial
    needs_public = True

    @property
    def models(self) -> tuple[str, ...]:  # type: ignore[override]
        return tuple(name for name in self.inner.models if name in FITTED)

    def misfit(self) -> str | None:
        """Reason why its parts do not fit together; None if they do."""
        return "ends twice with public rows" if isinstance(self.inner, PublicEnd) else None

    def init(self, params: jax.Array, oracle: Oracle) -> tuple[jax.Array, WithPublic]:
        rows = public_rows(oracle, "an end with public rows")
        params, inner = self.inner.init(params, oracle)
        return params, WithPublic(rows, inner)

    def view(self, state: WithPublic) -> FeatureMap | None:
        return self.inner.view(state.inner)

    def step(self, params: jax.Array, state: WithPublic, oracle: Oracle) -> tuple[jax.Array, WithPublic]:
        params, inner = self.inner.step(params, state.inner, oracle)
        return params, WithPublic(state.public, inner)

    def _weight(self, setup: Setup) -> jax.Array:
        return jnp.exp(value(self.log_weight, setup.log_signal))


@struct.dataclass
class FineTuned(PublicEnd):
    """PPSGD's model reuse: the public rows' mean loss + lambda ||w - w_T||^2, w_T the private result."""

    def finish(self, params: jax.Array, state: WithPublic, setup: Setup) -> jax.Array:
        private = self.inner.finish(params, state.inner, setup)
        return fit(setup.model, private, state.public, private, self._weight(setup))


@struct.dataclass
class AveragedWithPublic(PublicEnd):
    """The mean of the private result and of a fit to public rows alone, held near the model's own start."""

    def finish(self, params: jax.Array, state: WithPublic, setup: Setup) -> jax.Array:
        private = self.inner.finish(params, state.inner, setup)
        start = setup.model.init(state.public.x.shape[1])
        return 0.5 * (private + fit(setup.model, start, state.public, start, self._weight(setup)))
