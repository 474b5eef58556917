"""A Spark cluster for tests: a driver and two workers, each a process of its own, on this machine."""

import contextlib
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

#: Where it is set, a missing Spark fails the tests instead of skipping them.
REQUIRED = "L2P_SPARK"
ROOT = Path(__file__).resolve().parents[3]
#: Passed on to workers, which compile as the tests do.
_ENVIRONMENT = ("XLA_FLAGS", "JAX_COMPILATION_CACHE_DIR", "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS")


def missing(java: bool = True) -> str | None:
    """Reason why Spark cannot run here, or None; fails if real servers are required."""
    reason = None
    if importlib.util.find_spec("pyspark") is None:
        reason = "pyspark is not installed (pip install 'l2p-jax[spark]')"
    elif java and shutil.which("java") is None:
        reason = "no Java runtime is installed (Debian: apt-get install default-jre-headless)"
    if reason and os.environ.get(REQUIRED):
        pytest.fail(reason, pytrace=False)
    return reason


@contextlib.contextmanager
def running(folder: Path) -> Iterator[Any]:
    """A session on a cluster of two workers, which keeps its files in a folder."""
    if reason := missing():
        pytest.skip(reason)
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    options = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.executorEnv.PYTHONPATH": str(ROOT),
        "spark.local.dir": str(folder / "local"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.network.timeout": "600s",
        "spark.worker.cleanup.enabled": "true",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **{f"spark.executorEnv.{name}": os.environ[name] for name in _ENVIRONMENT if name in os.environ},
    }
    builder = SparkSession.builder.master("local-cluster[2,1,1024]").appName("l2p tests")
    session = builder.config(map=options).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    try:
        yield session
    finally:
        session.stop()
