"""Does more budget help? Test loss against epsilon, from budgets that buy little to ones whose noise hardly matters.

    python benchmarks/convergence.py run --folder FOLDER [--seeds 5] [--tables segment elevators] [--methods noisygd]
        [--out docs/results/convergence/table.csv]
    python benchmarks/convergence.py summary [--out docs/results/convergence/table.csv]

FOLDER holds tables as ARFF, as OpenML publishes them; `many rows` is drawn here: three correlated features, as in
../docs/convergence.md. Schemas are made from the tables themselves, as `l2p schema --from` does. `shipped` is what
`l2p apply` runs for the model. A line of the output is a table, method and epsilon: means over seeds of test loss and
accuracy (squared error for numbers), with the standard error of the loss; lines that are there are not made again.
"""

import csv
import itertools
import math
from pathlib import Path
from typing import Literal

import jax
import numpy as np
import tyro

from l2p.checkpoints.defaults import default_protector
from l2p.checkpoints.lookup import resolve
from l2p.checkpoints.set_up import set_up
from l2p.data.reading import open_table
from l2p.models import find_model
from l2p.privacy.budget import Budget
from l2p.queries.solve import minimise
from l2p.schema import Encoding, read_rows
from l2p.schema.template import from_public
from l2p.simulate import mean_loss, score, simulate, split, train_size
from l2p.task import Rows

#: Target and model of each; None for what is drawn here.
TABLES: dict[str, tuple[str | None, str]] = {
    "segment": ("class", "softmax:7"),
    "vowel": ("Class", "softmax:11"),
    "waveform5000": ("class", "softmax:3"),
    "car": ("class", "softmax:4"),
    "nursery": ("class", "softmax:5"),
    "page.blocks": ("class", "softmax:5"),
    "cmc": ("Contraceptive_method_used", "softmax:3"),
    "vehicle": ("Class", "softmax:4"),
    "elevators": ("Goal", "square"),
    "kin8nm": ("y", "square"),
    "puma32H": ("thetadd6", "square"),
    "sick": ("Class", "logistic"),
    "kr.vs.kp": ("class", "logistic"),
    "many rows": (None, "logistic"),
}
EPSILONS, DELTA = (0.0125, 0.05, 0.2, 0.8, 3.0, 10.0), 1e-6
OURS, SHIPPED, NONPRIVATE = "kalman", "shipped", "nonprivate"
METHODS = (OURS, "control-kalman", SHIPPED, "noisygd", NONPRIVATE)
FIELDS = ("table", "rows", "features", "method", "epsilon", "seeds", "loss", "standard_error", "score")


def rows_of(folder: Path, name: str) -> Rows:
    """A table's rows, prepared for its model."""
    target, _ = TABLES[name]
    if target is None:
        return many_rows()
    path = next(one for one in (folder / f"{name}.arff.gz", folder / f"{name}.arff") if one.exists())
    source = open_table(path)
    column = next(one for one in source.names if one.lower() == target.lower())
    return jax.tree.map(np.asarray, read_rows(path, Encoding(from_public(source, column, source.names))))


def many_rows(num_rows: int = 200_000) -> Rows:
    """Three features that are nearly one, and two classes that differ along their differences."""
    random = np.random.default_rng(0)
    shared = random.normal(size=(num_rows, 1))
    scores = shared + 0.15 * random.normal(size=(num_rows, 3))
    logits = 9.0 * (scores[:, 0] - scores[:, 1]) + 4.0 * (scores[:, 2] - scores[:, 1]) + 0.8 * scores[:, 0]
    label = random.random(num_rows) < 1.0 / (1.0 + np.exp(-logits))
    x = np.clip(0.5 + scores / 8.0, 0.0, 1.0)
    return Rows(x.astype(np.float32), label.astype(np.float32), np.ones(num_rows, np.float32))


