"""The oracle charges before it answers, and a refusal ends the run."""

import dataclasses
import functools
import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.base import struct
from l2p.base.errors import InputError
from l2p.models import Logistic
from l2p.oracle import Oracle, Terms, reader_of
from l2p.oracle.setup import Setup
from l2p.oracle.trace import trace_of
from l2p.privacy import Adjacency, Budget, Event, Filter, Spending
from l2p.privacy.cost.prices import PriceList
from l2p.privacy.cost.sampling import Poisson
from l2p.protectors import AGD, CLASSES
from l2p.queries import Descent, FeatureSum, NoisyMinimum
from l2p.run.run import Simulation, advance
from l2p.task.noise import KeyNoise
from l2p.task.rows import Rows
from tests.oracle.scripts import (
    BUDGET,
    KEY,
    MODEL,
    ROWS,
    STEPS,
    ZERO,
    D,
    N,
    even,
    f32,
    mean,
    opened,
    script,
    setup,
    simulate,
)


def test_a_solve_by_a_protector_of_sums_is_refused_whatever_the_number_of_rows():
    # Refused by what the protector declares, before anything runs: a refusal that depended on the number of rows would
    # reveal it where it is private.
    solve = Descent(Logistic(), jnp.zeros(3), *map(jnp.float32, (1.0, 0.1, 1.0, 60.0, 5.0)))
    for count in (60, 61):
        rows = Rows(jnp.ones((count, 2)), jnp.ones(count), jnp.ones(count))
        here = setup()
        args = reader_of(rows), here, Spending(f32(0), here.cap), KeyNoise(KEY), jnp.zeros((), jnp.int32)
        with pytest.raises(TypeError, match="additive = False"):
            Oracle(*args, terms=Terms(sums_only=True)).ask(solve)


def test_a_solve_on_a_random_batch_is_refused():
    """A batch is priced as if a null row in it were a row that was not drawn, which holds for sums."""
    solve = Descent(Logistic(), ZERO, *map(jnp.float32, (1.0, 0.1, 1.0, 60.0, 5.0)))
    prices = Filter("rdp", BUDGET, Poisson(0.1), 1).price_list()
    here = Setup.create(MODEL, BUDGET.adjacency, prices, N)
    args = reader_of(ROWS), here, Spending(f32(0), here.cap), KeyNoise(KEY), jnp.zeros((), jnp.int32)
    with pytest.raises(InputError, match="proved for sums"):
        Oracle(*args, terms=Terms(sampled=True)).ask(solve)


def test_ask_prices_then_charges_then_reads_rows_then_releases():
    log = []

    @struct.dataclass
    class LoggedSpending(Spending):
        def charge(self, cost):
            log.append("charge")
            return super().charge(cost)

    @struct.dataclass
    class LoggedSum(FeatureSum):
        def event(self):
            log.append("event")
            return super().event()

        def contributions(self, rows):
            log.append("rows")
            return super().contributions(rows)

        def release(self, aggregate, noise, adjacency):
            log.append("release")
            return super().release(aggregate, noise, adjacency)

    @struct.dataclass
    class LoggedPriceList(PriceList):
        def price(self, event, *when):
            log.append("price")
            return super().price(event, *when)

    prices = setup().price_list
    price_list = LoggedPriceList(**{field.name: getattr(prices, field.name) for field in dataclasses.fields(prices)})
    oracle = opened(spending=LoggedSpending(f32(0), setup().cap), price_list=price_list)
    oracle.ask(LoggedSum(D, f32(1), f32(1e3)))
    assert log == ["event", "price", "charge", "rows", "release"]


def test_a_granted_query_is_charged_its_price_and_answered_with_noise():
    oracle = opened()
    query = mean(1e3)
    answer = oracle.ask(query)
    assert float(oracle.spending.spent) == pytest.approx(float(oracle.setup.price_list.price(query.event())), rel=1e-5)
    assert not bool(oracle.refused)
    assert np.abs(answer).min() > 1.0  # noise of deviation 1000 that happens to be below 1 has chance 1e-3 at most
    assert bool(oracle.records[0].granted)


