"""Rows of a task along the directions of the classes that are not in it, as in a deployed run.

Public directions come from public rows, and private rows are of other classes. Directions of all classes of a source
include those of a task's own classes: constants tuned along them underestimate the effect of noise, and networks
memorise which of them separate the classes, because a direction's variance identifies it.
"""

import dataclasses
import itertools
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np

from l2p.protectors import PublicGeometry
from meta_train.tasks.family import Family, TaskFamily


@dataclasses.dataclass(frozen=True)
class OtherClasses:
    """Rotates rows of two classes so that a run along the directions of all classes reads them along those of the other
    classes.

    In its k-th direction the run then reads the rows' component along the k-th direction of the other classes, scaled
    so that these vary as much along it as all classes do along the run's.

    Attributes:
      classes: f32[c], the classes with known directions; rows of any other class are left unchanged.
      pairs: i32[c, c], index of a pair of classes among the p pairs.
      centers: f32[p, d], mean of the other classes' rows.
      directions: f32[p, d, k], of these rows, scaled.
      center: f32[d], mean of all rows.
      onto: f32[k, d], the directions of all classes.
    """

    classes: jax.Array
    pairs: jax.Array
    centers: jax.Array
    directions: jax.Array
    center: jax.Array
    onto: jax.Array

    @classmethod
    def of(cls, family: TaskFamily, num_directions: int) -> "OtherClasses":
        """Directions of the other classes of a family with at least three, from its rows."""
        counts, sums, squares = _moments(family)
        all_classes = _geometry(counts.sum(), sums.sum(0), squares.sum(0), num_directions)
        pairs, geometries = np.zeros(2 * (len(counts),), np.int32), []
        for index, (first, second) in enumerate(itertools.combinations(range(len(counts)), 2)):
            others = np.delete(np.arange(len(counts)), [first, second])
            pairs[first, second] = pairs[second, first] = index
            geometries.append(
                _geometry(counts[others].sum(), sums[others].sum(0), squares[others].sum(0), num_directions)
            )
        # A few classes may vary in fewer directions than all of them.
        rank = min(len(geometry.variances) for geometry in geometries)
        stretched = [
            geometry.directions[:, :rank] * jnp.sqrt(all_classes.variances[:rank] / geometry.variances[:rank])[None, :]
            for geometry in geometries
        ]
        return cls(
            classes=jnp.asarray(family.classes, jnp.float32),
            pairs=jnp.asarray(pairs),
            centers=jnp.stack([geometry.center for geometry in geometries]),
            directions=jnp.stack(stretched),
            center=all_classes.center,
            onto=all_classes.directions[:, :rank].T,
        )

    def __call__(self, x: jax.Array, first: jax.Array, second: jax.Array) -> jax.Array:
        """Rows f32[n, d] of the two classes f32[], rotated."""
        is_first, is_second = self.classes == first, self.classes == second
        pair = self.pairs[jnp.argmax(is_first), jnp.argmax(is_second)]
        rotated = self.center[None, :] + (x - self.centers[pair][None, :]) @ self.directions[pair] @ self.onto
        return jnp.where(is_first.any() & is_second.any(), rotated, x)


def along_other_classes(
    train: Family, held_out: Family, num_directions: int | None, unseen: tuple[int, ...] | None = None
) -> tuple[Family, Family]:
    """Two families of one source, with tasks along the directions of its other classes except the unseen ones. The
    families are returned unchanged without directions, or if tasks have all classes of the source."""
    if num_directions is None or not isinstance(train, TaskFamily) or not isinstance(held_out, TaskFamily):
        return train, held_out
    training = train.of_classes(set(train.classes) - set(unseen or ()))
    if len(training.classes) < 3:
        return train, held_out
    directions = OtherClasses.of(training, num_directions)
    return dataclasses.replace(train, other_classes=directions), dataclasses.replace(held_out, other_classes=directions)


def _moments(family: TaskFamily) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each class: its number of rows, their sum f64[c, d] and that of their outer products f64[c, d, d]."""
    x, y = np.asarray(family.x, np.float64), np.asarray(family.y)
    rows = [x[y == label] for label in family.classes]
    return (
        np.array([len(part) for part in rows]),
        np.array([part.sum(0) for part in rows]),
        np.array([part.T @ part for part in rows]),
    )


def _geometry(count: np.ndarray, total: np.ndarray, squares: np.ndarray, num_directions: int) -> PublicGeometry:
    center = total / cast(float, count)
    return PublicGeometry.of_moments(center, squares / cast(float, count) - np.outer(center, center), num_directions)
