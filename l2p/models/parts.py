"""Gradients of rows in two factors, by array: their lengths and their sums, without forming what is larger than both.

The gradient of a dense layer's weights is the outer product of its input and the loss's derivative in its output, that
of an embedding the derivative at the lines that were looked up. Lengths of such products come from their factors (ghost
norms, Goodfellow 2015), and a sum over rows of scaled products is one product of matrices (Bu et al. 2023).
"""

import abc
import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from l2p.task.exact_sums import COEFFICIENT_BITS, DIRECTION_BITS, Quantized, joined, numbers, room, weighed

#: Norms below this are not clipped: dividing by them would overflow in a meta-gradient.
MIN_NORM = 1e-12
#: From the L2 norms of gradients to what each is multiplied by.
Factor = Callable[[Float[Array, " rows"]], Float[Array, " rows"]]
#: By array, the share of a clipping norm that its gradient may have where each is limited by itself; None limits all of
#: them as one vector. Their squares sum to 1, so that a row adds no more in either way: a `Factor` that keeps
#: length * factor(length) within a bound keeps length * factor(length / share) within that share of it.
Shares = Sequence[float] | None
#: Floats of per-row gradients held at a time: 16 MiB.
GRADIENT_FLOATS = 2**22
#: Rows of which a release holds gradients at a time: at least two, for what `computed_once` says of loops.
FEWEST_ROWS, MOST_ROWS = 2, 64
_TINY = 1e-150


class Part(NamedTuple):
    """The gradient of one array in its factors.

    Attributes:
      fixed: activations f[T, k] at T places, lines i32[T] of a table, or None; not scaled.
      vectors: derivatives f[T, m], or the gradient itself; linear in the gradient.
    """

    fixed: Any
    vectors: jax.Array


@dataclasses.dataclass(frozen=True, eq=False)
class Form(abc.ABC):
    """How the gradient of an array lies in a `Part`.

    Attributes:
      shape: of the array.
      moved: a function that moves each number of the array to one place of what a `Part` is about.
    """

    shape: tuple[int, ...]
    moved: Callable[[jax.Array], jax.Array]
    #: The most that rounding makes of a unit length of what is fixed.
    reach = 1.0
    #: Bits of whole numbers in what is fixed.
    bits = 0

    @abc.abstractmethod
    def square(self, part: Part) -> jax.Array:
        """The squared length f[] of a row's gradient."""

    @abc.abstractmethod
    def moved_sum(self, parts: Part, weights: jax.Array) -> jax.Array:
        """The sum over stacked rows, of the shape of `moved`."""

    def weighted_sum(self, parts: Part, weights: jax.Array) -> jax.Array:
        """The sum f[shape] of the gradients of stacked rows, times weights f[n]."""
        array = jax.ShapeDtypeStruct(self.shape, parts.vectors.dtype)
        return jax.linear_transpose(self.moved, array)(self.moved_sum(parts, weights))[0]

    def rounded(self, part: Part) -> Part:
        """The part of a row in float64, what is fixed in whole numbers that are at most `reach` * 2^bits long, and
        vectors as long as the gradient."""
        return part._replace(vectors=part.vectors.astype(jnp.float64))


class Whole(Form):
    """The gradient itself."""

    @classmethod
    def of(cls, array: jax.Array | jax.ShapeDtypeStruct) -> "Whole":
        return cls(array.shape, lambda numbers: numbers)

    def square(self, part: Part) -> jax.Array:
        return jnp.square(part.vectors).sum()

    def moved_sum(self, parts: Part, weights: jax.Array) -> jax.Array:
        return jnp.tensordot(weights, parts.vectors, 1, precision="highest")


@dataclasses.dataclass(frozen=True, eq=False)
class Product(Form):
    """The sum over T places of outer products of activations f[T, k] and derivatives f[T, m].

    Attributes:
      sizes: k and m.
      axes: the shape of the weights, axes of inputs first, and the permutation that puts them in their order.
    """

    sizes: tuple[int, int]
    axes: tuple[tuple[int, ...], tuple[int, ...]]
    bits = DIRECTION_BITS

    @property
    def reach(self) -> float:  # type: ignore[override]
        return 1.0 + 2.0**-30 + 0.5 * self.sizes[0] ** 0.5 * 2.0**-self.bits

    def square(self, part: Part) -> jax.Array:
        # Activations as small, and derivatives as large, as float32 allows would lose their squares.
        scale = _power_of_two(jnp.abs(part.fixed).max(1, keepdims=True, initial=0.0))
        fixed, vectors = part.fixed / scale, part.vectors * scale
        squares = jnp.square(fixed).sum(1) * jnp.square(vectors).sum(1)
        if len(squares) == 1:
            return squares.sum()
        products = _matmul(fixed, fixed.T) * _matmul(vectors, vectors.T)
        # Places may cancel, all but what rounding makes of them, which is at most this much.
        rounding = (sum(self.sizes) + 2 * len(squares)) * len(squares) * jnp.finfo(jnp.float32).epsneg
        return products.sum() + rounding * squares.sum()

    def moved_sum(self, parts: Part, weights: jax.Array) -> jax.Array:
        (inputs, outputs), (shape, order) = self.sizes, self.axes
        vectors, activations = weights[:, None, None] * parts.vectors, parts.fixed.reshape(-1, inputs).T
        if activations.dtype == jnp.float64:  # whose product XLA takes twice as long for where they lie the other way
            activations = jax.lax.optimization_barrier(activations)
        total = _matmul(activations, vectors.reshape(-1, outputs))
        return total.reshape(shape).transpose(order)

    def rounded(self, part: Part) -> Part:
        (activations,), vectors = part.fixed.astype(jnp.float64), part.vectors.astype(jnp.float64)
        length = jnp.sqrt(jnp.square(activations).sum())
        direction = numbers(activations / jnp.maximum(length, _TINY), jnp.asarray(2.0**-self.bits), self.bits)
        return Part(direction.steps[None], length * vectors)


