"""The base of both estimators: input as scikit-learn checks it, the budget of a fit, and repeated fits."""

import dataclasses
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import jax
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import column_or_1d
from sklearn.utils.validation import check_is_fitted, validate_data  # pyrefly: ignore

from l2p.base.errors import InputError
from l2p.estimators.messages import (
    DEFAULT_BOUNDS,
    NothingLearnedWarning,
    RepeatedFitWarning,
    SimulationWarning,
    unquoted,
    warn_of_default_bounds,
)
from l2p.models import Model
from l2p.privacy.budget import Budget
from l2p.privacy.card.learned import IDLE
from l2p.privacy.ledger.ledger import Ledger
from l2p.release.api import private_train
from l2p.tables.same_table import refuse_same
from l2p.tables.schema import Schema
from l2p.tables.schema.pair import is_pair

#: Delta unless another is given; below 1 / N for the rows that it is refused for otherwise.
DEFAULT_DELTA = 1e-5


@dataclasses.dataclass(eq=False)
class Lineage:
    """Numbers of clones and of releases of an estimator, shared with its clones."""

    clones: int = 0
    releases: int = 0


class PrivateEstimator(BaseEstimator):
    """The base of both estimators."""

    #: Set by their constructors.
    epsilon: float
    delta: float | None
    protector: Any
    model: str | Model | None
    schema: Schema | str | Path | None
    bounds: Any
    public: Any
    ledger: Ledger | str | Path | None
    statements: Mapping[str, str | None] | None
    simulation_seed: int | None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # pyrefly: ignore[missing-attribute]
        tags.non_deterministic = self.simulation_seed is None
        return tags

    def __sklearn_clone__(self) -> Self:
        twin = super().__sklearn_clone__()  # pyrefly: ignore[missing-attribute]
        lineage = self.__dict__.setdefault("_lineage", Lineage())
        lineage.clones += 1
        twin._lineage = lineage
        return twin

    def validated(self, X: Any, y: Any) -> tuple[Any, np.ndarray]:
        """Features and target as `private_train` takes them; sets the number of features and their names."""
        refuse_same((X, y), self.public)  # here, because scikit-learn may copy X
        if self.schema is not None:
            X, y = validate_data(self, X, y, skip_check_array=True)
            return X, column_or_1d(y, warn=True)
        with unquoted():
            return validate_data(self, X, y)

    def release(
        self, X: Any, y: np.ndarray, model: str | Model, declared: dict[str, Any], disclosures: list[str]
    ) -> None:
        """Train, and store the result with its card, which lists the `disclosures` as not private."""
        budget = Budget(self.epsilon, DEFAULT_DELTA if self.delta is None else self.delta)
        bounds = self.bounds
        if self.schema is None:
            if bounds is None:
                bounds = DEFAULT_BOUNDS
                disclosures.append(warn_of_default_bounds("features", "bounds=(low, high)"))
            X = named(self, X)
        key = None
        if self.simulation_seed is not None:
            key = self._simulated()
        else:
            self._warn_of_repeats()
        public = self.public
        if public is not None and self.schema is None:
            if not is_pair(public):
                raise InputError(
                    "public rows without a schema are features and target apart, as fit takes them; pass public=(X, y)."
                )
            public = named(self, validate_data(self, public[0], reset=False)), public[1]
        result = private_train(
            (X, y),
            self.protector,
            budget,
            model=model,
            key=key,
            ledger=self.ledger,
            schema=self.schema,
            bounds=bounds,
            public=public,
            statements=self.statements,
            **declared,
        )
        if result.learned in IDLE:
            warnings.warn(result.learned, NothingLearnedWarning, stacklevel=4)
        card = dataclasses.replace(result.card, not_private=[*result.card.not_private, *disclosures])
        self.result_ = dataclasses.replace(result, card=card)
        self.card_ = card

    def _simulated(self) -> jax.Array:
        """The key of a simulation, which is never silent: what looks like a release would protect nobody."""
        seed = self.simulation_seed
        if not isinstance(seed, (int, np.integer)) or isinstance(seed, bool) or not 0 <= seed < 2**31:
            raise InputError("the seed of a simulation must be a whole number from 0 below 2^31; pass 0, say.")
        warnings.warn(
            "simulation_seed is set, so this fit is a simulation, whose noise anybody can subtract, and protects "
            "nobody; leave it out to release anything about private rows.",
            SimulationWarning,
            stacklevel=4,
        )
        return jax.random.key(int(seed))

    def _warn_of_repeats(self) -> None:
        lineage = self.__dict__.setdefault("_lineage", Lineage())
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
                stacklevel=5,
            )

    def read(self, X: Any) -> Any:
        """Features to predict for, as the model reads them."""
        check_is_fitted(self)
        if self.schema is not None:
            return X
        with unquoted():
            return named(self, validate_data(self, X, reset=False))


def named(estimator: BaseEstimator, X: np.ndarray) -> dict[str, np.ndarray]:
    """Columns by name of an array that scikit-learn has checked."""
    names = getattr(estimator, "feature_names_in_", None)
    names = [f"x{place}" for place in range(X.shape[1])] if names is None else names.tolist()
    return {name: X[:, place] for place, name in enumerate(names)}
