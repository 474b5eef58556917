"""Slopes from differences of runs, for the constants whose derivatives mislead (`tunable.by_difference`).

No derivative is taken through eigenvectors, so that of the share of the budget that buys them only sees what they cost;
and whether they are bought at all has none. Two runs with the same noise tell by how much the score really changes.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from l2p.protectors.learned.tunable import by_difference, constant_term
from meta_train.training.tuned import tuned

#: How far a constant is moved to either side: they are logits and logarithms.
SPREAD = 0.3


def gradient(task_loss: Callable) -> Callable:
    """A function like `jax.grad(task_loss, has_aux=True)`, whose second argument is a key, with measured slopes.

    All such constants are moved at once, each to a random side (Spall 1992, simultaneous perturbation); a curve over
    budgets moves as a whole. Its derivative is too large or too small, or of the wrong sign, but in it knots are to one
    another as they count in that run, so it is scaled to the measured slope.

    Args:
      task_loss: (floats, *arguments) -> (f32[], auxiliary values), where floats are the floating-point leaves of a
        protector.
    """

    def measured(floats: Any, key: jax.Array, *arguments: Any) -> tuple[Any, Any]:
        derivatives, auxiliary = jax.grad(task_loss, has_aux=True)(floats, *arguments)
        leaves, structure = jax.tree.flatten(floats)
        moves = [constant_term(leaf) if move else None for leaf, move in zip(leaves, _marks(floats), strict=True)]
        sides = jax.random.rademacher(key, (len(leaves),), jnp.float32)

        def loss(sign: float) -> jax.Array:
            moved = [
                leaf if move is None else leaf + sign * SPREAD * side * move
                for leaf, move, side in zip(leaves, moves, sides, strict=True)
            ]
            return task_loss(jax.tree.unflatten(structure, moved), *arguments)[0]

        slope = (loss(1.0) - loss(-1.0)) / (2.0 * SPREAD)
        slopes = [
            derivative if move is None else _scaled(derivative, move, side * slope)
            for derivative, move, side in zip(jax.tree.leaves(derivatives), moves, sides, strict=True)
        ]
        return jax.tree.unflatten(structure, slopes), auxiliary

    return measured


def has_any(floats: Any, tunes: str) -> bool:
    """Whether a training that `tunes` these numbers of a protector learns such a constant; others need no such
    runs."""
    with jax.ensure_compile_time_eval():
        masks = jax.tree.leaves(tuned(jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), floats), tunes))
        return any(move and bool(mask.any()) for move, mask in zip(_marks(floats), masks, strict=True))


def _marks(floats: Any) -> list[bool]:
    return jax.tree.leaves(by_difference(floats))


def _scaled(derivative: jax.Array, move: jax.Array, slope: jax.Array) -> jax.Array:
    """The derivative of a constant, scaled so that the one along `move` is the slope; 0 where it is 0, as for a share
    of what is not bought, but for a single number, which needs none."""
    if not derivative.ndim:
        return slope
    along = (derivative * move).sum()
    return jnp.where(along == 0.0, 0.0, derivative / jnp.where(along == 0.0, 1.0, along) * slope)
