"""The exact minimiser, without noise: the reference for what privacy costs."""

from typing import Any, ClassVar, cast

import jax
import jax.numpy as jnp
import optax

from l2p import struct
from l2p.fixed_point import ExactSum, value_of
from l2p.models import GeneralizedLinear, Hinge, HuberSVM, Model
from l2p.privacy.events import Adjacency
from l2p.privacy.noise import Noise
from l2p.queries.base import Query
from l2p.queries.newton import Objective, minimize
from l2p.task import Rows

#: Keeps the Hessian invertible where features are collinear; too small to change a test accuracy.
RIDGE = 1e-6
#: The same for a model that is not convex, which would overfit without it.
WEIGHT_DECAY = 1e-4
#: The length of a gradient at which a search ends; the mean loss then equals its minimum to all printed digits.
TOLERANCE = 1e-6
LBFGS_ITERATIONS = 500
#: Widths of the bend that replaces the hinge's kink, one solve after the other.
HINGE_WIDTHS = (0.1, 0.01, 0.001)


def minimise(model: Model, start: jax.Array, rows: Rows, ridge: jax.Array | None = None) -> jax.Array:
    """Minimiser f32[p] of the mean loss plus ridge/2 ||params||^2; of a model that is not convex, a local one.
    The ridge f32[] is by default as small as the search bears.

    Newton's method if the curvature never vanishes, else L-BFGS. The hinge's kink is rounded off, first over a large
    width and finally over one that moves the mean loss by at most a quarter of it. Under `jax.vmap` problems are solved
    one after the other: side by side, all would take as many iterations as the slowest. It has no derivative.
    """

    @jax.custom_batching.sequential_vmap
    def solve(start: jax.Array, rows: Rows, ridge: jax.Array) -> jax.Array:
        if isinstance(model, GeneralizedLinear) and not model.flat:
            weight = rows.mask / jnp.maximum(rows.mask.sum(), 1.0)
            objective = Objective(model, model.lines(rows.x), rows.y, weight, ridge, jnp.zeros_like(start))
            return minimize(objective, start, jnp.asarray(TOLERANCE, start.dtype))[0]
        smooth = [HuberSVM(width) for width in HINGE_WIDTHS] if isinstance(model, Hinge) else [model]
        for stand_in in smooth:
            start = lbfgs(stand_in, start, rows, LBFGS_ITERATIONS, ridge)
        return start

    least = RIDGE if model.convex else WEIGHT_DECAY
    return solve(start, rows, jnp.asarray(least if ridge is None else ridge, start.dtype))


def lbfgs(
    model: Model, params: jax.Array, rows: Rows, num_iterations: int, ridge: jax.typing.ArrayLike = RIDGE
) -> jax.Array:
    """Minimiser f32[p] of the mean loss plus ridge/2 ||params||^2, from `params` by L-BFGS with a zoom line search.

    It ends when the gradient vanishes, or after `num_iterations`.
    """
    weight = rows.mask / jnp.maximum(rows.mask.sum(), 1.0)

    def objective(params: jax.Array) -> jax.Array:
        return model.losses(params[None, :], rows.x, rows.y)[0] @ weight + 0.5 * ridge * params @ params

    solver = optax.lbfgs()
    value_and_grad = optax.value_and_grad_from_state(objective)

    def goes_on(carry: tuple[jax.Array, Any, jax.Array, jax.Array]) -> jax.Array:
        _, _, count, norm = carry
        return (count < num_iterations) & (norm > TOLERANCE)

    def step(carry: tuple[jax.Array, Any, jax.Array, jax.Array]) -> tuple[jax.Array, Any, jax.Array, jax.Array]:
        params, state, count, _ = carry
        value, gradient = value_and_grad(params, state=state)
        update, state = solver.update(gradient, state, params, value=value, grad=gradient, value_fn=objective)
        return cast(jax.Array, optax.apply_updates(params, update)), state, count + 1, optax.tree.norm(gradient)

    begin = (params, solver.init(params), jnp.zeros((), jnp.int32), jnp.array(jnp.inf, params.dtype))
    return jax.lax.while_loop(goes_on, step, begin)[0]


@struct.dataclass
class Minimizer(Query):
    """The non-private solution. Its price is infinite, so only an unlimited budget grants it.

    Attributes:
      model: the model (static).
      start: f32[p], where the search starts.
    """

    model: Model = struct.field(pytree_node=False)
    start: jax.Array
    noise_multiplier: jax.Array
    name: ClassVar[str] = "minimizer"
    mechanism: ClassVar[str] = "none"

    additive = False

    @property
    def bound(self) -> jax.Array:
        return jnp.array(jnp.inf)

    def empty(self) -> jax.Array:
        return jnp.zeros_like(self.start)

    def add(self, aggregate: jax.Array, rows: Rows) -> jax.Array:
        return minimise(self.model, self.start, rows)

    def release(self, aggregate: jax.Array | ExactSum, noise: Noise, adjacency: Adjacency) -> jax.Array:
        return value_of(aggregate)
