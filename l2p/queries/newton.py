"""The minimiser of a sum of smooth losses plus a quadratic and a linear term, to a given accuracy."""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.models import GeneralizedLinear

_MAX_ITERATIONS = 200
# Step sizes are searched from 2^-60 to 2^6, to a relative 2^-26.
_LOG_SIZES, _HALVINGS = (-60.0, 6.0), 32


@struct.dataclass
class Objective:
    """sum_i weight_i l(row_i.w, label_i) + convexity/2 ||w||^2 + linear.w.

    Attributes:
      model: gives the loss (static).
      table: f[n, p], rows with their intercept column.
      labels, weight: f[n] each.
      convexity: f[], above 0, in every coordinate.
      linear: f[p].
    """

    model: GeneralizedLinear = struct.field(pytree_node=False)
    table: jax.Array
    labels: jax.Array
    weight: jax.Array
    convexity: jax.Array
    linear: jax.Array

    def gradient(self, params: jax.Array, margins: jax.Array) -> jax.Array:
        """f[p] at params f[p], whose margins are f[n]."""
        slopes = self.weight * self.model.residual(margins, self.labels)
        return slopes @ self.table + self.convexity * params + self.linear

    def hessian(self, margins: jax.Array) -> jax.Array:
        """f[p, p]."""
        return self._bent(self.model.curvature(margins, self.labels))

    def majorant(self, margins: jax.Array) -> jax.Array:
        """f[p, p], the Hessian of a quadratic above the objective where the true one may vanish; else the Hessian."""
        return self._bent(self.model.newton_curvature(margins, self.labels))

    def _bent(self, curvature: jax.Array) -> jax.Array:
        weight = self.weight * curvature
        return (self.table.T * weight[None, :]) @ self.table + self.convexity * jnp.eye(self.table.shape[1])


def minimize(objective: Objective, start: jax.Array, tolerance: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A point near the minimiser f[p] and the gradient's norm f[] there; differentiable, by the implicit function
    theorem.

    Newton's method with exact line search, which converges from anywhere on strongly convex objectives with Lipschitz
    gradients. The line search finds a root of the slope along the line, which is less sensitive to rounding than the
    objective. A loss with straight parts has no curvature there, so every other step uses the curvature of a quadratic
    upper bound: it descends from far away, and Newton's steps finish the search. The search ends when the gradient is
    at most half the tolerance, or after 200 iterations (ten to twenty are usual). One more full step then takes the
    point to the limit of float precision, because a point just within the tolerance would reveal the iteration at which
    the search ended.
    """
    fixed = jax.tree.map(jax.lax.stop_gradient, objective)
    start = jax.lax.stop_gradient(start).astype(objective.table.dtype)
    enough = jax.lax.stop_gradient(tolerance) / 2

    def improve(state: _State) -> _State:
        margins = fixed.table @ state.params
        bend = jax.lax.cond(state.iteration % 2 == 0, fixed.majorant, fixed.hessian, margins)
        direction = _solve(bend, state.gradient)
        params = state.params - _line_search(fixed, state.params, margins, direction) * direction
        return _State(params, fixed.gradient(params, fixed.table @ params), state.iteration + 1)

    def goes_on(state: _State) -> jax.Array:
        return (jnp.linalg.norm(state.gradient) > enough) & (state.iteration < _MAX_ITERATIONS)

    state = _State(start, fixed.gradient(start, fixed.table @ start), jnp.zeros((), jnp.int32))
    point = jax.lax.while_loop(goes_on, improve, state).params
    gradient = objective.gradient(point, objective.table @ point)
    # The final step changes the value, unless it crosses a kink of the loss, and carries the derivative of the
    # minimiser.
    step = _solve(fixed.hessian(fixed.table @ point), gradient)
    after = point - jax.lax.stop_gradient(step)
    norms = jnp.stack([jnp.linalg.norm(fixed.gradient(at, fixed.table @ at)) for at in (point, after)])
    nearest = jnp.where(norms[1] < norms[0], after, point)
    return nearest - (step - jax.lax.stop_gradient(step)), norms.min()


class _State(NamedTuple):
    params: jax.Array
    gradient: jax.Array
    iteration: jax.Array


def _line_search(objective: Objective, params: jax.Array, margins: jax.Array, direction: jax.Array) -> jax.Array:
    """The size f[] at which the objective is least along params - size * direction, by bisection of its logarithm."""
    shift = objective.table @ direction
    straight = (objective.convexity * params + objective.linear) @ direction
    bend = objective.convexity * direction @ direction

    def rises(size: jax.Array) -> jax.Array:
        slopes = objective.weight * objective.model.residual(margins - size * shift, objective.labels)
        return slopes @ shift + straight - size * bend < 0

    def halve(_: int, ends: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        low, high = ends
        middle = (low + high) / 2
        beyond = rises(jnp.exp2(middle))
        return jnp.where(beyond, low, middle), jnp.where(beyond, middle, high)

    ends = tuple(jnp.asarray(end, params.dtype) for end in _LOG_SIZES)
    return jnp.exp2(jax.lax.fori_loop(0, _HALVINGS, halve, ends)[0])


def _solve(hessian: jax.Array, gradient: jax.Array) -> jax.Array:
    # Collinear features leave eigenvalues that rounding may turn negative. A larger diagonal only changes the steps of
    # the search, not its result.
    rounding = 4.0 * jnp.finfo(hessian.dtype).eps * jnp.trace(hessian)
    return jax.scipy.linalg.solve(
        hessian + rounding * jnp.eye(len(hessian), dtype=hessian.dtype), gradient, assume_a="pos"
    )
