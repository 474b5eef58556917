"""What each test costs, and which ones `pytest` therefore leaves to `pytest -m slow`.

Costs are CPU seconds with an empty compilation cache, in costs.json; a case that is not there costs nearly nothing, so
a new one always runs. To measure again, whatever else the machine is doing:

    rm -rf /tmp/cold; JAX_COMPILATION_CACHE_DIR=/tmp/cold pytest -m "slow or not slow" --record-costs

Tests that share a fixture cost what each costs alone, with the fixture. What runs at once: every case of at most
MAX_SECONDS, the cheapest case of each test if it costs at most MAX_SECONDS_OF_A_TEST, and what representatives.toml
names, because it catches what none of these would; but for the cases that it calls alike to others.
"""

import json
import resource
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
COSTS = json.loads((HERE / "costs.json").read_text(encoding="utf-8"))
REPRESENTATIVES = tomllib.loads((HERE / "representatives.toml").read_text(encoding="utf-8"))
_alike = REPRESENTATIVES.pop("alike")
#: By file: cases that resemble another one. What a case's tests compile is shared, so each of them is cheap only if
#: another one has paid; they run all or none.
ALIKE: dict[str, dict[str, str]] = dict.fromkeys(_alike["files"], _alike["cases"])
#: CPU seconds. Costs below the least are not written down.
MAX_SECONDS, MAX_SECONDS_OF_A_TEST, MIN_SECONDS = 0.25, 0.7, 0.2
#: Under which a worker reports what a test cost to the process that writes costs.json.
PROPERTY = "cpu_seconds"


def slow(names: Sequence[str]) -> set[str]:
    """Those of the collected tests, named as pytest does, that are left to the slow run."""
    dear = {name for name in names if COSTS.get(name, 0.0) > MAX_SECONDS}
    with_cheap_case = {test_of(name) for name in names if name not in dear}
    cheapest: dict[str, str] = {}
    for name in sorted(dear, key=lambda name: (-COSTS[name], name)):
        cheapest[test_of(name)] = name
    alone = {
        name for test, name in cheapest.items() if test not in with_cheap_case and COSTS[name] <= MAX_SECONDS_OF_A_TEST
    }
    dear = {name for name in dear - alone if name not in REPRESENTATIVES and test_of(name) not in REPRESENTATIVES}
    return dear | set(filter(is_alike, names))


def is_alike(name: str) -> bool:
    """Whether a test is of a case that resembles another one."""
    return case_of(name) in ALIKE.get(name.split("::")[0], ())


def test_of(name: str) -> str:
    """The test that a case is of: its name without the parameters.

    >>> test_of("tests/test_a.py::test_b[c[0]]")
    'tests/test_a.py::test_b'
    """
    return name.split("[", 1)[0]


def case_of(name: str) -> str:
    """Its parameters; empty for a test without.

    >>> case_of("tests/test_a.py::test_b[c[0]]")
    'c[0]'
    """
    return name[len(test_of(name)) + 1 : -1]


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
    names = slow([item.nodeid for item in items])
    for item in items:
        if item.nodeid in names:
            item.add_marker(pytest.mark.slow)
        if is_alike(item.nodeid):
            item.add_marker(pytest.mark.by_hand)


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
