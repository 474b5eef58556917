"""Test loss against epsilon, from budgets that buy little to ones whose noise hardly matters.

    python -m benchmarks.convergence run [--seeds 5] [--cells openml:segment,softmax] [--methods noisygd]
        [--out benchmarks/results/convergence/table.csv]
    python -m benchmarks.convergence summary [--ours universal] [--theirs control-universal]
        [--out benchmarks/results/convergence/table.csv]

A cell is a public set and a model. `many rows:N` is drawn here: three correlated features, N rows. A protector that was
made from a set is replaced by its fold that never saw it. A line of the output is a cell, method and epsilon: means
over seeds of test loss and accuracy (squared error for numbers), with the standard error of the loss; lines that are
there are not made again.
"""

import csv
import dataclasses
import itertools
import math
from pathlib import Path
from typing import Literal

import jax
import numpy as np
import tyro

from l2p.base.errors import InputError
from l2p.checkpoints.lookup import resolve
from l2p.checkpoints.set_up import set_up
from l2p.models import Model, find_model
from l2p.privacy.budget import Budget
from l2p.queries.solve import minimise
from l2p.run.simulate import mean_loss, score, simulate, split, train_size
from l2p.tables.public import catalog
from l2p.task.rows import Rows
from l2p.task.task import Task

DRAWN = "many rows:"
#: Data and model; tables of each kind, and further models on some of two classes.
CELLS: tuple[tuple[str, str], ...] = (
    *((f"openml:{name}", "softmax") for name in ("segment", "vowel", "waveform5000", "car", "nursery")),
    *((f"openml:{name}", "softmax") for name in ("page.blocks", "cmc", "vehicle")),
    ("digits", "softmax"),
    *((f"openml:{name}", "square") for name in ("elevators", "kin8nm", "puma32H")),
    ("california", "square"),
    *((f"openml:{name}", "logistic") for name in ("sick", "kr.vs.kp", "mushroom", "credit.g")),
    ("adult", "logistic"),
    ("ipums_br", "logistic"),
    *((f"{DRAWN}{10**power}", "logistic") for power in range(3, 8)),
    *((f"openml:{name}", "svm") for name in ("sick", "kr.vs.kp", "credit.g")),
    *((f"openml:{name}", "hinge") for name in ("sick", "kr.vs.kp", "credit.g")),
    *((f"openml:{name}", "square") for name in ("sick", "kr.vs.kp", "credit.g")),
    *((f"openml:{name}", "mlp") for name in ("sick", "kr.vs.kp", "credit.g")),
)
EPSILONS, DELTA = (0.0125, 0.05, 0.2, 0.8, 3.0, 10.0), 1e-6
OURS, CONTROL = "universal", "control-universal"
NONPRIVATE, BASE = "nonprivate", "no_features"
METHODS = (OURS, CONTROL, "noisygd", NONPRIVATE, BASE)
FIELDS = ("data", "model", "rows", "features", "method", "epsilon", "seeds", "loss", "standard_error", "score")

Cell = tuple[str, str]
#: Mean loss and standard error at each budget.
Curve = list[tuple[float, float]]


def rows_of(name: str) -> tuple[Rows, int | None]:
    """A set's rows, and how many classes it has."""
    if name.startswith(DRAWN):
        return many_rows(int(name.removeprefix(DRAWN))), 2
    dataset = catalog.load(name)
    return Rows(dataset.x, dataset.y, np.ones(len(dataset.y), np.float32)), catalog.num_classes(name)


def many_rows(num_rows: int) -> Rows:
    """Three features that are nearly one, and two classes that differ along their differences."""
    random = np.random.default_rng(0)
    shared = random.normal(size=(num_rows, 1))
    scores = shared + 0.15 * random.normal(size=(num_rows, 3))
    logits = 9.0 * (scores[:, 0] - scores[:, 1]) + 4.0 * (scores[:, 2] - scores[:, 1]) + 0.8 * scores[:, 0]
    label = random.random(num_rows) < 1.0 / (1.0 + np.exp(-logits))
    x = np.clip(0.5 + scores / 8.0, 0.0, 1.0)
    return Rows(x.astype(np.float32), label.astype(np.float32), np.ones(num_rows, np.float32))


