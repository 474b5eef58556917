"""Gains of minutes of meta-training on one's own tables, on held-out rows of these and on another table.

    python -m benchmarks.own_tables --tables FOLDER --minutes 3 10 30 --out runs/own_tables
    python -m benchmarks.own_tables --out runs/own_tables --summarise

FOLDER holds the tables as ARFF, as OpenML publishes them. A case is a number of tables of one kind, or one of each
kind, and a number of minutes. Each runs `l2p meta-train --start universal` in a process of its own, whose wall time
counts from its start to its end, and writes `result.json`; cases that have one are not run again. Schemas are made from
the tables themselves, as `l2p schema --from` does.

Gains on held-out rows are those on the protector's card. On a table of the same kind that neither has seen, what was
made runs beside `universal`: the same splits and noise for both, 10 seeds at delta 1e-5, mean test loss and paired
differences with standard errors. Tables were chosen before anything was
scored, so that the one to score on is within the range of what is made from the first one.
"""

import dataclasses
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tyro

from l2p.checkpoints import checkpoint
from l2p.checkpoints.defaults import MODEL_OF
from l2p.checkpoints.lookup import resolve
from l2p.checkpoints.set_up import set_up
from l2p.models import find_model
from l2p.privacy.budget import Budget
from l2p.run.simulate import mean_loss, simulate, split, train_size
from l2p.tables.reading import open_table
from l2p.tables.schema import Encoding, Schema, read_rows
from l2p.tables.schema.template import from_public
from l2p.task.rows import Rows

#: By kind: tables to train on, the first ones where there are fewer, and one to score on.
KINDS = {
    "two classes": (("credit.g", "kr.vs.kp", "sick", "diabetes", "tic-tac-toe"), "credit.a"),
    "several classes": (("car", "vehicle", "segment", "page.blocks", "cmc"), "waveform5000"),
    "numbers": (("abalone", "kin8nm", "housing", "puma8NH", "bank8FM"), "elevators"),
    "all kinds": (("credit.g", "vehicle", "abalone"), "elevators"),
}
COUNTS = (1, 2, 5)
START = "universal"
EPSILON, DELTA, SEEDS = (0.1, 0.3, 1.0), 1e-5, range(10)
RESULT, COLUMNS = "result.json", ("minutes", "kind", "tables", "wall min", "steps", "held-out rows", *map(str, EPSILON))


@dataclasses.dataclass(frozen=True)
class Case:
    """One training: so many tables of a kind, in so many minutes."""

    kind: str
    count: int
    minutes: float

    @property
    def folder(self) -> str:
        """Name of its folder."""
        return f"{self.kind.replace(' ', '-')}-{self.count}-{self.minutes:g}"


def cases(minutes: Sequence[float]) -> list[Case]:
    """All of them, those of few minutes first."""
    counts = [
        (kind, count)
        for kind, (names, _) in KINDS.items()
        for count in (*COUNTS, 3)
        if count <= len(names) and (count == 3) == (kind == "all kinds")
    ]
    return [Case(kind, count, limit) for limit in sorted(minutes) for kind, count in counts]


def prepared(name: str, tables: Path, out: Path) -> tuple[Path, Path]:
    """A table and its schema, which is made once, as `l2p schema --from` makes it."""
    path, schema = tables / f"{name}.arff.gz", out / f"{name}.json"
    if not schema.exists():
        source = open_table(path)
        from_public(source, source.names[-1], source.names, curve=0).write(schema)
    return path, schema


def train(case: Case, tables: Path, out: Path, start: str) -> dict[str, Any]:
    """Meta-train in a process of its own; what it said, how long it took, and what its card says."""
    names = KINDS[case.kind][0][: case.count]
    data, schemas = zip(*(prepared(name, tables, out) for name in names), strict=True)
    folder = out / case.folder
    words = ["--data", *map(str, data), "--schema", *map(str, schemas), "--start", start]
    words += ["--minutes", f"{case.minutes:g}", "--out", str(folder)]
    began = time.monotonic()
    ran = subprocess.run(
        [sys.executable, "-m", "l2p", "meta-train", *words], capture_output=True, text=True, check=False
    )
    result = {"tables": names, "wall_minutes": round((time.monotonic() - began) / 60.0, 2), "exit": ran.returncode}
    result |= {"said": ran.stderr.splitlines(), "load": os.getloadavg()[2]}
    if ran.returncode:
        return result
    card = checkpoint.load(ran.stdout.strip().splitlines()[-1]).card
    result["protector"] = ran.stdout.strip().splitlines()[-1]
    return result | {"steps": card["held_out"]["steps"], "gains": card["held_out"]["gains"], "range": card["range"]}


