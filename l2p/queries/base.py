"""The interface of queries: noised sums of bounded per-row contributions, with a price."""

import abc
import functools
from typing import ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Num

from l2p.base.compiled import as_one
from l2p.base.struct import Struct
from l2p.models.parts import Part, Whole, exact_sum
from l2p.privacy.events import Adjacency, Event
from l2p.task.exact_sums import ExactSum, Quantized, QuantizedRows, dtype_of
from l2p.task.noise import Noise
from l2p.task.rows import Rows


class Query(Struct, abc.ABC):
    """A noised aggregate of rows. Concrete queries are `l2p.base.struct` dataclasses.

    `contributions` followed by `limit` is its readable definition; `add` may compute the same sum faster, and `exact`
    is the sum that a release forms. A non-additive query defines only `add`, over all rows at once, or `answer`. Only
    what `answer` or `release` returns may leave the oracle.

    A bound is proved for a range of each field, which the class names. Outside it `bound` is NaN (`within`), and the
    oracle refuses the query before it charges. Fields that only determine what a row contributes, such as params,
    candidates or a feature map, have no range: every contribution is limited, and one that is not finite counts as a
    constant, so one row still moves the sum by at most the bound. Noise multipliers have no range either: accountants
    only grant finite ones above 0.

    Attributes:
      name: what the trace calls it.
      mechanism: noise distribution, one of `l2p.privacy.events.MECHANISMS`.
      noise_multiplier: noise scale over the sensitivity under the stated adjacency.
      additive: whether aggregates of two blocks of rows may be summed.
      is_plain_sum: whether what is noised is the sum itself, with Gaussian noise, so that k rows move it by at most k
        times as far as one; the only queries that protect units of several rows (`l2p.privacy.units`).
      is_gradient: whether it is a sum of gradients of the loss, whose answers show whether rows keep saying the same
        (`l2p.release.learned`).
      of_loss: whether a row contributes what its loss or the gradient of it says, and nothing else of it: all that may
        be asked where rows are no features (`Model.reads_features`).
      weighed: whether a row counts as much as its class where classes have weights (`l2p.privacy.class_weights`): in
        what a loss is made of, not in what describes rows.
      in_trace: whether the trace keeps its answers, for what is done with a model after the run.
    """

    additive: ClassVar[bool] = True
    is_plain_sum: ClassVar[bool] = False
    is_gradient: ClassVar[bool] = False
    of_loss: ClassVar[bool] = False
    weighed: ClassVar[bool] = True
    in_trace: ClassVar[bool] = False

    name: ClassVar[str]
    mechanism: ClassVar[str]
    noise_multiplier: Float[Array, ""]

    @property
    @abc.abstractmethod
    def bound(self) -> Float[Array, ""]:
        """The most one row may contribute (L2 norm, or per entry for selections); NaN where none is proved."""

    @property
    def most_rows(self) -> Float[Array, ""]:
        """The most lines of a table for which `bound` holds; infinite for a sum."""
        return jnp.array(jnp.inf)

    @property
    def unit(self) -> Float[Array, ""]:
        """A public length; a solve is rounded to a grid of 2^-20 of it."""
        return self.bound

    def contributions(self, rows: Rows) -> Float[Array, "{len(rows.y)} {self.empty().size}"]:
        """One row's contribution per line, before limiting. May hold NaN or inf."""
        raise TypeError(f"{self.name} is not a sum over rows, so no row has a contribution of its own.")

    def limit(
        self, contributions: Float[Array, "rows {self.empty().size}"]
    ) -> Float[Array, "rows {self.empty().size}"]:
        """Each contribution projected to L2 norm at most `bound`; non-finite ones become zero."""
        return limit_norm(contributions, self.bound)

    @abc.abstractmethod
    def empty(self) -> Float[Array, " width"]:
        """The aggregate of no rows: zeros, as many as an answer to it or a contribution has numbers."""

    def add(self, aggregate: Float[Array, " width"], rows: Rows) -> Float[Array, " width"]:
        """The aggregate with a block of rows added."""
        return aggregate + jnp.matmul(rows.mask, self.limit(self.contributions(rows)), precision="highest")

    def exact(self, rows: QuantizedRows) -> Quantized:
        """The sum [k] over a block in a release; call it with float64 enabled. A row's contribution depends only on
        that row and on public facts, and is at most (1 + `MARGIN`) `bound` long. A row that counts less than in full,
        by the weight of its class, contributes as much less (`QuantizedRows.sum`, `weighted_sum`, `weighed`).

        This default forms contributions one row at a time; queries in this package do it block by block.
        """

        def parts(row: tuple[jax.Array, jax.Array]) -> list[Part]:
            single = Rows(row[0][None, :], row[1][None], jnp.ones(1, jnp.float32))
            return [Part(None, self.limit(self.contributions(single).astype(jnp.float64))[0])]

        forms, read = [Whole.of(self.empty())], (rows.values().astype(jnp.float32), rows.block.y)
        return exact_sum(forms, parts, read, rows.block.counted, jnp.ones_like, jnp.asarray(self.bound))

    def answer(self, rows: Rows, noise: Noise, adjacency: Adjacency) -> Num[Array, "..."]:
        """The answer of a non-additive query, from all rows at once; in float64 for a release."""
        return self.release(self.add(self.empty(), rows), noise, adjacency)

    def release(
        self, aggregate: Float[Array, " width"] | ExactSum, noise: Noise, adjacency: Adjacency
    ) -> Num[Array, "..."]:
        """The answer: the aggregate with noise of scale noise_multiplier * bound * sensitivity_factor."""
        scale = _scale(self.noise_multiplier, self.bound, adjacency.sensitivity_factor, dtype_of(aggregate))
        return noise.add(self.mechanism, aggregate, scale)

    def event(self) -> Event:
        """The event that one answer is priced by."""
        return Event(self.mechanism, jnp.asarray(self.noise_multiplier))


@as_one
def positive(value: jax.Array) -> jax.Array:
    """bool[], True where f32[] is above 0 and finite; False for NaN."""
    return (value > 0) & (value < jnp.inf)


@functools.partial(as_one, static=("factor", "dtype"))
def _scale(noise_multiplier: jax.Array, bound: jax.Array, factor: float, dtype: jnp.dtype) -> jax.Array:
    # In a release in float64, like the aggregate: rounded down in float32, noise would be narrower than its price.
    return jnp.asarray(noise_multiplier, dtype) * jnp.asarray(bound, dtype) * factor


@as_one
def within(bound: jax.Array, *conditions: jax.Array) -> jax.Array:
    """`bound` f32[] where every condition bool[] on the fields of its query holds, else NaN, which the oracle refuses.

    >>> print(within(jnp.float32(2.0), jnp.array(True)), within(jnp.float32(2.0), jnp.array(True), jnp.array(False)))
    2.0 nan
    """
    return jnp.where(functools.reduce(jnp.logical_and, conditions), bound, jnp.nan)


def limit_norm(contributions: jax.Array, bound: jax.Array) -> jax.Array:
    """Scale each line of f[b, k] to L2 norm at most `bound`; a line that is not finite becomes zero."""
    squares = jnp.square(contributions).sum(-1, keepdims=True)
    # A finite line may still overflow when squared; it is dropped, too, which keeps its contribution within the bound.
    finite = jnp.isfinite(squares)
    # The floor keeps derivatives finite; lines that short are never scaled.
    factor = jnp.minimum(1.0, bound * jax.lax.rsqrt(jnp.where(finite, jnp.maximum(squares, 1e-24), 1.0)))
    return jnp.where(finite, contributions, 0.0) * factor
