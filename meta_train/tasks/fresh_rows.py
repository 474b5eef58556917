"""Tasks whose runs are scored on rows that they did not read."""

import dataclasses
from collections.abc import Collection

import jax

from l2p.base.errors import InputError
from l2p.task.rows import Rows
from meta_train.tasks.family import Family, TaskFamily
from meta_train.tasks.spans import FOLDS


@dataclasses.dataclass(frozen=True)
class FreshRows(Family):
    """Tasks of one family, scored on rows of another.

    With few rows a long run overfits them, and scoring it on the rows that it read would reward that.

    Attributes:
      read: the family whose rows runs read.
      scored: the family of the same tasks on whose rows they are scored; None for one of `FOLDS` folds of `read`,
        another for each batch of tasks, which they then do not read.
    """

    read: TaskFamily
    scored: TaskFamily | None = None

    def draw(self, key: jax.Array, num_rows: int, num_features: int | None) -> Rows:
        return self._parts(key)[0].draw(key, num_rows, num_features)

    def draw_both(self, key: jax.Array, num_tasks: int, num_rows: int, num_features: int | None) -> tuple[Rows, Rows]:
        read, scored = (part.draw_several(key, num_tasks, num_rows, num_features) for part in self._parts(key))
        return read, scored

    @property
    def max_features(self) -> float:
        return self.read.max_features

    def _parts(self, key: jax.Array) -> tuple[TaskFamily, TaskFamily]:
        if self.scored is not None:
            return self.read, self.scored
        size = self.read.x.shape[0] // FOLDS
        fold = jax.random.randint(jax.random.fold_in(key, FOLDS), (), 0, FOLDS)
        scored, read = self.read.rolled(size * fold).cut_at(size)
        return read, scored


@dataclasses.dataclass(frozen=True)
class Halved(Family):
    """Tasks of any family, of whose rows runs read the first half and are scored on the last.

    Attributes:
      family: makes these halves of different rows (`Family.with_rows_apart`).
    """

    family: Family

    def draw(self, key: jax.Array, num_rows: int, num_features: int | None) -> Rows:
        return jax.tree.map(lambda leaf: leaf[:num_rows], self.family.draw(key, 2 * num_rows, num_features))

    def draw_both(self, key: jax.Array, num_tasks: int, num_rows: int, num_features: int | None) -> tuple[Rows, Rows]:
        rows = self.family.draw_several(key, num_tasks, 2 * num_rows, num_features)
        read = jax.tree.map(lambda leaf: leaf[:, :num_rows], rows)
        return read, jax.tree.map(lambda leaf: leaf[:, num_rows:], rows)

    @property
    def max_features(self) -> float:
        return self.family.max_features

    def with_num_classes(self, num_classes: int | None) -> "Halved":
        return Halved(self.family.with_num_classes(num_classes))


def with_fresh_rows(
    train: Family, held_out: Family, unseen: Collection[int] | None = None
) -> tuple[FreshRows, FreshRows]:
    """The families for training and for model selection. The first is scored on folds of its own rows, the second has
    the same tasks scored on held-out rows; or, with `unseen` classes, tasks of these, which are then not in the first.

    Raises:
      InputError: tasks are drawn from no table, or from several; or fewer than two classes are left on a side.
    """
    if not (isinstance(train, TaskFamily) and isinstance(held_out, TaskFamily)):
        raise InputError("these tasks are not drawn from one table whose rows could be split; leave fresh_rows out.")
    if unseen is None:
        return FreshRows(train), FreshRows(train, held_out)
    trained = set(train.classes) - set(unseen)
    if min(len(trained), len(set(train.classes) & set(unseen))) < 2:
        raise InputError(
            f"unseen is {tuple(unseen)}, of classes {train.classes}, but a task has two; leave two on either side."
        )
    return FreshRows(train.of_classes(trained)), FreshRows(train.of_classes(unseen), held_out.of_classes(unseen))
