"""`l2p ledger`: the spending of all runs on one data set together."""

import dataclasses
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from l2p.base.errors import InputError
from l2p.privacy.accountants import ledger_amounts
from l2p.privacy.rounded import rounded

if TYPE_CHECKING:
    from l2p.privacy.ledger.ledger import Cost, Entry, Ledger

    Unit = str
else:
    Unit = Literal[tuple(ledger_amounts())]


@dataclasses.dataclass(frozen=True)
class Create:
    """Declare a data set and what all runs on it may spend together."""

    file: tyro.conf.Positional[Path]
    """The ledger to write; must be new.
    Keep it where every run finds it, and where only those who run l2p may write.
    Never restore an older copy: it does not count what was spent since, and nothing can detect that."""
    name: str
    """A name for the data set."""
    epsilon: float
    """Budget of all runs together."""
    delta: float
    """Budget of all runs together, a probability below 1 / number of rows."""
    adjacency: Literal["zero_out", "add_remove", "replace_one"] = "zero_out"
    """The tables that count as neighbours; the same for every run."""
    unit: Unit = "gdp"
    """The quantity that the ledger adds up: gdp (mu^2 of every query) is the tightest for runs on full batches.
    rdp also counts mini-batches and selections; basic adds up the (epsilon, delta) of whole runs of any kind."""

    def run(self) -> int:
        """Write it."""
        from l2p.privacy.budget import Budget
        from l2p.privacy.events import Adjacency
        from l2p.privacy.ledger.ledger import Ledger
        from l2p.privacy.ledger.reservation import limit_of

        budget = Budget(self.epsilon, self.delta, Adjacency(self.adjacency))
        ledger = Ledger.create(self.file, self.name, budget, self.unit, limit_of(self.unit, budget))
        print(f"written to {ledger.path}: {ledger.name} has epsilon {budget.epsilon:g} at delta {budget.delta:g}")
        print(f"for all runs together ({budget.adjacency} neighbours); give it to each with --ledger")
        return 0


@dataclasses.dataclass(frozen=True)
class Show:
    """Show the largest epsilon that still fits, what was spent, and every run."""

    file: tyro.conf.Positional[Path]
    """A ledger."""
    json: bool = False
    """Print JSON, with every detail of every run."""

    def run(self) -> int:
        """Print it."""
        from l2p.privacy.ledger.ledger import AMOUNTS, Ledger

        ledger = Ledger.open(self.file)
        entries = ledger.entries()
        shown = _summary(ledger, entries)
        if self.json:
            import json

            print(json.dumps(shown, indent=1, allow_nan=False))
            return 0
        epsilon, budget = shown["in_epsilon"], ledger.budget
        held = f", {epsilon['reserved']} of it by unfinished runs" if shown["reserved"]["amount"] else ""
        print(f"{ledger.name}: epsilon {budget.epsilon:g} at delta {budget.delta:g} for all runs ({budget.adjacency})")
        print(f"left   {ledger.in_epsilon(ledger.left(), up=False)}: the largest that fits in one more run")
        print(f"spent  epsilon {epsilon['spent']}{held}")
        print(f"       in {ledger.unit} ({AMOUNTS[ledger.unit]}): {_amount(ledger.spent())} of {_amount(ledger.limit)}")
        if entries:
            _print_runs(ledger, entries)
        return 0


@dataclasses.dataclass(frozen=True)
class Release:
    """Release the reservation of a run that ended before its first query was answered."""

    file: tyro.conf.Positional[Path]
    """A ledger."""
    id: tyro.conf.Positional[str]
    """The run, as `l2p ledger show` lists it."""
    reason: str
    """Your grounds for that, in one line; kept in the ledger."""
    no_query_was_answered: tyro.conf.FlagCreatePairsOff[bool] = False
    """Your assertion that no query of this run was answered or will be; if it is wrong, the guarantee is void."""

    def run(self) -> int:
        """Release it."""
        if not self.no_query_was_answered:
            raise InputError(
                f"releasing run {self.id} asserts that none of its queries was answered, and voids the guarantee if "
                "one was; if you know that none was, add --no-query-was-answered."
            )
        from l2p.privacy.ledger.ledger import Ledger

        ledger = Ledger.open(self.file)
        ledger.release(self.id, self.reason)
        print(f"released {self.id}: {ledger.name} has {ledger.in_epsilon(ledger.left(), up=False)} left")
        return 0


@dataclasses.dataclass(frozen=True)
class LedgerCommand:
    """Keep track of what all runs on one data set have spent: create, show or release.

    l2p refuses a ledger that anything else has changed.

    It cannot detect an older copy put back, nor a file rewritten with care."""

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


def _print_runs(ledger: "Ledger", entries: "list[Entry]") -> None:
    """One line per run, cut off where the terminal ends; --json has all of it."""
    width = shutil.get_terminal_size().columns
    print(f"\n{'id':<14}{'state':<10}{'epsilon':<10}{'changed (UTC)':<18}run")
    for run in entries:
        description = run.what if run.protects is None else f"{run.what}, protects all rows of one {run.protects!r}"
        description = f"{description} (released: {run.reason})" if run.reason else description
        changed = run.changed[:16].replace("T", " ")
        line = (
            f"{run.id:<14}{run.state:<10}{rounded(ledger.epsilon(run.counted), up=True):<10}{changed:<18}{description}"
        )
        print(line if len(line) <= width else f"{line[: width - 3]}...")


def _summary(ledger: "Ledger", entries: "list[Entry]") -> dict[str, Any]:
    from l2p.privacy.ledger.ledger import total

    counted = [entry.counted for entry in entries]
    held = [entry.counted for entry in entries if entry.state == "reserved"]
    costs = {"limit": ledger.limit, "spent": total(counted), "reserved": total(held), "left": ledger.left()}
    runs = [
        entry._asdict() | {"reserved": entry.reserved._asdict(), "counted": entry.counted._asdict()}
        for entry in entries
    ]
    terms = {"name": ledger.name, **dataclasses.asdict(ledger.budget), "unit": ledger.unit, "created": ledger.created}
    in_epsilon = {name: float(rounded(ledger.epsilon(cost), up=name != "left")) for name, cost in costs.items()}
    amounts = {name: cost._asdict() for name, cost in costs.items()}
    return terms | {"in_epsilon": in_epsilon} | amounts | {"runs": runs}


def _amount(cost: "Cost") -> str:
    return f"{cost.amount:.6g}" + (f", delta {cost.delta:.6g}" if cost.delta else "")
