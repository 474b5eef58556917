"""Tasks of Spark's workers on the rows that lie there: encode them, add them up, predict for them.

Each function maps Arrow batches to Arrow batches, for `DataFrame.mapInArrow`. A worker keeps what it has compiled, so
that each kind of query is compiled once in it, not once for every task.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from l2p.base.arithmetic import check_arithmetic
from l2p.base.errors import InputError, withheld
from l2p.tables.reading.arrow import Arrow, cells_of
from l2p.tables.schema.encoding import Encoding, OnInvalid
from l2p.task.exact_sums import BLOCK as SUM_BLOCK
from l2p.task.exact_sums import ExactSum
from l2p.task.row_digest import sum_of_rows
from l2p.task.rows import Rows
from l2p.task.sources import ArraySource

if TYPE_CHECKING:  # what the driver sends names its own modules, so that a worker imports only those
    from l2p.release.prediction.predictor import Predictor

#: Encoded rows: x is f32[d] as bytes; `complaint` is why the table is refused, or null.
ENCODED = "x binary, y float, mask float, complaint string"
#: The summary of each partition before any query; see `described`.
DESCRIBED = "partition int, count long, digest long, complaint string"
#: The sum over each partition; see `summed`.
SUMMED = "partition int, count long, digest long, high binary, low binary, unit binary"


def encoded(
    batches: Iterator[pa.RecordBatch], encoding: Encoding, on_invalid: OnInvalid, names: tuple[str, str]
) -> Iterator[pa.RecordBatch]:
    """Rows as `ENCODED`, from columns of features and labels of these names: lists of numbers, and cells."""
    features, label = names
    for batch in batches:
        with withheld("encoding rows on Spark"):
            x = matrix(batch.column(features), len(encoding.schema.features))
            block = dict(zip(encoding.schema.features, x.T, strict=True))
            source = Arrow.of_table(pa.table([batch.column(label)], names=[label]))
            block[encoding.schema.target.column] = cells_of(batch.column(label), label, source, (label,))
            complaint = None
            try:
                rows = encoding.rows(block, on_invalid)
            except InputError as error:  # travels as a value, because Spark repeats a task that raises
                complaint, rows = str(error), encoding.rows(block)
            yield pa.RecordBatch.from_arrays(
                [
                    _binary(np.asarray(rows.x)),
                    pa.array(rows.y),
                    pa.array(rows.mask),
                    pa.array([complaint] * len(x), pa.string()),
                ],
                names=["x", "y", "mask", "complaint"],
            )


def _fast() -> str | None:
    """Sentence on arithmetic of this worker that the proofs do not cover, sent as a value; None if it is exact."""
    jax.config.update("jax_platforms", "cpu")  # as `summed` does
    try:
        check_arithmetic()
    except InputError as error:
        return str(error)
    return None


def matrix(column: pa.Array, size: int) -> np.ndarray:
    """Lists of numbers as f64[n, size]; one that is null or of another length is NaN."""
    x = np.full((len(column), size), np.nan)
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    fits = valid & (np.diff(column.offsets.to_numpy()) == size)
    x[fits] = column.filter(pa.array(fits)).flatten().to_numpy(zero_copy_only=False).reshape(-1, size)
    return x


def described(batches: Iterator[pa.RecordBatch], size: int, key: int) -> Iterator[pa.RecordBatch]:
    """One line for a partition of encoded rows with `size` features: how many there are, their `sum_of_rows`, and the
    first complaint. The sum tells whether Spark has computed the partition again, and differently."""
    count, total, complaint = 0, 0, _fast()
    for batch in batches:
        rows = rows_of(batch, size)
        count += len(rows.y)
        total += sum_of_rows(rows, key)
        complaint = complaint or next(filter(None, batch.column("complaint").unique().to_pylist()), None)
    if count:
        yield _line(DESCRIBED, TaskContext.get().partitionId(), count, _signed(total), complaint)  # pyrefly: ignore


def summed(
    batches: Iterator[pa.RecordBatch],
    ask: Callable[[Iterator[Rows]], ExactSum],
    lines: np.ndarray | None,
    firsts: dict[int, int],
    size: int,
    key: int,
) -> Iterator[pa.RecordBatch]:
    """One line for a partition: the exact sum that is asked for, with the count and the digest of its rows.

    Args:
      batches: of encoded rows.
      ask: the sum of blocks of rows.
      lines: of the table, in ascending order, that count; None for all.
      firsts: the line at which each partition begins.
      size: d.
      key: as for `sum_of_rows`.
    """
    jax.config.update("jax_platforms", "cpu")  # accelerators, where a worker has one, would be taken by the first task
    partition = TaskContext.get().partitionId()  # pyrefly: ignore
    first, totals = firsts.get(partition, 0), [0, 0]

    def blocks() -> Iterator[Rows]:
        for batch in batches:
            rows = rows_of(batch, size)
            start = first + totals[0]
            totals[0] += len(rows.y)
            totals[1] += sum_of_rows(rows, key)
            if lines is not None:
                indices = lines[slice(*np.searchsorted(lines, (start, start + len(rows.y))))] - start
                rows = Rows(rows.x[indices], rows.y[indices], rows.mask[indices])
            yield from ArraySource(rows, SUM_BLOCK).blocks()
        yield from ArraySource(null_row(size), SUM_BLOCK).blocks()  # the unit of a sum is known once a block was added

    with withheld("adding up rows on Spark"), jax.enable_x64(True):
        total = ask(blocks())
        arrays = [np.asarray(leaf, np.float64).tobytes() for leaf in (total.high, total.low, total.unit)]
    if totals[0]:
        yield _line(SUMMED, partition, totals[0], _signed(totals[1]), *arrays)


def predictions(column: pa.Array, predictor: "Predictor", kind: pa.DataType) -> pa.Array:
    """{prediction, probability} of each list of features; null for one that cannot be read."""
    jax.config.update("jax_platforms", "cpu")
    names = predictor.schema.features
    x = matrix(column, len(names))
    if not len(x):
        return pa.array([], kind)
    predicted = predictor.of_block(dict(zip(names, x.T, strict=True)))
    values = predicted.values.tolist()  # None where a row cannot be read
    unread = np.array([value is None for value in values])
    values = pa.array(values).cast(kind.field("prediction").type)
    if predicted.probabilities is None:
        chances = pa.nulls(len(x), kind.field("probability").type)
    else:
        chances = pa.array(predicted.probabilities.tolist(), kind.field("probability").type, mask=unread)
    return pa.StructArray.from_arrays([values, chances], fields=list(kind))


def rows_of(batch: pa.RecordBatch, size: int) -> Rows:
    """Encoded rows, as NumPy arrays over the batch's own memory."""
    column = batch.column("x").cast(pa.binary(4 * size))
    x = np.frombuffer(column.buffers()[1], np.float32, size * len(column), 4 * size * column.offset)
    y, mask = (batch.column(name).to_numpy() for name in ("y", "mask"))
    return Rows(x.reshape(-1, size), y, mask)  # pyrefly: ignore[bad-argument-type]


def null_row(size: int) -> Rows:
    """One null row."""
    return Rows(np.zeros((1, size), np.float32), np.zeros(1, np.float32), np.zeros(1, np.float32))  # pyrefly: ignore[bad-argument-type]


def _binary(x: np.ndarray) -> pa.Array:
    """f32[n, d] as one run of bytes per row."""
    x = np.ascontiguousarray(x, np.float32)
    array = pa.Array.from_buffers(pa.binary(4 * x.shape[1]), len(x), [None, pa.py_buffer(x.tobytes())])
    return array.cast(pa.binary())


def _line(declared: str, *values: Any) -> pa.RecordBatch:
    """A batch of one line with the columns that a declaration of Spark's names."""
    kinds = {"int": pa.int32(), "long": pa.int64(), "string": pa.string(), "binary": pa.binary()}
    fields = [pa.field(name, kinds[kind]) for name, kind in (part.split() for part in declared.split(", "))]
    arrays = [pa.array([value], field.type) for value, field in zip(values, fields, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _signed(number: int) -> int:
    """The number modulo 2^64 as Spark's signed long."""
    return (number + 2**63) % 2**64 - 2**63
