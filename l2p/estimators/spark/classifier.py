"""The classifier as `pyspark.ml` knows it: an Estimator, and the Model that its fit gives."""

import functools
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np
import pyarrow as pa
from pyspark import keyword_only
from pyspark.ml import Estimator, Model
from pyspark.ml.functions import array_to_vector
from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import HasFeaturesCol, HasLabelCol, HasPredictionCol, HasProbabilityCol
from pyspark.ml.util import (
    DefaultParamsReadable,
    DefaultParamsReader,
    DefaultParamsWritable,
    DefaultParamsWriter,
    MLReadable,
    MLReader,
    MLWritable,
    MLWriter,
)
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, BooleanType, DataType, DoubleType, StringType, StructField, StructType

from l2p.base.errors import InputError
from l2p.base.whole_folder import written_whole
from l2p.checkpoints.defaults import UNIVERSAL
from l2p.estimators.base import DEFAULT_DELTA
from l2p.estimators.spark import worker
from l2p.estimators.spark.columns import feature_names, features_of, labels_of, plain
from l2p.estimators.spark.rows import collected_rows, encoded_rows
from l2p.models.softmax import Softmax
from l2p.privacy.budget import Budget
from l2p.privacy.card.card import Card
from l2p.privacy.events import Adjacency
from l2p.release.admission import admit
from l2p.release.api import model_for, private_train
from l2p.release.prediction.predictor import Predictor
from l2p.release.prediction.saved import load_model
from l2p.release.result import Result
from l2p.tables.bounds import interval
from l2p.tables.same_table import PUBLIC_ROWS
from l2p.tables.schema import Encoding, Number, Schema, Target


def _param(name: str, doc: str, kind: Any = plain) -> Any:
    return Param(Params._dummy(), name, doc, typeConverter=lambda value: None if value is None else kind(value))


