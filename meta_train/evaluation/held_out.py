"""Protectors on held-out tasks, run as deployed: the score for model selection, and the gains of networks."""

import functools
import math
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base.compiled import quick_options
from l2p.checkpoints import checkpoint
from l2p.checkpoints.control import Control, control_of
from l2p.models import Model
from l2p.run.protector import Protector
from l2p.tables.own import is_own
from meta_train.config.bands import BANDS
from meta_train.config.drawn import ALL_FRESH, Shape, Tasks
from meta_train.config.parts import Judging, Scoring
from meta_train.evaluation.budgets import Budgets, sized
from meta_train.evaluation.resolved import Resolved
from meta_train.evaluation.scores import evaluate
from meta_train.tasks import own_tables
from meta_train.tasks.family import Family, TaskBatch
from meta_train.tasks.mixtures import Mixture
from meta_train.tasks.sources import parts_of
from meta_train.tasks.whole_tables import WholeTables

#: Seeds of the tasks for model selection, and of those on which the networks' gains are measured.
EVAL_KEY, GAIN_KEY = 20_000, 30_000
#: Gains are measured on rows that no run has read, at every budget: on those that it reads, fitting their noise would
#: count as a gain where budgets are large.
GAIN_SHARES = ALL_FRESH


def _no_end() -> float:
    """Seconds left where time is not bound."""
    return math.inf


