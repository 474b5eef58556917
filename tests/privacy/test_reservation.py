"""Reservations in a data set's ledger bound the cost of a run's queries there, in every pair of units."""

import functools
import itertools
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from l2p.base.errors import InputError
from l2p.privacy import Adjacency, Answered, Budget, Filter, FixedSize, FullBatch, PermutationEpochs, Poisson
from l2p.privacy.ledger.ledger import Cost, Ledger
from l2p.privacy.ledger.reservation import Reservation, held, limit_of, most_cost

LEDGER = Budget(2.0, 1e-6)
RUNS = [Budget(2.0, 1e-6), Budget(0.5, 1e-8), Budget(0.02, 1e-4), Budget(8.0, 1e-10)]
PURE = ("gumbel", "exponential", "laplace", "gamma")
PRICES_OF = {
    "gdp": ("gaussian",),
    "zcdp": ("gaussian", *PURE),
    "rdp": ("gaussian", *PURE),
    "ctcdp": ("gaussian", *PURE),
}
EPOCHS = PermutationEpochs(3, 10)


@functools.cache
def folder():
    return tempfile.TemporaryDirectory()


@functools.cache
def ledger_in(unit, budget=LEDGER):
    """A ledger for reading only; `new_ledger` makes one for writing."""
    return new_ledger(Path(folder().name), unit, budget)


def new_ledger(path, unit, budget=LEDGER):
    name = f"{unit}-{budget.adjacency}-{len(list(path.iterdir()))}.ledger"
    return Ledger.create(path / name, "ward", budget, unit, limit_of(unit, budget))


def a_trace(filter, mechanisms, random, share=1.0, steps=12):
    """Queries of random strengths, in order, until the next would pass `share` of the run's cap."""
    trace, most = [], random.integers(1, 60)
    for index in range(most):
        mechanism = str(random.choice(mechanisms))
        # Noise for about an equal share each, sometimes far from it.
        scale = np.sqrt(filter.coefficients[mechanism] * most / filter.limit) * np.exp(random.normal(0, 1))
        query = Answered(int(index * steps / most), mechanism, float(scale))
        if filter.spent([*trace, query]) > share * filter.limit:
            break
        trace.append(query)
    return trace


def fill(filter, mechanism, count=1):
    """Equal queries that use the run's cap up to rounding."""
    noise = float(np.sqrt(filter.coefficients[mechanism] * count / filter.limit)) * (1 + 1e-12)
    trace = [Answered(0, mechanism, noise)] * count
    assert filter.limit * (1 - 1e-11) < filter.spent(trace) <= filter.limit
    return trace


@given(
    st.sampled_from(["gdp", "zcdp", "rdp"]),
    st.sampled_from(list(PRICES_OF)),
    st.sampled_from(RUNS),
    st.sampled_from([FullBatch(), EPOCHS]),
    st.integers(0, 2**32),
)
def test_what_is_reserved_bounds_every_trace_that_the_run_s_filter_grants(unit, name, budget, sampler, seed):
    random = np.random.default_rng(seed)
    filter, ledger = Filter(name, budget, sampler), ledger_in(unit)
    priced = [mechanism for mechanism in PRICES_OF[name] if mechanism in PRICES_OF[unit]]
    mechanisms = [priced[index] for index in sorted({*random.integers(0, len(priced), 3).tolist()})]
    most = most_cost(ledger, filter, mechanisms).amount
    counted = Filter(unit, LEDGER, sampler).spent(a_trace(filter, mechanisms, random))
    assert 0 <= counted <= most
    # The bound is tight: the costliest mechanism of the run, used alone, reaches it.
    reached = [Filter(unit, LEDGER, sampler).spent(fill(filter, mechanism)) for mechanism in mechanisms]
    assert most * (1 - 1e-10) <= max(reached) <= most


def test_a_run_in_its_own_ledger_s_terms_reserves_its_cap():
    for unit in ("gdp", "zcdp", "rdp"):
        filter = Filter(unit, LEDGER)
        assert most_cost(ledger_in(unit), filter, ["gaussian"]) == Cost(filter.limit) == ledger_in(unit).limit
    assert most_cost(ledger_in("basic"), Filter("gdp", RUNS[1]), ["gaussian"]) == Cost(0.5, 1e-8)


