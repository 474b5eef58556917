"""Share of the reachable gain that `universal` keeps on tables that it never saw, beside what `l2p plan` foretells.

    python -m benchmarks.forecast                  # check the forecast: made from some tables, judged on the others
    python -m benchmarks.forecast --run-missing    # first run what results/forecast lacks (an hour on two cores)
    python -m benchmarks.forecast --write          # then write l2p/checkpoints/reachable_gain.json from all tables

Every run is of the fold of `universal` that was made without the table. Runs are those of results/forecast (tables
of OpenML, two uneven classes made of some of them, and packaged sets; five budgets, four splits) and, for sets and
models that it has not, those of all stored comparisons. Tables on which training without privacy gains less than 2 % of
the constant's loss have nothing to foretell and are left out. Shares above 1 count as 1: the non-private model overfits
small tables.
"""

import csv
import dataclasses
import json
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tyro
from scipy.optimize import minimize

from l2p.checkpoints.reachable_gain import _FILE, Curve
from l2p.checkpoints.signal import log_signal
from l2p.compare import results
from l2p.compare.config import CompareConfig
from l2p.compare.inputs import load_rows
from l2p.compare.runner import compare
from l2p.models import plain_name
from l2p.privacy.budget import Budget
from l2p.run.simulate import train_size
from l2p.tables.public import openml
from l2p.tables.public.catalog import load, num_classes
from l2p.tables.schema import Number, Schema, Target

RESULTS = Path(__file__).resolve().parent.parent / "benchmarks/results"
RUNS, TABLES = RESULTS / "forecast/runs.csv", RESULTS / "forecast/tables.csv"
METHODS = CONSTANT, LEARNED, EXACT = ("no_features", "universal", "nonprivate")
EPSILONS, DELTA, SEEDS = (0.05, 0.2, 0.8, 3.0, 10.0), 1e-6, 4
PACKAGED = ("adult", "ipums_br", "breast_cancer", "digits", "digits:odd", "california", "diabetes", "mnist:features")
#: Tables of two uneven classes, of which OpenML's have few: the rarest class of at least `RARE` of the rows against all
#: others, or a number above this quantile against one below.
UNEVEN = (
    *(
        f"openml:{name}:rare"
        for name in ("car", "anneal", "hypothyroid", "page.blocks", "segment", "vowel", "splice", "cmc")
    ),
    *(f"openml:{name}:above:0.9" for name in ("abalone", "kin8nm", "puma8NH", "elevators", "autompg")),
    *(f"openml:{name}:above:0.95" for name in ("bank8FM", "ailerons", "bank32nh")),
    *(f"openml:{name}:above:0.8" for name in ("quake", "stock", "housing")),
    *("california:above:0.95", "openml:waveform5000:rare", "openml:vehicle:rare"),
)
RARE = 0.025
#: Of pixels and of a synthetic optimum, where there is no table like a user's.
LEFT_OUT = ("mnist:3,5", "quadratic")
#: Gains below this share of the constant's loss are none.
LEAST = 0.02
#: The quantiles of a range, and the distance in log(mu N) within which runs count towards them.
LEVELS, WIDTH = (0.1, 0.5, 0.9), 0.4
#: The share of runs on a table that it was not made from which a range is to hold.
INSIDE = 0.8
#: Tables that it takes to say how far outside their ranges runs lie; where fewer are near, those farther away count.
LEAST_TABLES = 9
#: Of log(mu N), in each of which ranges have to hold.
BANDS = ((0, 3), (3, 5), (5, 7), (7, 12))
KNOTS = tuple(np.arange(1.0, 11.0, 0.5))


class Table(NamedTuple):
    """Public facts of a table: rows to learn from, features, classes (None for a number), share of the commonest."""

    rows: int
    features: int
    classes: int | None
    majority: float | None


class Runs(NamedTuple):
    """The runs on one table with one model at one budget: log(mu N) and shares of the reachable gain, f64[seeds]."""

    data: str
    model: str
    table: Table
    signal: float
    shares: np.ndarray


Losses = dict[tuple[str, float, int], float]  # method, epsilon, seed


def names() -> list[tuple[str, str]]:
    """The tables to run, each with the model for its target."""
    every = [*PACKAGED, *(openml.OPENML + name for name in openml.TABLES)]
    kinds = {None: "square", 2: "logistic"}
    return [(name, "logistic") for name in UNEVEN] + [(name, kinds.get(num_classes(name), "softmax")) for name in every]


