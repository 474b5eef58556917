"""Second moments of rows, their product with targets, and the least eigenvalue: all that least squares needs."""

import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from l2p import struct
from l2p.features import FeatureMap
from l2p.models import INTERCEPT_COLUMN
from l2p.privacy.events import Adjacency
from l2p.privacy.noise import Noise
from l2p.queries.base import Query, limit_norm, positive, within
from l2p.queries.shrunk import shrunk
from l2p.task import Rows


def folded(matrix: jax.Array) -> jax.Array:
    """A symmetric matrix f[..., p, p] as a vector f[..., p(p+1)/2] of the same norm: its upper triangle.

    >>> print(folded(jnp.array([[1.0, 3.0], [3.0, 2.0]])))
    [1.        4.2426405 2.       ]
    """
    row, column = np.triu_indices(matrix.shape[-1])
    weight = jnp.asarray(np.where(row == column, 1.0, math.sqrt(2.0)), matrix.dtype)
    return matrix[..., row, column] * jnp.broadcast_to(weight, (*matrix.shape[:-2], weight.shape[0]))


def unfolded(vector: jax.Array, size: int) -> jax.Array:
    """The matrix f[size, size] that `folded` was given."""
    row, column = np.triu_indices(size)
    weight = jnp.asarray(np.where(row == column, 1.0, math.sqrt(0.5)), vector.dtype)
    upper = jnp.zeros((size, size), vector.dtype).at[row, column].set(vector * weight)
    return upper + jnp.triu(upper, 1).T


@struct.dataclass
class SecondMoment(Query):
    """Sum of x x' over rows x with their intercept column, each shrunk to `norm_bound`, with Gaussian noise; `folded`.

    The norm of x x' is that of x squared, so limiting the one shrinks the other. Folding keeps norms, so equal noise on
    every entry is noise of that deviation on the diagonal and of 1 / sqrt(2) of it elsewhere, symmetric.

    Attributes:
      num_features: d (static).
      norm_bound: f32[], L2 bound on a row with its intercept column; above 0.
      noise_multiplier: f32[], noise standard deviation over the sensitivity.
    """

    num_features: int = struct.field(pytree_node=False)
    norm_bound: jax.Array
    noise_multiplier: jax.Array
    name: ClassVar[str] = "second_moment"
    mechanism: ClassVar[str] = "gaussian"

    @property
    def bound(self) -> jax.Array:
        return within(jnp.square(self.norm_bound), positive(self.norm_bound))

    def contributions(self, rows: Rows) -> jax.Array:
        lines = jnp.column_stack([rows.x, jnp.full_like(rows.y, INTERCEPT_COLUMN)])
        return folded(lines[:, :, None] * lines[:, None, :])

    def empty(self) -> jax.Array:
        size = self.num_features + 1
        return jnp.zeros(size * (size + 1) // 2, jnp.float32)

    def add(self, aggregate: jax.Array, rows: Rows) -> jax.Array:
        lines, _ = shrunk(rows, self.norm_bound)
        return aggregate + folded((lines.T * rows.mask[None, :]) @ lines)


@struct.dataclass
class Covariance(Query):
    """Sum of z z' over mapped rows z, each shrunk to `norm_bound`, with Gaussian noise; `folded`.

    Where the map centres rows on their mean, a covariance. Prices and noise are as for `SecondMoment`.

    Attributes:
      features: the map that rows are read through.
      norm_bound: f32[], L2 bound on a mapped row; above 0.
      noise_multiplier: f32[], noise standard deviation over the sensitivity.
    """

    features: FeatureMap
    norm_bound: jax.Array
    noise_multiplier: jax.Array
    name: ClassVar[str] = "covariance"
    mechanism: ClassVar[str] = "gaussian"

    @property
    def bound(self) -> jax.Array:
        return within(jnp.square(self.norm_bound), positive(self.norm_bound))

    def contributions(self, rows: Rows) -> jax.Array:
        mapped = self.features.apply(rows.x)
        return folded(mapped[:, :, None] * mapped[:, None, :])

    def empty(self) -> jax.Array:
        size = self.features.center.shape[0]
        return jnp.zeros(size * (size + 1) // 2, jnp.float32)

    def add(self, aggregate: jax.Array, rows: Rows) -> jax.Array:
        mapped = limit_norm(self.features.apply(rows.x), self.norm_bound)
        return aggregate + folded((mapped.T * rows.mask[None, :]) @ mapped)


@struct.dataclass
class LeastEigenvalue(Query):
    """The least eigenvalue of a second moment, with Gaussian noise: f32[1].

    An eigenvalue of a symmetric matrix moves by no more than the matrix does, in the norm of Frobenius (Weyl).

    Attributes:
      moment: whose aggregate is measured; its own noise is not added.
      noise_multiplier: f32[], noise standard deviation over the sensitivity.
    """

    moment: SecondMoment
    noise_multiplier: jax.Array
    name: ClassVar[str] = "least_eigenvalue"
    mechanism: ClassVar[str] = "gaussian"

    @property
    def bound(self) -> jax.Array:
        # A float64 eigenvalue errs by some 2^-53 of the matrix, whose norm is at most N bounds: far less, below 2^30.
        return self.moment.bound * (1.0 + 2.0**-20)

    def contributions(self, rows: Rows) -> jax.Array:
        return self.moment.contributions(rows)

    def limit(self, contributions: jax.Array) -> jax.Array:
        return self.moment.limit(contributions)

    def empty(self) -> jax.Array:
        return self.moment.empty()

    def add(self, aggregate: jax.Array, rows: Rows) -> jax.Array:
        return self.moment.add(aggregate, rows)

    def release(self, aggregate: jax.Array, noise: Noise, adjacency: Adjacency) -> jax.Array:
        least = jnp.linalg.eigvalsh(unfolded(aggregate, self.moment.num_features + 1))[:1]
        return super().release(least, noise, adjacency)


@struct.dataclass
class CrossMoment(Query):
    """Sum of y x over rows x with their intercept column, each shrunk to `norm_bound`, and targets y in [0, 1], with
    Gaussian noise.

    Attributes:
      num_features: d (static).
      norm_bound: f32[], L2 bound on a row with its intercept column; above 0.
      noise_multiplier: f32[], noise standard deviation over the sensitivity.
    """

    num_features: int = struct.field(pytree_node=False)
    norm_bound: jax.Array
    noise_multiplier: jax.Array
    name: ClassVar[str] = "cross_moment"
    mechanism: ClassVar[str] = "gaussian"

    @property
    def bound(self) -> jax.Array:
        return within(self.norm_bound, positive(self.norm_bound))

    def contributions(self, rows: Rows) -> jax.Array:
        # Shrunk as in the second moment, and not after the target has made them shorter.
        lines, targets = shrunk(rows, self.norm_bound)
        return targets[:, None] * lines

    def empty(self) -> jax.Array:
        return jnp.zeros(self.num_features + 1, jnp.float32)
