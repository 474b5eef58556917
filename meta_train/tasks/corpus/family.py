"""Families of tasks from the corpus."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base.errors import InputError
from l2p.task.rows import Rows
from meta_train.tasks.corpus.tables import Entry, entries
from meta_train.tasks.family import Family, TaskFamily
from meta_train.tasks.stacks import Tabular, draw_places
from meta_train.tasks.targets import Classes, Numbers

#: How many times as wide as a task, or as narrow, the tables are that it comes from.
REACH = 2
#: Folded into a key to draw each task's table.
TABLE_KEY = 41


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
            raise InputError("the tables of the corpus have columns of their own, and as many each; set num_features.")
        widths = np.array([part.x.shape[1] for part in self.parts])
        fit = np.flatnonzero((widths <= REACH * num_features) & (num_features <= REACH * widths))
        if not fit.size:
            raise InputError(
                f"no table of the corpus is about {num_features} columns wide; set num_features to others."
            )
        names = [self.tables[place] for place in fit]
        weights = jnp.array([1.0 / names.count(name) for name in names])
        table_key = jax.random.fold_in(key, TABLE_KEY)
        places = jax.random.choice(table_key, len(fit), (num_tasks,), p=weights / weights.sum())
        parts = [self.parts[place] for place in fit]
        return draw_places(parts, jax.random.split(key, num_tasks), places, num_rows, num_features)


def corpus(num_classes: int | None, plain: float) -> tuple[Corpus, Corpus]:
    """The families to train on and to judge by, of tables that the other has no tasks from.

    Args:
      num_classes: of their targets, the commonest ones of tables that have more; None for numbers.
      plain: the share of tasks that are a table as it is.

    Raises:
      InputError: the tables cannot be downloaded, or pandas is not installed.
    """
    train, held_out = ([entry for entry in entries() if entry.is_held_out == part] for part in (False, True))
    return _family(train, num_classes, plain), _family(held_out, num_classes, plain)


def _family(among: list[Entry], num_classes: int | None, plain: float) -> Corpus:
    chosen = [entry for entry in among if _has(entry, num_classes)]
    parts = tuple(dataclasses.replace(_part(entry, num_classes), plain=plain) for entry in chosen)
    return Corpus(parts, tuple(entry.table for entry in chosen))


def _has(entry: Entry, num_classes: int | None) -> bool:
    """Whether a table has such a target. One of several classes lends none for tasks of two."""
    if num_classes is None or entry.num_classes is None:
        return num_classes == entry.num_classes
    return entry.num_classes == 2 if num_classes == 2 else entry.num_classes >= num_classes


def _part(entry: Entry, num_classes: int | None) -> Tabular:
    if num_classes is None:
        return Numbers(jnp.asarray(entry.x), jnp.asarray(entry.y))
    among = entry.y < num_classes
    x, y = entry.x[among], entry.y[among]
    if num_classes > 2:
        return Classes(jnp.asarray(x), jnp.asarray(y), num_classes)
    return dataclasses.replace(TaskFamily.from_table(x, y), classes=(0, 1))
