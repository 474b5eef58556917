"""Tasks with many classes or with numbers as targets, from a table of that kind."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base.errors import InputError
from l2p.task.rows import Rows
from meta_train.tasks.drawing import draw_columns, is_from_table, is_plain, most_features, refuse_more, with_class_noise
from meta_train.tasks.family import Family
from meta_train.tasks.spans import Drawn, Span, choose_rows, columns_of, draw_rows


@dataclasses.dataclass(frozen=True)
class Classes(Family):
    """Classes of a table, randomly relabelled in each task, with label noise.

    A task with fewer classes than the table uses the rows of some of them. For more classes, each of the table's is
    split into several, by which of several random directions a row is most aligned with.

    Attributes:
      x: f32[n, c].
      y: f32[n], classes 0 to K - 1.
      num_classes: K.
      parts: number of classes into which each of these is split.
      num_chosen: number of the table's classes in a task, drawn at random; None for all.
      span: the part of x and y that tasks come from, if they hold several tables; None for all.
      plain: the share of tasks that are the table as it is, as in `TaskFamily`.
      apart, distinct: as in `TaskFamily`.
    """

    x: jax.Array
    y: jax.Array
    num_classes: int
    parts: int = 1
    num_chosen: int | None = None
    span: Span | None = None
    plain: float = 0.0
    apart: bool = False
    distinct: bool = False

    @property
    def max_features(self) -> float:
        return most_features(self.x.shape[1], self.plain)

    def with_rows_apart(self, distinct: bool = False) -> "Classes":
        return dataclasses.replace(self, apart=True, distinct=distinct)

    def halves(self) -> tuple["Classes", "Classes"]:
        cut = self.x.shape[0] // 2
        first, second = (
            dataclasses.replace(self, x=self.x[part], y=self.y[part]) for part in (slice(cut), slice(cut, None))
        )
        return first, second

    def with_num_classes(self, num_classes: int | None) -> "Classes":
        if num_classes is None:
            return self
        if num_classes < self.num_classes:
            return dataclasses.replace(self, num_chosen=num_classes)
        if num_classes % self.num_classes:
            raise InputError(
                f"{num_classes} classes cannot be made from {self.num_classes}, each split into equally many parts; "
                f"set num_classes to fewer, or to multiples of {self.num_classes}."
            )
        return dataclasses.replace(self, parts=num_classes // self.num_classes)

    def draw(self, key: jax.Array, num_rows: int, num_features: int | None) -> Rows:
        refuse_more(num_features, self.x.shape[1], self.plain)
        keys = jax.random.split(key, 7)
        names = jax.random.permutation(keys[2], self.num_classes * self.parts)
        index, mask = self._rows(keys[0], names, num_rows)
        plain = is_plain(key, self.plain)
        x = features_of(self.x[index], keys[1], num_features, columns_of(self.x, self.span), plain)
        label = names[self.y[index].astype(jnp.int32) * self.parts + self._part(keys[6], x)]
        return with_class_noise(keys[3:6], x, label, self.num_chosen or len(names), plain).replace(mask=mask)

    def _rows(self, key: jax.Array, names: jax.Array, num_rows: int) -> Drawn:
        """Rows of the table, from the task's classes: those with the lowest names."""
        if self.num_chosen is None:
            return draw_rows(key, num_rows, self.x, self.span, self.apart, self.distinct)
        among = names[self.y.astype(jnp.int32)] < self.num_chosen
        return choose_rows(key, num_rows, self.x, self.span, among, self.apart, self.distinct)

    def _part(self, key: jax.Array, x: jax.Array) -> jax.Array:
        """The part i32[n] of its class of each row of features f32[n, d]."""
        directions = jax.random.normal(key, (x.shape[1], self.parts))
        return jnp.argmax((x - x.mean(0, keepdims=True)) @ directions, axis=1)


@dataclasses.dataclass(frozen=True)
class Numbers(Family):
    """Targets in [0, 1]: the table's own, another column, or the output of a noisy linear teacher.

    Attributes:
      x: f32[n, c].
      y: f32[n], in [0, 1].
      span: the part of x and y that tasks come from, if they hold several tables; None for all.
      plain: the share of tasks that are the table as it is, as in `TaskFamily`.
      apart, distinct: as in `TaskFamily`.
    """

    x: jax.Array
    y: jax.Array
    span: Span | None = None
    plain: float = 0.0
    apart: bool = False
    distinct: bool = False

    @property
    def max_features(self) -> float:
        return most_features(self.x.shape[1], self.plain)

    def with_rows_apart(self, distinct: bool = False) -> "Numbers":
        return dataclasses.replace(self, apart=True, distinct=distinct)

    def draw(self, key: jax.Array, num_rows: int, num_features: int | None) -> Rows:
        refuse_more(num_features, self.x.shape[1], self.plain)
        keys = jax.random.split(key, 9)
        index, mask = draw_rows(keys[0], num_rows, self.x, self.span, self.apart, self.distinct)
        columns = columns_of(self.x, self.span)
        table, plain = self.x[index], is_plain(key, self.plain)
        kind = jnp.where(plain, 0, jax.random.choice(keys[1], 3, p=jnp.array([0.5, 0.2, 0.3])))
        column = jax.random.randint(keys[2], (), 0, columns)
        # A column that is the target must not be a feature.
        target = jnp.where(kind == 1, table[:, column], self.y[index])
        table = jnp.where(kind == 1, table.at[:, column].set(0.5), table)
        x = features_of(table, keys[3], num_features, columns, plain)
        weights = jax.random.normal(keys[4], (x.shape[1],))
        output = (x - x.mean(0, keepdims=True)) @ weights
        spread = jax.random.uniform(keys[5], minval=0.05, maxval=0.3)
        output = 0.5 + spread * output / jnp.maximum(output.std(), 1e-6)
        target = jnp.where(kind == 2, output, target)
        noise = jnp.where(plain, 0.0, jnp.maximum(jax.random.uniform(keys[6], minval=-0.1, maxval=0.2), 0.0))
        target = jnp.clip(target + noise * jax.random.normal(keys[7], (num_rows,)), 0.0, 1.0)
        return Rows(x, target, mask)


def features_of(
    table: jax.Array, key: jax.Array, num_features: int | None, among: int | jax.Array, plain: jax.Array
) -> jax.Array:
    """A table's columns as they are, or `num_features` drawn from the first `among`, some mixed and some flipped unless
    the task is `plain`."""
    if num_features is None:
        return table
    column_key, mix_key, rate_key, flip_key = jax.random.split(key, 4)
    x = table @ draw_columns(column_key, mix_key, table.shape[1], num_features, among, plain)
    rate = jnp.where(plain, 0.0, jnp.maximum(jax.random.uniform(rate_key, minval=-0.3, maxval=0.3), 0.0))
    flip = jax.random.bernoulli(flip_key, rate, (1, num_features))
    return jnp.where(flip & is_from_table(num_features, among), 1.0 - x, x)


def from_table(x: np.ndarray, y: np.ndarray, num_classes: int | None) -> Classes | Numbers:
    """A family of tasks with `num_classes` classes, or with numbers where this is None."""
    table, target = jnp.asarray(x), jnp.asarray(y)
    return Numbers(table, target) if num_classes is None else Classes(table, target, num_classes)
