"""A trained model read back from the folder of its run, with the declaration of the tables that it reads."""

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import safetensors

from l2p.base.errors import InputError
from l2p.base.json_fields import strict, violation
from l2p.base.whole_folder import MODEL_FILE
from l2p.models import Model, find_model
from l2p.privacy.card.custom import is_custom
from l2p.release.prediction.predictor import Predictor
from l2p.tables.schema import Encoding, Number, Schema, Target
from l2p.tables.schema.file import to_json

_TEXTS = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
#: Schema of the file's metadata.
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "columns": _TEXTS,
        "bounds": {
            "type": "object",
            "additionalProperties": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
        },
        "classes": {"type": "array", "items": {"type": "number"}},
        "target": {"type": "string"},
    },
}


def load_model(path: str | Path, model: Model | None = None) -> Predictor:
    """The model that `l2p apply` or `Result.save` left in a folder, ready to predict.

    Args:
      path: the folder, or its `model.safetensors`.
      model: one of your own, if it is of your own; others are found by the name in the file.

    Raises:
      InputError: there is none, it was not written by l2p, it contradicts itself, or the schema it was trained with is
        missing or was changed.

    >>> import tempfile, jax, numpy as np, l2p
    >>> ward = Schema({"age": Number(0, 120)}, Target("back", classes=("no", "yes")))
    >>> table = {"age": np.linspace(0, 120, 900), "back": np.repeat(["no", "yes"], 450)}
    >>> folder = Path(tempfile.mkdtemp())
    >>> l2p.private_train(table, "noisygd", l2p.Budget(8.0, 1e-5), key=jax.random.key(0), schema=ward).save(folder)
    >>> load_model(folder).predict({"age": [3, 110]}).tolist()
    ['no', 'yes']
    """
    path = Path(path)
    path = path / MODEL_FILE if path.is_dir() else path
    is_of_loss = False
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            about = file.metadata() or {}
            is_of_loss = is_custom(about.get("model", ""))
            stored = file.get_slice("params")
            kind, shape = stored.get_dtype(), stored.get_shape()
            params = jnp.asarray(file.get_tensor("params")) if (kind, len(shape)) == ("F32", 1) else None
        if model is not None and str(model) != about["model"]:
            raise ValueError(f"its model is {about['model'][:40]!r} and not {model}")
        model = find_model(about["model"]) if model is None else model
        parts = {name: strict(about[name]) for name in SCHEMA["properties"]}
        if wrong := violation(parts, SCHEMA) or _contradiction(model, parts):
            raise ValueError(f"in {wrong[0] or 'it as a whole'}, {wrong[1]}")
        if params is None or shape != [model.num_params(len(parts["columns"]))] or not jnp.isfinite(params).all():
            raise ValueError(f"its params are {kind} numbers of shape {shape}, which {model} on its columns has not")
        by_bounds = _of_bounds(parts)
    except (OSError, ValueError, KeyError, safetensors.SafetensorError) as error:
        if is_of_loss:
            raise InputError(
                f"{path} holds parameters of a loss of your own, which does not say what it predicts; read them with "
                "l2p.load_params(folder, params), and predict from them yourself."
            ) from None
        raise InputError(f"{path} is not a model that l2p saved ({error}); name the folder of a result.") from error
    if "schema_sha256" not in about:
        return Predictor(model, params, by_bounds)
    return Predictor(model, params, _beside(path, about["schema_sha256"], parts["columns"]))


def digest(schema: Schema) -> str:
    """SHA-256 of a schema's JSON, by which a model's file names the schema it was trained with."""
    return hashlib.sha256(json.dumps(to_json(schema), sort_keys=True).encode()).hexdigest()


def _beside(path: Path, sha256: str, columns: list[str]) -> Schema:
    """The schema that lies beside a model's file, if it is the one that the model was trained with."""
    file = path.with_name("schema.json")
    if not file.is_file():
        raise InputError(
            f"{path} was trained on tables that {file} declares, and there is no such file, so nothing can be encoded "
            "for it; put the file back, or name the folder of the run."
        )
    schema = Schema.read(file)
    if digest(schema) != sha256 or list(Encoding(schema).names) != columns:
        raise InputError(
            f"{file} is not what {path.name} beside it was trained with, so rows would be encoded in another way than "
            "in training; put the run's own schema back."
        )
    return schema


def _of_bounds(parts: Mapping[str, Any]) -> Schema:
    """Schema of a model for tables of numbers, of which only bounds and classes are stored."""
    columns = {name: Number(*parts["bounds"][name]) for name in parts["columns"]}
    name = parts["target"] or "target"
    while name in columns:
        name += "_"
    if parts["classes"]:
        return Schema(columns, Target(name, classes=tuple(parts["classes"])))
    return Schema(columns, Target(name, bounds=tuple(parts["bounds"][parts["target"]])))


def _contradiction(model: Model, parts: Mapping[str, Any]) -> tuple[str, str] | None:
    """The part that does not fit the others, and why; None if all fit."""
    scaled = parts["columns"] if parts["classes"] else [*parts["columns"], parts["target"]]
    for name in scaled:
        low, high = parts["bounds"].get(name, (math.nan, math.nan))
        if not low < high:
            return "bounds", f"{name[:40]!r} has no lower and upper bound"
    if parts["classes"] and len(parts["classes"]) != len(model.labels):
        return "classes", f"{len(parts['classes'])} labels for the {len(model.labels)} classes of {model}"
    return None