class Evaluator:
    """Scores protectors on fixed held-out tasks, `eval_tasks` for each of the config's shapes.

    A shape that is listed more than once counts once: repeated tasks would make standard errors too small. The start is
    scored as it is deployed, with its control where its networks are known to gain nothing.
    """

    def __init__(
        self,
        tasks: Tasks,
        resolved: Mapping[Shape, Resolved],
        judging: Judging,
        scoring: Scoring,
        start: Protector,
        stand_in: tuple[Control, Protector] | None = None,
        tells_spending: bool = False,
        stacked: bool = False,
    ):
        """Of a training's tasks, with what their shapes stand for.

        Args:
          tasks: of the training.
          resolved: what each of their shapes stands for.
          judging: how many tasks there are.
          scoring: of runs.
          start: what is trained, before it is.
          stand_in: what runs in its place where that gained nothing, if it is a checkpoint with networks.
          tells_spending: whether reports tell what runs without a cap spend.
          stacked: whether each task may have a protector of its own (`scores`).
        """
        self._training_tasks, self._resolved, self._judging, self._start = tasks, resolved, judging, start
        self._scoring, self._stand_in, self._stacked = scoring, stand_in, stacked
        # Compiled for what a report tells: runs without a cap are left out where nobody asks what they would spend.
        self._reported = ("score", *(["above"] if scoring.above else []), *(["constraint"] if tells_spending else []))
        self._evaluate = jax.jit(self._measure, static_argnames="model", compiler_options=quick_options())
        self._shapes = list(resolved)
        # Each is compiled when it is first asked for, so that a training without time for all shapes leaves some out.
        self._draws_of_tables: dict[Shape, Callable] = {}
        self._tasks: dict[Shape, TaskBatch] = {}
        self._before: dict[Shape, dict[str, np.ndarray]] = {}

    def prepare(self, shape: Shape) -> None:
        """Draw the held-out tasks of a shape, and score the start on them."""
        if shape not in self._tasks:
            self._tasks[shape] = self._draw(self._resolved[shape].held_out, shape, self._fresh_shares)(EVAL_KEY)
            self._before[shape] = self._start_results(shape, self._tasks[shape], EVAL_KEY)

    @property
    def _fresh_shares(self) -> tuple[float, float]:
        return self._training_tasks.fresh_shares or ALL_FRESH

    def keep(self, shapes: Collection[Shape]) -> None:
        """Leave all other shapes out."""
        self._shapes = [shape for shape in self._shapes if shape in shapes]

    @property
    def before(self) -> dict[str, Any]:
        """The report on what training starts from."""
        for shape in self._shapes:
            self.prepare(shape)
        return self._report([self._before[shape] for shape in self._shapes])

    def __call__(self, protector: Protector) -> dict[str, Any]:
        """The mean score (lower is better), that of each band of budgets, and how well a constraint is met there."""
        for shape in self._shapes:
            self.prepare(shape)
        tasks = [(shape, self._tasks[shape]) for shape in self._shapes]
        return self._report([self._results(protector, shape, batch, EVAL_KEY) for shape, batch in tasks])

    def _report(self, results: list[dict[str, np.ndarray]]) -> dict[str, Any]:
        scores = np.stack([result["score"] for result in results])
        report = {
            "held_out_score": float(scores.mean()),
            "held_out_score_per_budget": _rounded(_by_band(scores).mean(0)),
        }
        if "above" in self._reported:
            above = np.stack([result["above"] for result in results])
            report["held_out_above_per_budget"] = _rounded(_by_band(above).mean(0))
        if "constraint" in self._reported:
            constraint = np.stack([result["constraint"] for result in results])
            report |= {
                "held_out_constraint_per_budget": _rounded(_by_band(constraint).mean(0)),
                "held_out_constraint_abs": float(np.abs(constraint).mean()),
            }
        return report

    def merit(self, report: dict[str, Any]) -> float:
        """The score for model selection, lower is better: the mean score. If gains are going to be measured, bands
        where the start is better count with the start's score, since it will run there."""
        if not self._judging.gain_rounds:
            return report["held_out_score"]
        name = "held_out_score_per_budget"
        return float(np.minimum(report[name], self.before[name]).mean())

    def final(self, protector: Protector, seconds_left: Callable[[], float] = _no_end) -> dict[str, Any]:
        """Entries for the card of a trained protector: its scores and, if configured, its gains over the start."""
        report = self(protector)
        return report | {"gains": self.gains(protector, seconds_left)} if self._judging.gain_rounds else report

    def gains(self, protector: Protector, seconds_left: Callable[[], float] = _no_end) -> dict[str, Any]:
        """Scores of the start minus those of `protector` in each band of log(mu N), on tasks not used for selection;
        and by source and by model where there are several, since a mean over all can hide a loss on one.

        Both run on the same tasks with the same noise, so the standard errors are those of paired differences. There
        are `gain_rounds` batches of each, or as many as fit into `seconds_left`, but at least one.
        """
        by_name = self._differences(protector, seconds_left)
        gains = {
            "log_signal": _rounded(np.linspace(*self._training_tasks.log_signal, BANDS + 1)),
            **_gain(np.concatenate(list(by_name.values()))),
        }
        if len(by_name) == 1:
            return gains
        gains |= {"by_source": {name: _gain(differences) for name, differences in by_name.items()}}
        if not self._training_tasks.lends or len(self._training_tasks.all_models) == 1:
            return gains
        by_model: dict[str, list[np.ndarray]] = {}
        for name, draws in self._draws.items():
            if name not in by_name:
                continue
            by_model.setdefault(self._resolved[draws[0][0]].model.name, []).append(by_name[name])
        return gains | {"by_model": {name: _gain(np.concatenate(parts)) for name, parts in by_model.items()}}

    @functools.cached_property
    def _draws(self) -> dict[str, list[tuple[Shape, Callable[[int], TaskBatch]]]]:
        """By source, and model where there are several: its shapes, each with what draws its tasks. A user's own tables
        are apart, each in the narrowest shape that has all of its columns, or in the widest that there is."""
        return self._draws_of_shapes() if self._training_tasks.lends else self._draws_of_sources()

    def _draws_of_shapes(self) -> dict[str, list]:
        draws_by_name: dict[str, list] = {}
        for shape in sorted(self._shapes, key=lambda shape: shape.num_features or 0):
            if all(map(is_own, parts_of(shape.source))):
                for place, table in enumerate(parts_of(shape.source)):
                    previous = draws_by_name.get(table)
                    if previous is None or (previous[0][0].num_features or 0) < own_tables.find(table).x.shape[1]:
                        draws_by_name[table] = [(shape, self._draw_table(shape, place))]
                continue
            draw = self._draw(self._resolved[shape].held_out, shape, GAIN_SHARES)
            draws_by_name.setdefault(f"{shape.source} {shape.model}", []).append((shape, draw))
        return draws_by_name

    def _draws_of_sources(self) -> dict[str, list]:
        draws_by_name: dict[str, list] = {}
        for shape in self._shapes:
            family = self._resolved[shape].held_out
            parts = family.parts if isinstance(family, Mixture) else (family,)
            for name, part in zip(parts_of(shape.source), parts, strict=True):
                draws = draws_by_name.setdefault(name, [])
                # A source of a mixture is left out where it has too few columns.
                if (shape.num_features or 0) <= part.max_features:
                    draws.append((shape, self._draw(part, shape, GAIN_SHARES)))
        return draws_by_name

    def _differences(self, protector: Protector, seconds_left: Callable[[], float]) -> dict[str, np.ndarray]:
        """The start's scores minus the protector's f[., BANDS], by the names of `_draws`."""
        by_name: dict[str, list[np.ndarray]] = {}
        longest = 0.0
        for seed in range(GAIN_KEY, GAIN_KEY + self._judging.gain_rounds):
            for name, draws in self._draws.items():
                began = time.monotonic()
                for shape, draw in draws if not by_name or seconds_left() >= longest else ():
                    batch = draw(seed)
                    start_scores = self._start_results(shape, batch, seed)["score"]
                    scores = self._results(protector, shape, batch, seed)["score"]
                    by_name.setdefault(name, []).append(start_scores - scores)
                longest = max(longest, time.monotonic() - began)
        return {name: _by_band(np.stack(differences)) for name, differences in by_name.items()}

    def _draw_table(self, shape: Shape, place: int) -> Callable[[int], TaskBatch]:
        """A draw of `eval_tasks` tasks from a seed that are one of the shape's own tables."""
        sample = self._draws_of_tables[shape]
        return lambda seed: sample(
            jax.random.fold_in(jax.random.key(seed), place), jnp.array(GAIN_SHARES), place, False
        )

    def _tables(self, shape: Shape, family: WholeTables, arguments: dict[str, Any]) -> Callable[..., TaskBatch]:
        """One program that draws tasks of a shape's own tables, of all and of each, to train and to judge."""
        if shape not in self._draws_of_tables:
            model = self._resolved[shape].model

            def sample(key: jax.Array, fresh_shares: jax.Array, place: jax.Array, trains: jax.Array) -> TaskBatch:
                chosen = family.choose(place, trains)
                return chosen.sample(key, model=model, **arguments | {"fresh_shares": fresh_shares})

            self._draws_of_tables[shape] = jax.jit(sample, compiler_options=quick_options())
        return self._draws_of_tables[shape]

    def train_tasks(self, shape: Shape, seed: int) -> TaskBatch:
        """`eval_tasks` tasks of a shape's own tables to train on, by the program that draws the held-out ones."""
        self.prepare(shape)
        shares = jnp.array(self._fresh_shares)
        return self._draws_of_tables[shape](jax.random.key(seed), shares, -1, True)

    def scores(self, protectors: Protector, shape: Shape, batch: TaskBatch, seed: int) -> np.ndarray:
        """Scores f[tasks] of protectors with leaves [tasks, ...], one for each task, with method "evolution"."""
        return self._run(protectors, shape, batch, seed)["score"]

    def _draw(self, family: Family, shape: Shape, fresh_shares: tuple[float, float]) -> Callable[[int], TaskBatch]:
        """A compiled draw of `eval_tasks` tasks from a seed, where these shares of them are scored on fresh rows."""
        model = self._resolved[shape].model
        arguments = self._training_tasks.arguments(shape) | {"num_tasks": self._judging.eval_tasks}
        if isinstance(family, WholeTables):
            of_tables, shares = self._tables(shape, family, arguments), jnp.array(fresh_shares)
            return lambda seed: of_tables(jax.random.key(seed), shares, -1, False)
        arguments |= {"fresh_shares": fresh_shares}
        sample = jax.jit(functools.partial(family.sample, model=model, **arguments), compiler_options=quick_options())
        return lambda seed: sample(jax.random.fold_in(jax.random.key(seed), shape.num_features or 0))

    def _measure(
        self, protector: Protector, key: jax.Array, batch: TaskBatch, model: Model, budgets: Budgets
    ) -> dict[str, jax.Array]:
        results = evaluate(protector, key, batch, model, budgets, self._scoring, self._stacked)
        return {name: results[name] for name in self._reported}

    def _start_results(self, shape: Shape, batch: TaskBatch, seed: int) -> dict[str, np.ndarray]:
        """Results of the start, or of its control where that runs instead."""
        results = self._results(self._start, shape, batch, seed)
        if self._stand_in is None:
            return results
        control, protector = self._stand_in
        model = self._resolved[shape].model.name
        level = np.array([control.is_level(float(signal), model) for signal in batch.log_signal])
        instead = self._results(protector, shape, batch, seed)
        return {name: np.where(level, instead[name], values) for name, values in results.items()}

    def _results(self, protector: Protector, shape: Shape, batch: TaskBatch, seed: int) -> dict[str, np.ndarray]:
        if self._stacked:
            protector = jax.tree.map(
                lambda leaf: np.broadcast_to(leaf, (self._judging.eval_tasks, *leaf.shape)), protector
            )
        return self._run(protector, shape, batch, seed)

    def _run(self, protector: Protector, shape: Shape, batch: TaskBatch, seed: int) -> dict[str, np.ndarray]:
        of_shape, key = self._resolved[shape], jax.random.key(seed)
        return jax.device_get(self._evaluate(protector, key, batch, model=of_shape.model, budgets=of_shape.budgets))


def stand_in(warm_start: str | None, rows: int) -> tuple[Control, Protector] | None:
    """The control that runs in place of the checkpoint that training starts from, in some bands, when that is deployed.

    Args:
      warm_start: the checkpoint, or None.
      rows: of a task, for the size of batches.
    """
    if warm_start is None:
        return None
    control = control_of(checkpoint.load(warm_start).card)
    if control is None or not (control.idle or any(control.idle_for.values())):
        return None
    return control, sized(checkpoint.load(control.name).protector, rows)


def _gain(differences: np.ndarray) -> dict[str, Any]:
    """Mean and standard error of paired differences f[n, BANDS]."""
    return {
        "mean": _rounded(differences.mean(0), 5),
        "standard_error": _rounded(differences.std(0, ddof=1) / len(differences) ** 0.5, 5),
        "tasks": len(differences),
    }


def _by_band(values: np.ndarray) -> np.ndarray:
    """f[batches, tasks] -> f[., BANDS]: the tasks of a batch are in order of log(mu N)."""
    return values.reshape(len(values), BANDS, -1).swapaxes(1, 2).reshape(-1, BANDS)


def _rounded(values: np.ndarray, digits: int = 4) -> list[float]:
    return [round(float(value), digits) for value in values]
