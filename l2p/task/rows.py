"""Rows in memory: scaled, masked, mapped, cut into blocks."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.base.compiled import as_one
from l2p.task.feature_map import FeatureMap, squared_lengths
from l2p.task.table import ByFeature, ByRow, Table

#: Rows of a block whose products with several vectors of weights stay in a core's cache.
BLOCK = 2048


@struct.dataclass
class Rows(struct.Struct):
    """A block of rows.

    Attributes:
      x: f32[n, d], features scaled to [0, 1] by declared bounds; a `Table` stands in for the array where products
        with it are faster.
      y: f32[n], targets: classes 0 to K - 1, or values scaled to [0, 1] by declared bounds.
      mask: f32[n], 1 for a row, 0 for a null row (padding, or an invalid row counted as null). Simulations on
        public rows may use other weights: a weight of w stands for w copies of the row.
      squares: f32[n], the squared norms of the rows as they are read, through a map if there is one; None where they
        are not known yet.
    """

    x: jax.Array
    y: jax.Array
    mask: jax.Array
    squares: jax.Array | None = None

    def squared_norms(self, features: FeatureMap) -> jax.Array:
        """Squared norms f32[n] of rows read through a map: `squares`, where they are known."""
        return features.squared_norms(self.x) if self.squares is None else self.squares

    def ready(self, full_passes: bool) -> "Rows":
        """The rows f32[..., n, d] as runs read them: invalid ones null and, where a run reads all of them at each step,
        feature by feature, unless a cache holds them. They are made once for all runs on this object, where its arrays
        cannot change."""
        ready = vars(self).setdefault("_ready", {})
        if full_passes not in ready:
            rows = _ready(self, full_passes and self.x.shape[-2] >= BLOCK)
            if not all(map(_is_constant, jax.tree.leaves((self, rows)))):
                return rows
            ready[full_passes] = rows
        return ready[full_passes]

    def take(self, indices: jax.Array) -> "Rows":
        """The rows of these indices i32[m]."""
        x = self.x if isinstance(self.x, Table) else ByRow(self.x)
        return Rows(x.take(indices), *jax.tree.map(lambda leaf: leaf[indices], (self.y, self.mask, self.squares)))  # pyrefly: ignore[bad-argument-type]

    def __repr__(self) -> str:
        # Errors and tracebacks print it, and must show neither rows nor their number.
        return "Rows(not shown)"


def _is_constant(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and not isinstance(leaf, jax.core.Tracer)


@functools.partial(as_one, static=("turn",))
def _ready(rows: Rows, turn: bool) -> Rows:
    rows = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), rows)
    if not isinstance(rows.x, Table):
        rows = rows.replace(x=ByFeature.of(rows.x) if turn else ByRow(rows.x))
    rows = null_invalid(rows)
    return rows.replace(x=rows.x.replace(squares=squared_lengths(rows.x)))  # pyrefly: ignore[missing-attribute]


def null_invalid(rows: Rows) -> Rows:
    """Rows with a value that is not finite become null rows: they contribute nothing, before any clipping. Rows that
    are ready have none."""
    return rows if isinstance(rows.x, Table) and rows.x.squares is not None else _null_invalid(rows)


@as_one
def _null_invalid(rows: Rows) -> Rows:
    valid = jnp.isfinite(rows.x.mT).all(-2) & jnp.isfinite(rows.y) & jnp.isfinite(rows.mask)
    x = rows.x.where(valid) if isinstance(rows.x, Table) else jnp.where(valid[..., None], rows.x, 0.0)
    return Rows(x, jnp.where(valid, rows.y, 0.0), jnp.where(valid, rows.mask, 0.0))  # pyrefly: ignore[bad-argument-type]


def mapped(rows: Rows, view: FeatureMap) -> Rows:
    """Rows read through a map; one that overflows becomes a null row."""
    return null_invalid(dataclasses.replace(rows, x=view.apply(rows.x)))


def mapped_as_constants(rows: Rows, view: FeatureMap) -> tuple[Rows, FeatureMap]:
    """Rows that were read through a map, as constants but for their squared norms, and what they are still to be read
    through, which is the identity and has the map's derivative.

    A derivative in all entries of a mapped table would be added up at each step of a run, which may take as long as all
    other work of a meta-gradient; a map is smaller than a table.
    """
    mapped_rows = mapped(rows, view)
    constant = dataclasses.replace(
        mapped_rows, x=jax.lax.stop_gradient(mapped_rows.x), squares=squared_lengths(mapped_rows.x)
    )
    return constant, view.remaining_map()


def in_blocks(rows: Rows, block: int) -> Rows:
    """The rows with a leading axis of blocks of at most `block`, the last padded with null rows.

    >>> rows = Rows(jnp.ones((5, 2)), jnp.ones(5), jnp.ones(5))
    >>> in_blocks(rows, 2).mask.tolist()
    [[1.0, 1.0], [1.0, 1.0], [1.0, 0.0]]
    """
    block = min(block, max(1, rows.y.shape[0]))
    count = -(-rows.y.shape[0] // block)

    def split(leaf: jax.Array) -> jax.Array:
        padded = jnp.pad(leaf, [(0, count * block - leaf.shape[0])] + [(0, 0)] * (leaf.ndim - 1))
        return padded.reshape(count, block, *leaf.shape[1:])

    return jax.tree.map(split, rows)


def sum_in_blocks(function: Callable[[Rows], jax.Array], rows: Rows, block: int = BLOCK) -> jax.Array:
    """The sum of `function(part)` f[k] over parts of at most `block` rows, one after the other.

    >>> rows = Rows(jnp.ones((5, 2)), jnp.ones(5), jnp.arange(5.0))
    >>> print(sum_in_blocks(lambda part: part.mask @ part.x, rows, 2))
    [10. 10.]
    """
    count = rows.y.shape[0] // block
    if count == 0 or rows.y.shape[0] == block:
        return function(rows)

    def add(total: jax.Array, start: jax.Array) -> tuple[jax.Array, None]:
        return total + function(cut(rows, start, block)), None

    shape = jax.eval_shape(function, cut(rows, 0, block))
    total, _ = jax.lax.scan(add, jnp.zeros(shape.shape, shape.dtype), block * jnp.arange(count))
    short = rows.y.shape[0] - count * block
    return total + function(cut(rows, count * block, short)) if short else total


def cut(rows: Rows, start: jax.Array | int, size: int) -> Rows:
    """`size` rows from `start` on."""

    def part(leaf: jax.Array) -> jax.Array:
        return jax.lax.dynamic_slice_in_dim(leaf, start, size)

    x = rows.x.part(start, size) if isinstance(rows.x, Table) else part(rows.x)
    return Rows(x, *jax.tree.map(part, (rows.y, rows.mask, rows.squares)))  # pyrefly: ignore[bad-argument-type]
