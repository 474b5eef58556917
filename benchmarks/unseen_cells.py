"""Scores with and without the rule that a cell which training never met counts as one that it did meet.

    python -m benchmarks.unseen_cells --folder FOLDER

FOLDER holds ten public tables as ARFF and `adult.data.gz`; without it there is nothing to measure. Their schemas are
made from the tables themselves, as `l2p schema --from` does. Before: every category has a column for values that are
not declared and one for missing cells, and all its columns are empty but that one. After: such cells are the average
of the declared values, or the commonest, a column for missing cells is there only where the table has some, and what a
released mean shows to be in no row counts as the others (`l2p.release.prediction.unmet`). Five splits, each with one
noise.

Prints per table, method and budget the mean test loss and the mean area under the ROC curve (two classes) before and
after, the paired difference of losses with its standard error, and how far an undeclared value and a missing cell, in
one category at a time, move the log-probabilities of classes on the mean.
"""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tyro
from sklearn.metrics import roc_auc_score

from l2p.checkpoints.lookup import resolve
from l2p.checkpoints.set_up import set_up
from l2p.models import Model, find_model
from l2p.privacy.budget import Budget
from l2p.release.prediction.unmet import FeatureSums, without_unmet
from l2p.run.simulate import mean_loss, simulate, split, train_size
from l2p.tables.reading import open_table
from l2p.tables.schema import Category, Encoding, Missing, Schema, read_rows
from l2p.tables.schema.names import names_of
from l2p.tables.schema.template import from_public
from l2p.task.rows import Rows

TABLES = ("car", "cmc", "credit.a", "credit.g", "kr.vs.kp", "sick", "vote", "mushroom", "nursery", "adult.data")
METHODS = ("universal", "noisygd_mean")
EPSILON, DELTA, SEEDS = (0.1, 0.5, 2.0), 1e-6, range(5)
CELLS = {"undeclared": "a value that nobody declared", "missing": None}


class Encoded(NamedTuple):
    """Rows of a table, and the features of each category for each of `CELLS`.

    Attributes:
      schema: its declaration.
      rows: NumPy arrays.
      odd: {word: [(the features of a category, their values f32[k])]}.
    """

    schema: Schema
    rows: Rows
    odd: dict[str, list[tuple[slice, np.ndarray]]]


def path_of(folder: Path, name: str) -> Path:
    return next(folder / f"{name}{suffix}" for suffix in (".arff.gz", ".gz") if (folder / f"{name}{suffix}").exists())


def encoded(path: Path, schema: Schema, empties: bool) -> Encoded:
    """Rows by a schema; with `empties`, cells that are not declared or missing fill their own columns alone."""
    encoding, start = Encoding(schema), 0
    rows = jax.tree.map(np.array, read_rows(path, encoding))
    odd: dict[str, list[tuple[slice, np.ndarray]]] = {word: [] for word in CELLS}
    for name in schema.features:
        column = schema.columns[name]
        place = slice(start, start + len(names_of(name, column)))
        if isinstance(column, Category):
            if empties:
                rows.x[:, place] = emptied(rows.x[:, place])
            for word, cell in CELLS.items():
                values = encoding.column(name, {name: np.array([cell], object)})[0]
                odd[word].append((place, emptied(values)[0] if empties else values[0]))
        start = place.stop
    return Encoded(schema, rows, odd)


def emptied(x: np.ndarray) -> np.ndarray:
    """A category's features f32[n, k], whose last two columns say what is not declared and what is missing."""
    return np.where(x[:, -2:].any(1, keepdims=True) & (np.arange(x.shape[1]) < x.shape[1] - 2), np.float32(0), x)


def before(schema: Schema) -> Schema:
    """The schema with both columns for every category."""
    columns = {
        name: dataclasses.replace(column, other=True, missing=Missing(indicator=True), shares=None)
        if isinstance(column, Category)
        else column
        for name, column in schema.columns.items()
    }
    return dataclasses.replace(schema, columns=columns)


