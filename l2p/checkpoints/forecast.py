"""Forecasts of the gain that a budget buys on a table of public shape, from results on tables that nobody trained on.
No private row is read.

A budget resolves a table by log(mu N / sensitivity_factor) (`Setup.log_signal`); `l2p.checkpoints.reachable_gain` holds
the share of the reachable gain that such a budget bought elsewhere.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

from l2p.base.errors import InputError
from l2p.checkpoints import checkpoint, lookup
from l2p.checkpoints.control import control_of
from l2p.checkpoints.defaults import default_protector
from l2p.checkpoints.method_name import MethodName
from l2p.checkpoints.ranges import outside, range_of
from l2p.checkpoints.reachable_gain import MEASURED, measured
from l2p.checkpoints.signal import epsilon_for, log_signal, rows_for
from l2p.models import MODELS, Softmax, find_model, plain_name
from l2p.privacy.budget import Budget
from l2p.privacy.rounded import rounded

#: Share of the reachable gain from which a protector beats the best constant prediction, and is not merely level.
BEATS = 0.02


@dataclasses.dataclass(frozen=True)
class Forecast:
    """Forecast of one protector at one budget.

    Attributes:
      name: of the checkpoint.
      accountant: the default of a run.
      log_signal: log(mu N / sensitivity_factor).
      noise: standard deviation of the noise on a mean over the table if the whole budget went into it, for rows of norm
        at most 1.
      share: of the gain in test loss that training without privacy has over the best constant prediction, 10, 50 and
        90 % quantiles on tables that nobody trained on; below 0 the constant is better. None if not measured.
      least_epsilon: smallest epsilon from which it beats the constant on nine of ten such tables, for these rows and
        this delta; None if there is none.
      least_rows: fewest rows from which it does at this budget; None if there is no such number, or delta would not be
        below 1/N.
      most_epsilon: the epsilon that reaches the upper end of the trained range; None without a range.
      fits_features: whether the number of features is in the trained range.
      in_range: whether log_signal is in it, too.
      warnings: sentences on its range.
    """

    name: str
    accountant: str
    log_signal: float
    noise: float
    share: tuple[float, float, float] | None
    least_epsilon: float | None
    least_rows: int | None
    most_epsilon: float | None
    fits_features: bool
    in_range: bool
    warnings: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Outlook:
    """The protector that `l2p apply` takes for one table and budget, with forecasts of it and of the others.

    Attributes:
      majority: share of the commonest class, a public guess; None if none was made.
      recommended: name of the default protector for this model and target, which `forecasts` begin with.
      warnings: sentences on the budget and on that protector here.
      notes: how to read the figures.
    """

    rows: int
    features: int
    model: str
    classes: int | None
    majority: float | None
    budget: Budget
    recommended: str
    forecasts: tuple[Forecast, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]


def plan(
    rows: int,
    features: int,
    budget: Budget,
    model: str = "logistic",
    classes: int | None = None,
    protector: str | None = None,
    majority: float | None = None,
) -> Outlook:
    """The results to expect of a budget, from public facts alone.

    Args:
      rows: N, public.
      features: number of them, public.
      budget: to forecast for.
      model: name of the model.
      classes: how many the target has, if it is a class; None for the model's own kind of target.
      protector: the one to plan for; None for the default.
      majority: share of the commonest class, a guess from public knowledge; None for a range from .95 to even classes.

    Raises:
      InputError: a table without rows or features, a delta that is vacuous for it, an unknown model, classes that it
        does not have, or a share that no commonest class can have.

    >>> plan(30_000, 100, Budget(1.0, 1e-6)).recommended
    'universal'
    """
    budget.check_rows(rows)
    if features < 1:
        raise InputError(f"features is {features}, but a model learns from at least one; count the table's columns.")
    plain, classes = _target(model, classes)
    _check_majority(majority, classes)
    recommended = protector or default_protector(plain)
    model_name = _priced(plain, classes)
    cards = {recommended: _card(recommended, model_name, budget, rows)}
    for name in checkpoint.first_floor():
        if name != recommended and plain in checkpoint.load(name).card["models"]:
            cards[name] = _card(name, model_name, budget, rows)
    forecasts = [
        forecast(name, card, accountant, model, rows, features, budget, classes, majority)
        for name, (card, accountant) in cards.items()
    ]
    first = forecasts[0]
    warnings = (*budget.warnings(), *first.warnings, *_too_little(first, rows, budget))
    notes = tuple(_notes()) if any(forecast.share for forecast in forecasts) else ()
    return Outlook(rows, features, model, classes, majority, budget, recommended, tuple(forecasts), warnings, notes)


def at_budget(outlook: Outlook, budget: Budget) -> Forecast:
    """The forecast of the protector that was planned for at another budget, all else being equal."""
    plain, classes = _target(outlook.model, outlook.classes)
    name = outlook.recommended
    card, accountant = _card(name, _priced(plain, classes), budget, outlook.rows)
    table = outlook.model, outlook.rows, outlook.features
    return forecast(name, card, accountant, *table, budget, classes, outlook.majority)


def _priced(plain: str, classes: int | None) -> str:
    """A model's name as it is found by; the number of a softmax's classes changes no price."""
    return f"{plain}:{classes or 2}" if plain == Softmax.name else plain


def _target(model: str, classes: int | None) -> tuple[str, int | None]:
    """The plain model, and how many classes its target has; None for a number, and for a softmax that does not say."""
    plain, _, suffix = model.partition(":")
    plain_name(model)
    if plain == Softmax.name:
        count = classes or (int(suffix) if suffix else None)
        return plain, None if count is None else len(find_model(model, count).labels)
    if classes is None:
        return plain, 2 if MODELS[plain].kind(None) == "binary" else None
    if MODELS[plain].kind((0.0,) * classes) == "regression":
        raise InputError(f"model {model} predicts numbers, which have no classes; leave out --classes.")
    if classes != 2:
        raise InputError(f"model {model} tells 2 classes apart, not {classes}; use --model {Softmax.name}.")
    return plain, classes


def _check_majority(majority: float | None, classes: int | None) -> None:
    if majority is None:
        return
    if classes is None:
        raise InputError(
            "majority is the share of the commonest class, but no number of classes is given; leave it out."
        )
    if not 1 / classes <= majority < 1:
        raise InputError(
            f"majority is {majority:g}, but the commonest of {classes} classes has at least 1/{classes} of the rows, "
            "and fewer than all; give its share as far as it is publicly known, such as 0.9."
        )


def _card(name: str, model: str, budget: Budget, rows: int) -> tuple[Mapping[str, Any], str]:
    """The card of a protector, empty without one, and the accountant it runs with."""
    method = lookup.resolve(name, budget, model, num_rows=rows)
    card = checkpoint.load(MethodName.parse(name).base).card if method.sha256 is not None else {"range": method.range}
    return card, method.accountant


def forecast(
    name: str,
    card: Mapping[str, Any],
    accountant: str,
    model: str,
    rows: int,
    features: int,
    budget: Budget,
    classes: int | None = None,
    majority: float | None = None,
) -> Forecast:
    """One protector's forecast; without a measurement it holds only what the budget and the trained range decide."""
    signal, trained = log_signal(accountant, budget, rows), range_of(card) or {}
    signals, sizes = (trained.get(key, (-math.inf, math.inf)) for key in ("log_signal", "num_features"))
    fits = sizes[0] <= features <= sizes[1]
    table = {"log_signal": signal, "num_features": features} | ({"num_classes": classes} if classes else {})
    warnings = outside(trained, table, accountant, budget, rows)
    control = control_of(card) if card.get("name") else None
    if control is not None and (warnings or control.is_level(signal, model)):
        warnings.append(f"Its control {control.name} would run instead: the same constants without the networks.")
    share = target = None
    if _is_measured(name):
        curve = measured().curve
        share, target = curve.share(signal, classes, majority), curve.least_signal(BEATS, classes, majority)
    return Forecast(
        name,
        accountant,
        signal,
        math.exp(-signal),
        share,
        None if target is None else epsilon_for(target, accountant, budget, rows),
        None if target is None else rows_for(target, accountant, budget),
        epsilon_for(signals[1], accountant, budget, rows) if math.isfinite(signals[1]) else None,
        fits,
        fits and signals[0] <= signal <= signals[1],
        tuple(warnings),
    )


