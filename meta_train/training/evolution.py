"""Evolution strategies: gradient estimates from perturbed protectors, where derivatives vanish or explode."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from l2p.protectors.learned.tunable import tunable
from meta_train.config.learners import Perturbation

#: Standard deviation of perturbations where no config says another.
SPREAD = Perturbation.spread


def gradient(
    task_loss: Callable,
    floats: Any,
    key: jax.Array,
    *arguments: Any,
    pairs: int = Perturbation.pairs,
    spread: float = SPREAD,
) -> tuple[Any, Any]:
    """An estimate of a task's meta-gradient from antithetic pairs of runs (Salimans et al. 2017).

    The two runs of a pair have the same noise. The estimate is unbiased for the gradient of the loss averaged over a
    Gaussian with standard deviation `spread` around the parameters, which is smooth for any loss: a discrete choice,
    such as AGD's, has a derivative on average.

    Args:
      task_loss: (floats, *arguments) -> (f32[], auxiliary values).
      floats: a protector's floating-point leaves, of which the tunable ones are perturbed.
      key: for the perturbations.
      *arguments: of the task.
      pairs: number of pairs.
      spread: standard deviation of the perturbations.

    Returns:
      The gradient, and the mean of the auxiliary values.

    >>> found, middle = gradient(lambda at: (3.0 * at["a"], at["a"]), {"a": jnp.array(2.0)}, jax.random.key(0))
    >>> bool(found["a"] > 0), round(float(middle), 3)
    (True, 2.0)
    """
    leaves, structure = jax.tree.flatten(floats)
    moves = jax.tree.leaves(tunable(floats))

    def pair(key: jax.Array) -> tuple[Any, Any]:
        keys = jax.random.split(key, len(leaves))
        drawn = [
            jax.random.normal(leaf_key, leaf.shape, leaf.dtype) if move else jnp.zeros_like(leaf)
            for leaf_key, leaf, move in zip(keys, leaves, moves, strict=True)
        ]
        direction = jax.tree.unflatten(structure, drawn)
        sides = [
            task_loss(jax.tree.map(lambda leaf, d, sign=sign: leaf + sign * spread * d, floats, direction), *arguments)
            for sign in (1.0, -1.0)
        ]
        slope = (sides[0][0] - sides[1][0]) / (2.0 * spread)
        middle = jax.tree.map(lambda plus, minus: (plus + minus) / 2.0, sides[0][1], sides[1][1])
        return jax.tree.map(lambda d: slope * d, direction), middle

    return jax.tree.map(lambda leaf: leaf.mean(0), jax.vmap(pair)(jax.random.split(key, pairs)))
