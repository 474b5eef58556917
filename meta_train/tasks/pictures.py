"""Synthetic tasks of images and of signals: shapes of several classes, moved and stretched in each row, with noise."""

import dataclasses
import math

import jax
import jax.numpy as jnp

from l2p.base.errors import InputError
from l2p.task.rows import Rows
from meta_train.tasks.drawing import between, with_class_noise
from meta_train.tasks.family import Family

#: The most shapes of a class: handwritten digits, too, are written in several ways.
MOST_SHAPES = 3
#: Places of a shape's outline in each direction, between which it is smooth.
OUTLINE = 4, 8
#: Contrast of a shape, from soft to nearly black and white; share of its outline that all classes have in common.
CONTRAST, COMMON = (1.5, 12.0), 0.7
#: The least of an outline that leaves a trace: most of an image is empty.
THRESHOLD = 0.5
#: The largest moves of a row over the side, and changes of its size (as a logarithm).
MOVE, STRETCH = (0.01, 0.25), 0.3
#: Deviation of noise in pixels.
NOISE = (0.01, 0.4)


@dataclasses.dataclass(frozen=True)
class Pictures(Family):
    """Rows of square images, or of signals along a line, f32[n, d] in [0, 1], of classes that are equally common.

    Each class has from 1 to `MOST_SHAPES` shapes, smooth random fields; a row is one of its class's, moved and
    stretched, more or less strong, with noise in every pixel. How much of each, a task draws.

    Attributes:
      stream: families with different numbers draw independent tasks from the same distribution.
      num_classes: K.
      along_a_line: signals in place of images.
    """

    stream: int
    num_classes: int
    along_a_line: bool = False

    def with_num_classes(self, num_classes: int | None) -> "Pictures":
        return self if num_classes is None else dataclasses.replace(self, num_classes=num_classes)

    def draw(self, key: jax.Array, num_rows: int, num_features: int | None) -> Rows:
        sides = self._sides(num_features)
        keys = iter(jax.random.split(jax.random.fold_in(key, self.stream), 12))
        shapes = self._shapes(next(keys), sides)
        label = jax.random.randint(next(keys), (num_rows,), 0, self.num_classes)
        most = jax.random.randint(next(keys), (), 1, MOST_SHAPES + 1)
        kind = jax.random.randint(next(keys), (num_rows,), 0, most)
        move, stretch = between(next(keys), MOVE), STRETCH * jax.random.uniform(next(keys))
        down, right = (
            _places(part, side, num_rows, move, stretch)
            for part, side in zip(jax.random.split(next(keys)), sides, strict=True)
        )
        field = jnp.einsum("nyh,nhw,nxw->nyx", down, shapes[label, kind], right).reshape(num_rows, -1)
        ink = jax.nn.sigmoid(between(next(keys), CONTRAST) * (field - THRESHOLD))
        least = jax.random.uniform(next(keys), minval=0.5)
        strength = jax.random.uniform(next(keys), (num_rows, 1), minval=least)
        noise_key, deviation_key = jax.random.split(next(keys))
        noise = between(deviation_key, NOISE) * jax.random.normal(noise_key, ink.shape)
        x = jnp.clip(strength * ink + noise, 0.0, 1.0)
        return with_class_noise(jax.random.split(next(keys), 3), x, label, self.num_classes)

    def _sides(self, num_features: int | None) -> tuple[int, int]:
        """Height and width."""
        side = math.isqrt(num_features or 0)
        if num_features and (self.along_a_line or side**2 == num_features):
            return (1, num_features) if self.along_a_line else (side, side)
        raise InputError(
            f"images of {num_features} pixels are not square; set num_features to squares, such as 64 for 8x8."
        )

    def _shapes(self, key: jax.Array, sides: tuple[int, int]) -> jax.Array:
        """f32[K, MOST_SHAPES, height, width] of deviation 1."""
        own_key, common_key, share_key = jax.random.split(key, 3)
        outline = (1, OUTLINE[1]) if self.along_a_line else (OUTLINE[0], OUTLINE[0])
        share = COMMON * jax.random.uniform(share_key)
        own = jax.random.normal(own_key, (self.num_classes, MOST_SHAPES, *outline))
        common = jax.random.normal(common_key, outline)
        coarse = jnp.sqrt(1.0 - share) * own + jnp.sqrt(share) * common[None, None]
        return jax.image.resize(coarse, (self.num_classes, MOST_SHAPES, *sides), "cubic")


def _places(key: jax.Array, side: int, num_rows: int, move: jax.Array, stretch: jax.Array) -> jax.Array:
    """Weights f32[n, side, side] of a shape's lines in each line of a row that is moved and stretched: those of the two
    that it falls between, or of the edge."""
    move_key, stretch_key = jax.random.split(key)
    middle = (side - 1) / 2
    moved = side * move * jax.random.uniform(move_key, (num_rows, 1), minval=-1.0, maxval=1.0)
    scale = jnp.exp(stretch * jax.random.uniform(stretch_key, (num_rows, 1), minval=-1.0, maxval=1.0))
    places = jnp.clip(middle + moved + scale * (jnp.arange(side) - middle)[None, :], 0.0, side - 1.0)
    return jnp.maximum(0.0, 1.0 - jnp.abs(places[:, :, None] - jnp.arange(side)[None, None, :]))
