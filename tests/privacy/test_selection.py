"""The price of the best of K runs, against toy examples, an independent accountant and high precision."""

import functools
import math

import mpmath
import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import RdpAccountant
from scipy import special, stats

from l2p.base.errors import InputError
from l2p.privacy.cost import convert
from l2p.privacy.cost.selection import NegativeBinomial, PoissonRuns, base_rho, total_epsilon

LAWS = {
    "logarithmic": NegativeBinomial.with_mean(8.0),
    "geometric": NegativeBinomial.with_mean(8.0, 1.0),
    "between": NegativeBinomial(0.5, 0.05),
    "heavy": NegativeBinomial(-0.5, 0.02),
    "narrow": NegativeBinomial.with_mean(8.0, 5.0),
    "poisson": PoissonRuns(8.0),
}
EVERY = pytest.mark.parametrize("law", LAWS.values(), ids=LAWS)
K = np.arange(20_000)
ORDERS = np.concatenate([1 + np.geomspace(1e-3, 1, 8), [2.5, 5.0, 10.0], np.geomspace(20, 2000, 12)])
DELTA = 1e-6


def best_of(law, chances):
    """Exact distribution of the best outcome (the last is best), summing over K; first the probability of no run."""
    below = np.concatenate([[0.0], np.cumsum(chances)])
    below[-1] = 1.0
    return np.diff(chances_at_most(law, below), prepend=0.0)


def chances_at_most(law, below):
    return np.array([np.exp(law.log_pmf(K)) @ np.power(q, K) for q in below])


def renyi(p, q, orders):
    """Divergences f64[k] at the orders f64[k]."""
    support, orders = p > 0, np.asarray(orders)[..., None]
    return special.logsumexp(orders * np.log(p[support]) + (1 - orders) * np.log(q[support]), axis=-1) / (
        orders[..., 0] - 1
    )


def gaussian(shift):
    """A noisy score in cells, and its law on a neighbour's data: post-processing of a Gaussian of rho shift^2 / 2."""
    edges = np.linspace(-4, 4 + shift, 24)
    cells = [np.diff(stats.norm.cdf(edges, at), prepend=0.0, append=1.0) for at in (0.0, shift)]
    cells = [np.append(cell[:-1], stats.norm.sf(edges[-1], at)) for cell, at in zip(cells, (0.0, shift), strict=True)]
    return cells[0], cells[1], shift**2 / 2


def finite(first, second):
    """Two laws of finitely many outcomes, the last best, and their rho by its definition."""
    laws = np.array(first), np.array(second)
    orders = np.concatenate([1 + np.geomspace(1e-4, 1, 200), np.geomspace(2, 1e4, 400)])
    pairs = (laws, laws[::-1])
    return *laws, max((renyi(*pair, orders) / orders).max() for pair in pairs)


def two_outcomes(chance, epsilon):
    """A failure or, rarely, a success, e^epsilon times as likely on a neighbour's data."""
    return finite(*([1 - p, p] for p in (chance, chance * math.exp(epsilon))))


def three_outcomes(good, best, epsilon):
    """On a neighbour's data the good outcome is rarer, and also hidden more often by a best one: the choice leaks."""
    changed = good * math.exp(-epsilon), best * math.exp(epsilon)
    return finite([1 - good - best, good, best], [1 - sum(changed), *changed])


TOYS = [
    gaussian(0.1),
    gaussian(0.6),
    two_outcomes(0.1, 0.5),
    two_outcomes(0.02, 1.0),
    three_outcomes(0.0306, 0.0776, 0.597),
    three_outcomes(0.0265, 0.2965, 0.476),
    three_outcomes(0.0189, 0.0029, 2.99),
    three_outcomes(0.1249, 0.0757, 2.166),
]


@functools.cache
def exact(name):
    """[toys, both directions, orders] divergences of the best of K runs."""
    laws = [[best_of(LAWS[name], chances) for chances in toy[:2]] for toy in TOYS]
    return np.array([[renyi(*pair, ORDERS) for pair in (two, two[::-1])] for two in laws])


@pytest.mark.slow(but=["narrow"])
@pytest.mark.parametrize("name", LAWS)
def test_no_toy_diverges_by_more_than_the_theorem_says(name):
    for toy, divergences in zip(TOYS, exact(name), strict=True):
        bound = np.array([LAWS[name].divergence(toy[2], order) for order in ORDERS])
        assert np.all(divergences <= bound + 1e-9)
        assert np.all(divergences.max(1) > 0)


