"""Private sums over rows on a Spark cluster: one worker against two, rows per second and bytes that reach the driver.

    python -m benchmarks.spark_rows [--rows 1000000 10000000] [--workers 1 2]

Each line is a cluster of its own on this machine, with one core and 1.5 GB for each worker. Rows of 54 numbers are made
by Spark; encoding and caching them is timed by itself. A pass is one clipped gradient of logistic regression, exact;
the first one compiles and is not timed. "Bytes to the driver" is what Spark counts of the results of one pass,
its own account of the tasks included, and "sums" what of it are sums. Needs the extra `spark` and Java 17.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

NUM_FEATURES, PASSES, PARTITIONS = 54, 3, 8


def measure(num_rows: int, workers: int) -> None:
    """One line of the table."""
    import jax
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    from l2p.estimators.spark.rows import encoded_rows
    from l2p.models import Logistic
    from l2p.oracle.sums import BlockSum
    from l2p.queries import ClippedGradient
    from l2p.tables.schema import Encoding, Number, Schema, Target
    from l2p.task.feature_map import FeatureMap

    os.environ["PYSPARK_PYTHON"] = sys.executable
    root = str(Path(__file__).resolve().parent.parent)
    options = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.executorEnv.PYTHONPATH": root,
        # XLA's threads: otherwise the one worker would take all cores of this machine.
        "spark.executorEnv.NPROC": "1",
        "spark.executor.memory": "1500m",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    spark = SparkSession.builder.master(f"local-cluster[{workers},1,1500]").config(map=options).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    numbers = F.array(*(F.rand(place) for place in range(NUM_FEATURES)))
    table = spark.range(num_rows, numPartitions=PARTITIONS).select(numbers.alias("features"))
    columns = F.col("features"), (F.col("features")[0] > F.col("features")[1]).cast("double")
    schema = Schema({f"x{place}": Number(0, 1) for place in range(NUM_FEATURES)}, Target("y", classes=(0, 1)))
    model, unit = Logistic(), jax.numpy.float32(1.0)
    params = model.init(NUM_FEATURES)
    ask = BlockSum(ClippedGradient(model, params, FeatureMap.identity(NUM_FEATURES), unit, unit), None, None)
    began = time.perf_counter()
    with encoded_rows(table, columns, Encoding(schema), "refuse") as rows, jax.enable_x64(True):
        encoded = time.perf_counter() - began
        rows.exact_sum(ask, None)
        spark.sparkContext.setJobGroup("sum", "one sum")
        began = time.perf_counter()
        for _ in range(PASSES):
            rows.exact_sum(ask, None)
        seconds = (time.perf_counter() - began) / PASSES
        tracker, store = spark.sparkContext.statusTracker(), spark.sparkContext._jsc.sc().statusStore()
        stages = [stage for job in tracker.getJobIdsForGroup("sum") for stage in tracker.getJobInfo(job).stageIds]
        sent = sum(store.lastStageAttempt(stage).resultSize() for stage in stages) // PASSES
        print(
            f"| {workers} | {num_rows:,} | {rows.partitions} | {encoded:.0f} | {seconds:.1f} | "
            f"{num_rows / seconds / 1e3:,.0f} | {sent:,} | {rows.received[-1]:,} |",
            flush=True,
        )
    spark.stop()


def main(sizes: list[int], workers: list[int]) -> None:
    print(f"{NUM_FEATURES} features, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before")
    print("| workers | rows | partitions | s to encode | s per pass | thousand rows/s | bytes to the driver | sums |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for num_rows in sizes:
        for count in workers:
            words = ["--measure", str(num_rows), str(count)]
            subprocess.run([sys.executable, __file__, *words], check=True)
    print(f"load {os.getloadavg()[0]:.1f} after")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--measure", type=int, nargs=2, metavar=("ROWS", "WORKERS"), help="one line, in this process")
    options = parser.parse_args()
    if options.measure:
        measure(*options.measure)
    else:
        main(options.rows, options.workers)
