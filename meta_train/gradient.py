"""Meta-gradients: one outer step of learning to protect."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, cast

import jax
import jax.numpy as jnp
import optax
from flax import struct

from l2p.errors import InputError
from l2p.models import Model
from l2p.protector import Protector
from l2p.tunable import combine, partition, tunable
from meta_train.budgets import Budgets, budgets_for
from meta_train.config import BANDS, MetaConfig
from meta_train.family import Family, TaskBatch
from meta_train.objective import first_segment, next_segment, whole_run

#: Each task's meta-gradient is clipped to this norm before averaging: one diverging task must not drown the rest.
TASK_GRADIENT_NORM = 1.0
#: Penalty weight mu of the augmented Lagrangian: first and last value; it shrinks geometrically over training. The
#: multipliers, not a tiny mu, make the constraint exact; with mu at 0.005 they outran the scheduler and oscillated.
PENALTY = (0.2, 0.05)
#: Scheduler updates between multiplier updates: enough for the scheduler to answer the last one.
MULTIPLIER_EVERY = 10


@struct.dataclass
class GradientState:
    """Everything an outer step changes.

    Attributes:
      protector: the parameters being learned.
      adam: moments of its floating-point leaves, one per parameter group.
      multipliers: f32[BANDS], z.
      excess: f32[BANDS], mean constraint value since the last multiplier update.
    """

    protector: Protector
    adam: dict[str, Any]
    multipliers: jax.Array
    excess: jax.Array


def groups(protector: Protector) -> Protector:
    """The group of every parameter, in its place: "scheduler", "projector" or "fixed"."""

    def group(path, allowed: bool) -> str:
        if not allowed:
            return "fixed"
        return "scheduler" if getattr(path[0], "name", "") in ("scheduler", "centering") else "projector"

    return jax.tree_util.tree_map_with_path(group, tunable(protector))


def init(protector: Protector) -> GradientState:
    """The state before the first outer step."""
    floats, _ = partition(protector)
    moments = {name: optax.scale_by_adam().init(cast(Any, floats)) for name in ("scheduler", "projector")}
    return GradientState(protector, moments, jnp.zeros(BANDS), jnp.zeros(BANDS))


def compiled(
    config: MetaConfig, family: Family, start: Protector
) -> Callable[[GradientState, int], tuple[GradientState, dict]]:
    """One outer step on fresh tasks; feature counts take turns, each with its own compilation."""
    common = {"config": config, "family": family, "budgets": budgets_for(config, start)}
    updates = [
        jax.jit(functools.partial(update, num_features=num_features, **common))
        for num_features in config.feature_counts
    ]
    return lambda state, step: updates[step % len(updates)](state, jnp.array(step))


def update(
    state: GradientState,
    step: jax.Array,
    config: MetaConfig,
    family: Family,
    budgets: Budgets,
    num_features: int | None,
) -> tuple[GradientState, dict[str, jax.Array]]:
    """One outer step on fresh tasks: a whole unroll, or its segments one after the other."""
    model = config.find_model()
    key = jax.random.fold_in(jax.random.key(config.seed), step)
    sample_key, run_key = jax.random.split(key)
    batch = family.sample(sample_key, model, **config.task_arguments(num_features))
    rows, setups = budgets.simulate(batch, model, capped=config.constraint == "share")
    keys = jax.random.split(run_key, config.tasks)
    if config.objective == "final":

        def objective(protector, rows, best_loss, setup, key):
            value, spent = whole_run(protector, rows, best_loss, setup, key)
            return value, (None, spent)

        state, _, metrics = _descend(state, step, config, objective, (rows, batch.best_loss, setups, keys), 1)
        return _update_multipliers(state, step, config), metrics

    start = functools.partial(first_segment, num_steps=config.unroll)
    common = (rows, batch.best_loss, setups, keys)
    segments, left_over = divmod(state.protector.num_steps, config.unroll)
    if left_over:
        raise InputError(
            f"unroll {config.unroll} does not divide the run's {state.protector.num_steps} steps; choose one that does."
        )
    state, runs, metrics = _descend(state, step, config, start, common, segments)

    def go_on(protector, run, rows, best_loss, setup, key):
        return next_segment(protector, run, rows, best_loss, setup, key, config.unroll)

    def later(carry: tuple, _: None) -> tuple[tuple, dict[str, jax.Array]]:
        # The run goes on where it stopped; the gradient does not reach back.
        state, runs = carry
        arguments = (jax.lax.stop_gradient(runs), *common)
        state, runs, metrics = _descend(state, step, config, go_on, arguments, segments)
        return (state, runs), metrics

    # A scan, so that one segment is compiled and not all of them.
    (state, _), rest = jax.lax.scan(later, (state, runs), length=segments - 1)
    metrics = jax.tree.map(lambda first, rest: jnp.append(first, rest)[-1], metrics, rest)
    return _update_multipliers(state, step, config), metrics


def _descend(state: GradientState, step: jax.Array, config: MetaConfig, objective, arguments, segments: int):
    """One Adam step on the mean of clipped per-task gradients; returns the tasks' runs too.

    A run in `segments` comes here once for each, every one with an even share of the budget to meet.
    """
    bands = jnp.arange(config.tasks) * BANDS // config.tasks
    penalty = _penalty(step, config)

    floats, others = partition(state.protector)

    def task_loss(floats, multiplier, *arguments):
        value, (run, spent) = objective(combine(floats, others), *arguments)
        h = spent - 1.0
        lagrangian = -multiplier * h + jnp.square(h) / (2.0 * penalty)
        return value + (lagrangian if config.constraint == "augmented_lagrangian" else 0.0), (value, h, run)

    in_axes = (None,) + (0,) * (1 + len(arguments))
    gradient = jax.vmap(jax.grad(task_loss, has_aux=True), in_axes)
    grads, (values, h, runs) = gradient(floats, state.multipliers[bands], *arguments)
    norms = jnp.sqrt(sum(jnp.square(leaf).reshape(config.tasks, -1).sum(1) for leaf in jax.tree.leaves(grads)))
    factor = jnp.where(jnp.isfinite(norms), jnp.minimum(1.0, TASK_GRADIENT_NORM / jnp.maximum(norms, 1e-12)), 0.0)
    mean = jax.tree.map(lambda leaf: jnp.tensordot(factor, jnp.nan_to_num(leaf), 1) / config.tasks, grads)

    protector, adam = adam_step(state, mean, step, config)
    in_band = jax.ops.segment_sum(h, bands, BANDS) * BANDS / config.tasks
    excess = state.excess + in_band / (_multiplier_every(config) * segments)
    state = GradientState(protector, adam, state.multipliers, excess)
    metrics = {
        "score": jnp.mean(values),
        "gradient_norm": jnp.median(norms),
        "largest_gradient_norm": jnp.max(norms),
        "constraint": jnp.mean(h),
        "constraint_abs": jnp.mean(jnp.abs(h)),
    }
    return state, runs, metrics


def _multiplier_every(config: MetaConfig) -> int:
    """Outer steps between multiplier updates."""
    return MULTIPLIER_EVERY * (1 if config.alternate is None else sum(config.alternate) // config.alternate[0])


def _penalty(step: jax.Array, config: MetaConfig) -> jax.Array:
    """mu f32[] at an outer step."""
    return PENALTY[0] * (PENALTY[1] / PENALTY[0]) ** (step / config.steps)


def _update_multipliers(state: GradientState, step: jax.Array, config: MetaConfig) -> GradientState:
    """z <- z - mean(h) / mu when it is due (Nocedal and Wright 1999, chapter 17)."""
    every = _multiplier_every(config)
    due = step % every == every - 1
    multipliers = jnp.where(due, state.multipliers - state.excess / _penalty(step, config), state.multipliers)
    return dataclasses.replace(state, multipliers=multipliers, excess=jnp.where(due, 0.0, state.excess))


def adam_step(state: GradientState, grads: Any, step: jax.Array, config: MetaConfig) -> tuple[Protector, dict]:
    """Adam on the group whose turn it is, or on both."""
    rate = config.learning_rate * 0.5 * (1.0 + jnp.cos(jnp.pi * jnp.minimum(step / config.steps, 1.0)))
    protector, others = partition(state.protector)
    names, adam = groups(protector), dict(state.adam)
    for index, group in enumerate(("scheduler", "projector")):
        turn = jnp.array(True)
        if config.alternate is not None:
            position = step % sum(config.alternate)
            turn = (position >= config.alternate[0]) == (index == 1)
        mine = jax.tree.map(lambda name, leaf, group=group: leaf * (name == group), names, grads)
        updates, moments = optax.scale_by_adam().update(mine, state.adam[group])
        adam[group] = jax.tree.map(lambda new, old, turn=turn: jnp.where(turn, new, old), moments, state.adam[group])
        protector = jax.tree.map(
            lambda leaf, change, turn=turn: leaf - jnp.where(turn, rate * change, 0.0), protector, updates
        )
    return combine(protector, others), adam


def evaluate(
    protector: Protector, key: jax.Array, batch: TaskBatch, model: Model, budgets: Budgets
) -> dict[str, jax.Array]:
    """Per task: the score f32[B] as deployed, with the cap binding, and the constraint's value f32[B] without it."""
    keys = jax.random.split(key, batch.log_signal.shape[0])
    run = jax.vmap(whole_run, (None, 0, 0, 0, 0))
    (rows, capped), (_, free) = (budgets.simulate(batch, model, capped) for capped in (True, False))
    scores, _ = run(protector, rows, batch.best_loss, capped, keys)
    _, spent = run(protector, rows, batch.best_loss, free, keys)
    return {"score": scores, "constraint": spent - 1.0}
