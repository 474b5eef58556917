"""Search for the constants of a protector on one table at one budget, by gradients through simulated runs."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from l2p.base.compiled import quickly
from l2p.models import Model
from l2p.oracle.setup import Setup
from l2p.protectors.conditioning import Covariates, at
from l2p.protectors.fields import KNOT_COLUMNS
from l2p.protectors.learned.tunable import by_difference, combine, constant_term, partition, tunable
from l2p.protectors.stepwise.eigenbasis import Eigenbasis
from l2p.run.run import run
from l2p.run.simulate import mean_loss, simulate, split
from l2p.task.rows import Rows
from l2p.task.task import Task
from meta_train.training.gradients import TASK_GRADIENT_NORM

#: Seeds of draws to validate on, and the first one to search with.
VALIDATION, FIRST = range(1_000_000, 1_000_006), 2_000_000
#: Candidates that are simulated together.
TOGETHER = 7
#: Steps of the search, draws in each, and its largest learning rate.
STEPS, DRAWS, RATE = 60, 4, 0.1
#: Price of a squared move of 1, as a share of the gap, so that constants that do not matter stay.
PULL = 0.001
#: Shifts of the logit of the eigenbasis's share that are tried where one is bought.
SHIFTS = (-2.0, -1.0, 0.0, 1.5)
#: Logarithms of the least mu N / d for an eigenbasis that buy one always, and never.
ALWAYS, NEVER = -20.0, 20.0


class Problem(NamedTuple):
    """Rows to search on, all the private ones; the public facts of a run on all of them; and the gap between the losses
    at the start and without privacy."""

    rows: Rows
    setup: Setup
    gap: float


def at_budget(protector: Any, covariates: Covariates) -> Any:
    """The protector with each curve over budgets and sizes replaced by its value at these."""

    def constant(leaf: Any) -> jax.Array:
        leaf = jnp.asarray(leaf)
        if leaf.ndim == 0:
            return leaf
        value = at(leaf, covariates)
        return value[None] if leaf.ndim == 1 else jnp.zeros((1, KNOT_COLUMNS)).at[0, 0].set(value)

    return jax.tree.map(constant, protector)


def constants(protector: Any) -> dict[str, float]:
    """The constants of a protector `at_budget`, by name."""
    leaves = jax.tree_util.tree_leaves_with_path(protector)
    return {jax.tree_util.keystr(path).lstrip("."): float(np.ravel(leaf)[0]) for path, leaf in leaves}


def validation(rows: Rows, seed: int) -> Task:
    """Four fifths of the rows, which stand for all, and the others, by masks: so programs are compiled once."""
    index: Any = np.arange(len(rows.y))
    test = split(Rows(index[:, None], index, index), seed).test
    assert test is not None
    held = np.zeros(len(index), np.float32)
    held[test.y] = 1.0
    rest = 1.0 - held
    return Task(rows.replace(mask=rest * np.float32(len(rest) / rest.sum())), rows.replace(mask=held))


def search(control: Any, problem: Problem) -> Any:
    """The protector whose constants have the least loss on validation draws, the control among them."""
    protector = best([control, *with_bases(control)], problem)
    adam = optax.scale_by_adam(b2=0.99).init(partition(protector)[0])
    rows, setup, gap = problem
    for step in range(STEPS):
        seeds = [FIRST + step * DRAWS + draw for draw in range(DRAWS)]
        tasks: list[Any] = [validation(rows, seed) for seed in seeds]
        masks = (np.stack([task.private.mask for task in tasks]), np.stack([task.test.mask for task in tasks]))
        rate = jnp.float32(RATE * 0.5 * (1.0 + math.cos(math.pi * step / STEPS)))
        keys = jnp.stack([jax.random.key(seed) for seed in seeds])
        protector, adam = descend(protector, control, adam, rate, jnp.float32(gap), setup, rows, masks, keys)
    return best([control, *with_bases(protector)], problem)


def with_bases(protector: Any) -> list[Any]:
    """The protector as it is, without an eigenbasis, and with one for several shares: that choice has no gradient."""
    basis = protector.purchase(Eigenbasis)
    options = [basis.replace(log_least_ratio=jnp.float32(NEVER))]
    for shift in SHIFTS:
        share = basis.logit_share + shift * constant_term(basis.logit_share)
        options.append(basis.replace(log_least_ratio=jnp.float32(ALWAYS), logit_share=share))
    return [protector, *(protector.with_purchases(option) for option in options)]


def best(candidates: Sequence[Any], problem: Problem) -> Any:
    """The candidate with the least loss on validation draws."""
    return candidates[int(np.nanargmin(validation_losses(candidates, problem)))]


@quickly
def descend(
    protector: Any,
    control: Any,
    adam: Any,
    rate: jax.Array,
    gap: jax.Array,
    setup: Setup,
    rows: Rows,
    masks: tuple[jax.Array, jax.Array],
    keys: jax.Array,
) -> tuple[Any, Any]:
    """One step of Adam on the mean validation loss over the gap, of draws with `masks` f32[draws, n] of the rows that a
    run reads and of those to validate on; each draw's gradient is clipped as a task's is in meta-training."""
    floats, others = partition(protector)

    def loss(floats: Any, read: jax.Array, held: jax.Array, key: jax.Array) -> jax.Array:
        start = setup.model.init(rows.x.shape[1])
        params = run(combine(floats, others), start, rows.replace(mask=read), setup, key)[0]
        return mean_loss(params, setup.model, rows.replace(mask=held)) / gap

    slopes = jax.vmap(jax.grad(loss), (None, 0, 0, 0))(floats, *masks, keys)
    norms = jax.vmap(optax.tree.norm)(slopes)
    factors = jnp.where(jnp.isfinite(norms), jnp.minimum(1.0, TASK_GRADIENT_NORM / (norms + 1e-12)), 0.0) / len(keys)

    def slope(of_draws: jax.Array, leaf: jax.Array, first: jax.Array, moves: bool, misleads: bool) -> jax.Array:
        mean = jnp.tensordot(factors, jnp.nan_to_num(of_draws), 1) + 2.0 * PULL * (leaf - first)
        # Slopes of curves over sizes stay: at one size they do what the first number does.
        return jnp.where((jnp.arange(leaf.size) == 0).reshape(leaf.shape) & moves & (not misleads), mean, 0.0)

    mean = jax.tree.map(slope, slopes, floats, partition(control)[0], tunable(floats), by_difference(floats))
    change, adam = optax.scale_by_adam(b2=0.99).update(mean, adam)
    return combine(jax.tree.map(lambda leaf, step: leaf - rate * step, floats, change), others), adam


def validation_losses(protectors: Sequence[Any], problem: Problem) -> np.ndarray:
    """Mean losses f[k] of protectors on the validation draws, `TOGETHER` at a time."""
    rows, setup, _ = problem
    held = [np.asarray(validation(rows, seed).test.mask) for seed in VALIDATION]  # pyrefly: ignore
    losses = []
    for begin in range(0, len(protectors), TOGETHER):
        part = list(protectors[begin : begin + TOGETHER])
        padded = part + part[:1] * (TOGETHER - len(part))
        params = simulate(padded, [setup] * TOGETHER, rows, VALIDATION, divide=validation).params
        of_rows = row_losses(params, setup.model, rows)
        of_draws = [each @ mask / mask.sum() for each, mask in zip(of_rows, held, strict=True)]
        losses.append(np.mean(of_draws, axis=0)[: len(part)])
    return np.concatenate(losses)


def row_losses(params: np.ndarray, model: Model, rows: Rows) -> np.ndarray:
    """Losses f[S, E, n] of rows under params f[S, E, p]."""
    return np.stack([np.asarray(_losses(each, model, rows)) for each in params])


@functools.partial(jax.jit, static_argnames="model")
def _losses(params: jax.Array, model: Model, rows: Rows) -> jax.Array:
    return model.losses(params, rows.x, rows.y)


def moves(control: Any, searched: Any, losses_of: Callable[[Sequence[Any]], np.ndarray]) -> dict[str, dict[str, float]]:
    """How far the search moved each constant, and what is lost on validation draws where it is put back, as a share of
    what the search gained there; both empty where the control was the best candidate."""
    first, last = constants(control), constants(searched)
    moved = {name: round(last[name] - first[name], 3) for name in first if last[name] != first[name]}
    leaves, tree = jax.tree.flatten(searched)
    places = [place for place, name in enumerate(first) if name in moved]
    old = jax.tree.leaves(control)
    put_back = [jax.tree.unflatten(tree, [*leaves[:at], old[at], *leaves[at + 1 :]]) for at in places]
    of_control, of_searched, *without = map(float, losses_of([control, searched, *put_back]))
    if not moved or of_control <= of_searched:
        return {"moved": {}, "worth": {}}
    worth = [round((loss - of_searched) / (of_control - of_searched), 3) for loss in without]
    return {"moved": moved, "worth": dict(zip(moved, worth, strict=True))}
