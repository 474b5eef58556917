"""Headroom: how much less loss is left where the constants of `control-universal` are searched on the table itself.

    python -m benchmarks.headroom --tables FOLDER --out runs/headroom
    python -m benchmarks.headroom --out runs/headroom --summarise

FOLDER holds OpenML's tables as ARFF; without it they are downloaded. A cell is a table, a model and a budget, and a
line of OUT/cells.jsonl. A case, a table and a model, is not run again once its cells are there. A fifth of a table's
rows is for testing alone. On the others, 6,000 at most, run

- the control of the fold that never saw the table;
- the same protector, its constants at this budget searched on these rows: gradient descent through simulated runs on
  four fifths of them, which stand for all, judged on the last fifth, with other draws and other noise at every step.
  The search is not charged, so this is no private method: it shows what the filter can do where it knows its table;
- rivals that are asked for by name, each at its own settings;
- references: the model without privacy, with the best of a few ridges; the best constant; the start.

Losses are those on the test rows, means over 12 draws of noise that no search has used. Headroom is what the search
gains over the control. It is told as a share of the control's distance to the model without privacy; cells where that
distance is within 2 % of the gap between start and that model have none. Standard errors of differences count both
noise and test rows.
"""

import json
import os
import time
from pathlib import Path

import tyro

from benchmarks.headroom.cases import cases, cells
from benchmarks.headroom.summary import Cell, summary
from l2p.tables.public import openml


def main(
    out: Path,
    tables: Path | None = None,
    rivals: tuple[str, ...] = (),
    only: str = "",
    summarise: bool = False,
) -> None:
    """Run the cases that have no cells yet, then print a summary of all.

    Args:
      out: folder of the cells.
      tables: folder of OpenML's tables, as ARFF.
      rivals: methods to run beside the control, such as universal or noisygd_mean:tuned.
      only: part of the names of the tables to run.
      summarise: only print.
    """
    path = out / "cells.jsonl"
    out.mkdir(parents=True, exist_ok=True)
    if tables is not None:
        os.environ[openml.FOLDER] = str(tables)
    measured = {(cell["data"], cell["model"]) for cell in read(path)}
    for name, model in [] if summarise else cases():
        if only not in name or (name, model) in measured:
            continue
        print(f"{name}, {model}, at {time.strftime('%H:%M')}", flush=True)
        # All cells of a case at once: a run that is stopped leaves none of a part.
        lines = [json.dumps(cell) + "\n" for cell in cells(name, model, rivals)]
        with path.open("a") as file:
            file.write("".join(lines))
    print(summary(read(path)))


def read(path: Path) -> list[Cell]:
    """The cells of a file; none where there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


if __name__ == "__main__":
    tyro.cli(main)
