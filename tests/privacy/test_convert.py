"""Conversions between (epsilon, delta) and the accountants' own units."""

import math
import subprocess
import sys

import dp_accounting
import pytest
from dp_accounting.pld import privacy_loss_distribution
from dp_accounting.rdp import compute_epsilon
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from l2p.privacy.cost import convert

# Computed once for delta = 1e-8 with another implementation (the table of the project's accounting specification):
# epsilon, omega_a, rho simple, rho CKS, alpha*, rho exact.
GOLDEN = [
    (0.0125, 2948.8, 2.120e-6, 3.897e-6, 1680.6, 4.492e-6),
    (0.05, 738.3, 3.388e-5, 5.526e-5, 472.1, 6.301e-5),
    (0.1, 369.9, 1.353e-4, 2.088e-4, 249.6, 2.369e-4),
    (0.2, 185.7, 5.399e-4, 7.899e-4, 131.9, 8.921e-4),
    (0.4, 93.60, 2.148e-3, 2.986e-3, 69.90, 3.357e-3),
    (0.8, 47.55, 8.502e-3, 1.124e-2, 37.28, 1.258e-2),
    (1.6, 24.52, 3.331e-2, 4.198e-2, 20.16, 4.672e-2),
]
EPSILONS = (1e-3, 0.0125, 0.1, 1.0, 10.0, 100.0)
DELTAS = (1e-12, 1e-8, 1e-5, 1e-2)
TARGETS = [(epsilon, delta) for epsilon in EPSILONS for delta in DELTAS]


@pytest.mark.parametrize(("epsilon", "omega", "simple", "cks", "order", "exact"), GOLDEN)
def test_golden_table(epsilon, omega, simple, cks, order, exact):
    paper = convert.ctcdp(epsilon, 1e-8)
    assert paper.omega == pytest.approx(omega, rel=1e-3)
    assert paper.rho == pytest.approx(simple, rel=1e-3)
    assert convert.zcdp_rho_simple(epsilon, 1e-8) == pytest.approx(simple, rel=1e-3)
    assert convert.zcdp_rho(epsilon, 1e-8) == pytest.approx(cks, rel=1e-3)
    assert convert.planned_order(epsilon, 1e-8) == pytest.approx(order, rel=1e-3)
    assert convert.gdp_mu(epsilon, 1e-8) ** 2 / 2 == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize(("epsilon", "delta"), TARGETS)
def test_every_budget_is_converted_back_to_its_epsilon(epsilon, delta):
    order = convert.planned_order(epsilon, delta)
    rho = convert.zcdp_rho(epsilon, delta)
    paper = convert.ctcdp(epsilon, delta)
    back = {
        "gdp": convert.gdp_epsilon(convert.gdp_mu(epsilon, delta), delta),
        "simple": convert.zcdp_epsilon_simple(convert.zcdp_rho_simple(epsilon, delta), delta),
        "zcdp": convert.zcdp_epsilon(rho, delta),
        "rdp": convert.rdp_epsilon(order * rho, order, delta),
        "ctcdp": convert.ctcdp_epsilon(paper.rho, paper.omega, delta),
    }
    assert back == pytest.approx(dict.fromkeys(back, epsilon), rel=1e-7)


@pytest.mark.parametrize(("epsilon", "delta"), TARGETS)
def test_conversions_are_ordered_from_loose_to_exact(epsilon, delta):
    simple, cks = convert.zcdp_rho_simple(epsilon, delta), convert.zcdp_rho(epsilon, delta)
    assert 0 < simple < cks < convert.gdp_mu(epsilon, delta) ** 2 / 2


@pytest.mark.parametrize(("epsilon", "delta"), TARGETS)
def test_ctcdp_definition(epsilon, delta):
    """Omega is 1 + sqrt(L / rho) at the valid rho; the rho as printed is the other root, and vacuous."""
    log_inverse = -math.log(delta)
    paper = convert.ctcdp(epsilon, delta)
    assert paper.omega == pytest.approx(1 + math.sqrt(log_inverse / paper.rho), rel=1e-9)
    assert paper.rho + 2 * math.sqrt(paper.rho * log_inverse) == pytest.approx(epsilon, rel=1e-9)

    a = log_inverse / epsilon
    root = math.sqrt(a * (a + 1))
    if a < 1e3:  # above that, the printed form suffers from cancellation
        printed = epsilon * root / (a + 1 - root) / (root - a)
        # Squaring rho + 2 sqrt(rho L) = epsilon to (epsilon - rho)^2 = 4 rho L admits it; the equation itself does not.
        assert (epsilon - printed) ** 2 == pytest.approx(4 * printed * log_inverse, rel=1e-6)
        assert convert.zcdp_epsilon_simple(printed, delta) > 2 * log_inverse


