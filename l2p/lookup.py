"""What a method's name stands for: a hand-designed one or a checkpoint, checked to fit what it is asked for."""

import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from l2p.checkpoint import TUNED, find, load, names, read_card
from l2p.errors import InputError
from l2p.models import find_model, plain_name
from l2p.oracle import Setup
from l2p.privacy.budget import Budget
from l2p.privacy.filter import Filter, default_accountant
from l2p.privacy.sampling import Poisson, Sampler
from l2p.protector import Protector
from l2p.protectors import HAND_DESIGNED
from l2p.tunable import with_tuned

#: Begins the names of checkpoints that hold constants alone.
CONTROL = "control"
#: A name, and the sampling rate that is asked of it.
_AT_RATE = re.compile(r"(.+)@(\d*\.?\d+(?:e-?\d+)?)")


@dataclasses.dataclass(frozen=True)
class Control:
    """The constants that a protector's networks were put on, by the name of their checkpoint.

    Attributes:
      name: of the checkpoint.
      idle: intervals [low, high) of log(mu N) in which the networks gained nothing on fresh held-out tasks, or lost on
        those of one source.
    """

    name: str
    idle: tuple[tuple[float, float], ...] = ()

    def is_level(self, log_signal: float) -> bool:
        """Whether the networks are known to gain nothing over these constants at a budget."""
        return any(low <= log_signal < high for low, high in self.idle)


@dataclasses.dataclass(frozen=True)
class Resolved:
    """A protector and what is known of it.

    Attributes:
      name: as the user called it.
      protector: ready to run.
      accountant: the one asked for, else its checkpoint's, else the tightest that prices its queries.
      sources: public data sets it was made from; None if unknown.
      sha256: of its checkpoint; None without one.
      range: {log_signal: [low, high], num_features: [low, high]} that it was made for; None if unlimited or unknown.
      control: the constants that its networks were put on; None without any that ship.
    """

    name: str
    protector: Protector
    accountant: str
    sources: tuple[str, ...] | None = None
    sha256: str | None = None
    range: dict[str, list[float]] | None = None
    control: Control | None = None

    def filter(self, budget: Budget) -> Filter:
        """What will stop its runs within `budget`; `InputError` if no theorem covers it, or it asks without noise."""
        filter = Filter(self.accountant, budget, self.protector.sampler, self.protector.num_steps)
        if self.protector.adaptive_noise and not filter.accountant.adaptive:
            raise InputError(
                f"accountant {self.accountant!r} certifies noise that is fixed beforehand, but that of protector "
                f"{self.name!r} depends on earlier answers, for which it proves nothing; choose 'rdp'."
            )
        for mechanism in self.protector.mechanisms:
            filter.prices(mechanism, np.ones(1), sampled=True)
        if "none" in self.protector.mechanisms:
            raise InputError(
                f"protector {self.name!r} answers without noise, which no finite budget pays for; choose a private one."
            )
        return filter


def resolve(
    name: str,
    budget: Budget,
    model: str,
    accountant: str | None = None,
    aux: str | None = None,
    avoid: Sequence[str] = (),
    num_rows: int | None = None,
) -> Resolved:
    """The protector that `name` stands for, checked to train `model`.

    Args:
      name: a hand-designed method, a checkpoint's name or file, or METHOD:tuned; `minibatch@0.02` for the checkpoint
        `minibatch` on Poisson batches of a rate of one's own, if it was made for more than one.
      budget: what hand-designed methods set themselves up for.
      model: name of the model.
      accountant: overrides the protector's own.
      aux: for METHOD:tuned, the public data set that it was tuned on; None takes any that is not in `avoid`.
      avoid: data sets that it must not be made from, because it is to be scored on them.
      num_rows: N, for hand-designed methods that set up batches; None to check names and options only.

    Raises:
      InputError: unknown name or model, no checkpoint tuned on such a set, a protector that does not fit, or a sampling
        rate for one that draws batches as it was made to.

    >>> resolve("agd", Budget(0.1, 1e-8), "logistic").accountant
    'rdp'
    """
    if sampled := _AT_RATE.fullmatch(name):
        return _at_rate(resolve(sampled[1], budget, model, accountant, aux, avoid, num_rows), name, float(sampled[2]))
    if name in HAND_DESIGNED:
        method = HAND_DESIGNED[name]
        method.check(name, budget, accountant)
        protector = method(budget, model, num_rows, accountant)
        return describe(protector, name, model, accountant or method.accountant, sources=())
    method = HAND_DESIGNED.get(name.removesuffix(TUNED)) if name.endswith(TUNED) else None
    if method is not None:
        method.check(name, budget, accountant)
    loaded = load(_tuned(name, model, aux, avoid) if name.endswith(TUNED) else name)
    card, protector = loaded.card, loaded.protector
    if shared := [source for source in card["sources"] if overlaps(source, avoid)]:
        raise InputError(
            f"protector {name!r} was made from {', '.join(shared)}, so its score there would flatter it; choose "
            "another protector or data set."
        )
    if plain_name(model) not in card["models"]:
        raise _misfit(name, card["models"], model)
    chosen = accountant or card.get("accountant")
    config = card.get("config", {})
    if method is not None and config.get("coefficients") is not None:
        # What was tuned, in the method as it sets itself up for this run's budget and size.
        protector = with_tuned(method(budget, model, num_rows, chosen), protector)
        if config.get("num_steps") is not None:
            protector = dataclasses.replace(cast(Any, protector), num_steps=config["num_steps"])
    found = describe(protector, name, model, chosen, tuple(card["sources"]))
    return dataclasses.replace(found, sha256=loaded.sha256, range=range_of(card), control=control_of(card))


