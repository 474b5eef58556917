"""Tasks of many classes and tasks of numbers, from a table of either kind."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from l2p.errors import InputError
from l2p.task import Rows
from meta_train.family import Family, draw_columns, with_class_noise


@dataclasses.dataclass(frozen=True)
class Classes(Family):
    """All classes of a table, under names of their own in each task, and label noise.

    Attributes:
      x: f32[n, c].
      y: f32[n], classes 0 to K - 1.
      num_classes: K.
    """

    x: jax.Array
    y: jax.Array
    num_classes: int

    @property
    def most_features(self) -> float:
        return self.x.shape[1]

    def draw(self, key: jax.Array, num_rows: int, num_features: int | None) -> Rows:
        keys = jax.random.split(key, 7)
        index = jax.random.randint(keys[0], (num_rows,), 0, self.x.shape[0])
        x = features_of(self.x[index], keys[1], num_features)
        label = jax.random.permutation(keys[2], self.num_classes)[self.y[index].astype(jnp.int32)]
        return with_class_noise(keys[3:6], x, label, self.num_classes)


@dataclasses.dataclass(frozen=True)
class Numbers(Family):
    """Targets in [0, 1]: the table's own, another column, or what a noisy linear teacher says of the columns.

    Attributes:
      x: f32[n, c].
      y: f32[n], in [0, 1].
    """

    x: jax.Array
    y: jax.Array

    @property
    def most_features(self) -> float:
        return self.x.shape[1]

    def draw(self, key: jax.Array, num_rows: int, num_features: int | None) -> Rows:
        keys = jax.random.split(key, 9)
        index = jax.random.randint(keys[0], (num_rows,), 0, self.x.shape[0])
        table = self.x[index]
        kind = jax.random.choice(keys[1], 3, p=jnp.array([0.5, 0.2, 0.3]))
        column = jax.random.randint(keys[2], (), 0, table.shape[1])
        # A column that is the target tells nothing else.
        target = jnp.where(kind == 1, table[:, column], self.y[index])
        table = jnp.where(kind == 1, table.at[:, column].set(0.5), table)
        x = features_of(table, keys[3], num_features)
        weights = jax.random.normal(keys[4], (x.shape[1],))
        said = (x - x.mean(0, keepdims=True)) @ weights
        spread = jax.random.uniform(keys[5], minval=0.05, maxval=0.3)
        said = 0.5 + spread * said / jnp.maximum(said.std(), 1e-6)
        target = jnp.where(kind == 2, said, target)
        noise = jnp.maximum(jax.random.uniform(keys[6], minval=-0.1, maxval=0.2), 0.0)
        target = jnp.clip(target + noise * jax.random.normal(keys[7], (num_rows,)), 0.0, 1.0)
        return Rows(x, target, jnp.ones(num_rows, jnp.float32))


def features_of(table: jax.Array, key: jax.Array, num_features: int | None) -> jax.Array:
    """A table's columns as they are, or `num_features` drawn from them, some mixed and some flipped: f32[n, d].

    Raises:
      InputError: the table has fewer columns.
    """
    if num_features is None:
        return table
    if num_features > table.shape[1]:
        raise InputError(
            f"tasks of {num_features} features cannot be drawn from a table of {table.shape[1]} columns; set "
            "num_features to smaller counts, or to null for the table's own columns."
        )
    column_key, mix_key, rate_key, flip_key = jax.random.split(key, 4)
    x = table @ draw_columns(column_key, mix_key, table.shape[1], num_features)
    rate = jnp.maximum(jax.random.uniform(rate_key, minval=-0.3, maxval=0.3), 0.0)
    return jnp.where(jax.random.bernoulli(flip_key, rate, (1, num_features)), 1.0 - x, x)


def from_table(x: np.ndarray, y: np.ndarray, num_classes: int | None) -> Classes | Numbers:
    """A family of tasks with so many classes, or of numbers where there are none."""
    table, target = jnp.asarray(x), jnp.asarray(y)
    return Numbers(table, target) if num_classes is None else Classes(table, target, num_classes)
