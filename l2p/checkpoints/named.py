"""A protector under the name that its user called it by, with its accountant, sources, range and control."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from l2p.base.errors import InputError
from l2p.checkpoints.checkpoint import unknown_name
from l2p.checkpoints.control import Control, control_of
from l2p.checkpoints.defaults import default_for
from l2p.checkpoints.folds import HoldOut
from l2p.checkpoints.method_name import PRETRAINED, PROJECTED, MethodName
from l2p.checkpoints.ranges import range_of
from l2p.models import Model
from l2p.privacy.budget import Budget
from l2p.privacy.cap.filter import Filter, default_accountant
from l2p.privacy.cost.sampling import Poisson, Sampler
from l2p.privacy.events import PURE
from l2p.protectors.with_public_rows.warm_start import WarmStart
from l2p.run.protector import Protector


@dataclasses.dataclass(frozen=True)
class NamedProtector:
    """A protector with its name and provenance.

    Attributes:
      name: as the user called it.
      protector: ready to run.
      accountant: the requested one, else its checkpoint's, else the tightest that prices its queries.
      sources: public data sets it was made from; None if unknown.
      sha256: of its checkpoint; None without one.
      range: {log_signal: [low, high], num_features: [low, high]} that it was made for; None if unlimited or unknown.
      control: the constants-only baseline that its networks extend, or the protector that it was fine-tuned from; None
        without one that ships.
      own_tables: what its card says of the users' tables that it was fine-tuned on.
      hold_out: the checkpoint that stands for the protector of this name, since it was not made from the data that it
        will be scored on; None otherwise.
      build: makes it for a number of rows N; None where N changes nothing, or was given.
    """

    name: str
    protector: Protector
    accountant: str
    sources: tuple[str, ...] | None = None
    sha256: str | None = None
    range: dict[str, list[float]] | None = None
    control: Control | None = None
    own_tables: tuple[Mapping[str, Any], ...] = dataclasses.field(default=(), repr=False)
    hold_out: HoldOut | None = None
    build: "Callable[[int], NamedProtector] | None" = dataclasses.field(default=None, repr=False, compare=False)

    def for_rows(self, num_rows: int) -> "NamedProtector":
        """The same for a table of N rows, where it was resolved without N; no file is read again."""
        if self.build is None:
            return self
        built = self.build(num_rows)
        return dataclasses.replace(self, protector=built.protector, accountant=built.accountant, build=None)

    def counted_by(self, accountant: str | None, model: Model) -> "NamedProtector":
        """The same under another accountant, checked to train a model; None keeps its own."""
        described = describe(self.protector, self.name, model, accountant or self.accountant)
        if described.accountant == self.accountant:
            return self
        return dataclasses.replace(
            self,
            accountant=described.accountant,
            build=lambda num_rows: dataclasses.replace(self.for_rows(num_rows), accountant=described.accountant),
        )

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


def describe(
    protector: Protector,
    name: str,
    model: Model,
    accountant: str | None = None,
    sources: tuple[str, ...] | None = None,
) -> NamedProtector:
    """A protector in memory, checked to train `model`; without an accountant, with the tightest that applies.

    Raises:
      InputError: the protector's proof does not cover the model, or it was not made for it.
    """
    protector.check_model(model)
    if not protector.trains(model):
        raise misfit(name, protector.models, model)
    chosen = accountant or default_accountant(protector.mechanisms, protector.sampler, protector.asks_once)
    return NamedProtector(name, protector, chosen, sources)


def misfit(name: str, models: Sequence[str], model: Model) -> InputError:
    """The error about a protector that was not made for a model."""
    return InputError(
        f"protector {name!r} was made for {', '.join(models)}, not for {model}, where nothing is known of its "
        f"accuracy; for {model.name} use {default_for(model)}."
    )


def check_pure(name: str, protector: Protector, budget: Budget) -> None:
    """Refuse noise that is not pure where delta is 0; `InputError`."""
    impure = [mechanism for mechanism in protector.mechanisms if mechanism not in PURE]
    if budget.delta == 0 and impure:
        raise InputError(
            f"delta is 0, which asks for pure differential privacy, but protector {name!r} adds {impure[0]} noise, "
            "which is never pure; choose bolt_on or bolt_on_sc, or a delta above 0."
        )


def drawing(sampler: Sampler, named: NamedProtector) -> NamedProtector:
    """A protector whose steps use another sampler.

    Raises:
      InputError: it does not draw batches.
    """
    if named.protector.sampler == sampler:
        return named
    if all(field.name != "sampler" for field in dataclasses.fields(cast(Any, named.protector))):
        raise InputError(f"protector {named.name!r} reads every row, so it cannot draw {sampler}; choose another.")
    return dataclasses.replace(named, protector=named.protector.replace(sampler=sampler))


def at_rate(named: NamedProtector, name: str, sampling_rate: float) -> NamedProtector:
    """A protector with another sampling rate than it ships with."""
    if "sampling_rate" not in (named.range or {}):
        raise InputError(
            f"protector {named.name!r} was made for one sampling rate only; leave out what follows @ in {name!r}, or "
            "choose a protector with a range of sampling rates on its checkpoint card."
        )
    return dataclasses.replace(drawing(Poisson(sampling_rate), named), name=name)


def varied(named: NamedProtector, name: MethodName) -> NamedProtector:
    """A protector started from public rows, or reading rows along their directions."""
    if name.oracle or name.private:
        raise unknown_name(str(name))
    protector = WarmStart.of(named.protector, str(name.protector), name.pretrained, name.projected)
    return dataclasses.replace(named, name=str(name), protector=protector)


def stand_in(named: NamedProtector) -> NamedProtector | None:
    """The control that runs where a protector shows no gain over it; None without one."""
    if named.control is None:
        return None
    checkpoint = named.control.checkpoint
    control = NamedProtector(
        named.control.name,
        checkpoint.protector,
        named.accountant,
        tuple(checkpoint.card["sources"]),
        checkpoint.sha256,
        range_of(checkpoint.card),
        control_of(checkpoint.card),
    )
    control = drawing(named.protector.sampler, control)
    if not isinstance(named.protector, WarmStart):
        return control
    # The control, too, starts from public rows.
    words = [word for word in (PRETRAINED, PROJECTED) if getattr(named.protector, word[1:])]
    return varied(control, MethodName.parse("".join([control.name, *words])))
