"""Tables of features in memory that stand in for arrays: feature by feature, row by row, and drawn for one step."""

import abc
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base import struct

#: Vectors that are multiplied with a table one after the other, which is faster than a product of matrices.
FEW = 4


class Table(struct.Struct, abc.ABC):
    """Features f[..., n, d] of rows, stored so that products with them are fast. It stands in for the array: products
    and `T` work on what is stored, and anything else that JAX does with it makes the array first.

    Attributes:
      squares: f[..., n], the squared lengths of the rows, all of which are finite then; None where that is not known.
    """

    squares: jax.Array | None

    @property
    @abc.abstractmethod
    def mT(self) -> jax.Array:
        """f[..., d, n]."""

    @abc.abstractmethod
    def __matmul__(self, weights: jax.Array) -> jax.Array:
        """x @ weights: f[d] -> f[n], f[d, k] -> f[n, k]."""

    @abc.abstractmethod
    def weighted_sum(self, weights: jax.Array) -> jax.Array:
        """weights @ x: f[n] -> f[d], f[k, n] -> f[k, d]. JAX's arrays would make the array for `@`."""

    def squared_lengths(self) -> jax.Array:
        """f[..., n], of the rows."""
        return jnp.square(self.mT).sum(-2) if self.squares is None else self.squares

    @abc.abstractmethod
    def where(self, valid: jax.Array) -> "Table":
        """Zeros in place of rows that are not valid bool[..., n]."""

    @abc.abstractmethod
    def take(self, indices: jax.Array) -> "Drawn":
        """Rows of these indices i32[m]."""

    @abc.abstractmethod
    def affine(self, center: jax.Array, scale: jax.Array) -> "Table":
        """(x - center f[d]) * scale f[]."""

    @abc.abstractmethod
    def turned(self, forward: jax.Array) -> "Table":
        """x @ forward f[d, k], in full precision."""

    @abc.abstractmethod
    def part(self, start: jax.Array | int, size: int) -> "Table":
        """`size` rows from `start` on."""

    @property
    def T(self) -> jax.Array:
        """f[..., d, n]."""
        return self.mT

    @property
    def shape(self) -> tuple[int, ...]:
        """(..., n, d)."""
        *stacked, num_features, num_rows = self.mT.shape
        return *stacked, num_rows, num_features

    @property
    def ndim(self) -> int:
        return self.mT.ndim

    @property
    def dtype(self) -> Any:
        return self.mT.dtype

    def __jax_array__(self) -> jax.Array:
        return self.mT.mT

    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        return np.asarray(np.swapaxes(np.asarray(self.mT), -1, -2), *args, **kwargs)

    def __mul__(self, factor: Any) -> jax.Array:
        return jnp.asarray(self) * factor

    __rmul__ = __mul__

    def __sub__(self, other: Any) -> jax.Array:
        return jnp.asarray(self) - other

    def __getitem__(self, index: Any) -> jax.Array:
        return jnp.asarray(self)[index]


