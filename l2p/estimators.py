"""Private training as scikit-learn has it: `fit` spends a privacy budget, everything after it is free.

Nothing else in l2p reads classes off labels, and here too only with a warning and a line on the card. Steps before an
estimator in a pipeline read rows without paying: docs/estimators.md says which ones may.
"""

import contextlib
import dataclasses
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import jax
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data  # pyrefly: ignore

from l2p.api import private_train
from l2p.checkpoints.defaults import default_protector
from l2p.errors import InputError
from l2p.models import plain_name
from l2p.models.softmax import Softmax
from l2p.privacy.book import Book
from l2p.privacy.budget import Budget
from l2p.schema import Schema

#: Delta unless another is given; below 1 / N for the rows that it is refused for otherwise.
DEFAULT_DELTA = 1e-5
#: Where neither bounds nor a schema are given, all numbers count as lying between these, which do not depend on rows.
#: Rows that are standardised by public means and deviations mostly do; others are clipped.
DEFAULT_BOUNDS = (-5.0, 5.0)
#: The protector that stands for the default one of the model.
DEFAULT_PROTECTOR = "universal"


class PrivacyLeakWarning(UserWarning):
    """Something was read off private rows that the budget does not pay for."""


class DefaultBoundsWarning(UserWarning):
    """Bounds were not declared, so a default pair that knows nothing of the table took their place."""


class RepeatedFitWarning(UserWarning):
    """Several fits of one estimator or of its clones, each of which spends a budget of its own."""


@dataclasses.dataclass(eq=False)
class _Lineage:
    """What an estimator and its clones share: how often they were cloned and released something."""

    clones: int = 0
    releases: int = 0


class _PrivateEstimator(BaseEstimator):
    """What both estimators share."""

    #: Set by their constructors.
    epsilon: float
    delta: float | None
    protector: Any
    model: str | None
    schema: Schema | str | Path | None
    bounds: Any
    public: Any
    ledger: Book | str | Path | None
    random_state: int | np.random.RandomState | None

    def __sklearn_clone__(self) -> Self:
        twin = super().__sklearn_clone__()  # pyrefly: ignore[missing-attribute]
        lineage = self.__dict__.setdefault("_lineage", _Lineage())
        lineage.clones += 1
        twin._lineage = lineage
        return twin

    def _validated(self, X: Any, y: Any) -> tuple[Any, np.ndarray]:
        """Features and target as `private_train` takes them; learns how many features there are and their names."""
        if self.schema is not None:
            X, y = validate_data(self, X, y, skip_check_array=True)
            return X, column_or_1d(y, warn=True)
        with _unquoted():
            return validate_data(self, X, y)

    def _release(self, X: Any, y: np.ndarray, model: str, kind: str, declared: dict[str, Any], said: list[str]) -> None:
        """Train, and keep the result with its card."""
        budget = Budget(self.epsilon, DEFAULT_DELTA if self.delta is None else self.delta)
        bounds = self.bounds
        if self.schema is None:
            if bounds is None:
                bounds = DEFAULT_BOUNDS
                said.append(_undeclared("features", "bounds=(low, high)"))
            X = _named(self, X)
        protector = self.protector
        if isinstance(protector, str) and protector == DEFAULT_PROTECTOR:
            protector = default_protector(model, None if plain_name(model) == Softmax.name else kind)
        key = None
        if self.random_state is not None:
            key = jax.random.key(check_random_state(self.random_state).randint(2**31 - 1))
        else:
            self._warn_of_repeats()
        public = self.public
        if public is not None and self.schema is None:
            public = _named(self, validate_data(self, public[0], reset=False)), public[1]
        result = private_train(
            (X, y),
            protector,
            budget,
            model=model,
            key=key,
            ledger=self.ledger,
            schema=self.schema,
            bounds=bounds,
            public=public,
            **declared,
        )
        card = dataclasses.replace(result.card, not_private=[*result.card.not_private, *said])
        self.result_ = dataclasses.replace(result, card=card)
        self.card_ = card

    def _warn_of_repeats(self) -> None:
        lineage = self.__dict__.setdefault("_lineage", _Lineage())
        lineage.releases += 1
        if max(lineage.releases, lineage.clones) > 1:
            adds = (
                "the ledger adds them up and refuses the fit that no longer fits in"
                if self.ledger is not None
                else "nothing adds them up; name a ledger, which refuses what no longer fits in"
            )
            warnings.warn(
                f"every fit spends its own budget, those of cross-validation and of searches too, and {adds}.",
                RepeatedFitWarning,
                stacklevel=4,
            )

    def _read(self, X: Any) -> Any:
        """Features to predict for, as the model reads them."""
        check_is_fitted(self)
        if self.schema is not None:
            return X
        with _unquoted():
            return _named(self, validate_data(self, X, reset=False))


