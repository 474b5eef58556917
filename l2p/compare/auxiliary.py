"""The auxiliary public set of a comparison, which lends hand-designed methods a start and directions."""

import dataclasses
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base.errors import InputError
from l2p.models import Model
from l2p.oracle.setup import Setup
from l2p.privacy.budget import Budget
from l2p.privacy.cap.filter import Filter, default_accountant
from l2p.protectors import HAND_DESIGNED
from l2p.protectors.stepwise.geometry import PublicGeometry
from l2p.protectors.stepwise.stepwise import Stepwise
from l2p.protectors.with_public_rows.warm_start import NUM_DIRECTIONS, POWER, RIDGE, check_directions
from l2p.run.protector import Protector
from l2p.run.run import run
from l2p.task.rows import Rows


@dataclasses.dataclass(frozen=True)
class Auxiliary:
    """Start and directions that variants of methods take from a public set; a sentence in place of a missing one.

    Attributes:
      start: f32[p], where METHOD:pretrained starts; None for the model's own start.
      geometry: directions in which METHOD:projected reads rows; None for unchanged rows.
    """

    start: np.ndarray | str | None = None
    geometry: PublicGeometry | str | None = None

    def project(self, protector: Protector, name: str) -> Protector:
        """The protector in the set's directions; `InputError` if there are none, or it is not one with a gradient per
        step."""
        if isinstance(self.geometry, str):
            raise InputError(self.geometry)
        check_directions(protector, name)
        return protector if self.geometry is None else cast(Stepwise, protector).with_purchases(self.geometry)


def public_geometry(rows: Rows) -> PublicGeometry | str:
    """The principal directions of public rows, or why there are none."""
    try:
        geometry = PublicGeometry.of(np.asarray(rows.x), NUM_DIRECTIONS)
    except InputError as error:
        return str(error)
    return geometry.replace(log_power=jnp.log(jnp.array([POWER])), log_ridge=jnp.log(jnp.array([RIDGE])))


_run = jax.jit(run)


def public_solution(model: Model, rows: Rows) -> np.ndarray | str:
    """The non-private solution f32[p] on public rows, or why `nonprivate` cannot train the model."""
    budget = Budget(1.0, 0.5 / len(rows.y))  # any budget: without privacy it makes no difference
    try:
        protector = HAND_DESIGNED["nonprivate"](budget, model, len(rows.y))
    except InputError as error:
        return str(error)
    rows = jax.tree.map(jnp.asarray, rows)
    setup = unlimited(model, budget, len(rows.y))
    return np.asarray(_run(protector, model.init(rows.x.shape[1]), rows, setup, jax.random.key(0))[0])


def unlimited(model: Model, budget: Budget, num_rows: int, kind: str | None = None) -> Setup:
    """The setup of a run without privacy, whose unlimited budget grants every query."""
    priced = Filter(default_accountant(("none",)), budget).price_list()
    setup = Setup.create(model, budget.adjacency, priced, num_rows, kind)
    return dataclasses.replace(setup, cap=jnp.array(jnp.inf))
