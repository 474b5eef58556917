"""Where a table lies among several that are stacked (`stacks.py`)."""

from typing import NamedTuple

import jax
import jax.numpy as jnp


class Span(NamedTuple):
    """The part of a stack of tables that is one of them.

    Attributes:
      first: i32[], its first row.
      rows: i32[], how many it has.
      columns: i32[], how many it has, the first ones; those after them are padding.
      labels: i32[], how many of its label columns are its own, the first ones; those after them are padding.
    """

    first: jax.Array
    rows: jax.Array
    columns: jax.Array
    labels: jax.Array


def draw_rows(key: jax.Array, num_rows: int, x: jax.Array, span: Span | None) -> jax.Array:
    """Indices i32[num_rows] of random rows of a table x f32[n, c], or of its part `span`."""
    if span is None:
        return jax.random.randint(key, (num_rows,), 0, x.shape[0])
    return span.first + jax.random.randint(key, (num_rows,), 0, span.rows)


def columns_of(x: jax.Array, span: Span | None) -> int | jax.Array:
    """The number of columns of a table x f32[n, c], or of its part `span`."""
    return x.shape[1] if span is None else span.columns


def is_within(x: jax.Array, span: Span | None) -> jax.Array:
    """bool[n], whether rows of x f32[n, c] are of the part `span`."""
    places = jnp.arange(x.shape[0])
    first, rows = (0, x.shape[0]) if span is None else (span.first, span.rows)
    return (places >= first) & (places < first + rows)
