"""Lookup of methods by name, hand-designed ones and checkpoints, each read once and set up for a model and budget."""

import dataclasses
import functools
from collections.abc import Sequence

from l2p.base.errors import InputError
from l2p.checkpoints.checkpoint import (
    Checkpoint,
    digest,
    find,
    load,
    names,
    read_checkpoint_card,
    study_hint,
)
from l2p.checkpoints.control import Control, control_of
from l2p.checkpoints.folds import HoldOut, hold_out
from l2p.checkpoints.method_name import MethodName, is_file, is_object
from l2p.checkpoints.named import NamedProtector, at_rate, check_pure, describe, misfit, varied
from l2p.checkpoints.overlaps import overlaps
from l2p.checkpoints.own import import_protector
from l2p.checkpoints.ranges import range_of
from l2p.checkpoints.settings import with_settings
from l2p.models import Model, find_model
from l2p.privacy.budget import Budget
from l2p.protectors import HAND_DESIGNED
from l2p.protectors.hand_designed import HandDesigned, Problem
from l2p.protectors.learned.tunable import with_tuned
from l2p.run.protector import Protector

#: A delta for methods that set themselves up for pure privacy, which do not read it.
_ANY_DELTA = 1e-6


@dataclasses.dataclass(frozen=True)
class Method:
    """A method by name, read once, to be set up for any budgets and numbers of rows.

    Attributes:
      name: as the user called it.
      model: to be trained.
      checkpoint: its file, as read; None without one.
      control: the checkpoint's; None without one.
      hold_out: as in `NamedProtector`.
    """

    name: MethodName
    model: Model
    checkpoint: Checkpoint | None = None
    control: Control | None = None
    hold_out: HoldOut | None = None

    def set_up(self, budget: Budget, accountant: str | None = None, num_rows: int | None = None) -> NamedProtector:
        """The protector for a budget; arguments and errors are those of `resolve`."""
        plain = self.name.protector.without_rate()
        named = self._plain(plain, budget, accountant, num_rows)
        if (rate := self.name.sampling_rate) is not None:
            named = at_rate(named, str(self.name.protector), rate)
        if self.name.variants:
            named = varied(named, self.name)
        # A checkpoint's own values are the same for all tables; a method that takes them may depend on N.
        is_fixed = num_rows is not None or (self.checkpoint is not None and plain.base not in HAND_DESIGNED)
        build = None if is_fixed else functools.partial(self.set_up, budget, accountant)
        return dataclasses.replace(named, hold_out=self.hold_out, build=build)

    def _plain(self, plain: MethodName, budget: Budget, accountant: str | None, num_rows: int | None) -> NamedProtector:
        """The protector without variants, at its own sampling rate."""
        name, model, method = str(plain), self.model, HAND_DESIGNED.get(plain.base)
        if method is not None:
            method.check_paper_terms(name, budget, accountant)
        if self.checkpoint is not None:
            return self._loaded(self.checkpoint, plain, budget, accountant, num_rows)
        if method is None:
            own = import_protector(plain, Problem(budget, model, num_rows, accountant))
            return describe(own, name, model, accountant)
        protector = _hand_designed(method, name, budget, model, num_rows, accountant)
        protector = with_settings(protector, plain.settings, plain.base)
        return describe(protector, name, model, accountant or method.accountant, sources=())

    def _loaded(
        self, loaded: Checkpoint, plain: MethodName, budget: Budget, accountant: str | None, num_rows: int | None
    ) -> NamedProtector:
        """The checkpoint under its requested name, checked to be made for the model."""
        card, protector, name = loaded.card, loaded.protector, str(plain)
        method = HAND_DESIGNED.get(plain.base) if plain.tuned else None
        if self.model.name not in card["models"]:
            raise misfit(name, card["models"], self.model)
        chosen = accountant or card.get("accountant")
        config = card.get("config", {})
        if method is not None and config.get("coefficients") is not None:
            # The tuned values, put into the method set up for this run's budget and size.
            protector = with_tuned(method(budget, self.model, num_rows, chosen), protector)
            if config.get("num_steps") is not None:
                protector = protector.replace(num_steps=config["num_steps"])
        named = describe(protector, name, self.model, chosen, tuple(card["sources"]))
        tables = tuple(card.get("tables", ()))
        return dataclasses.replace(
            named, sha256=loaded.sha256, range=range_of(card), control=self.control, own_tables=tables
        )


def look_up(name: str | MethodName, model: str | Model, aux: str | None = None, avoid: Sequence[str] = ()) -> Method:
    """The method called `name`, not yet set up; arguments and errors are those of `resolve`."""
    name, model = MethodName.parse(name), find_model(model)
    plain = name.protector.without_rate()
    if plain.settings and plain.base not in HAND_DESIGNED:
        raise InputError(
            f"{plain.base!r} is no hand-designed method, and what it does follows from how it was trained, not from "
            "settings; leave them out, or choose a method that l2p protectors lists as designed by hand."
        )
    if not plain.tuned and (is_object(plain.base) or plain.base in HAND_DESIGNED):
        return Method(name, model)
    held = None if plain.tuned else hold_out(str(plain), avoid)
    loaded = load(_tuned(plain, model, aux, avoid) if plain.tuned else str(plain) if held is None else held.name)
    if shared := [source for source in loaded.card["sources"] if overlaps(source, avoid)]:
        raise InputError(
            f"protector {str(plain)!r} was made from {', '.join(shared)}, so its score there would flatter it; choose "
            f"another protector or data set.{study_hint()}"
        )
    return Method(name, model, loaded, control_of(loaded.card), held)


