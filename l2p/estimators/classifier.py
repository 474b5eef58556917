"""The classifier."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets

from l2p.base.errors import InputError
from l2p.checkpoints.defaults import UNIVERSAL
from l2p.estimators.base import PrivateEstimator
from l2p.estimators.messages import present_labels, unreadable_rows
from l2p.models import Model, Softmax, find_model
from l2p.privacy.ledger.ledger import Ledger
from l2p.release.prediction.decision import Costs
from l2p.release.prediction.predictor import refuse_without_probabilities
from l2p.tables.schema import Schema
from l2p.tables.schema.columns import as_array


class PrivateClassifier(ClassifierMixin, PrivateEstimator):
    """A classifier that is trained within a privacy budget.

    Args:
      epsilon, delta: the budget of each fit, under zero_out; `delta` None is 1e-5. One of 1 / N or above is refused.
      protector: how to train: a method, a checkpoint's name or file, or a protector.
      model: its name, or one of your own; None for `logistic` with two classes and `softmax` with more.
      schema: the declaration of the table or its file (docs/tables.md): categories, missing cells, bounds, classes.
        X is then a DataFrame, or an array of its columns in their order.
      bounds: without a schema, [low, high] of all features, or two arrays of lows and highs, from public knowledge.
        None takes [-5, 5], with a warning; values beyond are clipped.
      classes: without a schema, the labels. None takes those that are present, with a `PrivacyLeakWarning`, and the
        card lists them as not private.
      class_weights: with `classes`, how much a row of each counts in what is learned, {label: number}, from public
        knowledge; None counts all alike. A schema says it itself.
      public: (X, y) of public rows, which the protector may read freely.
      costs: what it costs to name another class for a row of each class, {label: cost}, by which `predict` decides
        (`Predictor.deciding`); None names the likelier class. They may be set anew after `fit`.
      ledger: of all runs on this data set, or its file.
      statements: for the card, as `l2p.private_train` takes them.
      simulation_seed: None is a release, with noise from the operating system. A number makes a simulation, whose noise
        others can reproduce and subtract; a `SimulationWarning` and its card say that it is no private release. It is
        not called `random_state`, because scikit-learn's ensembles and searches set that of every clone in silence.

    Attributes:
      card_: the guarantee.
      result_: the `l2p.Result`, with its `save`.
      classes_: the labels in sorted order, which is that of the columns of `predict_proba`.
      n_features_in_, feature_names_in_: as in scikit-learn.

    >>> X, y = np.linspace(0, 9, 900)[:, None], np.repeat(["low", "high"], 450)
    >>> classifier = PrivateClassifier(8.0, protector="noisygd", bounds=(0, 9), classes=["low", "high"])
    >>> classifier.fit(X, y).predict([[1.0], [8.0]]).tolist(), classifier.card_.private_release
    (['low', 'high'], True)
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        protector: Any = UNIVERSAL,
        model: str | Model | None = None,
        schema: Schema | str | Path | None = None,
        bounds: Any = None,
        classes: Sequence[Any] | None = None,
        class_weights: Mapping[Any, float] | None = None,
        public: Any = None,
        costs: Mapping[Any, float] | None = None,
        ledger: Ledger | str | Path | None = None,
        statements: Mapping[str, str | None] | None = None,
        simulation_seed: int | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.protector = protector
        self.model = model
        self.schema = schema
        self.bounds = bounds
        self.classes = classes
        self.class_weights = class_weights
        self.public = public
        self.costs = costs
        self.ledger = ledger
        self.statements = statements
        self.simulation_seed = simulation_seed

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # pyrefly: ignore[missing-attribute]
        tags.classifier_tags.poor_score = True  # on a few rows, noise outweighs what they say
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        """Spend the budget on these rows.

        Raises:
          InputError: anything does not fit, before budget is spent.
        """
        X, y = self.validated(X, y)
        disclosures: list[str] = []
        if self.schema is not None:
            schema = self.schema if isinstance(self.schema, Schema) else Schema.read(self.schema)
            classes = schema.target.classes
            declared = {"classes": self.classes, "class_weights": self.class_weights}
            if classes is None:
                raise InputError(
                    f"the schema declares {schema.target.column!r} as a number, which has no classes; use "
                    "PrivateRegressor."
                )
        else:
            classes = self.classes
            if classes is None:
                if self.class_weights is not None:
                    raise InputError(
                        "class weights are given for classes that are not declared, and would have to be matched with "
                        "the labels that these rows hold; declare classes= too."
                    )
                check_classification_targets(y)  # its words depend on the labels
                classes = present_labels(y)
                disclosures.append(
                    "The classes are the labels that these rows hold, read off them: they are not private."
                )
            declared = {"classes": classes, "class_weights": self.class_weights}
        names = as_array(list(classes))
        model = self.model or ("logistic" if len(names) == 2 else Softmax.name)
        if self.costs is not None and not disclosures:  # classes that are declared may be named in an error
            Costs.of(self.costs, names.tolist())
            refuse_without_probabilities(find_model(model, len(names)))
        self.release(X, y, model, declared, disclosures)
        self.classes_ = np.sort(names)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The label of each row, [n]: the likelier one, or by `costs` the one that is expected to cost least."""
        return self._labels(X, costs=self.costs)

    def predict_at_rate(self, X: Any, rate: Mapping[Any, float]) -> np.ndarray:
        """The label of each row, [n], where at most a share of them, {label: share}, takes one of two labels: the rows
        that score highest."""
        return self._labels(X, rate=rate)

    def _labels(self, X: Any, **decision: Any) -> np.ndarray:
        X = self.read(X)
        labels = self.result_.predict(X, **decision)
        if labels.dtype == object and any(label is None for label in labels):
            raise unreadable_rows()
        return labels.astype(self.classes_.dtype)

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each of `classes_` in each row, f64[n, K].

        Raises:
          InputError: the model gives none.
        """
        X = self.read(X)
        probabilities = self.result_.predict_proba(X)
        if np.isnan(probabilities).any():
            raise unreadable_rows()
        declared = list(self.result_.predictor.classes)
        return probabilities[:, [declared.index(name) for name in self.classes_.tolist()]]
