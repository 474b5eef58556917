"""Price of a query, and the decision whether the budget covers it: made before any row is read."""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from l2p.base.compiled import as_one
from l2p.oracle.setup import Setup
from l2p.privacy.cap.spending import Spending
from l2p.privacy.cost.sampling import PermutationEpochs
from l2p.privacy.events import Event
from l2p.privacy.units import over_unit

#: Noise is a multiple of the bound on one row. Outside this range that product may underflow, or the sum overflow, in
#: float32, and the answer would carry no noise; such queries are refused.
MIN_BOUND, MAX_BOUND = 2.0**-60, 2.0**60


class Decision(NamedTuple):
    """Outcome of pricing one query.

    Attributes:
      granted: bool[].
      spending: with its cost.
      refused: bool[], whether anything was refused in this step.
      noise_multiplier: f32[], that the query is answered with; 1 if it is refused.
      cost: f32[], in the accountant's unit; 0 if it is refused.
      shown_multiplier, shown_bound: f32[] each, as the trace has them.
    """

    granted: jax.Array
    spending: Spending
    refused: jax.Array
    noise_multiplier: jax.Array
    cost: jax.Array
    shown_multiplier: jax.Array
    shown_bound: jax.Array


@functools.partial(as_one, static=("slot", "sampled", "num_lines"))
def decide(
    setup: Setup,
    spending: Spending,
    refused: jax.Array,
    event: Event,
    bound: jax.Array,
    most_rows: jax.Array,
    step: jax.Array | None,
    slot: int,
    sampled: bool,
    num_lines: int,
) -> Decision:
    """Price and charge a query.

    Args:
      setup: the public facts.
      spending, refused: before it.
      event: what it costs.
      bound, most_rows: its own.
      step, slot: as `PriceList.price` takes them.
      sampled: whether it reads a batch.
      num_lines: of the table.
    """
    valid = jnp.isfinite(event.noise_multiplier) & (event.noise_multiplier >= 0) & ~refused
    if event.mechanism != "none":
        valid &= (bound >= MIN_BOUND) & (bound <= MAX_BOUND)  # false for NaN
        valid &= most_rows >= num_lines
    # An invalid multiplier is replaced by 1 below, so that its NaN reaches no gradient.
    priced = dataclasses.replace(event, noise_multiplier=jnp.where(valid, event.noise_multiplier, 1.0))
    cost = jnp.where(valid, setup.price_list.price(priced, sampled, step, slot), jnp.nan)
    in_epoch = sampled and isinstance(setup.price_list.sampler, PermutationEpochs)
    granted, spending = (spending.charge_in_epoch if in_epoch else spending.charge)(cost)
    return Decision(
        granted,
        spending,
        refused | ~granted,
        jnp.where(granted, priced.noise_multiplier, 1.0),
        jnp.where(granted, cost, 0.0).astype(jnp.float32),
        over_unit(jnp.asarray(event.noise_multiplier, jnp.float32), setup.rows_per_unit or 1),
        jnp.asarray(bound, jnp.float32),
    )
