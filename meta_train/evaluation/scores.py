"""The score of a whole run as deployed: the log of its final excess loss, and what it ends above its start."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from l2p.models import Model
from l2p.oracle.setup import Setup
from l2p.run.protector import Protector
from l2p.run.run import Simulation, advance, start
from l2p.run.simulate import mean_loss
from l2p.task.rows import Rows
from meta_train.config.parts import USUAL, Scoring
from meta_train.evaluation.budgets import Budgets
from meta_train.evaluation.marks import Marks, marks_of
from meta_train.tasks.family import TaskBatch

#: Share of a task's gap up to which what a run ends above counts as its square, and beyond which as itself.
NEAR = 0.1


class Score(NamedTuple):
    """How well a run did.

    Attributes:
      value: f32[], lower is better.
      above: f32[], how far its loss is above `Marks.reached`, over `Marks.gap`; 0 where that is not asked for.
    """

    value: jax.Array
    above: jax.Array


def score(loss: jax.Array, marks: Marks, scoring: Scoring = USUAL) -> Score:
    """log of the excess loss, and a price of what a run ends above what it reaches without learning anything.

    A large final loss counts only through its logarithm, so that a diverged run does not dominate the batch. But then
    a mean over tasks lets gains on easy ones, whose excess falls to a hundredth, pay for runs on hard ones that end
    above their start, where the logarithm hardly rises. The price is in units of what there is to gain on the task at
    hand, so that no other can pay it: quadratic while noise may explain it, since a run that is as good as its start
    ends above it half of the time, and then linear, so that the worst runs dominate and its slope is at most `above`.
    """
    excess = (loss - marks.best) / marks.unit
    value = jnp.log(scoring.excess_floor + jnp.maximum(excess, 0.0))
    if marks.reached is None or marks.gap is None:
        return Score(value, jnp.zeros_like(loss))
    above = jnp.maximum(loss - marks.reached, 0.0) / marks.gap
    return Score(value + scoring.above * NEAR * (jnp.hypot(1.0, above / NEAR) - 1.0), above)


def slope_above(above: jax.Array) -> jax.Array:
    """Derivative f32[...] of that price over its weight, 0 to 1."""
    return (above / NEAR) / jnp.hypot(1.0, above / NEAR)


def whole_run(
    protector: Protector,
    rows: Rows,
    best_loss: jax.Array,
    setup: Setup,
    key: jax.Array,
    scored: Rows | None = None,
    public: Rows | None = None,
    scoring: Scoring = USUAL,
) -> tuple[Score, jax.Array]:
    """Score of the released params after a whole run, on the rows it read or on those in `scored`; and the share f32[]
    of the budget it spent. Where ends above have a price and there are public rows, one above that of the same run
    without them has it, too, so that no task is worse for having them."""
    model = setup.model
    params, spent = _released(protector, rows, setup, key, public)
    scored = rows if scored is None else scored
    marks = marks_of(model, rows, scored, best_loss, setup, scoring)
    if public is not None and scoring.above:
        without, _ = _released(jax.lax.stop_gradient(protector), rows, setup, key, None)
        marks = marks.reaching(mean_loss(without, model, scored))
    return score(mean_loss(params, model, scored), marks, scoring), spent / setup.price_list.budget


def _released(
    protector: Protector, rows: Rows, setup: Setup, key: jax.Array, public: Rows | None
) -> tuple[jax.Array, jax.Array]:
    """Params f32[p] that a whole run releases, and what it spent f32[]."""
    noise = Simulation(key)
    run_at_start, _ = start(protector, setup.model.init(rows.x.shape[1]), rows, setup, noise, public)
    run_at_end, _, _ = advance(protector, run_at_start, rows, setup, noise, protector.num_steps, public)
    return protector.finish(run_at_end.params, run_at_end.state, setup), run_at_end.spending.spent


def evaluate(
    protector: Protector,
    key: jax.Array,
    batch: TaskBatch,
    model: Model,
    budgets: Budgets,
    scoring: Scoring = USUAL,
    stacked: bool = False,
) -> dict[str, jax.Array]:
    """Per task: the score as deployed, with the cap, and its part above, and the constraint's value without the cap,
    f32[B] each. With `stacked`, each task has a protector of its own."""
    keys = jax.random.split(key, batch.log_signal.shape[0])
    run = jax.vmap(functools.partial(whole_run, scoring=scoring), (0 if stacked else None, 0, 0, 0, 0, 0, 0))
    (rows, capped), (_, free) = (budgets.simulate(batch, model, capped) for capped in (True, False))
    scores, _ = run(protector, rows, batch.best_loss, capped, keys, batch.scored, batch.public)
    _, spent = run(protector, rows, batch.best_loss, free, keys, batch.scored, batch.public)
    return {"score": scores.value, "above": scores.above, "constraint": spent - 1.0}
