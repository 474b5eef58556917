"""Losses of a task that the loss of a run is compared with."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from l2p.models import GeneralizedLinear, Model
from l2p.oracle import Oracle, reader_of
from l2p.oracle.setup import Setup
from l2p.privacy.cap.spending import Spending
from l2p.protectors import BaseRate
from l2p.run.run import Simulation
from l2p.run.simulate import mean_loss
from l2p.task.rows import Rows
from meta_train.config.parts import EXCESS_FLOOR, USUAL, Scoring

#: Draws of noise that the loss of a bought base rate is averaged over, from one key for all tasks.
DRAWS, KEY = 64, 40_000
#: Share of the loss reached without features that the gap to the best one counts as at least.
LEAST_WORTH = 0.1
#: Logit of a share of the budget that is all of it.
WHOLE_BUDGET = 30.0
#: Prior of the shares of classes, as of learned protectors before any training.
SPREAD, WIDTH = 0.35, 1.0


class Marks(NamedTuple):
    """Losses f32[] of a task.

    Attributes:
      best: of the non-private minimiser.
      unit: excess over it that counts as one.
      reached: that a run reaches without learning anything from features: the better of the start's and that expected
        of a base rate bought with the whole budget; None where it is not asked for.
      gap: from there to `best`, or a tenth of `reached` where that is more; None likewise.
    """

    best: jax.Array
    unit: jax.Array
    reached: jax.Array | None = None
    gap: jax.Array | None = None

    def reaching(self, loss: jax.Array) -> "Marks":
        """The same where another run, which one can always have, reaches a loss f32[]: ends above both have a price."""
        reached = loss if self.reached is None else jnp.minimum(self.reached, loss)
        return self._replace(reached=reached, gap=_worth(reached, self.best))


def marks_of(
    model: Model, read: Rows, scored: Rows, best_loss: jax.Array, setup: Setup, scoring: Scoring = USUAL
) -> Marks:
    """The marks of a task, of which a run reads some rows and is scored on others."""
    first = first_loss(model, scored)
    unit = first - best_loss + EXCESS_FLOOR
    if scoring.numbers_from == "constant" and setup.kind == "regression":
        unit = _gap(constant_loss(model, scored), best_loss)
    if not scoring.above:
        return Marks(best_loss, unit)
    reached = jnp.minimum(first, loss_of_bought_rates(model, read, scored, setup))
    return Marks(best_loss, unit, reached, _worth(reached, best_loss))


def _gap(loss: jax.Array, best_loss: jax.Array) -> jax.Array:
    """Gap f32[] between a loss and the best one, above 0; losses of numbers may all be far below any fixed addition."""
    return jnp.maximum(loss - best_loss, 0.0) + EXCESS_FLOOR * loss


def _worth(reached: jax.Array, best_loss: jax.Array) -> jax.Array:
    """Gap f32[] in which ends above are counted: a tenth of the loss that is reached without features where they tell
    next to nothing, or an end hardly above it would count more than all other tasks."""
    return jnp.maximum(_gap(reached, best_loss), LEAST_WORTH * reached)


def first_loss(model: Model, rows: Rows) -> jax.Array:
    """Mean loss f32[] where every run starts; a constant where binary labels do not change it (logistic: log 2)."""
    if isinstance(model, GeneralizedLinear):
        with jax.ensure_compile_time_eval():
            at_zero = np.asarray(model.margin_loss(jnp.zeros(2), jnp.arange(2.0)))
        if at_zero[0] == at_zero[1]:
            return jnp.asarray(at_zero[0])
    return mean_loss(model.init(rows.x.shape[1]), model, rows)


def loss_of_bought_rates(model: Model, read: Rows, scored: Rows, setup: Setup) -> jax.Array:
    """Loss f32[] expected of a base rate that the whole budget buys, which a run can always have; that of the start
    where the model has none."""
    if model.num_rates == 0:
        return first_loss(model, scored)
    purchase = BaseRate(jnp.full(1, WHOLE_BUDGET), jnp.log(jnp.float32(SPREAD)), log_width=jnp.log(jnp.float32(WIDTH)))
    start = model.init(scored.x.shape[1])

    def draw(key: jax.Array) -> jax.Array:
        spending = Spending(jnp.zeros(()), jnp.asarray(setup.price_list.budget, jnp.float32))
        noise = Simulation(key).init_noise()
        oracle = Oracle(reader_of(read), setup, spending, noise, jnp.zeros((), jnp.int32))
        return purchase(start, oracle)[0]

    params = jax.vmap(draw)(jax.random.split(jax.random.key(KEY), DRAWS))
    return jax.vmap(lambda params: mean_loss(params, model, scored))(params).mean()


def constant_loss(model: Model, rows: Rows) -> jax.Array:
    """Least loss f32[] of params that take no feature into account; of the start where the model has no such params."""
    if model.num_rates == 0:
        return first_loss(model, rows)
    weight = rows.mask / rows.mask.sum()
    if model.num_rates == 1:
        mean = weight @ rows.y
        rates = jnp.stack([1.0 - mean, mean])
    else:
        rates = weight @ jax.nn.one_hot(rows.y.astype(jnp.int32), model.num_rates)
    # No share is 0, of which there is no logarithm.
    rates = jnp.maximum(rates, 0.5 / rows.y.shape[0])
    return mean_loss(model.params_at_rates(model.init(rows.x.shape[1]), rates / rates.sum()), model, rows)