class PrivateClassifier(
    Estimator,
    HasFeaturesCol,
    HasLabelCol,
    HasPredictionCol,
    HasProbabilityCol,
    DefaultParamsReadable,
    DefaultParamsWritable,
):
    """A classifier that is trained within a privacy budget on rows that stay on a Spark cluster.

    Workers send exact sums of clipped contributions, and the driver adds noise to their total once. The driver is
    trusted: it sees these sums before their noise, and the number of rows.

    Args:
      featuresCol: of vectors, or lists of numbers.
      labelCol: of numbers, texts or booleans.
      predictionCol: for the label that is predicted: a double for numbers, else as `classes` are.
      probabilityCol: for vectors of the probabilities of `classes`, in their order; null where the model gives none.
      epsilon, delta: the budget of each fit.
      adjacency: which tables count as neighbours, "zero_out" or "replace_one".
      protector: how to train: a method, a checkpoint's name or file, or a protector, with which the estimator cannot be
        saved.
      model: None for `logistic` with two classes and `softmax` with more.
      bounds: [low, high] of all features, or lists of lows and highs, from public knowledge. Values beyond are clipped.
      classes: the labels, from public knowledge.
      classWeights: how much a row of each class counts, in their order, from public knowledge; None for all alike.
      onInvalid: what a row with a null, a number that is not finite or an unknown label does: "refuse" refuses the
        DataFrame before budget is spent, "null" counts the row as null.
      public: a DataFrame with the same columns, of rows that anybody may see; they come to the driver. A private row
        that equals one of them counts as null. An estimator that has one cannot be saved.
      ledger: the file of the ledger of all runs on this data set, on the driver.
      seed: None is a release. A number makes a simulation, whose noise others can reproduce and subtract; its card
        says that it is no private release.
    """

    epsilon = _param("epsilon", "epsilon of each fit", TypeConverters.toFloat)
    delta = _param("delta", "delta of each fit", TypeConverters.toFloat)
    adjacency = _param("adjacency", "zero_out, or replace_one", str)
    protector = _param("protector", "how to train", lambda value: value)
    model = _param("model", "what to train", TypeConverters.toString)
    bounds = _param("bounds", "[low, high] of features")
    classes = _param("classes", "the labels")
    classWeights = _param("classWeights", "how much rows of each class count")
    onInvalid = _param("onInvalid", "refuse, or null", TypeConverters.toString)
    public = _param("public", "rows that anybody may see", lambda value: value)
    ledger = _param("ledger", "file of the ledger", str)
    seed = _param("seed", "seed of a simulation", TypeConverters.toInt)

    @keyword_only
    def __init__(
        self,
        *,
        featuresCol: str = "features",
        labelCol: str = "label",
        predictionCol: str = "prediction",
        probabilityCol: str = "probability",
        epsilon: float = 1.0,
        delta: float = DEFAULT_DELTA,
        adjacency: str = Adjacency.ZERO_OUT,
        protector: Any = UNIVERSAL,
        model: str | None = None,
        bounds: Any = None,
        classes: Any = None,
        classWeights: Any = None,
        onInvalid: str = "refuse",
        public: DataFrame | None = None,
        ledger: str | Path | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        self._setDefault(
            epsilon=1.0,
            delta=DEFAULT_DELTA,
            adjacency=str(Adjacency.ZERO_OUT),
            protector=UNIVERSAL,
            model=None,
            bounds=None,
            classes=None,
            classWeights=None,
            onInvalid="refuse",
            public=None,
            ledger=None,
            seed=None,
        )
        self._set(**self._input_kwargs)  # pyrefly: ignore[missing-attribute]

    @keyword_only
    def setParams(self, **params: Any) -> "PrivateClassifier":
        """Set parameters by name."""
        return self._set(**params)

    def _fit(self, dataset: DataFrame) -> "PrivateClassificationModel":
        schema, public = self._schema(dataset), self.getOrDefault("public")
        budget = Budget(*(self.getOrDefault(name) for name in ("epsilon", "delta", "adjacency")))
        if budget.adjacency is Adjacency.ADD_REMOVE:
            raise InputError(
                "under add_remove the number of rows is private, but a DataFrame's rows are counted and the count is "
                "on the card; choose adjacency zero_out or replace_one."
            )
        protector, model = self.getOrDefault("protector"), self.getOrDefault("model")
        model, _ = model_for(schema, model or ("logistic" if schema.target.kind == "binary" else Softmax.name))
        named = admit(protector, budget, model, schema=schema, has_public=public is not None)  # before any job
        seed, encoding, columns = self.getOrDefault("seed"), Encoding(schema), self._columns(dataset)
        if public is not None:
            if public.sameSemantics(dataset):
                raise InputError(PUBLIC_ROWS)
            public = collected_rows(public, self._columns(public), encoding)
        with encoded_rows(dataset, columns, encoding, self.getOrDefault("onInvalid")) as rows:
            if public is not None:
                rows.refuse_equal(public)
            result = private_train(
                rows,
                named,
                budget,
                model=model,
                public=public,
                key=None if seed is None else jax.random.key(seed),
                ledger=self.getOrDefault("ledger"),
            )
        return self._copyValues(PrivateClassificationModel(_files_of(result)))

    def _columns(self, table: DataFrame) -> tuple[Column, Column]:
        return features_of(table, self.getFeaturesCol()), labels_of(table, self.getLabelCol())

    def _schema(self, dataset: DataFrame) -> Schema:
        """Schema of the DataFrame by the declared bounds and classes."""
        bounds, classes = self.getOrDefault("bounds"), self.getOrDefault("classes")
        for name, value in (("bounds", bounds), ("classes", classes)):
            if value is None:
                raise InputError(
                    f"{name} are not declared, and reading them off private rows would leak; pass {name}= from public "
                    "knowledge."
                )
        if not isinstance(bounds, list) or len(bounds) != 2 or not isinstance(classes, list):
            raise InputError(
                "bounds must be one pair [low, high], or a list of lows and one of highs, and classes a list of "
                "labels; pass them so."
            )
        sizes = {len(end) for end in bounds if isinstance(end, list)}
        if len(sizes) > 1:
            raise InputError("bounds have more lows than highs, or fewer; pass one of each for every feature.")
        label = self.getLabelCol()
        names = feature_names(dataset, self.getFeaturesCol(), label, next(iter(sizes), None))
        low, high = (end if isinstance(end, list) else [end] * len(names) for end in bounds)
        pairs = zip(names, zip(low, high, strict=True), strict=True)
        target = Target(label, tuple(classes), weights=self.getOrDefault("classWeights"))
        return Schema({name: Number(*interval(name, pair)) for name, pair in pairs}, target)

    def write(self) -> MLWriter:
        """The writer of this estimator, without what it learned.

        Raises:
          InputError: its protector has no name, or it has public rows.
        """
        if self.getOrDefault("public") is not None:
            raise InputError(
                "the estimator has public rows, which its file cannot hold; leave them out (public=), or save the "
                "model that fit gives."
            )
        if not isinstance(self.getOrDefault("protector"), str):
            raise InputError(
                "the estimator's protector is an object, which its file cannot hold; name a method or a checkpoint's "
                "file (protector=), or save the model that fit gives."
            )
        return super().write()


class PrivateClassificationModel(
    Model, HasFeaturesCol, HasLabelCol, HasPredictionCol, HasProbabilityCol, MLReadable, MLWritable
):
    """A classifier that `PrivateClassifier` trained. All of it may be published.

    Attributes:
      files: those that `l2p apply` leaves for a run, by name, with the card among them.
    """

    def __init__(self, files: Mapping[str, bytes] | None = None) -> None:
        super().__init__()
        self.files = dict(files or {})

    @functools.cached_property
    def predictor(self) -> Predictor:
        """The model, with the declaration of its tables."""
        with tempfile.TemporaryDirectory() as folder:
            self.writeRun(folder)
            return load_model(folder)

    @functools.cached_property
    def card(self) -> Card:
        """The guarantee."""
        with tempfile.TemporaryDirectory() as folder:
            self.writeRun(folder)
            return Card.from_json(Path(folder, "card.json"))

    def writeRun(self, folder: str | Path) -> None:
        """Write the run's folder on the driver, as `l2p apply` does; `l2p predict` and `l2p.load_model` read it.

        Raises:
          InputError: if the folder holds a result.
        """
        with written_whole(Path(folder)) as place:
            for name, content in self.files.items():
                (place / name).write_bytes(content)

    def _transform(self, dataset: DataFrame) -> DataFrame:
        column = features_of(dataset, self.getFeaturesCol())
        occupied = [name for name in (self.getPredictionCol(), self.getProbabilityCol()) if name in dataset.columns]
        if occupied:
            raise InputError(
                f"the DataFrame has a column {occupied[0]!r} already; name another (predictionCol=, probabilityCol=)."
            )
        classes = self.predictor.classes
        # Not jax's arrays, which workers would put on a device before they could choose one.
        predictor = Predictor(self.predictor.model, np.asarray(self.predictor.params), self.predictor.schema)  # pyrefly: ignore[bad-argument-type]
        spark_kind, kind = _label_type(classes)
        struct = pa.struct([("prediction", kind), ("probability", pa.list_(pa.float64()))])

        def predicted(features: pa.Array) -> pa.Array:
            return worker.predictions(features, predictor, struct)

        returned = StructType(
            [StructField("prediction", spark_kind), StructField("probability", ArrayType(DoubleType()))]
        )
        predictions = cast(Any, F).arrow_udf(predicted, returned)(column)  # its overloads want annotated arrow types
        both = dataset.withColumn("_l2p", predictions)
        chances = F.col("_l2p.probability")
        return (
            both.withColumn(self.getPredictionCol(), F.col("_l2p.prediction"))
            .withColumn(self.getProbabilityCol(), F.when(chances.isNotNull(), array_to_vector(chances)))
            .drop("_l2p")
        )

    def write(self) -> MLWriter:
        """The writer of this model and its card."""
        return _ModelWriter(self)

    @classmethod
    def read(cls) -> MLReader:
        """The reader of what `write` wrote."""
        return _ModelReader(cls)


class _ModelWriter(MLWriter):
    """Writes the parameters as Spark does, and the run's files as rows of a Parquet file, on whatever file system."""

    def __init__(self, instance: PrivateClassificationModel):
        super().__init__()
        self.instance = instance

    def saveImpl(self, path: str) -> None:
        DefaultParamsWriter.saveMetadata(self.instance, path, self.sparkSession)
        files = {"name": list(self.instance.files), "content": list(self.instance.files.values())}
        table = self.sparkSession.createDataFrame(pa.table(files))  # pyrefly: ignore[no-matching-overload]
        table.coalesce(1).write.parquet(f"{path}/run")


class _ModelReader(MLReader):
    def __init__(self, cls: type[PrivateClassificationModel]):
        super().__init__()
        self.cls = cls

    def load(self, path: str) -> PrivateClassificationModel:
        metadata = DefaultParamsReader.loadMetadata(path, self.sparkSession)
        files = self.sparkSession.read.parquet(f"{path}/run").collect()
        model = self.cls({row.name: bytes(row.content) for row in files})
        model._resetUid(metadata["uid"])
        DefaultParamsReader.getAndSetParams(model, metadata)
        return model


def _files_of(result: Result) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        result.save(folder)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def _label_type(classes: tuple[Any, ...]) -> tuple[DataType, pa.DataType]:
    """The types of predicted labels, for Spark and for Arrow. Spark's evaluators want doubles for numbers."""
    if isinstance(classes[0], str):
        return StringType(), pa.string()
    return (BooleanType(), pa.bool_()) if isinstance(classes[0], bool) else (DoubleType(), pa.float64())
