"""The exact minimiser, without noise: the reference for what privacy costs."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, cast

import jax
import jax.numpy as jnp
import optax

from l2p.base import struct
from l2p.models import GeneralizedLinear, Hinge, HuberSVM, Model
from l2p.privacy.events import Adjacency
from l2p.queries.base import Query
from l2p.queries.newton import Objective, minimize
from l2p.task.exact_sums import ExactSum, value_of
from l2p.task.noise import Noise
from l2p.task.rows import Rows

#: Keeps the Hessian invertible where features are collinear; too small to change a test accuracy.
RIDGE = 1e-6
#: The same for a model that is not convex, which would overfit without it.
WEIGHT_DECAY = 1e-4
#: The length of a gradient at which a search ends; the mean loss then equals its minimum to all printed digits.
TOLERANCE = 1e-6
LBFGS_ITERATIONS = 500
#: A search also ends once so many iterations in a row did not lower the objective. In float32 a sharp bend's gradient
#: may never get as short as `TOLERANCE`, and every further line search would try all its step sizes in vain.
LBFGS_PATIENCE = 5
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
            objective = Objective(model, model.design(rows.x), rows.y, weight, ridge, jnp.zeros_like(start))
            return minimize(objective, start, jnp.asarray(TOLERANCE, start.dtype))[0]
        smooth = [HuberSVM(width) for width in HINGE_WIDTHS] if isinstance(model, Hinge) else [model]
        for stand_in in smooth:
            start = lbfgs(regularised(stand_in, rows, ridge), start, LBFGS_ITERATIONS)
        return start

    least = RIDGE if model.convex else WEIGHT_DECAY
    return solve(start, rows, jnp.asarray(least if ridge is None else ridge, start.dtype))


def most_likely(model: Model, start: jax.Array, variance: jax.Array, rows: Rows) -> jax.Array:
    """Params f32[p] that minimise the sum of the rows' losses plus sum((params - start)^2 / variance) / 2.

    These are the most likely params, if losses are negative log-likelihoods and params come from a normal distribution
    around the start f32[p] with variances f32[p]. Solved as by `minimise`, without a derivative; the hinge's kink is
    rounded off over a large width.

    >>> import numpy as np
    >>> from l2p.models import MODELS
    >>> rows = Rows(np.ones((3, 1), np.float32), np.ones(3, np.float32), np.ones(3, np.float32))
    >>> start, variance = np.zeros(2, np.float32), np.array([1.0, 1e-9], np.float32)
    >>> params = most_likely(MODELS["square"], start, variance, rows)  # as with one more target of 0
    >>> [round(float(param), 2) for param in params]
    [0.75, 0.0]
    """
    smooth = HuberSVM(HINGE_WIDTHS[0]) if isinstance(model, Hinge) else model

    @jax.custom_batching.sequential_vmap
    def solve(start: jax.Array, variance: jax.Array, rows: Rows) -> jax.Array:
        scale, count = jnp.sqrt(variance), jnp.maximum(rows.mask.sum(), 1.0)

        def objective(moved: jax.Array) -> jax.Array:
            losses = smooth.losses((start + scale * moved)[None, :], rows.x, rows.y)[0]
            return ((losses * rows.mask).sum() + 0.5 * moved @ moved) / count

        return start + scale * lbfgs(objective, jnp.zeros_like(start), LBFGS_ITERATIONS)

    return solve(start, variance, rows)


def regularised(model: Model, rows: Rows, ridge: jax.typing.ArrayLike = RIDGE) -> Callable[[jax.Array], jax.Array]:
    """The rows' mean loss plus ridge/2 ||params||^2, of params f32[p]."""
    weight = rows.mask / jnp.maximum(rows.mask.sum(), 1.0)

    def objective(params: jax.Array) -> jax.Array:
        return (model.losses(params[None, :], rows.x, rows.y)[0] * weight).sum() + 0.5 * ridge * params @ params

    return objective


def lbfgs(objective: Callable[[jax.Array], jax.Array], params: jax.Array, num_iterations: int) -> jax.Array:
    """Minimiser f32[p] of an objective, from `params` by L-BFGS with a zoom line search.

    It ends when the gradient vanishes, when it makes no more progress, or after `num_iterations`.
    """
    solver = optax.lbfgs()
    value_and_grad = optax.value_and_grad_from_state(objective)

    def goes_on(carry: Search) -> jax.Array:
        return (carry.count < num_iterations) & (carry.norm > TOLERANCE) & (carry.stalled < LBFGS_PATIENCE)

    def step(carry: Search) -> Search:
        value, gradient = value_and_grad(carry.params, state=carry.state)
        update, state = solver.update(
            gradient, carry.state, carry.params, value=value, grad=gradient, value_fn=objective
        )
        moved = cast(jax.Array, optax.apply_updates(carry.params, update))
        stalled = jnp.where(value < carry.lowest, 0, carry.stalled + 1)
        lowest = jnp.minimum(value, carry.lowest)
        return Search(moved, state, carry.count + 1, optax.tree.norm(gradient), lowest, stalled)

    zero, unknown = jnp.zeros((), jnp.int32), jnp.array(jnp.inf, params.dtype)
    begin = Search(params, solver.init(params), zero, unknown, unknown, zero)
    return jax.lax.while_loop(goes_on, step, begin).params


class Search(NamedTuple):
    """Between two iterations of L-BFGS: params f32[p], its state, iterations i32[], the last gradient's norm f32[], the
    lowest objective f32[], and iterations i32[] since it was found."""

    params: jax.Array
    state: Any
    count: jax.Array
    norm: jax.Array
    lowest: jax.Array
    stalled: jax.Array


@struct.dataclass
class Minimizer(Query):
    """The non-private solution. Its price is infinite, so only an unlimited budget grants it.

    Attributes:
      model: the model (static).
      start: f32[p], where the search starts.
      features: whether rows have any; without, what fits best are intercepts (static).
    """

    model: Model = struct.field(pytree_node=False)
    start: jax.Array
    noise_multiplier: jax.Array
    features: bool = struct.field(pytree_node=False, default=True)
    name: ClassVar[str] = "minimizer"
    mechanism: ClassVar[str] = "none"

    additive = False

    @property
    def bound(self) -> jax.Array:
        return jnp.array(jnp.inf)

    def empty(self) -> jax.Array:
        return jnp.zeros_like(self.start)

    def add(self, aggregate: jax.Array, rows: Rows) -> jax.Array:
        inputs = rows if self.features else dataclasses.replace(rows, x=jnp.zeros_like(rows.x))
        return minimise(self.model, self.start, inputs)

    def release(self, aggregate: jax.Array | ExactSum, noise: Noise, adjacency: Adjacency) -> jax.Array:
        return value_of(aggregate)
