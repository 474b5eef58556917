"""Rows that lie on a Spark cluster: encoded there once, and added up there query by query."""

import contextlib
import functools
import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row

from l2p.base.errors import InputError, RowsError, alone
from l2p.estimators.spark import worker
from l2p.oracle.sums import BlockSum
from l2p.tables.public_data import ApartSum
from l2p.tables.same_table import PUBLIC_ROWS
from l2p.tables.schema.encoding import Encoding, OnInvalid
from l2p.task.exact_sums import ExactSum
from l2p.task.row_digest import sum_of_rows
from l2p.task.rows import Rows
from l2p.task.sources import RemoteRows

_HALF = 2**32
#: Of the columns that workers encode.
_NAMES = "features", "label"


class SparkRows(RemoteRows):
    """The rows of a DataFrame, kept encoded on its cluster. `encoded_rows` makes them.

    Every query is one job. A partition returns the exact sum over its rows, and the driver adds these up as whole
    numbers, each partition's once. So neither the order in which they come, nor tasks that are tried again or run
    twice, nor how rows are spread over partitions changes a bit of what comes out.

    Attributes:
      schema: the declaration of the features and the label.
      partitions: how many of them hold rows.
      received: bytes of sums that came to the driver, for each query so far.
    """

    ordered = False  # a partition that is computed again may have its rows in another order

    def __init__(self, rows: DataFrame, encoding: Encoding):
        """Read the encoded rows once, to count them and to refuse those that do not fit."""
        self.schema = encoding.schema
        self.num_features = len(encoding.names)
        self.received: list[int] = []
        self._rows, self._key = rows, secrets.randbits(128)
        about = functools.partial(worker.described, size=self.num_features, key=self._key)
        summaries = rows.mapInArrow(about, worker.DESCRIBED).collect()
        parts = sorted(summaries, key=lambda part: part.partition)
        for part in parts:
            if part.complaint:
                raise InputError(part.complaint)
        if not parts:
            raise InputError("the DataFrame has no rows to learn from; check where it comes from and its filters.")
        self.num_rows = sum(part["count"] for part in parts)
        self.partitions = len(parts)
        self._expected = {part.partition: (part["count"], part.digest) for part in parts}
        ends = np.cumsum([part["count"] for part in parts]).tolist()
        self._firsts = dict(zip(self._expected, [0, *ends[:-1]], strict=True))

    def __repr__(self) -> str:
        return "SparkRows(not shown)"

    def refuse_equal(self, public: Rows) -> None:
        """Refuse public rows, encoded as these, that are these very rows, in any order; null rows aside.

        Raises:
          InputError: they are.
        """
        others = self.num_rows - len(public.y)  # all null, if the rest are these
        digests = sum(digest for _, digest in self._expected.values()) - sum_of_rows(public, self._key)
        if others >= 0 and (digests - others * sum_of_rows(worker.null_row(self.num_features), self._key)) % 2**64 == 0:
            raise InputError(PUBLIC_ROWS)

    def exact_sum(self, summed: Callable[[Iterator[Rows]], ExactSum], lines: np.ndarray | None) -> ExactSum:
        """The sum over all rows, or over some lines; see `RemoteRows.exact_sum`.

        Raises:
          RowsError: a partition is not what it was when the run began, or a task failed each time that it was tried.
        """
        task = functools.partial(
            worker.summed,
            ask=_portable(summed),
            lines=None if lines is None else np.sort(lines[lines >= 0]),
            firsts=self._firsts,
            size=self.num_features,
            key=self._key,
        )
        with _failing("adding up rows"):
            parts = self._rows.mapInArrow(task, worker.SUMMED).collect()
        self._check_parts(parts)
        return added(parts)

    def _check_parts(self, parts: Sequence[Row]) -> None:
        """Refuse sums that are not one for each partition, over the rows that it held when the run began."""
        if len(parts) != self.partitions or {p.partition: (p["count"], p.digest) for p in parts} != self._expected:
            raise RowsError(
                "Spark computed a part of the DataFrame again, or cached it elsewhere, and it came out with other "
                "rows, but all passes must read the same; write the DataFrame to a file, or checkpoint it, and fit on "
                "what is read back. The run ends here without a result, and what its queries were charged stays "
                "charged."
            )
        sizes = [len(part.high) + len(part.low) + len(part.unit) for part in parts]
        if len(set(sizes)) > 1 or any(part.unit != parts[0].unit for part in parts):
            raise RowsError(
                "the workers do not agree on the units of a sum, so they compute differently; install the same "
                "versions of l2p, jax and numpy on all of them. What the run's queries were charged stays charged."
            )
        self.received.append(sum(sizes))


