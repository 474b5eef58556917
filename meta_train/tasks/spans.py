"""Spans of tables among several that are stacked (`stacks.py`), and random rows of a span."""

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


#: Where rows are read apart, the last half comes from one in `FOLDS` of a table's rows, the first from the others.
FOLDS = 4
#: Steps from one row to the next where all have to be different. Rows are in random order, and a prime has no divisor
#: in common with their number, so that none comes twice before all have had their turn.
STRIDES = (1_000_003, 1_000_033, 1_000_037, 1_000_039, 1_000_081, 1_000_099, 1_000_117, 1_000_121)


class Drawn(NamedTuple):
    """Rows of a table that a task is made of.

    Attributes:
      index: i32[num_rows].
      mask: f32[num_rows], 1 for those that count; 0 for repetitions of others, where each may count once.
    """

    index: jax.Array
    mask: jax.Array


def draw_rows(
    key: jax.Array, num_rows: int, x: jax.Array, span: Span | None, apart: bool = False, distinct: bool = False
) -> Drawn:
    """Random rows of a table x f32[n, c], or of its part `span`; with `apart`, the last half are other rows than the
    first half; with `distinct`, of rows that are drawn twice within a half one counts."""
    first, rows = _extent(x, span)
    cut, turn, is_first = rows, 0, jnp.ones(num_rows, bool)
    if apart:
        turn, cut = _cut(key, rows)
        is_first = jnp.arange(num_rows) < num_rows // 2
    begin, size = jnp.where(is_first, 0, cut), jnp.where(is_first, cut, rows - cut)
    if distinct:
        start_key, stride_key = jax.random.split(key)
        start, stride = jax.random.randint(start_key, (), 0, cut), jax.random.choice(stride_key, jnp.array(STRIDES))
        within = jnp.arange(num_rows) - jnp.where(is_first, 0, num_rows // 2)
        place = begin + (start + within * (stride % size)) % size
        return Drawn(first + (turn + place) % rows, (within < size).astype(jnp.float32))
    if not apart:
        index = first + jax.random.randint(key, (num_rows,), 0, rows)
    else:
        index = first + (turn + jax.random.randint(key, (num_rows,), begin, begin + size)) % rows
    return Drawn(index, jnp.ones(num_rows, jnp.float32))


def choose_rows(
    key: jax.Array,
    num_rows: int,
    x: jax.Array,
    span: Span | None,
    among: jax.Array,
    apart: bool = False,
    distinct: bool = False,
) -> Drawn:
    """`draw_rows` from the rows where `among` bool[n] is true; a half whose part holds none of them draws from all."""
    first, rows = _extent(x, span)
    place = jnp.arange(x.shape[0]) - first
    among = among & (place >= 0) & (place < rows)

    def chosen(key: jax.Array, among: jax.Array, count: int) -> Drawn:
        weight = among.astype(jnp.float32)
        if not distinct:
            index = jax.random.choice(key, x.shape[0], (count,), p=weight / weight.sum())
            return Drawn(index, jnp.ones(count, jnp.float32))
        order = jnp.argsort(jnp.where(among, jax.random.uniform(key, among.shape), 2.0))
        size = among.sum()
        return Drawn(order[jnp.arange(count) % size], (jnp.arange(count) < size).astype(jnp.float32))

    if not apart:
        return chosen(key, among, num_rows)
    turn, cut = _cut(key, rows)
    is_first = (place - turn) % rows < cut
    keys, half = jax.random.split(key), num_rows // 2
    parts = [jnp.where((among & part).any(), among & part, among) for part in (is_first, ~is_first)]
    halves = [chosen(key, part, half) for key, part in zip(keys, parts, strict=True)]
    return jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *halves)


def _extent(x: jax.Array, span: Span | None) -> tuple[int | jax.Array, int | jax.Array]:
    """The first row of a table or of its part, and how many it has."""
    return (0, x.shape[0]) if span is None else (span.first, span.rows)


def _cut(key: jax.Array, rows: int | jax.Array) -> tuple[jax.Array, int | jax.Array]:
    """The row at which reading begins, around the table's end, and the number of its rows for the first half."""
    return jax.random.randint(jax.random.fold_in(key, FOLDS), (), 0, rows), rows - rows // FOLDS


def columns_of(x: jax.Array, span: Span | None) -> int | jax.Array:
    """The number of columns of a table x f32[n, c], or of its part `span`."""
    return x.shape[1] if span is None else span.columns
