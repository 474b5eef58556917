"""The tasks of an outer step, shared among devices: one after the other where they are large, else side by side."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

#: The axis of a mesh of devices.
TASKS = "tasks"
#: Numbers in the largest array of a task, up to which tasks are side by side on a CPU: many operations on little. Above
#: it they are not: 16 of 1,024 x 64 take 1.6 times as long by LSTMs, and of 1,024 x 124 by any network.
SIDE_BY_SIDE = 2**15


def of_tasks(function: Callable[..., Any], shared: Any, arguments: tuple[Any, ...]) -> Any:
    """Results, leaves [tasks, ...], of `function(shared, *arguments)` for each task.

    As many devices have equally many tasks each as their number allows; results depend on it by rounding at most.

    Args:
      function: whose own closure may hold traced arrays.
      shared: a pytree that all tasks share.
      arguments: pytrees with leaves [tasks, ...].
    """
    num_tasks, devices = len(jax.tree.leaves(arguments)[0]), jax.devices()
    count = max(number for number in range(1, len(devices) + 1) if num_tasks % number == 0)
    if count == 1:
        return _on_one_device(function, shared, arguments)
    mesh = Mesh(np.array(devices[:count]), (TASKS,))
    on_each = jax.shard_map(
        lambda shared, arguments: _on_one_device(function, shared, arguments),
        mesh=mesh,
        in_specs=(P(), P(TASKS)),
        out_specs=P(TASKS),
        check_vma=False,
    )
    # Gathered, so that sums over tasks are added up in one order whatever the number of devices.
    return jax.lax.with_sharding_constraint(on_each(shared, arguments), NamedSharding(mesh, P()))


def _on_one_device(function: Callable[..., Any], shared: Any, arguments: tuple[Any, ...]) -> Any:
    """On a CPU, large tasks one after the other: their rows and activations then stay in a core's cache."""
    largest = max(leaf.size // leaf.shape[0] for leaf in jax.tree.leaves(arguments))
    if jax.default_backend() == "cpu" and largest > SIDE_BY_SIDE:
        return jax.lax.map(lambda task: function(shared, *task), arguments)
    return jax.vmap(lambda task: function(shared, *task))(arguments)


def on_host(tree: Any) -> Any:
    """The same arrays on no device in particular, where there are several: programs for one device and for all of them
    take such arrays, and no others of each other's."""
    return tree if len(jax.devices()) == 1 else jax.device_get(tree)