@dataclasses.dataclass(frozen=True, eq=False)
class Lookup(Form):
    """Derivatives f[T, m] at T lines of a table, no line twice; lines beyond the table count for nothing.

    Attributes:
      lines: of the table.
    """

    lines: int

    def square(self, part: Part) -> jax.Array:
        return jnp.square(part.vectors).sum()

    def moved_sum(self, parts: Part, weights: jax.Array) -> jax.Array:
        vectors = weights[:, None, None] * parts.vectors
        table = jax.eval_shape(self.moved, jax.ShapeDtypeStruct(self.shape, vectors.dtype))
        in_lines = vectors.reshape(*parts.fixed.shape, *table.shape[1:])
        return jnp.zeros(table.shape, table.dtype).at[parts.fixed].add(in_lines, mode="drop")


def computed_once(parts_of: Callable[[jax.Array], Sequence[Part]], rows: jax.Array) -> Sequence[Part]:
    """Parts of stacked rows [n, k], which are the same numbers for a row's length as for its sum.

    A compiler that fuses the two with what computes a row's numbers computes these twice, and float32 may then round
    them differently: where numbers cancel, by as much as they are. What a loop wrote is read by what comes after as it
    is. There are two turns, because of a loop of one a compiler makes none.
    """
    half = -(-len(rows) // 2)
    turns = jnp.pad(rows, ((0, 2 * half - len(rows)), (0, 0))).reshape(2, half, -1)
    parts = jax.lax.map(jax.vmap(parts_of), turns)
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[: len(rows)], parts)


def scaled_sum(
    forms: Sequence[Form], parts: Sequence[Part], mask: jax.Array, factor: Factor, shares: Shares = None
) -> jax.Array:
    """The sum f32[p] of the gradients of stacked rows by a mask f32[n], each times `factor` of its length, array after
    array; one whose length is not finite counts as zero. With shares, each array's is limited by itself."""
    squares = [jax.vmap(form.square)(part) for form, part in zip(forms, parts, strict=True)]
    square = jnp.stack(squares).sum(0)
    finite = jnp.isfinite(square)

    def weight(square: jax.Array, share: float) -> jax.Array:
        norm = safe_sqrt(jnp.where(finite, square, 0.0))
        return jnp.where(finite, mask * factor(norm if share == 1.0 else norm / share), 0.0)

    weights = [weight(square, 1.0)] * len(forms) if shares is None else list(map(weight, squares, shares))

    def counted(leaf: jax.Array) -> jax.Array:
        return jnp.where(finite.reshape(-1, *[1] * (leaf.ndim - 1)), leaf, jnp.zeros((), leaf.dtype))

    parts = jax.tree.map(counted, list(parts))
    sums = [form.weighted_sum(part, weight) for form, part, weight in zip(forms, parts, weights, strict=True)]
    return jnp.concatenate([total.ravel() for total in sums])


