"""Fields of a JSON file, checked by the types that a dataclass gives them."""

import json
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from l2p.errors import InputError


def checked(given: Mapping[str, Any], kinds: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The fields of a JSON object as Python values: lists as tuples, and texts as paths where paths are wanted.

    Args:
      given: the object.
      kinds: type of every field that there is.
      path: the file, for messages.

    Raises:
      InputError: a field is unknown, or its value is of another kind.

    >>> checked({"size": [1, 2]}, {"size": tuple[int, ...] | None}, Path("config.json"))
    {'size': (1, 2)}
    """
    if unknown := [name for name in given if name not in kinds]:
        raise InputError(f"{path} names {', '.join(unknown)}, which is no option; choose among {', '.join(kinds)}.")
    for name, value in given.items():
        if not _fits(value, kinds[name]):
            raise InputError(f"in {path}, {name} is {json.dumps(value)}, but it has to be {_said(kinds[name])}.")
    return {name: _typed(value, kinds[name]) for name, value in given.items()}


def _fits(value: Any, kind: Any) -> bool:
    arguments = typing.get_args(kind)
    if isinstance(kind, types.UnionType):
        return any(_fits(value, one) for one in arguments)
    if typing.get_origin(kind) is tuple:
        is_long = arguments[-1] is ... or (isinstance(value, list) and len(value) == len(arguments))
        return isinstance(value, list) and is_long and all(_fits(item, arguments[0]) for item in value)
    if kind in (int, float):
        return isinstance(value, (int, kind)) and not isinstance(value, bool)
    if kind is bool:
        return isinstance(value, bool)
    return value is None if kind is types.NoneType else isinstance(value, str)


def _typed(value: Any, kind: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    return Path(value) if isinstance(value, str) and Path in (kind, *typing.get_args(kind)) else value


def _said(kind: Any) -> str:
    arguments = typing.get_args(kind)
    if isinstance(kind, types.UnionType):
        return " or ".join(_said(one) for one in arguments)
    if typing.get_origin(kind) is tuple:
        number = "" if arguments[-1] is ... else f"{len(arguments)} "
        return f"a list of {number}{'texts' if arguments[0] is str else 'numbers'}"
    return {int: "a whole number", float: "a number", bool: "true or false", types.NoneType: "null"}.get(kind, "a text")
