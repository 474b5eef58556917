"""`l2p apply --dry-run`: the protector and cost of a run, from public facts alone."""

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from l2p.base.errors import InputError

if TYPE_CHECKING:
    from l2p.checkpoints.named import NamedProtector
    from l2p.commands.declared import DeclaredTable
    from l2p.privacy.budget import Budget
    from l2p.task.rows import Rows

_WIDTH, _LABEL = 80, 11


def print_plan(
    named: "NamedProtector",
    budget: "Budget",
    declared: "DeclaredTable",
    num_rows: int | None,
    ledger: Path | None,
    chooses: bool,
    share: float = 0.0,
    public: "Rows | None" = None,
) -> list[str]:
    """Print the protector and cost of a run; returns its warnings. Neither the table nor the ledger is changed.

    Args:
      named: the protector, checked.
      declared: the table as its schema declares it.
      num_rows: N, if it was declared; without it delta and the protector's range are not checked.
      chooses: whether it is METHOD:private, several runs for one budget.
      share: of the budget, that buys bounds.
      public: the public rows; these are read.

    Raises:
      InputError: what the run itself would raise before it reads a row.
    """
    from l2p.release.planned_run import checked_public
    from l2p.tables.schema.rows import weights_in_words

    unit, target = declared.schema.unit, declared.schema.target
    warnings, model = budget.warnings(), declared.model
    named = requested = named if num_rows is None else named.for_rows(num_rows)
    if public is not None:
        public = checked_public(public, named, declared.num_features, model, model.known_kind(declared.kind))
    if num_rows is not None:
        budget.check_rows(num_rows)
        if not chooses:
            from l2p.checkpoints.set_up import set_up

            named, _, _, more = set_up(
                *(named, budget, model, declared.num_features, num_rows),
                public=public,
                kind=declared.kind,
                rows_per_unit=None if unit is None else unit.max_rows,
                share=share,
                schema=declared.schema,
            )
            warnings += more
    steps = f"in at most {named.protector.num_steps} steps" + (" of each of several runs" if chooses else "")
    instead = "" if named.name == requested.name else f" in place of {requested.name}"
    print("Dry run: no cell of the table was read, and nothing was spent.")
    _say("protector", f"{named.name}{instead}, for {declared.model}, accountant {named.accountant}")
    _say("spends", f"epsilon {budget.epsilon:g} at delta {budget.delta:g} ({budget.adjacency}) at most, {steps}")
    if public is not None:
        _say("public", f"{int((public.mask > 0).sum()):,} public rows, which were read and fit")
    if ledger is not None:
        _say("ledger", _ledger(ledger, named, budget, chooses, None if unit is None else unit.column))
    if target.weights is not None:
        _say("weights", f"{weights_in_words(target)}; divided by the largest, they change no price")
    rows = f"{num_rows:,} rows" if num_rows is not None else "rows unknown: pass --rows to check delta and the range"
    _say("checked", f"options, {declared.num_features} features, {rows}; the table itself is checked by the run")
    return warnings


def _ledger(path: Path, named: "NamedProtector", budget: "Budget", chooses: bool, unit: str | None) -> str:
    """A sentence on what the ledger would have left; `InputError` if the run does not fit."""
    from l2p.privacy.ledger.ledger import Cost, Ledger, total
    from l2p.privacy.ledger.reservation import cost_of, not_enough

    ledger = Ledger.open(path)
    ledger.check_unit(unit)
    remaining = ledger.left()
    if chooses:
        from l2p.compare.private_choice import cost_in

        cost = cost_in(ledger, named, budget)
    else:
        cost = cost_of(ledger, named.filter(budget), named.protector.mechanisms)
    has = f"{ledger.name} has {ledger.in_epsilon(remaining, up=False)} left"
    if max(total([cost], minus=remaining)) > 0:
        raise InputError(
            f"{has} and this run asks for {ledger.in_epsilon(cost)}, so it must not start; ask for less."
            if chooses
            else not_enough(ledger, named.filter(budget), named.protector.mechanisms, remaining)
        )
    after = Cost(*(max(0.0, -number) for number in total([cost], minus=remaining)))
    return f"{has}, and would have {ledger.in_epsilon(after, up=False)}"


def _say(label: str, text: str) -> None:
    indent = " " * _LABEL
    print(textwrap.fill(f"{label:<{_LABEL}}{text}", _WIDTH, subsequent_indent=indent, break_on_hyphens=False))
