"""Registers protectors from their own files: factories by name, and classes for checkpoints."""

import typing
from collections.abc import Callable
from typing import TypeVar

from l2p.privacy.events import Adjacency
from l2p.protectors.hand_designed import HandDesigned, Problem
from l2p.run.protector import Protector

#: Methods that need no checkpoint, by name, as `l2p protectors` lists them and every command takes them.
HAND_DESIGNED: dict[str, HandDesigned] = {}
#: Every class that a checkpoint may name, by its name.
CLASSES: dict[str, type] = {}

Class = TypeVar("Class", bound=type)
Factory = TypeVar("Factory", bound=Callable[[Problem], Protector])


def stored(cls: Class) -> Class:
    """Let checkpoints name `cls`, a part of protectors; a factory's own class is registered with the factory.

    Raises:
      TypeError: another class has its name.
    """
    if CLASSES.setdefault(cls.__name__, cls) is not cls:
        raise TypeError(f"two classes are called {cls.__name__}, which a checkpoint could not tell apart; rename one.")
    return cls


def hand_designed(
    accountant: str | None = None,
    adjacency: Adjacency | None = None,
    form: str = "fair",
    *,
    in_checkpoints: bool = True,
) -> Callable[[Factory], Factory]:
    """Register a factory under its own name, and the class that it is annotated to return for checkpoints.

    Args:
      accountant, adjacency, form: as in `HandDesigned`.
      in_checkpoints: False for a class that no checkpoint may hold.

    Raises:
      TypeError: the name is taken, or the factory does not say which class it returns.
    """

    def register(make: Factory) -> Factory:
        name, cls = make.__name__, typing.get_type_hints(make).get("return")
        if not isinstance(cls, type) or not issubclass(cls, Protector) or cls is Protector:
            raise TypeError(f"{name} returns {cls}, which no checkpoint could build; annotate the protector's class.")
        if HAND_DESIGNED.setdefault(name, HandDesigned(make, accountant, adjacency, form)).make is not make:
            raise TypeError(f"two methods are called {name}, which a command could not tell apart; rename one.")
        if in_checkpoints:
            stored(cls)
        return make

    return register
