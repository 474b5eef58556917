"""Finds a method by name, a hand-designed one or a checkpoint, and checks that it fits the model and budget."""

import dataclasses
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from l2p.checkpoints.checkpoint import (
    Checkpoint,
    digest,
    find,
    load,
    names,
    read_checkpoint_card,
    study_hint,
    unknown_name,
)
from l2p.checkpoints.control import Control, control_of
from l2p.checkpoints.defaults import what_to_use
from l2p.checkpoints.folds import HoldOut, hold_out
from l2p.checkpoints.method_name import PRETRAINED, PROJECTED, MethodName, is_file, is_object
from l2p.checkpoints.overlaps import overlaps
from l2p.checkpoints.own import import_protector
from l2p.checkpoints.ranges import range_of
from l2p.errors import InputError
from l2p.models import find_model, plain_name
from l2p.privacy.budget import Budget
from l2p.privacy.events import PURE
from l2p.privacy.filter import Filter, default_accountant
from l2p.privacy.sampling import Poisson, Sampler
from l2p.protector import Protector
from l2p.protectors import HAND_DESIGNED
from l2p.protectors.hand_designed import HandDesigned, Problem
from l2p.protectors.tunable import with_tuned
from l2p.protectors.warm_start import WarmStart

#: A delta for methods that set themselves up for pure privacy, which do not read it.
_ANY_DELTA = 1e-6


@dataclasses.dataclass(frozen=True)
class NamedProtector:
    """A protector with its name, and what is known about it.

    Attributes:
      name: as the user called it.
      protector: ready to run.
      accountant: the requested one, else its checkpoint's, else the tightest that prices its queries.
      sources: public data sets it was made from; None if unknown.
      sha256: of its checkpoint; None without one.
      range: {log_signal: [low, high], num_features: [low, high]} that it was made for; None if unlimited or unknown.
      control: the constants-only baseline that its networks extend, or what it was fine-tuned from; None without one
        that ships.
      hold_out: the checkpoint that it is, if that is one that stands for the protector of this name because it was not
        made from what it will be scored on; None otherwise.
    """

    name: str
    protector: Protector
    accountant: str
    sources: tuple[str, ...] | None = None
    sha256: str | None = None
    range: dict[str, list[float]] | None = None
    control: Control | None = None
    hold_out: HoldOut | None = None

    def filter(self, budget: Budget) -> Filter:
        """The filter that stops its runs within `budget`; `InputError` if no theorem covers it, or it asks without
        noise."""
        filter = Filter(self.accountant, budget, self.protector.sampler, self.protector.num_steps)
        if self.protector.adaptive_noise and not filter.accountant.adaptive:
            raise InputError(
                f"accountant {self.accountant!r} certifies noise that is fixed beforehand, but that of protector "
                f"{self.name!r} depends on earlier answers, for which it proves nothing; choose 'rdp'."
            )
        for mechanism in self.protector.mechanisms:
            filter.prices(mechanism, np.ones(1), sampled=True)
        check_pure(self.name, self.protector, budget)
        if "none" in self.protector.mechanisms:
            raise InputError(
                f"protector {self.name!r} answers without noise, which no finite budget pays for; choose a private one."
            )
        return filter


def resolve(
    name: str | MethodName,
    budget: Budget,
    model: str,
    accountant: str | None = None,
    aux: str | None = None,
    avoid: Sequence[str] = (),
    num_rows: int | None = None,
) -> NamedProtector:
    """The protector called `name`, checked to train `model`.

    Args:
      name: a hand-designed method, a checkpoint's name or file, or METHOD:tuned; `minibatch@0.02` for the checkpoint
        `minibatch` with another Poisson sampling rate, if it was made for several; `mypackage:MyProtector` for a
        protector to import; any of them with :pretrained or :projected, which take public rows.
      budget: for which hand-designed methods set themselves up.
      model: name of the model.
      accountant: overrides the protector's own.
      aux: for METHOD:tuned, the public data set that it was tuned on; None takes any that is not in `avoid`.
      avoid: data sets that it must not be made from, because it will be scored on them; a checkpoint's name then stands
        for the first of its folds that is not (`l2p.checkpoints.folds`).
      num_rows: N, for hand-designed methods that set up batches; None to check names and options only.

    Raises:
      InputError: unknown name or model, a variant that only comparisons know, no checkpoint tuned on such a set, a
        protector that does not fit, or a sampling rate for a checkpoint that was made for one rate only.

    >>> resolve("agd", Budget(0.1, 1e-8), "logistic").accountant
    'rdp'
    """
    asked = MethodName.parse(name)
    name = str(asked)
    if asked.variants:
        return _varied(resolve(asked.protector, budget, model, accountant, aux, avoid, num_rows), asked)
    if (rate := asked.sampling_rate) is not None:
        found = resolve(asked.without_rate(), budget, model, accountant, aux, avoid, num_rows)
        return _at_rate(found, name, rate)
    if is_object(asked.base) and not asked.tuned:
        return describe(import_protector(asked, Problem(budget, model, num_rows, accountant)), name, model, accountant)
    method = HAND_DESIGNED.get(asked.base)
    if method is not None:
        method.check(name, budget, accountant)
        if not asked.tuned:
            protector = _hand_designed(method, name, budget, model, num_rows, accountant)
            return describe(protector, name, model, accountant or method.accountant, sources=())
    held = None if asked.tuned else hold_out(name, avoid)
    loaded = load(_tuned(asked, model, aux, avoid) if asked.tuned else name if held is None else held.name)
    if shared := [source for source in loaded.card["sources"] if overlaps(source, avoid)]:
        raise InputError(
            f"protector {name!r} was made from {', '.join(shared)}, so its score there would flatter it; choose "
            f"another protector or data set.{study_hint()}"
        )
    return dataclasses.replace(_loaded(loaded, asked, budget, model, accountant, num_rows), hold_out=held)


