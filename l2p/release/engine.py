"""Noise on a model that another engine has trained: the bolt-on paper's promise, with l2p's ledger and card."""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import jax
import numpy as np

from l2p.base.errors import InputError
from l2p.checkpoints.named import NamedProtector, describe
from l2p.models import Model, find_model
from l2p.oracle import MAX_BOUND, MIN_BOUND
from l2p.privacy.budget import Budget
from l2p.privacy.ledger.ledger import Ledger
from l2p.privacy.sensitivity.engine_run import EngineRun
from l2p.protectors.by_hand.engine_passes import EnginePasses
from l2p.queries.pass_descent import PassDescent, PassRows
from l2p.release.api import private_train
from l2p.release.result import Result
from l2p.tables.reading import Format

#: What such a run is called on cards and in ledgers.
NAME = "bolt-on"
# Rounding of the engine's own arithmetic and of the log's step sizes, when lengths are compared.
_ROUNDING = 1 + 1e-5
# For rounding over as many steps as there may be, which counts towards the bound.
_ROOM = 2.0**-10


class EngineWeights(PassRows):
    """The rows of a declaration, of which there is only the result of the passes over them.

    Attributes:
      engine: the declaration.
    """

    def __init__(self, weights: np.ndarray, run: EngineRun):
        """Weights f64[p], or f64[K, p] of K classes against the rest."""
        self.num_rows, self.num_features = run.num_rows, weights.shape[-1] - 1
        self.engine: Mapping[str, Any] | None = run.to_json()
        self._weights = weights.T.ravel()

    def __repr__(self) -> str:
        return "EngineWeights(not shown)"

    def check_model(self, protector: object, model: Model) -> None:
        if not isinstance(protector, EnginePasses):
            raise InputError(
                "weights that another engine has trained take noise for the passes that are declared, and no other "
                "method can be run on them; call l2p.bolt_on."
            )

    def passes(self, query: PassDescent, orders: Iterator[np.ndarray] | None) -> np.ndarray:
        return self._weights


@dataclasses.dataclass(frozen=True)
class NoisedWeights(Result):
    """Weights of another engine's training with noise on them. All of it may be published.

    Attributes:
      shape: of the weights.
    """

    shape: tuple[int, ...] = ()

    @property
    def weights(self) -> np.ndarray:
        """f64[p] or f64[K, p], to be put back in their place in the engine's model."""
        return np.asarray(self.params, np.float64).reshape(self.shape[::-1]).T

    @property
    def predictor(self) -> NoReturn:  # type: ignore[override]
        raise self._no_table()

    def predict(self, data: Any, format: Format | None = None, **decision: Any) -> NoReturn:
        raise self._no_table()

    def predict_proba(self, data: Any, format: Format | None = None) -> NoReturn:
        raise self._no_table()

    def _no_table(self) -> InputError:
        return InputError(
            "these weights belong to another engine, whose rows l2p has never seen, so it cannot predict by them; put "
            "`weights` back in their place in that engine's model."
        )

    def save(self, folder: str | Path) -> None:  # type: ignore[override]
        """Write the card, the trace and `model.safetensors`, as `Result.save` does, and the numbers in weights.json."""
        texts = {"weights.json": json.dumps(self.weights.tolist()) + "\n"}
        self._write(folder, {"weights": np.ascontiguousarray(self.weights)}, {"model": NAME}, texts)


