"""Tables and models, and what is measured on them."""

import functools
import itertools
import math
import random
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from benchmarks.headroom.search import Problem, at_budget, moves, row_losses, search, validation, validation_losses
from benchmarks.headroom.summary import Cell, has_headroom
from l2p.base.errors import InputError
from l2p.checkpoints.defaults import MODEL_OF
from l2p.checkpoints.lookup import resolve
from l2p.checkpoints.set_up import set_up
from l2p.models import Model, find_model
from l2p.oracle.setup import Setup
from l2p.privacy.budget import Budget
from l2p.protectors.conditioning import covariates_for
from l2p.queries.solve import minimise
from l2p.run.simulate import mean_loss, simulate, split
from l2p.tables.kind import Kind
from l2p.tables.public import catalog, openml
from l2p.task.rows import Rows
from l2p.task.task import Task

CONTROL = "control-universal"
EPSILON, DELTA = (0.0125, 0.05, 0.2, 0.5, 1.0, 3.0, 10.0), 1e-5
#: Sets beside OpenML's tables, and sets that run with further models.
SETS = ("adult", "ipums_br", "breast_cancer", "digits", "digits:features", "california", "mnist:3,5")
MORE = {
    "svm": ("adult", "openml:credit.g", "openml:ionosphere", "openml:kr.vs.kp", "openml:sick"),
    "square": ("ipums_br", "openml:credit.a", "openml:mushroom"),
    "mlp": ("ipums_br", "breast_cancer", "openml:diabetes", "openml:tic-tac-toe", "openml:kr.vs.kp"),
}
#: The most rows that a run reads.
MOST_ROWS = 6_000
#: Seeds of noise to score with, in groups that are simulated together.
SEEDS = (range(6), range(6, 12))
#: Ridges of the model without privacy; None is as small as its solver bears.
RIDGES = (None, 1e-4, 1e-3, 1e-2)


class Table(NamedTuple):
    """A table, a model to train on it, and the kind of its target."""

    name: str
    model: Model
    kind: Kind
    train: Rows
    test: Rows


def cases() -> list[tuple[str, str]]:
    """Names of tables and models: one with two classes, with several, with numbers, one of `MORE`, and so on."""
    names = [*SETS, *(openml.OPENML + name for name in openml.TABLES)]
    of_kinds = [[(name, MODEL_OF[kind]) for name in names if catalog.kind_of(name) == kind] for kind in MODEL_OF]
    of_kinds.append([(name, model) for model, few in MORE.items() for name in few])
    for group in of_kinds:
        random.Random(4).shuffle(group)
    return [case for turn in itertools.zip_longest(*of_kinds) for case in turn if case is not None]


def table_of(name: str, model: str) -> Table:
    """A table by name, split once."""
    data = catalog.load(name)
    task: Any = split(Rows(data.x, data.y, np.ones_like(data.y)), 0)
    train = jax.tree.map(lambda leaf: leaf[:MOST_ROWS], task.private)
    return Table(name, find_model(model, catalog.num_classes(name)), data.kind, train, task.test)


