"""The typical length of the gradient of a row's loss, as a mean of logarithms."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.models import Model
from l2p.queries.base import Query, positive, within
from l2p.task.feature_map import FeatureMap
from l2p.task.rows import Rows

#: Rows whose gradients are formed at a time, and the most numbers of these: fixed, so that neither memory nor what
#: programs are compiled depends on the number of rows.
BATCH, NUMBERS = 64, 2**22
#: Logarithms of lengths are within this of zero before they are limited: that of no gradient is finite, too.
FARTHEST = 1e4


@struct.dataclass
class GradientLengths(Query):
    """Sum f32[1] over rows of log(length of the gradient / `typical`) within `most` of zero, with Gaussian noise.

    Logarithms spread little, so that a bound on a row is a few times a typical distance from the mean, whatever the
    length is; a bound on the length itself would be many times a short one. A gradient with a NaN counts as one of the
    typical length.

    Attributes:
      model: the model (static).
      params: f32[p], parameters for mapped rows; released or public.
      features: the map that rows are read through.
      typical: f32[], a public length; above 0.
      most: f32[], the largest absolute value of a row's logarithm; above 0.
      noise_multiplier: f32[], noise standard deviation over the sensitivity.
    """

    model: Model = struct.field(pytree_node=False)
    params: jax.Array
    features: FeatureMap
    typical: jax.Array
    most: jax.Array
    noise_multiplier: jax.Array
    name: ClassVar[str] = "gradient_length"
    mechanism: ClassVar[str] = "gaussian"
    is_plain_sum: ClassVar[bool] = True
    of_loss: ClassVar[bool] = True
    weighed: ClassVar[bool] = False

    @property
    def bound(self) -> jax.Array:
        return within(self.most, positive(self.most), positive(self.typical))

    def contributions(self, rows: Rows) -> jax.Array:
        def log_length(row: tuple[jax.Array, jax.Array]) -> jax.Array:
            x, y = row
            gradient = self.model.gradients(self.params, x[None, :], y[None])
            # Squares of the numbers themselves overflow, where lengths do not.
            largest = jnp.abs(gradient).max()
            scaled = gradient / jnp.where((largest > 0.0) & (largest < jnp.inf), largest, 1.0)
            return jnp.log(largest) + 0.5 * jnp.log(jnp.square(scaled).sum())

        batch = max(1, min(NUMBERS // self.params.size, BATCH))
        read = jnp.asarray(self.features.apply(rows.x)), rows.y
        logs = jax.lax.map(log_length, read, batch_size=batch) - jnp.log(self.typical)
        return jnp.clip(logs, -FARTHEST, FARTHEST)[:, None]

    def empty(self) -> jax.Array:
        return jnp.zeros(1, jnp.float32)
