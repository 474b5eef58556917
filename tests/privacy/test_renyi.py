"""Divergences of sampled Gaussian sums: against other formulas, published numbers, and the neighbours they bound."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
from dp_accounting.rdp import RdpAccountant
from scipy.special import gammaln, logsumexp

from l2p.privacy import Adjacency, Budget, Event, Filter, FixedSize, Poisson
from l2p.privacy.cost.renyi import Neighbours, divergence, divergence_up

ONE, TWO = Neighbours.ONE_SIDED, Neighbours.TWO_SIDED
RATES = (1e-3, 0.01, 1000 / 30400, 0.1, 0.25, 0.5, 0.9)
NOISES = np.array([0.5, 1.0, 2.0, 5.0, 20.0, 200.0])
ORDERS = (2, 5, 20, 64, 472)
# Error of a reference computed in float64: exponents up to 1e4 are differences of equally large terms.
ROUNDING = 1e-11

# /work/shared/privacy.md 2.5 ([V]: computed there by another implementation): the divergence at orders 5, 20, 64, 500
# over order * q^2 / (2 sigma^2), as printed; an empty cell is none or a range. Six cells are printed one unit higher in
# their last digit than they round to, by the binomial sum too: 1.88, 14.2, 1.10, 1.37, 2.32 and 1.01 for the starred.
# Rate, sigma; Poisson (zero_out); the fixed-size formula at noise multiplier sigma; the same at sigma / 2.
GOLDEN = """
.01  1  | 1.87* 5152 8538 9815 | 2.87 5152 8538 9815 | 1.7e4 3.5e4 3.9e4
.01  2  | 1.15 1.20 4152 9262 | 1.56 1.57 4152 9262 | 11.5 2.1e4 3.4e4 3.9e4
.01  5  | 1.02 1.03 1.05 5386 | 1.18 1.18 1.18 5386 | 5.67 5.68 3485 3.5e4
.01  10 | 1.01 1.01 1.01 1.06 | 1.08 1.08 1.08 1.10 | 4.72 4.72 4.73 2.2e4
.01  50 | 1.00 1.00 1.00 1.00 | 1.02 1.02 1.02 1.02 | 4.13 4.13 4.13 4.13
.01 200 | 1.00 1.00 1.00 1.00 | 1.00 1.00 1.00 1.00 | 4.03 4.03 4.03 4.03
.05  1  | 2.97 274 362 395    | 3.54 274 362 395    | 1001 1474 1562
.05  2  | 1.19 1.65 248 381   | 1.53 1.82 248 381   | 14.1* 1095 1448 1581
.05  5  | 1.03 1.06 1.17 280  | 1.17 1.18 1.23 280  | 5.57 5.90 649 1480
.05  10 | 1.01 1.01 1.04 1.37 | 1.08 1.08 1.09 1.37 | 4.68 4.70 4.91 1120
.05 200 |                     | 1.00 1.00 1.00 1.00 | 4.03 4.03 4.03 4.03
.1   1  | 5.20 75.8 92.7 99.1 | 5.43 75.8 92.7 99.1 | 285 376 393
.1   2  | 1.24 7.53 70.8 96.3 | 1.50 7.54 70.8 96.3 | 21.7 303 371 396
.1   5  | 1.03 1.09* 1.36* 76.9 | 1.16 1.18 1.38 76.9 | 5.47 6.84 217 377
.1   10 | 1.01 1.02 1.07 10.6 | 1.08 1.08 1.09 10.6 | 4.64 4.71 5.51 308
.1  200 |                     | 1.00 1.00 1.00 1.00 | 4.03 4.03 4.03 4.03
.25  1  | 5.47 13.7 15.3 15.9 | 5.48 13.7 15.3 15.9 | 52.9 61.7 63.3
.25  2  | 1.35 6.85 13.2 15.6 |                     | 21.9 54.7 61.2 63.6
.25  5  | 1.04 1.19 2.31* 13.8 |                     | 5.29 13.2 46.4 61.8
.25  10 | 1.01 1.04 1.14 7.25 |                     |
.25  50 | 1.00 1.00 1.00* 1.04 |                     |
.25 200 | 1.00 1.00 1.00 1.00 |                     |
.5   1  | 2.65 3.71 3.91 3.99 |                     |
.5   2  | 1.35 2.85 3.65 3.96 |                     |
.5   5  | 1.05 1.24 2.07 3.72 |                     |
.5   10 | 1.01 1.05 1.19 2.90 |                     |
"""


def binomial_sum(noise_multiplier, rate, order):
    """Mironov, Talwar & Zhang 2019, for an integer order; the terms 0 and 1 of the sum vanish."""
    k = np.arange(2, order + 1)
    counts = gammaln(order + 1) - gammaln(k + 1) - gammaln(order - k + 1)
    exponent = (k * k - k) / (2 * noise_multiplier**2)
    excess = exponent + np.log(-np.expm1(-exponent))  # ln(e^exponent - 1)
    log_excess = logsumexp(counts + (order - k) * np.log1p(-rate) + k * np.log(rate) + excess)
    return np.logaddexp(0, log_excess) / (order - 1)


def mixture(weights, means, sigma, z):
    """Log density at z of Gaussians of one width."""
    each = -(((z[:, None] - np.asarray(means)) / sigma) ** 2) / 2 + np.log(weights)
    return logsumexp(each, axis=1) - math.log(sigma * math.sqrt(2 * math.pi))


def distance(p, q, sigma, order):
    """Renyi divergence of two mixtures, the larger of the two directions; each a pair (weights, means).

    By the trapezoidal rule, which converges exponentially for densities as smooth as these; where the ratio is near 1
    its terms are those of E_q[r^order - 1 - order (r - 1)], in which nothing cancels.
    """
    reach = order * max(np.ptp(np.concatenate([p[1], q[1]])), 0.5) + 13 * sigma
    z = np.arange(-reach, reach, sigma / 40)
    log_p, log_q = mixture(*p, sigma, z), mixture(*q, sigma, z)
    totals = []
    for high, low in ((log_p, log_q), (log_q, log_p)):
        log_ratio = high - low
        power = order * log_ratio
        near = np.abs(power) < 30
        inner = np.where(near, np.expm1(np.where(near, power, 0)) - order * np.expm1(np.where(near, log_ratio, 0)), 0)
        near_total = math.fsum(np.exp(low[near]) * inner[near]) * sigma / 40
        rest = ~near
        far = logsumexp(low[rest] + power[rest]) if rest.any() else -np.inf
        flat = math.fsum((np.exp(low) * (1 - order + order * np.exp(np.minimum(log_ratio, 300))))[rest]) * sigma / 40
        log_far = far + math.log(sigma / 40)
        totals.append(np.logaddexp(0, log_far) if near_total < 0 else np.logaddexp(math.log1p(near_total), log_far))
        if log_far < 30:
            totals[-1] = math.log1p(near_total + math.exp(log_far) - flat)
    return max(totals) / (order - 1)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("order", ORDERS)
def test_one_sided_is_the_binomial_sum_rounded_up(rate, order):
    expected = np.array([binomial_sum(noise, rate, order) for noise in NOISES])
    bounds = divergence_up(NOISES, rate, float(order), ONE)
    assert np.all(bounds >= expected * (1 - ROUNDING))
    assert np.all(bounds <= expected * (1 + 2e-9))  # the margin upward is 1e-9


@pytest.mark.parametrize("order", [7.2, 20.16, 69.9, 249.6])
def test_fractional_orders_agree_with_dp_accounting(order):
    """Its RdpAccountant sums the two alternating series of Mironov, Talwar & Zhang 2019 for orders between integers.

    At small orders it stops summing too early: at order 1.3 with q=.25 and m=20 it finds 80 times the truth, which is
    q^2 order / (2 m^2) there. The test of neighbours below integrates at such orders.
    """
    for rate, noise in itertools.product((0.01, 1000 / 30400, 0.25), (1.0, 4.0, 20.0)):
        accountant = RdpAccountant(orders=[order])
        accountant.compose(PoissonSampledDpEvent(rate, GaussianDpEvent(noise)))
        theirs = accountant._rdp[0]
        # For small divergences the series cancel down to their rounding, of about 1e-11.
        assert divergence_up(np.array([noise]), rate, order, ONE)[0] == pytest.approx(theirs, rel=1e-3, abs=1e-11)


@pytest.mark.parametrize("line", GOLDEN.strip().splitlines())
def test_golden_table(line):
    key, *columns = line.split("|")
    rate, sigma = map(float, key.split())
    cells = 0
    for neighbours, noise, column in zip((ONE, TWO, TWO), (sigma, sigma, sigma / 2), columns, strict=True):
        for order, cell in zip((5.0, 20.0, 64.0, 500.0), column.replace("*", "").split(), strict=False):
            price = divergence_up(np.array([noise]), rate, order, neighbours)[0]
            ratio = price / (order * rate**2 / (2 * sigma**2))
            digits = len(cell.split("e")[0].replace(".", "").lstrip("0"))
            assert float(f"{ratio:.{digits - 1}e}") == float(cell), (neighbours, order)
            cells += 1
    assert cells


def test_fixed_size_batches_get_no_price_for_a_row_that_is_nulled():
    """Nine rows at -1 and one at 1 or null: batches of one row release N(1) or N(0) where others release N(-1)."""
    rate, sigma, order = 0.1, 5.0, 64.0
    unit = order * rate**2 / (2 * sigma**2)
    true = distance(((1 - rate, rate), (-1.0, 1.0)), ((1 - rate, rate), (-1.0, 0.0)), sigma, order)
    assert true / unit == pytest.approx(67.8, abs=0.05)
    assert divergence_up(np.array([sigma]), rate, order, TWO)[0] / unit == pytest.approx(1.378, abs=5e-4)
    assert true <= divergence_up(np.array([sigma / 2]), rate, order, TWO)[0]
    for adjacency in (Adjacency.ZERO_OUT, Adjacency.ADD_REMOVE):
        assert adjacency not in FixedSize(1, 10).adjacencies


@pytest.mark.parametrize("order", [1.5, 2.0, 8.0, 40.0])
@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5, 0.9])
def test_bounds_hold_for_the_neighbours_they_are_for(order, rate):
    for sigma in (1.0, 2.0, 5.0, 20.0):
        outer = (1 - rate, rate)
        present = distance((outer, (0.0, 1.0)), ((1.0,), (0.0,)), sigma, order)
        one_sided = divergence_up(np.array([sigma]), rate, order, ONE)[0]
        # That direction is the exact one; the other is cheaper.
        assert present <= one_sided * (1 + 1e-8) + 1e-15
        assert present == pytest.approx(one_sided, rel=1e-6)
        # A sensitivity of 2: one row leaves, another enters.
        replaced = distance((outer, (0.0, 1.0)), (outer, (0.0, -1.0)), sigma, order)
        assert replaced <= divergence_up(np.array([sigma / 2]), rate, order, TWO)[0] * (1 + 1e-9)


@pytest.mark.slow(but=["6.0"])
@pytest.mark.parametrize("sigma", [1.0, 2.0, 6.0])
def test_every_replacement_in_a_small_table_costs_at_most_the_fixed_size_price(sigma):
    """All 15 batches of 2 of 6 rows, every table of extreme rows up to their order, and some in between."""
    batches = np.array(list(itertools.combinations(range(6), 2)))
    weights = np.full(len(batches), 1 / len(batches))
    random = np.random.default_rng(0)
    tables = [np.where(np.arange(6) < ones, 1.0, -1.0) for ones in range(7)]
    tables += [random.uniform(-1, 1, 6) for _ in range(3)]
    tightest = 0.0
    for order in (2.0, 5.0, 20.0):
        price = divergence_up(np.array([sigma / 2]), 2 / 6, order, TWO)[0]
        for table in tables:
            # Rows that are equal give equal neighbours.
            for row in {float(value): index for index, value in enumerate(table)}.values():
                for replacement in {-1.0, 1.0, 0.25} - {table[row]}:
                    changed = table.copy()
                    changed[row] = replacement
                    pair = [(weights, rows[batches].sum(axis=1)) for rows in (table, changed)]
                    true = distance(*pair, sigma, order)
                    assert true <= price * (1 + 1e-9)
                    tightest = max(tightest, true / price)
    assert tightest > 0.3  # the right order of magnitude, so that a lost factor would be noticed


@pytest.mark.slow(but=["6.0"])
@pytest.mark.parametrize("sigma", [0.7, 2.0, 6.0])
def test_every_nulled_row_of_a_small_table_costs_at_most_the_poisson_price(sigma):
    """All 32 Poisson batches of the other five rows, with and without the sixth."""
    rate = 1 / 3
    chosen = np.array(list(itertools.product((0, 1), repeat=6)))
    weights = np.prod(np.where(chosen, rate, 1 - rate), axis=1)
    random = np.random.default_rng(1)
    tightest = 0.0
    others = [np.zeros(5), np.ones(5), np.array([1.0, 1, 1, -1, -1]), *random.uniform(-1, 1, (3, 5))]
    for order in (2.0, 5.0, 20.0):
        price = divergence_up(np.array([sigma]), rate, order, ONE)[0]
        for rest, row in itertools.product(others, (1.0, -1.0, 0.4)):
            pair = [(weights, chosen @ np.append(rest, last)) for last in (row, 0.0)]
            true = distance(*pair, sigma, order)
            assert true <= price * (1 + 1e-7)  # reached where the other rows are null
            tightest = max(tightest, true / price)
    assert tightest > 1 - 1e-6


@pytest.mark.long
@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_prices_are_monotone_and_at_most_those_of_a_full_batch(neighbours):
    noises = np.geomspace(0.05, 1e6, 80)
    orders = (1.01, 1.5, 2.0, 5.0, 20.16, 64.0, 250.0, 472.0, 3e3, 2e4)
    rates = (1e-6, 1e-3, 0.033, 0.1, 0.5, 0.99)
    prices = np.array([[divergence_up(noises, rate, order, neighbours) for order in orders] for rate in rates])
    full_batch = np.array(orders)[:, None] / noises**2 / 2
    slack = 1 + 4e-9  # each is rounded up by 1e-9
    assert np.all((prices > 0) & np.isfinite(prices))
    assert np.all(prices <= full_batch * slack)
    assert np.all(np.diff(prices, axis=2) < prices[:, :, 1:] * 4e-9)
    assert np.all(prices[:, :-1] <= prices[:, 1:] * slack)
    assert np.all(prices[:-1] <= prices[1:] * slack)
    # Where every row is read, the price is that of a full batch.
    for order, full in zip(orders, full_batch, strict=True):
        np.testing.assert_allclose(divergence_up(noises, 1 - 1e-13, order, neighbours), full, rtol=1e-8)


@pytest.mark.slow(but=["two_sided"])
@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_extremes_are_finite_and_nonsense_is_infinite(neighbours):
    noises = np.geomspace(1e-2, 1e9, 200)
    for order in (1 + 1e-4, 1.5, 472.0, 2.3e4, 1e5):
        for rate in (1e-7, 0.03, 1 - 1e-9):
            prices = divergence_up(noises, rate, order, neighbours)
            assert np.all((prices > 0) & np.isfinite(prices))
    nonsense = divergence_up(np.array([math.nan, 0.0, -1.0, -math.inf, 1e-300]), 0.1, 20.0, neighbours)
    assert np.all(np.isinf(nonsense))
    # More noise than 2^40 is charged as that much.
    most = divergence_up(np.array([2.0**40, 1e15, math.inf]), 0.1, 20.0, neighbours)
    assert most[0] == most[1] == most[2] > 0


PLANS = [
    Filter("rdp", Budget(epsilon, delta, adjacency), Poisson(rate))
    for epsilon, delta in ((1e-3, 1e-8), (0.0125, 1e-8), (0.1, 1e-8), (1.6, 1e-12), (100.0, 1e-3))
    for rate in (1e-3, 1000 / 30400, 0.3)
    for adjacency in (Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE)
]


def inside_jit(plans, noises):
    """Float32 prices of Gaussian queries and their derivatives, one function compiled for all rates and orders."""

    @jax.jit
    def prices(rate, order, noise):
        def price(value):
            return divergence(value, rate, order, plans[0].neighbours, jnp, 2.0**-24)

        return jax.vmap(jax.value_and_grad(price))(noise)

    for plan in plans:
        rate, order = jnp.float32(plan.sampler.rate()), jnp.float32(plan.order)
        yield plan, *(np.asarray(leaf, np.float64) for leaf in prices(rate, order, jnp.asarray(noises)))


@pytest.mark.slow
@pytest.mark.parametrize("neighbours", list(Neighbours))
def test_float32_divergences_are_close_to_float64_ones_with_their_derivatives(neighbours):
    """Orders up to 40 noise multipliers are within reach of the quadrature; above, a full batch's price counts."""
    noises = np.geomspace(1e-1, 0.99e9, 150).astype(np.float32)
    exact = noises.astype(np.float64)
    for plan, prices, gradients in inside_jit([plan for plan in PLANS if plan.neighbours is neighbours], noises):
        rate, order = plan.sampler.rate(), plan.order
        true = divergence_up(exact, rate, order, neighbours)
        reached = order <= 39.9 * exact
        np.testing.assert_allclose(prices[reached], true[reached], rtol=1e-3)
        assert np.all(np.isfinite(gradients) & (gradients <= 0))
        # Beyond, a query pays for all rows: never less, and more by at most ln(1/q) order / (order - 1).
        over = prices[~reached] - true[~reached]
        assert np.all(over >= -1e-6 * true[~reached])
        assert np.all(over <= -math.log(rate) * order / (order - 1) + 1e-5 * true[~reached])
        step, steady = 1e-5, order <= 39.9 * exact * (1 - 2e-5)
        up, down = (divergence_up(exact[steady] * (1 + side), rate, order, neighbours) for side in (step, -step))
        slope = (up - down) / (2 * step * exact[steady])
        # Differences of prices that are good to 1e-11 are good to 1e-5; float32 and curvature take the rest.
        np.testing.assert_allclose(gradients[steady], slope, rtol=2e-3)


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", [Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE])
def test_a_float32_price_is_never_below_the_float64_price(adjacency):
    """Prices of the accountant that decides in a run, at every noise: also next to the steepest rise of the price."""
    random = np.random.default_rng(2)
    for rate in (1e-3, 1000 / 30400, 0.3):
        plans = [plan for plan in PLANS if plan.budget.adjacency is adjacency and plan.sampler.rate() == rate]
        accountants = [plan.price_list() for plan in plans]
        price = jax.jit(
            jax.vmap(
                lambda accountant, noise: accountant.price(Event("gaussian", noise), sampled=True), in_axes=(None, 0)
            )
        )
        for plan, accountant in zip(plans, accountants, strict=True):
            steep = plan.order / math.sqrt(2 * plan.order * -math.log(rate)) * np.exp(random.uniform(-1, 1, 400))
            steep = np.maximum(steep, plan.order / 40)  # below, float64 takes long, and float32 charges all rows
            wide = np.exp(random.uniform(math.log(1e-4), math.log(1e9), 60))
            noises = np.clip(np.concatenate([wide, steep]), 1e-4, 1e9).astype(np.float32)
            true = plan.prices("gaussian", noises.astype(np.float64), True)
            prices = np.asarray(price(accountant, jnp.asarray(noises)), np.float64)
            assert np.all(prices >= true)
            reached = plan.order <= 39.9 * noises
            assert np.all(prices[reached] <= true[reached] * (1 + 1e-3))
