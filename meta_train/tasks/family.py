"""Families of public tasks, on which protectors are meta-trained.

`TaskFamily` draws tasks from a table. A protector trained on a single table would overfit it. So each task takes random
rows and columns, mixes some columns into continuous ones, flips some, predicts the table's own label, another column or
a noisy linear teacher, and adds label noise; each comes with its own budget and simulated size. Images keep their own
columns: a task is then a pair of classes in either order, with label noise.

Other families need no table: `quadratics.py`, `synthetic.py`. `sources.py` finds a family by its name.
"""

import abc
import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base import struct
from l2p.base.errors import InputError
from l2p.models import Model
from l2p.task.rows import Rows
from meta_train.tasks.drawing import (
    between,
    draw_columns,
    is_from_table,
    is_plain,
    most_features,
    refuse_more,
    with_label_noise,
)
from meta_train.tasks.public_part import with_public_part
from meta_train.tasks.reference import RIDGE, best_loss, best_losses
from meta_train.tasks.spans import Span, choose_rows, columns_of, draw_rows

#: A column may serve as a label if it is 1 for at least this share of rows, and 0 for at least this share.
MIN_PREVALENCE = 0.1
#: Shares of tasks that predict the table's own label, another column and a teacher; and where no column may be a label.
KINDS, KINDS_WITHOUT_COLUMNS = (0.4, 0.3, 0.3), (0.6, 0.0, 0.4)
#: Number of rows of a large table that one stands for: so many that drawing them moves the minimum by next to nothing.
COPIES = 1024.0


@struct.dataclass
class TaskBatch:
    """A batch of tasks, stacked.

    Attributes:
      rows: Rows with leading axis [B]; masks are 0 for rows that a task does not have.
      log_signal: f32[B], log(mu N) of the task's budget and simulated size.
      best_loss: f32[B], mean loss of the non-private minimiser.
      scored: other rows of the same tasks, on which runs are scored and `best_loss` is taken; None to score runs on the
        rows that they read.
      copies: f32[B], how many rows of the simulated table each row stands for; None for one. Runs that are scored on
        the rows that they read have all there are, as on a large table.
      public: rows of the same tasks that cost nothing, none of which is among `rows`; None for no tasks with any.
    """

    rows: Rows
    log_signal: jax.Array
    best_loss: jax.Array
    scored: Rows | None = None
    copies: jax.Array | None = None
    public: Rows | None = None


