"""Sums of clipped losses at several parameters."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.models import Model
from l2p.queries.base import Query, positive, within
from l2p.queries.selection import clip_losses, exact_losses
from l2p.task.exact_sums import Quantized, QuantizedRows
from l2p.task.rows import Rows


@struct.dataclass
class ClippedLoss(Query):
    """Total loss f32[k] of k candidates, each row's loss clipped to [0, clip_norm], with Gaussian noise.

    A row adds between 0 and `clip_norm` to every total, so to their vector at most clip_norm * sqrt(k) in L2 norm,
    and under zero-out and add-remove always in one direction.

    Attributes:
      model: the model (static).
      candidates: f32[k, p], parameters for raw rows; released or public.
      clip_norm: f32[], largest loss of one row, above 0; NaN losses count as this much.
      noise_multiplier: f32[], noise standard deviation over the sensitivity.
    """

    model: Model = struct.field(pytree_node=False)
    candidates: jax.Array
    clip_norm: jax.Array
    noise_multiplier: jax.Array
    name: ClassVar[str] = "clipped_loss"
    mechanism: ClassVar[str] = "gaussian"
    is_plain_sum: ClassVar[bool] = True
    of_loss: ClassVar[bool] = True

    @property
    def bound(self) -> jax.Array:
        return within(self.clip_norm * self.candidates.shape[0] ** 0.5, positive(self.clip_norm))

    def contributions(self, rows: Rows) -> jax.Array:
        return self.model.losses(self.candidates, rows.x, rows.y).T

    def limit(self, contributions: jax.Array) -> jax.Array:
        """Each loss clipped to [0, clip_norm]; NaN counts as clip_norm."""
        return clip_losses(contributions, self.clip_norm)

    def add(self, aggregate: jax.Array, rows: Rows) -> jax.Array:
        return aggregate + (
            clip_losses(self.model.losses(self.candidates, rows.x, rows.y), self.clip_norm) * rows.mask[None, :]
        ).sum(-1)

    def exact(self, rows: QuantizedRows) -> Quantized:
        return rows.sum(exact_losses(self.model.exact_losses(self.candidates, rows), self.clip_norm))

    def empty(self) -> jax.Array:
        return jnp.zeros(self.candidates.shape[0], jnp.float32)