def _at_rate(found: Resolved, name: str, sampling_rate: float) -> Resolved:
    """A protector on batches of another rate than it ships with."""
    if "sampling_rate" not in (found.range or {}):
        raise InputError(
            f"protector {found.name!r} was made for batches as it draws them, and its settings are for these; leave "
            f"out what follows @ in {name!r}, or choose a protector with a range of sampling rates on its card."
        )
    return dataclasses.replace(found, name=name, protector=_drawing(Poisson(sampling_rate), found.protector))


def _drawing(sampler: Sampler, protector: Protector) -> Protector:
    """`protector` whose steps draw other batches."""
    return dataclasses.replace(cast(Any, protector), sampler=sampler)


def control_of(card: Mapping[str, Any]) -> Control | None:
    """The control that a protector was warm-started from, if it still is the one that ships under its name.

    A control has none, whatever it was warm-started from: it has no networks to do without.
    """
    name = card.get("config", {}).get("warm_start")
    if name is None or not name.startswith(CONTROL) or card["name"].startswith(CONTROL) or find(name) is None:
        return None
    control = load(name)
    # Older cards know the control's file, card and all, which a meta-test changes; later ones know its parameters.
    then, now = card.get("warm_start_sha256"), control.sha256
    if "warm_start_arrays_sha256" in card:
        then, now = card["warm_start_arrays_sha256"], control.arrays_sha256
    if then != now:
        return None
    gains = card.get("held_out", {}).get("gains")
    return Control(name) if gains is None else Control(name, _idle(gains))


def _idle(gains: Mapping[str, Any]) -> tuple[tuple[float, float], ...]:
    """Bands of log(mu N) in which networks gained nothing over all fresh tasks, or lost on those of one source."""
    means, errors = np.array(gains["mean"]), np.array(gains["standard_error"])
    idle = means <= 2 * errors
    for source in gains.get("by_source", {}).values():
        idle |= np.array(source["mean"]) < -2 * np.array(source["standard_error"])
    return tuple(band for band, is_idle in zip(itertools.pairwise(gains["log_signal"]), idle, strict=True) if is_idle)


def stand_in(resolved: Resolved) -> Resolved | None:
    """What runs where nothing speaks for a protector's networks: the constants they were put on; None without any."""
    if resolved.control is None:
        return None
    loaded, sampler = load(resolved.control.name), resolved.protector.sampler
    return Resolved(
        resolved.control.name,
        loaded.protector if loaded.protector.sampler == sampler else _drawing(sampler, loaded.protector),
        resolved.accountant,
        tuple(loaded.card["sources"]),
        loaded.sha256,
        range_of(loaded.card),
    )


def describe(
    protector: Protector, name: str, model: str, accountant: str | None = None, sources: tuple[str, ...] | None = None
) -> Resolved:
    """A protector in memory, checked to train `model`; without an accountant, with the tightest that applies.

    Raises:
      InputError: the model is unknown, its proof does not cover it, or nothing is known of it there.
    """
    protector.check(find_model(model))
    if plain_name(model) not in protector.models:
        raise _misfit(name, protector.models, model)
    chosen = accountant or default_accountant(protector.mechanisms, protector.sampler)
    return Resolved(name, protector, chosen, sources)


