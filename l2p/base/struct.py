"""Frozen dataclasses that are pytrees, and that JAX tells apart by their class."""

import abc
import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, Self, TypeVar, cast, dataclass_transform

import jax

__all__ = ["Composite", "Struct", "children", "dataclass", "field", "made_of", "with_child"]

Class = TypeVar("Class", bound=type)


def field(*, pytree_node: bool = True, **settings: Any) -> Any:
    """A field of a dataclass of this module, static where it is no `pytree_node`; `settings` are those of
    `dataclasses.field`."""
    return dataclasses.field(metadata={"pytree_node": pytree_node}, **settings)


class Struct:
    """A base of dataclasses of this module, so that type checkers know the `replace` that all of them have."""

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed."""
        return dataclasses.replace(cast(Any, self), **changes)


class Composite(abc.ABC):
    """A base of dataclasses of this module whose children are not their fields one by one."""

    @abc.abstractmethod
    def children(self) -> dict[str, Any]:
        """The children by name, in the order of their leaves."""

    @classmethod
    @abc.abstractmethod
    def of_children(cls, children: Mapping[str, Any], static: Mapping[str, Any]) -> Self:
        """The node with these children and static fields.

        Raises:
          TypeError: the class has other ones.
        """


def children(node: Any) -> dict[str, Any]:
    """The children of a node by name: its fields that are not static, or those that a `Composite` says.

    >>> @dataclass
    ... class Point:
    ...     x: float
    ...     unit: str = field(pytree_node=False, default="m")
    >>> children(Point(1.5)), with_child(Point(1.5), "x", 2.5)
    ({'x': 1.5}, Point(x=2.5, unit='m'))
    """
    if isinstance(node, Composite):
        return node.children()
    return {name: getattr(node, name) for name in _child_names(type(node))}


def made_of(cls: Any, children: Mapping[str, Any], static: Mapping[str, Any]) -> Any:
    """A node of a class with these children and static fields."""
    return cls.of_children(children, static) if issubclass(cls, Composite) else cls(**children, **static)


def with_child(node: Any, name: str, child: Any) -> Any:
    """A copy of a node with another child of this name."""
    static = {each.name: getattr(node, each.name) for each in dataclasses.fields(node) if not _is_child(each)}
    return made_of(type(node), children(node) | {name: child}, static)


def _child_names(cls: Any) -> tuple[str, ...]:
    return tuple(each.name for each in dataclasses.fields(cls) if _is_child(each))


def _is_child(field: dataclasses.Field) -> bool:
    return bool(field.metadata.get("pytree_node", True))


@dataclass_transform(field_specifiers=(field,))
def dataclass(cls: Class) -> Class:
    """Make `cls` a frozen dataclass and a pytree: what `flax.struct.dataclass` is for.

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
    made.replace = Struct.replace
    static = tuple(each.name for each in dataclasses.fields(made) if not _is_child(each))
    names = None if issubclass(cls, Composite) else _child_names(made)

    def flatten(node: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        # Nodes of a `Composite` may have different children, whose names are then part of the structure.
        named = node.children() if names is None else {name: getattr(node, name) for name in names}
        return tuple(named.values()), (tuple(named), tuple(getattr(node, name) for name in static))

    def flatten_with_keys(node: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        values, structure = flatten(node)
        return tuple(zip(map(jax.tree_util.GetAttrKey, structure[0]), values, strict=True)), structure

    def unflatten(structure: tuple[Any, ...], values: Iterable[Any]) -> Any:
        child_names, settings = structure
        return made_of(made, dict(zip(child_names, values, strict=True)), dict(zip(static, settings, strict=True)))

    jax.tree_util.register_pytree_with_keys(made, flatten_with_keys, unflatten, flatten)
    return made
