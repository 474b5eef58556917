"""A family of public tasks drawn from one table: what a protector is meta-trained on.

A protector that has seen one table learns that table. So each task takes random rows and columns, mixes some columns
into continuous ones, flips some, predicts the table's own label, another column or a noisy linear teacher, and adds
label noise; each comes with its own budget and simulated size.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from l2p import data
from l2p.errors import InputError
from l2p.models import GeneralizedLinear
from l2p.queries.solve import newton
from l2p.task import Rows

#: Ridge of the reference solution: a task with separable labels has no finite minimiser.
REFERENCE_RIDGE = 1e-3
#: A column may serve as a label if it is 1 for at least this share of rows, and 0 for at least this share.
LEAST_PREVALENCE = 0.1
#: Most columns that are mixed into one continuous column.
MOST_MIXED = 6


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


@dataclasses.dataclass(frozen=True)
class TaskFamily:
    """Tasks from a table of features in [0, 1].

    Attributes:
      x: f32[n, c].
      y: f32[n], the table's own label, 0 or 1.
      label_columns: i32[l], columns that may serve as labels; a table without any (l = 0) only lends its own label
        and teachers.
    """

    x: jax.Array
    y: jax.Array
    label_columns: jax.Array

    @classmethod
    def from_table(cls, x: np.ndarray, y: np.ndarray) -> "TaskFamily":
        """A family from x f32[n, c] and y f32[n]."""
        share = x.mean(0)
        binary = np.isin(x, (0.0, 1.0)).all(0)
        usable = binary & (share >= LEAST_PREVALENCE) & (share <= 1 - LEAST_PREVALENCE)
        return cls(jnp.asarray(x), jnp.asarray(y), jnp.asarray(np.flatnonzero(usable), jnp.int32))

    def sample(
        self, key: jax.Array, model: GeneralizedLinear, num_tasks: int, num_rows: int, num_features: int, log_signal
    ) -> TaskBatch:
        """Draw `num_tasks` tasks; their log(mu N) are stratified over the range `log_signal`, lowest first."""
        keys = jax.random.split(jax.random.fold_in(key, 0), num_tasks)
        rows = jax.vmap(lambda key: self._task(key, num_rows, num_features))(keys)
        low, high = log_signal
        jitter = jax.random.uniform(jax.random.fold_in(key, 1), (num_tasks,))
        signal = low + (high - low) * (jnp.arange(num_tasks) + jitter) / num_tasks

        def best(rows: Rows) -> jax.Array:
            solution = newton(model, model.init(num_features), rows, 10, REFERENCE_RIDGE)
            return jax.vmap(model.loss, (None, 0, 0))(solution, rows.x, rows.y).mean()

        return TaskBatch(rows, signal, jax.vmap(best)(rows))

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

        noise_key, rate_key = jax.random.split(next(keys))
        rate = jnp.maximum(jax.random.uniform(rate_key, minval=-0.2, maxval=0.2), 0.0)
        flipped = jax.random.bernoulli(noise_key, rate, (num_rows,))
        return Rows(x, jnp.where(flipped, 1.0 - label, label).astype(jnp.float32), jnp.ones(num_rows, jnp.float32))

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


def families(source: str) -> tuple[TaskFamily, TaskFamily]:
    """The family to meta-train on and one from held-out rows of the same public table: 80 % and 20 % of it."""
    dataset = data.load(source)
    if dataset.kind != "binary":
        raise InputError(f"tasks are drawn from binary tables; {source} is {dataset.kind}, so name another source.")
    order = np.random.default_rng(0).permutation(dataset.x.shape[0])
    cut = int(0.8 * order.size)
    parts = order[:cut], order[cut:]
    train, held_out = (TaskFamily.from_table(dataset.x[part], dataset.y[part]) for part in parts)
    return train, held_out
