"""Sources of noise and random batches: JAX keys for simulation, the operating system for a release.

A simulation can be reproduced from its key, so it protects nobody, and its float32 Gaussian noise is never outside
[-5.42, 5.22] standard deviations. A release therefore adds float64 noise, from a cryptographic generator with a key
from the operating system, to a sum that lies on a public grid, and rounds the result to that grid.
"""

import abc
import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base import struct
from l2p.base.compiled import as_one
from l2p.privacy.cost.sampling import FixedSize, PermutationEpochs, Sampler
from l2p.task.exact_sums import MARGIN, ExactSum, Quantized, value_of
from l2p.task.keystream import orders_of

#: Steps of the release grid per unit of a query's bound on one row's contribution.
GRID_STEPS = 2.0**20


@struct.dataclass
class Batch:
    """The rows of one query.

    Attributes:
      indices: i32[capacity], lines of the table.
      mask: f32[capacity], 0 where there is no row.
    """

    indices: jax.Array
    mask: jax.Array


class Noise(abc.ABC):
    """Adds noise to aggregates and draws batches; each call uses fresh randomness.

    Attributes:
      keeps_answers: whether the trace keeps answers to gradient queries.
      exact: whether it is added to exact sums, and rounded to a public grid, as in a release.
      grid: the step f64[] of that grid; of solves.
    """

    keeps_answers: bool = False
    exact: ClassVar[bool] = False
    grid: jax.Array | float = 0.0

    @abc.abstractmethod
    def standard(self, distribution: str, shape: tuple[int, ...]) -> jax.Array:
        """Standard noise f[shape] of `distribution` (gaussian, gumbel or exponential)."""

    def add(self, distribution: str, aggregate: jax.Array | ExactSum, scale: jax.Array) -> jax.Array:
        """aggregate f[k] + scale f[] * standard noise of `distribution`."""
        values = value_of(aggregate)
        return values + scale * self.standard(distribution, values.shape)

    def on_grid(self, values: jax.Array) -> jax.Array:
        """The values f[k]; in a release, rounded to the public grid."""
        return values

    def coarse(self, noised: jax.Array, scale: jax.Array) -> jax.Array:
        """Values f[k] with Gaussian noise of this scale f[]; in a release, rounded to 2^-20 of it or to the grid."""
        return noised

    @abc.abstractmethod
    def batch(self, sampler: Sampler, num_rows: int, step: jax.Array) -> Batch:
        """The rows, out of `num_rows` lines, that a query at `step` i32[] (from 0) reads."""

    def subsets(self, num_rows: int, count: int, size: int) -> jax.Array:
        """i32[count, size]: independent draws of `size` lines without replacement, for a non-additive query."""
        raise TypeError(f"{type(self).__name__} draws no rows within a query.")

    def orders(self, num_rows: int, count: int) -> jax.Array:
        """i32[count, num_rows]: independent random orders of all lines, for a non-additive query."""
        raise TypeError(f"{type(self).__name__} draws no order of rows within a query.")

    def orders_in_turn(self, num_rows: int, count: int) -> Iterator[np.ndarray]:
        """The same orders, each drawn at its turn, for rows that stream; the next may overwrite it."""
        raise TypeError(f"{type(self).__name__} draws no order of rows within a query.")

    def directions(self, count: int, size: int) -> jax.Array:
        """Standard noise f[count, size] of the `gamma` mechanism: uniform directions, each of Gamma(size) length."""
        normal = self.standard("gaussian", (count, size))
        lengths = self.standard("exponential", (count, size)).sum(1)
        return normal * (lengths / jnp.sqrt(jnp.square(normal).sum(1)))[:, None]


