"""A trained model read back from `model.safetensors`: predictions in the table's own labels and units."""

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors

from l2p.data.bounds import scale
from l2p.data.table import Table
from l2p.errors import InputError, withheld
from l2p.json_fields import strict, violation
from l2p.models import Model, find_model

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


@dataclasses.dataclass(frozen=True, eq=False)
class SavedModel:
    """A model as `l2p apply` and `Result.save` write it.

    Attributes:
      model: what was trained.
      params: f32[p], for rows scaled to [0, 1].
      columns: d feature names, in order.
      bounds: [low, high] of every feature; and of the target if it is a number.
      classes: the labels of class 0, 1, 2 and so on; empty if the target is a number.
      target: the target's name.
    """

    model: Model
    params: jax.Array
    columns: tuple[str, ...]
    bounds: dict[str, tuple[float, float]]
    classes: tuple[float, ...]
    target: str

    @withheld("predicting")
    def predict(self, table: Table) -> np.ndarray:
        """Labels, or values in the target's own units: f64[n]; NaN where a feature is not finite.

        Raises:
          InputError: the table lacks a feature.
        """
        if missing := [column for column in self.columns if column not in table.columns]:
            raise InputError(
                f"the table lacks {', '.join(map(repr, missing))}, from which the model predicts; its features are "
                f"{', '.join(self.columns)}."
            )
        raw = table.values[:, [table.columns.index(column) for column in self.columns]]
        x = jnp.asarray(scale(np.nan_to_num(raw), [self.bounds[column] for column in self.columns]))
        if self.classes:
            found = np.asarray(self.model.classify(self.params, x)).astype(int)
            values = np.asarray(self.classes, float)[found]
        else:
            low, high = self.bounds[self.target]
            values = low + (high - low) * np.asarray(self.model.predict(self.params, x), float)
        return np.where(np.isfinite(raw).all(axis=1), values, np.nan)


def load(path: str | Path) -> SavedModel:
    """The model in a file, or in the folder that holds `model.safetensors`.

    Raises:
      InputError: there is no such file, l2p did not write it, or it contradicts itself.

    >>> import tempfile, jax, l2p
    >>> rows = l2p.Rows(jnp.ones((900, 1)), jnp.ones(900), jnp.ones(900))
    >>> result = l2p.private_train(rows, "noisygd", l2p.Budget(1.0, 1e-5), key=jax.random.key(0))
    >>> folder = Path(tempfile.mkdtemp())
    >>> result.save(folder, ["age"], {"age": (0.0, 120.0)}, (3.0, 7.0), "readmit")
    >>> load(folder).predict(Table(("age",), np.array([[120.0]]))).tolist()
    [7.0]
    """
    path = Path(path)
    path = path / "model.safetensors" if path.is_dir() else path
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            about, stored = file.metadata() or {}, file.get_slice("params")
            kind, shape = stored.get_dtype(), stored.get_shape()
            params = jnp.asarray(file.get_tensor("params")) if (kind, len(shape)) == ("F32", 1) else None
        model = find_model(about["model"])
        parts = {name: strict(about[name]) for name in SCHEMA["properties"]}
        if wrong := violation(parts, SCHEMA) or _contradiction(model, parts):
            raise ValueError(f"in {wrong[0] or 'it as a whole'}, {wrong[1]}")
        if params is None or shape != [model.num_params(len(parts["columns"]))] or not jnp.isfinite(params).all():
            raise ValueError(f"its params are {kind} numbers of shape {shape}, which {model} on its columns has not")
    except (OSError, ValueError, KeyError, safetensors.SafetensorError) as error:
        raise InputError(f"{path} is not a model that l2p saved ({error}); name the folder of a result.") from error
    return SavedModel(
        model,
        params,
        tuple(parts["columns"]),
        {column: (low, high) for column, (low, high) in parts["bounds"].items()},
        tuple(parts["classes"]),
        parts["target"],
    )


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
