"""The typical length of the gradient of a row's loss, as a mean of logarithms."""

import math
from typing import ClassVar

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.models import Model
from l2p.queries.base import Query, positive, within
from l2p.task.feature_map import FeatureMap
from l2p.task.rows import Rows

#: Numbers of the gradients that are formed at a time.
NUMBERS = 2**22
#: The least logarithm of a squared length over the typical one: that of a gradient of zero.
LEAST = -80.0


@struct.dataclass
class GradientLengths(Query):
    """Sum f32[1] over rows of log(length of the gradient / `typical`) within `most` of zero, with Gaussian noise.

    Logarithms spread little, so that a bound on a row is a few times a typical distance from the mean, whatever the
    length is; a bound on the length itself would be many times a short one. A length that is not finite counts as the
    typical one.

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
        def squared_length(row: tuple[jax.Array, jax.Array]) -> jax.Array:
            x, y = row
            return jnp.square(self.model.gradients(self.params, x[None, :], y[None])).sum()

        batch = max(1, min(NUMBERS // self.params.size, rows.y.shape[0]))
        read = jnp.asarray(self.features.apply(rows.x)), rows.y
        squares = jax.lax.map(squared_length, read, batch_size=batch) / jnp.square(self.typical)
        return 0.5 * jnp.log(jnp.maximum(squares, math.exp(LEAST)))[:, None]

    def empty(self) -> jax.Array:
        return jnp.zeros(1, jnp.float32)
