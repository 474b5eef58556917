"""Whole tables as tasks, on which a training on a user's own tables is judged."""

import dataclasses
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np

from l2p.task.rows import Rows
from meta_train.tasks.family import Family
from meta_train.tasks.spans import FOLDS
from meta_train.tasks.stacks import Tabular, draw_places

#: Folded into a key to draw each task's table; above the number of keys that it is split into.
PLACES_KEY = 40


@dataclasses.dataclass(frozen=True)
class WholeTables(Family):
    """Tasks that are one of several tables with all of its columns, or as many as fit, and its own targets.

    Runs read the rows to train on and are scored on those that are held out; or, to train, read three quarters of the
    rows to train on and are scored on the last one. One program draws both, and those of each table.

    Attributes:
      tables: of one kind, with equally many classes; the rows to train on first.
      rows: how many those are, by table.
      place: i32[], of the table that all tasks are of; -1, and None, for all tables in turn.
      trains: bool[], whether held-out rows are left alone.
    """

    tables: tuple[Tabular, ...]
    rows: tuple[int, ...]
    place: jax.Array | int = -1
    trains: jax.Array | bool = False

    @classmethod
    def of(cls, train: tuple[Tabular, ...], held_out: tuple[Tabular, ...]) -> "WholeTables":
        """The family of tables in two parts."""
        joined = [
            dataclasses.replace(
                first, x=jnp.concatenate([first.x, second.x]), y=jnp.concatenate([first.y, second.y]), plain=1.0
            )
            for first, second in zip(train, held_out, strict=True)
        ]
        return cls(tuple(joined), tuple(table.x.shape[0] for table in train))

    def choose(self, place: jax.Array | int, trains: jax.Array | bool) -> "WholeTables":
        """The family of one of the tables, or of all at -1; to train or to judge."""
        return dataclasses.replace(self, place=place, trains=trains)

    def draw(self, key: jax.Array, num_rows: int, num_features: int | None) -> Rows:
        return jax.tree.map(lambda leaf: leaf[0], self.draw_both(key, 1, num_rows, num_features)[0])

    def draw_both(self, key: jax.Array, num_tasks: int, num_rows: int, num_features: int | None) -> tuple[Rows, Rows]:
        order = jax.random.permutation(jax.random.fold_in(key, PLACES_KEY), num_tasks)
        places = jnp.where(jnp.asarray(self.place) < 0, order % len(self.tables), self.place)
        every, cut = (np.array(counts) for counts in ([table.x.shape[0] for table in self.tables], self.rows))
        part = cut - cut // FOLDS
        read = jnp.zeros(len(cut), jnp.int32), jnp.where(self.trains, part, cut)
        scored = jnp.where(self.trains, part, cut), jnp.where(self.trains, cut - part, every - cut)
        keys, columns = jax.random.split(key, num_tasks), cast(int, num_features)
        first, second = (draw_places(self.tables, keys, places, num_rows, columns, rows) for rows in (read, scored))
        return first, second