#: Methods whose params do not depend on a budget, and whether they use features.
EXACT = {NONPRIVATE: True, BASE: False}


def without_noise(model: Model, part: Task, features: bool) -> np.ndarray:
    """The best params f[p]."""
    rows = part.private if features else dataclasses.replace(part.private, x=np.zeros_like(part.private.x))
    return np.asarray(minimise(model, model.init(rows.x.shape[1]), rows))


def private(method: str, model: Model, kind: str, rows: Rows, name: str, seeds: int) -> np.ndarray:
    """Params [seeds, budgets, p] of a protector on the rows of a set."""
    num_rows, width = train_size(rows), rows.x.shape[1]
    ran = []
    for budget in (Budget(epsilon, DELTA) for epsilon in EPSILONS):
        resolved = resolve(method, budget, str(model), avoid=[name], num_rows=num_rows)
        chosen, _, setup, _ = set_up(resolved, budget, model, width, num_rows, kind=kind)
        ran.append((chosen.protector, setup))
    # Where networks gain nothing their control runs, which has another structure.
    groups = (list(group) for _, group in itertools.groupby(ran, lambda pair: jax.tree.structure(pair[0])))
    outcomes = [simulate(*zip(*group, strict=True), rows, range(seeds)) for group in groups]
    return np.concatenate([outcome.params for outcome in outcomes], 1)


def measured(cell: Cell, method: str, seeds: int) -> list[dict[str, object]]:
    """A line for each budget.

    Raises:
      InputError: the method was made from this set, and has no fold that was not; or it does not train this model.
    """
    name, model_name = cell
    rows, classes = rows_of(name)
    model = find_model(model_name, classes)
    kind = model.kind(None if classes is None else model.labels)
    parts = [split(rows, seed) for seed in range(seeds)]
    if method in EXACT:
        epsilons, params = (math.inf,), np.stack([without_noise(model, part, EXACT[method]) for part in parts])[:, None]
    else:
        epsilons, params = EPSILONS, private(method, model, kind, rows, name, seeds)
    lines: list[dict[str, object]] = []
    for number, epsilon in enumerate(epsilons):
        tests = [(params[seed, number], model, part.test) for seed, part in enumerate(parts)]
        losses, scores = [float(mean_loss(*args)) for args in tests], [float(score(*args, kind)) for args in tests]
        error = np.std(losses, ddof=1) / len(losses) ** 0.5
        numbers = (epsilon, seeds, f"{np.mean(losses):.5f}", f"{error:.5f}", f"{np.mean(scores):.4f}")
        lines.append(dict(zip(FIELDS, (*cell, len(rows.y), rows.x.shape[1], method, *numbers), strict=True)))
    return lines


def run(out: Path, cells: tuple[Cell, ...] = CELLS, methods: tuple[str, ...] = METHODS, seeds: int = 5) -> None:
    """Append the lines that are missing."""
    out.parent.mkdir(parents=True, exist_ok=True)
    there = {(line["data"], line["model"], line["method"]) for line in read(out)}
    for cell in cells:
        for method in methods:
            if (*cell, method) in there:
                continue
            try:
                lines = measured(cell, method, seeds)
            except InputError as error:
                print(*cell, method, error, flush=True)
                continue
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


def curve(lines: list[dict[str, str]], cell: Cell, method: str) -> Curve:
    """The same at all budgets for a method without noise; empty without lines."""
    by_epsilon = {
        float(line["epsilon"]): (float(line["loss"]), float(line["standard_error"]))
        for line in lines
        if (line["data"], line["model"], line["method"]) == (*cell, method)
    }
    return (
        [by_epsilon[math.inf]] * len(EPSILONS)
        if math.inf in by_epsilon
        else [by_epsilon[epsilon] for epsilon in EPSILONS if by_epsilon]
    )


