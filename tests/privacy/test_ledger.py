"""The ledger of a data set: reservations, settlements and releases never let runs spend more than its limit."""

import math
import os

import pytest

from l2p.privacy import Adjacency, Budget
from l2p.privacy.ledger.ledger import Cost, Ledger
from tests.privacy.ledgers import BUDGET, assert_sound, sentence


def test_what_is_written_is_read_again(tmp_path):
    budget = Budget(0.1, 1e-8, Adjacency.ADD_REMOVE)
    created = Ledger.create(tmp_path / "a ?#%.ledger", "ward 7 – Zürich", budget, "basic", Cost(0.1, 1e-8))
    assert Ledger.open(created.path) == created
    assert (created.name, created.budget, created.unit, created.limit) == (
        "ward 7 – Zürich",
        budget,
        "basic",
        Cost(0.1, 1e-8),
    )
    assert created.created.endswith("+00:00")
    assert [path.name for path in tmp_path.iterdir()] == ["a ?#%.ledger"]
    assert (created.entries(), created.spent(), created.left()) == ([], Cost(0.0), created.limit)


def test_a_run_is_reserved_settled_and_listed(ledger):
    run = ledger.reserve(Cost(0.75), "noisygd, epsilon 0.75, delta 1e-7")
    assert (ledger.spent(), ledger.left()) == (Cost(0.75), Cost(0.25))
    ledger.settle(run, Cost(0.5))
    (entry,) = ledger.entries()
    assert (ledger.spent(), ledger.left()) == (Cost(0.5), Cost(0.5))
    assert (entry.id, entry.what, entry.state) == (run, "noisygd, epsilon 0.75, delta 1e-7", "settled")
    assert (entry.reserved, entry.counted, entry.process) == (Cost(0.75), Cost(0.5), os.getpid())


def test_a_released_run_counts_nothing_and_stays_in_the_history(ledger):
    run = ledger.reserve(Cost(1.0), "agd")
    ledger.release(run, "its table was missing")
    (entry,) = ledger.entries()
    assert (entry.state, entry.reserved, entry.counted) == ("released", Cost(1.0), Cost(0.0))
    assert entry.reason == "its table was missing"
    assert ledger.left() == ledger.limit
    ledger.reserve(Cost(1.0), "agd again")


def test_both_numbers_are_capped(basic):
    with sentence("epsilon 1 at delta 1e-06 left", "epsilon 0.5 at delta 2e-06, so it must not start"):
        basic.reserve(Cost(0.5, 2e-6), "too much delta")
    with sentence("epsilon 1 at", "asks for epsilon 1.5"):
        basic.reserve(Cost(1.5, 1e-7), "too much epsilon")
    basic.reserve(Cost(0.5, 1e-6), "all of the delta")
    basic.reserve(Cost(0.5), "a pure run")
    assert basic.left() == Cost(0.0)


def test_a_run_that_asks_for_a_delta_is_refused_where_there_is_none(ledger):
    with sentence("and 1e-09 more"):
        ledger.reserve(Cost(0.1, 1e-9), "has a delta")


@pytest.mark.parametrize(
    "cost",
    [Cost(0.0), Cost(-0.0, 0.0), Cost(math.nan), Cost(-0.1), Cost(math.inf), Cost(0.1, -1e-9), Cost(0.1, math.nan)],
)
def test_a_cost_that_cannot_be_counted_is_refused(basic, cost):
    with sentence("cannot be counted"):
        basic.reserve(cost, "nonsense")
    assert basic.entries() == []


@pytest.mark.parametrize("text", ["", " ", "two\nlines", "a\u2028b"])
def test_texts_are_one_line(ledger, text):
    with sentence("one line"):
        ledger.reserve(Cost(0.1), text)
    with sentence("one line"):
        ledger.release(ledger.reserve(Cost(0.1), "run"), text)
    with sentence("one line"):
        Ledger.create(ledger.path.with_name("other"), text, BUDGET, "gdp", Cost(1.0))


def test_an_unknown_or_settled_run_changes_nothing(ledger):
    run = ledger.reserve(Cost(0.5), "run")
    ledger.settle(run, Cost(0.25))
    before = ledger.entries()
    for _ in range(2):
        with sentence("has settled", error=RuntimeError):
            ledger.settle(run, Cost(0.0))
        with sentence("is settled"):
            ledger.release(run, "by mistake")
        with sentence("no run 'x'", error=RuntimeError):
            ledger.settle("x", Cost(0.0))
        with sentence("no run 'x'"):
            ledger.release("x", "by mistake")
    assert ledger.entries() == before


@pytest.mark.parametrize("cost", [Cost(0.6), Cost(math.nan), Cost(-0.1), Cost(0.1, 1e-9), Cost(math.inf)])
def test_a_run_that_spent_more_than_it_reserved_is_counted_in_full(ledger, cost):
    run = ledger.reserve(Cost(0.5), "run")
    with sentence("withhold its result", error=RuntimeError):
        ledger.settle(run, cost)
    (entry,) = ledger.entries()
    assert (entry.state, entry.counted) == ("settled", Cost(0.5))


def test_a_released_run_that_turns_out_to_have_spent_counts_again(ledger):
    run = ledger.reserve(Cost(0.75), "slow")
    ledger.release(run, "it seemed to hang")
    with sentence("is released"):
        ledger.release(run, "once more")
    ledger.reserve(Cost(0.5), "next")
    with sentence("it seemed to hang", "which counts again", error=RuntimeError):
        ledger.settle(run, Cost(0.75))
    assert (ledger.spent(), ledger.left()) == (Cost(1.25), Cost(0.0))
    with sentence("epsilon 0 at delta", "left and this run asks for"):
        ledger.reserve(Cost(1e-300), "another")


def test_a_released_run_may_settle_for_nothing(ledger):
    run = ledger.reserve(Cost(0.75), "slow")
    ledger.release(run, "no table")
    ledger.settle(run, Cost(0.0))
    assert ledger.left() == ledger.limit


def test_tenths_fill_a_limit_without_passing_it(tmp_path):
    """0.1 is above a tenth in float64, so ten of them are above 1; a naive sum in float64 would grant the tenth."""
    ledger = Ledger.create(tmp_path / "ward.ledger", "ward", BUDGET, "gdp", Cost(1.0))
    for _ in range(9):
        ledger.reserve(Cost(0.1), "run")
    assert sum([0.1] * 10) <= 1.0
    with sentence("left"):
        ledger.reserve(Cost(0.1), "run")
    ledger.reserve(ledger.left(), "all that is left")
    assert ledger.left() == Cost(0.0)
    assert_sound(ledger)
