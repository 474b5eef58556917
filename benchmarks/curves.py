"""Scores of `universal` on raw tables with and without curves: how many knots pay, and at which budget.

    python -m benchmarks.curves --folder FOLDER --tables adult --epsilon 1 3

FOLDER holds OpenML's tables as NAME.arff.gz, others as NAME.csv with the target last, and adult.data.gz and
adult.test.gz with a header line. Of Adult the rows of adult.data are private, every other row of adult.test is public,
and the others are for scores, as in `side_by_side.py`; of any other table the schema is made from the table itself, and
a fifth is for scores, by seed. `universal` runs by the fold that never saw the table. Knots lie at quantiles of the
public rows, as `l2p schema --from --curve` puts them, or evenly between the bounds (`--at bounds`); or only numbers
whose values crowd have curves (`--at crowded`).

Prints by table, budget and knots the number of encoded features, mu N for each of them, the mean test loss and the
mean area under the ROC curve (two classes), or R2 (numbers), and the paired change of losses from straight lines with
its standard error.
"""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from sklearn.metrics import r2_score, roc_auc_score

from l2p.checkpoints.lookup import resolve
from l2p.checkpoints.set_up import set_up
from l2p.models import Model, find_model
from l2p.privacy.budget import Budget
from l2p.release.prediction.unmet import FeatureSums, without_unmet
from l2p.run.simulate import Divide, mean_loss, simulate, split
from l2p.tables.public.openml import table_info
from l2p.tables.reading import open_table
from l2p.tables.schema import Block, Encoding, Schema, read_rows
from l2p.tables.schema.cells import numbers
from l2p.tables.schema.curves import crowds
from l2p.tables.schema.template import from_public
from l2p.task.rows import Rows
from l2p.task.task import Task

ADULT = "adult"
TABLES = (ADULT, "sick", "page.blocks", "elevators", "diabetes")
DELTA = 1e-6


class Raw(NamedTuple):
    """A raw table.

    Attributes:
      name: as checkpoints call it among their sources.
      sample: public rows, from which the schema is made.
      rows: all rows, of Adult the private ones first.
      divide: what of the rows is private and what is to score on.
    """

    name: str
    sample: Block
    rows: Block
    divide: Divide


def cells_of(path: Path) -> Block:
    """A file's columns, by name."""
    source = open_table(path)
    blocks = list(source.blocks(source.names))
    return {name: np.concatenate([block[name] for block in blocks]) for name in source.names}


def raw(folder: Path, name: str) -> Raw:
    """A table by its name."""
    if name != ADULT:
        of_openml = (folder / f"{name}.arff.gz").exists()
        table = cells_of(folder / (f"{name}.arff.gz" if of_openml else f"{name}.csv"))
        return Raw(f"openml:{name}" if of_openml else name, table, table, split)
    private, rest = cells_of(folder / "adult.data.gz"), cells_of(folder / "adult.test.gz")
    (count,) = {len(column) for column in private.values()}

    def divide(rows: Rows, seed: int) -> Task:
        del seed
        return Task(
            private=jax.tree.map(lambda leaf: leaf[:count], rows), test=jax.tree.map(lambda leaf: leaf[count:], rows)
        )

    rows = {column: np.concatenate([private[column], cells[1::2]]) for column, cells in rest.items()}
    return Raw(ADULT, {column: cells[::2] for column, cells in rest.items()}, rows, divide)


def target_type(table: Raw) -> Literal["number"] | None:
    """What `l2p schema` is told of the target."""
    return "number" if table.name.startswith("openml:") and table_info(table.name).classes is None else None


def declared(table: Raw, count: int | None, at: str) -> Schema:
    """The schema of a table, whose numbers, or only those whose values crowd, have curves of so many knots, or none."""
    source, target = open_table(dict(table.sample)), list(table.sample)[-1]
    schema = from_public(source, target, source.names, target_type=target_type(table), curve=count or 0)
    if at == "quantiles":
        return schema
    curved = {name for name, column in schema.columns.items() if getattr(column, "curve", None)}
    crowded = {name for name in curved if crowds(_values(table, schema, name), schema.columns[name].bounds)}
    columns = {
        name: dataclasses.replace(column, curve=count if at == "bounds" else column.curve if name in crowded else None)
        if name in curved
        else column
        for name, column in schema.columns.items()
    }
    return dataclasses.replace(schema, columns=columns)


