"""Readers of private rows: in memory, in a stream, and on other machines. An oracle calls one after it has charged."""

import abc
import dataclasses
from collections.abc import Iterator
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base.errors import InputError
from l2p.oracle.sums import BlockSum, add_quantized
from l2p.privacy import class_weights
from l2p.queries.base import Query
from l2p.queries.pass_descent import PassDescent, PassRows, TakesPasses
from l2p.queries.streamed_passes import StreamedPasses
from l2p.task.exact_sums import ExactSum, QuantizedRows, picked, quantize
from l2p.task.feature_map import FeatureMap
from l2p.task.noise import Batch
from l2p.task.rows import Rows, null_invalid
from l2p.task.sources import Mapped, RemoteRows, RowSource


class Reader(abc.ABC):
    """Sums of queries over private rows.

    A batch is what a query reads, or None for every row. Weights are f32[K] of the classes, or None where rows of all
    classes count alike.

    Attributes:
      num_lines: of the table.
      remaining_map: what mapped rows are still to be read through (`FeatureMap.remaining_map`), or None.
      skips_refused: whether it is left alone where a query is refused, which is known when it is called. Otherwise what
        it gives is compiled before that is known, and replaced by zeros.
      always_exact: whether simulations, too, add up exactly; `sum`, too, is then called under `jax.enable_x64(True)`.
    """

    num_lines: int
    remaining_map: FeatureMap | None = None
    skips_refused: ClassVar[bool] = True
    always_exact: ClassVar[bool] = False

    @abc.abstractmethod
    def sum(self, query: Query, batch: Batch | None, weights: jax.Array | None) -> jax.Array:
        """The aggregate f32[k] as a simulation forms it."""

    @abc.abstractmethod
    def exact_sum(self, query: Query, batch: Batch | None, weights: jax.Array | None) -> ExactSum:
        """The aggregate [k] as a release forms it; call it under `jax.enable_x64(True)`."""

    def whole(self, query: Query, exact: bool) -> Rows | TakesPasses:
        """All rows at once, or what takes passes over them, for `query`, which is no sum; in float64 where its answer
        is to be `exact`.

        Raises:
          InputError: they cannot be had so.
        """
        del exact
        raise InputError(
            f"{query.name} is not a sum over rows but is solved on all of them at once, so they cannot stream; "
            "load them into memory, or choose a method that goes step by step."
        )


@dataclasses.dataclass(frozen=True, repr=False)
class InMemory(Reader):
    """Rows on the device.

    Attributes:
      rows: mapped, for a simulation.
      quantized: the rows as a release sums them, mapped; None makes them of `rows` at every query.
    """

    rows: Rows
    quantized: QuantizedRows | None = None
    remaining_map: FeatureMap | None = None  # type: ignore[override]
    skips_refused = False

    @property
    def num_lines(self) -> int:  # type: ignore[override]
        return self.rows.y.shape[0]

    def sum(self, query: Query, batch: Batch | None, weights: jax.Array | None) -> jax.Array:
        return query.add(query.empty(), _weighed(self._drawn(batch), weights))

    def exact_sum(self, query: Query, batch: Batch | None, weights: jax.Array | None) -> ExactSum:
        quantized = quantize(self.rows.x, self.rows.y, self.rows.mask) if self.quantized is None else self.quantized
        if batch is not None:
            quantized = picked(quantized, batch.indices, batch.mask)
        return add_quantized(query, quantized, ExactSum.empty(query.empty().shape[0]), weights)

    def whole(self, query: Query, exact: bool) -> Rows:
        rows = self.rows.replace(x=jnp.asarray(self.rows.x))
        return Rows(*(leaf.astype(jnp.float64) for leaf in (rows.x, rows.y, rows.mask > 0))) if exact else rows

    def _drawn(self, batch: Batch | None) -> Rows:
        if batch is None:
            return self.rows
        read = self.rows.take(batch.indices)
        return dataclasses.replace(read, mask=read.mask * batch.mask)