def losses(name: str, rows: Rows, schema: Schema) -> tuple[np.ndarray, list[str]]:
    """Test losses f[seeds, budgets] of a protector, and what ran at each budget; budgets at which the same runs are
    simulated together."""
    target = schema.target
    count = None if target.classes is None else len(target.classes)
    model_name = MODEL_OF[target.kind] if target.kind != "multiclass" else f"{MODEL_OF[target.kind]}:{count}"
    model, ready = find_model(model_name, count), {}
    for column, epsilon in enumerate(EPSILON):
        budget = Budget(epsilon, DELTA)
        ran, _, setup, warnings = set_up(
            resolve(name, budget, model_name), budget, model, rows.x.shape[1], train_size(rows), kind=target.kind
        )
        print(f"{name} at epsilon {epsilon}: {ran.name} runs", *warnings, flush=True)
        ready.setdefault(ran.name, []).append((column, ran.protector, setup))
    test_losses, runs = np.zeros((len(SEEDS), len(EPSILON))), [""] * len(EPSILON)
    for ran, entries in ready.items():
        columns, protectors, setups = zip(*entries, strict=True)
        params = simulate(protectors, setups, rows, SEEDS).params
        for place, column in enumerate(columns):
            runs[column] = ran
            for seed in SEEDS:
                test_losses[seed, column] = mean_loss(params[seed, place], model, split(rows, seed).test)
    return test_losses, runs


def score(protector: str, name: str, tables: Path, out: Path) -> dict[str, Any]:
    """A protector beside `universal` on a table that it has not seen."""
    path, schema_path = prepared(name, tables, out)
    schema = Schema.read(schema_path)
    rows = jax.tree.map(np.asarray, read_rows(path, Encoding(schema)))
    mine, runs = losses(protector, rows, schema)
    path_of_losses = out / f"{name}-{START}.npy"
    if not path_of_losses.exists():
        np.save(path_of_losses, losses(START, rows, schema)[0])
    theirs = np.load(path_of_losses)
    gain = theirs - mine
    return {
        "scored_on": name,
        "rows": len(rows.y),
        "features": rows.x.shape[1],
        "epsilon": EPSILON,
        "runs": runs,
        "loss": mine.mean(0).round(5).tolist(),
        f"loss of {START}": theirs.mean(0).round(5).tolist(),
        "gain": gain.mean(0).round(5).tolist(),
        "standard_error": (gain.std(0, ddof=1) / len(SEEDS) ** 0.5).round(5).tolist(),
    }


def summary(out: Path) -> str:
    """The results in a folder as a table in Markdown."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + " --- |" * len(COLUMNS)]
    results = [json.loads(path.read_text()) for path in out.glob(f"*/{RESULT}")]
    for result in sorted(
        results, key=lambda result: (result["minutes"], list(KINDS).index(result["kind"]), result["count"])
    ):
        cells = [f"{result['minutes']:g}", result["kind"], str(result["count"]), f"{result['wall_minutes']:.2f}"]
        if result["exit"]:
            cells += ["refused: " + result["said"][-1], *[""] * (len(COLUMNS) - 5)]
        else:
            means, errors = (np.array(result["gains"][name]) for name in ("mean", "standard_error"))
            serves = means > 2 * errors
            gain = f"{100 * (np.exp(-means[serves].mean()) - 1):+.0f} %" if serves.any() else "none"
            cells += [str(result["steps"]), f"{gain} in {serves.sum()} of {len(means)} bands"]
            unseen = result["unseen"]
            same = [name == START for name in unseen["runs"]]
            cells += [
                "same" if is_start else f"{gain:+.4f} ({error:.4f})"
                for is_start, gain, error in zip(same, unseen["gain"], unseen["standard_error"], strict=True)
            ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(
    out: Path,
    tables: Path | None = None,
    minutes: tuple[float, ...] = (3.0, 10.0, 30.0),
    only: str = "",
    summarise: bool = False,
) -> None:
    """Train and score what has no result yet, then print all results as a table.

    Args:
      out: for trainings, each in a folder of its own.
      tables: folder of the tables, as ARFF.
      minutes: for each training.
      only: a regular expression for the folders of the cases to run, such as `two-classes-1`.
      summarise: only print what is there.
    """
    out.mkdir(parents=True, exist_ok=True)
    for case in [] if summarise else cases(minutes):
        path = out / case.folder / RESULT
        if path.exists() or not re.search(only, case.folder):
            continue
        if tables is None:
            raise SystemExit("name the folder of the tables with --tables.")
        print(f"{case.folder}, at {time.strftime('%H:%M')}", flush=True)
        result = dataclasses.asdict(case) | train(case, tables, out, START)
        if result["exit"] == 0:
            result["unseen"] = score(result["protector"], KINDS[case.kind][1], tables, out)
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(result, indent=1))
    print(summary(out))


if __name__ == "__main__":
    tyro.cli(main)
