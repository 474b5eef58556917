"""`l2p ledger`: what all runs on one data set have spent together."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from l2p.errors import InputError
from l2p.privacy.accountants import ledger_amounts

if TYPE_CHECKING:
    from l2p.privacy.ledger import Cost, Entry, Ledger

    Unit = str
else:
    Unit = Literal[tuple(ledger_amounts())]


@dataclasses.dataclass(frozen=True)
class Create:
    """Declare a data set and what all runs on it may spend together."""

    file: tyro.conf.Positional[Path]
    """The ledger to write; must be new. Keep it where every run finds it and only those who run l2p may write.
    Never restore an older copy: it does not count what was spent since, and nothing can detect that."""
    name: str
    """A name for the data set."""
    epsilon: float
    """Budget of all runs together."""
    delta: float
    """Budget of all runs together, a probability below 1 / number of rows."""
    adjacency: Literal["zero_out", "add_remove", "replace_one"] = "zero_out"
    """Which tables are neighbours; the same for every run."""
    unit: Unit = "gdp"
    """What the ledger adds up: mu^2, rho or a Renyi divergence of every query, or (epsilon, delta) of every run."""

    def run(self) -> int:
        """Write it."""
        from l2p.privacy.budget import Budget
        from l2p.privacy.events import Adjacency
        from l2p.privacy.ledger import Ledger
        from l2p.privacy.reservation import limit_of

        budget = Budget(self.epsilon, self.delta, Adjacency(self.adjacency))
        ledger = Ledger.create(self.file, self.name, budget, self.unit, limit_of(self.unit, budget))
        print(f"written to {ledger.path}: {ledger.name} has {ledger.budget} for all runs together, in {ledger.unit}")
        return 0


@dataclasses.dataclass(frozen=True)
class Show:
    """Show what was spent, what unfinished runs have reserved, and what is left."""

    file: tyro.conf.Positional[Path]
    """A ledger."""
    json: bool = False
    """Print JSON instead of a table."""

    def run(self) -> int:
        """Print it."""
        from l2p.privacy.ledger import AMOUNTS, Cost, Ledger

        ledger = Ledger.open(self.file)
        entries = ledger.entries()
        shown = _facts(ledger, entries)
        if self.json:
            import json

            print(json.dumps(shown, indent=1, allow_nan=False))
            return 0
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Column, Table

        print(f"data set   {ledger.name}, since {ledger.created}")
        print(f"target     {ledger.budget}")
        print(f"unit       {ledger.unit}: {AMOUNTS[ledger.unit]}")
        print(f"limit      {_amount(ledger.limit)}")
        print(f"spent      {_amount(Cost(**shown['spent']))}")
        print(f"reserved   {_amount(Cost(**shown['reserved']))} of it, by unfinished runs")
        print(f"left       {_amount(Cost(**shown['left']))}")
        whole = (Column(name, no_wrap=True) for name in ("id", "state"))  # people copy ids
        rest = (Column(name, overflow="fold") for name in ("counts as", "reserved", "run", "process", "since"))
        table = Table(*whole, *rest, box=None)
        for run in entries:
            what = f"{run.what} (released: {run.reason})" if run.reason else run.what
            process = f"{run.process} on {run.host}"
            row = run.id, run.state, _amount(run.counted), _amount(run.reserved), what, process, run.changed
            table.add_row(*map(escape, row))
        Console().print(table)
        return 0


@dataclasses.dataclass(frozen=True)
class Release:
    """Release the reservation of a run that ended before its first query was answered."""

    file: tyro.conf.Positional[Path]
    """A ledger."""
    id: tyro.conf.Positional[str]
    """The run, as `l2p ledger show` lists it."""
    reason: str
    """How you know, in one line; kept in the ledger."""
    no_query_was_answered: tyro.conf.FlagCreatePairsOff[bool] = False
    """Your assertion that no query of this run was answered or will be; if it is wrong, the guarantee is void."""

    def run(self) -> int:
        """Release it."""
        if not self.no_query_was_answered:
            raise InputError(
                f"releasing run {self.id} asserts that none of its queries was answered, and voids the guarantee if "
                "one was; if you know that none was, add --no-query-was-answered."
            )
        from l2p.privacy.ledger import Ledger

        ledger = Ledger.open(self.file)
        ledger.release(self.id, self.reason)
        print(f"released {self.id}: {ledger.name} has {_amount(ledger.left())} left, in {ledger.unit}")
        return 0


@dataclasses.dataclass(frozen=True)
class LedgerCommand:
    """Keep track of what all runs on one data set have spent: create, show or release.

    l2p refuses a ledger that anything else has changed. It cannot detect a restored older copy, or a file rewritten
    by somebody who knows the format."""

    action: tyro.conf.OmitSubcommandPrefixes[
        tyro.conf.OmitArgPrefixes[
            Annotated[Create, tyro.conf.subcommand("create")]
            | Annotated[Show, tyro.conf.subcommand("show")]
            | Annotated[Release, tyro.conf.subcommand("release")]
        ]
    ]

    def run(self) -> int:
        """Do it."""
        return self.action.run()


def _facts(ledger: "Ledger", entries: "list[Entry]") -> dict[str, Any]:
    from l2p.privacy.ledger import total

    counted = [entry.counted for entry in entries]
    held = [entry.counted for entry in entries if entry.state == "reserved"]
    costs = {"limit": ledger.limit, "spent": total(counted), "reserved": total(held), "left": ledger.left()}
    runs = [
        entry._asdict() | {"reserved": entry.reserved._asdict(), "counted": entry.counted._asdict()}
        for entry in entries
    ]
    terms = {"name": ledger.name, **dataclasses.asdict(ledger.budget), "unit": ledger.unit, "created": ledger.created}
    return terms | {name: cost._asdict() for name, cost in costs.items()} | {"runs": runs}


def _amount(cost: "Cost") -> str:
    return f"{cost.amount:.6g}" + (f", delta {cost.delta:.6g}" if cost.delta else "")