# No toy example comes near the bound for the heavy-tailed distribution.
@pytest.mark.slow(but=["poisson"])
@pytest.mark.parametrize("name", [name for name in LAWS if name != "heavy"])
def test_too_small_a_price_is_caught_by_some_toy(name):
    law = LAWS[name]
    mutants = {
        "one run": lambda rho, order: order * rho,
        # Each theorem without its last term, which is for the information in which run was the best.
        "no choice": lambda rho, order: order * rho + math.log(law.mean) / (order - 1),
        "less than half": lambda rho, order: 0.45 * law.divergence(rho, order),
    }
    for mutant in mutants.values():
        bounds = np.array([[mutant(toy[2], order) for order in ORDERS] for toy in TOYS])
        assert np.any(exact(name) > bounds[:, None] * 1.01)


@EVERY
def test_chances_add_up_to_one_and_to_the_mean(law):
    chances = np.exp(law.log_pmf(K))
    assert chances.sum() == pytest.approx(1, rel=1e-9)
    assert chances @ K == pytest.approx(law.mean, rel=1e-7)
    assert (chances[0] > 0) == isinstance(law, PoissonRuns)


@pytest.mark.parametrize("gamma", [0.02, 0.4, 0.97])
def test_the_logarithmic_law_is_the_limit_of_small_shapes_and_the_geometric_one_is_scipys(gamma):
    near, limit = NegativeBinomial(1e-7, gamma), NegativeBinomial(0.0, gamma)
    assert near.mean == pytest.approx(limit.mean, rel=1e-6)
    assert near.divergence(0.01, 20.0) == pytest.approx(limit.divergence(0.01, 20.0), rel=1e-6)
    np.testing.assert_allclose(
        np.exp(limit.log_pmf(K[1:400])), stats.logser.pmf(K[1:400], 1 - gamma), rtol=1e-9, atol=1e-300
    )
    geometric = NegativeBinomial(1.0, gamma)
    np.testing.assert_allclose(
        np.exp(geometric.log_pmf(K[1:400])), stats.geom.pmf(K[1:400], gamma), rtol=1e-9, atol=1e-300
    )


@EVERY
def test_draws_follow_the_law(law):
    uniform = np.random.default_rng(1).random(4000)
    drawn = np.array([law.draw(u) for u in uniform])
    expected = np.exp(law.log_pmf(np.arange(12)))
    counts = np.bincount(np.minimum(drawn, 12), minlength=13)
    chances = np.append(expected, 1 - expected.sum())
    used = chances > 1e-3
    assert counts[~used].sum() <= 30
    p_value = stats.chisquare(counts[used], chances[used] / chances[used].sum() * counts[used].sum()).pvalue
    assert p_value > 1e-6
    shifted = np.roll(chances[used], 1)  # one run too many: detected
    assert stats.chisquare(counts[used], shifted / shifted.sum() * counts[used].sum()).pvalue < 1e-6
    assert law.draw(0.0) == (0 if isinstance(law, PoissonRuns) else 1)
    assert 20 < law.draw(1 - 2.0**-53) < 10_000


@pytest.mark.parametrize("law", [PoissonRuns(3000.0), NegativeBinomial(2000.0, 0.3)], ids=["poisson", "binomial"])
def test_a_law_whose_first_chances_underflow_is_drawn_from_all_the_same(law):
    drawn = np.array([law.draw(u) for u in (0.1, 0.5, 0.9)])
    assert drawn[1] == pytest.approx(law.mean, rel=0.02)
    assert drawn[0] < drawn[1] < drawn[2]


# ------------------------------------------------------------------------------------------------------- golden values
@pytest.mark.parametrize(
    ("eta", "gamma", "rho", "order"), [(0.0, 0.03, 1e-3, 80.0), (1.0, 0.1, 0.02, 12.5), (0.5, 0.9, 3.0, 2.0)]
)
def test_theorem_2_in_high_precision(eta, gamma, rho, order):
    with mpmath.workdps(40):
        log_inverse = -mpmath.log(gamma)
        mean = (1 / mpmath.mpf(gamma) - 1) / (
            log_inverse if eta == 0 else (1 - mpmath.mpf(gamma) ** eta) / mpmath.mpf(eta)
        )
        # The best auxiliary order by brute force instead of its closed form.
        choices = [(1 - 1 / a) * rho * a + log_inverse / a for a in mpmath.linspace(1, 200, 20_000)]
        value = order * rho + (1 + eta) * min(choices) + mpmath.log(mean) / (order - 1)
    assert NegativeBinomial(eta, gamma).divergence(rho, order) == pytest.approx(float(value), rel=1e-5)
    assert NegativeBinomial(eta, gamma).divergence(rho, order) <= float(value) * (1 + 1e-11)


