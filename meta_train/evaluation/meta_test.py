"""Meta-test: results of a finished protector on held-out public tasks, by band of log(mu N), saved on its card.

    python -m meta_train.evaluation.meta_test checkpoints/paper-adult.safetensors checkpoints/universal.safetensors

Tasks come from the rows that meta-training set aside, half of them to train on and half to test on, so that a task's
test rows are in none of its training rows. Only learnable tasks count, on which the non-private optimum beats the
majority model, which predicts the majority class. All protectors from one source get the same tasks and the same noise,
and so do all bands: bands differ only in the budget.
"""

import functools
import itertools
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from l2p.base import struct
from l2p.base.errors import InputError
from l2p.checkpoints import checkpoint
from l2p.models import Model, plain_name
from l2p.oracle.setup import Setup
from l2p.run.protector import Protector
from l2p.run.run import run
from l2p.task.rows import Rows
from meta_train.config import MetaConfig, on_card
from meta_train.config.bands import BANDS
from meta_train.config.drawn import Shape
from meta_train.evaluation.budgets import Budgets, budgets_for, sized
from meta_train.tasks.family import Family, TaskBatch
from meta_train.tasks.reference import reference
from meta_train.tasks.sources import AND, families, kind_of, parts_of
from meta_train.tasks.synthetic import SYNTHETIC

#: Tasks per feature count, and rows in each, to train on and as many to test on.
TASKS, ROWS = 32, 2048
#: Sizes of tasks per model, where there are several models.
SHAPES = 2
#: With more features than this, a quarter as many tasks, because drawing and running them takes long.
MANY_FEATURES = 128
#: Tasks drawn for each one wanted: with 8 features only a quarter of Adult's tasks are learnable.
DRAWS = 5
#: The least gain in accuracy of the non-private optimum over the majority model on a learnable task.
MIN_GAIN = 0.02
QUANTILES = (0.1, 0.5, 0.9)
#: Differs from the seeds of early stopping. It is that of the first batch of gains
#: (`held_out.GAIN_KEY`), whose tasks these may be, with other rows.
SEED = 30_000


@struct.dataclass
class Tasks:
    """B tasks with the same number of features.

    Attributes:
      train: Rows with leading axis [B].
      test: other rows of the same tasks, [B].
      trivial: f32[B], test accuracy of the most frequent class of the test rows.
      optimum: f32[B], test accuracy of the non-private minimiser.
    """

    train: Rows
    test: Rows
    trivial: jax.Array
    optimum: jax.Array


@functools.cache
def draw(
    source: str,
    model: Model,
    num_features: int | None,
    num_tasks: int = TASKS,
    num_rows: int = ROWS,
    seed: int = SEED,
    num_classes: int | None = None,
) -> Tasks:
    """The first `num_tasks` learnable tasks, or fewer if `DRAWS` times as many draws do not contain that many; with
    `num_classes` classes, by default the source's.

    Raises:
      InputError: unknown source, or one whose tasks have no classes.
    """
    held_out = families(source)[1].with_num_classes(num_classes)
    key = jax.random.fold_in(jax.random.key(seed), num_features or 0)
    sizes = {"num_tasks": DRAWS * num_tasks, "num_rows": num_rows, "num_features": num_features}

    def sample(family: Family) -> Rows:
        return jax.jit(lambda key: family.sample(key, model, log_signal=(0.0, 1.0), **sizes).rows)(key)

    # The same key for the two halves: the same tasks with different rows.
    train, test = map(sample, held_out.halves())
    shares = jax.nn.one_hot(test.y.astype(jnp.int32), max(2, len(model.labels))).mean(1)
    tasks = Tasks(train, test, shares.max(1), _optimum(train, test, model))
    learnable = np.flatnonzero(tasks.optimum - tasks.trivial > MIN_GAIN)[:num_tasks]
    return jax.tree.map(lambda leaf: leaf[learnable], tasks)


def accuracies(
    protector: Protector, model: Model, budgets: Budgets, tasks: Tasks, log_signal: jax.Array, seed: int
) -> jax.Array:
    """Test accuracy f32[B] of one whole run per task at log_signal f32[B], as deployed, with the budget as a cap."""
    batch = TaskBatch(tasks.train, jnp.asarray(log_signal), jnp.zeros(len(log_signal)))
    rows, setups = budgets.simulate(batch, model, capped=True)
    return _run(protector, rows, tasks.test, setups, jax.random.split(jax.random.key(seed), len(log_signal)))


