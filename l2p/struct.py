"""Frozen dataclasses that are pytrees, and that JAX tells apart by their class."""

import dataclasses
from collections.abc import Iterable
from typing import Any, TypeVar, dataclass_transform

import jax
from flax.struct import field

__all__ = ["dataclass", "field"]

Class = TypeVar("Class", bound=type)


@dataclass_transform(field_specifiers=(field,))
def dataclass(cls: Class) -> Class:
    """Make `cls` a frozen dataclass and a pytree: what `flax.struct.dataclass` is for, and its `field` and `replace`.

    Not flax's own, which registers with `jax.tree_util.register_dataclass`: in jaxlib 0.10.2 the tree structures of two
    classes registered so compare equal when their fields do, whatever the classes are. If their hashes collide, too,
    `jax.jit` runs the code that it compiled for the other class: the sum of one query with the noise of another.
    Tree structures of classes registered with functions include the class.

    Args:
      cls: a class with annotated fields; those of `field(pytree_node=False)` are static, the others children.

    Returns:
      `cls` itself, with `replace(**fields)`, a copy with some fields changed.

    >>> @dataclass
    ... class Point:
    ...     x: float
    ...     unit: str = field(pytree_node=False, default="m")
    >>> jax.tree.map(lambda leaf: 2 * leaf, Point(1.5))
    Point(x=3.0, unit='m')
    """
    made: Any = dataclasses.dataclass(frozen=True)(cls)
    made.replace = lambda self, **changes: dataclasses.replace(self, **changes)
    fields = dataclasses.fields(made)
    children = tuple(each.name for each in fields if each.metadata.get("pytree_node", True))
    static = tuple(each.name for each in fields if each.name not in children)
    keys = tuple(map(jax.tree_util.GetAttrKey, children))

    def flatten(node: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return tuple(getattr(node, name) for name in children), tuple(getattr(node, name) for name in static)

    def flatten_with_keys(node: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        values, facts = flatten(node)
        return tuple(zip(keys, values, strict=True)), facts

    def unflatten(facts: tuple[Any, ...], values: Iterable[Any]) -> Any:
        return made(**dict(zip(static, facts, strict=True)), **dict(zip(children, values, strict=True)))

    jax.tree_util.register_pytree_with_keys(made, flatten_with_keys, unflatten, flatten)
    return made
