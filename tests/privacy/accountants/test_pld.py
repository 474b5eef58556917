"""Privacy loss distributions: above exact curves, and rounded to the safe side."""

import math

import numpy as np
import pytest

from l2p.base.errors import InputError
from l2p.privacy.cost import convert
from l2p.privacy.events import Answered
from tests.privacy.traces import FULL, POISSON, price, trace


@pytest.mark.slow(cases=["*-0.05-100000", "*-2.0-100000", "1e-09-0.5-100000"])
@pytest.mark.parametrize("steps", [10, 1000, 100_000])
@pytest.mark.parametrize("mu", [0.05, 0.5, 2.0])
@pytest.mark.parametrize("delta", [1e-5, 1e-9])
def test_composed_losses_stay_above_the_exact_curve(steps, mu, delta):
    # The Laplace query is negligible; it forces the Gaussian ones, which are taken together, onto a grid.
    answered = [*trace(math.sqrt(steps) / mu, steps), Answered(1, "laplace", 1e9)]
    exact = convert.gdp_epsilon(mu, delta)
    assert exact <= price("pld", answered, FULL, delta=delta) <= exact * (1 + 2e-3)


def test_rounding_of_a_small_delta_stays_on_the_safe_side():
    for delta in (1e-11, 1e-12):
        assert price("pld", trace(20, 1000), delta=delta) >= price("pld", trace(20, 1000), delta=2 * delta)
    with pytest.raises(InputError, match="drowns"):
        price("pld", trace(20, 1000), delta=1e-13)


def laplace_delta(noise, epsilon):
    """Exact: 1 - e^((epsilon - 1 / m) / 2) for epsilon up to 1 / m."""
    return max(0.0, -math.expm1((epsilon - 1 / noise) / 2))


@pytest.mark.parametrize("noise", [0.7, 5.0])
def test_one_laplace_query_costs_what_its_formula_says(noise):
    epsilon = price("pld", trace(noise, 1, "laplace"), FULL, delta=1e-3)
    assert laplace_delta(noise, epsilon * (1 + 1e-6)) <= 1e-3 <= laplace_delta(noise, epsilon * (1 - 1e-2)) + 1e-9


def test_answers_over_two_coordinates_cost_no_more_than_one_laplace_variable():
    # The proof in l2p.privacy.accountants.pld, on a grid: a shift of 1 over two coordinates, or a Gamma-length noise.
    side = np.linspace(-14, 14, 1401)
    x, y = np.meshgrid(side, side, indexing="ij")
    norms = {
        "l1": (abs(x) + abs(y), abs(x - 0.5) + abs(y - 0.5)),
        "l1 uneven": (abs(x) + abs(y), abs(x - 0.9) + abs(y - 0.1)),
        "l2": (np.hypot(x, y), np.hypot(x - 0.6, y - 0.8)),
    }
    for near, far in norms.values():
        density, shifted = (np.exp(-norm) / np.exp(-near).sum() for norm in (near, far))
        for epsilon in (0.0, 0.2, 0.5, 0.9):
            delta = np.maximum(density - math.exp(epsilon) * shifted, 0).sum()
            assert delta <= laplace_delta(1.0, epsilon) + 2e-3


@pytest.mark.parametrize("mechanism", ["laplace", "gamma", "exponential", "gumbel"])
@pytest.mark.parametrize("sampler", [FULL, POISSON])
def test_pure_mechanisms_cost_no_more_than_basic_composition(mechanism, sampler):
    answered = trace(10.0, 5, mechanism)
    amplified = math.log1p(sampler.rate() * math.expm1(0.1))
    assert 0 < price("pld", answered, sampler) <= 5 * amplified * (1 + 1e-3)
