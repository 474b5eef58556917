"""Evolution of constants by the programs that judge them: nothing more has to be compiled, where time is short.

Each task runs with a protector of its own, the current one moved in a random direction and then in the opposite one,
with the same noise; the difference of the two scores says how the score changes in that direction (Salimans et al.
2017).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base import struct
from l2p.protectors.learned.tunable import tunable
from l2p.run.protector import Protector
from meta_train.config.drawn import Shape
from meta_train.config.parts import Outer
from meta_train.evaluation.held_out import Evaluator
from meta_train.training.evolution import SPREAD

#: Of Adam.
DECAY, DECAY_OF_SQUARES, LEAST = 0.9, 0.99, 1e-8
#: Seeds of tasks are these plus the number of the step.
TASKS_SEED = 1_000_000


@struct.dataclass
class PerturbedState:
    """The protector f32 leaves, and the moments f32[p] of its tunable numbers, with how often they were updated."""

    protector: Protector
    mean: jax.Array
    square: jax.Array
    count: jax.Array


def init(protector: Protector) -> PerturbedState:
    """The state before the first step."""
    zeros = jnp.zeros(len(_numbers(protector)), jnp.float32)
    return PerturbedState(protector, zeros, zeros, jnp.zeros((), jnp.int32))


def compiled(
    shapes: Sequence[Shape], num_tasks: int, learning_rate: float, outer: Outer, evaluator: Evaluator
) -> Callable[[PerturbedState, int], tuple[PerturbedState, dict[str, float]]]:
    """One outer step on so many fresh tasks as the evaluator has; steps cycle through the shapes."""

    def outer_step(state: PerturbedState, step: int) -> tuple[PerturbedState, dict[str, float]]:
        shape, now = shapes[step % len(shapes)], _numbers(state.protector)
        batch = evaluator.train_tasks(shape, TASKS_SEED + step)
        directions = np.random.default_rng([outer.seed, step]).normal(size=(num_tasks, len(now)))
        above, below = (
            evaluator.scores(_moved(state.protector, now + side * SPREAD * directions), shape, batch, TASKS_SEED + step)
            for side in (1.0, -1.0)
        )
        slopes = (above - below) / (2.0 * SPREAD)
        finite = np.isfinite(slopes)
        # One diverging task must not dominate the rest.
        slopes = np.clip(np.where(finite, slopes, 0.0), -1.0, 1.0)
        gradient = slopes @ directions / len(slopes)
        count = int(state.count) + 1
        mean = DECAY * np.asarray(state.mean) + (1.0 - DECAY) * gradient
        square = DECAY_OF_SQUARES * np.asarray(state.square) + (1.0 - DECAY_OF_SQUARES) * gradient**2
        rate = learning_rate * 0.5 * (1.0 + math.cos(math.pi * min(step / outer.steps, 1.0)))
        scaled = np.sqrt(square / (1.0 - DECAY_OF_SQUARES**count)) + LEAST
        new = now - rate * (mean / (1.0 - DECAY**count)) / scaled
        moved = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), _moved(state.protector, new[None, :]))
        mean, square = (jnp.asarray(part, jnp.float32) for part in (mean, square))
        metrics = {"score": float(np.nanmean((above + below) / 2.0)), "finite": float(finite.mean())}
        metrics["gradient_norm"] = float(np.linalg.norm(gradient))
        return PerturbedState(moved, mean, square, jnp.asarray(count, jnp.int32)), metrics

    return outer_step


def _tunable(protector: Protector) -> list[bool]:
    """For every leaf, whether it holds numbers that are tuned."""
    leaves, allowed = jax.tree.leaves(protector), jax.tree.leaves(tunable(protector))
    return [bool(yes) and jnp.issubdtype(leaf.dtype, jnp.floating) for leaf, yes in zip(leaves, allowed, strict=True)]


def _numbers(protector: Protector) -> np.ndarray:
    """The tunable numbers f64[p]."""
    leaves = zip(jax.tree.leaves(protector), _tunable(protector), strict=True)
    return np.concatenate([np.asarray(leaf, np.float64).ravel() for leaf, yes in leaves if yes])


def _moved(protector: Protector, numbers: np.ndarray) -> Protector:
    """Protectors with leaves [B, ...] whose tunable numbers are f[B, p]."""
    leaves, structure = jax.tree.flatten(protector)
    moved: list[Any] = []
    begin = 0
    for leaf, yes in zip(leaves, _tunable(protector), strict=True):
        if yes:
            part = numbers[:, begin : begin + leaf.size].astype(leaf.dtype).reshape(len(numbers), *leaf.shape)
            begin += leaf.size
        else:
            part = np.broadcast_to(leaf, (len(numbers), *leaf.shape))
        moved.append(part)
    return jax.tree.unflatten(structure, moved)
