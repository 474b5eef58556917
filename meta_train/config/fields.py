"""Parts of configs as flat fields: a file lists the fields of all parts of a config side by side."""

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

from l2p.errors import InputError

Part = TypeVar("Part")


def _given(kind: type) -> list[dataclasses.Field]:
    """The fields that are not fixed."""
    return [field for field in dataclasses.fields(kind) if field.init]


def types_of(kind: type) -> dict[str, Any]:
    """The type of every field of a dataclass, with those of its parts in place of these."""
    types: dict[str, Any] = {}
    for field in _given(kind):
        types |= types_of(field.type) if dataclasses.is_dataclass(field.type) else {field.name: field.type}  # type: ignore[arg-type]
    return types


def build(kind: type[Part], fields: Mapping[str, Any]) -> Part:
    """An instance of a dataclass, and of its parts, from flat fields.

    Raises:
      InputError: a field is missing that has no default, or unknown.
    """
    types = types_of(kind)
    if unknown := [name for name in fields if name not in types]:
        raise InputError(f"a {kind.__name__} has no {', '.join(unknown)}; choose among {', '.join(types)}.")
    values: dict[str, Any] = {}
    for field in _given(kind):
        if dataclasses.is_dataclass(part := field.type):
            values[field.name] = build(part, {name: fields[name] for name in types_of(part) if name in fields})  # type: ignore[arg-type]
        elif field.name in fields:
            values[field.name] = fields[field.name]
        elif field.default is dataclasses.MISSING:
            raise InputError(f"a {kind.__name__} needs {field.name}; name it.")
    return kind(**values)


def flat(part: Any) -> dict[str, Any]:
    """The fields of a dataclass, with those of its parts in place of these."""
    found: dict[str, Any] = {}
    for field in _given(type(part)):
        value = getattr(part, field.name)
        found |= flat(value) if dataclasses.is_dataclass(value) else {field.name: value}
    return found
