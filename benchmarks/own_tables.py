"""What ten minutes of meta-training on three public tables gain on a fourth one.

    python benchmarks/own_tables.py --folder FOLDER --out runs/own_tables

FOLDER holds the tables as ARFF, as OpenML publishes them.

Schemas are made from the tables themselves, as `l2p schema --from` does. `universal-logistic`, fine-tuned on three
tables, is then run on the fourth beside it as it is and its constants, `control-universal-logistic`: the same splits
and noise for each, 10 seeds, mean test loss and accuracy, and paired differences with their standard errors. The tables
were chosen before anything was run.
"""

import json
from pathlib import Path

import jax
import numpy as np
import tyro

from l2p.checkpoints.lookup import resolve
from l2p.checkpoints.set_up import set_up
from l2p.data.reading import open_table
from l2p.models import find_model
from l2p.privacy.budget import Budget
from l2p.schema import Encoding, Schema, read_rows
from l2p.schema.template import from_public
from l2p.simulate import mean_loss, score, simulate, split, train_size
from l2p.task import Rows
from meta_train import fine_tune

#: Each with its target.
TRAINED_ON = {"credit.g": "class", "kr.vs.kp": "Class", "sick": "Class"}
SCORED_ON = {"mushroom": "Class"}
START = "universal-logistic"
EPSILON, DELTA, SEEDS = (0.1, 0.3, 1.0), 1e-5, range(10)


def schema_of(path: Path, target: str) -> Schema:
    """The schema that `l2p schema --from` makes of a table."""
    source = open_table(path)
    name = next(column for column in source.names if column.lower() == target.lower())
    return from_public(source, name, source.names)


def scores(name: str, rows: Rows) -> dict[str, np.ndarray]:
    """Test loss and accuracy f[seeds, budgets] of a protector."""
    model = find_model("logistic", 2)
    found = {metric: np.zeros((len(SEEDS), len(EPSILON))) for metric in ("loss", "accuracy")}
    for column, epsilon in enumerate(EPSILON):
        budget = Budget(epsilon, DELTA)
        resolved = resolve(name, budget, "logistic")
        ran, _, setup, warnings = set_up(resolved, budget, model, rows.x.shape[1], train_size(rows))
        print(f"{name} at epsilon {epsilon}: {ran.name} runs", *warnings, flush=True)
        params = simulate([ran.protector], [setup], rows, SEEDS).params[:, 0]
        for seed in SEEDS:
            test = split(rows, seed).test
            found["loss"][seed, column] = mean_loss(params[seed], model, test)
            found["accuracy"][seed, column] = score(params[seed], model, test, "binary")
    return found


def main(folder: Path, out: Path, minutes: float = 10.0) -> None:
    """Train and score.

    Args:
      folder: of the tables, as ARFF.
      out: for the training and `scores.json`.
      minutes: for the training.
    """
    tables = [folder / f"{name}.arff.gz" for name in TRAINED_ON]
    schemas = [schema_of(path, target) for path, target in zip(tables, TRAINED_ON.values(), strict=True)]
    path = fine_tune(tables, schemas, out, START, minutes)
    ((name, target),) = SCORED_ON.items()
    table = folder / f"{name}.arff.gz"
    rows = jax.tree.map(np.asarray, read_rows(table, Encoding(schema_of(table, target))))
    found = {one: scores(one, rows) for one in (str(path), START, f"control-{START}")}
    mine, *others = found
    told: dict = {
        "scored_on": name,
        "rows": len(rows.y),
        "features": rows.x.shape[1],
        "epsilon": EPSILON,
        "delta": DELTA,
    }
    for one, metrics in found.items():
        told[Path(one).stem] = {metric: [round(v, 4) for v in values.mean(0)] for metric, values in metrics.items()}
    for other in others:
        gains = {"loss": found[other]["loss"] - found[mine]["loss"]}
        gains["accuracy"] = found[mine]["accuracy"] - found[other]["accuracy"]
        told[f"gain over {other}"] = {
            metric: [[round(float(one), 4) for one in (v.mean(), v.std(ddof=1) / len(v) ** 0.5)] for v in values.T]
            for metric, values in gains.items()
        }
    (out / "scores.json").write_text(json.dumps(told, indent=1))
    print(json.dumps(told, indent=1))


if __name__ == "__main__":
    tyro.cli(main)