class Family(abc.ABC):
    """A distribution of tasks, each with its own budget and simulated size."""

    @abc.abstractmethod
    def draw(self, key: jax.Array, num_rows: int, num_features: int | None) -> Rows:
        """One task; without `num_features`, with its table's own columns."""

    def draw_several(self, key: jax.Array, num_tasks: int, num_rows: int, num_features: int | None) -> Rows:
        """Independent tasks: rows with a leading axis [num_tasks]."""
        return jax.vmap(lambda key: self.draw(key, num_rows, num_features))(jax.random.split(key, num_tasks))

    def draw_both(
        self, key: jax.Array, num_tasks: int, num_rows: int, num_features: int | None
    ) -> tuple[Rows, Rows | None]:
        """`draw_several`, and other rows of the same tasks; None to score runs on the rows they read."""
        return self.draw_several(key, num_tasks, num_rows, num_features), None

    @property
    def max_features(self) -> float:
        """The largest number of features that a task can have."""
        return math.inf

    def with_num_classes(self, num_classes: int | None) -> "Family":
        """The family of tasks with `num_classes` classes; None for its own number.

        Raises:
          InputError: the number of classes of its tasks is fixed.
        """
        if num_classes is None:
            return self
        raise InputError(
            f"these tasks cannot be drawn with {num_classes} classes; leave num_classes out, or take tasks of "
            "several classes from one table, or synthetic ones."
        )

    def with_rows_apart(self, distinct: bool = False) -> "Family":
        """The family of tasks whose last half of rows are other rows of the table than the first half; with `distinct`,
        each counts once. Without a table all rows of a task differ anyway."""
        return self

    def halves(self) -> tuple["Family", "Family"]:
        """Two families that make the same tasks from a key, with disjoint rows: to train and to test on.

        Raises:
          InputError: the tasks have no classes, which accuracy needs.
        """
        raise InputError("these tasks have no classes, so there is no accuracy to measure.")

    def sample(
        self,
        key: jax.Array,
        model: Model,
        num_tasks: int,
        num_rows: int,
        num_features: int | None,
        log_signal: tuple[float | jax.Array, float],
        ridge: float = RIDGE,
        signal_power: float = 1.0,
        fresh_shares: tuple[float, float] = (1.0, 1.0),
        least_rows: float = 1.0,
        public_share: float = 0.0,
        public_shift: float = 0.0,
    ) -> TaskBatch:
        """Draw `num_tasks` tasks; their log(mu N) are stratified over the range `log_signal`, lowest first: at
        u^signal_power of it for u spread evenly over [0, 1]. `ridge` is that of the reference solution. `fresh_shares`
        are the shares of tasks, at the ends of the range, that are scored on other rows, where the family has them;
        these have from `least_rows` of the rows up to all of them. Up to `public_share` of a task's rows are public,
        and differ from the others by up to `public_shift` (`public_part.py`), where runs are scored on other rows.

        Raises:
          InputError: the family has no tasks with that many features.
        """
        rows, scored = self.draw_both(jax.random.fold_in(key, 0), num_tasks, num_rows, num_features)
        low, high = log_signal
        jitter = jax.random.uniform(jax.random.fold_in(key, 1), (num_tasks,))
        signal = low + (high - low) * ((jnp.arange(num_tasks) + jitter) / num_tasks) ** signal_power
        if scored is None:
            return TaskBatch(rows, signal, jax.vmap(functools.partial(best_loss, model, ridge=ridge))(rows))
        share = jnp.interp(signal, jnp.array([low, high]), jnp.array(fresh_shares))
        fresh = jax.random.bernoulli(jax.random.fold_in(key, 2), share)
        if least_rows < 1.0:
            shares = jax.vmap(lambda key: between(key, (least_rows, 1.0)))(
                jax.random.split(jax.random.fold_in(key, 3), num_tasks)
            )
            counted = jnp.arange(num_rows)[None, :] < num_rows * shares[:, None]
            rows = rows.replace(mask=jnp.where(fresh[:, None] & ~counted, 0.0, rows.mask))
        on_read, on_scored = jax.vmap(functools.partial(best_losses, model, ridge=ridge))(rows, scored)
        choose = jax.vmap(lambda fresh, scored, read: jax.tree.map(functools.partial(jnp.where, fresh), scored, read))
        best = jnp.where(fresh, on_scored, on_read)
        scored, public = choose(fresh, scored, rows), None
        if public_share:
            rows, public = with_public_part(jax.random.fold_in(key, 4), rows, public_share, public_shift)
        return TaskBatch(rows, signal, best, scored, jnp.where(fresh, 1.0, COPIES), public)


