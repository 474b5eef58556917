"""An affine map of the features, learned from paid answers, applied row by row before clipping."""

import jax
import jax.numpy as jnp
from flax import struct


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

    def weighted_sum(self, x: jax.Array, weights: jax.Array) -> jax.Array:
        """Sum of mapped rows, each times its weights, without writing the mapped table.

        Args:
          x: f32[n, d].
          weights: f32[n] or f32[n, k].

        Returns:
          f32[d] or f32[k, d].
        """
        return (weights.T @ x - jnp.multiply.outer(weights.sum(0), self.center)) * self.scale
