"""Meta-gradients of single tasks, clipped before they are averaged: one that diverges must not dominate the rest."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

#: Maximum norm of each task's meta-gradient.
TASK_GRADIENT_NORM = 1.0


def norms_of(gradients: Any) -> jax.Array:
    """L2 norms f32[tasks] over all leaves [tasks, ...]."""
    leaves = jax.tree.leaves(gradients)
    return jnp.sqrt(sum(jnp.square(leaf).reshape(len(leaf), -1).sum(1) for leaf in leaves))


def mean_clipped(gradients: Any, norms: jax.Array, longest: jax.typing.ArrayLike = TASK_GRADIENT_NORM) -> Any:
    """Mean over tasks of gradients with leaves [tasks, ...] and these norms, each clipped to `longest`, f32[] or
    f32[tasks]; one that is not finite counts as zero."""
    factor = jnp.where(jnp.isfinite(norms), jnp.minimum(1.0, longest / jnp.maximum(norms, 1e-12)), 0.0)
    return jax.tree.map(lambda leaf: jnp.tensordot(factor, jnp.nan_to_num(leaf), 1) / len(norms), gradients)


def gradients_apart(parts: Callable, is_penalized: jax.Array) -> Callable:
    """A function like `jax.grad(parts, has_aux=True)` of a score and a penalty, whose gradient is a pair.

    Args:
      parts: (floats, *task) -> ((score f32[], penalty f32[]), auxiliary values).
      is_penalized: bool[]; the penalty's gradient is not computed, and zero, where it is False.

    >>> apart = gradients_apart(lambda x: ((3.0 * x, x**2), None), jnp.array(True))
    >>> print(apart(jnp.array(2.0))[0])
    (Array(3., dtype=float32, weak_type=True), Array(4., dtype=float32, weak_type=True))
    """

    def gradient(floats: Any, *task: Any) -> tuple[tuple[Any, Any], Any]:
        (score, penalty), backward, auxiliary = jax.vjp(lambda floats: parts(floats, *task), floats, has_aux=True)
        (of_score,) = backward((jnp.ones_like(score), jnp.zeros_like(penalty)))

        def of_penalty() -> Any:
            return backward((jnp.zeros_like(score), jnp.ones_like(penalty)))[0]

        zeros = jax.tree.map(jnp.zeros_like, floats)
        return (of_score, jax.lax.cond(is_penalized, of_penalty, lambda: zeros)), auxiliary

    return gradient
