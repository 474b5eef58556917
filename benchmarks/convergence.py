"""Does more budget help? Test loss against epsilon, from budgets that buy little to ones whose noise hardly matters.

    python benchmarks/convergence.py run [--seeds 5] [--data openml:segment adult] [--methods shipped]
        [--out docs/results/convergence/table.csv]
    python benchmarks/convergence.py summary [--out docs/results/convergence/table.csv]

Data sets are loaded by name (OpenML's from the folder in L2P_TABLES, or downloaded); `many rows` is drawn here: three
correlated features, as in ../docs/convergence.md. A protector that was made from a set is scored by its fold that never
saw it. `shipped` is what `l2p apply` ran for the model before. A line of the output is a data set, model, method and
epsilon: means over seeds of test loss and accuracy (squared error for numbers), with the standard error of the loss;
lines that are there are not made again.
"""

import csv
import itertools
import math
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import tyro

from l2p import data as public
from l2p.checkpoints.folds import hold_out
from l2p.checkpoints.lookup import resolve
from l2p.checkpoints.overlaps import overlaps
from l2p.checkpoints.set_up import set_up
from l2p.models import Model, find_model
from l2p.privacy.budget import Budget
from l2p.queries.solve import minimise
from l2p.simulate import mean_loss, score, simulate, split, train_size
from l2p.task import Rows

MANY_ROWS = "many rows"
#: By kind of target; what is drawn here has two classes.
DATA: dict[str, tuple[str, ...]] = {
    "multiclass": (
        *(f"openml:{name}" for name in ("segment", "vowel", "waveform5000", "car", "nursery", "page.blocks", "cmc")),
        *(f"openml:{name}" for name in ("vehicle", "splice", "hypothyroid")),
        "digits",
    ),
    "regression": (
        *(f"openml:{name}" for name in ("elevators", "kin8nm", "puma32H", "abalone", "housing", "bank8FM")),
        "california",
    ),
    "binary": (
        *(f"openml:{name}" for name in ("sick", "kr.vs.kp", "credit.g", "mushroom")),
        *("adult", "ipums_br", "breast_cancer", MANY_ROWS),
    ),
}
#: Models beside the first one of a kind are measured on these.
EVERY_MODEL = ("openml:sick", "openml:kr.vs.kp", "adult")
MODELS = {
    "multiclass": ("softmax",),
    "regression": ("square",),
    "binary": ("logistic", "svm", "hinge", "square", "mlp"),
}
#: What ran before `control-kalman`: learned for one model each, from other public sets.
SHIPPED_FOR = {
    ("logistic", "binary"): "universal",
    ("svm", "binary"): "universal-svm-synthetic",
    ("hinge", "binary"): "noisygd",
    ("square", "binary"): "universal-square-synthetic",
    ("mlp", "binary"): "control-universal-mlp-synthetic",
    ("square", "regression"): "regression",
    ("softmax", "multiclass"): "probe",
}
EPSILONS, DELTA = (0.0125, 0.05, 0.2, 0.8, 3.0, 10.0), 1e-6
OURS, SHIPPED, NONPRIVATE = "control-kalman", "shipped", "nonprivate"
METHODS = (OURS, SHIPPED, NONPRIVATE)
FIELDS = (
    *("data", "model", "rows", "features", "method", "protector", "epsilon", "seeds"),
    *("loss", "standard_error", "score"),
)


class Cell(NamedTuple):
    """A data set, and the model that is trained on it."""

    data: str
    model: str

    @property
    def kind(self) -> str:
        return "binary" if self.data == MANY_ROWS else public.kind_of(self.data)

    def find_model(self) -> Model:
        if self.model == "softmax":
            return find_model(f"softmax:{public.num_classes(self.data)}")
        return find_model(self.model, 2 if self.kind == "binary" else None)


def cells_of(data: tuple[str, ...]) -> list[Cell]:
    """The cells of these data sets."""
    found = [(name, kind) for kind, names in DATA.items() for name in names if not data or name in data]
    return [
        Cell(name, model)
        for name, kind in found
        for number, model in enumerate(MODELS[kind])
        if number == 0 or name in EVERY_MODEL
    ]


def rows_of(name: str) -> Rows:
    """A data set's rows, prepared."""
    if name == MANY_ROWS:
        return many_rows()
    found = public.load(name)
    return Rows(found.x, found.y, np.ones(len(found.y), np.float32))


def many_rows(num_rows: int = 200_000) -> Rows:
    """Three features that are nearly one, and two classes that differ along their differences."""
    random = np.random.default_rng(0)
    shared = random.normal(size=(num_rows, 1))
    scores = shared + 0.15 * random.normal(size=(num_rows, 3))
    logits = 9.0 * (scores[:, 0] - scores[:, 1]) + 4.0 * (scores[:, 2] - scores[:, 1]) + 0.8 * scores[:, 0]
    label = random.random(num_rows) < 1.0 / (1.0 + np.exp(-logits))
    x = np.clip(0.5 + scores / 8.0, 0.0, 1.0)
    return Rows(x.astype(np.float32), label.astype(np.float32), np.ones(num_rows, np.float32))