def test_a_gaussian_run_costs_the_same_in_gdp_and_zcdp():
    run = Filter("gdp", RUNS[1])
    assert most_cost(ledger_in("zcdp"), run, ["gaussian"]).amount == pytest.approx(run.limit / 2, rel=1e-11)
    # By rho alone: the ledger composes queries, so the run's own epsilon and delta do not matter.
    run = Filter("zcdp", RUNS[1])
    assert most_cost(ledger_in("gdp"), run, ["gaussian"]).amount == pytest.approx(run.limit * 2, rel=1e-11)
    order = Filter("rdp", LEDGER).order
    assert most_cost(ledger_in("rdp"), run, ["gaussian"]).amount == pytest.approx(run.limit * order, rel=1e-11)
    # A Gumbel query of the same price has a quarter of the strength of a pure one: the same rho.
    assert most_cost(ledger_in("rdp"), run, ["gumbel", "laplace"]).amount == pytest.approx(run.limit * order, rel=1e-11)


@pytest.mark.parametrize("sampler", [FullBatch(), EPOCHS], ids=lambda sampler: sampler.name)
@pytest.mark.parametrize(("unit", "name"), list(itertools.product(["gdp", "zcdp", "rdp"], PRICES_OF)))
def test_a_settled_run_counts_its_queries_and_never_more_than_it_reserved(tmp_path, unit, name, sampler):
    ledger, filter = new_ledger(tmp_path, unit), Filter(name, RUNS[1], sampler)
    random, spent = np.random.default_rng(0), 0.0
    for index, adaptive in enumerate((True, False, True)):
        reservation = Reservation.make(ledger, filter, ["gaussian"], f"run {index}")
        assert reservation.cost == most_cost(ledger, filter, ["gaussian"])
        assert ledger.spent().amount == pytest.approx(spent + reservation.cost.amount)
        trace = (fill(filter, "gaussian", 7), a_trace(filter, ["gaussian"], random, 0.5), [])[index]
        composition, warnings = reservation.settle(trace, 0.4, adaptive)
        assert warnings == []
        assert composition == {
            "data_set": "ward",
            "unit": composition["unit"],
            "reservation": reservation.id,
            "spent_before": pytest.approx(spent, rel=1e-12),
            "counted": Filter(unit, LEDGER, sampler).spent(trace),
            "limit": limit_of(unit, LEDGER).amount,
            "earlier": composition["earlier"],
        }
        assert [run["run"] for run in composition["earlier"]] == [f"run {earlier}" for earlier in range(index)]
        assert composition["unit"].startswith(f"{unit}: ")
        assert composition["counted"] <= reservation.cost.amount
        assert ledger.entries()[-1].counted.amount == composition["counted"]
        spent += composition["counted"]
    assert composition["counted"] == 0.0  # nothing was answered, so all of it is given back
    assert ledger.spent().amount == pytest.approx(spent, rel=1e-12)


@pytest.mark.parametrize("sampler", [FullBatch(), Poisson(0.1)], ids=lambda sampler: sampler.name)
def test_a_basic_ledger_gives_back_only_what_no_answer_decided(tmp_path, sampler):
    ledger, filter = new_ledger(tmp_path, "basic"), Filter("rdp", RUNS[1], sampler)
    trace = [Answered(1, "gaussian", 1e3)]
    for adaptive, epsilon, counted in ((True, 0.3, 0.5), (False, 0.3, 0.3), (False, 0.6, 0.5)):
        reservation = Reservation.make(ledger, filter, ["gaussian"], "a run")
        assert reservation.cost == Cost(0.5, 1e-8)
        composition, warnings = reservation.settle(trace, epsilon, adaptive)
        assert (composition["counted"], warnings) == (counted, [])
        assert ledger.entries()[-1].counted == Cost(counted, 1e-8)
    assert ledger.spent().amount == pytest.approx(1.3)
    with pytest.raises(InputError, match="so it must not start"):
        Reservation.make(ledger, Filter("gdp", Budget(0.8, 1e-8)), ["gaussian"], "a run too many")


def test_a_run_that_cannot_be_settled_counts_in_full(tmp_path):
    ledger = new_ledger(tmp_path, "gdp")
    reservation = Reservation.make(ledger, Filter("gdp", RUNS[1]), ["gaussian"], "a run")
    reservation.settle([], 0.0, False)
    composition, (warning,) = reservation.settle([], 0.0, False)
    assert "could not be settled" in warning
    assert composition["counted"] == reservation.cost.amount


def test_a_run_that_spent_above_its_reservation_is_withheld_and_stays_reserved(tmp_path):
    ledger = new_ledger(tmp_path, "gdp")
    filter = Filter("gdp", RUNS[1])
    reservation = Reservation.make(ledger, filter, ["gaussian"], "a run")
    (last,) = fill(filter, "gaussian")
    above = last.replace(noise_multiplier=0.999 * last.noise_multiplier)
    with pytest.raises(RuntimeError, match="withhold the result"):
        reservation.settle([above], RUNS[1].epsilon, True)
    (entry,) = ledger.entries()
    assert (entry.state, entry.counted) == ("reserved", reservation.cost)