@dataclasses.dataclass(frozen=True)
class TaskFamily(Family):
    """Tasks from a table of features in [0, 1].

    Attributes:
      x: f32[n, c].
      y: f32[n], the table's own label, 0 or 1; classes, where tasks are pairs of them.
      label_columns: i32[l], columns that may serve as labels; without any (l = 0), labels are the table's own or a
        teacher's.
      classes: of the table's own label. Tasks with the table's own columns classify two of them; those with drawn
        columns, if there are more than two classes, some of them against the rest.
      span: the part of x and y that tasks with drawn columns come from, if they hold several tables; None for all.
      plain: the share of such tasks that are the table as it is: its own label without noise, and all its columns, or
        as many as fit, neither mixed nor flipped. Tasks may then be up to twice as wide as the table.
      apart: whether the last half of a task's rows are other rows of the table than the first half.
      distinct: whether rows that are drawn twice within a half count once.
    """

    x: jax.Array
    y: jax.Array
    label_columns: jax.Array
    classes: tuple[int, ...] = (0, 1)
    span: Span | None = None
    plain: float = 0.0
    apart: bool = False
    distinct: bool = False

    @classmethod
    def from_table(cls, x: np.ndarray, y: np.ndarray) -> "TaskFamily":
        """A family from x f32[n, c] and y f32[n]."""
        share = x.mean(0)
        binary = np.isin(x, (0.0, 1.0)).all(0)
        usable = binary & (share >= MIN_PREVALENCE) & (share <= 1 - MIN_PREVALENCE)
        classes = tuple(map(int, np.unique(y)))
        return cls(jnp.asarray(x), jnp.asarray(y), jnp.asarray(np.flatnonzero(usable), jnp.int32), classes)

    @property
    def max_features(self) -> float:
        return most_features(self.x.shape[1], self.plain)

    def draw(self, key: jax.Array, num_rows: int, num_features: int | None) -> Rows:
        refuse_more(num_features, self.x.shape[1], self.plain)
        return self._pair(key, num_rows) if num_features is None else self._task(key, num_rows, num_features)

    def with_rows_apart(self, distinct: bool = False) -> "TaskFamily":
        return dataclasses.replace(self, apart=True, distinct=distinct)

    def halves(self) -> tuple["TaskFamily", "TaskFamily"]:
        row = self.x.shape[0] // 2
        # A task's columns, label, teacher and noise rates do not depend on its rows.
        first, second = (
            dataclasses.replace(self, x=self.x[part], y=self.y[part]) for part in (slice(row), slice(row, None))
        )
        return first, second

    def _task(self, key: jax.Array, num_rows: int, num_features: int) -> Rows:
        keys = iter(jax.random.split(key, 12))
        index, mask = draw_rows(next(keys), num_rows, self.x, self.span, self.apart, self.distinct)
        table, label = self.x[index], self.y[index]
        if len(self.classes) != 2:
            label = self._grouped(jax.random.fold_in(key, 0), label)
        column, kinds = self._label_column(next(keys))
        plain = is_plain(key, self.plain)
        kind = jnp.where(plain, 0, jax.random.choice(next(keys), 3, p=kinds))
        label = jnp.where(kind == 1, table[:, column], label)
        table = jnp.where(kind == 1, table.at[:, column].set(0.0), table)

        among = columns_of(self.x, self.span)
        x = table @ draw_columns(next(keys), next(keys), table.shape[1], num_features, among, plain)
        flip_rate = jnp.maximum(jax.random.uniform(next(keys), minval=-0.3, maxval=0.3), 0.0)
        flip_rate = jnp.where(plain, 0.0, flip_rate)
        flip = jax.random.bernoulli(next(keys), flip_rate, (1, num_features))
        x = jnp.where(flip & is_from_table(num_features, among), 1.0 - x, x)

        weights = jax.random.normal(next(keys), (num_features,)) * jax.random.exponential(next(keys))
        logits = (x - x.mean(0, keepdims=True)) @ weights + 0.5 * jax.random.normal(next(keys))
        teacher = jax.random.bernoulli(next(keys), jax.nn.sigmoid(2.0 * logits))
        label = jnp.where(kind == 2, teacher, label)

        return with_label_noise(next(keys), x, label, plain).replace(mask=mask)

    def _label_column(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        """A column i32[] that may serve as a label, and the shares f32[3] of the kinds of labels."""
        if self.span is not None:
            place = jax.random.randint(key, (), 0, jnp.maximum(self.span.labels, 1))
            kinds = jnp.where(self.span.labels > 0, jnp.array(KINDS), jnp.array(KINDS_WITHOUT_COLUMNS))
            return self.label_columns[place], kinds
        if self.label_columns.shape[0] == 0:
            return jax.random.choice(key, jnp.zeros(1, jnp.int32)), jnp.array(KINDS_WITHOUT_COLUMNS)
        return jax.random.choice(key, self.label_columns), jnp.array(KINDS)

    def _grouped(self, key: jax.Array, label: jax.Array) -> jax.Array:
        """Classes f32[n] as 0 and 1: a random part of the classes against the rest."""
        size_key, order_key = jax.random.split(key)
        size = jax.random.randint(size_key, (), 1, len(self.classes))
        order = jax.random.permutation(order_key, jnp.array(self.classes, jnp.float32))
        chosen = jnp.where(jnp.arange(len(self.classes)) < size, order, jnp.nan)
        return (label[:, None] == chosen[None, :]).any(1).astype(jnp.float32)

    def with_columns(self, columns: np.ndarray) -> "TaskFamily":
        """The family of the same rows with columns i64[k]; labels come from the table's own."""
        return dataclasses.replace(self, x=self.x[:, columns], label_columns=jnp.zeros(0, jnp.int32))

    def _pair(self, key: jax.Array, num_rows: int) -> Rows:
        """Rows of two classes, the first of them labelled 0."""
        keys = jax.random.split(key, 3)
        first, second = jax.random.choice(keys[0], jnp.array(self.classes, jnp.float32), (2,), replace=False)
        among = (self.y == first) | (self.y == second)
        index, mask = choose_rows(keys[1], num_rows, self.x, self.span, among, self.apart, self.distinct)
        label = (self.y[index] == second).astype(jnp.float32)
        return with_label_noise(keys[2], self.x[index], label).replace(mask=mask)