@pytest.mark.parametrize(
    "noise", [0.5 * even(1), 0.0, -0.0, -1.0, math.nan, math.inf, -math.inf, 1e-45, 1e-30], ids=str
)
def test_a_refused_query_is_answered_with_zeros_costs_nothing_and_shuts_the_oracle(noise):
    oracle = opened()
    oracle.ask(mean(2 * even(1)))
    before = float(oracle.spending.spent)
    answer = oracle.ask(mean(noise))
    cheap = oracle.ask(mean(1e4))
    assert before > 0
    assert float(oracle.spending.spent) == before
    assert bool(oracle.refused)
    assert np.array_equal(answer, np.zeros(D))
    assert np.array_equal(cheap, np.zeros(D))
    assert [bool(record.granted) for record in oracle.records] == [True, False, False]
    assert [float(record.cost) for record in oracle.records][1:] == [0.0, 0.0]


@pytest.mark.slow
def test_a_refused_selection_is_the_integer_zero():
    query = NoisyMinimum(MODEL, jnp.ones((4, D + 1)), f32(1), f32(0.0))
    answer = opened(name="rdp").ask(query)
    assert answer.dtype == jnp.int32
    assert int(answer) == 0


@pytest.mark.slow
def test_the_step_that_sees_a_refusal_moves_nothing_but_what_it_was_granted_stays_paid():
    cost = even(8)
    multipliers = np.full((STEPS, 2), cost)
    multipliers[2, 1] = 1e-3  # too expensive, after the first ask of its step was granted
    params, ended, (first, later), _ = simulate(script(multipliers), ZERO, ROWS, setup(), KEY)
    before, _, _, _ = simulate(script(multipliers[:2]), ZERO, ROWS, setup(), KEY)
    assert np.array_equal(params, before)
    assert int(ended.step) == int(ended.state) == 2
    assert not bool(ended.alive)
    rows = trace_of(first, [later])
    assert [row.step for row in rows] == [1, 1, 2, 2, 3]
    assert float(ended.spending.spent) == rows[-1].spent == pytest.approx(5 / 8 * float(setup().cap), rel=1e-3)


@pytest.mark.slow
def test_a_refusal_in_init_leaves_the_whole_run_frozen():
    params, ended, (first, later), _ = simulate(
        script(np.full((STEPS, 1), 1e4), first=f32(1e-3)), ZERO, ROWS, setup(), KEY
    )
    assert np.array_equal(params, ZERO)
    assert int(ended.step) == 0
    assert float(ended.spending.spent) == 0
    assert trace_of(first, [later]) == []


@pytest.mark.slow
def test_frozen_runs_stay_frozen_however_far_they_are_advanced():
    protector = script(np.r_[np.full((2, 1), even(4)), [[1e-3]], np.full((3, 1), 1e5)])
    _, ended, _, _ = simulate(protector, ZERO, ROWS, setup(), KEY)
    assert int(ended.step) == 2
    further, records, _ = jax.jit(advance, static_argnames="num_steps")(
        protector, ended, ROWS, setup(), Simulation(KEY), num_steps=3
    )
    chex.assert_trees_all_equal(further, ended)
    assert not np.any(records[0].granted)


def test_hyper_parameters_and_budgets_are_leaves_and_the_model_is_not():
    leaves = jax.tree.leaves(setup())
    assert all(isinstance(leaf, jax.Array) for leaf in leaves)
    assert functools.reduce(lambda a, b: a and b, [leaf.dtype == jnp.float32 for leaf in leaves])
    assert AGD is CLASSES["AGD"]


@pytest.mark.slow(cases=["replace_one"])
@pytest.mark.parametrize("adjacency", Adjacency)
def test_log_signal_is_how_well_the_budget_resolves_a_mean(adjacency):
    here = setup(budget=Budget(1.0, 1e-6, adjacency))
    noise = math.sqrt(1 / Filter("gdp", BUDGET).limit) * (2 if adjacency is Adjacency.REPLACE_ONE else 1) / N
    assert float(here.log_signal) == pytest.approx(-math.log(noise), rel=1e-5)
    assert float(here.price_list.price(Event("gaussian", 1 / here.price_list.mu))) <= float(here.cap)
