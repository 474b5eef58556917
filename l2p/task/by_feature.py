"""A table of features in memory, feature by feature."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base import struct


@struct.dataclass
class ByFeature(struct.Struct):
    """Features f[n, d] of rows that are read many times, stored as f[d, n].

    A step of a linear model reads them twice, as `x @ weights` and as `residuals @ x`. On a CPU both are then sums of
    columns that lie in one piece: twice as fast as dot products of short rows, and four times where the table exceeds
    the cache (`python -m benchmarks`). It stands in for the array: products and `T` work on what is stored, and
    anything else that JAX does with it turns it back first.

    Attributes:
      columns: f[..., d, n].

    >>> table = ByFeature.of(jnp.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))
    >>> print(table.shape, table @ jnp.array([1.0, 1.0]), table.weighted_sum(jnp.ones(3)))
    (3, 2) [ 3.  7. 11.] [ 9. 12.]
    """

    columns: jax.Array

    @classmethod
    def of(cls, x: "jax.Array | np.ndarray | ByFeature") -> "ByFeature":
        """The table f[..., n, d]; on the host where it lies there."""
        if isinstance(x, ByFeature):
            return x
        return cls(np.ascontiguousarray(np.swapaxes(x, -1, -2)) if isinstance(x, np.ndarray) else x.mT)  # type: ignore[arg-type]

    @property
    def shape(self) -> tuple[int, ...]:
        """(..., n, d)."""
        *stacked, num_features, num_rows = self.columns.shape
        return *stacked, num_rows, num_features

    @property
    def ndim(self) -> int:
        return self.columns.ndim

    @property
    def dtype(self) -> Any:
        return self.columns.dtype

    @property
    def T(self) -> jax.Array:
        """f[d, n]."""
        return self.columns

    def __jax_array__(self) -> jax.Array:
        return self.columns.mT

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        return np.asarray(np.swapaxes(np.asarray(self.columns), -1, -2), *args, **kwargs)

    def __mul__(self, factor: Any) -> jax.Array:
        return jnp.asarray(self) * factor

    __rmul__ = __mul__

    def __sub__(self, other: Any) -> jax.Array:
        return jnp.asarray(self) - other

    def __getitem__(self, index: Any) -> jax.Array:
        return jnp.asarray(self)[index]

    def __matmul__(self, weights: jax.Array) -> jax.Array:
        """x @ weights: f[d] -> f[n], f[d, k] -> f[n, k]."""
        return (weights.T @ self.columns).T

    def weighted_sum(self, weights: jax.Array) -> jax.Array:
        """weights @ x: f[n] -> f[d], f[k, n] -> f[k, d]. JAX's arrays would turn the table back for `@`."""
        return self.columns @ weights if weights.ndim == 1 else weights @ self.columns.T

    def squared_lengths(self) -> jax.Array:
        """f[n], of the rows."""
        return jnp.square(self.columns).sum(0)

    def affine(self, center: jax.Array, scale: jax.Array) -> "ByFeature":
        """(x - center f[d]) * scale f[]."""
        return ByFeature((self.columns - center[:, None]) * scale)

    def turned(self, forward: jax.Array) -> "ByFeature":
        """x @ forward f[d, k], in full precision."""
        return ByFeature(jnp.matmul(forward.T, self.columns, precision="highest"))

    def where(self, valid: jax.Array) -> "ByFeature":
        """Zeros in place of rows that are not valid bool[n]."""
        return ByFeature(jnp.where(valid[None, :], self.columns, 0.0))

    def take(self, indices: jax.Array) -> jax.Array:
        """Rows of these indices i32[m], as an array f[m, d]."""
        return self.columns[:, indices].T

    def part(self, start: jax.Array | int, size: int) -> "ByFeature":
        """`size` rows from `start` on."""
        return ByFeature(jax.lax.dynamic_slice_in_dim(self.columns, start, size, axis=-1))