def bolt_on(
    weights: Any,
    run: EngineRun,
    budget: Budget,
    *,
    accountant: str | None = None,
    ledger: Ledger | str | Path | None = None,
    key: jax.Array | None = None,
    statements: Mapping[str, str | None] | None = None,
) -> NoisedWeights:
    """Noise on weights that another engine has trained, for the sensitivity of the training that is declared.

    The guarantee is that of the declaration: every sentence of `run.vouched`, which the card lists, must be true.

    Args:
      weights: [p], every trained coefficient, the intercept's as that of a constant column; or [K, p] of K classes,
        each trained against the rest.
      run: what the engine did; for scikit-learn `l2p.estimators.sgd_run` writes it.
      budget: what may be spent; with delta 0, or accountant `basic`, noise is that of pure differential privacy.
      accountant, ledger, key, statements: as for `private_train`.

    Raises:
      InputError: an argument does not fit, or the weights cannot be those of such a training; nothing is spent.

    >>> run = EngineRun(
    ...     engine="a job", num_rows=1000, num_passes=2, updates=2000, step_size=0.1, first_step=0.1, last_step=0.1
    ... )
    >>> noised = bolt_on([0.3, -0.2, 0.1], run, Budget(1.0, 0.0))
    >>> noised.weights.shape, noised.card.accountant
    ((3,), 'basic')
    """
    values = _checked(weights, run)
    named, model = plan(values, run, budget, accountant), _model(values, run)
    options = {"ledger": ledger, "key": key, "statements": statements}
    result = private_train(EngineWeights(values, run), named, budget, model=model, **options)
    fields = {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
    return NoisedWeights(**fields, shape=np.shape(weights))


def plan(weights: Any, run: EngineRun, budget: Budget, accountant: str | None = None) -> NamedProtector:
    """What `bolt_on` would do, checked as it checks: the protector that it runs. Nothing is spent."""
    budget.check_rows(run.num_rows)
    values = _checked(weights, run)
    _check_length(run, 1 if values.ndim == 1 else len(values))
    planned = of_declaration(run, budget, _model(values, run), accountant)
    planned.filter(budget)
    return planned


def _check_length(run: EngineRun, num_classes: int) -> None:
    """Refuse a sensitivity that the oracle has no noise for, and would answer with zeros."""
    length = run.slope * run.passes.sensitivity()
    if length < MIN_BOUND or length * num_classes > MAX_BOUND * _ROOM:
        raise InputError(
            f"one row moves the weights by up to {length:.3g}, where noise in numbers of 32 bits vanishes or "
            "overflows, so nothing could be released; scale rows so that norm_bound is about 1, and train again."
        )


def of_declaration(run: EngineRun, budget: Budget, model: Model, accountant: str | None) -> NamedProtector:
    """The protector of a declaration, under the name that cards have it by.

    Raises:
      InputError: no proof covers the adjacency or the model.
    """
    return describe(EnginePasses.declared(run, budget, accountant), NAME, model, accountant, sources=())


def _model(values: np.ndarray, run: EngineRun) -> Model:
    return find_model(run.loss if values.ndim == 1 else f"softmax:{len(values)}")


def _checked(weights: Any, run: EngineRun) -> np.ndarray:
    """Weights f64[p] or f64[K, p], as far as they can be told to be those of another training.

    A true declaration is never refused here, whatever the rows hold, so a refusal tells nothing of them.
    """
    try:
        array = np.asarray(weights)
        if array.dtype.kind not in "iufO":
            raise TypeError
        values = np.asarray(array, np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InputError(
            "the weights hold something other than numbers, which takes no noise; pass an array."
        ) from None
    if array.dtype.kind == "f" and array.dtype.itemsize < values.dtype.itemsize:
        raise InputError(
            f"the weights came as {array.dtype}, in which rounding alone may part the weights of two tables by more "
            "than the steps do; train in 64 bits, and pass the numbers as they were trained."
        )
    if values.ndim == 2 and len(values) == 1:
        values = values[0]
    if values.ndim not in (1, 2) or not values.size:
        raise InputError(
            f"the weights have shape {list(values.shape)}, but are one number for each column of the rows, [p], or "
            "[K, p] for K classes, each trained against the rest; pass them so."
        )
    if not np.isfinite(values).all():
        raise InputError(
            "the weights hold numbers that are not finite, which no course of steps that is covered here ends in; "
            "check the training, and what was passed."
        )
    if np.sqrt(np.square(values).sum(-1)).max() > run.reach * _ROUNDING:
        where = "lie outside of the ball that is declared" if run.reach == run.radius else "are longer than these steps"
        raise InputError(
            f"the weights {where}{'' if run.reach == run.radius else ' can make them'}, so they come from another "
            "training than is declared (a sum in place of a mean, longer or more steps, longer rows, another ball), "
            "and noise for this one would not protect them; declare what the engine did."
        )
    return values
