"""What a budget buys on a table of public shape, from the meta-tests on checkpoint cards; no private row is read.

log(mu N / sensitivity_factor) says how well a budget resolves a table (`Setup.log_signal`); a meta-test says what a
protector achieved at each value of it, on public tasks.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from l2p.checkpoints import checkpoint, lookup
from l2p.checkpoints.control import control_of
from l2p.checkpoints.defaults import default_protector
from l2p.checkpoints.method_name import MethodName
from l2p.checkpoints.ranges import outside, range_of
from l2p.checkpoints.signal import epsilon_for, log_signal, rows_for
from l2p.errors import InputError
from l2p.models import MODELS, Softmax, find_model, plain_name
from l2p.privacy.budget import Budget
from l2p.privacy.rounded import rounded

#: A protector beats the majority model at a budget if it was more accurate on this share of meta-test tasks.
RULE = 0.9


@dataclasses.dataclass(frozen=True)
class Forecast:
    """What is known of one protector at one budget; accuracies are shares, triples are 10, 50 and 90 % quantiles.

    Attributes:
      name: of the checkpoint.
      accountant: the default of a run.
      log_signal: log(mu N / sensitivity_factor).
      noise: standard deviation of the noise on a mean over the table if the whole budget went into it, for rows of norm
        at most 1.
      accuracy: on the meta-test's test rows; None if not measured.
      gain: accuracy minus that of the majority class; None if not measured.
      share_of_gap: that gain divided by the gain of a model fitted without privacy, which makes meta-tests on different
        data comparable; None if not measured.
      beat_trivial: share of meta-test tasks with a gain above 0; None if not measured.
      least_epsilon: smallest epsilon from which it beats the majority model by `RULE`, for this table and delta; None
        if there is none.
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
    accuracy: tuple[float, ...] | None
    gain: tuple[float, ...] | None
    share_of_gap: tuple[float, ...] | None
    beat_trivial: float | None
    least_epsilon: float | None
    least_rows: int | None
    most_epsilon: float | None
    fits_features: bool
    in_range: bool
    warnings: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Plan:
    """The protector that `l2p apply` takes for one table and budget, and what is known of it and of the others.

    Attributes:
      recommended: name of the default protector for this model and target, which `forecasts` begin with.
      warnings: sentences on the budget and on that protector here.
      notes: how to read the figures.
    """

    rows: int
    features: int
    model: str
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
) -> Plan:
    """What a budget may be expected to achieve, from cards alone.

    Args:
      rows: N, public.
      features: number of them, public.
      budget: what would be spent.
      model: name of the model.
      classes: how many the target has, if it is a class; None for the model's own kind of target.
      protector: the one to plan for; None for the default.

    Raises:
      InputError: a table without rows or features, a delta that is vacuous for it, an unknown model, or classes that it
        does not have.

    >>> plan(30_000, 100, Budget(1.0, 1e-6)).recommended
    'universal'
    """
    budget.check_rows(rows)
    if features < 1:
        raise InputError(f"features is {features}, but a model learns from at least one; count the table's columns.")
    plain, classes = _target(model, classes)
    chosen = protector or default_protector(plain)
    # How many classes a softmax has changes no price.
    named = f"{plain}:{classes or 2}" if plain == Softmax.name else plain
    found = {chosen: _known(chosen, named, budget, rows)}
    for name in checkpoint.first_floor():
        if name != chosen and plain in checkpoint.load(name).card["models"]:
            found[name] = _known(name, named, budget, rows)
    forecasts = [forecast(name, card, by, model, rows, features, budget, classes) for name, (card, by) in found.items()]
    meta_tests = [figures for card, _ in found.values() if (figures := as_deployed(card, plain))]
    notes = tuple(_notes(meta_tests, rows)) if meta_tests else ()
    first = forecasts[0]
    warnings = (*budget.warnings(), *first.warnings, *_too_little(first, rows, budget))
    return Plan(rows, features, model, budget, chosen, tuple(forecasts), warnings, notes)


def _target(model: str, classes: int | None) -> tuple[str, int | None]:
    """The plain model, and how many classes its target has if that is known."""
    plain, _, given = model.partition(":")
    plain_name(model)
    if plain == Softmax.name:
        count = classes or (int(given) if given else None)
        return plain, None if count is None else len(find_model(model, count).labels)
    if classes is None:
        return plain, None
    if MODELS[plain].kind((0.0,) * classes) == "regression":
        raise InputError(f"model {model} predicts numbers, which have no classes; leave out --classes.")
    if classes != 2:
        raise InputError(f"model {model} tells 2 classes apart, not {classes}; use --model {Softmax.name}.")
    return plain, classes


def _known(name: str, model: str, budget: Budget, rows: int) -> tuple[Mapping[str, Any], str]:
    """The card of a protector, empty without one, and the accountant it runs with."""
    found = lookup.resolve(name, budget, model, num_rows=rows)
    card = checkpoint.load(MethodName.parse(name).base).card if found.sha256 is not None else {"range": found.range}
    return card, found.accountant


def meta_test_of(card: Mapping[str, Any], model: str) -> Mapping[str, Any] | None:
    """The meta-test on a card for a model by its plain name; None without one."""
    return card.get("meta_tests", {}).get(model, card.get("meta_test"))


def as_deployed(card: Mapping[str, Any], model: str) -> Mapping[str, Any] | None:
    """`meta_test_of`, with the figures of the control in bands in whose middle it runs instead, where it has any."""
    figures, control = meta_test_of(card, model), control_of(card) if card.get("name") else None
    if figures is None or control is None:
        return figures
    instead = meta_test_of(checkpoint.load(control.name).card, model)
    if instead is None or _centres(instead) != _centres(figures):
        return figures
    pairs = zip(_centres(figures), figures["bands"], instead["bands"], strict=True)
    return {**figures, "bands": [its if control.is_level(centre, model) else own for centre, own, its in pairs]}


