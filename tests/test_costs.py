"""Which tests are slow follows from what they cost, and the lists say nothing of tests that are gone."""

import re
from pathlib import Path

import pytest

from tests import costs

ROOT = Path(__file__).resolve().parent.parent


def test_cheap_cases_run_and_the_cheapest_of_a_test_and_representatives(monkeypatch):
    monkeypatch.setattr(
        costs, "COSTS", {"a[1]": 0.7, "a[2]": 0.8, "b[1]": 1.9, "b[2]": 2.0, "c": 2.1, "d": 9.0, "e[1]": 9.0}
    )
    monkeypatch.setattr(costs, "REPRESENTATIVES", {"d": "the only one of its kind", "e": "all of its cases"})
    assert costs.slow(["a[1]", "a[2]", "b[1]", "b[2]", "b[2]", "c", "d", "e[1]", "new"]) == {"a[2]", "b[2]", "c"}


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
        function = place[-1].rsplit(".", 1)[-1]
        assert file.endswith(".ipynb") or function in source, f"{name} is gone: measure the costs again"