class PrivateClassifier(ClassifierMixin, _PrivateEstimator):
    """A classifier that is trained within a privacy budget.

    Args:
      epsilon, delta: the budget of each fit, under zero_out; `delta` None is 1e-5. One of 1 / N or above is refused.
      protector: how to train: a method, a checkpoint's name or file, or a protector. "universal" stands for the default
        protector of the model.
      model: None for `logistic` with two classes and `softmax` with more.
      schema: the declaration of the table or its file (docs/tables.md): categories, missing cells, bounds, classes.
        X is then a DataFrame, or an array of its columns in their order.
      bounds: without a schema, [low, high] of all features, or two arrays of lows and highs, from public knowledge.
        None takes [-5, 5], with a warning; values beyond are clipped.
      classes: without a schema, the labels. None takes those that are present, with a `PrivacyLeakWarning`, and the card
        lists them as not private.
      public: (X, y) of public rows, which the protector may read freely.
      ledger: of all runs on this data set, or its file.
      random_state: None is a release. Anything else makes a simulation, whose noise others can reproduce and subtract;
        its card says that it is no private release.

    Attributes:
      card_: what is guaranteed.
      result_: the `l2p.Result`, with its `save`.
      classes_: the labels in sorted order, which is that of the columns of `predict_proba`.
      n_features_in_, feature_names_in_: as in scikit-learn.

    >>> X, y = np.linspace(0, 9, 900)[:, None], np.repeat(["low", "high"], 450)
    >>> made = PrivateClassifier(8.0, protector="noisygd", bounds=(0, 9), classes=["low", "high"], random_state=0)
    >>> made.fit(X, y).predict([[1.0], [8.0]]).tolist(), made.card_.private_release
    (['low', 'high'], False)
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        protector: Any = DEFAULT_PROTECTOR,
        model: str | None = None,
        schema: Schema | str | Path | None = None,
        bounds: Any = None,
        classes: Sequence[Any] | None = None,
        public: Any = None,
        ledger: Book | str | Path | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.protector = protector
        self.model = model
        self.schema = schema
        self.bounds = bounds
        self.classes = classes
        self.public = public
        self.ledger = ledger
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # pyrefly: ignore[missing-attribute]
        tags.classifier_tags.poor_score = True  # on a few rows, noise outweighs what they say
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        """Spend the budget on these rows.

        Raises:
          InputError: anything does not fit, before budget is spent.
        """
        X, y = self._validated(X, y)
        said: list[str] = []
        if self.schema is not None:
            schema = self.schema if isinstance(self.schema, Schema) else Schema.read(self.schema)
            classes, declared = schema.target.classes, {"classes": self.classes}
            if classes is None:
                raise InputError(
                    f"the schema declares {schema.target.column!r} as a number, which has no classes; use "
                    "PrivateRegressor."
                )
        else:
            check_classification_targets(y)
            classes = self.classes
            if classes is None:
                classes = _present(y)
                said.append("The classes are the labels that these rows hold, read off them: they are not private.")
            declared = {"classes": classes}
        names = np.asarray(classes)
        kind = "binary" if len(names) == 2 else "multiclass"
        model = self.model or ("logistic" if kind == "binary" else Softmax.name)
        self._release(X, y, model, kind, declared, said)
        self.classes_ = np.sort(names)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The label of each row, [n]."""
        X = self._read(X)
        found = self.result_.predict(X)
        if found.dtype == object and any(label is None for label in found):
            raise _unread()
        return found.astype(self.classes_.dtype)

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each of `classes_` in each row, f64[n, K].

        Raises:
          InputError: the model gives none.
        """
        X = self._read(X)
        found = self.result_.predict_proba(X)
        if np.isnan(found).any():
            raise _unread()
        declared = list(self.result_.predictor.classes)
        return found[:, [declared.index(name) for name in self.classes_.tolist()]]


class PrivateRegressor(RegressorMixin, _PrivateEstimator):
    """A regression that is trained within a privacy budget.

    Args:
      target_bounds: without a schema, [low, high] of the target, from public knowledge; values beyond are clipped. None
        takes [-5, 5], with a warning.
      model: None for `square`.
      epsilon, delta, protector, schema, bounds, public, ledger, random_state: as for `PrivateClassifier`.

    Attributes:
      card_, result_, n_features_in_, feature_names_in_: as for `PrivateClassifier`.
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float | None = None,
        *,
        protector: Any = DEFAULT_PROTECTOR,
        model: str | None = None,
        schema: Schema | str | Path | None = None,
        bounds: Any = None,
        target_bounds: Any = None,
        public: Any = None,
        ledger: Book | str | Path | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.protector = protector
        self.model = model
        self.schema = schema
        self.bounds = bounds
        self.target_bounds = target_bounds
        self.public = public
        self.ledger = ledger
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # pyrefly: ignore[missing-attribute]
        tags.regressor_tags.poor_score = True  # on a few rows, noise outweighs what they say
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        """Spend the budget on these rows.

        Raises:
          InputError: anything does not fit, before budget is spent.
        """
        X, y = self._validated(X, y)
        said: list[str] = []
        bounds = self.target_bounds
        if self.schema is None and bounds is None:
            bounds = DEFAULT_BOUNDS
            said.append(_undeclared("targets", "target_bounds=(low, high)"))
        self._release(X, y, self.model or "square", "regression", {"target_bounds": bounds}, said)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The number predicted for each row, f64[n], in the target's own units."""
        X = self._read(X)
        found = self.result_.predict(X)
        if np.isnan(found).any():
            raise _unread()
        return found