def test_runs_that_a_ledger_cannot_add_up_are_refused(tmp_path):
    ledger = new_ledger(tmp_path, "zcdp")
    for adjacency in (Adjacency.ADD_REMOVE, Adjacency.REPLACE_ONE):
        with pytest.raises(InputError, match=rf"zero_out neighbours, but this run is planned for {adjacency}"):
            Reservation.make(ledger, Filter("zcdp", Budget(0.5, 1e-8, adjacency)), ["gaussian"], "a run")
    for filter in (
        Filter("rdp", RUNS[1], Poisson(0.1)),
        Filter("ctcdp", RUNS[1], Poisson(0.1)),
        Filter("pld", RUNS[1], Poisson(0.1)),
    ):
        for unit in ("gdp", "zcdp", "rdp"):
            with pytest.raises(InputError, match=r"does not convert to; read every row .* unit basic"):
                Reservation.make(ledger_in(unit), filter, ["gaussian"], "a run")
        assert most_cost(ledger_in("basic"), filter, ["gaussian"]) == Cost(0.5, 1e-8)
    replaced = Budget(0.5, 1e-8, Adjacency.REPLACE_ONE)
    replacing = ledger_in("rdp", Budget(2.0, 1e-6, Adjacency.REPLACE_ONE))
    for name in ("rdp", "ctcdp", "paper_13"):
        with pytest.raises(InputError, match="unit basic"):
            Reservation.make(replacing, Filter(name, replaced, FixedSize(10, 100)), ["gaussian"], "a run")
    with pytest.raises(InputError, match="cannot price mechanism 'gumbel'"):
        Reservation.make(ledger_in("gdp"), Filter("zcdp", RUNS[1]), ["gaussian", "gumbel"], "a run")
    with pytest.raises(InputError, match="so it must not start"):
        Reservation.make(ledger, Filter("zcdp", RUNS[3]), ["gaussian"], "a run with more than there is")
    assert ledger.entries() == []


def test_sinh_normal_runs_fit_ledgers_that_count_at_an_order_their_tails_were_checked_at():
    """Beyond its tail / 8, such a query has no price at all, and a ledger of another budget has another order."""
    ledger = ledger_in("rdp")
    low, high = Filter("rdp", Budget(8.0, 1e-6)), Filter("rdp", Budget(0.5, 1e-6))
    assert low.order < Filter("rdp", LEDGER).order < high.order
    with pytest.raises(InputError, match=r"checked up to order .* unit basic"):
        most_cost(ledger, low, ["gaussian", "sinh_normal"])
    trace = [Answered(1, "sinh_normal", 1.1 * np.sqrt(8 * high.order / high.limit), 8 * high.order * 1.01)]
    assert high.spent(trace) <= high.limit
    assert Filter("rdp", LEDGER).spent(trace) <= most_cost(ledger, high, ["gaussian", "sinh_normal"]).amount


def test_runs_compose_better_in_a_gdp_ledger_than_their_epsilons_add_up(tmp_path):
    """Sixteen runs of epsilon 0.5 in a ledger for epsilon 2.3: their epsilons alone would add up to 8."""
    budget, run = Budget(2.3, 1e-6), Filter("gdp", Budget(0.5, 1e-6))
    gdp, basic = new_ledger(tmp_path, "gdp", budget), new_ledger(tmp_path, "basic", Budget(2.3, 1e-5))
    for _ in range(16):
        reservation = Reservation.make(gdp, run, ["gaussian"], "a run")
        reservation.settle(fill(run, "gaussian", 3), 0.5, adaptive=True)
    together = Filter("gdp", budget).epsilon(gdp.spent().amount)
    assert 4 * 0.5 < together <= budget.epsilon  # about the square root of their number, but not much better
    for _ in range(4):
        Reservation.make(basic, run, ["gaussian"], "a run").settle([], 0.5, adaptive=True)
    with pytest.raises(InputError, match="so it must not start"):
        Reservation.make(basic, run, ["gaussian"], "a fifth run")


def test_who_cannot_look_at_the_ledger_does_not_claim_to_know_what_stays(tmp_path):
    ledger = new_ledger(tmp_path, "gdp")
    with pytest.raises(MemoryError) as caught, held(ledger) as id:  # noqa: PT012
        ledger.reserve(Cost(0.01), "a run", id)
        ledger.path.unlink()
        raise MemoryError
    (note,) = caught.value.__notes__
    assert note.startswith(f"Whether the reservation {id} of this run stays in the ledger of ward cannot be told: the")
