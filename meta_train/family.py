"""Families of public tasks: what a protector is meta-trained on.

One is drawn from a table. A protector that has seen one table learns that table. So each task takes random rows and
columns, mixes some columns into continuous ones, flips some, predicts the table's own label, another column or a noisy
linear teacher, and adds label noise; each comes with its own budget and simulated size. Images keep their columns as
they are: a task is then a pair of classes, which may come either way round, with label noise.

The other is drawn from no table: random quadratic problems.
"""

import abc
import dataclasses
import functools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from l2p import data
from l2p.data import Kind
from l2p.errors import InputError
from l2p.models import Model
from l2p.task import Rows
from meta_train.reference import best_loss

#: A column may serve as a label if it is 1 for at least this share of rows, and 0 for at least this share.
LEAST_PREVALENCE = 0.1
#: Most columns that are mixed into one continuous column.
MOST_MIXED = 6
#: The source of random quadratic problems.
QUADRATICS = "random_quadratics"
#: Least and most length of a quadratic problem's optimum, standard deviation of the noise on its target, and spread of
#: a feature, 1 being all of [0, 1].
OPTIMUM_LENGTH, TARGET_NOISE, SPREAD = (0.5, 2.0), (0.02, 0.5), (0.25, 1.0)


@struct.dataclass
class TaskBatch:
    """Tasks side by side.

    Attributes:
      rows: Rows with leading axis [B], masks 1.
      log_signal: f32[B], log(mu N) of the task's budget and simulated size.
      best_loss: f32[B], mean loss of the non-private minimiser.
    """

    rows: Rows
    log_signal: jax.Array
    best_loss: jax.Array


class Family(abc.ABC):
    """Tasks, each with a budget and a simulated size of its own."""

    @abc.abstractmethod
    def draw(self, key: jax.Array, num_rows: int, num_features: int | None) -> Rows:
        """One task; without `num_features`, with every column of its table as it is."""

    def sample(
        self, key: jax.Array, model: Model, num_tasks: int, num_rows: int, num_features: int | None, log_signal
    ) -> TaskBatch:
        """Draw `num_tasks` tasks; their log(mu N) are stratified over the range `log_signal`, lowest first.

        Raises:
          InputError: the family has no tasks of so many features.
        """
        keys = jax.random.split(jax.random.fold_in(key, 0), num_tasks)
        rows = jax.vmap(lambda key: self.draw(key, num_rows, num_features))(keys)
        low, high = log_signal
        jitter = jax.random.uniform(jax.random.fold_in(key, 1), (num_tasks,))
        signal = low + (high - low) * (jnp.arange(num_tasks) + jitter) / num_tasks

        return TaskBatch(rows, signal, jax.vmap(functools.partial(best_loss, model))(rows))


