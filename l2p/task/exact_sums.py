"""Sums over rows that are exact: whole numbers of public units, which add up to the same in any order.

A release rests on this: what a row adds to a sum depends on that row and on public facts alone, not on how many lines
the table has, on where the row stands or on the rows beside it. Floating-point sums do not have that property, because
a compiler chooses how to add by the shape of the table. Here every operation is of one of three kinds:

- rounding and other elementwise functions, on blocks of `BLOCK` lines whatever the table's size;
- products and sums of whole numbers that stay below 2^53, so that float64 holds every partial result exactly;
- functions of public values only.

Features have `feature_bits` bits (21 up to 512 features), coefficients 20, and the 2,048 rows of a block take 11 more.
Sums of blocks are kept in two parts of 32 bits and more, so that no table is too long. docs/arithmetic.md has the
proof.

Call everything here under `jax.enable_x64(True)`; `Block.of` alone switches it on by itself.
"""

import functools
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.base.compiled import as_one
from l2p.task.feature_map import FeatureMap

#: QuantizedRows of a block: a public constant, so that the same compiled code processes a row in every table.
BLOCK = 2048
#: The same where rows are computed one at a time, in groups of so many, and a block has at most so many groups: a small
#: batch is not filled up with as many null rows, and a large one takes few sums of blocks.
GROUP, MOST_GROUPS = 64, 8
#: Bits of a coefficient, and of a number that a query sums directly.
COEFFICIENT_BITS = 20
#: Bits of a number in a vector of length 1 that coefficients are multiplied with.
DIRECTION_BITS = 21
#: The most that rounding may add to a row's contribution, as a share of the bound. A release's noise is wider by as
#: much (.003 %), so that coefficients are rounded to the nearest unit: rounded towards zero, N rows would add up to a
#: bias of N / 2 units.
MARGIN = 2.0**-15
#: Relative margin for float64 rounding in a row's length and in the quotients below, which is less than 2^-40.
SLACK = 2.0**-30
_TINY = 1e-150