def exact_sum(
    forms: Sequence[Form],
    parts_of: Callable[[Any], Sequence[Part]],
    rows: Any,
    counted: jax.Array,
    factor: Factor,
    bound: jax.Array,
    shares: Shares = None,
) -> Quantized:
    """The sum [p] over rows of gradients times `factor` of their lengths, each clipped to length `bound`, in whole
    numbers, array after array; with float64 enabled. With shares, each array's is clipped by itself.

    One row after the other: what it adds depends on that row alone. `parts_of` is computed for several rows before any
    of them is rounded, in a loop of its own, for what `computed_once` says.

    A row adds at most the margin of `bound`: with `reach` for what is fixed, and half a unit for each number in
    vectors, its length after rounding is at most that before plus the length of all the halves (Minkowski).

    Args:
      parts_of: from a row to its parts, by array.
      rows: pytree of stacked rows, as many as `counted` f[n] has weights in [0, 1].
      bound: f[], public.
    """
    bound = bound.astype(jnp.float64)
    places = range(len(forms))
    limited = [(1.0, list(places))] if shares is None else [(shares[place], [place]) for place in places]
    units = [bound * (share * 2.0**-COEFFICIENT_BITS) for share, group in limited for _ in group]
    sums = [jnp.zeros(form.shape, jnp.float64) for form in forms]
    is_whole = [isinstance(form, Whole) for form in forms]

    def round_row(parts: Sequence[Part], counted: jax.Array) -> list[Part]:
        parts = [form.rounded(part) for form, part in zip(forms, parts, strict=True)]
        reaches = [form.reach**2 for form in forms]
        squares = [reach * jnp.square(part.vectors).sum() for reach, part in zip(reaches, parts, strict=True)]
        finite = jnp.isfinite(jnp.stack(squares).sum())
        for share, group in limited:
            unit, halves = units[group[0]], sum(reaches[place] * parts[place].vectors.size for place in group)
            norm = jnp.sqrt(jnp.stack([squares[place] for place in group]).sum(keepdims=True))
            longest = room(bound * share, 0.5 * halves**0.5 * unit)
            (scale,) = jnp.minimum(factor(norm / share), longest / jnp.maximum(norm, _TINY))
            scale = jnp.where(finite, scale, 0.0)
            for place in group:
                steps = numbers(parts[place].vectors * scale, unit).steps
                parts[place] = parts[place]._replace(vectors=weighed(steps, counted))
        return parts

    def add_row(sums: list[jax.Array], row: tuple[list[Part], jax.Array]) -> tuple[list[jax.Array], list[Part | None]]:
        parts = round_row(*row)  # what is whole is added at once, and no row's is kept
        sums = [total + part.vectors if at else total for total, part, at in zip(sums, parts, is_whole, strict=True)]
        return sums, [None if at else part for part, at in zip(parts, is_whole, strict=True)]

    def add_group(sums: list[jax.Array], group: tuple[Any, jax.Array]) -> tuple[list[jax.Array], list[Part | None]]:
        return jax.lax.scan(add_row, sums, (jax.lax.map(parts_of, group[0]), group[1]))

    def add_chunk(sums: list[jax.Array], chunk: tuple[Any, jax.Array]) -> tuple[list[jax.Array], None]:
        sums, parts = jax.lax.scan(add_group, sums, chunk)
        parts = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), parts)
        rest = zip(forms, sums, parts, strict=True)
        return [total if part is None else total + form.weighted_sum(part, ones) for form, total, part in rest], None

    most = rows_at_a_time(parts_of, jax.tree.map(lambda leaf: leaf[0], rows), len(counted))
    size = math.gcd(max(FEWEST_ROWS, 1 << min(most, MOST_ROWS).bit_length() - 1), len(counted))
    # Products of whole numbers are the same in any order: they are taken over as many rows as there is room for.
    num_groups = len(counted) // size
    together = max(
        count for count in range(1, num_groups + 1) if num_groups % count == 0 and count * size <= max(most, size)
    )
    ones = jnp.ones(together * size, jnp.float64)
    shape = num_groups // together, together, size
    chunks = jax.tree.map(lambda leaf: leaf.reshape(*shape, *leaf.shape[1:]), (rows, counted.astype(jnp.float64)))
    sums, _ = jax.lax.scan(add_chunk, sums, chunks)
    quantized = zip(forms, sums, units, strict=True)
    return joined(*(Quantized(total, unit * 2.0**-form.bits) for form, total, unit in quantized))


def rows_at_a_time(parts_of: Callable[..., Sequence[Part]], row: Any, most: int) -> int:
    """How many rows' parts are held at a time: at most so many."""
    shapes = jax.eval_shape(parts_of, row)
    return max(1, min(most, GRADIENT_FLOATS // sum(leaf.size for leaf in jax.tree.leaves(shapes))))


def _power_of_two(numbers: jax.Array) -> jax.Array:
    """The largest powers of two f32[...] that are not above numbers f32[...], and from 2^-126 to 2^126, so that their
    inverses are normal, too."""
    within = jax.lax.stop_gradient(jnp.clip(numbers, 2.0**-126, 2.0**126))
    return jax.lax.bitcast_convert_type(jax.lax.bitcast_convert_type(within, jnp.int32) & 0x7F800000, jnp.float32)


#: A product of matrices in which a device rounds no factor to fewer bits than those of the norms.
_matmul = functools.partial(jnp.matmul, precision="highest")


def safe_sqrt(squares: jax.Array) -> jax.Array:
    """Square root with a finite derivative at zero."""
    return jnp.sqrt(jnp.maximum(squares, MIN_NORM**2))
