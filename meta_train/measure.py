"""What the outcome of a run is measured by: its loss and, where classes are told apart, about how many rows are not."""

import jax
import jax.numpy as jnp

from l2p.models import GeneralizedLinear, Model
from l2p.simulate import mean_loss
from l2p.task import Rows

#: Rows closer to the threshold than about this many standard deviations of the margins count as wrong in part.
SOFTNESS = 0.25
#: Least standard deviation of the margins: those of equal rows have none.
LEAST_SPREAD = 1e-3


def measure(params: jax.Array, model: Model, rows: Rows, errors: float = 0.0) -> jax.Array:
    """Mean loss f32[] of params f32[p], and `errors` times the share of rows on the wrong side, softly.

    At small budgets the two disagree. The least loss is that of predictions which hardly leave the mean; where one
    class is rare, they never cross the threshold and find none of it.
    """
    loss = mean_loss(params, model, rows)
    return loss + errors * soft_errors(params, model, rows) if errors else loss


def soft_errors(params: jax.Array, model: Model, rows: Rows) -> jax.Array:
    """About the share f32[] of rows f32[n, d] that are taken for the other class, and differentiable.

    Margins are compared with their own spread, so that longer params are not better or worse than shorter ones.
    """
    assert isinstance(model, GeneralizedLinear), "a config that asks for others is refused"
    weight = rows.mask / jnp.maximum(rows.mask.sum(), 1.0)
    margin = model.margin(params, rows.x)
    variance = weight @ jnp.square(margin - weight @ margin)
    distance = (margin - model.threshold) / jnp.sqrt(variance + LEAST_SPREAD**2)
    return weight @ jax.nn.sigmoid((1.0 - 2.0 * rows.y) * distance / SOFTNESS)
