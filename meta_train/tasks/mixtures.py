"""Mixtures of families, to train one protector for more than one kind of table."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base.errors import InputError
from l2p.task.rows import Rows
from meta_train.tasks.family import Family
from meta_train.tasks.stacks import alike, draw_stacked


@dataclasses.dataclass(frozen=True)
class Mixture(Family):
    """Tasks of several families, equally many of each; a family is left out at feature counts it has too few columns
    for.

    Attributes:
      parts: the families.
      stacked: which of these, by place, are tables; those that are alike are drawn by one program (`stacks.py`).
    """

    parts: tuple[Family, ...]
    stacked: frozenset[int] = frozenset()

    def draw(self, key: jax.Array, num_rows: int, num_features: int | None) -> Rows:
        return jax.tree.map(lambda leaf: leaf[0], self.draw_several(key, 1, num_rows, num_features))

    def draw_several(self, key: jax.Array, num_tasks: int, num_rows: int, num_features: int | None) -> Rows:
        if num_features is None:
            raise InputError(
                "the tables of a mixture have columns of their own, and as many each; set num_features to counts, so "
                "that all lend as many columns to a task."
            )
        places = [place for place, part in enumerate(self.parts) if part.max_features >= num_features]
        alone = [self.parts[place] for place in places if place not in self.stacked]
        groups = alike([self.parts[place] for place in places if place in self.stacked])
        fit = [*alone, *itertools.chain(*groups)]
        if not fit:
            raise InputError(
                f"no source of this mixture has {num_features} columns; set num_features to smaller counts."
            )
        # Equally many from every part, and one more from some of them: choosing a part for every task separately would
        # draw each task from all parts, since under vmap every branch runs.
        each, extra = divmod(num_tasks, len(fit))
        order_key, more_key, *every = jax.random.split(key, 2 + len(fit))
        keys = iter(every)
        width = each + (extra > 0)
        several = [part.draw_several(next(keys), width, num_rows, num_features) for part in alone]
        for tables in groups:
            several.append(draw_stacked(tables, [next(keys) for _ in tables], width, num_rows, num_features))
        indices = np.arange(len(fit) * width).reshape(len(fit), width)
        more = jax.random.permutation(more_key, indices[:, -1])[:extra]
        chosen = jax.random.permutation(order_key, jnp.concatenate([indices[:, :each].ravel(), more]))
        return jax.tree.map(lambda *leaves: jnp.concatenate(leaves)[chosen], *several)

    def with_rows_apart(self, distinct: bool = False) -> "Mixture":
        return Mixture(tuple(part.with_rows_apart(distinct) for part in self.parts), self.stacked)

    def halves(self) -> tuple["Mixture", "Mixture"]:
        first, second = zip(*(part.halves() for part in self.parts), strict=True)
        return Mixture(first, self.stacked), Mixture(second, self.stacked)

    def with_num_classes(self, num_classes: int | None) -> "Mixture":
        return Mixture(tuple(part.with_num_classes(num_classes) for part in self.parts), self.stacked)

    @property
    def max_features(self) -> float:
        return max(part.max_features for part in self.parts)
