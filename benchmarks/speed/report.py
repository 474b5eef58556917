"""What was measured, as a file, as tables and as a page: with machine, versions, and goals that were reached or not."""

import dataclasses
import datetime
import importlib.metadata
import json
import operator
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.speed.timing import Table, summary

FOLDER = Path(__file__).resolve().parents[1]
RESULTS, PAGE = FOLDER / "results" / "speed.jsonl", FOLDER / "pages" / "speed.md"
PACKAGES = ("jax", "jaxlib", "numpy", "optax", "torch", "opacus", "jax-privacy", "dp-accounting")


@dataclasses.dataclass(frozen=True)
class Goal:
    """A ratio of medians of one table.

    Attributes:
      table: the title's beginning; every table with it has to reach the goal.
      name, base: the ratio of this contender to that one.
      at_most: or at least.
      bound: of the ratio.
    """

    table: str
    name: str
    base: str
    at_most: bool
    bound: float

    def measured(self, table: Table) -> float | None:
        """The ratio, or None if one of the contenders was not run."""
        if self.name not in table.values or self.base not in table.values:
            return None
        return table.ratio(self.name, self.base)

    def is_reached(self, ratio: float) -> bool:
        """Whether a ratio is good enough."""
        return (operator.le if self.at_most else operator.ge)(ratio, self.bound)


#: Opacus without its loader, which is most of its time; quoted beside it.
IN_MEMORY = "Opacus, rows in memory"
FULL, BATCHES = "logistic, full batch", "logistic, Poisson batches of 1,000"
GOALS = (
    Goal(f"{FULL}, 30,400", "l2p", "optax, rows [N, d]", True, 0.5),
    Goal(f"{FULL}, 204,800", "l2p", "optax, rows [N, d]", True, 0.3),
    Goal(f"{FULL}, 30,400", "l2p", "optax, rows [d, N]", True, 1.15),
    Goal(f"{FULL}, 30,400", "Opacus", "l2p", False, 500.0),
    Goal(f"{FULL}, 30,400", "jax-privacy", "l2p", False, 15.0),
    Goal(f"{BATCHES}, 30,400", "Opacus", "l2p", False, 100.0),
    Goal(f"{BATCHES}, 30,400", "jax-privacy", "l2p", False, 4.0),
    Goal("64 replicates", "l2p", "two BLAS products", True, 1.5),
    Goal("release", "release", "simulation", True, 2.0),
    Goal("meta-gradient by an LSTM", "PyTorch", "l2p", False, 3.0),
)


def about(core: int, quick: bool, rounds: int) -> dict[str, str]:
    """The command without its parts, the machine and the versions, in words."""
    model = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    versions = [f"Python {platform.python_version()}", *(f"{name} {version(name)}" for name in PACKAGES)]
    load = f"core {core} of {os.cpu_count()}, load {os.getloadavg()[0]:.1f} at the start"
    day = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {
        "command": f"python -m benchmarks{' --quick' if quick else ''} --rounds {rounds}",
        "machine": f"{model}, {load}, {day}",
        "versions": ", ".join(versions),
    }


def version(package: str) -> str:
    """The installed version, or "absent"."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


def keep(path: Path, part: str, about: dict[str, str], tables: Sequence[Table]) -> None:
    """Write a part's tables to a file of JSON lines, in place of what it has of this part."""
    lines = [line for line in _lines(path) if line["part"] != part] if path.exists() else []
    lines += [{"part": part, "about": about, "table": dataclasses.asdict(table)} for table in tables]
    for line in lines:
        values = line["table"]["values"]
        line["table"]["values"] = {name: [float(f"{value:.4g}") for value in each] for name, each in values.items()}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def read(path: Path) -> dict[str, tuple[dict[str, str], list[Table]]]:
    """By part, the machine and the versions, and the tables."""
    parts: dict[str, tuple[dict[str, str], list[Table]]] = {}
    for line in _lines(path):
        parts.setdefault(line["part"], (line["about"], []))[1].append(Table(**line["table"]))
    return parts


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def markdown(table: Table) -> str:
    """A table of medians and of ratios to its base."""
    lines = [f"| {table.title} | median | over {table.base} | middle half |", "|---|---|---|---|"]
    lines += [f"| {' | '.join(cells)} |" for cells in summary(table)]
    return "\n".join([*lines, *(["", table.note] if table.note else [])])