@dataclasses.dataclass(frozen=True)
class TaskFamily(Family):
    """Tasks from a table of features in [0, 1].

    Attributes:
      x: f32[n, c].
      y: f32[n], the table's own label, 0 or 1; classes, where tasks are pairs of them.
      label_columns: i32[l], columns that may serve as labels; a table without any (l = 0) only lends its own label
        and teachers.
      classes: that tasks with the table's own columns tell apart, two at a time.
    """

    x: jax.Array
    y: jax.Array
    label_columns: jax.Array
    classes: tuple[int, ...] = (0, 1)

    @classmethod
    def from_table(cls, x: np.ndarray, y: np.ndarray) -> "TaskFamily":
        """A family from x f32[n, c] and y f32[n]."""
        share = x.mean(0)
        binary = np.isin(x, (0.0, 1.0)).all(0)
        usable = binary & (share >= LEAST_PREVALENCE) & (share <= 1 - LEAST_PREVALENCE)
        classes = tuple(map(int, np.unique(y)))
        return cls(jnp.asarray(x), jnp.asarray(y), jnp.asarray(np.flatnonzero(usable), jnp.int32), classes)

    def draw(self, key: jax.Array, num_rows: int, num_features: int | None) -> Rows:
        if len(self.classes) != 2 and num_features is not None:
            raise InputError(
                f"tasks with drawn columns come from binary tables, and this one has {len(self.classes)} classes; set "
                "num_features to null for tasks with its own columns, two classes at a time."
            )
        if num_features is not None and num_features > self.x.shape[1]:
            raise InputError(
                f"tasks of {num_features} features cannot be drawn from a table of {self.x.shape[1]} columns; set "
                "num_features to smaller counts, or to null for the table's own columns."
            )
        return self._pair(key, num_rows) if num_features is None else self._task(key, num_rows, num_features)

    def _task(self, key: jax.Array, num_rows: int, num_features: int) -> Rows:
        keys = iter(jax.random.split(key, 12))
        index = jax.random.randint(next(keys), (num_rows,), 0, self.x.shape[0])
        table, label = self.x[index], self.y[index]
        candidates, kinds = self.label_columns, jnp.array([0.4, 0.3, 0.3])
        if candidates.shape[0] == 0:
            candidates, kinds = jnp.zeros(1, jnp.int32), jnp.array([0.6, 0.0, 0.4])
        column = jax.random.choice(next(keys), candidates)
        kind = jax.random.choice(next(keys), 3, p=kinds)
        label = jnp.where(kind == 1, table[:, column], label)
        table = jnp.where(kind == 1, table.at[:, column].set(0.0), table)

        x = table @ self._columns(next(keys), next(keys), num_features)
        flip_rate = jnp.maximum(jax.random.uniform(next(keys), minval=-0.3, maxval=0.3), 0.0)
        flip = jax.random.bernoulli(next(keys), flip_rate, (1, num_features))
        x = jnp.where(flip, 1.0 - x, x)

        weights = jax.random.normal(next(keys), (num_features,)) * jax.random.exponential(next(keys))
        logits = (x - x.mean(0, keepdims=True)) @ weights + 0.5 * jax.random.normal(next(keys))
        teacher = jax.random.bernoulli(next(keys), jax.nn.sigmoid(2.0 * logits))
        label = jnp.where(kind == 2, teacher, label)

        return _with_label_noise(next(keys), x, label)

    def _pair(self, key: jax.Array, num_rows: int) -> Rows:
        """Rows of two classes, the first of them labelled 0."""
        keys = jax.random.split(key, 3)
        first, second = jax.random.choice(keys[0], jnp.array(self.classes, jnp.float32), (2,), replace=False)
        among = ((self.y == first) | (self.y == second)).astype(jnp.float32)
        index = jax.random.choice(keys[1], self.x.shape[0], (num_rows,), p=among / among.sum())
        return _with_label_noise(keys[2], self.x[index], (self.y[index] == second).astype(jnp.float32))

    def _columns(self, key: jax.Array, mix_key: jax.Array, num_features: int) -> jax.Array:
        """f32[c, d]: each new column is one old column, or a convex mixture of a few, so that it stays in [0, 1]."""
        num_columns = self.x.shape[1]
        order = jax.random.permutation(key, num_columns)[:num_features]
        single = jax.nn.one_hot(order, num_columns).T
        share_key, pick_key, weight_key, which_key = jax.random.split(mix_key, 4)
        picked = jax.random.randint(pick_key, (MOST_MIXED, num_features), 0, num_columns)
        weights = jax.random.exponential(weight_key, (MOST_MIXED, num_features))
        weights = weights / weights.sum(0, keepdims=True)
        mixed = jnp.einsum("mdc,md->cd", jax.nn.one_hot(picked, num_columns), weights)
        share = jnp.maximum(jax.random.uniform(share_key, minval=-0.5, maxval=0.6), 0.0)
        return jnp.where(jax.random.bernoulli(which_key, share, (1, num_features)), mixed, single)


