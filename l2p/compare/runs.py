"""Runs of a method at several budgets and seeds, and their rows of results.csv."""

import math
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base.errors import InputError
from l2p.compare import private_choice, results
from l2p.compare.config import CompareConfig
from l2p.compare.inputs import kind_of, model_of
from l2p.compare.methods import ComparedMethod, PreparedMethod
from l2p.compare.scores import area_under_curve
from l2p.models import Model
from l2p.privacy.budget import Budget
from l2p.run.simulate import Outcome, mean_loss, score, simulate, split
from l2p.task.rows import Rows


def scored_runs(
    method: ComparedMethod, budgets: Sequence[Budget], seeds: Sequence[int], rows: Rows, config: CompareConfig
) -> list[results.Row]:
    """A row for every budget and seed; budgets that cannot be run or certified give empty cells."""
    model, kind = model_of(config), kind_of(config)
    begun, prepared, scored = time.perf_counter(), {}, []
    for budget in budgets:
        try:
            prepared[budget] = method.prepare(budget, model, rows, kind)
        except InputError as error:
            scored += [_row(config, method, budget, seed, {}, str(error)) for seed in seeds]
    for group in _alike(prepared):
        # Without privacy the budget makes no difference, so one run serves all.
        run = [prepared[budget] for budget in (group if method.is_private else group[:1])]
        start = method.starting_point(model, rows.x.shape[1])
        plans = [entry.selection for entry in run if entry.selection is not None]
        try:
            method.check_public(run[0].protector, model, rows, kind, seeds)
            if plans:
                outcome = private_choice.choose(plans, rows, seeds, start, method.division)
            else:
                options = {"start": start, "divide": method.division}
                outcome = simulate(
                    [entry.protector for entry in run], [entry.setup for entry in run], rows, seeds, **options
                )
        except InputError as error:
            scored += [_row(config, method, budget, seed, {}, str(error)) for budget in group for seed in seeds]
            continue
        seconds = {"seconds": round((time.perf_counter() - begun) / outcome.steps.size, 4)}
        for i, seed in enumerate(seeds):
            task = split(rows, seed)
            scores = _scores(outcome.params[i], model, task.private, task.test, kind)
            ranked = scores.pop("class_scores", None)
            areas: list[float | None] = [None] * len(group) if ranked is None else _areas(ranked, cast(Rows, task.test))
            for k, budget in enumerate(group):
                j = k if method.is_private else 0
                metrics = {name: float(values[j]) for name, values in scores.items()} | seconds
                metrics |= {"test_auc": areas[j]}
                scored.append(_scored(config, method, budget, seed, metrics, prepared[budget], outcome, (i, j)))
        begun = time.perf_counter()
    return scored


def _alike(prepared: Mapping[Budget, PreparedMethod]) -> list[list[Budget]]:
    """Groups of budgets whose runs have the same structure and compile once (a method may take more steps at a larger
    budget)."""
    groups: dict[Any, list[Budget]] = {}
    for budget, method in prepared.items():
        leaves, tree = jax.tree.flatten((method.protector, method.setup))
        groups.setdefault((tree, tuple(jnp.shape(leaf) for leaf in leaves)), []).append(budget)
    return list(groups.values())


def _scored(
    config: CompareConfig,
    method: ComparedMethod,
    budget: Budget,
    seed: int,
    metrics: results.Row,
    prepared: PreparedMethod,
    outcome: Outcome | private_choice.Chosen,
    place: tuple[int, int],
) -> results.Row:
    """The row of one run, at `place` in its outcome; without metrics if it cannot be certified."""
    try:
        certified = _certified(prepared, outcome, place)
    except RuntimeError as error:
        return _row(config, method, budget, seed, {}, str(error))
    # A search on the private rows themselves cannot be certified.
    figures = {"steps": int(outcome.steps[place]), "epsilon_certified": math.inf if method.in_hindsight else certified}
    return _row(config, method, budget, seed, metrics | figures, prepared.note)


def _row(
    config: CompareConfig, method: ComparedMethod, budget: Budget, seed: int, metrics: results.Row, note: str
) -> results.Row:
    settings = {"data": config.data, "model": str(model_of(config)), "delta": config.delta, "epsilon": budget.epsilon}
    names = {"method": method.name, "adjacency": str(budget.adjacency), "accountant": method.accountant, "seed": seed}
    text = results.note(method.hold_out, note)
    return dict.fromkeys(results.COLUMNS) | settings | names | metrics | {"note": text}


def _certified(prepared: PreparedMethod, outcome: Outcome | private_choice.Chosen, place: tuple[int, int]) -> float:
    """Epsilon of a cell in float64, from its granted queries; infinite without a filter."""
    if isinstance(outcome, private_choice.Chosen):
        seed, budget = place
        return cast(private_choice.SelectionPlan, prepared.selection).certify(outcome.traces[seed][budget])
    if prepared.filter is None:
        return math.inf
    return prepared.filter.certify(outcome.answered(*place), prepared.protector.adaptive_noise)


def _areas(scores: jax.Array, test: Rows) -> list[float | None]:
    """The areas under the curve of class scores f32[k, n, K] of several runs; None where the test has one class."""
    counted = np.asarray(test.mask) > 0
    return [area_under_curve(run_scores, np.asarray(test.y)[counted]) for run_scores in np.asarray(scores)[:, counted]]


@partial(jax.jit, static_argnames=("model", "kind"))
def _scores(params: jax.Array, model: Model, train: Rows, test: Rows, kind: str) -> dict[str, jax.Array]:
    """Those of `results.METRICS` that a target of this kind has, each f32[k], of params f32[k, p]; for classes, their
    scores f32[k, n, K] on the test rows in place of `test_auc`."""

    def scores_of(params: jax.Array) -> dict[str, jax.Array]:
        is_number = kind == "regression"
        scores = {
            "test_mse" if is_number else "test_accuracy": score(params, model, test, kind),
            "train_loss": mean_loss(params, model, train),
            "test_loss": mean_loss(params, model, test),
        }
        return scores if is_number else scores | {"class_scores": model.class_scores(params, test.x)}

    return jax.vmap(scores_of)(params)