def meta_test(
    trained: checkpoint.Checkpoint, num_tasks: int = TASKS, num_rows: int | None = None, seed: int = SEED
) -> dict[str, Any]:
    """Results of a meta-trained protector on held-out tasks, as JSON.

    Args:
      trained: its card must hold `config` and `range`, as `meta_train.training.loop` writes them.
      num_tasks: per feature count, at most; a quarter of it where there are more than `MANY_FEATURES`.
      num_rows: training rows per task; each represents N / num_rows rows of the simulated table. None for `ROWS`, or
        for the config's where tasks have all columns of a table, which may be many.
      seed: of tasks and noise.

    Returns:
      A description of the tasks (`data`, `seed`, `num_features`, `train_rows`, `least_gain`, `tasks`, and quantiles of
      `trivial` and `optimum` accuracy), and `bands`, lowest first: one below the trained range, then `BANDS` that cover
      it. Each has its range of `log_signal`; `quantiles` of test `accuracy`, of `gain` over the majority model and of
      `share_of_gap`, that gain relative to the optimum's; and `beat_trivial`, the share of tasks with a gain above 0.

    Raises:
      InputError: the card does not say what to test, or its tasks have no classes, or no task is learnable.
    """
    card = trained.card
    if not {"config", "range"} <= card.keys():
        raise InputError(
            f"the card of {card['name']} holds no `config` and `range`, so there is no telling which tasks were held "
            "out from it; pass a checkpoint that l2p meta-train wrote."
        )
    config = on_card(card)
    return _figures(trained, config, config.shapes, num_tasks, num_rows, seed)


def meta_tests(
    trained: checkpoint.Checkpoint, num_tasks: int = TASKS, num_rows: int | None = None, seed: int = SEED
) -> dict[str, dict[str, Any]]:
    """`meta_test` by model, for a protector that was trained for several, on synthetic tasks: of each model that
    predicts classes the first `SHAPES` sizes. A fifth of a small table's rows has too few to learn from.

    Raises:
      InputError: as for `meta_test`.
    """
    config = on_card(trained.card)
    by_model: dict[str, list[Shape]] = {}
    for shape in config.shapes:
        drawn = AND.join(part for part in parts_of(shape.source) if part.startswith(SYNTHETIC))
        if drawn and kind_of(drawn) != "regression":
            by_model.setdefault(plain_name(shape.model), []).append(shape._replace(source=drawn))
    return {
        name: _figures(trained, config, shapes[:SHAPES], num_tasks, num_rows, seed) for name, shapes in by_model.items()
    }


def _figures(
    trained: checkpoint.Checkpoint,
    config: MetaConfig,
    shapes: Sequence[Shape],
    num_tasks: int,
    num_rows: int | None,
    seed: int,
) -> dict[str, Any]:
    """Results on tasks of these shapes."""
    low, high = trained.card["range"]["log_signal"]
    tasks = config.tasks
    num_rows = num_rows or (tasks.rows if None in tasks.counts else ROWS)
    sources = list(dict.fromkeys(shape.source for shape in shapes))
    drawn = []
    # Sampling rates do not change the tasks; runs draw batches as the shipped protector does.
    for shape in dict.fromkeys(shape._replace(sampling_rate=None) for shape in shapes):
        model, count = tasks.find_model(shape), _count(num_tasks, shape.num_features)
        sizes = {"num_features": shape.num_features, "num_classes": tasks.drawn_classes(shape)}
        sizes |= {"num_tasks": count, "num_rows": num_rows, "seed": seed}
        drawn.append((model, draw(shape.source, model, **sizes)))
    trivial, optimum = (
        np.concatenate([getattr(tasks_of_shape, name) for _, tasks_of_shape in drawn])
        for name in ("trivial", "optimum")
    )
    if not trivial.size:
        raise InputError(
            f"no task drawn from {', '.join(sources)} has anything to learn; draw more tasks, or more rows."
        )
    width = (high - low) / BANDS
    protector = sized(trained.protector, num_rows)
    budgets = budgets_for(config.simulated, protector, (low - width, high), kind_of(sources[0]))

    def band(lowest: float, highest: float) -> dict[str, Any]:
        parts = []
        for model, tasks_of_shape in drawn:
            signal = _spread(lowest, highest, tasks_of_shape.trivial.size)
            parts.append(accuracies(protector, model, budgets, tasks_of_shape, signal, seed))
        accuracy = np.concatenate(parts)
        gain = accuracy - trivial
        return {
            "log_signal": [lowest, highest],
            "accuracy": _quantiles(accuracy),
            "gain": _quantiles(gain),
            "share_of_gap": _quantiles(gain / (optimum - trivial)),
            "beat_trivial": _rounded((gain > 0).mean()),
        }

    edges = [_rounded(edge) for edge in low + width * np.arange(-1, BANDS + 1)]
    return {
        "data": ", ".join(sources),
        "seed": seed,
        "num_features": [tasks_of_shape.train.x.shape[-1] for _, tasks_of_shape in drawn],
        "train_rows": num_rows,
        "least_gain": MIN_GAIN,
        "tasks": trivial.size,
        "quantiles": list(QUANTILES),
        "trivial": _quantiles(trivial),
        "optimum": _quantiles(optimum),
        "bands": [band(*ends) for ends in itertools.pairwise(edges)],
    }


