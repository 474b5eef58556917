"""Predictions of a trained model on raw tables, in the target's own words or units.

Rows are encoded by the schema that the model was trained with, one at a time, so the prediction for a row depends on
that row alone: not on the order of columns, the kind of file, or the rows beside it. Only a declared rate, a share of
the rows to predict for, makes it depend on those.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from l2p.base.errors import InputError, withheld
from l2p.models import MODELS, Model
from l2p.models.softmax import Softmax
from l2p.release.prediction.decision import Above, Costs, Decision, place_and_share
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
      decision: names a class by its scores; None for the model's own way, which takes the likelier one.
    """

    model: Model
    params: jax.Array
    schema: Schema
    decision: Decision | None = None

    @property
    def classes(self) -> tuple[Value, ...]:
        """The classes as they were declared, in order; none where the target is a number."""
        return tuple(self.schema.target.classes or ())

    def predict(
        self,
        data: Any,
        format: Format | None = None,
        *,
        costs: Mapping[Any, float] | None = None,
        rate: Mapping[Any, float] | None = None,
    ) -> np.ndarray:
        """The prediction for each row of a table, [n]: `Predicted.values`.

        Args:
          data: what `l2p.tables.reading.open_table` takes: a path or several, a DataFrame, an Arrow table, columns by
            name; or an array [n, c] of the schema's columns in their order, with or without the target and columns that
            are ignored.
          format: how its text is written; default as the schema has it.
          costs, rate: as for `deciding`.

        Raises:
          InputError: the table cannot be read, or lacks a column that the model learned from; costs or a rate that do
            not fit the model.
        """
        source = self.opened(data, format)
        decided = self.deciding(source, costs=costs, rate=rate)
        return _joined(
            [predicted.values for predicted in decided.blocks(source)], Encoding(self.schema).decode(np.zeros(0))
        )

    def deciding(
        self, data: Any, *, costs: Mapping[Any, float] | None = None, rate: Mapping[Any, float] | None = None
    ) -> "Predictor":
        """This model, naming classes by what is declared of mistakes; no private row is read.

        Args:
          data: the rows to predict for, which a rate is a share of.
          costs: what it costs to name another class for a row of each class, {class: cost}; the class is named that is
            expected to cost least. For two classes these are the costs of false alarms and of misses.
          rate: {class: share}, for one of two classes: it is named for at most this share of the rows that can be read,
            those that score highest.

        Raises:
          InputError: the model predicts numbers, or gives no probabilities to weigh costs by, or both are declared, or
            costs or rate make no sense.

        >>> from l2p.models import MODELS
        >>> from l2p.tables.schema import Number, Target
        >>> ward = Schema({"age": Number(0, 100)}, Target("back", classes=("no", "yes")))
        >>> model = Predictor(MODELS["logistic"], jax.numpy.array([2.0, -4.0]), ward)
        >>> ages = {"age": [10, 40, 90]}
        >>> model.predict(ages).tolist(), model.predict(ages, costs={"no": 1, "yes": 12}).tolist()
        (['no', 'no', 'no'], ['yes', 'yes', 'yes'])
        >>> model.predict(ages, rate={"yes": 0.4}).tolist()
        ['no', 'no', 'yes']
        """
        if costs is None and rate is None:
            return self
        if costs is not None and rate is not None:
            raise InputError("costs and a rate each decide on the class, so only one can be declared; leave one out.")
        if not self.classes:
            raise InputError(
                f"the model predicts a number, {self.schema.target.column!r}, so there is no class to decide on; leave "
                "out costs and rate."
            )
        if costs is not None:
            self.check_probabilities()
            return dataclasses.replace(self, decision=Costs.of(costs, self.classes, self.schema.target.weights))
        place, share = place_and_share(rate or {}, self.classes)
        source, scores = self.opened(data), []
        for block in source.blocks(self.schema.features):
            _, of_rows, valid = self._scored(block)
            scores.append(of_rows[valid, place])
        above = Above.share(place, share, _joined(scores, np.zeros(0)))
        return dataclasses.replace(self, decision=above)

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
        refuse_without_probabilities(self.model)

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
        outputs, scores, valid = self._scored(block)
        if self.decision is not None:
            outputs = self.decision.classes(scores)
        values = Encoding(self.schema).decode(outputs)
        if not valid.all():
            values = values.astype(object if self.classes else np.float64)
            values[~valid] = None if self.classes else np.nan
        if scores is None or not self.model.gives_probabilities:
            return Predicted(values, None)
        return Predicted(values, np.where(valid[:, None], scores, np.nan))

    @withheld("predicting")
    def _scored(self, block: Block) -> tuple[np.ndarray, Any, np.ndarray]:
        """Outputs f32[n] of the model for a block of raw rows, scores f64[n, K] of their classes, if it has any, and
        whether a row could be read, bool[n]."""
        x, valid = Encoding(self.schema).features(block)
        parts = [self._of_chunk(x[start : start + CHUNK]) for start in range(0, len(x), CHUNK)]
        outputs, scores = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
        return outputs, None if scores is None else scores.astype(np.float64), valid

    def _of_chunk(self, x: np.ndarray) -> Any:
        count = len(x)
        x = np.pad(x, ((0, CHUNK - count), (0, 0)))
        return jax.tree.map(lambda leaf: np.asarray(leaf)[:count], _run(self.params, x, self.model, bool(self.classes)))


def refuse_without_probabilities(model: Model) -> None:
    """Refuse a model that tells classes apart without probabilities."""
    if not model.gives_probabilities:
        able = [name for name, candidate in MODELS.items() if candidate.gives_probabilities]
        raise InputError(
            f"model {model} tells classes apart without probabilities; ask for predictions, or train "
            f"{', '.join(able)} or {Softmax.name}."
        )


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
