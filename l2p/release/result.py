"""Result of a run, and the files it writes."""

import csv
import dataclasses
import json
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors.numpy import save

from l2p.base.errors import InputError
from l2p.base.whole_folder import MODEL_FILE, written_whole
from l2p.models import Model
from l2p.models.custom import CustomLoss
from l2p.privacy.card import html, registry
from l2p.privacy.card.card import Card
from l2p.privacy.cost import sampling
from l2p.privacy.events import Answered
from l2p.queries.mean import FeatureSum
from l2p.release.prediction import unmet
from l2p.release.prediction.predictor import Predictor
from l2p.release.prediction.saved import digest
from l2p.tables.header import listed
from l2p.tables.reading import Format
from l2p.tables.reading.opening import name_of
from l2p.tables.schema import Encoding, Number, Schema, Target
from l2p.tables.schema.rows import public_statements
from l2p.task.rows import Rows

TRACE_COLUMNS = (
    "step",
    "query",
    "mechanism",
    "noise_multiplier",
    "sampling_rate",
    "clip_norm",
    "cost",
    "spent",
    "share_spent",
)


@dataclasses.dataclass(frozen=True)
class Result:
    """A finished run. All of it may be published.

    Attributes:
      params: f32[p], for rows scaled to [0, 1]; of a loss of your own, the pytree that it takes.
      trace: granted queries, in order.
      card: what is guaranteed.
      stop_reason: "budget" or "max_steps".
      steps: steps that were granted in full.
      model: that was trained.
      schema: the declaration of the table that rows were encoded by; None for rows that came encoded.
      kind: what the target is, as in `Model.kinds`; None for the model's own.
    """

    params: Any
    trace: list[Answered]
    card: Card
    stop_reason: str
    steps: int
    model: Model
    schema: Schema | None = None
    kind: str | None = None

    @property
    def predictor(self) -> Predictor:
        """The model, with the schema that it was trained with."""
        return Predictor(self.model, self.params, self.schema or self._of_encoded_rows())

    @property
    def learned(self) -> str:
        """A sentence on whether the run learned anything, as far as its answers show it."""
        return self.card.learned

    def predict(
        self,
        data: Any,
        format: Format | None = None,
        *,
        costs: Mapping[Any, float] | None = None,
        rate: Mapping[Any, float] | None = None,
    ) -> np.ndarray:
        """Predictions for the rows of a table [n], in the target's own words or units; see `Predictor.predict`, and
        `Predictor.deciding` for `costs` and `rate`.

        Without a schema the model knows no table: `data` is then an array [n, d] of features in [0, 1], or rows, and
        predictions are numbers of classes, or values in [0, 1]. With a loss of your own, `data` is a pytree of rows,
        and what comes back is what its `predict` function makes of each, stacked.

        Raises:
          InputError: the table cannot be read, or lacks a column that the model learned from.
        """
        if isinstance(self.model, CustomLoss):
            if costs is not None or rate is not None:
                raise InputError("a loss of your own has no classes to decide on; leave out costs and rate.")
            return self.model.predictions(self.params, data)
        return self.predictor.predict(self._readable(data), format, costs=costs, rate=rate)

    def predict_proba(self, data: Any, format: Format | None = None) -> np.ndarray:
        """The probability of each class in each row of a table, f64[n, K]; see `predict`.

        Raises:
          InputError: the model gives no probabilities, or as for `predict`.
        """
        if isinstance(self.model, CustomLoss):
            raise InputError("a loss of your own has no classes; have its predict function return probabilities.")
        return self.predictor.predict_proba(self._readable(data), format)

    def _readable(self, data: Any) -> Any:
        if self.schema is not None:
            return data
        x = np.asarray(data.x) if isinstance(data, Rows) else data
        num_features = self.model.num_features(len(self.params))
        if not isinstance(x, (np.ndarray, jax.Array)) or x.ndim != 2 or x.shape[1] != num_features:
            raise InputError(
                f"this model was trained on rows of {num_features} features in [0, 1], without a schema, so it cannot "
                "read tables; pass an array of such rows, or train with schema=."
            )
        x = np.asarray(x)
        if ((x < 0) | (x > 1)).any():
            raise InputError(
                "x holds values outside [0, 1], but this model was trained on features that bounds scale, and would "
                "predict from what it never saw; scale rows as those to train on, or train with schema=."
            )
        return x

    def _of_encoded_rows(self) -> Schema:
        """Schema of rows without one: features and numbers in [0, 1], and classes by number."""
        model = self.model
        columns = {f"x{place}": Number(0, 1) for place in range(model.num_features(len(self.params)))}
        if model.known_kind(self.kind) == "regression":
            return Schema(columns, Target("y", bounds=(0.0, 1.0)))
        return Schema(columns, Target("y", classes=tuple(map(int, model.labels))))

    def with_schema(self, schema: Schema, purchased: Sequence[str] = ()) -> "Result":
        """The result of rows that `schema` encoded; its card lists what the schema publishes.

        Where the run released a feature mean, values that no row held count as those that rows held
        (`l2p.release.prediction.unmet`).

        Args:
          schema: with all bounds known.
          purchased: columns whose bounds came from the budget.
        """
        card, sums = self.card, self._feature_sums()
        statements = [*card.not_private, *public_statements(schema, purchased)]
        if sums is not None:
            card = dataclasses.replace(card, not_private=statements)
            params = unmet.without_unmet(self.params, self.model, schema, sums)
            return dataclasses.replace(self, card=card, schema=schema, params=params)
        warnings = card.warnings
        if unproved := unmet.indicators(schema):
            warnings = [
                *warnings,
                f"No answer tells whether any row filled {listed(unproved)}. If none did, what the model learned of "
                "them is noise, and so are predictions for rows that fill them: declare them only for cells that do "
                "occur, or choose a protector that buys the feature mean, such as universal.",
            ]
        return dataclasses.replace(
            self, card=dataclasses.replace(card, not_private=statements, warnings=warnings), schema=schema
        )

    def _feature_sums(self) -> unmet.FeatureSums | None:
        """Released sums of the encoded features, or None."""
        for row in self.trace:
            if row.query == FeatureSum.name and row.answer is not None:
                factor = self.card.budget.adjacency.sensitivity_factor * self.card.unit["max_rows"]
                return unmet.FeatureSums(row.answer, row.noise_multiplier * row.clip_norm * factor)
        return None

    def of_table(self, data: Any, target: str) -> "Result":
        """The result of learning `target` from `data`, a table as it was given; its card names both."""
        card = dataclasses.replace(self.card, table={"name": name_of(data), "target": target})
        return dataclasses.replace(self, card=card)

    def stating(self, statements: Mapping[str, str | None] | None) -> "Result":
        """The result with statements on its card, as `Card.stating` takes them."""
        return dataclasses.replace(self, card=self.card.stating(statements))

    def save(
        self,
        folder: str | Path,
        columns: Sequence[str] = (),
        bounds: Mapping[str, tuple[float, float]] | None = None,
        classes: Sequence[float] | None = None,
        target: str = "",
    ) -> None:
        """Write `model.safetensors`, `trace.csv` and the card as JSON, text and HTML into `folder`, made if need be.

        Of a release there is also `card.registry.yaml`, a draft entry for a registry of deployments.

        A model never lies there without its card and the rest, even if the process is killed meanwhile.
        The model file holds the arrays of `Model.arrays` for features in the order of `columns`, scaled to [0, 1] by
        `bounds`. A linear classifier has `weights` f32[d] and `bias` f32[1], and predicts the second class where
        weights . x + bias is positive. `classes` None means classes 0 and 1, or a regression, whose target `bounds`
        must also name. `l2p.load_model` reads it back. Of a loss of your own it holds the trained arrays by path, for
        `l2p.load_params`, and these arguments are not used. A schema, which is written to `schema.json`, replaces these
        arguments: the columns are then its encoded features, and the classes 0, 1, 2 and so on in the order of its
        words.

        Raises:
          InputError: the folder holds a result, which may have been paid for, or a regression's target has no bounds.

        >>> import tempfile, jax, jax.numpy as jnp, l2p
        >>> rows = l2p.Rows(jnp.ones((900, 1)), jnp.ones(900), jnp.ones(900))
        >>> result = l2p.private_train(rows, "noisygd", l2p.Budget(1.0, 1e-5), key=jax.random.key(0))
        >>> folder = Path(tempfile.mkdtemp())
        >>> result.save(folder, ["age"], {"age": (0.0, 120.0)}, None, "readmit")
        >>> sorted(path.name for path in folder.iterdir())
        ['card.html', 'card.json', 'card.txt', 'model.safetensors', 'trace.csv']
        """
        model, params = self.model, np.asarray(self.model.as_flat(self.params), np.float32)
        if self.schema is not None:
            columns, bounds, classes, target = _as_saved(self.schema)
        bounds = {} if bounds is None else bounds
        is_number = model.kind(classes) == "regression"
        arrays = {name: np.ascontiguousarray(array) for name, array in model.arrays(params).items()}
        if isinstance(model, CustomLoss):  # its arrays by path are all there is to keep
            self._write(folder, arrays, {"model": str(model), "kind": model.kind()})
            return
        if is_number and target not in bounds:
            raise InputError(
                f"bounds name no {target!r}, without which the model's predictions have no unit; add the [low, high] "
                "that the target was scaled by, or name the classes of a classifier."
            )
        scaled = [*columns, target] if is_number else columns
        metadata = {
            "model": str(model),
            "kind": model.kind(classes),
            "columns": json.dumps(list(columns)),
            "bounds": json.dumps({column: list(bounds[column]) for column in scaled}),
            "classes": json.dumps([] if is_number else list(classes or model.labels)),
            "target": json.dumps(target),
        }
        metadata |= {} if self.schema is None else {"schema_sha256": digest(self.schema)}
        self._write(folder, arrays | {"params": params}, metadata)

    def _write(
        self,
        folder: str | Path,
        arrays: Mapping[str, np.ndarray],
        metadata: Mapping[str, str],
        texts: Mapping[str, str] = types.MappingProxyType({}),
    ) -> None:
        """Write all files of a result, further `texts` by their names among them."""
        cap, folder = self.card.filter().limit, Path(folder)
        # A model without its card would say nothing of what it guarantees.
        with written_whole(folder) as place:
            if self.schema is not None:
                self.schema.write(place / "schema.json")
            (place / "card.json").write_text(self.card.to_json(), encoding="utf-8")
            if self.card.private_release:  # a simulation is no deployment
                (place / "card.registry.yaml").write_text(registry.to_yaml(self.card), encoding="utf-8")
            (place / "card.txt").write_text(self.card.to_text(), encoding="utf-8")
            (place / "card.html").write_text(html.render(self.card, self.trace, cap), encoding="utf-8")
            self._write_trace(place / "trace.csv", cap)
            for name, text in texts.items():
                (place / name).write_text(text, encoding="utf-8")
            (place / MODEL_FILE).write_bytes(save(dict(arrays), dict(metadata)))

    def _write_trace(self, path: Path, cap: float) -> None:
        rate = sampling.from_json(self.card.sampler).rate()
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, TRACE_COLUMNS, extrasaction="ignore")
            writer.writeheader()
            for row in self.trace:
                # Side queries before the first step read every row.
                extra = {"sampling_rate": rate if row.step else 1.0, "share_spent": row.spent / cap}
                writer.writerow(dataclasses.asdict(row) | extra)


def _as_saved(schema: Schema) -> tuple[tuple[str, ...], dict[str, tuple[float, float]], tuple[float, ...] | None, str]:
    """Entries of a model file on rows that a schema encodes: features in [0, 1], and classes by number."""
    names, target = Encoding(schema).names, schema.target
    bounds = dict.fromkeys(names, (0.0, 1.0))
    if target.classes is None:
        return names, bounds | {target.column: target.bounds or (0.0, 1.0)}, None, target.column
    return names, bounds, tuple(map(float, range(len(target.classes)))), target.column


def mechanisms(trace: Sequence[Answered]) -> list[dict[str, Any]]:
    """The kinds of answered queries in order of first appearance, with counts and ranges."""
    kinds: dict[tuple[str, str], list[Answered]] = {}
    for row in trace:
        kinds.setdefault((row.query, row.mechanism), []).append(row)
    return [
        {
            "query": query,
            "mechanism": mechanism,
            "count": len(rows),
            "clip_norm": _range([row.clip_norm for row in rows]),
            "noise_multiplier": _range([row.noise_multiplier for row in rows]),
        }
        for (query, mechanism), rows in kinds.items()
    ]


def _range(values: list[float]) -> list[float]:
    return [min(values), max(values)]
