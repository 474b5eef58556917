"""The classifier on a real Spark cluster of two workers."""

import dataclasses
import os
import signal
from pathlib import Path

import jax
import numpy as np
import pytest

import l2p
from l2p.base.errors import InputError, RowsError
from l2p.models import find_model
from l2p.oracle.sums import BlockSum, exact_sum
from l2p.privacy.ledger.ledger import Ledger
from l2p.privacy.ledger.reservation import limit_of
from l2p.protectors import HAND_DESIGNED
from l2p.queries import ClippedGradient
from l2p.tables.schema import Encoding, Number, Schema, Target
from l2p.task.feature_map import FeatureMap
from tests.estimators.spark.cluster import missing, running

if reason := missing(java=False):
    pytest.skip(reason, allow_module_level=True)

import pyarrow as pa
from pyspark import TaskContext
from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.feature import VectorAssembler
from pyspark.sql import functions as F

from l2p.estimators.spark import PrivateClassifier
from l2p.estimators.spark import rows as of_spark
from l2p.estimators.spark.columns import features_of, labels_of
from l2p.estimators.spark.rows import encoded_rows

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

N, STEPS, SEED = 900, 2, 3
COLUMNS = ["age", "stay", "visits"]
BUDGET = l2p.Budget(8.0, 1e-5)
BOUNDS, CLASSES = [[0, 0, 0], [1, 1, 2]], ["no", "yes"]
WARD = Schema({name: Number(0, high) for name, high in zip(COLUMNS, BOUNDS[1], strict=True)}, Target("back", CLASSES))


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    with running(tmp_path_factory.mktemp("spark")) as session:
        yield session


def arrays() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    x = generator.random((N, 3))
    return x, np.where(x[:, 0] + 0.1 * generator.standard_normal(N) > 0.5, "yes", "no")


def columns(x, y) -> dict[str, list]:
    return dict(zip(COLUMNS, x.T.tolist(), strict=True)) | {"back": y.tolist()}


@pytest.fixture(scope="module")
def ward(spark):
    return spark.createDataFrame(pa.table(columns(*arrays())))


def assembler() -> VectorAssembler:
    return VectorAssembler(inputCols=COLUMNS, outputCol="features", handleInvalid="keep")


def short():
    """A method of few steps, each of which is a job."""
    return dataclasses.replace(HAND_DESIGNED["noisygd"](BUDGET), num_steps=STEPS)


def classifier(**changed) -> PrivateClassifier:
    parts = {"labelCol": "back", "epsilon": 8.0, "delta": 1e-5, "bounds": BOUNDS, "classes": CLASSES}
    return PrivateClassifier(**parts | changed)


@pytest.fixture(scope="module")
def fitted(spark, ward):
    """Models of one seed by the number of partitions."""
    pipeline = Pipeline(stages=[assembler(), classifier(protector=short(), seed=SEED)])
    return {count: pipeline.fit(ward.repartition(count)) for count in (1, 2, 7)}


def ledger_of(folder, budget) -> Ledger:
    return Ledger.create(folder / "ward.ledger", "ward", budget, "basic", limit_of("basic", budget))


def params_of(model) -> np.ndarray:
    return np.asarray(model.stages[-1].predictor.params)


def gradient() -> BlockSum:
    model, unit = find_model("logistic"), jax.numpy.float32(1.0)
    params = jax.random.normal(jax.random.key(0), (model.num_params(3),))
    return BlockSum(ClippedGradient(model, params, FeatureMap.identity(3), unit, unit), None, None)


def rows_of(table):
    """The rows of a DataFrame with the columns of the ward, encoded on the cluster."""
    there = assembler().transform(table)
    return encoded_rows(there, (features_of(there, "features"), labels_of(there, "back")), Encoding(WARD), "refuse")


def test_partitions_change_no_bit_of_a_fit_which_is_that_of_arrays(fitted):
    first, *others = (params_of(fitted[count]) for count in (1, 2, 7))
    for params in others:
        np.testing.assert_array_equal(params, first)
    here = l2p.private_train(arrays(), short(), BUDGET, bounds=BOUNDS, classes=CLASSES, key=jax.random.key(SEED))
    np.testing.assert_allclose(first, here.params, rtol=2e-4, atol=2e-5)
    assert not fitted[1].stages[-1].card.private_release


