"""A protector as JSON for its structure and arrays by dotted path: what a checkpoint stores, and no code."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from l2p.errors import InputError
from l2p.privacy.sampling import Sampler, from_json
from l2p.protectors import CLASSES


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
        # A copy in C order: safetensors writes the buffer as it lies.
        arrays[path] = np.array(value, order="C")
        return {"array": list(value.shape)}
    if isinstance(value, dict):
        return {"dict": {key: encode(item, arrays, _join(path, key)) for key, item in value.items()}}
    if isinstance(value, (tuple, list)):
        return {"tuple": [encode(item, arrays, _join(path, index)) for index, item in enumerate(value)]}
    if CLASSES.get(type(value).__name__) is not type(value):
        raise TypeError(f"{path or 'the protector'} is a {type(value).__name__}, which l2p.protectors.CLASSES lacks.")
    fields, static = {}, {}
    for field in dataclasses.fields(value):
        item = getattr(value, field.name)
        if field.metadata.get("pytree_node", True):
            fields[field.name] = encode(item, arrays, _join(path, field.name))
        else:
            static[field.name] = item.to_json() if isinstance(item, Sampler) else item
    return {"class": type(value).__name__, "fields": fields, "static": static}


def decode(node: Any, arrays: Mapping[str, np.ndarray], path: str = "") -> Any:
    """The inverse of `encode`.

    Raises:
      InputError: an array is missing or has another shape, a class is unknown, or a node is none of ours; the message
        names the path.
    """
    match node:
        case None:
            return None
        case {"array": list(shape)}:
            return _array(arrays, path, shape)
        case {"dict": dict(items)}:
            return {key: decode(item, arrays, _join(path, key)) for key, item in items.items()}
        case {"tuple": list(items)}:
            return tuple(decode(item, arrays, _join(path, index)) for index, item in enumerate(items))
        case {"class": str(name), "fields": dict(fields), "static": dict(static)}:
            if name not in CLASSES:
                raise InputError(f"it names the class {name!r}, which this version of l2p does not know")
            arguments = {key: decode(item, arrays, _join(path, key)) for key, item in fields.items()}
            # JSON has no tuples, and static fields must be hashable.
            arguments |= {key: _static(item) for key, item in static.items()}
            try:
                return CLASSES[name](**arguments)
            except TypeError as error:
                raise InputError(f"it has other fields at {path or '(root)'!r} than class {name!r} takes") from error
        case _:
            raise InputError(f"it describes nothing known at {path or '(root)'!r}")


def _static(item: Any) -> Any:
    if isinstance(item, dict):
        return from_json(item)
    return tuple(item) if isinstance(item, list) else item


def _array(arrays: Mapping[str, np.ndarray], path: str, shape: list[int]) -> jax.Array:
    if path not in arrays:
        raise InputError(f"it lacks the array {path!r}")
    if list(arrays[path].shape) != shape:
        raise InputError(f"its array {path!r} has shape {list(arrays[path].shape)} where its card says {shape}")
    return jnp.asarray(arrays[path])


def _join(path: str, key: str | int) -> str:
    return f"{path}.{key}" if path else str(key)