def _is_measured(name: str) -> bool:
    """True if a protector is the measured one or its control."""
    control = control_of(checkpoint.load(MEASURED).card) if checkpoint.find(MEASURED) else None
    return name == MEASURED or (control is not None and name == control.name)


def _notes() -> Iterator[str]:
    """Sentences on how to read forecasts."""
    basis = measured()
    yield (
        "Share of the gain in test loss that training without privacy has over the best constant prediction: median, "
        f"and the range of 8 in 10 runs, on {basis.tables} public tables, each with a protector that never saw it. "
        "100 % is as good as without privacy, and below 0 the constant is better. Ranges that were made without a "
        f"table held {100 * basis.covered:.0f} % of its runs. A table whose features say nothing has nothing to "
        "gain, which no forecast can know."
    )
    yield "A budget is enough where nine of ten such runs beat the best constant prediction."


def _too_little(first: Forecast, rows: int, budget: Budget) -> Iterator[str]:
    """A sentence if a protector's low forecast does not beat the best constant prediction at a budget."""
    if first.share is None or (first.least_epsilon is not None and first.least_epsilon <= budget.epsilon):
        return
    or_rows = f", or {first.least_rows:,} rows at this epsilon" if first.least_rows else ""
    takes = (
        "" if first.least_epsilon is None else f"; it takes epsilon {rounded(first.least_epsilon, up=True)}{or_rows}"
    )
    yield (
        f"Epsilon {budget.epsilon:g} is too little for {rows:,} rows: on more than one table in ten {first.name} "
        f"would end no better than the best constant prediction{takes}."
    )