@pytest.mark.long(cases=["4.0-inf-*"])
@pytest.mark.slow(but=["5.0-0.0-0.05"])
@pytest.mark.parametrize("rho", [1e-4, 2e-3, 0.05])
@pytest.mark.parametrize(("mean", "shape"), [(5.0, 0.0), (20.0, 1.0), (4.0, math.inf)])
def test_epsilon_is_that_of_dp_accounting(rho, mean, shape):
    """`RepeatAndSelectDpEvent` searches a grid of orders for what is a closed form or a finer search here."""
    accountant = RdpAccountant(np.concatenate([np.linspace(1.02, 10, 200), np.geomspace(10.1, 20_000, 1500)]))
    event = dp_event.GaussianDpEvent(1 / math.sqrt(2 * rho))
    accountant.compose(dp_event.RepeatAndSelectDpEvent(event, mean, shape))
    theirs = accountant.get_epsilon(DELTA)
    law = PoissonRuns(mean) if math.isinf(shape) else NegativeBinomial.with_mean(mean, shape)
    # Their delta of a Gaussian by its Renyi divergences is ours; their orders are coarser.
    assert theirs * 0.99 <= total_epsilon(law, rho, DELTA) <= theirs * (1 + 1e-6)


@pytest.mark.parametrize("rho", [1e-6, 1e-3, 0.1, 5.0])
@pytest.mark.parametrize("epsilon", [0.01, 0.3, 4.0])
def test_delta_of_zcdp_is_the_best_over_all_orders_and_undoes_epsilon(rho, epsilon):
    delta = convert.zcdp_delta(rho, epsilon)
    order = 1 + np.geomspace(1e-6, 1e7, 400_000)
    log_delta = (order - 1) * (rho * order - epsilon) + order * np.log1p(-1 / order) - np.log(order - 1)
    best = math.exp(log_delta.min())
    assert best * (1 - 1e-6) <= delta <= best * (1 + 1e-6) or best > 0.99
    if 1e-300 < delta < 0.5:
        assert convert.zcdp_epsilon(rho, delta) == pytest.approx(epsilon, rel=1e-6)


# ------------------------------------------------------------------------------------------------------------- inverse
@EVERY
@pytest.mark.parametrize("epsilon", [0.1, 3.0])
def test_the_base_budget_is_the_largest_that_the_total_allows(law, epsilon):
    if law == LAWS["poisson"] and epsilon == 3.0:
        return  # once is enough: its price is a search at every order
    rho = base_rho(law, epsilon, DELTA)
    assert total_epsilon(law, rho, DELTA) <= epsilon < total_epsilon(law, rho * 1.001, DELTA)
    assert 0 < rho < convert.zcdp_rho(epsilon, DELTA)  # choosing has a price


def test_more_runs_and_larger_shapes_cost_more():
    laws = [NegativeBinomial.with_mean(mean, eta) for eta in (0.0, 1.0) for mean in (2.0, 10.0, 50.0)]
    rhos = np.array([base_rho(law, 1.0, DELTA) for law in laws]).reshape(2, 3)
    assert np.all(np.diff(rhos, axis=1) < 0)
    assert np.all(np.diff(rhos, axis=0) < 0)


@pytest.mark.parametrize(
    ("make", "arguments"),
    [
        (NegativeBinomial, (-1.0, 0.5)),
        (NegativeBinomial, (1.0, 1.0)),
        (NegativeBinomial, (math.nan, 0.5)),
        (NegativeBinomial.with_mean, (1.0,)),
        (NegativeBinomial.with_mean, (math.inf,)),
        (PoissonRuns, (0.5,)),
        (PoissonRuns, (math.nan,)),
    ],
    ids=str,
)
def test_what_no_theorem_covers_is_refused(make, arguments):
    with pytest.raises(InputError, match="choose"):
        make(*arguments)
