"""What a budget buys on a table of public shape, by the meta-tests on checkpoints' cards: no private row is read.

log(mu N / sensitivity_factor) says how well a budget resolves a table (`Setup.log_signal`); a meta-test says what a
protector achieved at each value of it, on public tasks.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np

from l2p.checkpoints import checkpoint, lookup
from l2p.checkpoints.control import control_of
from l2p.errors import InputError
from l2p.models import plain_name
from l2p.privacy.budget import Budget
from l2p.rounded import rounded
from l2p.signal import epsilon_for, log_signal, rows_for

#: A protector beats the majority model at a budget if it was more accurate on this share of meta-test tasks.
RULE = 0.9
#: Median shares of the gap closer than this are level: so much comes from which tasks were drawn.
NEAR = 0.03


@dataclasses.dataclass(frozen=True)
class Forecast:
    """What is known of one protector at one budget; accuracies are shares, triples are 10, 50 and 90 % quantiles.

    Attributes:
      name: of the checkpoint.
      accountant: that a run uses unless told otherwise.
      log_signal: log(mu N / sensitivity_factor).
      noise: standard deviation of the noise on a mean over the table, were the whole budget spent on it, for rows of
        norm at most 1.
      accuracy: on the meta-test's test rows; None where nothing was measured.
      gain: accuracy over that of the majority class; None likewise.
      share_of_gap: that gain over what a model fitted without privacy gains, which makes meta-tests on different
        data comparable; None likewise.
      beat_trivial: share of meta-test tasks with a gain above 0; None likewise.
      least_epsilon: from here on it beats the majority model by `RULE`, for this table and delta; None if never.
      least_rows: from here on it does at this budget; None if never, or where delta would not be below 1/N.
      most_epsilon: reaches the upper end of the trained range; None without one.
      fits_features: whether the number of features is in the trained range.
      in_range: whether log_signal is, too.
      warnings: sentences.
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
    """Every protector for one table and budget, the one to take (None if none will do), why, and how to read it."""

    rows: int
    features: int
    model: str
    budget: Budget
    forecasts: tuple[Forecast, ...]
    recommended: str | None
    advice: str
    notes: tuple[str, ...]


def plan(rows: int, features: int, budget: Budget, model: str = "logistic") -> Plan:
    """What each protector that users need may be expected to achieve, from cards alone.

    Args:
      rows: N, public.
      features: number of them, public.
      budget: what would be spent.
      model: name of the model.

    Raises:
      InputError: a table without rows or features, a delta that is vacuous for it, or an unknown model.

    >>> found = plan(30_000, 100, Budget(1.0, 1e-6))
    >>> [forecast.name for forecast in found.forecasts if forecast.name == found.recommended] == [found.recommended]
    True
    """
    budget.check_rows(rows)
    if features < 1:
        raise InputError(f"features is {features}, but a model learns from at least one; count the table's columns.")
    loaded = {name: checkpoint.load(name) for name in checkpoint.first_floor()}
    found = {name: one for name, one in loaded.items() if plain_name(model) in one.card["models"]}
    forecasts = []
    for name, one in found.items():
        accountant = lookup.describe(one.protector, name, model, one.card.get("accountant")).accountant
        forecasts.append(forecast(name, one.card, accountant, rows, features, budget))
    meta_tests = [one.card["meta_test"] for one in found.values() if "meta_test" in one.card]
    notes = tuple(_notes(meta_tests, rows)) if meta_tests else ()
    recommended, advice = _advise(forecasts, rows, features, budget)
    if not found:
        advice = (
            f"None recommended: no checkpoint ships for model {model}; use a hand-designed method (l2p protectors "
            "names them), or meta-train one with l2p meta-train."
        )
    elif not meta_tests:
        advice = (
            f"None recommended: no protector for {model} has a meta-test on its card, so nothing is known of them; run "
            "l2p compare on public data that resembles yours."
        )
    return Plan(rows, features, model, budget, tuple(forecasts), recommended, advice, notes)


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


