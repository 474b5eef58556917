"""Predictions of a trained model on raw tables, in the target's own words or units.

Rows are encoded by the schema that the model was trained with, one at a time, so the prediction for a row depends on
that row alone: not on the order of columns, the kind of file, or the rows beside it.
"""

import dataclasses
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from l2p.base.errors import InputError, withheld
from l2p.models import MODELS, Model
from l2p.models.softmax import Softmax
from l2p.tables.reading import Block, Format, RawSource, open_table
from l2p.tables.schema import Encoding, Schema, Value

#: Rows that go through a model at a time: a fixed number, so that a model compiles once and the rows beside a row
#: do not change the order of its sums.
CHUNK = 1024


class Predicted(NamedTuple):
    """Predictions for n rows.

    Attributes:
      values: [n], classes as they were declared, or numbers f64 in the target's own units. For a row that cannot be
        read, None or NaN.
      probabilities: f64[n, K] of the classes in their declared order, NaN for a row that cannot be read; None where
        the model gives none.
    """

    values: np.ndarray
    probabilities: np.ndarray | None


@dataclasses.dataclass(frozen=True, eq=False)
class Predictor:
    """A trained model with the declaration of the tables that it reads.

    A row cannot be read if a cell is missing where the schema lets nothing stand in for it, infinite, or no number.

    Attributes:
      model: the trained model.
      params: f32[p], for encoded rows.
      schema: declaration of its tables, which need neither the target nor ignored columns.
    """

    model: Model
    params: jax.Array
    schema: Schema

    @property
    def classes(self) -> tuple[Value, ...]:
        """The classes as they were declared, in order; none where the target is a number."""
        return tuple(self.schema.target.classes or ())

    def predict(self, data: Any, format: Format | None = None) -> np.ndarray:
        """The prediction for each row of a table, [n]: `Predicted.values`.

        Args:
          data: what `l2p.tables.reading.open_table` takes: a path or several, a DataFrame, an Arrow table, columns by
            name; or an array [n, c] of the schema's columns in their order, with or without the target and columns that
            are ignored.
          format: how its text is written; default as the schema has it.

        Raises:
          InputError: the table cannot be read, or lacks a column that the model learned from.
        """
        return _joined(
            [predicted.values for predicted in self.blocks(data, format)], Encoding(self.schema).decode(np.zeros(0))
        )

    def predict_proba(self, data: Any, format: Format | None = None) -> np.ndarray:
        """The probability of each class in each row of a table, [n, K]: `Predicted.probabilities`.

        Raises:
          InputError: the model gives none, or as for `predict`.
        """
        self.check_probabilities()
        probabilities = [predicted.probabilities for predicted in self.blocks(data, format)]
        return _joined(probabilities, np.zeros((0, len(self.classes))))

    def check_probabilities(self) -> None:
        """Refuse a model that gives no probabilities."""
        if not self.classes:
            raise InputError(
                f"the model predicts a number, {self.schema.target.column!r}, which has no classes to give "
                "probabilities of; ask for predictions."
            )
        if not self.model.gives_probabilities:
            able = [name for name, model in MODELS.items() if model.gives_probabilities]
            raise InputError(
                f"model {self.model} tells classes apart without probabilities; ask for predictions, or train "
                f"{', '.join(able)} or {Softmax.name}."
            )

    def blocks(self, data: Any, format: Format | None = None) -> Iterator[Predicted]:
        """The predictions for a table block by block, in the order of its rows; see `predict`."""
        source = self.opened(data, format)
        yield from map(self.of_block, source.blocks(self.schema.features))

    @withheld("opening a table")
    def opened(self, data: Any, format: Format | None = None) -> RawSource:
        """The table's raw rows, checked to have the columns that the model learned from; see `predict`."""
        source = open_table(data, self.schema.format(format), self._names(data) if isinstance(data, np.ndarray) else ())
        source.check_columns(self.schema.features)
        return source

    def _names(self, array: np.ndarray) -> tuple[str, ...]:
        """The columns of an array without names, told by its width."""
        possible = (self.schema.names, tuple(self.schema.columns), self.schema.features)
        return next((names for names in possible if array.ndim == 2 and array.shape[1] == len(names)), possible[1])

    @withheld("predicting")
    def of_block(self, block: Block) -> Predicted:
        """The predictions for a block of raw rows, which has all columns that the model learned from."""
        encoding = Encoding(self.schema)
        x, valid = encoding.features(block)
        parts = [self._of_chunk(x[start : start + CHUNK]) for start in range(0, len(x), CHUNK)]
        outputs, scores = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
        values = encoding.decode(outputs)
        if not valid.all():
            values = values.astype(object if self.classes else np.float64)
            values[~valid] = None if self.classes else np.nan
        if scores is None or not self.model.gives_probabilities:
            return Predicted(values, None)
        return Predicted(values, np.where(valid[:, None], scores.astype(np.float64), np.nan))

    def _of_chunk(self, x: np.ndarray) -> Any:
        count = len(x)
        x = np.pad(x, ((0, CHUNK - count), (0, 0)))
        return jax.tree.map(lambda leaf: np.asarray(leaf)[:count], _run(self.params, x, self.model, bool(self.classes)))


def _joined(parts: list, empty: np.ndarray) -> np.ndarray:
    """The blocks as one array; `empty` if there are none."""
    with withheld("predicting"):
        return np.concatenate(parts) if parts else empty


@partial(jax.jit, static_argnames=("model", "is_class"))
def _run(params: jax.Array, x: jax.Array, model: Model, is_class: bool) -> tuple[jax.Array, jax.Array | None]:
    """Classes f32[n] and their scores f32[n, K], or values f32[n]."""
    if is_class:
        return model.classify(params, x), model.class_scores(params, x)
    return model.predict(params, x), None
