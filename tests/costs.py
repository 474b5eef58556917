"""What each test costs, and which ones `pytest` therefore leaves to `pytest -m slow`.

Costs are CPU seconds with an empty compilation cache, in costs.json; a test that is not there costs nearly nothing, so
that a new one always runs. To measure again, with any number of other jobs on the machine:

    rm -r /tmp/cold; JAX_COMPILATION_CACHE_DIR=/tmp/cold pytest -m "slow or not slow" --record-costs

A test above MAX_SECONDS is slow unless representatives.toml keeps it, which says what it alone would catch.
"""

import json
import resource
import time
import tomllib
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
COSTS = json.loads((HERE / "costs.json").read_text(encoding="utf-8"))
REPRESENTATIVES = tomllib.loads((HERE / "representatives.toml").read_text(encoding="utf-8"))
#: A test may cost this much, in CPU seconds; below MIN_SECONDS it is not written down.
MAX_SECONDS, MIN_SECONDS = 1.0, 0.3
#: Under which a worker reports what a test cost to the process that writes costs.json.
PROPERTY = "cpu_seconds"


def is_slow(name: str) -> bool:
    """Whether a test, named as pytest does, is left to the slow run."""
    return COSTS.get(name, 0.0) > MAX_SECONDS and name not in REPRESENTATIVES


def cpu_seconds() -> float:
    """That this process and its children, those that have ended, have used so far."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def pytest_addoption(parser):
    """Add the option that measures."""
    parser.addoption("--record-costs", action="store_true", help="write what tests cost to tests/costs.json")


@pytest.hookimpl(tryfirst=True)  # before -m looks at the marks
def pytest_collection_modifyitems(items):
    """Mark what is slow."""
    for item in items:
        if is_slow(item.nodeid):
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item, nextitem):
    """Measure a test with its fixtures."""
    item.stash[_BEGAN] = cpu_seconds()
    return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item, call):
    """Send the cost along with the report of the test's end."""
    if call.when == "teardown":
        item.user_properties.append((PROPERTY, cpu_seconds() - item.stash[_BEGAN]))


_BEGAN = pytest.StashKey[float]()


class Recorder:
    """Writes the costs down, in the one process that hears of every test."""

    def __init__(self):
        self.costs = {}

    def pytest_runtest_logreport(self, report):
        """Keep the cost of a test that has ended."""
        if report.when == "teardown":
            self.costs[report.nodeid] = round(dict(report.user_properties)[PROPERTY], 1)

    def pytest_sessionfinish(self):
        """Replace the costs of the tests that ran, and leave the others as they are."""
        costs = {name: cost for name, cost in (COSTS | self.costs).items() if cost >= MIN_SECONDS}
        text = json.dumps(dict(sorted(costs.items())), indent=0, ensure_ascii=False)
        (HERE / "costs.json").write_text(text + "\n", encoding="utf-8")


def pytest_configure(config):
    """Record in the process that was started, not in its workers."""
    if config.getoption("record_costs", False) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder())