def _values(table: Raw, schema: Schema, name: str) -> np.ndarray:
    values = numbers(table.sample[name], schema.missing_words)
    return values[np.isfinite(values)]


def trained(
    model: Model, table: Raw, schema: Schema, rows: Rows, epsilon: float, seeds: range
) -> tuple[np.ndarray, float]:
    """Params f32[S, p], and mu N."""
    budget, size = Budget(epsilon, DELTA), rows.x.shape[1]
    num_rows = len(table.divide(rows, 0).private.y)
    named = resolve("universal", budget, str(model), avoid=[table.name])
    ran, _, setup, _ = set_up(named, budget, model, size, num_rows, kind=schema.target.kind)
    outcome = simulate([ran.protector], [setup], rows, seeds, divide=table.divide)
    params = np.array(outcome.params[:, 0])
    for record in outcome.first:
        if record.answer is not None and record.answer.shape[-1] == size:
            for seed in seeds:
                noise_std = float(record.noise_multiplier[seed, 0] * record.clip_norm[seed, 0])
                sums = FeatureSums(np.asarray(record.answer[seed, 0]), noise_std)
                params[seed] = without_unmet(jnp.asarray(params[seed]), model, schema, sums)
    return params, float(np.exp(setup.log_signal))


def scores(model: Model, params: np.ndarray, kind: str, test: Rows) -> tuple[float, float]:
    """Test loss, and AUC or R2; NaN with several classes."""
    loss = float(mean_loss(jnp.asarray(params), model, test))
    if kind == "regression":
        return loss, float(r2_score(test.y, model.predict(jnp.asarray(params), test.x)))
    chances = np.asarray(model.class_scores(jnp.asarray(params), test.x), np.float64)
    return loss, float(roc_auc_score(test.y, chances[:, 1])) if chances.shape[1] == 2 else np.nan


def lines(table: Raw, curves: tuple[int, ...], at: str, epsilon: tuple[float, ...], seeds: range) -> Iterator[str]:
    """A line of the report for each budget and curve."""
    straight: dict[float, np.ndarray] = {}
    for count in (None, *curves):
        schema = declared(table, count, at)
        rows = jax.tree.map(np.asarray, read_rows(dict(table.rows), Encoding(schema), "null"))
        kind, classes = schema.target.kind, len(schema.target.classes or ()) or None
        model = find_model({"regression": "square", "binary": "logistic"}.get(kind, "softmax"), classes)
        for budget in epsilon:
            params, signal = trained(model, table, schema, rows, budget, seeds)
            tests = [table.divide(rows, seed).test for seed in seeds]
            by_seed = np.array([scores(model, params[seed], kind, tests[seed]) for seed in seeds])
            straight.setdefault(budget, by_seed[:, 0])
            change = by_seed[:, 0] - straight[budget]
            error = change.std(ddof=1) / len(change) ** 0.5
            knots, size = "straight" if count is None else f"{count} at {at}", rows.x.shape[1]
            digits = 6 if kind == "regression" else 4  # squares of what is scaled to [0, 1] are small
            means = [f"{by_seed[:, 0].mean():.{digits}f}", f"{by_seed[:, 1].mean():.4f}"]
            cells = [table.name, f"{budget:g}", knots, str(size), f"{signal / size:.3g}", *means]
            yield f"| {' | '.join([*cells, f'{change.mean():+.{digits}f} ({error:.{digits}f})'])} |"


def main(
    folder: Path,
    tables: tuple[str, ...] = TABLES,
    curves: tuple[int, ...] = (4, 8, 16),
    at: Literal["bounds", "quantiles", "crowded"] = "quantiles",
    epsilon: tuple[float, ...] = (0.1, 1.0, 3.0),
    seeds: int = 5,
) -> None:
    """Measure and print.

    Args:
      folder: of the tables.
      tables: their names.
      curves: numbers of knots, each compared with straight lines.
      at: where knots lie.
      epsilon: budgets.
      seeds: number of splits, each with its own noise; of Adult, which has one split, of noises.
    """
    header = ("table", "epsilon", "knots", "features", "mu N each", "loss", "AUC or R2", "change of loss")
    print(f"| {' | '.join(header)} |\n|{'---|' * len(header)}", flush=True)
    for name in tables:
        for line in lines(raw(folder, name), curves, at, epsilon, range(seeds)):
            print(line, flush=True)


if __name__ == "__main__":
    tyro.cli(main)
