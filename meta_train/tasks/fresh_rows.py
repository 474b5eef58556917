"""Tasks whose runs are scored on rows that they did not read."""

import dataclasses

import jax

from l2p.task.rows import Rows
from meta_train.tasks.family import Family


@dataclasses.dataclass(frozen=True)
class Halved(Family):
    """Tasks of any family, of whose rows runs read the first half and are scored on the last.

    With few rows a long run overfits them, and scoring it on the rows that it read would reward that.

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