@contextlib.contextmanager
def encoded_rows(
    table: DataFrame, columns: Sequence[Any], encoding: Encoding, on_invalid: OnInvalid
) -> Iterator[SparkRows]:
    """The rows of a DataFrame, encoded and cached on its cluster for as long as the context is open.

    Args:
      table: the DataFrame.
      columns: of it, lists of as many numbers as the schema has features, and cells of labels.
      encoding: encodes its rows.
      on_invalid: as for `l2p.tables.schema.read_rows`.

    Raises:
      InputError: the table has no rows, or an invalid one under "refuse"; or the cluster could not encode it.
    """
    if on_invalid not in ("refuse", "null"):
        raise InputError(f"onInvalid is {on_invalid!r}, which is not known; choose 'refuse' or 'null'.")
    task = functools.partial(worker.encoded, encoding=encoding, on_invalid=on_invalid, names=_NAMES)
    with contextlib.ExitStack() as stack:
        with _unspent("encoding rows"):  # planning computes cells, too, and quotes those that fail
            rows = _chosen(table, columns).mapInArrow(task, worker.ENCODED).persist()
            stack.callback(rows.unpersist)
            spark_rows = SparkRows(rows, encoding)
        yield spark_rows


def collected_rows(table: DataFrame, columns: Sequence[Any], encoding: Encoding) -> Rows:
    """The rows of a public DataFrame, encoded here; arguments as for `encoded_rows`.

    Raises:
      InputError: it has no rows, or an invalid one; or the cluster could not send them.
    """
    with _unspent("sending the public rows"):
        batches = _chosen(table, columns).toArrow().to_batches()
    encoded = list(worker.encoded(iter(batches), encoding, "refuse", _NAMES))
    complaints = [batch.column("complaint")[0].as_py() for batch in encoded if len(batch)]
    if not complaints:
        raise InputError("the DataFrame of public rows has none; check where it comes from and its filters.")
    for complaint in filter(None, complaints):
        raise InputError(f"of the public rows: {complaint}")
    parts = [worker.rows_of(batch, len(encoding.names)) for batch in encoded]
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)


def _chosen(table: DataFrame, columns: Sequence[Any]) -> DataFrame:
    return table.select(*(column.alias(name) for column, name in zip(columns, _NAMES, strict=True)))


def added(parts: Sequence[Row]) -> ExactSum:
    """The sum of partitions' sums, as whole numbers of any size, which add up to the same in any order."""
    integers = [
        [int(high) * _HALF + int(low) for high, low in zip(*map(np.frombuffer, (part.high, part.low)), strict=True)]
        for part in parts
    ]
    split = np.asarray([divmod(sum(column), _HALF) for column in zip(*integers, strict=True)], np.float64).reshape(
        -1, 2
    )
    return ExactSum(*map(jax.numpy.asarray, (split[:, 0], split[:, 1], np.frombuffer(parts[0].unit))))


def _portable(summed: Callable[[Iterator[Rows]], ExactSum]) -> Any:
    """The sum with its arrays on the host, which workers unpickle without choosing a device for them."""
    return jax.tree.map(np.asarray, summed) if isinstance(summed, (BlockSum, ApartSum)) else summed


@contextlib.contextmanager
def _failing(doing: str) -> Iterator[None]:
    """Say that Spark failed without its message, which may quote rows."""
    with alone():
        try:
            yield
        except (PySparkException, Py4JError) as error:
            message = str(error)
            if isinstance(error, ImportError):
                hint = "Python here lacks a package that it needs; install l2p-jax[spark]"
            elif "No module named" in message or "ModuleNotFoundError" in message:
                hint = "its workers cannot import a module; install l2p-jax[spark] in the Python that they run"
            else:
                hint = "the reason is in the executors' logs, and not repeated here, because it may quote private rows"
            raise RowsError(f"Spark failed while {doing}: {hint}.") from None


@contextlib.contextmanager
def _unspent(doing: str) -> Iterator[None]:
    """`_failing` before any query was asked."""
    try:
        with _failing(doing):
            yield
    except RowsError as error:
        raise InputError(f"{str(error).rstrip('.')}. No budget was spent.") from None
