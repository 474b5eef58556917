"""Which tests are slow follows from what they cost, and the lists say nothing of tests that are gone."""

import re
from pathlib import Path

import pytest

from tests import costs

ROOT = Path(__file__).resolve().parent.parent


def test_cheap_cases_run_and_the_cheapest_of_a_test_and_representatives(monkeypatch):
    cheap, fair, dear = costs.MAX_SECONDS, costs.MAX_SECONDS_OF_A_TEST, 2 * costs.MAX_SECONDS_OF_A_TEST
    measured = {"a[1]": cheap, "a[2]": fair, "b[1]": fair, "b[2]": dear, "c": dear, "d": dear, "e[1]": dear}
    monkeypatch.setattr(costs, "COSTS", measured)
    monkeypatch.setattr(costs, "REPRESENTATIVES", {"d": "the only one of its kind", "e": "all of its cases"})
    assert costs.slow([*measured, "new"]) == {"a[2]", "b[2]", "c"}


def test_cases_that_are_alike_run_all_or_none_of_their_tests(monkeypatch):
    names = ["t.py::a[1]", "t.py::a[2]", "t.py::b[2]", "u.py::a[2]"]
    monkeypatch.setattr(costs, "ALIKE", {"t.py": {"2": "1"}})
    monkeypatch.setattr(costs, "REPRESENTATIVES", {"t.py::b": "all of its cases"})
    assert costs.slow(names) == {"t.py::a[2]", "t.py::b[2]"}


@pytest.mark.parametrize("file", costs.ALIKE)
def test_what_is_alike_is_a_case_and_resembles_one_that_runs(file):
    source = (ROOT / file).with_name("conformance.py").read_text(encoding="utf-8")
    for case, other in costs.ALIKE[file].items():
        assert f'    "{case}": ' in source, case
        assert other not in costs.ALIKE[file], other
        assert f'    "{other}": ' in source, other


def test_representatives_would_be_slow_otherwise_and_say_what_they_are_for():
    assert costs.REPRESENTATIVES
    for name, reason in costs.REPRESENTATIVES.items():
        most = max(cost for one, cost in costs.COSTS.items() if name in (one, costs.test_of(one)))
        assert most > costs.MAX_SECONDS, f"{name} runs anyway: take it off the list"
        assert len(reason.split()) > 2, name


@pytest.mark.parametrize("names", [costs.COSTS, costs.REPRESENTATIVES], ids=["costs", "representatives"])
def test_every_test_with_a_cost_still_exists(names):
    sources = {}
    for name in names:
        file, *place = re.sub(r"\[.*", "", name, flags=re.S).split("::")
        assert (ROOT / file).is_file(), f"{file} is gone: measure the costs again"
        source = sources.setdefault(file, (ROOT / file).read_text(encoding="utf-8"))
        function = place[-2] if place[-1] == "runTest" else place[-1].rsplit(".", 1)[-1]
        assert file.endswith(".ipynb") or function in source, f"{name} is gone: measure the costs again"
