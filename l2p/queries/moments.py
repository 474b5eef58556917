"""Second moments of rows, their products with targets and classes, and the least eigenvalue, as least squares needs
them."""

import dataclasses
import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base import struct
from l2p.models import INTERCEPT_COLUMN
from l2p.privacy.events import Adjacency
from l2p.queries.base import Query, limit_norm, positive, within
from l2p.queries.gradient import MAX_BOUNDS, rounding
from l2p.queries.shrunk import shrunk
from l2p.task.exact_sums import (
    COEFFICIENT_BITS,
    MARGIN,
    ExactSum,
    Quantized,
    QuantizedRows,
    coefficients,
    joined,
    numbers,
    value_of,
    weighed,
)
from l2p.task.feature_map import FeatureMap
from l2p.task.noise import Noise
from l2p.task.rows import Rows


def folded(matrix: jax.Array) -> jax.Array:
    """A symmetric matrix f[..., p, p] as a vector f[..., p(p+1)/2] of the same norm: its upper triangle.

    >>> print(folded(jnp.array([[1.0, 3.0], [3.0, 2.0]])))
    [1.        4.2426405 2.       ]
    """
    row, column = np.triu_indices(matrix.shape[-1])
    weight = jnp.asarray(np.where(row == column, 1.0, math.sqrt(2.0)), matrix.dtype)
    return matrix[..., row, column] * jnp.broadcast_to(weight, (*matrix.shape[:-2], weight.shape[0]))


def unfolded(vector: jax.Array, size: int) -> jax.Array:
    """The matrix f[size, size] that `folded` folded."""
    row, column = np.triu_indices(size)
    weight = jnp.asarray(np.where(row == column, 1.0, math.sqrt(0.5)), vector.dtype)
    upper = jnp.zeros((size, size), vector.dtype).at[row, column].set(vector * weight)
    return upper + jnp.triu(upper, 1).T


def noise_radius(multiplier: jax.Array, bound: jax.Array, size: int, adjacency: Adjacency) -> jax.Array:
    """Spectral radius f32[] of the noise on a `folded` symmetric matrix f32[size, size].

    Its entries have deviation s on the diagonal and s / sqrt(2) off it: a Gaussian orthogonal ensemble, whose radius is
    s sqrt(2 size).
    """
    return multiplier * bound * adjacency.sensitivity_factor * (2.0 * size) ** 0.5


def exact_moment(
    rows: QuantizedRows, norm_bound: jax.Array, constant: float = 0.0, stretch: jax.Array | None = None
) -> Quantized:
    """`folded` sum of z z' over a block's rows z, extended by a constant column, times their `stretch` f64[n], at least
    0, where there is one, and shrunk to `norm_bound`.

    Shrunk rows are rounded to whole units, so that their products are whole numbers; with a third of the margin each,
    their products stay within it. Folding is part of the public units.
    """
    values = rows.values()
    if constant:
        values = jnp.column_stack([values, jnp.full(len(values), constant)])
    lengths = rows.lengths(constant)
    if stretch is not None:
        values, lengths = values * stretch[:, None], lengths * stretch
    size, norm_bound = values.shape[1], norm_bound.astype(jnp.float64)
    unit = norm_bound * 2.0**-COEFFICIENT_BITS
    longest = norm_bound * (1.0 + MARGIN / 3.0) - 0.5 * size**0.5 * unit
    factor = jnp.minimum(1.0, jnp.minimum(norm_bound, longest) / jnp.maximum(lengths, 1e-150))
    # The root of what a row counts, for it enters twice.
    counted = jnp.sqrt(rows.block.counted.astype(jnp.float64))[:, None]
    short = weighed(numbers(values * factor[:, None], unit).steps, counted)
    row, column = np.triu_indices(size)
    weight = jnp.asarray(np.where(row == column, 1.0, math.sqrt(2.0)))
    return Quantized((short.T @ short)[row, column], jnp.square(unit) * weight)