def update(path: Path, num_tasks: int = TASKS, num_rows: int | None = None, seed: int = SEED) -> dict[str, Any]:
    """Meta-test the checkpoint at `path`, write the results onto its card, and return them; nothing else changes."""
    trained = checkpoint.load(path)
    is_single = "config" not in trained.card or on_card(trained.card).tasks.num_models == 1
    name, test = ("meta_test", meta_test) if is_single else ("meta_tests", meta_tests)
    figures = test(trained, num_tasks, num_rows, seed)
    checkpoint.save(trained.protector, path, trained.card | {name: figures})
    return figures


def update_where_possible(path: Path) -> None:
    """`update`, or one sentence on standard error that says why there are no results."""
    try:
        update(path)
    except InputError as error:
        print(f"no meta-test of {path}: {error}", file=sys.stderr)


def main(paths: tyro.conf.Positional[tuple[Path, ...]], /, tasks: int = TASKS, seed: int = SEED) -> None:
    """Meta-test checkpoints and write the results onto their cards.

    Args:
      paths: checkpoint files.
      tasks: maximum number per feature count.
      seed: for tasks and noise.
    """
    for path in paths:
        print(path)
        results = update(path, tasks, seed=seed)
        for figures in [results] if "bands" in results else results.values():
            print(figures["data"], *map(json.dumps, figures["bands"]), sep="\n")


def _count(num_tasks: int, num_features: int | None) -> int:
    """Number of test tasks with this feature count."""
    return num_tasks if num_features is None or num_features <= MANY_FEATURES else max(1, num_tasks // 4)


@jax.jit
def _run(protector: Protector, train: Rows, test: Rows, setups: Setup, keys: jax.Array) -> jax.Array:
    """Test accuracy f32[B] of whole runs; all arguments except the protector have a leading axis [B]."""

    def accuracy(train: Rows, test: Rows, setup: Setup, key: jax.Array) -> jax.Array:
        params, *_ = run(protector, setup.model.init(train.x.shape[1]), train, setup, key)
        return _accuracy(setup.model, params, test)

    return jax.vmap(accuracy)(train, test, setups, keys)


@functools.partial(jax.jit, static_argnames="model")
def _optimum(train: Rows, test: Rows, model: Model) -> jax.Array:
    """Test accuracy f32[B] of the non-private minimiser; mapped, since Newton's method copies the table."""

    def accuracy(parts: tuple[Rows, Rows]) -> jax.Array:
        return _accuracy(model, reference(model, parts[0]), parts[1])

    return jax.lax.map(accuracy, (train, test))


def _accuracy(model: Model, params: jax.Array, rows: Rows) -> jax.Array:
    return (model.classify(params, rows.x) == rows.y).mean()


def _spread(lowest: float, highest: float, count: int) -> jax.Array:
    """f32[count], evenly inside the range."""
    return lowest + (highest - lowest) * (jnp.arange(count) + 0.5) / count


def _quantiles(values: np.ndarray) -> list[float]:
    return [_rounded(value) for value in np.quantile(values, QUANTILES)]


def _rounded(value: float) -> float:
    return round(float(value), 4)


if __name__ == "__main__":
    tyro.cli(main)
