"""Spark MLlib's gradient descent on all rows, as an `EngineRun` declares it: replayed, and its neighbours tried.

`LogisticRegressionWithSGD` takes steps of step / sqrt(i) along the mean gradient of all rows, where miniBatchFraction
is 1, and shrinks weights by step size times regParam. Its convergenceTol, which ends it when private rows say so, is 0.
"""

import numpy as np
import pytest

from l2p import Budget, EngineRun, bolt_on
from tests.estimators.spark.cluster import missing

M, STEP, RIDGE, ITERATIONS = 4, 4.0, 0.05, 3
RUN = EngineRun(
    engine="Spark MLlib LogisticRegressionWithSGD",
    num_rows=M,
    num_passes=ITERATIONS,
    batch_size=M,
    updates=ITERATIONS,
    rule="inverse_power",
    step_size=STEP,
    first_step=STEP,
    last_step=STEP / ITERATIONS**0.5,
    ridge=RIDGE,
)


@pytest.fixture(scope="module")
def spark():
    if reason := missing():
        pytest.skip(reason)
    from pyspark.sql import SparkSession

    options = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    session = SparkSession.builder.master("local[1]").config(map=options).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Deprecated in 2.0.0:FutureWarning")
def test_no_neighbour_moves_the_weights_further_than_is_declared(spark):
    from pyspark.mllib.classification import LogisticRegressionWithSGD
    from pyspark.mllib.regression import LabeledPoint

    def trained(rows):
        points = spark.sparkContext.parallelize([LabeledPoint(label, row) for row, label in rows], 1)
        settings = {"iterations": ITERATIONS, "step": STEP, "regParam": RIDGE, "convergenceTol": 0.0}
        return LogisticRegressionWithSGD.train(points, **settings).weights.toArray()

    rows = [([0.6, 0.8], 1.0), ([-0.6, 0.8], 0.0), ([0.0, 1.0], 1.0), ([0.0, 1.0], 1.0)]
    weights = trained(rows)
    x, y, w = np.array([row for row, _ in rows]), np.array([label for _, label in rows]), np.zeros(2)
    for size in RUN.passes.step_sizes:
        w = w - size * (x.T @ (1 / (1 + np.exp(-x @ w)) - y) / M + RIDGE * w)
    np.testing.assert_allclose(weights, w, rtol=1e-10)

    bound = RUN.passes.sensitivity()
    for place in (0, 3):
        standing = [trained([*rows[:place], row, *rows[place + 1 :]]) for row in (([0.0, 0.0], 0.0), ([0.0, 1.0], 0.0))]
        nulled, pulled = (np.linalg.norm(other - weights) for other in standing)
        apart = np.linalg.norm(standing[0] - standing[1])
        assert 0.1 * bound < max(nulled, apart) <= bound
        assert pulled <= 2 * bound
    assert bolt_on(weights, RUN, Budget(1.0, 0.0)).weights.shape == (2,)
