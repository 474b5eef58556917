"""JSON from files that anybody may have written, and its fields checked: by a dataclass's types, or by a schema."""

import json
import math
import re
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from l2p.base.errors import InputError

#: Characters that a terminal may take for commands.
_COMMANDS = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def strict(text: str) -> Any:
    """The value of a JSON text.

    Raises:
      ValueError: it is not JSON, or other parsers may read it differently: it has a number that is not finite, a name
        twice in one object, or deep nesting.

    >>> strict('{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ValueError: the name 'a' occurs twice in one object
    """
    try:
        return json.loads(text, parse_constant=_finite, parse_float=_finite, object_pairs_hook=_once)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def violation(content: Any, schema: Mapping[str, Any]) -> tuple[str, str] | None:
    """The field of a JSON value that breaks a schema, as a dotted path, and how; None if none does."""
    from jsonschema import Draft202012Validator  # slow to import, and help texts should come at once
    from jsonschema.exceptions import best_match

    error = best_match(Draft202012Validator(schema).iter_errors(content))
    return None if error is None else (".".join(map(_short, error.absolute_path)), _short(error.message))


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is not a JSON number")
    return number


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the name {_short(twice)!r} occurs twice in one object")
    return fields


def _short(text: object) -> str:
    """A text on one line, with the middle cut out if it is long: the broken rule stands at the end of a message."""
    line = _COMMANDS.sub("?", " ".join(str(text).split()))
    return line if len(line) <= 160 else f"{line[:70]} ... {line[-70:]}"


def checked(fields: Mapping[str, Any], kinds: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """The fields of a JSON object as Python values: lists as tuples, and texts as paths where paths are wanted.

    Args:
      fields: the object.
      kinds: type of every known field.
      path: the file, for messages.

    Raises:
      InputError: a field is unknown, or its value is of another kind.

    >>> checked({"size": [1, 2]}, {"size": tuple[int, ...] | None}, Path("config.json"))
    {'size': (1, 2)}
    """
    if unknown := [name for name in fields if name not in kinds]:
        raise InputError(
            f"{path} names {', '.join(unknown)}, which l2p does not know; choose among {', '.join(kinds)}."
        )
    for name, value in fields.items():
        if not _fits(value, kinds[name]):
            raise InputError(f"in {path}, {name} is {json.dumps(value)}, but it has to be {_described(kinds[name])}.")
    return {name: _typed(value, kinds[name]) for name, value in fields.items()}


def _fits(value: Any, kind: Any) -> bool:
    arguments = typing.get_args(kind)
    if isinstance(kind, types.UnionType):
        return any(_fits(value, alternative) for alternative in arguments)
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
        inner = [kind, *typing.get_args(kind)]
        is_path = any(
            Path in typing.get_args(alternative) for alternative in inner if typing.get_origin(alternative) is tuple
        )
        return tuple(Path(item) if is_path else item for item in value)
    return Path(value) if isinstance(value, str) and Path in (kind, *typing.get_args(kind)) else value


def _described(kind: Any) -> str:
    arguments = typing.get_args(kind)
    if isinstance(kind, types.UnionType):
        return " or ".join(_described(alternative) for alternative in arguments)
    if typing.get_origin(kind) is tuple:
        number = "" if arguments[-1] is ... else f"{len(arguments)} "
        return f"a list of {number}{'texts' if arguments[0] in (str, Path) else 'numbers'}"
    return {int: "a whole number", float: "a number", bool: "true or false", types.NoneType: "null"}.get(kind, "a text")
