"""An affine map of the features, learned from paid answers, applied row by row before clipping."""

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.task.table import Table


@struct.dataclass
class Basis:
    """Directions that centred rows are expressed in.

    Attributes:
      forward: f32[d, k], x -> x @ forward; one direction per column, which need not be of length 1.
      backward: f32[k, d], its inverse; where k < d, its inverse on the span of these directions.
    """

    forward: jax.Array
    backward: jax.Array

    @classmethod
    def identity(cls, num_features: int) -> "Basis":
        return cls(jnp.eye(num_features), jnp.eye(num_features))


def squared_lengths(x: jax.Array) -> jax.Array:
    """Squared L2 norms f32[n] of rows f32[n, d]."""
    return x.squared_lengths() if isinstance(x, Table) else jnp.square(x).sum(-1)


@struct.dataclass
class FeatureMap(struct.Struct):
    """x -> (x - center) * scale, then expressed in a basis if there is one.

    Attributes:
      center: f32[d], released or public.
      scale: f32[], released or public.
      basis: released or public; None leaves the features as they are.
    """

    center: jax.Array
    scale: jax.Array
    basis: Basis | None = None

    @classmethod
    def identity(cls, num_features: int) -> "FeatureMap":
        return cls(jnp.zeros(num_features, jnp.float32), jnp.ones((), jnp.float32))

    @property
    def num_mapped(self) -> int:
        """Number of features of a mapped row: k."""
        return self.center.shape[0] if self.basis is None else self.basis.forward.shape[1]

    @property
    def is_invertible(self) -> bool:
        """True if it has a basis with as many directions as features, so that mapped rows determine the rows."""
        return self.basis is not None and self.num_mapped == self.center.shape[0]

    def remaining_map(self) -> "FeatureMap":
        """The identity, with this map's derivative, for a map that is invertible.

        Rows that were mapped once and are constants from then on are read through it, which carries the derivative in
        this map.
        """
        assert self.basis is not None
        constant = jax.lax.stop_gradient
        turned = constant(self.basis.backward) @ self.basis.forward * (self.scale / constant(self.scale))
        change = turned - constant(turned)
        center = (self.center - constant(self.center)) * constant(self.scale) @ constant(self.basis.forward)
        eye = jnp.eye(self.num_mapped)
        return FeatureMap(center, jnp.ones((), jnp.float32), Basis(eye + change, eye - change))

    def apply(self, x: jax.Array) -> jax.Array:
        """Mapped features: f32[n, d] -> f32[n, k]."""
        if isinstance(x, Table):
            moved = x.affine(self.center, self.scale)
            return moved if self.basis is None else moved.turned(self.basis.forward)  # pyrefly: ignore[bad-return]
        centred = (x - self.center[None, :]) * self.scale
        # The product in full precision: a row's clipped length must not depend on how a device rounds.
        return centred if self.basis is None else jnp.matmul(centred, self.basis.forward, precision="highest")

    def squared_norms(self, x: jax.Array) -> jax.Array:
        """Squared norms f32[n] of mapped features; without a basis, the mapped table is never formed."""
        if self.basis is not None:
            return squared_lengths(self.apply(x))
        squares = squared_lengths(x) - 2.0 * (x @ self.center) + jnp.square(self.center).sum()
        return jnp.square(self.scale) * jnp.maximum(squares, 0.0)

    def weighted_sum(self, x: jax.Array, weights: jax.Array) -> jax.Array:
        """Sum of mapped rows, each times its weights, without forming the mapped table.

        Args:
          x: f32[n, d].
          weights: f32[n] or f32[k, n].

        Returns:
          f32[d] or f32[k, d], of mapped features.
        """
        total = x.weighted_sum(weights) if isinstance(x, Table) else weights @ x
        total = (total - jnp.multiply.outer(weights.sum(-1), self.center)) * self.scale
        return total if self.basis is None else total @ self.basis.forward

    def weights_for_raw(self, weights: jax.Array, axis: int = -1) -> jax.Array:
        """Weights for raw, centred rows that give the same products as `weights` on mapped ones; features lie along
        `axis`."""
        last = jnp.moveaxis(weights, axis, -1)
        turned = last if self.basis is None else last @ self.basis.forward.T
        return jnp.moveaxis(turned * self.scale, -1, axis)

    def weights_for_mapped(self, weights: jax.Array, axis: int = -1) -> jax.Array:
        """The inverse of `weights_for_raw`."""
        last = jnp.moveaxis(weights, axis, -1) / self.scale
        turned = last if self.basis is None else last @ self.basis.backward.T
        return jnp.moveaxis(turned, -1, axis)