@struct.dataclass
class ByFeature(Table):
    """Features f[n, d] of rows that are read many times, stored as f[d, n].

    A step of a linear model reads them twice, as `x @ weights` and as `residuals @ x`. On a CPU both are then sums of
    columns that lie in one piece: twice as fast as dot products of short rows, and four times where the table exceeds
    the cache (`python -m benchmarks`).

    Attributes:
      columns: f[..., d, n].
      squares: as in `Table`.

    >>> table = ByFeature.of(jnp.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))
    >>> print(table.shape, table @ jnp.array([1.0, 1.0]), table.weighted_sum(jnp.ones(3)))
    (3, 2) [ 3.  7. 11.] [ 9. 12.]
    """

    columns: jax.Array
    squares: jax.Array | None = None

    @classmethod
    def of(cls, x: "jax.Array | np.ndarray | ByFeature") -> "ByFeature":
        """The table f[..., n, d]; on the host where it lies there."""
        if isinstance(x, ByFeature):
            return x
        return cls(np.ascontiguousarray(np.swapaxes(x, -1, -2)) if isinstance(x, np.ndarray) else x.mT)  # type: ignore[arg-type]

    @property
    def mT(self) -> jax.Array:
        return self.columns

    def __matmul__(self, weights: jax.Array) -> jax.Array:
        if weights.ndim == 2 and weights.shape[1] <= FEW:
            return jnp.stack([vector @ self.columns for vector in weights.T], -1)
        return (weights.T @ self.columns).T

    def weighted_sum(self, weights: jax.Array) -> jax.Array:
        if weights.ndim == 2 and len(weights) <= FEW:
            return jnp.stack([self.columns @ vector for vector in weights])
        return self.columns @ weights if weights.ndim == 1 else weights @ self.columns.T

    def affine(self, center: jax.Array, scale: jax.Array) -> "ByFeature":
        return ByFeature((self.columns - center[:, None]) * scale)

    def turned(self, forward: jax.Array) -> "ByFeature":
        return ByFeature(jnp.matmul(forward.T, self.columns, precision="highest"))

    def where(self, valid: jax.Array) -> "ByFeature":
        return ByFeature(jnp.where(valid[..., None, :], self.columns, 0.0))

    def take(self, indices: jax.Array) -> "Drawn":
        return Drawn(self.columns[:, indices].T, None if self.squares is None else self.squares[indices])

    def part(self, start: jax.Array | int, size: int) -> "ByFeature":
        return ByFeature(jax.lax.dynamic_slice_in_dim(self.columns, start, size, axis=-1))


@struct.dataclass
class ByRow(Table):
    """Features f[n, d] as they are.

    Attributes:
      rows: f[..., n, d].
      squares: as in `Table`.
    """

    rows: jax.Array
    squares: jax.Array | None = None

    @property
    def mT(self) -> jax.Array:
        return self.rows.mT

    def __jax_array__(self) -> jax.Array:
        return self.rows

    def __matmul__(self, weights: jax.Array) -> jax.Array:
        return self.rows @ weights

    def weighted_sum(self, weights: jax.Array) -> jax.Array:
        return weights @ self.rows

    def squared_lengths(self) -> jax.Array:
        return jnp.square(self.rows).sum(-1) if self.squares is None else self.squares

    def affine(self, center: jax.Array, scale: jax.Array) -> Self:
        return type(self)((self.rows - center[None, :]) * scale)

    def turned(self, forward: jax.Array) -> Self:
        return type(self)(jnp.matmul(self.rows, forward, precision="highest"))

    def where(self, valid: jax.Array) -> Self:
        return type(self)(jnp.where(valid[..., None], self.rows, 0.0))

    def take(self, indices: jax.Array) -> "Drawn":
        return Drawn(self.rows[indices], None if self.squares is None else self.squares[indices])

    def part(self, start: jax.Array | int, size: int) -> Self:
        return type(self)(jax.lax.dynamic_slice_in_dim(self.rows, start, size))


@struct.dataclass
class Drawn(ByRow):
    """Features f[m, d] of rows that were drawn for one step.

    XLA makes a product with one vector part of a loop that fetches every row once more, number by number. A product
    with two is one of matrices, for which rows are fetched before: a step takes half the time.
    """

    def __matmul__(self, weights: jax.Array) -> jax.Array:
        return self.rows @ weights if weights.ndim == 2 else (self.rows @ _beside_zeros(weights).T)[:, 0]

    def weighted_sum(self, weights: jax.Array) -> jax.Array:
        return weights @ self.rows if weights.ndim == 2 else (_beside_zeros(weights) @ self.rows)[0]


def _beside_zeros(vector: jax.Array) -> jax.Array:
    """f[k] -> f[2, k]."""
    return jnp.stack([vector, jnp.zeros_like(vector)])