def at(figures: Mapping[str, Any], signal: float, name: str) -> list[float] | None:
    """A meta-test's figure at log_signal `signal`, linear between the centres of bands; None outside all bands.

    >>> bands = [{"log_signal": [0, 2], "gain": [0.0, 0.1]}, {"log_signal": [2, 4], "gain": [0.2, 0.3]}]
    >>> at({"bands": bands}, 1.5, "gain"), at({"bands": bands}, 4.5, "gain")
    ([0.05, 0.15], None)
    """
    centres, bands = _centres(figures), figures["bands"]
    if not bands[0]["log_signal"][0] <= signal <= bands[-1]["log_signal"][1]:
        return None
    columns = np.array([np.atleast_1d(band[name]) for band in bands]).T
    return [float(np.interp(signal, centres, column)) for column in columns]


def crossing(figures: Mapping[str, Any]) -> float | None:
    """The log_signal from which on `beat_trivial` stays at `RULE` or above; None if it ends below.

    >>> ends = [[0, 2], [2, 4], [4, 6]]
    >>> shares = [0.2, 0.8, 1.0]
    >>> bands = [{"log_signal": end, "beat_trivial": share} for end, share in zip(ends, shares, strict=True)]
    >>> round(crossing({"bands": bands}), 6)
    4.0
    """
    centres = _centres(figures)
    shares = [band["beat_trivial"] for band in figures["bands"]]
    short = [index for index, share in enumerate(shares) if share < RULE]
    if not short:
        return float(centres[0])
    last = short[-1]
    if last + 1 == len(shares):
        return None
    return float(np.interp(RULE, shares[last : last + 2], centres[last : last + 2]))


def forecast(
    name: str,
    card: Mapping[str, Any],
    accountant: str,
    model: str,
    rows: int,
    features: int,
    budget: Budget,
    classes: int | None = None,
) -> Forecast:
    """One protector's forecast from its checkpoint card; without a meta-test there, it only says how far the budget
    reaches."""
    signal, figures = log_signal(accountant, budget, rows), as_deployed(card, plain_name(model))
    trained = range_of(card) or {}
    keys = "accuracy", "gain", "share_of_gap", "beat_trivial"
    accuracy, gain, share, beat = (at(figures, signal, key) if figures else None for key in keys)
    target = crossing(figures) if figures else None
    signals, sizes = (trained.get(key, (-math.inf, math.inf)) for key in ("log_signal", "num_features"))
    fits = sizes[0] <= features <= sizes[1]
    here = {"log_signal": signal, "num_features": features} | ({"num_classes": classes} if classes else {})
    warnings = outside(trained, here, accountant, budget, rows)
    control = control_of(card) if card.get("name") else None
    if control is not None and (warnings or control.is_level(signal, model)):
        warnings.append(f"Its control {control.name} would run instead: the same constants without the networks.")
    return Forecast(
        name,
        accountant,
        signal,
        math.exp(-signal),
        tuple(accuracy) if accuracy else None,
        tuple(gain) if gain else None,
        tuple(share) if share else None,
        beat[0] if beat else None,
        None if target is None else epsilon_for(target, accountant, budget, rows),
        None if target is None else rows_for(target, accountant, budget),
        epsilon_for(signals[1], accountant, budget, rows) if math.isfinite(signals[1]) else None,
        fits,
        fits and signals[0] <= signal <= signals[1],
        tuple(warnings),
    )


def _centres(figures: Mapping[str, Any]) -> list[float]:
    return [sum(band["log_signal"]) / 2 for band in figures["bands"]]


def _notes(meta_tests: Sequence[Mapping[str, Any]], rows: int) -> Iterator[str]:
    """How to read forecasts made from these meta-tests."""
    tasks: dict[str, set[int]] = {}
    for figures in meta_tests:
        tasks.setdefault(figures["data"], set()).add(figures["tasks"])
    least = min(figures["least_gain"] for figures in meta_tests)
    counts = "; ".join(f"{data}: {' or '.join(map(str, sorted(some)))}" for data, some in tasks.items())
    yield (
        "Accuracy (%) and gain (points) are median and 10 to 90 % range over tasks made from the data that a protector "
        f"was meta-trained on (tasks by source: {counts}), on each of which a model fitted without privacy beats the "
        f"trivial one (the majority class) by more than {100 * least:g} points. Other data can give more or less: this "
        "is no promise, and figures from different sources do not compare."
    )
    yield f"A protector beats the majority model if it was more accurate on at least {100 * RULE:g} % of these tasks."
    most = max(figures["train_rows"] for figures in meta_tests)
    if rows < most:
        yield (
            f"These tasks have up to {most} rows to learn from; with {rows}, chance in the table itself adds to the "
            "noise, so expect less."
        )


def _too_little(found: Forecast, rows: int, budget: Budget) -> Iterator[str]:
    """Where a protector is not known to beat the majority class at a budget."""
    if found.gain is None or (found.least_epsilon is not None and found.least_epsilon <= budget.epsilon):
        return
    if found.least_epsilon is None:
        yield f"{found.name} beat the majority class on too few of its test tasks, whatever the budget."
        return
    more = f", or {found.least_rows:,} rows at this epsilon" if found.least_rows else ""
    yield (
        f"Epsilon {budget.epsilon:g} is too little for {rows:,} rows: {found.name} beat the majority class on too few "
        f"of its test tasks; it takes epsilon {rounded(found.least_epsilon, up=True)}{more}."
    )
