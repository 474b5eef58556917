"""Which tests are slow follows from what they cost, and the lists say nothing of tests that are gone."""

import re
from pathlib import Path

import pytest

from tests import costs

ROOT = Path(__file__).resolve().parent.parent


def test_a_test_is_slow_if_it_costs_more_than_allowed_and_represents_no_others(monkeypatch):
    monkeypatch.setattr(costs, "COSTS", {"cheap": costs.MAX_SECONDS, "dear": 9.0, "kept": 9.0})
    monkeypatch.setattr(costs, "REPRESENTATIVES", {"kept": "the only one of its kind"})
    assert [name for name in ("cheap", "dear", "kept", "new") if costs.is_slow(name)] == ["dear"]


def test_representatives_cost_more_than_allowed_and_say_what_they_are_for():
    assert costs.REPRESENTATIVES
    for name, reason in costs.REPRESENTATIVES.items():
        assert costs.COSTS[name] > costs.MAX_SECONDS, f"{name} runs anyway: take it off the list"
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
