"""Sums of clipped per-row gradients that are scaled coordinate by coordinate first."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.models.parts import GRADIENT_FLOATS
from l2p.queries.base import Query
from l2p.queries.gradient import ClippedGradient
from l2p.task.exact_sums import Quantized, QuantizedRows
from l2p.task.rows import Rows, sum_in_blocks


@struct.dataclass
class ScaledGradient(ClippedGradient):
    """Sum over rows of clip(scale * gradient), with Gaussian noise (Li, Zaheer, Reddi & Smith 2022).

    Rows are clipped after they are scaled, so the bound holds whatever the scale is; a row that it makes infinite
    counts as zero. Divided by the scale, an answer estimates the gradient, with noise that is small where the scale is
    large.

    Attributes:
      scale: f32[p], public or released.
    """

    scale: jax.Array
    name: ClassVar[str] = "scaled_gradient"

    def contributions(self, rows: Rows) -> jax.Array:
        x = jnp.asarray(self.features.apply(rows.x))
        return self.model.gradients(self.params, x, rows.y) * self.scale[None, :]

    def add(self, aggregate: jax.Array, rows: Rows) -> jax.Array:
        def add(block: Rows) -> jax.Array:
            return block.mask @ self.limit(self.contributions(block))

        return aggregate + sum_in_blocks(add, rows, max(1, GRADIENT_FLOATS // self.params.shape[0]))

    def exact(self, rows: QuantizedRows) -> Quantized:
        return Query.exact(self, rows)  # one row at a time: scaled gradients are no products of two vectors