def _with_label_noise(key: jax.Array, x: jax.Array, label: jax.Array) -> Rows:
    """Rows whose labels f32[n], 0 or 1, were flipped at a random rate; at none in half of all tasks."""
    noise_key, rate_key = jax.random.split(key)
    rate = jnp.maximum(jax.random.uniform(rate_key, minval=-0.2, maxval=0.2), 0.0)
    flipped = jax.random.bernoulli(noise_key, rate, label.shape)
    return Rows(x, jnp.where(flipped, 1.0 - label, label).astype(jnp.float32), jnp.ones(label.shape[0], jnp.float32))


@dataclasses.dataclass(frozen=True)
class Quadratics(Family):
    """Random quadratic problems (Andrychowicz et al. 2016), each with an optimum of its own.

    Features are uniform around 1/2, each with a spread of its own, so that curvature differs between coordinates by a
    factor of up to 16. The target is (2 x - 1) . w plus normal noise; w has a random direction and length.

    Attributes:
      stream: problems of two families with different numbers have nothing in common but their distribution.
    """

    stream: int

    def draw(self, key: jax.Array, num_rows: int, num_features: int | None) -> Rows:
        if num_features is None:
            raise InputError(f"{QUADRATICS} come from no table with columns of its own; set num_features to counts.")
        keys = jax.random.split(jax.random.fold_in(key, self.stream), 6)
        spread = jax.random.uniform(keys[0], (num_features,), minval=SPREAD[0], maxval=SPREAD[1])
        lines = spread[None, :] * jax.random.uniform(keys[1], (num_rows, num_features), minval=-1.0, maxval=1.0)
        direction = jax.random.normal(keys[2], (num_features,))
        optimum = _between(keys[3], OPTIMUM_LENGTH) * direction / jnp.linalg.norm(direction)
        noise = _between(keys[4], TARGET_NOISE) * jax.random.normal(keys[5], (num_rows,))
        return Rows(0.5 * (1.0 + lines), lines @ optimum + noise, jnp.ones(num_rows, jnp.float32))


def _between(key: jax.Array, ends: tuple[float, float]) -> jax.Array:
    """f32[] between the ends, its logarithm uniform."""
    return jnp.exp(jax.random.uniform(key, minval=math.log(ends[0]), maxval=math.log(ends[1])))


def kind_of(source: str) -> Kind:
    """What targets a source's tasks have: two classes, or numbers.

    >>> kind_of("adult"), kind_of(QUADRATICS)
    ('binary', 'regression')
    """
    return "regression" if source == QUADRATICS else "binary"


def families(source: str) -> tuple[Family, Family]:
    """The family to meta-train on and one of held-out tasks: from 80 % and 20 % of a public table.

    Args:
      source: a binary data set's name, or `mnist:rest:3,5` (or `digits:...`): all digits but those; or `QUADRATICS`,
        which are drawn anew for either.
    """
    if source == QUADRATICS:
        return Quadratics(0), Quadratics(1)
    x, y = _load(source)
    order = np.random.default_rng(0).permutation(x.shape[0])
    cut = int(0.8 * order.size)
    train, held_out = (TaskFamily.from_table(x[part], y[part]) for part in (order[:cut], order[cut:]))
    return train, held_out


def _load(source: str) -> tuple[np.ndarray, np.ndarray]:
    """x f32[n, c], and y f32[n]: 0 and 1, or the digits that are left."""
    rest = re.fullmatch(r"(mnist|digits):rest:([\d,]+)", source)
    dataset = data.load(rest[1] if rest else source)
    if rest:
        kept = ~np.isin(dataset.y, [int(digit) for digit in rest[2].split(",") if digit])
        return dataset.x[kept], dataset.y[kept]
    if dataset.kind != "binary":
        raise InputError(f"tasks are drawn from binary tables; {source} is {dataset.kind}, so name another source.")
    return dataset.x, dataset.y