def test_gaussian_curve_against_its_definition():
    """Delta is the integral of max(0, density - e^epsilon * shifted density)."""
    for mu, epsilon in [(0.05, 0.01), (0.09999, 0.2), (0.1, 0.2), (1.0, 1.0), (3.0, 0.0), (5.0, 40.0)]:
        start = epsilon / mu + mu / 2

        def gap(x, mu=mu, epsilon=epsilon):
            return norm.pdf(x, mu) - math.exp(epsilon) * norm.pdf(x)

        expected, _ = quad(gap, start, start + 40, epsabs=0, epsrel=1e-10, limit=200)
        assert convert.gdp_delta(mu, epsilon) == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize(("mu", "delta"), [(0.3, 1e-8), (1.0, 1e-5), (4.0, 1e-6)])
def test_gaussian_against_dp_accounting(mu, delta):
    ours = convert.gdp_epsilon(mu, delta)
    assert ours == pytest.approx(dp_accounting.get_epsilon_gaussian(1 / mu, delta), rel=1e-6)
    low, high = (
        privacy_loss_distribution.from_gaussian_mechanism(
            4 / mu, pessimistic_estimate=pessimistic, value_discretization_interval=1e-3
        )
        .self_compose(16)
        .get_epsilon_for_delta(delta)
        for pessimistic in (False, True)
    )
    assert 0.99 * high <= low <= ours <= high <= 1.01 * low


def test_renyi_against_dp_accounting():
    for rdp, order, delta in [(0.05, 249.0, 1e-8), (1.0, 8.0, 1e-5), (3.0, 2.5, 1e-3)]:
        theirs, _ = compute_epsilon([order], [rdp], delta)
        assert convert.rdp_epsilon(rdp, order, delta) == pytest.approx(theirs, rel=1e-9)


@settings(max_examples=200, deadline=None)
@given(st.floats(-3, 2), st.floats(-12, -2))
def test_roundings_are_safe_and_best_orders_are_best(log_epsilon, log_delta):
    epsilon, delta = 10**log_epsilon, 10**log_delta
    mu = convert.gdp_mu(epsilon, delta)
    assert convert.gdp_delta(mu, epsilon) <= delta < convert.gdp_delta(mu * (1 + 1e-7), epsilon)
    assert convert.gdp_delta(mu, convert.gdp_epsilon(mu, delta)) <= delta

    rho, order = convert.zcdp_rho(epsilon, delta), convert.planned_order(epsilon, delta)
    best = convert.zcdp_epsilon(rho, delta)
    for factor in (0.5, 0.99, 1.01, 2.0):
        off_order = 1 + (order - 1) * factor
        assert best <= convert.rdp_epsilon(off_order * rho, off_order, delta)


def test_extremes():
    assert convert.gdp_delta(0.0, 1.0) == 0.0
    assert convert.gdp_delta(math.inf, 1.0) == 1.0
    assert 0 < convert.gdp_delta(1e-300, 1.0) < 1e-300
    assert convert.gdp_epsilon(0.0, 1e-8) == convert.gdp_epsilon(1e-12, 1e-8) == 0.0
    assert convert.gdp_epsilon(1e200, 1e-8) == convert.gdp_epsilon(math.inf, 1e-8) == math.inf
    assert convert.zcdp_epsilon(0.0, 1e-8) == 0.0
    assert convert.zcdp_epsilon(math.inf, 1e-8) == convert.rdp_epsilon(math.inf, 2.0, 1e-8) == math.inf
    assert 0 <= convert.zcdp_epsilon(1e-300, 1e-8) < 1e-100
    assert convert.zcdp_epsilon(1e40, 1e-8) == pytest.approx(1e40)


def test_convert_does_not_need_jax():
    code = (
        "import importlib.util, sys; spec = importlib.util.spec_from_file_location('convert', sys.argv[1]); "
        "spec.loader.exec_module(importlib.util.module_from_spec(spec)); sys.exit('jax' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code, convert.__file__], check=True)
