"""Number of rows predicted correctly: the score of a finished model."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.models import Model
from l2p.queries.base import Query
from l2p.task.exact_sums import Quantized, QuantizedRows
from l2p.task.rows import Rows


@struct.dataclass
class CorrectCount(Query):
    """Number f32[1] of rows whose label is predicted, with Gaussian noise.

    Attributes:
      model: the model (static).
      params: f32[p], parameters for raw rows; released or public.
      noise_multiplier: f32[], noise standard deviation over the sensitivity.
    """

    model: Model = struct.field(pytree_node=False)
    params: jax.Array
    noise_multiplier: jax.Array
    name: ClassVar[str] = "correct_count"
    mechanism: ClassVar[str] = "gaussian"
    is_plain_sum: ClassVar[bool] = True
    weighed: ClassVar[bool] = False

    @property
    def bound(self) -> jax.Array:
        return jnp.ones((), jnp.float32)

    def contributions(self, rows: Rows) -> jax.Array:
        return (self.model.classify(self.params, rows.x) == rows.y).astype(jnp.float32)[:, None]

    def exact(self, rows: QuantizedRows) -> Quantized:
        right = self.model.exact_classes(self.params, rows) == rows.y
        return rows.sum(Quantized(right.astype(jnp.float64)[:, None], jnp.ones((), jnp.float64)))

    def empty(self) -> jax.Array:
        return jnp.zeros(1, jnp.float32)