def measured(rows: Rows, name: str, method: str, seeds: int) -> list[dict[str, object]]:
    """A line for each budget."""
    _, model_name = TABLES[name]
    model = find_model(model_name, None if ":" in model_name else 2)
    kind = model.kind(None if model_name == "square" else model.labels)
    asked = default_protector(model_name) if method == SHIPPED else method
    parts = [split(rows, seed) for seed in range(seeds)]
    lines: list[dict[str, object]] = []
    for epsilon in EPSILONS if method != NONPRIVATE else (math.inf,):
        if method == NONPRIVATE:
            params = np.stack([minimise(model, model.init(rows.x.shape[1]), part.private) for part in parts])
        else:
            budget = Budget(epsilon, DELTA)
            resolved = resolve(asked, budget, model_name, num_rows=train_size(rows))
            ran, _, setup, _ = set_up(resolved, budget, model, rows.x.shape[1], train_size(rows))
            params = simulate([ran.protector], [setup], rows, range(seeds)).params[:, 0]
        tests = [(params[seed], model, part.test) for seed, part in enumerate(parts)]
        losses, scores = [float(mean_loss(*one)) for one in tests], [float(score(*one, kind)) for one in tests]
        error = np.std(losses, ddof=1) / len(losses) ** 0.5
        numbers = (epsilon, seeds, f"{np.mean(losses):.5f}", f"{error:.5f}", f"{np.mean(scores):.4f}")
        lines.append(dict(zip(FIELDS, (name, len(rows.y), rows.x.shape[1], method, *numbers), strict=True)))
    return lines


def run(
    folder: Path,
    out: Path = Path("docs/results/convergence/table.csv"),
    tables: tuple[str, ...] = tuple(TABLES),
    methods: tuple[str, ...] = METHODS,
    seeds: int = 5,
) -> None:
    """Append the lines that are missing."""
    out.parent.mkdir(parents=True, exist_ok=True)
    there = {(line["table"], line["method"]) for line in read(out)}
    for name in tables:
        rows = None
        for method in methods:
            if (name, method) in there:
                continue
            rows = rows_of(folder, name) if rows is None else rows
            lines = measured(rows, name, method, seeds)
            with out.open("a", newline="") as file:
                writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
                if file.tell() == 0:
                    writer.writeheader()
                writer.writerows(lines)
            print(name, method, *(line["loss"] for line in lines), flush=True)


def read(out: Path) -> list[dict[str, str]]:
    """The lines of a file; none if there is no file."""
    if not out.exists():
        return []
    with out.open(newline="") as file:
        return list(csv.DictReader(file))


def summary(out: Path) -> None:
    """Print the losses as a table in Markdown, and how often `kalman` is ahead of what ships."""
    lines = read(out)
    print(
        "| table | method |",
        *(f" {epsilon:g} |" for epsilon in EPSILONS),
        "\n|---|---|" + "---|" * len(EPSILONS),
        sep="",
    )
    for name, method in itertools.product(TABLES, METHODS):
        found = cells(lines, name, method)
        if found:
            size = next(f"{int(line['rows']):,} x {line['features']}" for line in lines if line["table"] == name)
            print(f"| {name} ({size}) | {method} |", *(f" {loss:.4f} |" for loss, _ in found), sep="")
    compared = [(cells(lines, name, OURS), cells(lines, name, SHIPPED)) for name in TABLES]
    ours, theirs = (np.array(side) for side in zip(*filter(all, compared), strict=True))  # [tables, budgets, 2]
    gained = theirs[..., 0] - ours[..., 0]
    sure = 2.0 * np.hypot(theirs[..., 1], ours[..., 1])
    print(f"\n{OURS} against {SHIPPED} by two standard errors, on {len(ours)} tables:")
    for number, epsilon in enumerate(EPSILONS):
        better, worse = (gained > sure)[:, number].sum(), (gained < -sure)[:, number].sum()
        print(f"epsilon {epsilon:g}: better on {better}, level on {len(ours) - better - worse}, worse on {worse}")


def cells(lines: list[dict[str, str]], name: str, method: str) -> list[tuple[float, float]]:
    """Mean loss and standard error at each budget, the same at all for a method without noise; none without lines."""
    found = {
        float(line["epsilon"]): (float(line["loss"]), float(line["standard_error"]))
        for line in lines
        if (line["table"], line["method"]) == (name, method)
    }
    return [found[math.inf]] * len(EPSILONS) if math.inf in found else [found[one] for one in EPSILONS if found]


def main(
    task: tyro.conf.Positional[Literal["run", "summary"]],
    folder: Path | None = None,
    out: Path = Path("docs/results/convergence/table.csv"),
    tables: tuple[str, ...] = tuple(TABLES),
    methods: tuple[str, ...] = METHODS,
    seeds: int = 5,
) -> None:
    """Measure, or print what was measured."""
    if task == "summary":
        summary(out)
    elif folder is None:
        raise SystemExit("run needs --folder, the folder of the tables.")
    else:
        run(folder, out, tables, methods, seeds)


if __name__ == "__main__":
    tyro.cli(main)