def test_a_saved_pipeline_predicts_the_same_and_leaves_null_what_it_cannot_read(spark, fitted, ward, tmp_path):
    fitted[2].write().save(str(tmp_path / "model"))
    loaded = PipelineModel.load(str(tmp_path / "model"))
    x, y = arrays()
    some = columns(x[:50], y[:50])
    some["age"][0] = None
    table = spark.createDataFrame(pa.table(some)).coalesce(1)
    predictions = [row.asDict() for row in loaded.transform(table).select("prediction", "probability").collect()]
    assert (predictions[0]["prediction"], predictions[0]["probability"]) == (None, None)
    run = loaded.stages[-1]
    run.writeRun(tmp_path / "run")
    here = l2p.load_model(tmp_path / "run")
    expected = dict(zip(COLUMNS, x[1:50].T, strict=True))
    assert [row["prediction"] for row in predictions[1:]] == here.predict(expected).tolist()
    np.testing.assert_allclose([row["probability"].toArray() for row in predictions[1:]], here.predict_proba(expected))
    np.testing.assert_array_equal(params_of(loaded), params_of(fitted[1]))
    assert run.card == fitted[2].stages[-1].card


def test_a_saved_estimator_keeps_its_parameters(spark, tmp_path):
    estimator = classifier(protector="noisygd", bounds=(np.zeros(3), np.ones(3)), classes=np.array([0, 1]), epsilon=2)
    estimator.save(str(tmp_path / "estimator"))
    loaded = PrivateClassifier.load(str(tmp_path / "estimator"))
    values = {param.name: value for param, value in estimator.extractParamMap().items()}
    assert {param.name: value for param, value in loaded.extractParamMap().items()} == values
    assert values["bounds"] == [[0.0] * 3, [1.0] * 3]
    with pytest.raises(InputError, match="protector is an object"):
        classifier(protector=short()).save(str(tmp_path / "object"))


def steered(name, adjacency):
    """PPSGD of few steps, each of which is a job."""
    protector = HAND_DESIGNED[name](dataclasses.replace(BUDGET, adjacency=adjacency), num_rows=N)
    return dataclasses.replace(protector, inner=protector.inner.replace(num_steps=STEPS))


@pytest.mark.parametrize(
    ("name", "adjacency"), [("ppsgd", "replace_one"), ("ppsgd_tight", "zero_out"), ("ppgd", "zero_out")]
)
def test_ppsgd_trains_on_a_cluster_as_on_arrays_and_tells_public_rows_apart(spark, ward, name, adjacency):
    (x, y), protector = arrays(), steered(name, adjacency)
    public = x[:300:10], y[:300:10]
    table = assembler().transform(spark.createDataFrame(pa.table(columns(*public))))
    estimator = classifier(protector=protector, adjacency=adjacency, public=table, seed=SEED)
    there = estimator.fit(assembler().transform(ward.repartition(1)))  # so that batches have the same lines
    budget = dataclasses.replace(BUDGET, adjacency=adjacency)
    options = {"bounds": BOUNDS, "classes": CLASSES, "key": jax.random.key(SEED), "public": public}
    here = l2p.private_train((x, y), protector, budget, **options)
    if name == "ppgd":  # batches depend on the order of lines
        np.testing.assert_allclose(there.predictor.params, here.params, rtol=2e-4, atol=2e-5)
    assert (there.card.public, there.card.mechanisms) == (here.card.public, here.card.mechanisms)
    assert there.card.adjacency == adjacency


def test_what_is_amiss_with_public_rows_is_said_before_budget_is_spent(spark, ward, tmp_path):
    table, (x, y) = assembler().transform(ward), arrays()

    def of(x, y, **cells):
        return assembler().transform(spark.createDataFrame(pa.table(columns(x, y) | cells)))

    cases = {
        "learns from public rows too, and none are given": None,
        "has none; check where it comes from": table.limit(0),
        "of the public rows: .*missing": of(x[:9], y[:9], age=[None, *[0.5] * 8]),
        "the public rows are the private table itself": of(x[::-1], y[::-1]),
    }
    ledger = ledger_of(tmp_path, BUDGET)
    for phrase, public in cases.items():
        with pytest.raises(InputError, match=phrase):
            classifier(protector="ppgd", public=public, ledger=ledger.path).fit(table)
    with pytest.raises(InputError, match="the public rows are the private table itself"):
        classifier(protector="ppgd", public=assembler().transform(ward), ledger=ledger.path).fit(table)
    with pytest.raises(InputError, match="the estimator has public rows"):
        classifier(protector="ppgd", public=table).save(str(tmp_path / "estimator"))
    assert ledger.entries() == []


