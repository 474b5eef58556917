"""Sums of Spark's workers, computed in one process: no split of the rows changes them."""

import types

import jax
import numpy as np
import pytest

from l2p.base.errors import InputError
from l2p.models import find_model
from l2p.oracle import sums as blocks
from l2p.oracle.sums import BlockSum, exact_sum
from l2p.queries import ClippedGradient
from l2p.tables.schema import Encoding, Number, Schema, Target
from l2p.task.exact_sums import ExactSum
from l2p.task.feature_map import FeatureMap
from l2p.task.row_digest import sum_of_rows
from l2p.task.rows import Rows
from tests.estimators.spark.cluster import missing

if reason := missing(java=False):
    pytest.skip(reason, allow_module_level=True)

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.errors import PySparkImportError
from pyspark.sql import Row

from l2p.estimators.spark import worker
from l2p.estimators.spark.rows import RowsError, SparkRows, _failing, added

pytestmark = pytest.mark.slow

N, D = 5000, 3
#: Of the classes, in a public unit.
WEIGHTS = np.array([1.0, 0.25], np.float32)
NAMES = ("features", "back")
WARD = Encoding(Schema({f"x{place}": Number(0, 1) for place in range(D)}, Target("back", ("no", "yes"))))


def table() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    x = generator.random((N, D))
    return x, np.where(x[:, 0] > 0.5, "yes", "no")


def batches(x, y, size=1500):
    """The rows as Spark sends them: in batches of some size."""
    for start in range(0, len(x), size):
        lists = pa.array(x[start : start + size].tolist(), pa.list_(pa.float64()))
        yield pa.RecordBatch.from_arrays([lists, pa.array(y[start : start + size].tolist())], names=NAMES)


def gradient(seed: int = 0) -> BlockSum:
    model = find_model("logistic")
    params = jax.random.normal(jax.random.key(seed), (model.num_params(D),))
    unit = jax.numpy.float32(1.0)
    return BlockSum(
        ClippedGradient(model, params, FeatureMap.identity(D), unit, unit), None, jax.numpy.asarray(WEIGHTS)
    )


def sums(parts, ask, monkeypatch, lines=None, firsts=None):
    """Sums of the partitions, by the functions that run in workers."""
    rows = []
    for place, part in enumerate(parts):
        monkeypatch.setattr(worker, "TaskContext", types.SimpleNamespace(get=lambda: context(place)))  # noqa: B023
        sent = cloudpickle.loads(cloudpickle.dumps(ask))
        encoded = worker.encoded(batches(*part), WARD, "refuse", NAMES)
        rows += [
            Row(**line)
            for batch in worker.summed(encoded, sent, lines, firsts or {}, D, 7)
            for line in batch.to_pylist()
        ]
    return rows


def context(place):
    return types.SimpleNamespace(partitionId=lambda: place)


def sum_at_once(ask: BlockSum, x, y) -> ExactSum:
    with jax.enable_x64(True):
        rows = WARD.rows({**{f"x{i}": x[:, i] for i in range(D)}, "back": y.astype(object)})
        return exact_sum(ask.query, jax.tree.map(jax.numpy.asarray, rows), None, jax.numpy.asarray(WEIGHTS))


def same(first: ExactSum, second: ExactSum) -> bool:
    with jax.enable_x64(True):
        return bool((first.steps == second.steps).all() and (first.unit == second.unit).all())


@pytest.mark.parametrize("count", [1, 2, 7])
def test_partitions_add_up_to_the_sum_in_memory(count, monkeypatch):
    x, y = table()
    ask, order = gradient(), np.random.default_rng(count).permutation(N)
    parts = [(x[here], y[here]) for here in np.array_split(order, count)]
    with jax.enable_x64(True):
        total = added(sums(parts, ask, monkeypatch)[::-1])
        assert float(jax.numpy.abs(total.steps).min()) > 0
    assert same(total, sum_at_once(ask, x, y))


def test_the_sums_of_two_batches_that_share_no_line_are_the_sum_of_all(monkeypatch):
    x, y = table()
    parts, firsts = [(x[:2000], y[:2000]), (x[2000:2100], y[2000:2100]), (x[2100:], y[2100:])], {0: 0, 1: 2000, 2: 2100}
    ask, picked = gradient(), np.arange(0, N, 3)
    picked = picked[(picked < 2000) | (picked >= 2100)]  # one partition has no line of the batch
    with jax.enable_x64(True):
        total = added(sums(parts, ask, monkeypatch, picked, firsts))
    assert same(total, sum_at_once(ask, x[picked], y[picked]))