def cells(name: str, model: str, rivals: Sequence[str]) -> list[Cell]:
    """The cells of a case, one for each budget."""
    began, table = time.process_time(), table_of(name, model)
    of_references, by_budget = references(table), [Budget(epsilon, DELTA) for epsilon in EPSILON]
    gap = float(of_references["start"].mean() - of_references["nonprivate"].mean())
    ready = [set_up_on(table, CONTROL, budget) for budget in by_budget]
    setups = [setup for _, setup in ready]
    controls = [at_budget(each, covariates_for(setup, table.train.x.shape[1])) for each, setup in ready]
    scores = scored(controls, setups, table)
    problems = [Problem(table.train, setup, gap) for setup in setups]
    measured, protectors = [], list(controls)
    for place, (budget, problem) in enumerate(zip(by_budget, problems, strict=True)):
        cell: Cell = {"data": name, "model": model, "kind": table.kind, "epsilon": budget.epsilon}
        cell |= {"rows": len(table.train.y), "features": table.train.x.shape[1]}
        cell["log_signal"] = round(float(problem.setup.log_signal), 3)
        by_method = of_references | {"control": scores[:, place]}
        for rival in rivals:
            try:
                protector, setup = set_up_on(table, rival, budget)
            except InputError:  # it is not made for this model
                continue
            by_method[rival] = scored([protector], [setup], table)[:, 0]
        cell["losses"] = {each: round(float(losses.mean()), 6) for each, losses in by_method.items()}
        cell["over"] = {each: compared(by_method["control"], losses) for each, losses in by_method.items()}
        if has_headroom(cell):
            protectors[place] = search(controls[place], problem)
            cell |= moves(controls[place], protectors[place], functools.partial(validation_losses, problem=problem))
        measured.append(cell)
    searched = scored(protectors, setups, table)
    floor = min((of_references["start"], of_references["constant"]), key=np.mean)
    for place, cell in enumerate(measured):
        cell["losses"]["searched"] = round(float(searched[:, place].mean()), 6)
        cell["over"]["searched"] = compared(scores[:, place], searched[:, place])
        cell["searched_over_floor"] = compared(searched[:, place], floor)
        cell["cpu_seconds"] = round((time.process_time() - began) / len(measured), 1)
    return measured


def set_up_on(table: Table, method: str, budget: Budget) -> tuple[Any, Setup]:
    """The protector that runs under this name, of the fold that never saw the table, and the facts of its run."""
    num_rows, num_features = table.train.x.shape
    named = resolve(method, budget, table.model, avoid=[table.name], num_rows=num_rows)
    ran, _, setup, _ = set_up(named, budget, table.model, num_features, num_rows, kind=table.kind)
    return ran.protector, setup


def whole(rows: Rows, seed: int) -> Task:
    """All rows are private, for every seed."""
    del seed
    return Task(rows)


def scored(protectors: Sequence[Any], setups: Sequence[Setup], table: Table) -> np.ndarray:
    """Losses f[S, E, n] of the test rows after runs on all training rows, with noise that no search has used."""
    params = [simulate(protectors, setups, table.train, seeds, divide=whole).params for seeds in SEEDS]
    return row_losses(np.concatenate(params), table.model, table.test)


def references(table: Table) -> dict[str, np.ndarray]:
    """Losses f[n] of the test rows at the start, with the best constant, and without privacy."""
    model, train = table.model, table.train
    tasks: list[Any] = [validation(train, seed) for seed in range(2)]
    losses = [[mean_loss(_fit(model, each.private, ridge), model, each.test) for each in tasks] for ridge in RIDGES]
    params = {
        "start": model.init(train.x.shape[1]),
        "constant": _fit(model, train.replace(x=np.zeros_like(train.x)), None),
        "nonprivate": _fit(model, train, RIDGES[int(np.nanargmin(np.mean(losses, axis=1)))]),
    }
    return {name: row_losses(np.asarray(each)[None, None], model, table.test)[0, 0] for name, each in params.items()}


@functools.partial(jax.jit, static_argnames="model")
def _fit(model: Model, rows: Rows, ridge: float | None) -> jax.Array:
    return minimise(model, model.init(rows.x.shape[1]), rows, ridge)


def compared(losses: np.ndarray, others: np.ndarray) -> list[float]:
    """Mean of losses f[S, n] less others f[S, n] or f[n], and its standard error over noise and rows.

    >>> compared(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1.0, 1.0]))
    [1.5, 1.118034]
    """
    difference = losses - others
    variances = [means.var(ddof=1) / len(means) for means in (difference.mean(1), difference.mean(0))]
    return [round(float(difference.mean()), 6), round(math.sqrt(sum(variances)), 6)]