def feature_bits(num_features: int) -> int:
    """Bits of a feature, such that a row's squared length in steps stays below 2^53.

    >>> feature_bits(52), feature_bits(1000)
    (21, 20)
    """
    return min(21, (53 - math.ceil(math.log2(max(num_features, 1)))) // 2 - 1)


@struct.dataclass
class Quantized:
    """Numbers steps * unit.

    Attributes:
      steps: f64[...], whole numbers below 2^53.
      unit: f64[] or as `steps`; public.
    """

    steps: jax.Array
    unit: jax.Array


@struct.dataclass
class Block(struct.Struct):
    """Rows as whole numbers. Where blocks are stacked, every array has a leading axis of blocks.

    Attributes:
      steps: f32[n, k], whole numbers of at most `feature_bits(k)` bits.
      squares: f64[n], the sum of their squares.
      y: f32[n], targets.
      counted: f32[n], 1 for a row, or less by the weight of its class; 0 for a null row.
    """

    steps: jax.Array
    squares: jax.Array
    y: jax.Array
    counted: jax.Array

    @classmethod
    def of(cls, steps: jax.Array, y: jax.Array, counted: jax.Array) -> "Block":
        with jax.enable_x64(True):
            squares = jnp.square(steps.astype(jnp.float64)).sum(-1)
        return cls(steps, squares, y, counted)


@struct.dataclass
class QuantizedRows(struct.Struct):
    """Rows with values (steps - shift) * unit, where shift and unit are public.

    Attributes:
      block: the whole numbers.
      offset: f64[k], what is subtracted, in steps.
      unit: f64[], the value of a step.
      lowest: f64[], the smallest possible step: 0 for raw rows, else -2^bits.
    """

    block: Block
    offset: jax.Array
    unit: jax.Array
    lowest: jax.Array

    @property
    def bits(self) -> int:
        """Bits of a step's absolute value."""
        return feature_bits(self.block.steps.shape[-1])

    @property
    def shift(self) -> jax.Array:
        """f64[k], whole numbers of steps; features lie in [0, 1], and so does what they are centred on."""
        return jnp.clip(jnp.rint(self.offset), -(2.0**self.bits), 2.0**self.bits)

    @property
    def y(self) -> jax.Array:
        """f64[n], targets."""
        return self.block.y.astype(jnp.float64)

    @property
    def steps(self) -> jax.Array:
        """f64[n, k]."""
        return self.block.steps.astype(jnp.float64)

    def values(self) -> jax.Array:
        """f64[n, k]."""
        return (self.steps - self.shift[None, :]) * self.unit

    def map(self, features: FeatureMap) -> "QuantizedRows":
        """The rows read through a map; with a basis the products are rounded to new steps, in units of their public
        bound.

        A map that is not finite, or whose scale is 0, turns every row into a null row.
        """
        center, scale = features.center.astype(jnp.float64), features.scale.astype(jnp.float64)
        sound = jnp.isfinite(center).all() & jnp.isfinite(scale) & (scale != 0)
        block = self.block.replace(counted=self.block.counted * sound.astype(jnp.float32))
        moved = QuantizedRows(
            block,
            self.offset + jnp.where(sound, center, 0.0) / self.unit,
            self.unit * jnp.where(sound, scale, 1.0),
            self.lowest,
        )
        if features.basis is None:
            return moved
        forward = features.basis.forward.astype(jnp.float64)
        return moved.rounded(moved.dot(forward, jnp.zeros(forward.shape[1])), moved.largest(forward))

    def largest(self, weights: jax.Array) -> jax.Array:
        """f64[], a public bound on the values of products with weights f64[k, m]."""
        reach = jnp.maximum(2.0**self.bits - self.shift, self.shift - self.lowest)
        return jnp.max(reach @ jnp.abs(weights)) * jnp.abs(self.unit) * (1.0 + SLACK)

    def rounded(self, values: jax.Array, largest: jax.Array) -> "QuantizedRows":
        """The same rows with values f64[n, m] in place of theirs, rounded to steps of `largest` f64[], public."""
        bits = feature_bits(values.shape[-1])
        unit = jnp.where(largest > 0, largest, 1.0) * 2.0**-bits
        steps = jnp.clip(_finite(jnp.rint(values / unit)), -(2.0**bits), 2.0**bits)
        block = Block.of(steps.astype(jnp.float32), self.block.y, self.block.counted)
        return QuantizedRows(block, jnp.zeros(values.shape[-1]), unit, jnp.asarray(-(2.0**bits)))

    def dot(self, weights: jax.Array, constant: jax.Array) -> jax.Array:
        """values @ weights + constant: f64[n] from weights f[k] and f[], f64[n, m] from f[k, m] and f[m].

        Weights are rounded to 2^-(30 - log2 k) of the largest, 24 bits for 64 features, so that sums are of whole
        numbers below 2^53. A release evaluates its queries at the rounded weights, which are public.
        """
        size = self.block.steps.shape[-1]
        bits = 52 - (self.bits + 1) - math.ceil(math.log2(max(size, 1)))
        scaled = weights.astype(jnp.float64) * self.unit
        constant = constant.astype(jnp.float64)
        unit = jnp.maximum(jnp.abs(scaled).max(0) * 2.0**-bits, jnp.abs(constant) * 2.0**-52)
        unit = jnp.where(unit > 0, unit, 1.0)
        weight_steps = jnp.rint(scaled / (unit if unit.ndim == 0 else unit[None, :]))
        public = jnp.rint(constant / unit) - self.shift @ weight_steps
        sums = self.steps @ weight_steps
        return (sums + public) * unit if unit.ndim == 0 else (sums + public[None, :]) * unit[None, :]

    def lengths(self, constant: float = 0.0) -> jax.Array:
        """f64[n], L2 norms of the rows, extended by one column of this constant."""
        shift = self.shift
        # Rows that are not shifted take no pass over the table: the product would be 0, and is exact.
        products = jax.lax.cond(
            jnp.any(shift != 0), jnp.matmul, lambda steps, _: jnp.zeros(steps.shape[0]), self.steps, shift
        )
        squares = self.block.squares - 2.0 * products + shift @ shift
        return jnp.sqrt(squares * jnp.square(self.unit) + constant**2)

    def weighted_sum(self, coefficients: Quantized) -> Quantized:
        """The sum of rows times coefficients [n] or [n, m]: [k] or [k, m]."""
        counted = self._counted(coefficients)
        # Rows lie one after the other: XLA reads them with a stride in a product with their transpose.
        sums = (counted.T @ self.steps).T - jnp.multiply.outer(self.shift, counted.sum(0))
        return Quantized(sums, self.unit * coefficients.unit)

    def sum(self, numbers: Quantized) -> Quantized:
        """The sum [m] or [] of numbers [n, m] or [n] over the rows that count."""
        return Quantized(self._counted(numbers).sum(0), numbers.unit)

    def _counted(self, numbers: Quantized) -> jax.Array:
        counted = self.block.counted.astype(jnp.float64)
        return weighed(numbers.steps, jnp.expand_dims(counted, tuple(range(1, numbers.steps.ndim))))


def weighed(steps: jax.Array, counted: jax.Array) -> jax.Array:
    """Quantized numbers f64[...] times the weight of their row f64[...], in [0, 1], rounded to whole numbers.

    None grows: |steps| counted is at most the whole number |steps|, and so is its rounded value. Hence no part of a row
    is longer than before. Rows that count in full are unchanged.
    """
    return jnp.rint(steps * counted)


def _finite(values: jax.Array) -> jax.Array:
    return jnp.where(jnp.isfinite(values), values, 0.0)


def quantize(x: jax.Array, y: jax.Array, mask: jax.Array) -> QuantizedRows:
    """Rows f32[n, d] in [0, 1], targets f32[n] and mask f32[n] in stacked blocks, the last filled up with null rows.

    Features are clipped to [0, 1], where declared bounds put them, and rounded to steps of 2^-bits. A row with a value
    that is not finite is a null row, and one with a positive weight counts once.
    """
    bits = feature_bits(x.shape[1])
    valid = jnp.isfinite(x).all(-1) & jnp.isfinite(y) & (mask > 0)
    steps = jnp.where(valid[:, None], jnp.rint(jnp.clip(x, 0.0, 1.0) * 2.0**bits), 0.0)
    block = _stacked(steps, jnp.where(valid, y, 0.0), valid, BLOCK)
    with jax.enable_x64(True):
        return QuantizedRows(
            block, jnp.zeros(x.shape[1], jnp.float64), jnp.asarray(2.0**-bits, jnp.float64), jnp.zeros(())
        )


def as_they_are(x: jax.Array, y: jax.Array, mask: jax.Array) -> QuantizedRows:
    """Rows as `quantize` takes them, of any numbers, which are neither clipped nor rounded: for models that compute on
    one row at a time, and round what comes out. Products of whole rows would not be exact here."""
    valid = jnp.isfinite(x).all(-1) & jnp.isfinite(y) & (mask > 0)
    block = _stacked(jnp.where(valid[:, None], x, 0.0), jnp.where(valid, y, 0.0), valid, _in_groups(len(y)))
    with jax.enable_x64(True):
        zero = jnp.zeros((), jnp.float64)
        return QuantizedRows(block, jnp.zeros(x.shape[1], jnp.float64), jnp.ones((), jnp.float64), zero)


def _in_groups(num_rows: int) -> int:
    """Rows of a block of whole groups: the fewest blocks, with as few null rows as they can have.

    >>> [(rows, _in_groups(rows)) for rows in (0, 64, 65, 512, 513)]
    [(0, 64), (64, 64), (65, 128), (512, 512), (513, 320)]
    """
    groups = max(1, -(-num_rows // GROUP))
    return GROUP * -(-groups // -(-groups // MOST_GROUPS))


def _stacked(steps: jax.Array, y: jax.Array, valid: jax.Array, size: int) -> Block:
    """Stacked blocks of `size` rows, the last filled up with null rows."""
    count, width = steps.shape
    blocks = max(1, -(-count // size))
    short = blocks * size - count
    return Block.of(
        jnp.pad(steps, ((0, short), (0, 0))).reshape(blocks, size, width).astype(jnp.float32),
        jnp.pad(y, (0, short)).reshape(blocks, size).astype(jnp.float32),
        jnp.pad(valid, (0, short)).reshape(blocks, size).astype(jnp.float32),
    )


def picked(rows: QuantizedRows, indices: jax.Array, mask: jax.Array) -> QuantizedRows:
    """The rows of these indices i32[m] in stacked blocks of their own; null rows where mask f32[m] is 0."""
    size = BLOCK if rows.block.y.shape[1] == BLOCK else _in_groups(len(indices))
    short = -len(indices) % size
    indices, mask = jnp.pad(indices, (0, short)), jnp.pad(mask, (0, short))
    blocks = len(indices) // size

    def pick(leaf: jax.Array) -> jax.Array:
        flat = leaf.reshape(-1, *leaf.shape[2:])
        return flat[indices].reshape(blocks, size, *leaf.shape[2:])

    block = jax.tree.map(pick, rows.block)
    return rows.replace(block=block.replace(counted=block.counted * mask.reshape(blocks, size)))


def mapped(rows: QuantizedRows, features: FeatureMap) -> QuantizedRows:
    """Stacked blocks read through a map, block by block."""
    if features.basis is None:
        return rows.map(features)
    public = rows.replace(block=jax.tree.map(lambda leaf: leaf[0], rows.block)).map(features)
    blocks = jax.lax.map(lambda block: rows.replace(block=block).map(features).block, rows.block)
    return public.replace(block=blocks)


def coefficients(
    vectors: jax.Array, norms: jax.Array, factor: jax.Array, largest: jax.Array, unit: jax.Array
) -> Quantized:
    """Every row's vector times its factor in whole units, of L2 norm at most (1 + MARGIN) `largest`.

    Rounding to the nearest unit lengthens a vector of m numbers by at most sqrt(m) / 2 units. Where that and the
    float64 error of the norms exceed the margin, the vector is shortened first.

    Args:
      vectors: f64[n] or f64[n, m].
      norms: f64[n], their L2 norms.
      factor: f64[n], what they are multiplied by, at least 0.
      largest: f64[n], the largest norm, up to the margin.
      unit: f64[], public.
    """
    size = 1 if vectors.ndim == 1 else vectors.shape[1]
    factor = jnp.minimum(factor, room(largest, 0.5 * size**0.5 * unit) / jnp.maximum(norms, _TINY))
    return numbers(vectors * (factor if vectors.ndim == 1 else factor[:, None]), unit)


def room(largest: jax.Array, rounded: jax.Array) -> jax.Array:
    """The longest a vector may be so that, after rounding adds `rounded`, it stays within the margin of `largest`."""
    return jnp.maximum(largest * (1.0 + MARGIN - SLACK) - rounded, 0.0)


def numbers(values: jax.Array, unit: jax.Array, bits: int = COEFFICIENT_BITS) -> Quantized:
    """Values f64[...] in whole units, at most 2^bits of them; one that is not finite counts as 0."""
    most = 2.0**bits
    return Quantized(jnp.clip(_finite(jnp.rint(values / unit)), -most, most), unit)


def joined(*parts: Quantized) -> Quantized:
    """Sums of any shapes as one vector."""
    steps = [jnp.ravel(part.steps) for part in parts]
    units = [jnp.ravel(jnp.broadcast_to(part.unit, part.steps.shape)) for part in parts]
    return Quantized(jnp.concatenate(steps), jnp.concatenate(units))


def row_by_row(function: Callable[[jax.Array, jax.Array], jax.Array], rows: QuantizedRows) -> jax.Array:
    """function(x f32[1, k], y f32[1]) of one row at a time, stacked: slow, but independent of the other rows."""
    x = rows.values().astype(jnp.float32)
    return jax.lax.map(lambda row: function(row[0][None, :], row[1][None]), (x, rows.block.y))


@struct.dataclass
class ExactSum:
    """A sum over any number of blocks, exact: (high * 2^32 + low) * unit.

    Attributes:
      high, low: f64[k], whole numbers.
      unit: f64[k], public.
    """

    high: jax.Array
    low: jax.Array
    unit: jax.Array

    @staticmethod
    @functools.partial(as_one, static=("size",))
    def empty(size: int) -> "ExactSum":
        """The sum of no rows."""
        zero = jnp.zeros(size, jnp.float64)
        return ExactSum(zero, zero, jnp.ones(size, jnp.float64))

    def plus(self, block: Quantized) -> "ExactSum":
        """This sum plus a block's sum [k], which has the same unit."""
        high = jnp.floor(block.steps * 2.0**-32)
        unit = jnp.broadcast_to(block.unit, block.steps.shape)
        return ExactSum(self.high + high, self.low + (block.steps - high * 2.0**32), unit)

    @property
    def steps(self) -> jax.Array:
        """f64[k], rounded to 53 bits."""
        return self.high * 2.0**32 + self.low

    @property
    @as_one
    def value(self) -> jax.Array:
        """f64[k], rounded to 53 bits."""
        return self.steps * self.unit


def dtype_of(aggregate: jax.Array | ExactSum) -> jnp.dtype:
    """The type of the value of an aggregate."""
    return aggregate.unit.dtype if isinstance(aggregate, ExactSum) else aggregate.dtype


def value_of(aggregate: jax.Array | ExactSum) -> jax.Array:
    """The value f[k] of an aggregate that was summed in floating point or exactly."""
    return aggregate.value if isinstance(aggregate, ExactSum) else aggregate
