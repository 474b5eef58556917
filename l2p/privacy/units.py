"""Prices for a guarantee that protects whole units, such as people with several rows each.

A unit has at most k rows that count (`l2p.tables.schema.units` says which). Neighbours differ in all rows of one unit,
so their sums of contributions of at most C differ by at most k C where the unit's rows are nulled, added or removed: at
most k terms leave or enter. Where one unit takes the place of another, at most k leave and at most k enter: 2 k C.
That is k times the sensitivity to one row under each adjacency, whatever the k rows have in common. So noise of m times
the sensitivity to one row is noise of m / k times that to a unit, and a Gaussian sum costs what one of noise multiplier
m / k does, which is k^2 times as much, under every accountant that prices it by how far its mean may move.

This is no theorem on groups of rows (which would multiply epsilon, and delta by more): the k rows are one step of the
mechanism. It needs every row to be read by every query. On batches a unit's rows are drawn one by one, and its part in
a sum is no longer that of one row or none; a selection's scores, a solve and a norm have proofs about one row. All of
these are refused, also for units of at most one row: there a unit that is replaced nulls one line and fills another.
"""

import dataclasses

import jax
import jax.numpy as jnp

from l2p.base.errors import InputError
from l2p.privacy.accountants import find
from l2p.privacy.cost.prices import UP, PriceList, float32_up
from l2p.privacy.cost.sampling import FullBatch

#: Beyond this many rows of a unit nothing is left of any budget that is worth planning with.
MAX_ROWS = 2**20


def check_unit(accountant: str, sampler: object, max_rows: int) -> None:
    """Refuse what is proved for single rows only.

    Raises:
      InputError: batches are sampled, the accountant is no filter over Gaussian sums, or a unit has too many rows.
    """
    if not isinstance(sampler, FullBatch):
        raise InputError(
            f"the schema protects a unit with several rows, but what {sampler} amplifies is proved for single rows; "
            "choose a method that reads every row in every step, or leave the unit out to have rows protected."
        )
    filtering = find(accountant)
    if not (filtering.adaptive and getattr(filtering, "composes", False) and "gaussian" in filtering.coefficients):
        raise InputError(
            f"the schema protects a unit with several rows, but the theorem of accountant {accountant!r} is used here "
            "for single rows; choose accountant gdp, zcdp or rdp, or leave the unit out to have rows protected."
        )
    if not 1 <= max_rows <= MAX_ROWS:
        raise InputError(
            f"a unit of up to {max_rows} rows would be covered by noise as wide as {max_rows} rows are long; choose at "
            f"most {MAX_ROWS}."
        )


def for_units(price_list: PriceList, max_rows: int) -> PriceList:
    """Prices of Gaussian sums whose noise multiplier is over the sensitivity to one row, for units of `max_rows` rows.

    >>> from l2p.privacy.budget import Budget
    >>> from l2p.privacy.cap.filter import Filter
    >>> rows = Filter("gdp", Budget(1.0, 1e-6)).price_list()
    >>> round(float(for_units(rows, 3).noise_multiplier(0.1) / rows.noise_multiplier(0.1)), 4)
    3.0
    """
    check_unit(price_list.name, price_list.sampler, max_rows)
    row_price = float(price_list.coefficients["gaussian"])
    # With room for what `over_unit` rounds, so that the trace priced again in float64 costs no more than was charged.
    price = float32_up(row_price * max_rows**2 * UP)
    return dataclasses.replace(price_list, coefficients={"gaussian": jnp.asarray(price)})


def over_unit(noise_multiplier: jax.Array, max_rows: int) -> jax.Array:
    """f32[], noise over the sensitivity to a unit, never above the true one, from that over the sensitivity to a row.

    The quotient and the product round up by 2^-24 at most each, and the factor is twice as far below 1.
    """
    return noise_multiplier if max_rows == 1 else noise_multiplier / max_rows * (1.0 - 2.0**-22)