def test_a_worker_compiles_a_query_once_whatever_its_parameters(monkeypatch):
    x, y = table()
    with jax.enable_x64(True):
        sums([(x, y)], gradient(), monkeypatch)
        compiled = blocks._add_rows._cache_size()
        first, second = (sums([(x, y)], gradient(seed), monkeypatch) for seed in (1, 2))
    assert blocks._add_rows._cache_size() == compiled
    assert first[0].high != second[0].high or first[0].low != second[0].low


def test_sums_longer_than_float64_add_up_exactly():
    big, small = np.array([2.0**40]).tobytes(), np.array([1.0]).tobytes()
    low = np.array([2.0**32 - 1]).tobytes()
    with jax.enable_x64(True):
        total = added(
            [Row(high=big, low=low, unit=small), Row(high=np.array([-(2.0**40)]).tobytes(), low=low, unit=small)]
        )
        assert (total.high[0], total.low[0]) == (1.0, 2.0**32 - 2)


def test_a_digest_knows_the_rows_and_not_their_order():
    x, y = table()
    rows = WARD.rows({**{f"x{i}": x[:, i] for i in range(D)}, "back": y.astype(object)})
    order = np.random.default_rng(1).permutation(N)
    moved = Rows(rows.x[order], rows.y[order], rows.mask[order])
    swapped = np.array(rows.x)
    swapped[[0, 1], 0] = swapped[[1, 0], 0]  # the same numbers in every column, in other rows
    assert sum_of_rows(rows, 7) == sum_of_rows(moved, 7)
    assert sum_of_rows(rows, 7) != sum_of_rows(rows, 8)
    assert sum_of_rows(Rows(swapped, rows.y, rows.mask), 7) != sum_of_rows(rows, 7)


def test_lists_that_are_null_or_too_long_or_hold_nulls_are_no_numbers():
    column = pa.array([[1.0, 2.0], None, [1.0], [3.0, None], [1.0, 2.0, 3.0], [5.0, 6.0]])[1:]
    values = worker.matrix(column, 2)
    np.testing.assert_array_equal(values, [[np.nan] * 2, [np.nan] * 2, [3.0, np.nan], [np.nan] * 2, [5.0, 6.0]])


def test_rows_on_a_cluster_are_not_shown_and_do_not_stream():
    rows = SparkRows.__new__(SparkRows)
    assert repr(rows) == "SparkRows(not shown)"
    with pytest.raises(TypeError, match="added up there"):
        rows.blocks()


def test_what_a_worker_is_asked_is_the_same_for_jit_once_unpickled():
    ask = gradient()
    assert jax.tree.structure(cloudpickle.loads(cloudpickle.dumps(ask))) == jax.tree.structure(ask)


def test_a_package_that_is_missing_is_not_said_to_be_in_the_executors_logs():
    missing_here = PySparkImportError(
        errorClass="PACKAGE_NOT_INSTALLED", messageParameters={"package_name": "Pandas", "minimum_version": "2.2"}
    )
    with (
        pytest.raises(RowsError, match=r"lacks a package that it needs; install l2p-jax\[spark\]"),
        _failing("encoding"),
    ):
        raise missing_here


@pytest.mark.parametrize("null", [0, 3])
def test_public_rows_that_are_the_private_ones_are_refused_whatever_rows_of_these_are_null(null):
    x, y = table()
    x[:null] = np.nan
    private = WARD.rows(dict(zip(WARD.schema.features, x.T, strict=True)) | {"back": y.astype(object)}, "null")
    public = jax.tree.map(lambda leaf: leaf[null:][::-1], private)
    rows = object.__new__(SparkRows)  # without a cluster to read
    rows.num_rows, rows.num_features, rows._key = N, D, 7
    rows._expected = {0: (N, sum_of_rows(private, 7))}
    with pytest.raises(InputError, match="the private table itself"):
        rows.refuse_equal(public)
    rows.refuse_equal(jax.tree.map(lambda leaf: leaf[1:], public))
    rows.refuse_equal(public.replace(x=public.x[:, ::-1]))