def recognise(
    name: str, sha256: str | None, budget: Budget, model: str, accountant: str, num_rows: int
) -> NamedProtector | None:
    """The method, or the shipped checkpoint with this SHA-256, that `resolve` found under this name when a card was
    written.

    Returns:
      None if neither is known here.

    Raises:
      InputError: the name belongs to another file, or the protector does not fit the model or budget.
    """
    varied = MethodName.parse(name)
    if varied.private or varied.oracle:  # the best of several runs, whose settings no name tells
        return None
    if varied.variants:
        found = recognise(str(varied.protector), sha256, budget, model, accountant, num_rows)
        return None if found is None else _varied(found, varied)
    if sha256 is None:
        return resolve(name, budget, model, accountant, num_rows=num_rows) if name in HAND_DESIGNED else None
    file = next((one for one in names() if digest(one) == sha256), None)
    if file is None:
        return None
    asked = MethodName.parse(name)
    plain = asked.without_rate()
    tuned = asked.tuned and file.startswith(tuned_name(asked.base, model, ""))
    if not (str(plain) == file or tuned or is_file(str(plain))):
        raise InputError(
            f"the SHA-256 of protector {name!r} is that of {file}, so one of the two is wrong; ask for the file that "
            "ran."
        )
    found = _loaded(load(file), plain, budget, model, accountant, num_rows)
    return found if asked.sampling_rate is None else _at_rate(found, name, asked.sampling_rate)


def _hand_designed(
    method: HandDesigned, name: str, budget: Budget, model: str, num_rows: int | None, accountant: str | None
) -> Protector:
    """A method set up for these facts; for delta = 0 with the noise of an accountant that is pure."""
    if budget.delta:
        return method(budget, model, num_rows, accountant)
    # What a method computes from delta is about noise that is refused here, and may divide by it.
    protector = method(dataclasses.replace(budget, delta=_ANY_DELTA), model, num_rows, accountant or "basic")
    check_pure(name, protector, budget)
    return protector


def check_pure(name: str, protector: Protector, budget: Budget) -> None:
    """Refuse noise that is not pure where delta is 0; `InputError`."""
    impure = [mechanism for mechanism in protector.mechanisms if mechanism not in PURE]
    if budget.delta == 0 and impure:
        raise InputError(
            f"delta is 0, which asks for pure differential privacy, but protector {name!r} adds {impure[0]} noise, "
            "which is never pure; choose bolt_on or bolt_on_sc, or a delta above 0."
        )


def _loaded(
    loaded: Checkpoint, asked: MethodName, budget: Budget, model: str, accountant: str | None, num_rows: int | None
) -> NamedProtector:
    """A loaded checkpoint under its requested name, checked to be made for the model."""
    card, protector, name = loaded.card, loaded.protector, str(asked)
    method = HAND_DESIGNED.get(asked.base) if asked.tuned else None
    if plain_name(model) not in card["models"]:
        raise _misfit(name, card["models"], model)
    chosen = accountant or card.get("accountant")
    config = card.get("config", {})
    if method is not None and config.get("coefficients") is not None:
        # The tuned values, put into the method set up for this run's budget and size.
        protector = with_tuned(method(budget, model, num_rows, chosen), protector)
        if config.get("num_steps") is not None:
            protector = dataclasses.replace(cast(Any, protector), num_steps=config["num_steps"])
    found = describe(protector, name, model, chosen, tuple(card["sources"]))
    return dataclasses.replace(found, sha256=loaded.sha256, range=range_of(card), control=control_of(card))


