"""The methods of a comparison: a protector for every budget, where it starts, and why a budget has none."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from l2p.base.errors import InputError
from l2p.checkpoints.control import Control
from l2p.checkpoints.folds import HoldOut
from l2p.checkpoints.lookup import Method, look_up
from l2p.checkpoints.method_name import ORACLE, PRIVATE, PROJECTED, MethodName
from l2p.checkpoints.named import NamedProtector
from l2p.checkpoints.ranges import range_warnings
from l2p.checkpoints.set_up import set_up
from l2p.compare import hindsight, private_choice
from l2p.compare.auxiliary import Auxiliary, unlimited
from l2p.compare.public_part import WHOLE, Division
from l2p.models import Model
from l2p.oracle.setup import Setup
from l2p.privacy.budget import Budget
from l2p.privacy.cap.filter import Filter
from l2p.protectors import HAND_DESIGNED
from l2p.run.protector import Protector
from l2p.task.rows import Rows


@dataclasses.dataclass(frozen=True)
class PreparedMethod:
    """A method prepared for one budget.

    Attributes:
      protector: with its settings for this budget.
      setup: the public facts.
      filter: stops and certifies it; None without privacy.
      note: warnings about its range, and how METHOD:private chooses.
      selection: for METHOD:private, the runs that replace a single one; None otherwise.
    """

    protector: Protector
    setup: Setup
    filter: Filter | None = None
    note: str = ""
    selection: private_choice.SelectionPlan | None = None


@dataclasses.dataclass(frozen=True)
class ComparedMethod:
    """A method, with its protector for each budget of a comparison.

    Attributes:
      name: as it was asked for, suffixes included.
      accountant: "none" for no privacy at all; for METHOD:private, that of one run.
      protectors: by budget, or a sentence that says why there is none.
      range: that a checkpoint was made for; None if its card has none.
      sha256: of the checkpoint's file.
      start: f32[p], where runs start, or a sentence that says why they cannot; None for the model's own start.
      in_hindsight: whether its settings are searched on the private rows themselves.
      by_choice: whether they are chosen there and charged; `protectors` are set up for one of the runs.
      control: control used where a checkpoint's networks show no gain, if there is one.
      division: which rows are private, and which public.
      hold_out: the checkpoint that stands for the protector of this name, which was made from the data; None otherwise.
    """

    name: str
    accountant: str
    protectors: Mapping[Budget, Protector | str]
    range: dict[str, list[float]] | None = None
    sha256: str | None = None
    start: np.ndarray | str | None = None
    in_hindsight: bool = False
    by_choice: bool = False
    control: Control | None = None
    division: Division = WHOLE
    hold_out: HoldOut | None = None

    @property
    def is_private(self) -> bool:
        """False for one that asks for answers without noise, which only an unlimited budget grants."""
        return self.accountant != "none"

    def starting_point(self, model: Model, num_features: int) -> np.ndarray:
        """The params f32[p] that runs start from; `InputError` if they have another size."""
        if isinstance(self.start, str):
            raise InputError(self.start)
        params = np.asarray(model.init(num_features))
        if self.start is not None and self.start.shape != params.shape:
            raise InputError(
                f"{self.name} starts from a model of {self.start.size} parameters, where this table needs "
                f"{params.size}; choose an auxiliary set with the same features."
            )
        return params if self.start is None else self.start

    def check_public(self, protector: Protector, model: Model, rows: Rows, kind: str, seeds: Sequence[int]) -> None:
        """Refuse public rows of a seed that the protector cannot use; `InputError`."""
        for seed in seeds:
            public = self.division(rows, seed).public
            if public is not None:
                protector.check_public(public, model, kind)

    def prepare(self, budget: Budget, model: Model, rows: Rows, kind: str | None = None) -> PreparedMethod:
        """The method set up for `budget` on splits of `rows` with a target of `kind`; `InputError` if that fails or no
        theorem covers it."""
        protector = self.protectors[budget]
        if isinstance(protector, str):
            raise InputError(protector)
        start = self.starting_point(model, rows.x.shape[1])
        if not self.is_private:
            return PreparedMethod(protector, unlimited(model, budget, self.division.num_private(rows), kind))
        if self.by_choice:
            return self._chosen(protector, budget, model, rows)
        prepared = self._bounded(protector, budget, model, rows, kind)
        if self.in_hindsight:
            protector = hindsight.search(prepared.protector, prepared.setup, rows, start, self.division)
            prepared = dataclasses.replace(self, control=None)._bounded(protector, budget, model, rows, kind)
        return prepared

    def _bounded(
        self, protector: Protector, budget: Budget, model: Model, rows: Rows, kind: str | None
    ) -> PreparedMethod:
        requested = NamedProtector(self.name, protector, self.accountant, range=self.range, control=self.control)
        num_features, num_rows = rows.x.shape[1], self.division.num_private(rows)
        # Where noise is fixed beforehand, it is planned for the public rows of the first seed.
        public = self.division(rows, 0).public if protector.needs_public else None
        named, filter, setup, warnings = set_up(requested, budget, model, num_features, num_rows, public, kind)
        return PreparedMethod(named.protector, setup, filter, " ".join(warnings))

    def _chosen(self, protector: Protector, budget: Budget, model: Model, rows: Rows) -> PreparedMethod:
        num_rows = self.division.num_private(rows)
        plan = private_choice.SelectionPlan.make(protector, self.accountant, budget, model, num_rows)
        setup, _ = plan.setups
        note = " ".join([plan.note, *range_warnings(self.range, setup, rows.x.shape[1], budget)])
        return PreparedMethod(protector, setup, plan.training, note, plan)


def find_method(
    name: str | MethodName,
    budgets: Sequence[Budget],
    model: Model,
    num_rows: int,
    accountant: str | None = None,
    aux: str | None = None,
    avoid: Sequence[str] = (),
    auxiliary: Auxiliary | None = None,
    division: Division | None = None,
    method: Method | None = None,
) -> ComparedMethod:
    """A method by name and variants. Where a hand-designed one cannot run at a budget, the reason takes the protector's
    place.

    Args:
      name: METHOD, with :pretrained, :projected and :oracle or :private behind it if asked for.
      budgets: of the comparison.
      model: to be trained.
      num_rows: N of a split.
      accountant: to use in place of the protector's own.
      aux: the set that METHOD:tuned was tuned on; with :pretrained or :projected only these use it.
      avoid: data sets that a checkpoint must not be made from; a name stands for the first of its folds that is not.
      auxiliary: start and directions from that set, for METHOD:pretrained and METHOD:projected; None for neither.
      division: which rows are public; where some are, METHOD:pretrained and METHOD:projected take these instead.
      method: of this name without variants, if it was looked up before.

    Raises:
      InputError: unknown name, a checkpoint that does not fit, variants of a method that is not private, or two that
        exclude each other.
    """
    name, division = MethodName.parse(name), division or WHOLE
    base, variants = name.protector, name.variants
    if name.oracle and name.private:
        raise InputError(
            f"{name} asks for settings that are both charged and not charged; choose {base}{PRIVATE}, which is "
            f"private, or {base}{ORACLE}, which is not."
        )
    if name.candidates:
        raise InputError(
            f"{name} lists settings to choose among on parts of the private rows, which a comparison does not do; name "
            "each of them as a method of its own, or choose among them with l2p apply."
        )
    hand_designed = HAND_DESIGNED.get(str(base))
    paper = HAND_DESIGNED.get(base.base)
    own_budgets = budgets
    if paper is not None:  # a paper's form keeps the adjacency and accountant of its proof
        own_budgets = [paper.budget(budget) for budget in budgets]
        accountant = paper.accountant or accountant
    takes = name.given_public
    from_split = takes and division.part is not None
    if from_split:
        auxiliary, takes = None, False
    method = method or look_up(base, model, None if takes else aux, avoid)
    if from_split:
        method = dataclasses.replace(method, name=base.with_start(name))
    auxiliary = auxiliary or Auxiliary()
    protectors: dict[Budget, NamedProtector | str] = {}
    for budget in own_budgets:
        try:
            protectors[budget] = method.set_up(budget, accountant, num_rows)
        except InputError as error:
            if hand_designed is None:
                raise
            protectors[budget] = str(error)
    first = next((named for named in protectors.values() if isinstance(named, NamedProtector)), None)
    chosen = (accountant or "") if first is None else first.accountant
    if first is not None and "none" in first.protector.mechanisms:
        chosen = "none"
    if chosen == "none" and variants:
        raise InputError(
            f"{base} is not private, so there is nothing for {' and '.join(sorted(variants))} to change; leave it out."
        )
    if name.private:
        protectors = {budget: _base_run(method, budget, num_rows, named) for budget, named in protectors.items()}
        chosen = next((named.accountant for named in protectors.values() if isinstance(named, NamedProtector)), chosen)
    if name.projected and not from_split:
        if paper is None:
            raise InputError(
                f"{base} is learned, so the directions in which it reads rows are fixed; leave out {PROJECTED}."
            )
        protectors = {budget: _projected(str(base), named, auxiliary) for budget, named in protectors.items()}
    return ComparedMethod(
        str(name),
        chosen,
        {budget: named if isinstance(named, str) else named.protector for budget, named in protectors.items()},
        None if first is None else first.range,
        None if first is None else first.sha256,
        auxiliary.start if name.pretrained else None,
        name.oracle,
        name.private,
        None if first is None else first.control,
        division,
        None if first is None else first.hold_out,
    )


def reads_public(name: MethodName, budget: Budget, model: Model, method: Method | None = None) -> bool:
    """True if a method does not run without public rows. A paper's form is set up under the adjacency of its proof, the
    only one that it has.

    Args:
      name: its name; tuned or varied, a method reads what it reads as it is.
      budget, model: of the comparison.
      method: of this name, if it is none of the hand-designed ones, as `look_up` gives it.
    """
    paper = HAND_DESIGNED.get(name.base)
    if paper is not None:
        method, budget = Method(MethodName(name.base), model), paper.budget(budget)
    try:
        return method is not None and method.set_up(budget).protector.needs_public
    except InputError:  # `find_method` says why
        return False


def _base_run(method: Method, budget: Budget, num_rows: int, named: NamedProtector | str) -> NamedProtector | str:
    """A method set up for one run of a selection within `budget`, or the reason why no theorem covers that."""
    if isinstance(named, str):
        return named
    try:
        return private_choice.base_run(method, budget, num_rows)
    except InputError as error:
        return str(error)


def _projected(name: str, named: NamedProtector | str, auxiliary: Auxiliary) -> NamedProtector | str:
    """A method in the directions of the auxiliary set, or the reason why it cannot use them."""
    if isinstance(named, str):
        return named
    try:
        return dataclasses.replace(named, protector=auxiliary.project(named.protector, name))
    except InputError as error:
        return str(error)