class KeyNoise(Noise):
    """Simulated noise from one JAX key; successive calls fold in a counter.

    Args:
      key: of this step.
      run_key: of the whole run; fixes the order of its permutation epochs.
      keeps_answers: as in `Noise`.
    """

    def __init__(self, key: jax.Array, run_key: jax.Array | None = None, keeps_answers: bool = False):
        self.keeps_answers = keeps_answers
        self._key = key
        self._run_key = key if run_key is None else run_key
        self._calls = 0

    def _next_key(self) -> jax.Array:
        self._calls += 1
        return jax.random.fold_in(self._key, self._calls - 1)

    def standard(self, distribution: str, shape: tuple[int, ...]) -> jax.Array:
        key = self._next_key()
        sampler = {"gaussian": jax.random.normal, "gumbel": jax.random.gumbel, "exponential": jax.random.exponential}
        return sampler[distribution](key, shape, jnp.float32)

    def batch(self, sampler: Sampler, num_rows: int, step: jax.Array) -> Batch:
        capacity = sampler.capacity(num_rows)
        if isinstance(sampler, PermutationEpochs):
            epoch, position = jnp.divmod(step, sampler.steps_per_charge)
            # Step keys fold in the step's number, which never equals this one.
            key = jax.random.fold_in(jax.random.fold_in(self._run_key, jnp.uint32(2**32 - 1)), epoch)
            order = jax.random.permutation(key, num_rows)
            indices = jax.lax.dynamic_slice(order, (position * capacity,), (capacity,))
            return Batch(indices, jnp.ones(capacity, jnp.float32))
        if isinstance(sampler, FixedSize):
            indices = jax.random.choice(self._next_key(), num_rows, (capacity,), replace=False)
            return Batch(indices, jnp.ones(capacity, jnp.float32))
        members = _members(self._next_key(), sampler.rate(), num_rows, capacity)
        drawn = members < num_rows
        return Batch(jnp.where(drawn, members, 0), drawn.astype(jnp.float32))

    def subsets(self, num_rows: int, count: int, size: int) -> jax.Array:
        return _simulated_subsets(self._next_key(), num_rows, count, size)

    def orders(self, num_rows: int, count: int) -> jax.Array:
        keys = jax.random.split(self._next_key(), count)
        return jax.vmap(lambda key: jax.random.permutation(key, num_rows))(keys)

    def orders_in_turn(self, num_rows: int, count: int) -> Iterator[np.ndarray]:
        keys = jax.random.split(self._next_key(), count)
        return (np.asarray(jax.random.permutation(key, num_rows)) for key in keys)


def _members(key: jax.Array, rate: float, num_rows: int, capacity: int) -> jax.Array:
    """i32[capacity]: the first lines, in order, of those that are drawn with probability `rate` each, independently;
    `num_rows` where there are no more.

    How many lines lie between two that are drawn follows a geometric distribution, so that as many numbers are drawn as
    a batch has lines, and not as many as the table has.
    """
    between = jnp.floor(jnp.log(jax.random.uniform(key, (capacity,))) / jnp.log1p(-jnp.float32(rate)))
    steps = jnp.minimum(between, num_rows).astype(jnp.int32) + 1
    return jax.lax.associative_scan(lambda left, right: jnp.minimum(left + right, num_rows + 1), steps) - 1


def _simulated_subsets(key: jax.Array, num_rows: int, count: int, size: int) -> jax.Array:
    """`Noise.subsets` by the first `size` swaps of a shuffle, which may start from any order."""
    first = jnp.arange(size)
    partners = jax.random.randint(key, (count, size), first, num_rows)

    def draw(order: jax.Array, partners: jax.Array) -> tuple[jax.Array, jax.Array]:
        def swap(place: int, order: jax.Array) -> jax.Array:
            partner = partners[place]
            return order.at[place].set(order[partner]).at[partner].set(order[place])

        order = jax.lax.fori_loop(0, size, swap, order)
        return order, order[:size]

    return partners if size == 1 else jax.lax.scan(draw, jnp.arange(num_rows), partners)[1]


@dataclasses.dataclass(frozen=True)
class Draw:
    """Arguments of one call of `Noise.standard`: a distribution and the number of values."""

    distribution: str
    size: int


@dataclasses.dataclass(frozen=True)
class BatchDraw:
    """Arguments of one call of `Noise.batch`."""

    sampler: Sampler
    num_rows: int


@dataclasses.dataclass(frozen=True)
class SubsetDraw:
    """Arguments of one call of `Noise.subsets`."""

    num_rows: int
    count: int
    size: int


@dataclasses.dataclass(frozen=True)
class OrderDraw:
    """Arguments of one call of `Noise.orders` or `Noise.orders_in_turn`."""

    num_rows: int
    count: int


AnyDraw = Draw | BatchDraw | SubsetDraw | OrderDraw


class PlannedNoise(Noise):
    """Returns zeros and records what would be drawn; used under `jax.eval_shape`."""

    def __init__(self):
        self.draws: list[AnyDraw] = []

    def standard(self, distribution: str, shape: tuple[int, ...]) -> jax.Array:
        self.draws.append(Draw(distribution, math.prod(shape)))
        return jnp.zeros(shape)

    def batch(self, sampler: Sampler, num_rows: int, step: jax.Array) -> Batch:
        self.draws.append(BatchDraw(sampler, num_rows))
        capacity = sampler.capacity(num_rows)
        return Batch(jnp.zeros(capacity, jnp.int32), jnp.zeros(capacity, jnp.float32))

    def subsets(self, num_rows: int, count: int, size: int) -> jax.Array:
        self.draws.append(SubsetDraw(num_rows, count, size))
        return jnp.zeros((count, size), jnp.int32)

    def orders(self, num_rows: int, count: int) -> jax.Array:
        self.draws.append(OrderDraw(num_rows, count))
        return jnp.zeros((count, num_rows), jnp.int32)