def forecast(name: str, card: Mapping[str, Any], accountant: str, rows: int, features: int, budget: Budget) -> Forecast:
    """One protector's forecast from its card; without a `meta_test` on it, nothing but how far the budget reaches."""
    signal, figures, trained = log_signal(accountant, budget, rows), card.get("meta_test"), card.get("range") or {}
    keys = "accuracy", "gain", "share_of_gap", "beat_trivial"
    accuracy, gain, share, beat = (figures and at(figures, signal, key) for key in keys)
    target = crossing(figures) if figures else None
    signals, sizes = (trained.get(key, (-math.inf, math.inf)) for key in ("log_signal", "num_features"))
    fits, reaches = sizes[0] <= features <= sizes[1], signals[0] <= signal <= signals[1]
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
        fits and reaches,
        tuple(_warnings(signal, features, signals, sizes, card)),
    )


def _centres(figures: Mapping[str, Any]) -> list[float]:
    return [sum(band["log_signal"]) / 2 for band in figures["bands"]]


def _warnings(
    signal: float, features: int, signals: Sequence[float], sizes: Sequence[float], card: Mapping[str, Any]
) -> Iterator[str]:
    if "meta_test" not in card:
        yield "its card holds no meta-test (tasks with classes get one: python -m meta_train.evaluation.meta_test)."
    reaches, fits = signals[0] <= signal <= signals[1], sizes[0] <= features <= sizes[1]
    if not reaches:
        side = "below" if signal < signals[0] else "above"
        yield (
            f"log(mu N) is {signal:.2f}, {side} the {signals[0]:g} to {signals[1]:g} that it was made for; the "
            "guarantee would hold all the same, but accuracy may be poor."
        )
    if not fits:
        yield f"{features} features are outside the {sizes[0]:g} to {sizes[1]:g} that it was made for."
    control = control_of(card)
    if control is not None and (not (reaches and fits) or control.is_level(signal)):
        yield f"Its control {control.name} would run instead."


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


def _advise(forecasts: Sequence[Forecast], rows: int, features: int, budget: Budget) -> tuple[str | None, str]:
    """Of those in range that beat the majority model, the one that comes closest to no privacy, and a sentence."""
    able = [one for one in forecasts if one.in_range and one.least_epsilon and one.least_epsilon <= budget.epsilon]
    shares = {one.name: one.share_of_gap[1] for one in able if one.share_of_gap is not None}
    if shares:
        best = max(shares, key=lambda name: shares[name])
        level = [name for name, share in shares.items() if name != best and share >= shares[best] - NEAR]
        also = f"; within {100 * NEAR:g} % of it: {', '.join(level)}" if level else ""
        return best, (
            f"Recommended: {best}, which in the median comes closest, of those in their range, to what a model fitted "
            f"without privacy gains ({100 * shares[best]:.0f} %){also}."
        )
    fitting = [one for one in forecasts if one.fits_features]
    if not fitting:
        return None, (
            f"None recommended: no protector for this model was made for {features} features; keep the most telling "
            "ones, chosen without these rows, or meta-train one with l2p meta-train."
        )
    enough = [one.most_epsilon for one in fitting if one.most_epsilon is not None]
    if len(enough) == len(fitting) and budget.epsilon > max(enough):
        return None, (
            "None recommended: this budget resolves the table better than any task that a protector was made for; "
            f"epsilon {rounded(min(enough), up=False)} reaches the end of what was measured, and spends less."
        )
    return None, f"None recommended: no protector beats the majority model here. {_help(fitting, rows, budget)}"


def _help(fitting: Sequence[Forecast], rows: int, budget: Budget) -> str:
    """What it would take for the least demanding protector."""
    helps = [one for one in fitting if one.least_epsilon is not None]
    if not helps:
        return "None of them does so at any budget that was measured."
    first = min(helps, key=lambda one: cast(float, one.least_epsilon))
    more = f", or at least {first.least_rows:,} rows at epsilon {budget.epsilon:g}" if first.least_rows else ""
    least = rounded(cast(float, first.least_epsilon), up=True)
    return f"What would help: epsilon >= {least} on these {rows:,} rows{more} ({first.name})."