def measured(rows: Rows, cell: Cell, method: str, seeds: int) -> list[dict[str, object]]:
    """A line for each budget."""
    model, asked = cell.find_model(), SHIPPED_FOR[cell.model, cell.kind] if method == SHIPPED else method
    other = None if method == NONPRIVATE or cell.data == MANY_ROWS else hold_out(asked, [cell.data])
    asked = asked if other is None else other.name
    parts = [split(rows, seed) for seed in range(seeds)]
    lines: list[dict[str, object]] = []
    for epsilon in EPSILONS if method != NONPRIVATE else (math.inf,):
        if method == NONPRIVATE:
            params = np.stack([minimise(model, model.init(rows.x.shape[1]), part.private) for part in parts])
        else:
            budget = Budget(epsilon, DELTA)
            resolved = resolve(asked, budget, str(model), num_rows=train_size(rows))
            if any(overlaps(source, [cell.data]) for source in resolved.sources or ()):
                print(*cell, f"{asked} was made from it, and has no fold that was not")
                return []
            ran, _, setup, _ = set_up(resolved, budget, model, rows.x.shape[1], train_size(rows))
            params = simulate([ran.protector], [setup], rows, range(seeds)).params[:, 0]
        tests = [(params[seed], model, part.test) for seed, part in enumerate(parts)]
        losses = [float(mean_loss(*one)) for one in tests]
        scores = [float(score(*one, cell.kind)) for one in tests]
        error = np.std(losses, ddof=1) / len(losses) ** 0.5
        said = (*cell, len(rows.y), rows.x.shape[1], method, asked, epsilon, seeds)
        numbers = (f"{np.mean(losses):.5f}", f"{error:.5f}", f"{np.mean(scores):.4f}")
        lines.append(dict(zip(FIELDS, (*said, *numbers), strict=True)))
    return lines


def run(out: Path, data: tuple[str, ...], methods: tuple[str, ...], seeds: int) -> None:
    """Append the lines that are missing."""
    out.parent.mkdir(parents=True, exist_ok=True)
    there = {(line["data"], line["model"], line["method"]) for line in read(out)}
    for cell in cells_of(data):
        missing = [method for method in methods if (*cell, method) not in there]
        rows = rows_of(cell.data) if missing else None
        for method in missing:
            lines = measured(rows, cell, method, seeds)
            with out.open("a", newline="") as file:
                writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
                if file.tell() == 0:
                    writer.writeheader()
                writer.writerows(lines)
            print(*cell, method, *(line["loss"] for line in lines), flush=True)


def read(out: Path) -> list[dict[str, str]]:
    """The lines of a file; none if there is no file."""
    if not out.exists():
        return []
    with out.open(newline="") as file:
        return list(csv.DictReader(file))


def summary(out: Path) -> None:
    """Print the losses as a table in Markdown, and how often ours is ahead of what ran before."""
    lines = read(out)
    print("| data | model | method |", *(f" {epsilon:g} |" for epsilon in EPSILONS), sep="")
    print("|---|---|---|", "---|" * len(EPSILONS), sep="")
    for cell, method in itertools.product(cells_of(()), METHODS):
        if found := losses_of(lines, cell, method):
            size = next(f"{int(line['rows']):,} x {line['features']}" for line in lines if line["data"] == cell.data)
            print(
                f"| {cell.data} ({size}) | {cell.model} | {method} |", *(f" {loss:.4f} |" for loss, _ in found), sep=""
            )
    for models in (*dict.fromkeys(model for each in MODELS.values() for model in each), None):
        _count(lines, [cell for cell in cells_of(()) if models in (None, cell.model)], models or "all models")


def _count(lines: list[dict[str, str]], cells: list[Cell], title: str) -> None:
    """How often ours is better, level and worse, at each budget."""
    compared = [(losses_of(lines, cell, OURS), losses_of(lines, cell, SHIPPED)) for cell in cells]
    both = list(filter(all, compared))
    if not both:
        return
    ours, theirs = (np.array(side) for side in zip(*both, strict=True))  # [cells, budgets, 2]
    gained, sure = theirs[..., 0] - ours[..., 0], 2.0 * np.hypot(theirs[..., 1], ours[..., 1])
    better, worse = (gained > sure).sum(0), (gained < -sure).sum(0)
    counts = (f"{a}/{len(both) - a - b}/{b}" for a, b in zip(better, worse, strict=True))
    print(f"{OURS} against {SHIPPED} by two standard errors, better/level/worse, {title}:", *counts)


def losses_of(lines: list[dict[str, str]], cell: Cell, method: str) -> list[tuple[float, float]]:
    """Mean loss and standard error at each budget, the same at all for a method without noise; none without lines."""
    found = {
        float(line["epsilon"]): (float(line["loss"]), float(line["standard_error"]))
        for line in lines
        if (line["data"], line["model"], line["method"]) == (*cell, method)
    }
    return [found[math.inf]] * len(EPSILONS) if math.inf in found else [found[one] for one in EPSILONS if found]


def main(
    task: tyro.conf.Positional[Literal["run", "summary"]],
    out: Path = Path("docs/results/convergence/table.csv"),
    data: tuple[str, ...] = (),
    methods: tuple[str, ...] = METHODS,
    seeds: int = 5,
) -> None:
    """Measure, or print what was measured; without `data`, all."""
    if task == "summary":
        summary(out)
    else:
        run(out, data, methods, seeds)


if __name__ == "__main__":
    tyro.cli(main)
