"""A protector as JSON for its structure and arrays by dotted path; a checkpoint stores these and no code."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from l2p.base import struct
from l2p.base.errors import InputError
from l2p.privacy.cost.sampling import Sampler, from_json
from l2p.protectors import CLASSES
from l2p.protectors.fields import kinds, misfit

#: Largest nesting depth of parts and networks; shipped protectors have six.
MAX_DEPTH = 16


def encode(value: Any, arrays: dict[str, np.ndarray], path: str = "") -> Any:
    """JSON for the structure of a protector, or of a part of one; its arrays are put into `arrays`.

    >>> from l2p.protectors import Decaying
    >>> arrays = {}
    >>> encode(Decaying(log_clip_norm=np.zeros(1), rate=np.ones(2)), arrays)["fields"]
    {'log_clip_norm': {'array': [1]}, 'rate': {'array': [2]}}
    >>> sorted(arrays)
    ['log_clip_norm', 'rate']
    """
    if value is None:
        return None
    if isinstance(value, (jax.Array, np.ndarray)):
        # A copy in C order, because safetensors writes the raw buffer.
        arrays[path] = np.array(value, order="C")
        return {"array": list(value.shape)}
    if isinstance(value, dict):
        return {"dict": {key: encode(item, arrays, _join(path, key)) for key, item in value.items()}}
    if isinstance(value, (tuple, list)):
        return {"tuple": [encode(item, arrays, _join(path, index)) for index, item in enumerate(value)]}
    if CLASSES.get(type(value).__name__) is not type(value):
        raise TypeError(
            f"{path or 'the protector'} is a {type(value).__name__}, which no checkpoint may name; register its class "
            "with `l2p.protectors.register`."
        )
    fields = {name: encode(item, arrays, _join(path, name)) for name, item in struct.children(value).items()}
    static = {}
    for field in dataclasses.fields(value):
        if not field.metadata.get("pytree_node", True):
            item = getattr(value, field.name)
            static[field.name] = item.to_json() if isinstance(item, Sampler) else item
    return {"class": type(value).__name__, "fields": fields, "static": static}


def decode(node: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """The inverse of `encode`.

    Raises:
      InputError: an array is missing or has another shape, a class is unknown, a field has a value that its type
        forbids, or l2p did not write a node; the message names the path.
    """
    return jax.device_put(_decoded(node, arrays, ""))


def _decoded(node: Any, arrays: Mapping[str, np.ndarray], path: str) -> Any:
    """The same with NumPy arrays, which are faster to check."""
    if path.count(".") > MAX_DEPTH:
        raise InputError(f"it goes {MAX_DEPTH} parts deep at {path[:60]!r}, where no protector does")
    match node:
        case None:
            return None
        case {"array": list(shape)}:
            return _array(arrays, path, shape)
        case {"dict": dict(items)}:
            return {key: _decoded(item, arrays, _join(path, key)) for key, item in items.items()}
        case {"tuple": list(items)}:
            return tuple(_decoded(item, arrays, _join(path, index)) for index, item in enumerate(items))
        case {"class": str(name), "fields": dict(fields), "static": dict(static)}:
            if name not in CLASSES:
                raise InputError(f"it names the class {name!r}, which this version of l2p does not know")
            children = {key: _decoded(item, arrays, _join(path, key)) for key, item in fields.items()}
            # JSON has no tuples, and static fields must be hashable.
            return _built(
                CLASSES[name], children, {key: _static(item, _join(path, key)) for key, item in static.items()}, path
            )
        case _:
            raise InputError(f"it describes nothing known at {path or '(root)'!r}")


def _built(cls: type, children: Mapping[str, Any], static: Mapping[str, Any], path: str) -> Any:
    """A part of a protector from its fields, each checked by its type, and then all together."""
    try:
        part = struct.made_of(cls, children, static)
    except TypeError as error:
        raise InputError(f"it has other fields at {path or '(root)'!r} than class {cls.__name__!r} takes") from error
    sizes: dict[str, int] = {}
    for field, kind in kinds(cls).items():
        if reason := misfit(getattr(part, field), kind, sizes):
            joint = "" if reason.startswith("'s") else " "
            raise InputError(f"its {_join(path, field)}{joint}{reason}")
    if reason := part.misfit() if hasattr(part, "misfit") else None:
        raise InputError(f"its {path or 'protector'} {reason}")
    return part


def _static(item: Any, path: str) -> Any:
    if isinstance(item, dict):
        try:
            return from_json(item)
        except InputError as error:
            raise InputError(f"its {path} is not a sampler: {str(error).rstrip('.')}") from error
    return tuple(item) if isinstance(item, list) else item


def _array(arrays: Mapping[str, np.ndarray], path: str, shape: list[int]) -> np.ndarray:
    if path not in arrays:
        raise InputError(f"it lacks the array {path!r}")
    array = arrays[path]
    if list(array.shape) != shape:
        raise InputError(
            f"its array {path!r} has shape {list(array.shape)} where its checkpoint card says {str(shape)[:60]}"
        )
    if array.dtype not in (np.float32, np.float64):
        raise InputError(f"its array {path!r} holds {array.dtype} where float32 belongs")
    with np.errstate(over="ignore"):  # an overflow is refused by the rule of the field
        return array.astype(np.float32)


def _join(path: str, key: str | int) -> str:
    return f"{path}.{key}" if path else str(key)