class HostNoise(Noise):
    """Noise drawn on the host before the step, in the order of the calls.

    Noise comes as float64 bit patterns u32[size, 2], a batch as lines i32[capacity] of the table, -1 for none, subsets
    as lines i32[count, size], orders as lines i32[count, num_rows] or, to be drawn in turn, as their key. Use it inside
    `jax.enable_x64(True)`. The Gaussian sums of `add` are rounded to multiples of `grid`, or of a coarser grid if the
    noise is wider than the bound, because the last bits of float64 noise form patterns of the sampler's own.
    """

    keeps_answers = True
    exact = True

    def __init__(self, drawn: list[jax.Array], plan: Sequence[AnyDraw]):
        self._draws = zip(drawn, plan, strict=True)

    def standard(self, distribution: str, shape: tuple[int, ...]) -> jax.Array:
        bits, draw = next(self._draws)
        if draw != Draw(distribution, math.prod(shape)):
            raise RuntimeError(f"{draw} was planned, but the step asked for {distribution} noise of {shape}.")
        return jax.lax.bitcast_convert_type(bits, jnp.float64).reshape(shape)

    def add(self, distribution: str, aggregate: jax.Array | ExactSum, scale: jax.Array) -> jax.Array:
        if distribution == "gaussian" and isinstance(aggregate, ExactSum):
            return self._add_exactly(aggregate, scale)
        noised = super().add(distribution, aggregate, scale)
        if distribution != "gaussian":
            # A selection's proof covers the noised scores themselves, of which only the index is released.
            return noised
        return self.coarse(noised, scale)

    def coarse(self, noised: jax.Array, scale: jax.Array) -> jax.Array:
        doublings = jnp.ceil(jnp.log2(jnp.maximum(scale / (self.grid * GRID_STEPS), 1.0))).astype(jnp.int32)
        grid = jnp.ldexp(jnp.asarray(self.grid, noised.dtype), doublings)
        return jnp.rint(noised / grid) * grid

    def _add_exactly(self, aggregate: ExactSum, scale: jax.Array) -> jax.Array:
        # Adding whole steps of noise to a whole number of steps gives the same as rounding a Gaussian mechanism's
        # answer. Everything after the sum is post-processing, including the rounding to 2^-20 of the noise.
        shape = jnp.broadcast_shapes(scale.shape, aggregate.unit.shape)
        return _noised(aggregate, scale, self.standard("gaussian", shape))

    def on_grid(self, values: jax.Array) -> jax.Array:
        return jnp.rint(values / self.grid) * self.grid

    def batch(self, sampler: Sampler, num_rows: int, step: jax.Array) -> Batch:
        lines, draw = next(self._draws)
        if draw != BatchDraw(sampler, num_rows):
            raise RuntimeError(f"{draw} was planned, but the step asked for a batch of {num_rows} rows by {sampler}.")
        return Batch(jnp.maximum(lines, 0), (lines >= 0).astype(jnp.float32))

    def subsets(self, num_rows: int, count: int, size: int) -> jax.Array:
        lines, draw = next(self._draws)
        if draw != SubsetDraw(num_rows, count, size):
            raise RuntimeError(f"{draw} was planned, but the step asked for {count} subsets of {size} of {num_rows}.")
        return lines

    def orders(self, num_rows: int, count: int) -> jax.Array:
        drawn, draw = next(self._draws)
        if draw != OrderDraw(num_rows, count):
            raise RuntimeError(f"{draw} was planned, but the step asked for {count} orders of {num_rows} rows.")
        return drawn

    def orders_in_turn(self, num_rows: int, count: int) -> Iterator[np.ndarray]:
        return orders_of(np.asarray(self.orders(num_rows, count)), num_rows, count)


@as_one
def _noised(aggregate: ExactSum, scale: jax.Array, standard: jax.Array) -> jax.Array:
    """An exact sum plus standard noise f64[k] times the scale, in whole steps of a public grid."""
    steps = scale.astype(jnp.float64) * (1.0 + MARGIN) / jnp.abs(aggregate.unit)
    noised = aggregate.plus(Quantized(jnp.rint(steps * standard), aggregate.unit))
    coarse = jnp.ldexp(1.0, jnp.maximum(jnp.ceil(jnp.log2(steps / GRID_STEPS)), 0.0).astype(jnp.int32))
    return jnp.rint(noised.steps / coarse) * coarse * noised.unit
