"""Families of tasks from the corpus."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base.errors import InputError
from l2p.task.rows import Rows
from meta_train.tasks.corpus.tables import LEAST_ROWS, Entry, entries
from meta_train.tasks.family import Family, TaskFamily
from meta_train.tasks.stacks import Tabular, draw_places
from meta_train.tasks.targets import Classes, Numbers

#: At most how many times as wide as a task, or as narrow, its tables are.
REACH = 2


@dataclasses.dataclass(frozen=True)
class Corpus(Family):
    """Tasks from many tables, each as likely as any other that is about as wide as the task.

    Attributes:
      parts: a family for each table and each of its targets, all alike.
      tables: name of the table of each.
    """

    parts: tuple[Tabular, ...]
    tables: tuple[str, ...]

    @property
    def max_features(self) -> float:
        return max(REACH * part.x.shape[1] for part in self.parts)

    def with_rows_apart(self, distinct: bool = False) -> "Corpus":
        return dataclasses.replace(self, parts=tuple(part.with_rows_apart(distinct) for part in self.parts))

    def draw(self, key: jax.Array, num_rows: int, num_features: int | None) -> Rows:
        return jax.tree.map(lambda leaf: leaf[0], self.draw_several(key, 1, num_rows, num_features))

    def draw_several(self, key: jax.Array, num_tasks: int, num_rows: int, num_features: int | None) -> Rows:
        if num_features is None:
            raise InputError(
                "the tables of the corpus have different numbers of columns, and the tasks of one shape need one; set "
                "num_features."
            )
        widths = np.array([part.x.shape[1] for part in self.parts])
        fitting = np.flatnonzero((widths <= REACH * num_features) & (num_features <= REACH * widths))
        if not fitting.size:
            raise InputError(
                f"no table of the corpus has from {math.ceil(num_features / REACH)} to {REACH * num_features} columns, "
                f"so tasks of {num_features} features cannot be drawn; set num_features to another width, such as 12."
            )
        names = [self.tables[place] for place in fitting]
        weights = jnp.array([1.0 / names.count(name) for name in names])
        table_key, key = jax.random.split(key)
        places = jax.random.choice(table_key, len(fitting), (num_tasks,), p=weights / weights.sum())
        parts = [self.parts[place] for place in fitting]
        return draw_places(parts, jax.random.split(key, num_tasks), places, num_rows, num_features)


def corpus(num_classes: int | None, plain: float) -> tuple[Corpus, Corpus]:
    """The families to train on and to judge by, of tables that the other has no tasks from.

    Args:
      num_classes: of their targets, the commonest ones of tables that have more; None for numbers.
      plain: the share of tasks that are a table as it is.

    Raises:
      InputError: the tables cannot be downloaded, or pandas is not installed.
    """
    train, held_out = ([entry for entry in entries() if entry.is_held_out == side] for side in (False, True))
    return _family(train, num_classes, plain), _family(held_out, num_classes, plain)


def _family(tables: list[Entry], num_classes: int | None, plain: float) -> Corpus:
    chosen = [entry for entry in tables if _has(entry, num_classes)]
    if not chosen:
        raise InputError(
            f"no table of the corpus has {num_classes} classes with enough rows, so no task can be drawn; choose fewer "
            "classes."
        )
    parts = tuple(dataclasses.replace(_part(entry, num_classes), plain=plain) for entry in chosen)
    return Corpus(parts, tuple(entry.table for entry in chosen))


def _has(entry: Entry, num_classes: int | None) -> bool:
    """Whether a table has such a target, and enough rows. One of several classes lends none for tasks of two."""
    if num_classes is None or entry.num_classes is None:
        return num_classes == entry.num_classes
    if num_classes == 2:
        return entry.num_classes == 2
    return entry.num_classes >= num_classes and int((entry.y < num_classes).sum()) >= LEAST_ROWS


def _part(entry: Entry, num_classes: int | None) -> Tabular:
    if num_classes is None:
        return Numbers(jnp.asarray(entry.x), jnp.asarray(entry.y))
    among = entry.y < num_classes
    x, y = entry.x[among], entry.y[among]
    if num_classes > 2:
        return Classes(jnp.asarray(x), jnp.asarray(y), num_classes)
    return dataclasses.replace(TaskFamily.from_table(x, y), classes=(0, 1))
