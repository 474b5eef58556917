"""A trained model read back from `model.safetensors`: predictions in the table's own labels and units."""

import dataclasses
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import safetensors

from l2p.data.table import Table, scale
from l2p.errors import InputError, withheld
from l2p.models import Model, find_model


@dataclasses.dataclass(frozen=True, eq=False)
class SavedModel:
    """A model as `l2p apply` and `Result.save` leave it.

    Attributes:
      model: what was trained.
      params: f32[p], for rows scaled to [0, 1].
      columns: d feature names, in order.
      bounds: [low, high] of every feature; of the target too where it is a number.
      classes: the labels of class 0, 1, 2 and so on; empty where the target is a number.
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
      InputError: there is none, or it is none of ours.

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
            about, params = file.metadata() or {}, jnp.asarray(file.get_tensor("params"))
        parts = {name: json.loads(about[name]) for name in ("columns", "bounds", "classes", "target")}
    except (OSError, ValueError, KeyError, safetensors.SafetensorError) as error:
        raise InputError(f"{path} is not a model that l2p saved ({error}); name the folder of a result.") from error
    return SavedModel(
        find_model(about["model"]),
        params,
        tuple(parts["columns"]),
        {column: (low, high) for column, (low, high) in parts["bounds"].items()},
        tuple(parts["classes"]),
        parts["target"],
    )
