"""Any protector, started from a fit on public rows, and reading rows along the directions in which these vary."""

import dataclasses
from typing import ClassVar, cast

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base import struct
from l2p.base.errors import InputError
from l2p.models import Model
from l2p.oracle import Oracle
from l2p.oracle.setup import Setup
from l2p.protectors.stepwise.base_rate import BaseRate
from l2p.protectors.stepwise.geometry import PublicGeometry
from l2p.protectors.stepwise.stepwise import Stepwise
from l2p.protectors.with_public_rows.public_filter import PublicFilter
from l2p.protectors.with_public_rows.public_prior import from_public_rows, is_filter
from l2p.protectors.wrapper import ProtectorWrapper
from l2p.queries.solve import minimise
from l2p.run.protector import Protector, State
from l2p.task.feature_map import FeatureMap
from l2p.task.rows import Rows, null_invalid

#: The most principal directions of public rows that rows are read in, and the power by which they are whitened. The
#: number is the best of 16, 32, 64 and 96 for `noisygd` and `auto_clip` on MNIST's 7 against 9 with the directions of 4
#: and 6; powers of 0, .5 and 1 are within a point of each other there.
NUM_DIRECTIONS, POWER = 96, 0.5
#: The ridge for the variances along them, relative to the largest one.
RIDGE = 0.05
#: Variances below this share of the largest are rounding errors in float32.
LEAST_VARIANCE = 1e-5


@struct.dataclass
class WarmStart(ProtectorWrapper):
    """Another protector, started from public rows: METHOD:pretrained, METHOD:projected or both.

    Public rows cost nothing, and both their fit and their directions are computed from them alone, so the guarantee is
    that of the protector. Its own constants, or networks, were made for another start.

    Attributes:
      inner: what runs.
      pretrained: start from the minimiser of the mean loss on public rows plus |w|^2 / (2 n), as if a normal
        distribution of variance 1 were known of each param: n rows alone need not decide d params. A filter takes them
        into the prior that it has (`public_prior.py`) (static).
      projected: read rows along the principal directions of the public ones, in place of a map that `inner` buys or
        holds; for `Stepwise` only (static).
    """

    inner: Protector
    pretrained: bool = struct.field(pytree_node=False, default=True)
    projected: bool = struct.field(pytree_node=False, default=False)
    needs_public: ClassVar[bool] = True

    @classmethod
    def of(cls, inner: Protector, name: str, pretrained: bool, projected: bool) -> "WarmStart":
        """A protector called `name` with these variants; `InputError` if it cannot have them."""
        if pretrained and isinstance(inner, PublicFilter):
            raise InputError(
                f"{name} has learned how to start from public rows, and would start from them twice; name it without "
                "that variant."
            )
        if projected:
            check_directions(inner, name)
        return cls(inner, pretrained, projected)

    def check_public(self, public: Rows, model: Model, kind: str) -> None:
        super().check_public(public, model, kind)
        if self.projected and not np.ptp(np.asarray(public.x)[np.asarray(public.mask) > 0], axis=0).any():
            raise InputError(
                "the public rows are all alike, so there are no directions in which they vary; give other rows, or "
                "leave the directions out."
            )

    def init(self, params: jax.Array, oracle: Oracle) -> tuple[jax.Array, State]:
        public, model, inner = oracle.public, oracle.setup.model, self.inner
        assert public is not None  # `needs_public`
        has_prior = self.pretrained and is_filter(inner)
        if self.pretrained and not has_prior:
            # From the model's own start, which is the same at every budget, so that simulations fit once for all.
            start = model.init(public.x.shape[1])
            params = minimise(model, start, public, 1.0 / jnp.maximum(public.mask.sum(), 1.0))
            if isinstance(inner, Stepwise):  # the intercepts of this fit are not those of rates alone
                inner = inner.without(BaseRate)
        if self.projected:
            inner = along(inner, public_directions(public))
        params, state = inner.init(params, oracle)
        if not has_prior:
            return params, state
        return from_public_rows(params, state, null_invalid(public), oracle.setup, cast(Stepwise, inner))

    def view(self, state: State) -> FeatureMap | None:
        return self.inner.view(state)

    def step(self, params: jax.Array, state: State, oracle: Oracle) -> tuple[jax.Array, State]:
        return self.inner.step(params, state, oracle)

    def finish(self, params: jax.Array, state: State, setup: Setup) -> jax.Array:
        return self.inner.finish(params, state, setup)


def check_directions(protector: Protector, name: str) -> None:
    """Refuse a protector that cannot be run in other directions; `InputError`."""
    if not isinstance(protector, Stepwise):
        raise InputError(
            f"{name} asks for more than one gradient per step, so it cannot be run in other directions; "
            "leave the directions out, or choose noisygd, dpsgd or auto_clip."
        )


def along(protector: Protector, geometry: PublicGeometry) -> Protector:
    """A stepwise protector that reads rows through `geometry`, in place of maps that it buys or holds."""
    inner = cast(Stepwise, protector)
    others = (purchase for purchase in inner.purchases if not purchase.maps_rows)
    return dataclasses.replace(inner, purchases=(*others, geometry))


def public_directions(public: Rows) -> PublicGeometry:
    """The principal directions of public rows, inside a run: the most that so many rows have, at most
    `NUM_DIRECTIONS`."""
    num_rows, num_features = public.x.shape
    number = max(1, min(NUM_DIRECTIONS, num_features, num_rows - 1))
    weight = public.mask / jnp.maximum(public.mask.sum(), 1.0)
    center = weight @ public.x
    shifted = public.x - center[None, :]
    variances, directions = jnp.linalg.eigh((weight[:, None] * shifted).T @ shifted)  # smallest first
    variances, directions = variances[::-1][:number], directions[:, ::-1][:, :number]
    least = LEAST_VARIANCE * variances[0]
    # Their number is fixed before rows are read. A direction along which no row varies becomes zero, so that rows
    # have no value along it and no param is released for it.
    return PublicGeometry(
        center,
        jnp.where(variances > least, directions, 0.0),
        jnp.maximum(variances, least),
        jnp.log(jnp.array([POWER])),
        jnp.log(jnp.array([RIDGE])),
    )
