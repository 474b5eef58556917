"""The regression."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import RegressorMixin

from l2p.checkpoints.defaults import UNIVERSAL
from l2p.estimators.base import PrivateEstimator
from l2p.estimators.messages import DEFAULT_BOUNDS, unreadable_rows, warn_of_default_bounds
from l2p.models import Model
from l2p.privacy.ledger.ledger import Ledger
from l2p.tables.schema import Schema


class PrivateRegressor(RegressorMixin, PrivateEstimator):
    """A regression that is trained within a privacy budget.

    Args:
      target_bounds: without a schema, [low, high] of the target, from public knowledge; values beyond are clipped. None
        takes [-5, 5], with a warning.
      model: its name, or one of your own; None for `square`.
      epsilon, delta, protector, schema, bounds, public, ledger, statements, simulation_seed: as for
        `PrivateClassifier`.

    Attributes:
      card_, result_, n_features_in_, feature_names_in_: as for `PrivateClassifier`.
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
        target_bounds: Any = None,
        public: Any = None,
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
        self.target_bounds = target_bounds
        self.public = public
        self.ledger = ledger
        self.statements = statements
        self.simulation_seed = simulation_seed

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # pyrefly: ignore[missing-attribute]
        tags.regressor_tags.poor_score = True  # on a few rows, noise outweighs what they say
        return tags

    def fit(self, X: Any, y: Any) -> Self:
        """Spend the budget on these rows.

        Raises:
          InputError: anything does not fit, before budget is spent.
        """
        X, y = self.validated(X, y)
        disclosures: list[str] = []
        bounds = self.target_bounds
        if self.schema is None and bounds is None:
            bounds = DEFAULT_BOUNDS
            disclosures.append(warn_of_default_bounds("targets", "target_bounds=(low, high)"))
        self.release(X, y, self.model or "square", {"target_bounds": bounds}, disclosures)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The number predicted for each row, f64[n], in the target's own units."""
        X = self.read(X)
        values = self.result_.predict(X)
        if np.isnan(values).any():
            raise unreadable_rows()
        return values
