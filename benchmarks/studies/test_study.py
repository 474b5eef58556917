"""The study of the paper's experiments, small: the script that runs them all, on a set that needs no download."""

import csv
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from l2p.compare import results

SCRIPT = Path(__file__).resolve().parents[1] / "study.py"


def test_the_study_writes_tables_figures_and_curves(tmp_path):
    words = ["--only", "breast_cancer_steps", "--seeds", "2", "--jobs", "2", "--out", str(tmp_path)]
    process = subprocess.run([sys.executable, str(SCRIPT), *words], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    assert "not run" not in process.stdout
    assert "== all:" in process.stdout
    steps = tmp_path / "breast_cancer_steps"
    assert {"results.csv", "summary.md", "figure.svg", "log.txt"} <= {path.name for path in steps.iterdir()}
    rows = results.read(steps / "results.csv")
    assert all(results.is_scored(row) for row in rows)
    assert all(row["epsilon_certified"] <= row["epsilon"] for row in rows)

    assert (steps / "steps.svg").stat().st_size > 0
    with (steps / "steps.csv").open() as file:
        curves = list(csv.DictReader(file))
    last = {row["method"]: float(row["train_loss_mean"]) for row in curves}
    spent = dict.fromkeys(last, 0.0)
    for row in curves:
        spent[row["method"]] += float(row["share_of_budget_mean"])
    losses = results.by_seed(rows, "train_loss")
    for method, cells in losses.items():
        # The curves are of the same runs that the table scored.
        assert last[method] == pytest.approx(np.mean(list(cells[0.5].values())), rel=1e-3)
        assert 0.9 < spent[method] <= 1.0 + 1e-5
