"""Several tables below one another in one array, so that tasks of all of them are drawn by one compiled program.

Drawn one after the other, a mixture's tables are traced and compiled one by one: twelve of them took most of the time
in which an outer step compiles.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from l2p.task.rows import Rows
from meta_train.tasks.family import Family, TaskFamily
from meta_train.tasks.spans import Span
from meta_train.tasks.targets import Classes, Numbers

#: Families that draw their tasks from one table.
Tabular = TaskFamily | Classes | Numbers


def draw_stacked(
    tables: Sequence[Family], keys: Sequence[jax.Array], num_tasks: int, num_rows: int, num_features: int
) -> Rows:
    """`num_tasks` independent tasks from each of the tables, in their order: rows with a leading axis [T * num_tasks].

    The tables are alike (see `alike`), and their tasks may have `num_features` features. Where they have equally many
    columns, tasks are the same as `Family.draw_several` draws from each table and its key.
    """
    every = jnp.concatenate([jax.random.split(key, num_tasks) for key in keys])
    place = np.repeat(np.arange(len(tables)), num_tasks)
    return draw_places(tables, every, place, num_rows, num_features)


def draw_places(
    tables: Sequence[Family],
    keys: jax.Array,
    places: jax.Array | np.ndarray,
    num_rows: int,
    num_features: int,
    among: tuple[jax.Array, jax.Array] | None = None,
) -> Rows:
    """A task for each of the keys, from the table that has its place i32[B] among the tables, which are alike: rows
    with a leading axis [B]. With `among`, a first row i32[T] and a number of rows i32[T], from these of each table."""
    parts = cast(Sequence[Tabular], tables)
    widest = max(part.x.shape[1] for part in parts)
    # By NumPy, so that what is compiled has one constant, not one for each table and the work of joining them.
    x = jnp.asarray(np.concatenate([_padded(part.x, widest) for part in parts]))
    y = jnp.asarray(np.concatenate([np.asarray(part.y) for part in parts]))
    labels = [part.label_columns if isinstance(part, TaskFamily) else np.zeros(0, np.int32) for part in parts]
    candidates = jnp.asarray(_padded_lines(labels))
    rows = np.array([part.x.shape[0] for part in parts])
    columns = np.array([part.x.shape[1] for part in parts])
    counts = np.array([len(label_columns) for label_columns in labels])
    spans = Span(*(jnp.asarray(field, jnp.int32) for field in (np.cumsum(rows) - rows, rows, columns, counts)))

    if among is not None:
        spans = spans._replace(first=spans.first + among[0], rows=among[1])

    def draw(key: jax.Array, span: Span, candidates: jax.Array) -> Rows:
        table = dataclasses.replace(parts[0], x=x, y=y, span=span)
        if isinstance(table, TaskFamily):
            table = dataclasses.replace(table, label_columns=candidates)
        return table.draw(key, num_rows, num_features)

    return jax.vmap(draw)(keys, jax.tree.map(lambda leaf: leaf[places], spans), candidates[places])


def alike(tables: Sequence[Family]) -> list[list[Family]]:
    """Tables in groups from which one program draws: of one kind, with the same numbers of classes and the same share
    of tasks that are the table as it is. Tables of a group keep their order."""
    groups: dict[Any, list[Family]] = {}
    for table in tables:
        classes = (table.num_classes, table.parts, table.num_chosen) if isinstance(table, Classes) else None
        groups.setdefault((type(table), classes, cast(Tabular, table).plain), []).append(table)
    return list(groups.values())


def _padded(x: jax.Array, width: int) -> np.ndarray:
    """A table with columns of zeros up to `width`."""
    return np.pad(np.asarray(x), ((0, 0), (0, width - x.shape[1])))


def _padded_lines(lines: Sequence[jax.Array | np.ndarray]) -> np.ndarray:
    """i32[T, l], lines of different lengths, the shorter ones followed by zeros; at least one long."""
    width = max(1, *(len(line) for line in lines))
    return np.stack([np.pad(np.asarray(line, np.int32), (0, width - len(line))) for line in lines])