@struct.dataclass
class SecondMoment(Query):
    """Sum of x x' over rows x with their intercept column, each shrunk to `norm_bound`, with Gaussian noise; `folded`.

    The norm of x x' is the squared norm of x, so limiting x limits x x'. Folding keeps norms, so equal noise on every
    entry is noise of that deviation on the diagonal and of 1 / sqrt(2) of it elsewhere, symmetric.

    Attributes:
      num_features: d (static).
      norm_bound: f32[], L2 bound on a row with its intercept column; above 0.
      noise_multiplier: f32[], noise standard deviation over the sensitivity.
      features: the map that rows are read through before the column is added; None reads them as they are.
    """

    num_features: int = struct.field(pytree_node=False)
    norm_bound: jax.Array
    noise_multiplier: jax.Array
    features: FeatureMap | None = None
    name: ClassVar[str] = "second_moment"
    mechanism: ClassVar[str] = "gaussian"
    is_plain_sum: ClassVar[bool] = True

    @property
    def bound(self) -> jax.Array:
        return within(jnp.square(self.norm_bound), positive(self.norm_bound))

    def contributions(self, rows: Rows) -> jax.Array:
        x = self._mapped(rows).x
        design = jnp.column_stack([x, jnp.full_like(rows.y, INTERCEPT_COLUMN)])
        return folded(design[:, :, None] * design[:, None, :])

    def empty(self) -> jax.Array:
        size = self.num_features + 1
        return jnp.zeros(size * (size + 1) // 2, jnp.float32)

    def add(self, aggregate: jax.Array, rows: Rows) -> jax.Array:
        design, _ = shrunk(self._mapped(rows), self.norm_bound)
        return aggregate + folded((design.T * rows.mask[None, :]) @ design)

    def exact(self, rows: QuantizedRows) -> Quantized:
        mapped = rows if self.features is None else rows.map(self.features)
        return exact_moment(mapped, self.norm_bound, INTERCEPT_COLUMN)

    def _mapped(self, rows: Rows) -> Rows:
        return rows if self.features is None else dataclasses.replace(rows, x=self.features.apply(rows.x))


@struct.dataclass
class Covariance(Query):
    """Sum of z z' over mapped rows z, each shrunk to `norm_bound`, with Gaussian noise; `folded`.

    If the map centres rows on their mean, this is a covariance. Prices and noise are as for `SecondMoment`.

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
    is_plain_sum: ClassVar[bool] = True
    weighed: ClassVar[bool] = False

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

    def exact(self, rows: QuantizedRows) -> Quantized:
        return exact_moment(rows.map(self.features), self.norm_bound)


@struct.dataclass
class LeastEigenvalue(Query):
    """The least eigenvalue of a second moment, with Gaussian noise: f32[1].

    An eigenvalue of a symmetric matrix moves by no more than the matrix does, in the norm of Frobenius (Weyl), and
    neither does that of a matrix shortened to a length. The matrix is shortened to 2^30 bounds, which no table reaches,
    so the float64 error of an eigenvalue is limited in bounds, too (see `rounding`; eight times that of a norm is
    used).

    Attributes:
      moment: the query whose aggregate is measured; its own noise is not added.
      noise_multiplier: f32[], noise standard deviation over the sensitivity.
    """

    moment: SecondMoment
    noise_multiplier: jax.Array
    name: ClassVar[str] = "least_eigenvalue"
    mechanism: ClassVar[str] = "gaussian"

    @property
    def bound(self) -> jax.Array:
        return self.moment.bound * (1.0 + 8.0 * rounding(self.moment.num_features + 1))

    def contributions(self, rows: Rows) -> jax.Array:
        return self.moment.contributions(rows)

    def limit(self, contributions: jax.Array) -> jax.Array:
        return self.moment.limit(contributions)

    def empty(self) -> jax.Array:
        return self.moment.empty()

    def add(self, aggregate: jax.Array, rows: Rows) -> jax.Array:
        return self.moment.add(aggregate, rows)

    def exact(self, rows: QuantizedRows) -> Quantized:
        return self.moment.exact(rows)

    def release(self, aggregate: jax.Array | ExactSum, noise: Noise, adjacency: Adjacency) -> jax.Array:
        total = value_of(aggregate)
        short = jnp.minimum(1.0, MAX_BOUNDS * self.moment.bound / jnp.maximum(jnp.linalg.norm(total), 1e-30))
        least = jnp.linalg.eigvalsh(unfolded(total * short, self.moment.num_features + 1))[:1]
        return super().release(noise.on_grid(least), noise, adjacency)


@struct.dataclass
class CrossMoment(Query):
    """Sum of y x over rows x with their intercept column, each shrunk to `norm_bound`, and targets y, with Gaussian
    noise. Targets are clipped to [0, 1]; `signed`, they are then read as 2 y - 1. |y| is at most 1 either way.

    Attributes:
      num_features: d (static).
      norm_bound: f32[], L2 bound on a row with its intercept column; above 0.
      noise_multiplier: f32[], noise standard deviation over the sensitivity.
      signed: whether targets 0 and 1 are two classes, read as -1 and 1 (static).
    """

    num_features: int = struct.field(pytree_node=False)
    norm_bound: jax.Array
    noise_multiplier: jax.Array
    signed: bool = struct.field(pytree_node=False, default=False)
    name: ClassVar[str] = "cross_moment"
    mechanism: ClassVar[str] = "gaussian"
    is_plain_sum: ClassVar[bool] = True

    @property
    def bound(self) -> jax.Array:
        return within(self.norm_bound, positive(self.norm_bound))

    def contributions(self, rows: Rows) -> jax.Array:
        # Shrunk as in the second moment, before multiplication by the target makes them shorter.
        design, targets = shrunk(rows, self.norm_bound)
        return (2.0 * targets - 1.0 if self.signed else targets)[:, None] * design

    def exact(self, rows: QuantizedRows) -> Quantized:
        targets, lengths = jnp.clip(rows.y, 0.0, 1.0), rows.lengths(INTERCEPT_COLUMN)
        targets = 2.0 * targets - 1.0 if self.signed else targets
        largest, unit = self.bound.astype(jnp.float64) / lengths, jnp.asarray(2.0**-COEFFICIENT_BITS)
        weights = coefficients(targets, jnp.abs(targets), jnp.minimum(1.0, largest), largest, unit)
        intercept = rows.sum(weights)
        return joined(rows.weighted_sum(weights), Quantized(intercept.steps, intercept.unit * INTERCEPT_COLUMN))

    def empty(self) -> jax.Array:
        return jnp.zeros(self.num_features + 1, jnp.float32)


@struct.dataclass
class ClassMoment(Query):
    """Sum of e(y) x over rows x with their intercept column, each shrunk to `norm_bound`, and classes y, with Gaussian
    noise: what least squares on one-hot targets needs, as a flat (d + 1) x K matrix.

    e(y) has a 1 in the column of the row's class, so a contribution is as long as the row. A label outside the classes
    counts as no class.

    Attributes:
      num_features: d (static).
      num_classes: K (static); at least 2.
      norm_bound: f32[], L2 bound on a row with its intercept column; above 0.
      noise_multiplier: f32[], noise standard deviation over the sensitivity.
    """

    num_features: int = struct.field(pytree_node=False)
    num_classes: int = struct.field(pytree_node=False)
    norm_bound: jax.Array
    noise_multiplier: jax.Array
    name: ClassVar[str] = "class_moment"
    mechanism: ClassVar[str] = "gaussian"
    is_plain_sum: ClassVar[bool] = True

    @property
    def bound(self) -> jax.Array:
        return within(self.norm_bound, positive(self.norm_bound))

    def contributions(self, rows: Rows) -> jax.Array:
        design = jnp.column_stack([rows.x, jnp.full_like(rows.y, INTERCEPT_COLUMN)])
        return jnp.where(self._of(rows.y)[:, None, :], design[:, :, None], 0.0).reshape(design.shape[0], -1)

    def empty(self) -> jax.Array:
        return jnp.zeros((self.num_features + 1) * self.num_classes, jnp.float32)

    def add(self, aggregate: jax.Array, rows: Rows) -> jax.Array:
        design, _ = shrunk(rows, self.norm_bound)
        return aggregate + ((design.T * rows.mask[None, :]) @ self._of(rows.y).astype(design.dtype)).ravel()

    def exact(self, rows: QuantizedRows) -> Quantized:
        lengths = rows.lengths(INTERCEPT_COLUMN)
        ones, largest = jnp.ones_like(lengths), self.bound.astype(jnp.float64) / lengths
        factor = coefficients(ones, ones, jnp.minimum(1.0, largest), largest, jnp.asarray(2.0**-COEFFICIENT_BITS))
        weights = Quantized(jnp.where(self._of(rows.y), factor.steps[:, None], 0.0), factor.unit)
        intercepts = rows.sum(weights)
        return joined(rows.weighted_sum(weights), Quantized(intercepts.steps, intercepts.unit * INTERCEPT_COLUMN))

    def _of(self, y: jax.Array) -> jax.Array:
        """One-hot classes: f[n] -> bool[n, K]."""
        if self.num_classes < 2:
            raise ValueError(f"{self.num_classes} classes leave nothing to tell apart; declare at least two.")
        return y[:, None] == jnp.arange(self.num_classes)[None, :]