@contextlib.contextmanager
def _unquoted() -> Iterator[None]:
    """NumPy quotes the cell that it cannot convert, and scikit-learn passes that on."""
    try:
        yield
    except ValueError as error:
        if "could not convert" not in str(error):
            raise
        raise InputError(
            "X holds cells that are not numbers, which only a schema says how to read; pass schema=, or encode them "
            "first."
        ) from None


def _named(estimator: BaseEstimator, X: np.ndarray) -> dict[str, np.ndarray]:
    """Columns by name of an array that scikit-learn has checked."""
    names = getattr(estimator, "feature_names_in_", None)
    names = [f"x{place}" for place in range(X.shape[1])] if names is None else names.tolist()
    return {name: X[:, place] for place, name in enumerate(names)}


def _present(y: np.ndarray) -> np.ndarray:
    """The labels that private rows hold."""
    found = np.unique(y)
    if len(found) < 2:
        raise InputError(
            "the labels are of one class, so there is nothing to tell apart; declare all classes (classes=), or check "
            "the table."
        )
    warnings.warn(
        "classes are not declared and are read off the labels, which the budget does not pay for: whether some person "
        "has a rare label may be told; declare them (classes=).",
        PrivacyLeakWarning,
        stacklevel=3,
    )
    return found


def _undeclared(what: str, how: str) -> str:
    low, high = DEFAULT_BOUNDS
    warnings.warn(
        f"{what} have no declared bounds, so they count as lying in [{low:g}, {high:g}] and are clipped to it; declare "
        f"{how} from public knowledge, or a schema.",
        DefaultBoundsWarning,
        stacklevel=4,
    )
    return (
        f"No bounds of {what} were declared; [{low:g}, {high:g}], which knows nothing of the table, took their place."
    )


def _unread() -> InputError:
    return InputError(
        "X has rows that cannot be read (a cell is missing where the schema lets nothing stand in for it, infinite or "
        "no number), and scikit-learn knows no empty prediction; correct them, declare what stands in for missing "
        "cells, or use result_.predict, which leaves such rows empty."
    )
