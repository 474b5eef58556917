"""Prices on all rows, caps and the float64 certificate."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from l2p.base.errors import InputError
from l2p.privacy import (
    MECHANISMS,
    Answered,
    Budget,
    Event,
    Filter,
    default_accountant,
)
from l2p.privacy.accountants import find
from l2p.privacy.cost import convert, prices
from tests.privacy.prices import BUDGET, PRICED, WHOLE, renyi


def plan(name, budget, *sampler):
    return Filter(name, budget, *sampler).price_list()


@pytest.mark.parametrize("name", WHOLE)
def test_every_accountant_states_its_theorem_and_rounds_its_cap_down(name):
    assert "20" in find(name).theorem
    for target in (1e-3, 0.0125, 0.1, 1.7, 100.0):
        for delta in (1e-12, 1e-8, 1e-2):
            budget = Budget(target, delta)
            cap = float(plan(name, budget).budget)
            assert Filter(name, budget).limit * (1 - 2**-23) <= cap <= Filter(name, budget).limit


@pytest.mark.parametrize(("name", "mechanism"), PRICED)
def test_coefficients(name, mechanism):
    order = convert.planned_order(BUDGET.epsilon, BUDGET.delta) if name == "rdp" else 1.0
    rho = {"gaussian": 0.5, "gumbel": 0.125, "exponential": 0.5}[mechanism]
    expected = 1.0 if name == "gdp" else order * rho
    price = plan(name, BUDGET).price(Event(mechanism, jnp.float32(4.0)))
    assert float(price) == pytest.approx(expected / 16, rel=2e-6)
    assert Filter(name, BUDGET).spent([Answered(1, mechanism, 4.0)]) == pytest.approx(expected / 16, rel=1e-14)


@pytest.mark.parametrize("order", [1.01, 2.0, 8.0, 250.0])
def test_selection_prices_bound_real_mechanisms(order):
    """The worst pure mechanism is randomised response; the worst of bounded range shifts it within the range."""
    for loss in (0.01, 0.1, 1.0):
        response = math.exp(loss) / (1 + math.exp(loss))
        assert renyi((response, 1 - response), (1 - response, response), order) <= order * loss**2 / 2
        for shift in np.linspace(0.01, 0.99, 33) * loss:  # log ratios `shift` and `shift - loss`: a range of `loss`
            p = math.expm1(loss - shift) / math.expm1(loss)  # the probabilities that make both sum to 1
            q = p * math.exp(shift)
            assert renyi((q, 1 - q), (p, 1 - p), order) <= order * loss**2 / 8 * (1 + 1e-9)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(PRICED), st.floats(-24, 39), st.sampled_from([0.0125, 0.1, 1.6]))
def test_price_is_never_below_the_float64_price(priced, log2_noise, target):
    name, mechanism = priced
    budget = Budget(target, 1e-8)
    noise = np.float32(2.0**log2_noise)
    price = float(plan(name, budget).price(Event(mechanism, jnp.asarray(noise))))
    true = Filter(name, budget).spent([Answered(1, mechanism, float(noise))])
    assert true <= price <= true * (1 + 2e-6)


@pytest.mark.parametrize(("name", "mechanism"), PRICED)
def test_noise_multiplier_inverts_the_price(name, mechanism):
    accountant = plan(name, BUDGET)
    costs = jnp.asarray(np.logspace(-12, 6, 2001), jnp.float32)
    noise = jax.vmap(lambda cost: accountant.noise_multiplier(cost, mechanism))(costs)
    back = np.asarray(jax.vmap(lambda value: accountant.price(Event(mechanism, value)))(noise), np.float64)
    assert np.all(back <= np.asarray(costs, np.float64))
    assert np.all(back >= np.asarray(costs, np.float64) * (1 - 1e-5))


def test_mu_is_the_strength_of_one_query_that_spends_everything():
    assert float(plan("gdp", BUDGET).mu) == pytest.approx(convert.gdp_mu(0.1, 1e-8), rel=1e-5)
    for name in ("zcdp", "rdp"):
        assert float(plan(name, BUDGET).mu) == pytest.approx(math.sqrt(2 * convert.zcdp_rho(0.1, 1e-8)), rel=1e-5)
    assert float(plan("ctcdp", BUDGET).mu) == pytest.approx(math.sqrt(2 * convert.ctcdp(0.1, 1e-8).rho), rel=1e-5)


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("noise", [math.nan, -1.0, 0.0, 1e-30, -math.inf])
def test_no_noise_costs_infinity_and_keeps_gradients_finite(name, noise):
    accountant = plan(name, BUDGET)
    price, gradient = jax.value_and_grad(lambda value: accountant.price(Event("gaussian", value)))(jnp.float32(noise))
    assert price == jnp.inf
    assert jnp.isfinite(gradient)
    if not noise > 0:
        assert Filter(name, BUDGET).spent([Answered(1, "gaussian", 1e6), Answered(1, "gaussian", noise)]) == math.inf


@pytest.mark.parametrize("name", WHOLE)
def test_extreme_noise_and_costs_stay_finite_and_charged(name):
    accountant = plan(name, BUDGET)
    for noise in (2.0**-25, 2.0**40):
        masked = jax.grad(lambda value: 0.0 * accountant.price(Event("gaussian", value)))
        assert jnp.isfinite(masked(jnp.float32(noise)))
    for noise in (1e30, math.inf):
        price, gradient = jax.value_and_grad(lambda value: accountant.price(Event("gaussian", value)))(
            jnp.float32(noise)
        )
        assert 0 < price < 1e-18
        assert gradient == 0
    for cost in (-1.0, 0.0, 1e-38, 1e38, math.inf):
        noise, gradient = jax.value_and_grad(accountant.noise_multiplier)(jnp.float32(cost))
        assert 0 < noise < jnp.inf
        assert jnp.isfinite(gradient)


@pytest.mark.parametrize("name", WHOLE)
def test_answers_without_noise_are_never_payable(name):
    price = jax.jit(lambda value: plan(name, BUDGET).price(Event("none", value)))(jnp.float32(1e9))
    assert price == jnp.inf
    assert Filter(name, BUDGET).spent([Answered(1, "none", 1e9)]) == math.inf


def test_price_is_differentiable():
    gradient = jax.grad(lambda value: plan("gdp", BUDGET).price(Event("gaussian", value)))(jnp.float32(5.0))
    assert float(gradient) == pytest.approx(-2 / 125, rel=1e-5)


@pytest.mark.parametrize("name", WHOLE)
def test_accountants_of_several_epsilons_stack(name):
    budgets = [Budget(target, 1e-8) for target in (0.05, 0.1, 0.8)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *[plan(name, budget) for budget in budgets])
    prices, mus = jax.vmap(lambda accountant: (accountant.price(Event("gaussian", jnp.float32(3.0))), accountant.mu))(
        stacked
    )
    singles = [plan(name, budget) for budget in budgets]
    np.testing.assert_allclose(
        prices, [accountant.price(Event("gaussian", jnp.float32(3.0))) for accountant in singles], rtol=1e-6
    )
    np.testing.assert_allclose(mus, [accountant.mu for accountant in singles], rtol=1e-6)


def test_refusals_say_what_to_do():
    with pytest.raises(InputError, match="rdp prices every mechanism"):
        jax.jit(lambda value: plan("gdp", BUDGET).price(Event("gumbel", value)))(1.0)
    with pytest.raises(InputError, match="cannot price"):
        plan("rdp", BUDGET).noise_multiplier(1.0, "uniform")
    with pytest.raises(InputError, match="cannot price"):
        Filter("gdp", BUDGET).spent([Answered(1, "exponential", 1.0)])
    with pytest.raises(InputError, match=r"no theorem for full batch.*gdp or zcdp or rdp or ctcdp"):
        Filter("paper_13", BUDGET)
    with pytest.raises(InputError, match=r"unknown.*gdp, zcdp, rdp, ctcdp"):
        Filter("renyi", BUDGET)


def test_default_accountant():
    assert default_accountant(set()) == default_accountant({"gaussian"}) == default_accountant({"gaussian", "none"})
    assert default_accountant({"gaussian"}) == "gdp"
    assert all(
        default_accountant({"gaussian", name}) == ("basic" if name == "objective" else "rdp")
        for name in MECHANISMS
        if name not in ("gaussian", "none")
    )


@pytest.mark.parametrize("name", WHOLE)
def test_certificate(name):
    cap = Filter(name, BUDGET).limit
    noise = float(plan(name, BUDGET).noise_multiplier(cap / 100))
    full = [Answered(1, "gaussian", noise)] * 100
    assert Filter(name, BUDGET).certify(full, adaptive=True) == 0.1
    assert 0.0999 < Filter(name, BUDGET).certify(full, adaptive=False) <= 0.1
    # Half the price: less epsilon when fixed in advance, the whole cap when adaptive.
    assert Filter(name, BUDGET).certify(full[:50], adaptive=False) < 0.09
    assert Filter(name, BUDGET).certify(full[:50], adaptive=True) == 0.1
    assert Filter(name, BUDGET).certify([], adaptive=False) == 0.0
    for over in (full + full[:1], [Answered(1, "gaussian", math.nan)], [Answered(1, "none", 1.0)]):
        with pytest.raises(RuntimeError, match="does not hold"):
            Filter(name, BUDGET).certify(over, adaptive=True)


@pytest.mark.parametrize("name", WHOLE)
def test_epsilon_grows_with_what_was_spent_and_meets_the_target_at_the_cap(name):
    cap = Filter(name, BUDGET).limit
    values = [Filter(name, BUDGET).epsilon(share * cap) for share in (0.0, 1e-9, 0.1, 0.5, 1.0, 2.0)]
    assert values == sorted(values)
    assert values[0] == 0.0
    assert values[-2] == pytest.approx(0.1, rel=1e-7)
    assert all(math.isinf(Filter(name, BUDGET).epsilon(math.inf)) for name in WHOLE)


def test_one_order_certifies_the_same_as_the_whole_curve_at_the_cap():
    """`rdp` is `zcdp` on another scale, so both plan the same noise."""
    assert float(plan("rdp", BUDGET).mu) == pytest.approx(float(plan("zcdp", BUDGET).mu), rel=1e-6)
    assert float(plan("ctcdp", BUDGET).mu) < float(plan("zcdp", BUDGET).mu) < float(plan("gdp", BUDGET).mu)


def test_float32_is_rounded_to_the_asked_side():
    for value in (0.1, 1 / 3, 1.0, 4.7e-4, 1 + 2**-40, 1 - 2**-40):
        down, up = prices.float32_down(value), prices.float32_up(value)
        assert float(down) <= value <= float(up)
        assert float(up) - float(down) <= value * 2**-23