def table_of(name: str, folder: Path) -> CompareConfig:
    """A comparison on a table, without its model, budgets and methods.

    Uneven tables are written into the folder, as files that are called as their sets are: for these, too, the fold that
    never saw the set stands for the protector.
    """
    base, _, kind = name.removeprefix(openml.OPENML).partition(":")
    if name not in UNEVEN:
        return CompareConfig(name, folder / "out")
    rows = load(name.removesuffix(f":{kind}"))
    if kind == "rare":
        classes, counts = np.unique(rows.y, return_counts=True)
        labels = rows.y == classes[np.argmin(np.where(counts >= RARE * len(rows.y), counts, len(rows.y)))]
    else:
        labels = rows.y > np.quantile(rows.y, float(kind.removeprefix("above:")))
    columns = [*(f"x{index}" for index in range(rows.x.shape[1])), "label"]
    with (folder / f"{base}.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([columns, *np.column_stack([rows.x, labels]).tolist()])
    schema = Schema(dict.fromkeys(columns[:-1], Number(0, 1)), Target("label", classes=(0, 1)))
    schema.write(folder / "schema.json")
    return CompareConfig(str(folder / f"{base}.csv"), folder / "out", schema=folder / "schema.json")


def run() -> None:
    """Run the tables that `RUNS` lacks."""
    there = {(row["data"], row["model"]) for row in _read(RUNS)}
    for name, model in names():
        if (name, model) in there:
            continue
        with tempfile.TemporaryDirectory() as folder:
            options = {"epsilon": EPSILONS, "delta": DELTA, "seeds": SEEDS, "methods": METHODS, "model": model}
            rows = compare(dataclasses.replace(table_of(name, Path(folder)), **options))
        for row in rows:
            shown = {"data": name, "model": model} | {key: row[key] for key in ("method", "epsilon", "seed")}
            shown["test_loss"] = f"{row['test_loss']:.6g}"
            _append(RUNS, shown)
        print(f"{name}, {model}: {rows[0]['note'][:60]}", flush=True)


def describe() -> None:
    """Write the facts of every table with runs that `TABLES` lacks."""
    there = {row["data"] for row in _read(TABLES)}
    for name in sorted({name for name, _ in losses()} - there):
        classes = 2 if name in UNEVEN else num_classes(name)
        with tempfile.TemporaryDirectory() as folder:
            model = "square" if classes is None else "logistic" if classes == 2 else "softmax"
            rows = load_rows(dataclasses.replace(table_of(name, Path(folder)), model=model))
        counts = np.unique(np.asarray(rows.y), return_counts=True)[1]
        facts = Table(
            train_size(rows), rows.x.shape[1], classes, None if classes is None else counts.max() / len(rows.y)
        )
        _append(TABLES, {"data": name} | facts._asdict())


def losses() -> dict[tuple[str, str], tuple[float, Losses]]:
    """Delta and test losses of all runs, by table and model."""
    of_table: dict[tuple[str, str], tuple[float, Losses]] = {}
    for row in _read(RUNS):
        key = row["method"], float(row["epsilon"]), int(row["seed"])
        of_table.setdefault((row["data"], row["model"]), (DELTA, {}))[1][key] = float(row["test_loss"])
    for path in sorted(RESULTS.glob("*/results.csv")):
        rows = results.read(path)
        name, model = rows[0]["data"], plain_name(rows[0]["model"])
        if (name, model) in of_table or name in LEFT_OUT or not set(METHODS) <= {row["method"] for row in rows}:
            continue
        some = {
            results.cell(row): row["test_loss"] for row in rows if row["method"] in METHODS and results.is_scored(row)
        }
        of_table[name, model] = rows[0]["delta"], some
    return of_table


def measured() -> list[Runs]:
    """All runs on tables where there is something to gain."""
    tables = {row["data"]: _table(row) for row in _read(TABLES)}
    runs = []
    for (name, model), (delta, some) in losses().items():
        for epsilon in sorted({epsilon for _, epsilon, _ in some}):
            seeds = sorted(seed for method, budget, seed in some if (method, budget) == (LEARNED, epsilon))
            constant, learned, exact = (np.array([some[method, epsilon, seed] for seed in seeds]) for method in METHODS)
            gap = constant.mean() - exact.mean()
            if gap > LEAST * constant.mean():
                signal = log_signal("gdp", Budget(epsilon, delta), tables[name].rows)
                shares = np.minimum((constant - learned) / gap, 1.0)
                runs.append(Runs(name, model, tables[name], signal, shares))
    return runs


def calibrated(runs: Sequence[Runs]) -> Curve:
    """The curve of these runs, in which every table counts alike: costs of classes by least absolute deviations from a
    logistic curve; quantiles of the shares around every knot, made to rise; and their ends, moved apart by what it
    takes to hold the runs on tables that they were not made from."""
    many, uneven = _costs(runs)
    signals, weights, shares = _columns(runs)
    names = np.repeat([set_of(cell) for cell in runs], [len(cell.shares) for cell in runs])
    costs = [Curve(many, uneven, (), (), (), ()).cost(cell.table.classes, cell.table.majority) for cell in runs]
    z = signals - np.repeat(costs, [len(cell.shares) for cell in runs])
    low, median, high = _quantiles(z, weights, shares)
    wider = _widening(z, weights, shares, names)
    # Rising lines that are nowhere nearer to each other than these.
    low = np.minimum.accumulate((low - wider)[::-1])[::-1]
    high = np.minimum(np.maximum.accumulate(high + wider), 1.0)
    lines = (tuple(np.round(line, 3).tolist()) for line in (low, median, high))
    return Curve(many, uneven, KNOTS, *lines)


def _costs(runs: Sequence[Runs]) -> tuple[float, float]:
    """How much of log(mu N) many classes cost, and uneven ones."""
    _, weights, _ = _columns(runs)
    units = Curve(1.0, 0.0, (), (), (), ()), Curve(0.0, 1.0, (), (), (), ())
    many, uneven = (np.array([unit.cost(cell.table.classes, cell.table.majority) for cell in runs]) for unit in units)
    middles, signals = np.array([np.median(cell.shares) for cell in runs]), np.array([cell.signal for cell in runs])
    each = np.array([weights[group].sum() for group in _groups(runs)])

    def misfit(params: np.ndarray) -> float:
        z = signals - np.abs(params[0]) * many - np.abs(params[1]) * uneven
        return float(each @ np.abs(middles - 1 / (1 + np.exp(-params[3] * (z - params[2])))))

    starts = ([0.5, 0.5, 3.5, 1.5], [1.0, 1.0, 4.0, 1.0])
    fits = [minimize(misfit, start, method="Nelder-Mead", options={"maxiter": 4000}) for start in starts]
    costs = np.abs(min(fits, key=lambda fit: fit.fun).x[:2])
    return round(float(costs[0]), 3), round(float(costs[1]), 3)


def _quantiles(z: np.ndarray, weights: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """Rising lines f64[3, knots]: `LEVELS` of the shares f64[m] around each knot."""
    order, lines = np.argsort(shares), []
    for knot in KNOTS:
        near = (weights * _nearness(z, knot))[order]
        ranks = (np.cumsum(near) - near / 2) / near.sum()
        lines.append(np.interp(LEVELS, ranks, shares[order]))
    return np.maximum.accumulate(np.array(lines)).T


def _widening(z: np.ndarray, weights: np.ndarray, shares: np.ndarray, names: np.ndarray) -> np.ndarray:
    """By how much both ends move apart at each knot, f64[knots], so that they hold `INSIDE` of the runs on tables that
    they were not made from, and a standard error over tables more: each table's runs are held against quantiles of the
    others (as in conformal prediction; Romano et al. 2019)."""
    outside, tables = np.zeros(len(z)), np.unique(names)
    for name in tables:
        own = names == name
        low, _, high = _quantiles(z[~own], weights[~own], shares[~own])
        below, above = (np.interp(z[own], KNOTS, line) - shares[own] for line in (low, high))
        outside[own] = np.maximum(below, -above)
    order, wider, is_of = np.argsort(outside), [], names == tables[:, None]
    for knot in KNOTS:
        for width in WIDTH * np.arange(1, 20):
            near = weights * _nearness(z, knot, width)
            of_tables = is_of @ near
            effective = of_tables.sum() ** 2 / (of_tables**2).sum()
            if effective >= LEAST_TABLES:
                break
        share = INSIDE + (INSIDE * (1 - INSIDE) / effective) ** 0.5
        place = np.argmax(np.cumsum(near[order]) >= share * near.sum())
        wider.append(max(0.0, outside[order][place]))
    return np.array(wider)


def _nearness(z: np.ndarray, knot: float, width: float = WIDTH) -> np.ndarray:
    return np.exp(-0.5 * ((z - knot) / width) ** 2)


def inside(curve: Curve, runs: Runs, states_majority: bool = True) -> tuple[np.ndarray, float]:
    """bool[seeds], whether each share is in its range, and how wide that is above -1."""
    low, _, high = curve.share(runs.signal, runs.table.classes, runs.table.majority if states_majority else None)
    held = (runs.shares >= low - 5e-4) & (runs.shares <= high + 5e-4)  # the ends are rounded
    return held, high - max(low, -1.0)


def unseen(runs: Sequence[Runs]) -> dict[bool, list[tuple[Runs, float, float]]]:
    """By whether the share of the commonest class is stated, for all runs: the share inside ranges that are calibrated
    without their table, and the width of these."""
    judged: dict[bool, list[tuple[Runs, float, float]]] = {True: [], False: []}
    for name in dict.fromkeys(set_of(cell) for cell in runs):
        curve = calibrated([cell for cell in runs if set_of(cell) != name])
        for cell in runs:
            if set_of(cell) == name:
                for states_majority, some in judged.items():
                    held, width = inside(curve, cell, states_majority)
                    some.append((cell, float(held.mean()), width))
    return judged


def covered(judged: Iterable[tuple[Runs, float, float]]) -> tuple[float, float, int]:
    """Mean over tables of the share of runs inside, of the range's width, and the number of tables."""
    by_table = defaultdict(list)
    for cell, share, width in judged:
        by_table[set_of(cell)].append((share, width))
    means = np.array([np.mean(values, 0) for values in by_table.values()])
    return float(means[:, 0].mean()), float(means[:, 1].mean()), len(means)


def report(judged: Sequence[tuple[Runs, float, float]], title: str) -> None:
    """Print how many runs fall inside, for all and for parts of the tables."""
    parts = {"all": lambda cell: True}
    parts |= {f"model {m}": lambda cell, m=m: cell.model == m for m in sorted({cell.model for cell, *_ in judged})}
    parts["commonest class above .6 (two classes)"] = lambda cell: cell.table.classes == 2 and cell.table.majority > 0.6
    parts["commonest class above .85"] = lambda cell: (cell.table.majority or 0) > 0.85
    parts["up to 1,000 rows"] = lambda cell: cell.table.rows <= 1000
    parts |= {f"log(mu N) {a} to {b}": lambda cell, a=a, b=b: a <= cell.signal < b for a, b in BANDS}
    print(f"\n| {title} | tables | inside | mean width |\n|---|---|---|---|")
    for name, belongs in parts.items():
        if some := [judgement for judgement in judged if belongs(judgement[0])]:
            inside_share, width, count = covered(some)
            print(f"| {name} | {count} | {inside_share:.0%} | {width:.2f} |")


def main(run_missing: bool = False, write: bool = False) -> None:
    """Check the forecast, and write it if asked.

    Args:
      run_missing: first run what benchmarks/results/forecast lacks.
      write: write l2p/checkpoints/reachable_gain.json from all tables.
    """
    if run_missing:
        run()
    describe()
    runs = measured()
    judged, curve = unseen(runs), calibrated(runs)
    report(judged[True], "each table left out; the share of the commonest class is stated")
    report(judged[False], "each table left out; it is not stated")
    print(
        f"\nOf log(mu N) K classes cost {curve.many:g} log(K/2), uneven ones {curve.uneven:g} log(.5 / others' share)."
    )
    if write:
        share, _, tables = covered(judged[True])
        content = {"tables": tables, "covered": round(share, 3), "curve": dataclasses.asdict(curve)}
        _FILE.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def set_of(runs: Runs) -> str:
    """The table of runs: those of all models, and of all tasks that are made from it."""
    return ":".join(runs.data.split(":")[: 1 + openml.is_openml(runs.data)])


def _columns(runs: Sequence[Runs]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Signals, weights and shares of all runs, f64[m]; the weights of a table add up to 1."""
    totals: dict[str, int] = defaultdict(int)
    for cell in runs:
        totals[set_of(cell)] += len(cell.shares)
    counts = [len(cell.shares) for cell in runs]
    weights = np.repeat([1 / totals[set_of(cell)] for cell in runs], counts)
    return np.repeat([cell.signal for cell in runs], counts), weights, np.concatenate([cell.shares for cell in runs])


def _groups(runs: Sequence[Runs]) -> list[slice]:
    """Slices of `_columns`, one for each element of `runs`."""
    ends = np.cumsum([len(cell.shares) for cell in runs])
    return [slice(end - len(cell.shares), end) for cell, end in zip(runs, ends, strict=True)]


def _table(row: dict[str, str]) -> Table:
    classes, majority = row["classes"], row["majority"]
    return Table(
        int(row["rows"]), int(row["features"]), int(classes) if classes else None, float(majority) if majority else None
    )


def _read(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _append(path: Path, row: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(row), lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)


if __name__ == "__main__":
    tyro.cli(main)
