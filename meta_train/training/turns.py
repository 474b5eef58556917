"""Groups of a protector's parameters, which meta-training updates in turn, and Adam on them."""

from typing import Any, cast

import jax
import jax.numpy as jnp
import optax

from l2p.protectors.learned.tunable import combine, partition, tunable
from l2p.protectors.stepwise.purchase import KINDS
from l2p.run.protector import Protector
from meta_train.config.learners import MetaGradients

#: Groups that have a turn.
GROUPS = ("scheduler", "projector")
#: Parts of a protector that decide what the budget is spent on; purchases that are not free do, too.
SPENDERS = ("scheduler", "norm_query")


def groups(protector: Protector) -> Protector:
    """The group of every parameter, in its place: "scheduler", "projector" or "fixed"."""

    def group(path, allowed: bool) -> str:
        if not allowed:
            return "fixed"
        part = getattr(path[0], "name", "")
        return "scheduler" if part in SPENDERS or (part in KINDS and not KINDS[part].is_free) else "projector"

    return jax.tree_util.tree_map_with_path(group, tunable(protector))


def init_moments(protector: Protector) -> dict[str, Any]:
    """Adam's moments of a protector's floating-point leaves before the first outer step, for each group."""
    floats, _ = partition(protector)
    return {name: optax.scale_by_adam().init(cast(Any, floats)) for name in GROUPS}


def is_turn(group: str, step: jax.Array, alternate: tuple[int, int] | None) -> jax.Array:
    """bool[], whether group "scheduler" or "projector" is updated at an outer step, where they have so many updates in
    turn; always true where they do not take turns."""
    if alternate is None:
        return jnp.array(True)
    scheduler = step % sum(alternate) < alternate[0]
    return scheduler if group == "scheduler" else ~scheduler


def of_turn(grads: Any, step: jax.Array, alternate: tuple[int, int] | None) -> Any:
    """Gradients with zeros for what an outer step does not change, which would else use up the norm they are clipped
    to."""

    def changed(name: str, leaf: jax.Array) -> jax.Array:
        return jnp.zeros_like(leaf) if name == "fixed" else jnp.where(is_turn(name, step, alternate), leaf, 0.0)

    return jax.tree.map(changed, groups(grads), grads)


def adam_step(
    protector: Protector, moments: dict[str, Any], grads: Any, step: jax.Array, learner: MetaGradients, steps: int
) -> tuple[Protector, dict[str, Any]]:
    """Adam on the groups whose turn it is: a protector and the moments of each group after an outer step.

    Args:
      protector: before the step.
      moments: of its floating-point leaves, from `init_moments`.
      grads: meta-gradients of these leaves.
      step: of how many, `steps`, over which the rate falls to zero.
    """
    rate = learner.learning_rate * 0.5 * (1.0 + jnp.cos(jnp.pi * jnp.minimum(step / steps, 1.0)))
    floats, others = partition(protector)
    names, after = groups(floats), {}
    for group in GROUPS:
        turn = is_turn(group, step, learner.alternate)
        mine = jax.tree.map(lambda name, leaf, group=group: leaf * (name == group), names, grads)
        updates, moved = optax.scale_by_adam().update(mine, moments[group])
        after[group] = jax.tree.map(lambda new, old, turn=turn: jnp.where(turn, new, old), moved, moments[group])
        floats = jax.tree.map(
            lambda leaf, change, turn=turn: leaf - jnp.where(turn, rate * change, 0.0), floats, updates
        )
    return combine(floats, others), after
