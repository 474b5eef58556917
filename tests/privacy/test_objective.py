"""Objective perturbation: its theorem on densities in one dimension, its constants as published, its accountant."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from l2p.base.errors import InputError
from l2p.privacy import Adjacency, Answered, Budget, Event, Filter, Spending, default_accountant, fixed
from l2p.privacy.cost import convert
from l2p.privacy.cost.sampling import FullBatch
from l2p.privacy.sensitivity.objective import exact, gaussian_ratio, published

exact, published = jax.jit(exact, static_argnums=4), jax.jit(published, static_argnums=4)


def f32(value):
    return jnp.asarray(value, jnp.float32)


# -------------------------------------------------------------------------------------------------------- the theorem
def logistic(margin, y):
    """Slope and curvature; smooth with lambda = 1 / 4."""
    chance = special.expit(margin)
    return chance - y, chance * (1 - chance)


def huber(margin, y):
    """The hinge with its kink rounded over a width of 1, whose slope is 1 from the start; lambda = 1."""
    sign = 2 * y - 1
    gap = 1 - sign * margin
    return -sign * np.clip(gap + 0.5, 0, 1), (np.abs(gap) < 0.5) * 1.0


LOSSES = {logistic: 0.25, huber: 1.0}


def densities(loss, table, convexity, noise_scale, grid):
    """Log density of the minimiser at w f[n], for rows (x, y) with |x| <= 1: change of variables."""
    gradient, hessian = convexity * grid, np.full_like(grid, convexity)
    for x, y in table:
        slope, curvature = loss(x * grid, y)
        gradient, hessian = gradient + slope * x, hessian + curvature * x * x
    return stats.norm.logpdf(gradient, scale=noise_scale) + np.log(hessian)


def hockey_stick(loss, table, neighbour, epsilon, convexity, noise_scale):
    """The smallest delta of the two tables at epsilon, by quadrature over all w with non-negligible density."""
    width = (10 * noise_scale + len(table) + 1) / convexity
    grid = np.linspace(-width, width, 60_001)
    first, second = (densities(loss, rows, convexity, noise_scale, grid) for rows in (table, neighbour))
    step = grid[1] - grid[0]
    assert np.exp(first).sum() * step == pytest.approx(1, abs=5e-3)  # where the Huber loss bends, densities jump
    return np.maximum(np.exp(first) - np.exp(epsilon + second), 0).sum() * step


ROWS = [(1.0, 0.0), (1.0, 1.0), (-1.0, 0.0), (0.4, 1.0)]


def pairs(adjacency):
    """Neighbouring tables, in both orders."""
    for rest in ([], [(1.0, 1.0)], [(1.0, 0.0), (-0.7, 1.0)]):
        if adjacency is Adjacency.REPLACE_ONE:
            yield from (([row, *rest], [replaced, *rest]) for row, replaced in itertools.permutations(ROWS, 2))
        else:
            for row in ROWS:
                yield from (([row, *rest], rest), (rest, [row, *rest]))


def worst(loss, adjacency, epsilon, convexity, noise_scale):
    return max(
        hockey_stick(loss, table, neighbour, epsilon, convexity, noise_scale) for table, neighbour in pairs(adjacency)
    )


#: Calibration by name: for a loss, the share for the Jacobians, and the convexity in multiples of lambda.
CALIBRATIONS = {"published": None, "exact": (0.5, 0.0), "small share": (0.1, 0.0), "convex enough": (0.5, 1e3)}


def calibrated(name, loss, epsilon, delta, factor):
    constants = f32(epsilon), f32(math.log(delta)), f32(1.0), f32(LOSSES[loss]), factor
    if name == "published":
        calibration = published(*constants)
    else:
        share, multiple = CALIBRATIONS[name]
        calibration = exact(*constants, f32(share), f32(multiple * LOSSES[loss]))
    return float(calibration.convexity), float(calibration.noise_scale)


@pytest.mark.long(but=["published-logistic-*", "convex enough-huber-*", "small share-logistic-zero_out"])
@pytest.mark.slow(but=["small share-logistic-zero_out"])
@pytest.mark.parametrize("adjacency", [Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", CALIBRATIONS)
def test_no_pair_of_neighbours_differs_by_more_than_delta(name, loss, adjacency):
    for epsilon, delta in ((0.1, 1e-3), (1.0, 1e-2), (4.0, 1e-4)):
        calibration = calibrated(name, loss, epsilon, delta, adjacency.sensitivity_factor)
        divergence = worst(loss, adjacency, epsilon, *calibration)
        assert divergence <= delta
        if name == "convex enough" and loss is huber and adjacency is Adjacency.ZERO_OUT:
            assert divergence > 0.4 * delta  # a shift in one of the two directions that are paid for


@pytest.mark.parametrize("loss", LOSSES)
def test_without_the_convexity_or_with_less_noise_some_pair_does(loss):
    """Planted bugs: no term for the Jacobian, a smaller shift, and zeta where replacing a row needs 2 zeta."""
    epsilon, delta = 1.0, 1e-2
    for name in ("published", "exact"):
        convexity, noise_scale = calibrated(name, loss, epsilon, delta, 1.0)
        assert worst(loss, Adjacency.ZERO_OUT, epsilon, convexity / 30, noise_scale) > delta
    convexity, noise_scale = calibrated("convex enough", huber, epsilon, delta, 1.0)
    assert worst(huber, Adjacency.ZERO_OUT, epsilon, convexity, noise_scale / 1.3) > delta
    assert worst(huber, Adjacency.REPLACE_ONE, epsilon, convexity, noise_scale) > delta


# ------------------------------------------------------------------------------------------------------ the constants
def test_published_constants():
    """Delta = 2 lambda / epsilon, sigma = zeta sqrt(8 ln(2/delta) + 4 epsilon) / epsilon, by hand at (0.05, 1e-8)."""
    constants = published(f32(0.05), f32(math.log(1e-8)), 1.0, 0.25, 1.0)
    assert float(constants.convexity) == pytest.approx(10.0, rel=1e-5)
    assert float(constants.noise_scale) == pytest.approx(247.4763, rel=1e-5)
    twice = published(f32(0.05), f32(math.log(1e-8)), 3.0, 0.25, 2.0)
    assert float(twice.noise_scale) == pytest.approx(6 * 247.4763, rel=1e-5)
    assert float(twice.convexity) == float(constants.convexity)
    # With zeta where a row is replaced, the noise half by itself has delta 10^-5.6 at epsilon / 2, not 10^-8.
    assert math.log10(convert.gdp_delta(2 / 247.4763, 0.025)) == pytest.approx(-5.6, abs=0.1)


@pytest.mark.parametrize(("epsilon", "gain"), [(0.05, 1.388), (0.8, 1.246), (4.0, 1.197)])
def test_the_exact_curve_needs_less_noise_than_was_published(epsilon, gain):
    log_delta = f32(math.log(1e-8))
    old = published(f32(epsilon), log_delta, 1.0, 0.25, 1.0)
    new = exact(f32(epsilon), log_delta, 1.0, 0.25, 1.0, f32(0.5), f32(0.0))
    assert float(old.noise_scale) / float(new.noise_scale) == pytest.approx(gain, rel=2e-3)


@pytest.mark.slow(but=["4.0", "30.0", "1000.0"])
@pytest.mark.parametrize("epsilon", [1e-5, 1e-3, 0.05, 0.3, 1.0, 4.0, 30.0, 1000.0])
def test_the_ratio_is_the_exact_curve_s_and_never_above_it(epsilon):
    deltas = [10.0**-power for power in (1, 2, 4, 5, 8, 12, 15, 40, 100)]
    epsilon32 = float(f32(epsilon))
    ratios = jax.jit(jax.vmap(gaussian_ratio, (None, 0)))(f32(epsilon), f32(np.log(deltas)))
    for delta, ratio in zip(deltas, ratios, strict=True):
        most = min(convert.gdp_mu(epsilon32, delta), math.sqrt(2 * epsilon32))
        assert most * (1 - 2e-3) <= float(ratio) < most


@pytest.mark.slow
def test_the_calibration_has_the_derivatives_of_its_curve():
    log_delta, size = f32(math.log(1e-6)), 1e-2

    def noise(share):
        return exact(f32(1.0), log_delta, 1.0, 0.25, 1.0, share, f32(0.0)).noise_scale

    slope = float(jax.grad(noise)(f32(0.4)))
    assert slope == pytest.approx(float(noise(f32(0.4 + size)) - noise(f32(0.4 - size))) / (2 * size), rel=0.01)
    assert slope > 1


# ------------------------------------------------------------------------------------------------- accountant `basic`
BUDGET = Budget(0.7, 1e-6)


def test_one_query_takes_the_whole_budget_and_leaves_room_for_no_other():
    filter = Filter("basic", BUDGET)
    accountant = filter.price_list()
    event = Event("objective", accountant.noise_multiplier(0.1, "objective"), log_delta=accountant.log_delta)
    cost = accountant.price(event)
    granted, spending = Spending(f32(0), accountant.budget).charge(cost)
    assert bool(granted)
    assert not bool(spending.charge(cost)[0])
    answered = [Answered(1, "objective", float(event.noise_multiplier))]
    assert filter.limit * (1 - 1e-5) < filter.spent(answered) <= float(cost) < filter.limit
    assert filter.certify(answered, adaptive=False) == filter.certify(answered, adaptive=True) == BUDGET.epsilon
    assert filter.certify([], adaptive=False) == 0.0
    assert filter.unit == "epsilon"
    with pytest.raises(RuntimeError, match="does not hold"):
        filter.certify([*answered, *answered], adaptive=False)
    assert float(accountant.mu) == pytest.approx(convert.gdp_mu(BUDGET.epsilon, BUDGET.delta), rel=1e-6)


@pytest.mark.parametrize("epsilon", [1e-12, 3e-5, 0.1, 1 / 3, 1.0, 17.3, 1e6])
def test_the_least_noise_is_granted_and_less_or_another_delta_is_not(epsilon):
    filter = Filter("basic", Budget(epsilon, 1e-9))
    accountant = filter.price_list()
    least, log_delta = np.float32(accountant.least), np.float32(accountant.log_delta)

    def both(multiplier, log_delta=log_delta):
        price = float(accountant.price(Event("objective", f32(multiplier), log_delta=f32(log_delta))))
        return price, filter.spent([Answered(1, "objective", float(multiplier))])

    assert max(both(least)) < filter.limit
    assert max(both(least * 2)) < filter.limit  # more noise than needed leaves no budget for others
    assert 1 / float(least) <= epsilon < 1 / float(least) * (1 + 1e-6)
    for less in (least * (1 - 1e-6), 0.0, -1.0, math.nan):
        assert both(np.float32(less)) == (math.inf, math.inf)
    assert float(log_delta) <= math.log(1e-9)
    assert both(least, np.nextafter(log_delta, np.float32(0)))[0] == math.inf
    assert both(least, log_delta - 1)[0] < math.inf


@pytest.mark.parametrize("mechanism", ["gamma", "laplace", "gumbel", "exponential"])
def test_a_pure_query_is_granted_at_one_over_epsilon_and_no_less_whatever_the_delta(mechanism):
    filter = Filter("basic", BUDGET)
    accountant = filter.price_list()
    least = float(accountant.noise_multiplier(0.1, mechanism))
    assert 1 / BUDGET.epsilon <= least <= 1 / BUDGET.epsilon * (1 + 1e-6)
    assert float(accountant.price(Event(mechanism, f32(least)))) < filter.limit
    assert float(accountant.price(Event(mechanism, f32(least * (1 - 1e-6))))) == math.inf
    assert filter.certify([Answered(1, mechanism, least)], adaptive=False) == BUDGET.epsilon
    assert filter.spent([Answered(1, mechanism, least)] * 2) > filter.limit


def test_it_is_priced_by_no_other_accountant_and_prices_no_sums():
    assert default_accountant(["objective"]) == "basic"
    assert default_accountant(["gamma"]) == "rdp"  # `basic` leaves room for no other query
    trace = [Answered(1, "objective", 2.0)]
    for name in ("gdp", "zcdp", "rdp", "ctcdp"):
        with pytest.raises(InputError, match=r"cannot price mechanism 'objective'.*basic"):
            Filter(name, BUDGET).spent(trace)
    with pytest.raises(InputError, match="cannot price mechanism 'gaussian'"):
        Filter("basic", BUDGET).spent([Answered(1, "gaussian", 2.0)])
    assert Filter("basic", BUDGET).spent([Answered(1, "none", 0.0)]) == math.inf
    assert float(Filter("basic", BUDGET).price_list().price(Event("none", f32(0)))) == math.inf
    for row in fixed.table(trace, FullBatch(), Adjacency.ZERO_OUT, 1e-6):
        assert row.epsilon is None
        assert row.note