def test_a_release_is_private_and_stands_in_the_ledger(spark, ward, tmp_path):
    ledger = ledger_of(tmp_path, BUDGET)
    fit = classifier(protector=short(), epsilon=4.0, ledger=ledger.path).fit(assembler().transform(ward))
    assert fit.card.private_release
    assert fit.card.num_rows == N
    assert len(ledger.entries()) == 1


def kill_the_executor():
    """Kill the JVM that this task's Python belongs to, as the kernel does where memory ends."""
    executor, words = os.getpid(), ""
    while "CoarseGrainedExecutorBackend" not in words:
        executor = int(Path(f"/proc/{executor}/stat").read_text().rpartition(")")[2].split()[1])
        assert executor > 1, "no executor runs this task"
        words = Path(f"/proc/{executor}/cmdline").read_text()
    os.kill(executor, signal.SIGKILL)
    signal.pause()


@pytest.mark.parametrize("ends", ["with an error", "with its process", "with its executor"])
def test_a_task_that_fails_once_changes_nothing(spark, ward, tmp_path, ends):
    ask, failed = gradient(), tmp_path / "failed"

    def fails_once(blocks):
        if TaskContext.get().partitionId() == 1 and not failed.exists():
            failed.touch()
            next(blocks)
            if ends == "with an error":
                raise ValueError("the first attempt fails")
            if ends == "with its executor":
                kill_the_executor()
            os._exit(1)
        return ask(blocks)

    with rows_of(ward.repartition(2)) as rows, jax.enable_x64(True):
        total, again = rows.exact_sum(ask, None), rows.exact_sum(fails_once, None)
        x, y = arrays()
        here = Encoding(WARD).rows(dict(zip(COLUMNS, x.T, strict=True)) | {"back": y.astype(object)})
        expected = exact_sum(ask.query, jax.tree.map(jax.numpy.asarray, here))
        assert failed.exists()
        for answer in (total, again):
            np.testing.assert_array_equal(answer.steps, expected.steps)
            np.testing.assert_array_equal(answer.unit, expected.unit)


def dying(monkeypatch, where, once):
    """Have each query's task for partition 1 die after its first rows, or only the first such task; a line in the file
    `where` for each death."""
    portable = of_spark._portable

    def ask_of(summed):
        ask = portable(summed)

        def dying_ask(blocks):
            if TaskContext.get().partitionId() == 1 and not (once and where.exists()):
                next(blocks)
                with where.open("a") as file:
                    file.write("died\n")
                kill_the_executor() if once else os._exit(1)
            return ask(blocks)

        return dying_ask

    monkeypatch.setattr(of_spark, "_portable", ask_of)


def test_an_executor_that_is_killed_during_a_run_costs_no_budget_of_its_own(spark, ward, tmp_path, monkeypatch):
    table, ledger = assembler().transform(ward.repartition(2)), ledger_of(tmp_path, l2p.Budget(8.0, 2e-5))
    estimator = classifier(protector=short(), epsilon=4.0, ledger=ledger.path)
    dying(monkeypatch, tmp_path / "died", once=True)
    killed = estimator.fit(table)
    assert (tmp_path / "died").read_text() == "died\n"
    undisturbed = estimator.fit(table)
    assert killed.card.mechanisms == undisturbed.card.mechanisms
    first, second = ledger.entries()
    assert (first.state, first.counted) == (second.state, second.counted) == ("settled", first.counted)


def test_a_task_that_fails_each_time_ends_the_run_whose_reservation_remains(spark, ward, tmp_path, monkeypatch):
    ledger = ledger_of(tmp_path, BUDGET)
    dying(monkeypatch, tmp_path / "died", once=False)
    estimator = classifier(protector=short(), epsilon=4.0, ledger=ledger.path)
    with pytest.raises(RowsError, match="Spark failed while adding up rows") as caught:
        estimator.fit(assembler().transform(ward.repartition(2)))
    assert (tmp_path / "died").read_text() == "died\n" * 4
    assert any("reserv" in note for note in caught.value.__notes__)
    (entry,) = ledger.entries()
    assert (entry.state, entry.counted) == ("reserved", entry.reserved)


