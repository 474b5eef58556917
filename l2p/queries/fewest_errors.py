"""Private choice of the finished model with the fewest errors."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.models import Model
from l2p.queries.selection import Selection
from l2p.task.exact_sums import QuantizedRows
from l2p.task.rows import Rows


@struct.dataclass
class FewestErrors(Selection):
    """A selection by the number of rows whose label is not predicted, of which a row adds at most one to each.

    Attributes:
      model: the model (static).
      candidates: f32[k, p], parameters for raw rows; released or public.
      noise_multiplier, mechanism: see `Selection`.
    """

    model: Model = struct.field(pytree_node=False)
    candidates: jax.Array
    noise_multiplier: jax.Array
    mechanism: str = struct.field(pytree_node=False, default="gumbel")  # type: ignore[misc]
    name: ClassVar[str] = "fewest_errors"

    @property
    def clip_norm(self) -> jax.Array:  # type: ignore[override]
        return jnp.ones((), jnp.float32)

    @property
    def num_candidates(self) -> int:
        return self.candidates.shape[0]

    def losses(self, rows: Rows) -> jax.Array:
        classes = [self.model.classify(params, rows.x) for params in self.candidates]
        return (jnp.stack(classes) != rows.y[None, :]).astype(jnp.float32)

    def exact_losses(self, rows: QuantizedRows) -> jax.Array:
        classes = [self.model.exact_classes(params, rows) for params in self.candidates]
        return (jnp.stack(classes, 1) != rows.y[:, None]).astype(jnp.float64)
