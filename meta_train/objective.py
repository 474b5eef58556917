"""What meta-training minimises: the outcome of the very run that is deployed."""

import dataclasses

import jax
import jax.numpy as jnp

from l2p.models import Model
from l2p.oracle import Setup
from l2p.privacy.accountants import accountant_for_mu
from l2p.privacy.events import Adjacency
from l2p.protector import Protector
from l2p.run import Run, Simulation, advance, start
from l2p.simulate import mean_loss
from l2p.task import Rows
from meta_train.family import TaskBatch

#: Excess losses are compared on a logarithmic scale from here up, so that every budget weighs alike.
EXCESS_FLOOR = 0.02


def simulated_setup(model: Model, accountant: str, log_signal: jax.Array, num_rows: int, capped: bool) -> Setup:
    """A public setup whose log(mu N) is `log_signal`.

    Only the product mu N enters a full-batch run, so N is the number of rows at hand and mu is set to match. Without
    a cap the ledger only measures.
    """
    planned = accountant_for_mu(accountant, jnp.exp(log_signal) / num_rows)
    setup = Setup.create(model, Adjacency.ZERO_OUT, planned, num_rows)
    return setup if capped else dataclasses.replace(setup, cap=jnp.array(jnp.inf))


def score(loss: jax.Array, best_loss: jax.Array) -> jax.Array:
    """log of the excess loss, relative to what there is to gain over predicting one half.

    A final loss anywhere near the start counts through its logarithm only, which keeps a diverged run from drowning
    the rest of the batch.
    """
    excess = (loss - best_loss) / (jnp.log(2.0) - best_loss + EXCESS_FLOOR)
    return jnp.log(EXCESS_FLOOR + jnp.maximum(excess, 0.0))


def whole_run(
    protector: Protector, rows: Rows, best_loss: jax.Array, setup: Setup, key: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Score f32[] of the released params after a whole run, and the share f32[] of the budget it spent."""
    noise = Simulation(key)
    model = setup.model
    begun, _ = start(protector, model.init(rows.x.shape[1]), rows, setup, noise)
    ended, _, _ = advance(protector, begun, rows, setup, noise, protector.num_steps)
    params = protector.finish(ended.params, ended.state, setup)
    return score(mean_loss(params, model, rows), best_loss), ended.ledger.spent / setup.accountant.budget


def first_segment(
    protector: Protector, rows: Rows, best_loss: jax.Array, setup: Setup, key: jax.Array, num_steps: int
) -> tuple[jax.Array, tuple[Run, jax.Array]]:
    """`next_segment` from the start of a run, side queries included."""
    begun, _ = start(protector, setup.model.init(rows.x.shape[1]), rows, setup, Simulation(key))
    return next_segment(protector, begun, rows, best_loss, setup, key, num_steps)


def next_segment(
    protector: Protector, run: Run, rows: Rows, best_loss: jax.Array, setup: Setup, key: jax.Array, num_steps: int
) -> tuple[jax.Array, tuple[Run, jax.Array]]:
    """Mean score along `num_steps` more steps (Andrychowicz et al. 2016), the run after them, and what they spent.

    Spending is relative to the segment's even share of the budget (the paper's r_b, all equal), so 1 is on target.
    """
    noise = Simulation(key)
    before = run.ledger.spent
    run, _, losses = advance(
        protector, run, rows, setup, noise, num_steps, observe=lambda params: mean_loss(params, setup.model, rows)
    )
    even = setup.accountant.budget * num_steps / protector.num_steps
    return score(losses, best_loss).mean(), (run, (run.ledger.spent - before) / even)


def setups_for(batch: TaskBatch, model: Model, accountant: str, capped: bool) -> Setup:
    """One setup per task, stacked."""
    num_rows = batch.rows.x.shape[1]
    return jax.vmap(lambda signal: simulated_setup(model, accountant, signal, num_rows, capped))(batch.log_signal)