def test_the_driver_receives_no_more_than_a_sum_from_each_partition(spark):
    x, y = (np.repeat(part, 40, axis=0) for part in arrays())
    table = spark.createDataFrame(pa.table(columns(x, y))).repartition(2)
    ask, sums = gradient(), 3 * 8 * 4  # two parts and a unit, for each of four numbers
    with rows_of(table) as rows, jax.enable_x64(True):
        spark.sparkContext.setJobGroup("sum", "one sum")
        rows.exact_sum(ask, None)
        tracker, store = spark.sparkContext.statusTracker(), spark.sparkContext._jsc.sc().statusStore()
        stages = [stage for job in tracker.getJobIdsForGroup("sum") for stage in tracker.getJobInfo(job).stageIds]
        sent = sum(store.lastStageAttempt(stage).resultSize() for stage in stages)
        assert rows.received == [rows.partitions * sums]
        assert sums < sent < rows.partitions * (sums + 8192) < len(x) * 4  # 8 KiB for Spark's own account of a task


def test_a_table_that_changes_between_passes_ends_the_run(spark, tmp_path):
    path = tmp_path / "ward.csv"
    lines = [f"0.{place + 100},0.5,1,{'yes' if place % 2 else 'no'}" for place in range(400)]
    path.write_text("\n".join(lines))
    table = spark.read.csv(str(path), "age double, stay double, visits double, back string")
    with rows_of(table) as rows, jax.enable_x64(True):
        rows.exact_sum(gradient(), None)
        rows._rows.unpersist(True)  # as when the machine that kept them is lost
        rows.exact_sum(gradient(), None)
        path.write_text("\n".join([*lines[:-1], lines[0]]))
        with pytest.raises(RowsError, match="came out with other rows"):
            rows.exact_sum(gradient(), None)


def spoiled(**cells):
    """The ward with other cells in its first row."""
    spoiled_columns = columns(*arrays())
    for name, cell in cells.items():
        spoiled_columns[name][0] = cell
    return spoiled_columns


REFUSED_BY_TYPE = {
    "no such column": ({"featuresCol": "vector"}, "no column 'vector'"),
    "text features": ({"featuresCol": "back"}, "VectorAssembler"),
    "a label that is a vector": ({"labelCol": "features"}, "labels are numbers, texts or booleans"),
    "no bounds": ({"bounds": None}, "bounds are not declared"),
    "no classes": ({"classes": None}, "classes are not declared"),
    "bounds of other features": ({"bounds": [[0, 0], [1, 1]]}, "holds 3"),
    "no such way with invalid rows": ({"onInvalid": "drop"}, "choose 'refuse' or 'null'"),
    "no such protector": ({"protector": "nosuch"}, "nosuch"),
    "rows that may come or go": ({"adjacency": "add_remove"}, "the number of rows is private"),
}


@pytest.mark.parametrize("case", REFUSED_BY_TYPE)
def test_what_types_and_parameters_tell_is_refused_before_any_job(spark, ward, case):
    options, phrase = REFUSED_BY_TYPE[case]
    table = assembler().transform(ward)
    spark.sparkContext.setJobGroup(case, case)
    with pytest.raises(InputError, match=phrase):
        classifier(**options).fit(table)
    assert len(spark.sparkContext.statusTracker().getJobIdsForGroup(case)) == 0


REFUSED_BY_ROWS = {
    "a null feature": (spoiled(age=None), "column 'age' has cells that are missing"),
    "a null label": (spoiled(back=None), "labels other than 'no', 'yes'|labels other than no, yes"),
    "a label of no class": (spoiled(back="Smith"), "labels other than"),
    "too few rows for delta": ({name: cells[:4] for name, cells in spoiled().items()}, "delta"),
    "no rows": ({name: cells[:0] for name, cells in spoiled().items()}, "no rows"),
}


@pytest.mark.parametrize("case", REFUSED_BY_ROWS)
def test_rows_that_do_not_fit_are_refused_with_the_budget_untouched(spark, tmp_path, case):
    cells, phrase = REFUSED_BY_ROWS[case]
    ledger = ledger_of(tmp_path, l2p.Budget(8.0, 0.3))
    kinds = pa.schema([*((name, pa.float64()) for name in COLUMNS), ("back", pa.string())])
    table = assembler().transform(spark.createDataFrame(pa.table(cells, kinds)))
    estimator = classifier(protector=short(), delta=0.3 if "few" in case else 1e-5, ledger=ledger.path)
    with pytest.raises(InputError, match=phrase) as refused:
        estimator.fit(table)
    assert "Smith" not in str(refused.value)
    assert ledger.entries() == []


def test_a_failure_on_the_cluster_quotes_no_row(spark, ward):
    table = assembler().transform(ward.withColumn("age", F.expr("cast(concat('Smith', age) as double)")))
    with pytest.raises(InputError, match=r"Spark failed while encoding rows.*No budget was spent") as refused:
        classifier().fit(table)
    assert "Smith" not in str(refused.value)
