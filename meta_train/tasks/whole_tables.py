"""Tables as they are, on which a training on them is judged: what it learned is for whole tables like these."""

import dataclasses
from typing import cast

import jax
import jax.numpy as jnp

from l2p.task import Rows
from meta_train.tasks.family import Family
from meta_train.tasks.stacks import Tabular, draw_places

#: Folds a key, for which task is of which table; above the number of keys that it is split into.
PLACES_KEY = 40


@dataclasses.dataclass(frozen=True)
class WholeTables(Family):
    """Tasks that are one of several tables with all of its columns, or as many as fit, and its own targets.

    Attributes:
      tables: of one kind, with equally many classes.
      place: i32[], of the table that all tasks are of; -1, and None, for all tables in turn.
    """

    tables: tuple[Tabular, ...]
    place: jax.Array | None = None

    def draw(self, key: jax.Array, num_rows: int, num_features: int | None) -> Rows:
        return jax.tree.map(lambda leaf: leaf[0], self.draw_several(key, 1, num_rows, num_features))

    def draw_several(self, key: jax.Array, num_tasks: int, num_rows: int, num_features: int | None) -> Rows:
        tables = [dataclasses.replace(table, plain=1.0) for table in self.tables]
        order = jax.random.permutation(jax.random.fold_in(key, PLACES_KEY), num_tasks)
        places = order % len(tables)
        if self.place is not None:
            places = jnp.where(self.place < 0, places, self.place)
        return draw_places(tables, jax.random.split(key, num_tasks), places, num_rows, cast(int, num_features))

    def of(self, place: jax.Array) -> "WholeTables":
        """The family of one of the tables."""
        return dataclasses.replace(self, place=place)