def resolve(
    name: str | MethodName,
    budget: Budget,
    model: str | Model,
    accountant: str | None = None,
    aux: str | None = None,
    avoid: Sequence[str] = (),
    num_rows: int | None = None,
) -> NamedProtector:
    """The protector called `name`, checked to train `model`.

    Args:
      name: a hand-designed method, a checkpoint's name or file, or METHOD:tuned; `minibatch@0.02` for the checkpoint
        `minibatch` with another Poisson sampling rate, if it was made for several; `bolt_on[num_passes=5]` for a
        hand-designed method with another setting; `mypackage:MyProtector` for a
        protector to import; any of them with :pretrained or :projected, which take public rows.
      budget: for which hand-designed methods set themselves up.
      model: to be trained, or its name.
      accountant: overrides the protector's own.
      aux: for METHOD:tuned, the public data set that it was tuned on; None takes any that is not in `avoid`.
      avoid: data sets that it must not be made from, because it will be scored on them; a checkpoint's name then stands
        for the first of its folds that is not (`l2p.checkpoints.folds`).
      num_rows: N, for hand-designed methods that set up batches; None to check names and options only, and to say N
        later (`NamedProtector.for_rows`).

    Raises:
      InputError: unknown name or model, a variant that only comparisons know, no checkpoint tuned on such a set, a
        protector that does not fit, or a sampling rate for a checkpoint that was made for one rate only.

    >>> resolve("agd", Budget(0.1, 1e-8), "logistic").accountant
    'rdp'
    """
    return look_up(name, model, aux, avoid).set_up(budget, accountant, num_rows)


def recognise(
    name: str, sha256: str | None, budget: Budget, model: str | Model, accountant: str, num_rows: int
) -> NamedProtector | None:
    """The method, or the shipped checkpoint with this SHA-256, that `resolve` found under this name when a card was
    written.

    Returns:
      None if there is neither here.

    Raises:
      InputError: the name belongs to another file, or the protector does not fit the model or budget.
    """
    method_name, model = MethodName.parse(name), find_model(model)
    if method_name.private or method_name.oracle:  # the best of several runs, whose settings no name tells
        return None
    plain = method_name.protector.without_rate()
    if sha256 is None:
        is_hand_designed = method_name.protector == plain and not plain.tuned and plain.base in HAND_DESIGNED
        return Method(method_name, model).set_up(budget, accountant, num_rows) if is_hand_designed else None
    file = next((name for name in names() if digest(name) == sha256), None)
    if file is None:
        return None
    tuned = plain.tuned and file.startswith(tuned_name(plain.base, model.name, ""))
    if not (str(plain) == file or tuned or is_file(str(plain))):
        raise InputError(
            f"the SHA-256 of protector {str(method_name.protector)!r} is that of {file}, so one of the two is wrong; "
            "ask for the file that ran."
        )
    loaded = load(file)
    return Method(method_name, model, loaded, control_of(loaded.card)).set_up(budget, accountant, num_rows)


def _hand_designed(
    method: HandDesigned, name: str, budget: Budget, model: Model, num_rows: int | None, accountant: str | None
) -> Protector:
    """A method set up for a budget and N; for delta = 0 with the noise of an accountant that is pure."""
    if budget.delta:
        return method(budget, model, num_rows, accountant)
    # What a method computes from delta is about noise that is refused here, and may divide by it.
    protector = method(dataclasses.replace(budget, delta=_ANY_DELTA), model, num_rows, accountant or "basic")
    check_pure(name, protector, budget)
    return protector


def tuned_name(method: str, model: str, aux: str) -> str:
    """Name of the checkpoint of a method tuned on a public set.

    >>> tuned_name("agd", "logistic", "mnist:4,6")
    'agd-tuned-logistic-mnist-4,6'
    """
    return f"{method}-tuned-{model}-{aux.replace(':', '-')}"


def _tuned(method_name: MethodName, model: Model, aux: str | None, avoid: Sequence[str]) -> str:
    """Name of the matching checkpoint METHOD-tuned-MODEL-AUX."""
    method = method_name.base
    shipped = [name for name in names() if name.startswith(tuned_name(method, model.name, ""))]
    for name in shipped if aux is None else [tuned_name(method, model.name, aux)]:
        path = find(name)
        if path is not None and not any(overlaps(source, avoid) for source in read_checkpoint_card(path)["sources"]):
            return name
    wanted = ("" if aux is None else f" on {aux}") + (f" without {', '.join(avoid)}" if avoid else "")
    raise InputError(
        f"there is no {str(method_name)!r} for model {str(model)!r} tuned{wanted}; shipped are "
        f"{', '.join(shipped) or 'none'}: choose another method, or tune it with l2p meta-train --recipe tuned "
        f"--method {method}.{study_hint()}"
    )