def compared(lines: list[dict[str, str]], ours: str, theirs: str) -> dict[Cell, np.ndarray]:
    """Lead of `ours` over `theirs` by cell, f[2, budgets], as a share of the gap between base rate and exact fit,
    and two standard errors of it."""
    gaps = {}
    for cell in CELLS:
        curves = [curve(lines, cell, method) for method in (ours, theirs, BASE, NONPRIVATE)]
        if all(curves):
            our_loss, their_loss, base, exact = np.moveaxis(np.array(curves), 2, 0)[0]
            errors = np.hypot(*np.array(curves)[:2, :, 1])
            gaps[cell] = np.stack([their_loss - our_loss, 2.0 * errors]) / np.maximum(base - exact, 1e-9)
    return gaps


def rises(lines: list[dict[str, str]], method: str) -> list[tuple[Cell, float]]:
    """Cells and epsilons whose mean loss is above the budget before's by more than 2 %. Both have the same splits, so
    standard errors, most of which are due to these, say nothing of it."""
    larger: list[tuple[Cell, float]] = []
    for cell in CELLS:
        steps = zip(itertools.pairwise(curve(lines, cell, method)), EPSILONS[1:], strict=False)
        larger += [(cell, epsilon) for ((before, _), (after, _)), epsilon in steps if after > 1.02 * before]
    return larger


def summary(out: Path, ours: str = OURS, theirs: str = CONTROL) -> None:
    """Print losses of `ours` and `theirs` as a Markdown table, where they rise, and where `ours` is ahead."""
    lines = read(out)
    budgets = "".join(f" {epsilon:g} |" for epsilon in EPSILONS)
    print(f"| data | model | {BASE} |{budgets} {NONPRIVATE} |\n|---|---|---|" + "---|" * (len(EPSILONS) + 1))
    for cell in CELLS:
        base, exact, *both = (curve(lines, cell, method) for method in (BASE, NONPRIVATE, ours, theirs))
        if base and exact and all(both):
            pairs = (f" {ours:.4g}, {theirs:.4g} |" for (ours, _), (theirs, _) in zip(*both, strict=True))
            print(f"| {' | '.join(cell)} | {base[0][0]:.4g} |", *pairs, f" {exact[0][0]:.4g} |", sep="")
    print("\nLoss rises with the budget, by more than 2 %:")
    for method in (ours, theirs):
        increases = rises(lines, method)
        print(
            f"{method}: {len(increases)} times;", *(f"{' '.join(cell)} at {epsilon:g};" for cell, epsilon in increases)
        )
    cells = compared(lines, ours, theirs)
    print(f"\nPercent of the gap between base rate and non-private model by which {ours} is ahead of {theirs}:")
    for cell, (gain, sure) in cells.items():
        marked = (
            f"{100 * share:8.1f}{'*' if abs(share) > two else ' '}" for share, two in zip(gain, sure, strict=True)
        )
        print(f"{' '.join(cell):32}", *marked)
    gains = np.stack([cell[0] for cell in cells.values()])
    print("mean, of at most 100 %", " " * 9, *(f"{100 * mean:8.1f} " for mean in np.clip(gains, -1.0, 1.0).mean(0)))
    better, worse = (sum(side * cell[0] > np.maximum(cell[1], 0.02) for cell in cells.values()) for side in (1, -1))
    print(f"\nof {len(cells)} cells, by two standard errors and 2 % of the gap:")
    print(f"| epsilon |{budgets}\n|---|" + "---|" * len(EPSILONS))
    for word, count in (("better", better), ("level", len(cells) - better - worse), ("worse", worse)):
        print(f"| {word} |", *(f" {number} |" for number in np.asarray(count)), sep="")


def main(
    task: tyro.conf.Positional[Literal["run", "summary"]],
    out: Path = Path("benchmarks/results/convergence/table.csv"),
    cells: tuple[str, ...] = (),
    methods: tuple[str, ...] = METHODS,
    seeds: int = 5,
    ours: str = OURS,
    theirs: str = CONTROL,
) -> None:
    """Measure, or print what was measured; a cell is DATA,MODEL."""
    if task == "summary":
        summary(out, ours, theirs)
    else:
        chosen = tuple((name, model) for name, _, model in (cell.rpartition(",") for cell in cells))
        run(out, chosen or CELLS, methods, seeds)


if __name__ == "__main__":
    tyro.cli(main)
