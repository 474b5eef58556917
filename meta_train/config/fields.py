"""Parts of configs as flat fields: a file lists the fields of all parts of a config side by side."""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

Part = TypeVar("Part")


def _settable(kind: type) -> list[dataclasses.Field]:
    """The fields that `__init__` takes; the others are fixed by the class."""
    return [field for field in dataclasses.fields(kind) if field.init]


def types_of(kind: type) -> dict[str, Any]:
    """The type of every field of a dataclass, with those of its parts in place of these."""
    types: dict[str, Any] = {}
    for field in _settable(kind):
        types |= types_of(field.type) if dataclasses.is_dataclass(field.type) else {field.name: field.type}  # type: ignore[arg-type]
    return types


def required(kind: type) -> list[str]:
    """The flat fields of a dataclass that have no default."""
    names: list[str] = []
    for field in _settable(kind):
        if dataclasses.is_dataclass(field.type):
            names += required(field.type)  # type: ignore[arg-type]
        elif field.default is dataclasses.MISSING:
            names.append(field.name)
    return names


def build(kind: type[Part], values: Mapping[str, Any]) -> Part:
    """An instance of a dataclass, and of its parts, from flat fields; those that it does not have are left out."""
    parts: dict[str, Any] = {}
    for field in _settable(kind):
        if dataclasses.is_dataclass(field.type):
            parts[field.name] = build(field.type, values)  # type: ignore[arg-type]
        elif field.name in values:
            parts[field.name] = values[field.name]
    return kind(**parts)


def flat(part: Any) -> dict[str, Any]:
    """The fields of a dataclass, with those of its parts in place of these."""
    values: dict[str, Any] = {}
    for field in _settable(type(part)):
        value = getattr(part, field.name)
        values |= flat(value) if dataclasses.is_dataclass(value) else {field.name: value}
    return values
