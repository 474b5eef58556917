"""`l2p ledger`: limits that a budget buys, what is shown, and what is refused."""

import json
import math

import pytest

from l2p.commands.ledger import Create, Release, Show
from l2p.privacy import Budget
from l2p.privacy.cost import convert
from l2p.privacy.ledger.ledger import UNITS, Cost, Ledger
from l2p.privacy.ledger.reservation import limit_of
from tests.privacy.ledgers import sentence


@pytest.mark.parametrize("target", [Budget(0.1, 1e-8), Budget(1, 1e-6), Budget(8, 1e-3)])
def test_a_limit_is_what_its_budget_buys(target):
    epsilon, delta = target.epsilon, target.delta
    order = convert.planned_order(epsilon, delta)
    back = {
        "gdp": lambda amount: convert.gdp_epsilon(math.sqrt(amount), delta),
        "zcdp": lambda amount: convert.zcdp_epsilon(amount, delta),
        "rdp": lambda amount: convert.rdp_epsilon(amount, order, delta),
        "basic": lambda amount: amount,
    }
    for unit in UNITS:
        limit = limit_of(unit, target)
        assert back[unit](limit.amount) == pytest.approx(epsilon, rel=1e-8)
        assert limit.delta == (delta if unit == "basic" else 0.0)
    with sentence("unknown"):
        limit_of("dp", target)


@pytest.mark.parametrize("unit", UNITS)
def test_create_and_show(tmp_path, capsys, unit):
    path = tmp_path / "ward.ledger"
    assert Create(path, "ward", 1.0, 1e-6, "add_remove", unit).run() == 0
    with sentence("exists"):
        Create(path, "ward", 1.0, 1e-6).run()
    ledger = Ledger.open(path)
    assert ledger.limit == limit_of(unit, ledger.budget)
    half, tenth = (Cost(*(number * share for number in ledger.limit)) for share in (0.5, 0.1))
    ledger.settle(ledger.reserve(half, "[bold] run"), tenth)
    run = ledger.reserve(half, "noisygd")
    capsys.readouterr()
    assert Show(path, json=True).run() == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["name"], shown["epsilon"], shown["adjacency"], shown["unit"]) == ("ward", 1.0, "add_remove", unit)
    assert (Cost(**shown["spent"]), Cost(**shown["left"])) == (ledger.spent(), ledger.left())
    assert Cost(**shown["reserved"]) == half
    assert [entry["state"] for entry in shown["runs"]] == ["settled", "reserved"]
    assert Cost(**shown["runs"][0]["counted"]) == tenth
    assert Show(path).run() == 0
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("ward", "add_remove", unit, run, "[bold]", "noisygd"))


def test_release_asks_for_the_assertion_that_it_stands_for(ledger, capsys):
    run = ledger.reserve(Cost(1.0), "noisygd")
    with sentence("add --no-query-was-answered"):
        Release(ledger.path, run, "its table was missing").run()
    assert ledger.spent() == Cost(1.0)
    assert Release(ledger.path, run, "its table was missing", no_query_was_answered=True).run() == 0
    assert f"released {run}: ward has epsilon 4.88 at delta 1e-06 left" in capsys.readouterr().out
    assert Show(ledger.path).run() == 0
    assert "released" in capsys.readouterr().out


@pytest.mark.parametrize("make", [Show, lambda path: Release(path, "x", "why", no_query_was_answered=True)])
def test_commands_refuse_a_missing_ledger(tmp_path, make):
    with sentence("create it with l2p ledger create"):
        make(tmp_path / "ward.ledger").run()
