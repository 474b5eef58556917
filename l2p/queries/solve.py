"""The exact minimiser, without noise: what privacy costs is measured against it."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import struct

from l2p.models import INTERCEPT_COLUMN, GeneralizedLinear
from l2p.privacy.events import Adjacency
from l2p.privacy.noise import Noise
from l2p.queries.base import Query
from l2p.task import Rows

#: Keeps the Hessian invertible where features are collinear; far below what a test accuracy can show.
RIDGE = 1e-6


def newton(
    model: GeneralizedLinear, params: jax.Array, rows: Rows, num_iterations: int, ridge: float = RIDGE
) -> jax.Array:
    """Minimiser f32[p] of the mean loss plus ridge/2 ||params||^2, by damped Newton steps from `params`."""
    table = jnp.column_stack([rows.x, jnp.full(rows.x.shape[0], INTERCEPT_COLUMN)])
    weight = rows.mask / jnp.maximum(rows.mask.sum(), 1.0)

    def objective(params: jax.Array) -> jax.Array:
        return weight @ model.margin_loss(table @ params, rows.y) + 0.5 * ridge * params @ params

    def step(params: jax.Array, _: None) -> tuple[jax.Array, None]:
        margin = table @ params
        gradient = (weight * model.residual(margin, rows.y)) @ table + ridge * params
        hessian = (table.T * (weight * model.curvature(margin, rows.y))[None, :]) @ table + ridge * jnp.eye(
            params.shape[0]
        )
        direction = jax.scipy.linalg.solve(hessian, gradient, assume_a="pos")
        # Full steps overshoot far from the minimum, where the logistic Hessian is flat; take the best of a few.
        candidates = params[None, :] - jnp.array([0.0, 0.1, 0.25, 0.5, 1.0])[:, None] * direction[None, :]
        objectives = jax.vmap(objective)(candidates)
        return candidates[jnp.nanargmin(objectives)], None

    return jax.lax.scan(step, params, length=num_iterations)[0]


@struct.dataclass
class Minimizer(Query):
    """The non-private solution. Its price is infinite, so only an unlimited ledger grants it.

    Attributes:
      model: the model (static).
      start: f32[p], where Newton's method starts.
    """

    model: GeneralizedLinear = struct.field(pytree_node=False)
    start: jax.Array
    noise_multiplier: jax.Array
    name: ClassVar[str] = "minimizer"
    mechanism: ClassVar[str] = "none"
    num_iterations: int = struct.field(pytree_node=False, default=20)

    additive = False

    @property
    def bound(self) -> jax.Array:
        return jnp.array(jnp.inf)

    def empty(self) -> jax.Array:
        return jnp.zeros_like(self.start)

    def add(self, aggregate: jax.Array, rows: Rows) -> jax.Array:
        return newton(self.model, self.start, rows, self.num_iterations)

    def release(self, aggregate: jax.Array, noise: Noise, adjacency: Adjacency) -> jax.Array:
        return aggregate
