"""An affine map of the features, learned from paid answers, applied row by row before clipping."""

import jax
import jax.numpy as jnp
from flax import struct

from l2p.models import INTERCEPT_COLUMN


@struct.dataclass
class FeatureMap:
    """x -> (x - center) * scale.

    Attributes:
      center: f32[d], released or public.
      scale: f32[], released or public.
    """

    center: jax.Array
    scale: jax.Array

    @classmethod
    def identity(cls, num_features: int) -> "FeatureMap":
        return cls(jnp.zeros(num_features, jnp.float32), jnp.ones((), jnp.float32))

    def apply(self, x: jax.Array) -> jax.Array:
        """Mapped features: f32[n, d] -> f32[n, d]."""
        return (x - self.center[None, :]) * self.scale

    def squared_norms(self, x: jax.Array) -> jax.Array:
        """Squared norms of mapped features f32[n], without writing the mapped table."""
        squares = jnp.square(x).sum(-1) - 2.0 * (x @ self.center) + jnp.square(self.center).sum()
        return jnp.square(self.scale) * jnp.maximum(squares, 0.0)

    def params_for_raw_rows(self, params: jax.Array) -> jax.Array:
        """Linear-model params f32[..., d + 1] for mapped rows, rewritten to give the same margins on raw rows."""
        weights = params[..., :-1] * self.scale
        shift = (weights @ self.center)[..., None]
        return jnp.concatenate([weights, params[..., -1:] - shift / INTERCEPT_COLUMN], -1)

    def params_for_mapped_rows(self, params: jax.Array) -> jax.Array:
        """The inverse of `params_for_raw_rows`: params for raw rows, rewritten for mapped ones.

        >>> features = FeatureMap(jnp.array([0.5, 0.25]), jnp.float32(2.0))
        >>> features.params_for_raw_rows(features.params_for_mapped_rows(jnp.array([1.0, 2.0, 3.0]))).tolist()
        [1.0, 2.0, 3.0]
        """
        shift = (params[..., :-1] @ self.center)[..., None]
        return jnp.concatenate([params[..., :-1] / self.scale, params[..., -1:] + shift / INTERCEPT_COLUMN], -1)