def goals(tables: Sequence[Table]) -> list[str]:
    """A line for every goal and every table that it is about."""
    lines = ["| work | ratio | goal | measured | reached |", "|---|---|---|---|---|"]
    for goal in GOALS:
        for table in (table for table in tables if table.title.startswith(goal.table)):
            ratio = goal.measured(table)
            bound = f"{'at most' if goal.at_most else 'at least'} {goal.bound:g}"
            outcome = ("not run", "") if ratio is None else (f"{ratio:.3g}", "yes" if goal.is_reached(ratio) else "no")
            if ratio is not None and IN_MEMORY.partition(",")[0] == goal.name and IN_MEMORY in table.values:
                outcome = f"{outcome[0]}; with rows in memory {table.ratio(IN_MEMORY, goal.base):.3g}", outcome[1]
            lines.append(f"| {table.title} | {goal.name} / {goal.base} | {bound} | {' | '.join(outcome)} |")
    return lines


def page(parts: dict[str, tuple[dict[str, str], list[Table]]]) -> str:
    """The page in Markdown."""
    from benchmarks.__main__ import PARTS

    everything = [table for _, tables in parts.values() for table in tables]
    inside = [table for table in everything if table.title.startswith("parts of a")]
    blocks = [INTRODUCTION, "## Goals", "\n".join(goals(everything)), WHERE, *map(markdown, inside)]
    for name, text in PARTS.items():
        if name in parts:
            about, tables = parts[name]
            origin = f"`{about['command']} --only {name}`; {about['machine']}; {about['versions']}"
            blocks += [f"## {name.capitalize()}", f"{text[0].upper()}{text[1:]} ({origin})."]
            blocks += [markdown(table) for table in tables if table not in inside]
    return "\n\n".join(blocks) + "\n"


def write_page(path: Path) -> None:
    """Write the page from a file of measurements."""
    PAGE.write_text(page(read(path)))


INTRODUCTION = """\
# Speed

Written by `python -m benchmarks --page benchmarks/results/speed.jsonl` from what `--json` of the same command measured;
no figure here was typed.

Contenders of a table do the same work, which is checked before they are timed: from the same start they end at the
same loss, without noise and clipping, on a smaller table. They take turns, in one process, on one core and in one
thread each; seconds are those that a process computed, which leaves out what other jobs on the machine took. Medians
are over turns; the middle half is that of the ratios within a turn. What other libraries do is written as their
documentation does it."""

WHERE = """\
## Where the time goes

Parts of private steps and of a release's sums, each compiled and called alone, beside the whole, in which XLA joins
some of them. What does not change is computed once in a run, and what a table needs, once for all runs.

- Full batches: the two products with the table take nearly all of a step, as they do in a plain one feature by feature;
  what privacy adds (norms, clipping, noise) is the small rest. One pass over blocks that stay in a core's cache would
  read the table once and not twice, but XLA makes products with one vector part of loops that stride through a block,
  which takes several times as long.
- Poisson batches: half of a step is the solve for the noise multiplier of the step's share, 4 to 20 prices of a
  sampled query one after another, most where prices bend. It waits for what earlier steps were charged, to the bit, so
  it cannot be taken out of the loop; other libraries are given theirs. With multipliers from a table, as in
  meta-training, a step takes about as long as a plain one, which fetches as many rows; to be as many times faster than
  other libraries as asked, it would have to be several times faster than that.
- Releases: a sum is of whole numbers in float64, so that it is exact in any order. That is twice the bytes, and XLA's
  product of a vector with rows of float64 is slow; tables turned, padded or cut otherwise were no faster. A simulation
  on the same rows has become faster than it was, a release less so.
- Starts: of the next start of `PrivateClassifier.fit`, half is imports, most of it scikit-learn's base with pandas and
  scipy.stats, and half is tracing and reading compiled programs."""