@dataclasses.dataclass(frozen=True, repr=False)
class Streamed(Reader):
    """Rows that come block by block, in one pass for each query.

    Attributes:
      source: of the rows; mapped, for a simulation.
      view: the map that a release reads them through here, since a source may yield blocks of any size; or None.
    """

    source: RowSource
    view: FeatureMap | None = None

    @property
    def num_lines(self) -> int:  # type: ignore[override]
        return self.source.num_rows

    def sum(self, query: Query, batch: Batch | None, weights: jax.Array | None) -> jax.Array:
        aggregate = query.empty()
        for block in self._blocks(batch):
            jax.block_until_ready(aggregate)  # or blocks that wait to be added would fill the memory
            aggregate = _add(query, aggregate, _weighed(block, weights))
        return aggregate

    def exact_sum(self, query: Query, batch: Batch | None, weights: jax.Array | None) -> ExactSum:
        return BlockSum(query, self.view, weights, self.source.scaled)(self._blocks(batch))

    def whole(self, query: Query, exact: bool) -> TakesPasses:
        if not (isinstance(query, PassDescent) and query.streams):
            return super().whole(query, exact)  # pyrefly: ignore[bad-return]
        return StreamedPasses(self.source if self.view is None else Mapped(self.source, self.view), exact)

    def _blocks(self, batch: Batch | None) -> Iterator[Rows]:
        return map(null_invalid, self.source.blocks() if batch is None else self.source.members(_lines_of(batch)))


@dataclasses.dataclass(frozen=True, repr=False)
class Remote(Reader):
    """Rows on other machines, which add them up where they lie.

    Attributes:
      source: of the sums.
      view: the map that rows are read through there, or None.
    """

    source: RemoteRows
    view: FeatureMap | None = None
    always_exact = True

    @property
    def num_lines(self) -> int:  # type: ignore[override]
        return self.source.num_rows

    def sum(self, query: Query, batch: Batch | None, weights: jax.Array | None) -> jax.Array:
        return self.exact_sum(query, batch, weights).value.astype(jnp.float32)

    def exact_sum(self, query: Query, batch: Batch | None, weights: jax.Array | None) -> ExactSum:
        return self.source.exact_sum(BlockSum(query, self.view, weights), None if batch is None else _lines_of(batch))


class Passed(Remote):
    """Rows on a machine that takes passes over them, and adds nothing up."""

    source: PassRows

    def whole(self, query: Query, exact: bool) -> PassRows:
        return self.source


def reader_of(
    rows: Rows | RowSource,
    view: FeatureMap | None = None,
    quantized: QuantizedRows | None = None,
    remaining_map: FeatureMap | None = None,
) -> Reader:
    """The reader for rows.

    Args:
      rows: in memory, or their source.
      view: of rows that stream or lie elsewhere; rows in memory were mapped before.
      quantized, remaining_map: of rows in memory, as in `InMemory`.
    """
    match rows:
        case Rows():
            return InMemory(rows, quantized, remaining_map)
        case PassRows():
            return Passed(rows, view)
        case RemoteRows():
            return Remote(rows, view)
        case _:
            return Streamed(rows, view)


def _weighed(rows: Rows, weights: jax.Array | None) -> Rows:
    """The rows of a simulation, each counting as much as its class."""
    if weights is None:
        return rows
    return dataclasses.replace(rows, mask=rows.mask * class_weights.of_rows(weights, rows.y))


def _lines_of(batch: Batch) -> np.ndarray:
    """The lines that a batch reads, as `RowSource.members` takes them."""
    return np.where(np.asarray(batch.mask) > 0, np.asarray(batch.indices), -1)


@jax.jit
def _add(query: Query, aggregate: jax.Array, rows: Rows) -> jax.Array:
    return query.add(aggregate, rows)
