"""The filter: no schedule, however hostile, gets past the float64 cap, and honest ones get all they planned."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from l2p.privacy import Answered, Budget, Event, Filter, Ledger

BUDGETS = {target: Budget(target, 1e-8) for target in (0.0125, 0.1, 1.6)}
SCHEDULES, STEPS = 2048, 64
POISON = np.float32([math.nan, 0.0, math.inf, -math.inf, -1.0, -0.0, 1e-45, 1e-30, 1e30])


def ledger(budget, spent=0.0):
    return Ledger(spent=jnp.float32(spent), budget=jnp.float32(budget))


@functools.partial(jax.jit, static_argnums=2)
@functools.partial(jax.vmap, in_axes=(None, 0, None))
def grants(accountant, noise, mechanism):
    def step(state, value):
        granted, state = state.charge(accountant.price(Event(mechanism, value)))
        return state, granted

    final, granted = jax.lax.scan(step, Ledger(jnp.float32(0), accountant.budget), noise)
    return granted, final.spent


@jax.jit
@functools.partial(jax.vmap, in_axes=(None, 0))
def raw_grants(budget, costs):
    def step(state, cost):
        granted, state = state.charge(cost)
        return state, granted

    final, granted = jax.lax.scan(step, ledger(0.0).replace(budget=budget), costs)
    return granted, final.spent


def schedules(random, kind, scale):
    """Noise multipliers [SCHEDULES, STEPS] around the one that spends the budget in STEPS equal parts."""
    shape = SCHEDULES, STEPS
    factors = {
        "wild": lambda: np.exp(random.uniform(-20, 20, shape)),
        "near": lambda: np.exp(random.uniform(-1, 1, shape)),
        "knife edge": lambda: 1 + random.integers(-8, 9, shape) * 2.0**-24,
        "alternating": lambda: np.where(np.arange(STEPS) % 2, random.uniform(0.2, 2, shape), 1e6),
        "one big": lambda: np.where(np.arange(STEPS) == 0, STEPS**-0.5, np.exp(random.uniform(0, 12, shape))),
    }[kind]()
    noise = (scale * factors).astype(np.float32)
    return np.where(random.random(shape) < random.uniform(0, 0.5), random.choice(POISON, shape), noise)


@settings(max_examples=50, deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from(["wild", "near", "knife edge", "alternating", "one big"]),
    st.sampled_from([("gdp", "gaussian"), ("rdp", "gaussian"), ("rdp", "gumbel")]),
    st.sampled_from(list(BUDGETS)),
)
def test_no_schedule_passes_the_float64_cap(seed, kind, priced, target):
    (name, mechanism), budget = priced, BUDGETS[target]
    accountant = Filter(name, budget).accountant()
    scale = float(accountant.noise_multiplier(accountant.budget / STEPS, mechanism))
    noise = schedules(np.random.default_rng(seed), kind, scale)
    granted, recorded = (np.asarray(array) for array in grants(accountant, jnp.asarray(noise), mechanism))

    unit = Filter(name, budget).spent([Answered(1, mechanism, 1.0)])
    with np.errstate(all="ignore"):
        costs = unit / noise.astype(np.float64) ** 2
    totals = np.where(granted, costs, 0.0).sum(axis=1)
    assert not np.any(granted & ~(noise > 0))
    assert np.all(totals * (1 - 1e-12) <= recorded)
    assert np.all(recorded <= Filter(name, budget).limit)
    worst = int(np.argmax(totals))
    events = [Answered(1, mechanism, float(value)) for value in noise[worst][granted[worst]]]
    assert Filter(name, budget).certify(events, adaptive=True) == target


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([0.0, 1e-20, 4.7e-4, 1.0, 3e4]))
def test_recorded_spending_is_never_below_the_true_sum(seed, budget):
    random = np.random.default_rng(seed)
    costs = (budget / STEPS * np.exp(random.uniform(-30, 3, (SCHEDULES, STEPS)))).astype(np.float32)
    costs = np.where(random.random(costs.shape) < 0.2, random.choice(POISON, costs.shape), costs)
    granted, recorded = (np.asarray(array) for array in raw_grants(jnp.float32(budget), jnp.asarray(costs)))
    assert not np.any(granted & ~((costs >= 0) & (costs < np.inf)))
    totals = np.where(granted, costs.astype(np.float64), 0.0).sum(axis=1)
    assert np.all(totals * (1 - 1e-12) <= recorded)
    assert np.all(recorded <= np.float32(budget))


def test_planning_with_shares_of_what_is_left_gets_every_query():
    """T equal charges for every T up to 304, in each unit and at several budgets."""
    most = 304

    def run(accountant, num_steps):
        def step(state, index):
            active = index < num_steps
            share = 1 / jnp.maximum(num_steps - index, 1)
            noise = accountant.noise_multiplier(share * state.left * state.budget)
            granted, charged = state.charge(accountant.price(Event("gaussian", noise)))
            state = jax.tree.map(lambda new, old: jnp.where(active, new, old), charged, state)
            return state, (granted | ~active, noise)

        return jax.lax.scan(step, Ledger(jnp.float32(0), accountant.budget), jnp.arange(most))

    for name in ("gdp", "rdp"):
        plans = [Filter(name, budget).accountant() for budget in BUDGETS.values()]
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *plans)
        over_steps = jax.vmap(run, in_axes=(None, 0))
        final, (granted, noise) = jax.jit(jax.vmap(over_steps, in_axes=(0, None)))(stacked, jnp.arange(1, most + 1))
        assert bool(jnp.all(granted))
        assert bool(jnp.all(final.spent >= 0.9999 * final.budget))
        for index, budget in enumerate(BUDGETS.values()):
            events = [Answered(1, "gaussian", float(value)) for value in noise[index, most - 1]]
            assert Filter(name, budget).certify(events, adaptive=True) == budget.epsilon


def test_charging_all_that_is_left_is_granted_from_any_state():
    random = np.random.default_rng(0)
    budgets = np.exp(random.uniform(-14, 10, 100_000)).astype(np.float32)
    spent = jnp.asarray(budgets * random.random(100_000), jnp.float32)
    states = Ledger(spent, jnp.asarray(budgets), jnp.zeros(100_000), jnp.zeros(100_000))
    granted, after = jax.vmap(lambda state: state.charge(state.left * state.budget))(states)
    assert bool(jnp.all(granted))
    assert bool(jnp.all(after.left <= 2**-20))


@pytest.mark.parametrize("cost", [math.nan, -1e-9, -math.inf, math.inf, 1.1])
def test_refused_queries_cost_nothing(cost):
    granted, after = ledger(1.0, 0.25).charge(cost)
    assert not granted
    assert after.spent == 0.25


def test_a_query_that_fits_is_still_granted_after_a_refusal():
    _, state = ledger(1.0).charge(2.0)
    granted, state = state.charge(0.5)
    assert granted
    assert float(state.spent) == pytest.approx(0.5, rel=1e-6)


def test_infinite_budget_grants_everything_but_nonsense():
    for cost in (0.0, 1e30, math.inf):
        granted, after = ledger(math.inf).charge(cost)
        assert granted
        assert after.left == 1
    for cost in (math.nan, -1.0):
        assert not ledger(math.inf).charge(cost)[0]


def test_an_empty_or_broken_budget_grants_nothing():
    for budget in (0.0, -1.0, math.nan):
        assert not ledger(budget).charge(0.0)[0]
        assert ledger(budget).left == 0


def test_left_is_a_share():
    assert float(ledger(1.0).left) == pytest.approx(1, abs=1e-6)
    assert float(ledger(2.0, 0.5).left) == pytest.approx(0.75, abs=1e-6)
    assert ledger(1.0, 1.0).left == 0


@pytest.mark.parametrize("cap", [0.0, 1.0, math.inf])
@pytest.mark.parametrize("noise", [math.nan, 0.0, -1.0, 1e-30, 0.5, 2.0, 1e30, math.inf])
def test_gradients_are_finite_through_refusals_and_exhaustion(cap, noise):
    accountant = Filter("gdp", BUDGETS[0.1]).accountant().replace(budget=jnp.float32(cap))

    def objective(value, budget):
        state = ledger(0.0).replace(budget=budget)
        kept = jnp.float32(0)
        for factor in (1.0, 2.0, 1.0, 0.5):
            wanted = accountant.noise_multiplier(state.left * jnp.minimum(budget, 10.0))
            granted, state = state.charge(accountant.price(Event("gaussian", value * factor + 1e-3 * wanted)))
            kept += jnp.where(granted, state.left, 0.0)
        spent = jnp.where(jnp.isfinite(state.spent), state.spent, 0.0)
        return kept + spent

    value, gradients = jax.jit(jax.value_and_grad(objective, argnums=(0, 1)))(jnp.float32(noise), jnp.float32(cap))
    assert jnp.isfinite(value)
    assert all(bool(jnp.isfinite(gradient)) for gradient in gradients)


def test_spent_is_differentiable_in_granted_costs_only():
    def total(costs):
        state = ledger(1.0)
        for cost in costs:
            _, state = state.charge(cost)
        return state.spent

    gradient = jax.grad(total)(jnp.asarray([0.3, 0.9, jnp.nan, jnp.inf, 0.2], jnp.float32))
    np.testing.assert_allclose(gradient, [1, 0, 0, 0, 1], rtol=1e-6)
