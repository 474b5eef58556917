"""The score of a whole run as deployed: the log of its final excess loss."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from l2p.models import GeneralizedLinear, Model
from l2p.oracle.setup import Setup
from l2p.run.protector import Protector
from l2p.run.run import Simulation, advance, start
from l2p.run.simulate import mean_loss
from l2p.task.rows import Rows
from meta_train.config.drawn import EXCESS_FLOOR
from meta_train.evaluation.budgets import Budgets
from meta_train.tasks.family import TaskBatch


def score(loss: jax.Array, best_loss: jax.Array, first_loss: jax.Array, floor: float = EXCESS_FLOOR) -> jax.Array:
    """log of the excess loss, relative to that of the model's starting point.

    A large final loss counts only through its logarithm, so that a diverged run does not dominate the batch.
    """
    excess = (loss - best_loss) / (first_loss - best_loss + EXCESS_FLOOR)
    return jnp.log(floor + jnp.maximum(excess, 0.0))


def first_loss(model: Model, rows: Rows) -> jax.Array:
    """Mean loss f32[] where every run starts; a constant where binary labels do not change it (logistic: log 2)."""
    if isinstance(model, GeneralizedLinear):
        with jax.ensure_compile_time_eval():
            at_zero = np.asarray(model.margin_loss(jnp.zeros(2), jnp.arange(2.0)))
        if at_zero[0] == at_zero[1]:
            return jnp.asarray(at_zero[0])
    return mean_loss(model.init(rows.x.shape[1]), model, rows)


def whole_run(
    protector: Protector,
    rows: Rows,
    best_loss: jax.Array,
    setup: Setup,
    key: jax.Array,
    scored: Rows | None = None,
    floor: float = EXCESS_FLOOR,
) -> tuple[jax.Array, jax.Array]:
    """Score f32[] of the released params after a whole run, on the rows it read or on those in `scored`; and the share
    f32[] of the budget it spent."""
    noise = Simulation(key)
    model = setup.model
    run_at_start, _ = start(protector, model.init(rows.x.shape[1]), rows, setup, noise)
    run_at_end, _, _ = advance(protector, run_at_start, rows, setup, noise, protector.num_steps)
    params = protector.finish(run_at_end.params, run_at_end.state, setup)
    scored = rows if scored is None else scored
    loss = mean_loss(params, model, scored)
    return score(loss, best_loss, first_loss(model, scored), floor), run_at_end.spending.spent / setup.price_list.budget


def evaluate(
    protector: Protector,
    key: jax.Array,
    batch: TaskBatch,
    model: Model,
    budgets: Budgets,
    floor: float = EXCESS_FLOOR,
    stacked: bool = False,
) -> dict[str, jax.Array]:
    """Per task: the score f32[B] as deployed, with the cap, and the constraint's value f32[B] without it. With
    `stacked`, each task has a protector of its own."""
    keys = jax.random.split(key, batch.log_signal.shape[0])
    run = jax.vmap(functools.partial(whole_run, floor=floor), (0 if stacked else None, 0, 0, 0, 0, 0))
    (rows, capped), (_, free) = (budgets.simulate(batch, model, capped) for capped in (True, False))
    scores, _ = run(protector, rows, batch.best_loss, capped, keys, batch.scored)
    _, spent = run(protector, rows, batch.best_loss, free, keys, batch.scored)
    return {"score": scores, "constraint": spent - 1.0}
