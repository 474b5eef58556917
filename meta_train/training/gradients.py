"""Meta-gradients: one outer step of meta-training."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.base.compiled import quick_options
from l2p.base.errors import InputError
from l2p.models import Model
from l2p.protectors.learned.tunable import combine, partition
from l2p.run.protector import Protector
from meta_train.config.drawn import Shape, Tasks
from meta_train.config.learners import MetaGradients, Perturbation
from meta_train.config.parts import Outer, Scoring
from meta_train.evaluation.budgets import Budgets
from meta_train.evaluation.resolved import Resolved
from meta_train.evaluation.scores import Score, slope_above, whole_run
from meta_train.tasks.family import TaskBatch
from meta_train.tasks.sources import kind_of
from meta_train.training import differences, evolution
from meta_train.training.clipping import TASK_GRADIENT_NORM, gradients_apart, mean_clipped, norms_of
from meta_train.training.constraints import Constraint, bands_of, penalty, update_every
from meta_train.training.damping import damped
from meta_train.training.objective import (
    first_segment,
    next_segment,
    run_beside,
    soft_run,
    with_constant_gradients,
)
from meta_train.training.on_devices import of_tasks, on_host
from meta_train.training.tuned import tuned
from meta_train.training.turns import adam_step, init_moments, is_turn, of_turn


@struct.dataclass
class GradientState:
    """Everything an outer step changes.

    Attributes:
      protector: the parameters being learned.
      adam: moments of its floating-point leaves, one per parameter group.
      constraint: the state of the spending constraint.
      start: the protector that training starts from, where runs are scored beside its runs, else None.
    """

    protector: Protector
    adam: dict[str, Any]
    constraint: Constraint
    start: Protector | None = None


def init(protector: Protector, unroll: int | None = None, compares_with_start: bool = False) -> GradientState:
    """The state before the first outer step; whether runs are scored beside those of `protector`."""
    constraint = Constraint.create(num_segments(protector, unroll))
    return GradientState(protector, init_moments(protector), constraint, protector if compares_with_start else None)


def num_segments(protector: Protector, unroll: int | None) -> int:
    """The number of segments in which a run is differentiated; `InputError` if their lengths would differ."""
    if unroll is None:
        return 1
    segments, left_over = divmod(protector.num_steps, unroll)
    if left_over:
        raise InputError(
            f"unroll {unroll} does not divide the run's {protector.num_steps} steps; choose one that does."
        )
    return segments


def compiled(
    tasks: Tasks, resolved: Mapping[Shape, Resolved], learner: MetaGradients, outer: Outer, scoring: Scoring
) -> Callable[[GradientState, int], tuple[GradientState, dict]]:
    """One outer step on fresh tasks; steps cycle through the shapes.

    Tasks are drawn by a program of their own, so that what is compiled for the step itself, which takes longest, is the
    same for all sources, and for the folds of a recipe: JAX's cache has it from then on.
    """
    updates: dict[tuple[Shape, str], Callable] = {}
    turns: dict[Shape, tuple[Callable, Callable]] = {}
    for shape, of_shape in resolved.items():
        drawn = {"tasks": tasks, "resolved": of_shape, "learner": learner, "outer": outer}
        draw = jax.jit(functools.partial(draw_tasks, **drawn), compiler_options=quick_options())
        alike = shape._replace(source=""), kind_of(shape.source)
        if alike not in updates:
            fixed = {"learner": learner, "outer": outer, "scoring": scoring}
            fixed |= {"budgets": of_shape.budgets, "model": of_shape.model}
            updates[alike] = jax.jit(functools.partial(update, **fixed), compiler_options=quick_options())
        turns[shape] = draw, updates[alike]
    shapes = tasks.shapes

    def outer_step(state: GradientState, step: int) -> tuple[GradientState, dict]:
        draw, go_on = turns[shapes[step % len(shapes)]]
        return on_host(go_on(on_host(state), jnp.array(step), draw(jnp.array(step))))

    return outer_step


def _keys(step: jax.Array, seed: int) -> tuple[jax.Array, jax.Array]:
    """Of an outer step: for drawing tasks and for their runs."""
    sample_key, run_key = jax.random.split(jax.random.fold_in(jax.random.key(seed), step))
    return sample_key, run_key


def draw_tasks(
    step: jax.Array,
    tasks: Tasks,
    resolved: Resolved,
    learner: MetaGradients,
    outer: Outer,
) -> TaskBatch:
    """The tasks of an outer step, of one shape."""
    arguments = tasks.arguments(resolved.shape)
    arguments |= {
        "log_signal": learner.log_signal_at(step, outer.steps, tasks.log_signal),
        "signal_power": learner.signal_power,
    }
    return resolved.train.sample(_keys(step, outer.seed)[0], resolved.model, **arguments)


def update(
    state: GradientState,
    step: jax.Array,
    batch: TaskBatch,
    learner: MetaGradients,
    outer: Outer,
    scoring: Scoring,
    budgets: Budgets,
    model: Model,
) -> tuple[GradientState, dict[str, jax.Array]]:
    """One outer step on these tasks: a whole unroll, or its segments in sequence."""
    model = model if learner.inner_gradient else with_constant_gradients(model)
    rows, setups = budgets.simulate(batch, model, capped=learner.constraint == "share")
    keys = jax.random.split(_keys(step, outer.seed)[1], len(batch.log_signal))
    tasks = (rows, batch.best_loss, setups, keys)
    if batch.scored is not None:
        tasks = (*tasks, batch.scored)
    if batch.public is not None:
        tasks = (*tasks, batch.public)
    if learner.unroll is None:
        state, _, metrics = _descend(
            state, step, learner, outer, scoring, _whole(state.start, step, learner, scoring), tasks, jnp.array(0)
        )
    else:
        state, metrics = _segments(state, step, learner, outer, scoring, learner.unroll, tasks)
    mu, every = penalty(step, outer.steps), multiplier_every(state, learner)
    constraint = state.constraint.update(step, mu, learner.constraint == "soft", every)
    return dataclasses.replace(state, constraint=constraint), metrics


def _whole(start: Protector | None, step: jax.Array, learner: MetaGradients, scoring: Scoring) -> Callable:
    """The objective of a whole run, beside those of `start` if there is one: (score, (state to continue from,
    spending))."""

    def final(protector: Protector, *task: Any) -> tuple[Score, tuple[None, jax.Array]]:
        if start is None:
            score, spent = whole_run(protector, *task, scoring=scoring)
        else:
            comparison = {"aversion": learner.aversion, "draws": learner.draws}
            score, spent = run_beside(protector, start, *task, **comparison, scoring=scoring)
        return score, (None, spent)

    def soft(protector: Protector, *task: Any) -> tuple[Score, tuple[None, jax.Array]]:
        around_end, last, spent = soft_run(protector, *task, scoring=scoring)
        # The projector's updates are scored at the last step, past the end of the budget.
        if learner.alternate is None:
            return around_end, (None, spent)
        own = is_turn("projector", step, learner.alternate)
        return jax.tree.map(functools.partial(jnp.where, own), last, around_end), (None, spent)

    return soft if learner.constraint == "soft" else final


def _segments(
    state: GradientState,
    step: jax.Array,
    learner: MetaGradients,
    outer: Outer,
    scoring: Scoring,
    unroll: int,
    tasks: tuple,
) -> tuple[GradientState, dict[str, jax.Array]]:
    """One update after each segment; a run continues where it stopped, without gradients to earlier segments (Eq.
    4)."""
    pieces = {"num_steps": unroll, "scoring": scoring}
    begin = functools.partial(first_segment, **pieces)
    go_on = functools.partial(next_segment, **pieces)
    state, runs, metrics = _descend(state, step, learner, outer, scoring, begin, tasks, jnp.array(0))

    def descend(carry: tuple, segment: jax.Array) -> tuple[tuple, dict[str, jax.Array]]:
        state, runs = carry
        arguments = (jax.lax.stop_gradient(runs), *tasks)
        state, runs, metrics = _descend(state, step, learner, outer, scoring, go_on, arguments, segment)
        return (state, runs), metrics

    # A scan, so that only one segment is compiled.
    (state, _), later = jax.lax.scan(descend, (state, runs), jnp.arange(1, num_segments(state.protector, unroll)))
    every = jax.tree.map(lambda first, others: jnp.append(first, others), metrics, later)
    summary = jax.tree.map(lambda values: values[-1], every)
    return state, summary | {"constraint": every["constraint"].mean(), "constraint_abs": every["constraint_abs"].max()}


def _descend(
    state: GradientState,
    step: jax.Array,
    learner: MetaGradients,
    outer: Outer,
    scoring: Scoring,
    objective: Callable,
    arguments: tuple,
    segment: jax.Array,
) -> tuple[GradientState, Any, dict[str, jax.Array]]:
    """One Adam step on the mean of clipped per-task gradients of one segment; returns the tasks' runs too."""
    num_tasks = len(jax.tree.leaves(arguments)[0])
    bands, mu = bands_of(num_tasks), penalty(step, outer.steps)
    # The soft constraint of a whole run is part of its score.
    has_price = learner.constraint == "augmented_lagrangian" or (
        learner.constraint == "soft" and learner.unroll is not None
    )
    floats, others = partition(state.protector)

    def task_parts(floats, band, *arguments):
        score, (run, spent) = objective(damped(combine(floats, others), learner.damping), *arguments)
        price = state.constraint.lagrangian(spent, band, segment, mu) if has_price else 0.0
        return (score.value, price), (score, spent, run)

    def task_loss(*arguments):
        (value, price), auxiliary = task_parts(*arguments)
        return value + price, auxiliary

    every = (bands, *arguments)
    is_apart = has_price and learner.clips == "apart"
    if is_apart:
        # What a run spends is no concern of the projector's own updates.
        gradient = gradients_apart(task_parts, is_turn("scheduler", step, learner.alternate))
    elif isinstance(learner, Perturbation):
        gradient = functools.partial(evolution.gradient, task_loss, pairs=learner.pairs, spread=learner.spread)
        every = (_keys_of_moves(step, segment, outer.seed, num_tasks), *every)
    elif differences.has_any(floats, learner.tunes):
        gradient = differences.gradient(task_loss)
        every = (_keys_of_moves(step, segment, outer.seed, num_tasks), *every)
    else:
        gradient = jax.grad(task_loss, has_aux=True)
    grads, (scores, spent, runs) = of_tasks(gradient, floats, every)
    longest = _longest(scores, learner, scoring)
    if is_apart:
        of_score, of_penalty = (of_turn(part, step, learner.alternate) for part in grads)
        norms = norms_of(of_score)
        clipped = mean_clipped(of_score, norms, longest), mean_clipped(of_penalty, norms_of(of_penalty))
        mean = jax.tree.map(jnp.add, *clipped)
    else:
        norms = norms_of(grads)
        mean = mean_clipped(grads, norms, longest)
    mean = jax.tree.map(
        lambda leaf, is_tuned: jnp.where(is_tuned == 1.0, leaf, 0.0), mean, tuned(floats, learner.tunes)
    )

    protector, adam = adam_step(state.protector, state.adam, mean, step, learner, outer.steps)
    h = spent - state.constraint.targets[bands, segment]
    recorded = state.constraint.updated(spent, scores.value, segment, multiplier_every(state, learner))
    state = GradientState(protector, adam, recorded, state.start)
    metrics = {
        "score": jnp.mean(scores.value),
        **({"above": jnp.mean(scores.above)} if scoring.above else {}),
        "gradient_norm": jnp.median(norms),
        "largest_gradient_norm": jnp.max(norms),
        "finite": jnp.mean(jnp.isfinite(norms)),
        "constraint": jnp.mean(h),
        "constraint_abs": jnp.mean(jnp.abs(h)),
    }
    return state, runs, metrics


def _keys_of_moves(step: jax.Array, segment: jax.Array, seed: int, num_tasks: int) -> jax.Array:
    """A key for each task of a segment of an outer step, for the moves of its constants."""
    return jax.random.split(jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), step), segment), num_tasks)


def _longest(scores: Score, learner: MetaGradients, scoring: Scoring) -> jax.Array | float:
    """Norm that a task's meta-gradient is clipped to, given its score. As much more as ends above and losses beside the
    start count, or clipping would make them count no more than the gain of any other task."""
    longest = TASK_GRADIENT_NORM
    if scoring.above:
        longest = longest * 1.0 + scoring.above * jnp.nan_to_num(slope_above(scores.above))
    return longest * jnp.where(scores.value > 0.0, learner.aversion, 1.0) if learner.aversion > 1 else longest


def multiplier_every(state: GradientState, learner: MetaGradients) -> int:
    """Outer steps between updates of the multipliers."""
    return update_every(learner.alternate, state.constraint.targets.shape[1])