def _varied(found: NamedProtector, asked: MethodName) -> NamedProtector:
    """A protector started from public rows, or reading rows along their directions."""
    name = str(asked)
    if asked.oracle or asked.private:
        raise unknown_name(name)
    protector = WarmStart.of(found.protector, str(asked.protector), asked.pretrained, asked.projected)
    return dataclasses.replace(found, name=name, protector=protector)


def _at_rate(found: NamedProtector, name: str, sampling_rate: float) -> NamedProtector:
    """A protector with another sampling rate than it ships with."""
    if "sampling_rate" not in (found.range or {}):
        raise InputError(
            f"protector {found.name!r} was made for one sampling rate only; leave out what follows @ in {name!r}, or "
            "choose a protector with a range of sampling rates on its checkpoint card."
        )
    return dataclasses.replace(drawing(Poisson(sampling_rate), found), name=name)


def drawing(sampler: Sampler, found: NamedProtector) -> NamedProtector:
    """A protector whose steps use another sampler.

    Raises:
      InputError: it does not draw batches.
    """
    if found.protector.sampler == sampler:
        return found
    if all(field.name != "sampler" for field in dataclasses.fields(cast(Any, found.protector))):
        raise InputError(f"protector {found.name!r} reads every row, so it cannot draw {sampler}; choose another.")
    return dataclasses.replace(found, protector=dataclasses.replace(cast(Any, found.protector), sampler=sampler))


def stand_in(named: NamedProtector) -> NamedProtector | None:
    """The control that runs where a protector shows no gain over it; None without one."""
    if named.control is None:
        return None
    varied = named.protector if isinstance(named.protector, WarmStart) else None
    loaded = load(named.control.name)
    control = NamedProtector(
        named.control.name,
        loaded.protector,
        named.accountant,
        tuple(loaded.card["sources"]),
        loaded.sha256,
        range_of(loaded.card),
        control_of(loaded.card),
    )
    control = drawing(named.protector.sampler, control)
    if varied is None:
        return control
    # The control, too, starts from public rows.
    name = "".join([control.name, *(word for word in (PRETRAINED, PROJECTED) if getattr(varied, word[1:]))])
    return _varied(control, MethodName.parse(name))


def describe(
    protector: Protector, name: str, model: str, accountant: str | None = None, sources: tuple[str, ...] | None = None
) -> NamedProtector:
    """A protector in memory, checked to train `model`; without an accountant, with the tightest that applies.

    Raises:
      InputError: the model is unknown, or the protector's proof does not cover it, or it was not made for it.
    """
    protector.check(find_model(model))
    if plain_name(model) not in protector.models:
        raise _misfit(name, protector.models, model)
    chosen = accountant or default_accountant(protector.mechanisms, protector.sampler, protector.asks_once)
    return NamedProtector(name, protector, chosen, sources)


def tuned_name(method: str, model: str, aux: str) -> str:
    """Name of the checkpoint of a method tuned on a public set.

    >>> tuned_name("agd", "logistic", "mnist:4,6")
    'agd-tuned-logistic-mnist-4,6'
    """
    return f"{method}-tuned-{plain_name(model)}-{aux.replace(':', '-')}"


def _tuned(asked: MethodName, model: str, aux: str | None, avoid: Sequence[str]) -> str:
    """Name of the matching checkpoint METHOD-tuned-MODEL-AUX."""
    method = asked.base
    shipped = [found for found in names() if found.startswith(tuned_name(method, model, ""))]
    for found in shipped if aux is None else [tuned_name(method, model, aux)]:
        path = find(found)
        if path is not None and not any(overlaps(source, avoid) for source in read_checkpoint_card(path)["sources"]):
            return found
    wanted = ("" if aux is None else f" on {aux}") + (f" without {', '.join(avoid)}" if avoid else "")
    raise InputError(
        f"there is no {str(asked)!r} for model {model!r} tuned{wanted}; shipped are {', '.join(shipped) or 'none'}: "
        f"choose another method, or tune it with l2p meta-train --recipe tuned --method {method}.{study_hint()}"
    )


def _misfit(name: str, models: Sequence[str], model: str) -> InputError:
    return InputError(
        f"protector {name!r} was made for {', '.join(models)}, not for {model}, where nothing is known of its "
        f"accuracy; {what_to_use(model)}."
    )