def tuned_name(method: str, model: str, aux: str) -> str:
    """Name of the checkpoint of a method tuned on a public set.

    >>> tuned_name("agd", "logistic", "mnist:4,6")
    'agd-tuned-logistic-mnist-4,6'
    """
    return f"{method}-tuned-{plain_name(model)}-{aux.replace(':', '-')}"


def _tuned(name: str, model: str, aux: str | None, avoid: Sequence[str]) -> str:
    """Name of the checkpoint METHOD-tuned-MODEL-AUX that fits."""
    method = name.removesuffix(TUNED)
    shipped = [found for found in names() if found.startswith(tuned_name(method, model, ""))]
    for found in shipped if aux is None else [tuned_name(method, model, aux)]:
        path = find(found)
        if path is not None and not any(overlaps(source, avoid) for source in read_card(path)["sources"]):
            return found
    wanted = ("" if aux is None else f" on {aux}") + (f" without {', '.join(avoid)}" if avoid else "")
    raise InputError(
        f"there is no {name!r} for model {model!r} tuned{wanted}; shipped are {', '.join(shipped) or 'none'}: "
        "choose another method, or tune it with l2p meta-train."
    )


def overlaps(source: str, avoid: Sequence[str]) -> bool:
    """Whether `source` shares rows with a set to avoid: the same table, and a digit that both keep of it.

    >>> [overlaps("mnist:4,6", [other]) for other in ("mnist", "mnist:6,4", "mnist:6,9", "mnist:3,5", "digits")]
    [True, True, True, False, False]
    >>> overlaps("mnist:rest:3,5", ["mnist:5,3"]), overlaps("mnist:rest:3,5:features:9", ["mnist:4,6"])
    (False, True)
    """
    table, digits = _kept(source)
    return any(table == other and digits & others for other, others in map(_kept, avoid))


def _kept(name: str) -> tuple[str, frozenset[str]]:
    """The table that a public set is part of, and which digits it keeps of it; of a table without digits, all."""
    table, _, part = name.partition(":")
    every, named = frozenset("0123456789"), frozenset(re.findall(r"\d", part.partition("features")[0]))
    if not named:
        return table, every
    return table, every - named if part.startswith("rest:") else named


def _misfit(name: str, models: Sequence[str], model: str) -> InputError:
    return InputError(
        f"protector {name!r} was made for {', '.join(models)}, not for {model}, where nothing is known of its "
        "accuracy; choose another protector or model."
    )


def range_of(card: Mapping[str, Any]) -> dict[str, list[float]] | None:
    """What a protector was made for, by a card's `range`; for how many classes, else, by the model its config names.

    >>> range_of({"range": {"num_features": [64, 288]}, "config": {"model": "softmax:10"}})
    {'num_features': [64, 288], 'num_classes': [10, 10]}
    """
    trained = card.get("range")
    _, _, num_classes = card.get("config", {}).get("model", "").partition(":")
    if trained is None or not num_classes or "num_classes" in trained:
        return trained
    return {**trained, "num_classes": [int(num_classes)] * 2}


def range_warnings(trained: Mapping[str, Sequence[float]] | None, setup: Setup, num_features: int) -> list[str]:
    """Sentences where a protector is used outside the range it was made for; none without one.

    >>> from l2p.models import Logistic
    >>> budget = Budget(1.0, 1e-5)
    >>> setup = Setup.create(Logistic(), budget.adjacency, Filter("gdp", budget).price_list(), 1000)
    >>> range_warnings({"num_features": [8, 104]}, setup, 20)
    []
    """
    here = {
        "log_signal": float(setup.log_signal),
        "num_features": num_features,
        "num_classes": len(setup.model.labels),
        "sampling_rate": setup.price_list.sampler.rate(),
    }
    return [
        f"This run's {name} is {here[name]:.4g}, outside [{low:g}, {high:g}] that the protector was made for; the "
        "guarantee holds all the same, but accuracy may be poor."
        for name, (low, high) in (trained or {}).items()
        if name in here and not low <= here[name] <= high
    ]