def trained(method: str, model: Model, table: Encoded, draws: bool) -> np.ndarray:
    """Params f32[S, E, p]; `draws` says whether what no row held counts as what rows did hold."""
    released = []
    for epsilon in EPSILON:  # one after another, for a protector may run its control at some budgets
        budget = Budget(epsilon, DELTA)
        size, num_rows = table.rows.x.shape[1], train_size(table.rows)
        ran, _, setup, _ = set_up(resolve(method, budget, str(model)), budget, model, size, num_rows)
        outcome = simulate([ran.protector], [setup], table.rows, SEEDS)
        params = np.array(outcome.params[:, 0])
        for record in outcome.first:
            if draws and record.answer is not None:
                for seed in SEEDS:
                    noise_std = float(record.noise_multiplier[seed, 0] * record.clip_norm[seed, 0])
                    sums = FeatureSums(np.asarray(record.answer[seed, 0]), noise_std)
                    params[seed] = without_unmet(jnp.asarray(params[seed]), model, table.schema, sums)
        released.append(params)
    return np.stack(released, axis=1)


def scores(model: Model, params: np.ndarray, table: Encoded) -> dict[str, np.ndarray]:
    """Test loss, AUC, and how far each of `CELLS` moves log-probabilities: f[S, E] by name."""
    by_measure = {name: np.full(params.shape[:2], np.nan) for name in ("loss", "auc", *CELLS)}
    for seed, budget in np.ndindex(params.shape[:2]):
        test, ours = split(table.rows, SEEDS[seed]).test, jnp.asarray(params[seed, budget])
        assert test is not None
        usual = np.asarray(model.class_scores(ours, test.x), np.float64)
        by_measure["loss"][seed, budget] = mean_loss(ours, model, test)
        if usual.shape[1] == 2:
            by_measure["auc"][seed, budget] = roc_auc_score(test.y, usual[:, 1])
        for word, places in table.odd.items():
            moved = []
            for place, values in places:
                x = np.array(test.x)
                x[:, place] = values
                odd = np.asarray(model.class_scores(ours, x), np.float64)
                moved.append(np.abs(np.log(odd + 1e-30) - np.log(usual + 1e-30)).mean())
            by_measure[word][seed, budget] = np.mean(moved)
    return by_measure


def lines(name: str, path: Path, methods: tuple[str, ...]) -> Iterator[str]:
    """A line of the table for each method and budget."""
    source = open_table(path)
    schema = from_public(source, source.names[-1], source.names, curve=0)
    count = len(schema.target.classes or ())
    model = find_model("logistic" if count == 2 else "softmax", count)
    tables = encoded(path, before(schema), empties=True), encoded(path, schema, empties=False)
    for method in methods:
        old, new = (
            scores(model, trained(method, model, table, draws), table)
            for table, draws in zip(tables, (False, True), strict=True)
        )
        for place, epsilon in enumerate(EPSILON):
            change = (new["loss"] - old["loss"])[:, place]
            cells = [f"{kind[score][:, place].mean():.3f}" for score in ("loss", "auc", *CELLS) for kind in (old, new)]
            error = change.std(ddof=1) / len(change) ** 0.5
            yield f"| {' | '.join([name, method, f'{epsilon:g}', *cells, f'{change.mean():+.4f} ({error:.4f})'])} |"


def main(folder: Path, tables: tuple[str, ...] = TABLES, methods: tuple[str, ...] = METHODS) -> None:
    """Measure and print.

    Args:
      folder: of the tables.
      tables: their names.
      methods: to train by.
    """
    if not folder.is_dir():
        print(f"there is no folder {folder}, so nothing is measured; name the one that holds {', '.join(tables)}")
        return
    scored = [f"{score} {when}" for score in ("loss", "AUC", *CELLS) for when in ("before", "after")]
    header = ["table", "method", "epsilon", *scored, "change of loss"]
    print(f"| {' | '.join(header)} |\n|{'---|' * len(header)}")
    for name in tables:
        for line in lines(name, path_of(folder, name), methods):
            print(line, flush=True)


if __name__ == "__main__":
    tyro.cli(main)
