"""Planning is the inverse of accounting, and gives the published noise."""

import math

import pytest

from l2p.base.errors import InputError
from l2p.privacy.budget import Budget
from l2p.privacy.cap import planning
from l2p.privacy.cap.filter import Filter
from l2p.privacy.cost.sampling import FixedSize, FullBatch, PermutationEpochs, Poisson
from l2p.privacy.events import Adjacency

DELTA = 1e-8
RATE = 1000 / 30400
FIXED = FixedSize(1000, 30400)

# Noise for 20, 50, 200 and 1,000 steps at rate 1000 / 30400: 13 q^2 rho / Renyi at the planned order / PLD. In the last
# row the specification has 2.33, 2.35, 3.37 and 7.06 for Renyi, because it interpolates between whole orders.
POISSON_TABLE = {
    0.0125: "258/53.2/49.5 407/83.7/77.9 815/167/155 1822/373/347",
    0.05: "64.4/14.6/13.6 102/22.5/21.0 204/44.4/41.6 456/99.1/92.8",
    0.1: "32.2/7.79/7.28 51.0/11.8/11.0 102/23.0/21.5 228/51.0/47.9",
    0.2: "16.1/4.42/4.03 25.5/6.25/5.87 51.0/11.9/11.2 114/26.3/24.7",
    0.4: "8.09/3.20/2.40 12.8/3.46/3.24 25.6/6.24/5.88 57.2/13.6/12.8",
    0.8: "5.28/2.32/1.62 6.43/2.34/1.93 12.9/3.36/3.18 28.8/7.05/6.67",
}
# 50 steps on all rows: ctCDP / Renyi / exact.
FULL_TABLE = {
    0.0125: "3434/2533/2359",
    0.05: "859/673/630",
    0.1: "430/346/325",
    0.2: "215/178/167",
    0.4: "108/91.5/86.3",
    0.8: "54.2/47.2/44.6",
}


def unit(printed):
    return 10.0 ** -len(printed.partition(".")[2])


def at_the_planned_order(budget, steps):
    """The Renyi filter as in the table: without the number of steps."""
    low, high = 0.1, 1e5
    filter = Filter("rdp", budget, Poisson(RATE))
    for _ in range(60):
        middle = (low * high) ** 0.5
        low, high = (
            (low, middle) if filter.spent(planning.equal_steps(steps, middle)) <= filter.limit else (middle, high)
        )
    return high


@pytest.mark.slow
@pytest.mark.long(but=["0.2"])
@pytest.mark.parametrize("epsilon", POISSON_TABLE)
def test_sampled_noise_is_the_published_one(epsilon):
    for steps, cell in zip((20, 50, 200, 1000), POISSON_TABLE[epsilon].split(), strict=True):
        paper, planned, pld = cell.split("/")
        budget = Budget(epsilon, DELTA)
        noise = planning.noise_multiplier(Budget(epsilon, DELTA, Adjacency.REPLACE_ONE), FIXED, steps, "paper_13")
        assert noise == pytest.approx(float(paper), rel=1e-3, abs=0.53 * unit(paper))
        noise = at_the_planned_order(budget, steps)
        assert noise == pytest.approx(float(planned), rel=1e-3, abs=0.53 * unit(planned))
        noise = planning.noise_multiplier(budget, Poisson(RATE), steps, "pld")
        assert noise == pytest.approx(float(pld), rel=1e-3, abs=0.53 * unit(pld))
        # A filter that knows the number of steps needs no more.
        assert planning.noise_multiplier(budget, Poisson(RATE), steps, "rdp") <= float(planned) + unit(planned)


@pytest.mark.parametrize("epsilon", FULL_TABLE)
def test_full_batch_noise_is_the_published_one(epsilon):
    for accountant, printed in zip(("ctcdp", "rdp", "gdp"), FULL_TABLE[epsilon].split("/"), strict=True):
        noise = planning.noise_multiplier(Budget(epsilon, DELTA), FullBatch(), 50, accountant)
        assert noise == pytest.approx(float(printed), rel=1e-3, abs=0.53 * unit(printed))


COMBINATIONS = [
    *[(FullBatch(), name, Adjacency.ZERO_OUT) for name in planning.names() if name != "paper_13"],
    *[(Poisson(0.02), name, Adjacency.ADD_REMOVE) for name in ("rdp", "ctcdp", "pld", "moments", "rdp_all_orders")],
    (Poisson(0.02), "strong_composition", Adjacency.ZERO_OUT),
    *[
        (FIXED, name, Adjacency.REPLACE_ONE)
        for name in ("rdp", "ctcdp", "paper_13", "strong_composition", "rdp_all_orders")
    ],
    *[(PermutationEpochs(1000, 30400), name, Adjacency.ZERO_OUT) for name in ("gdp", "zcdp", "rdp", "ctcdp")],
]


@pytest.mark.slow(cases=["Poisson*", "fixed-size*-rdp-*"])
@pytest.mark.long(cases=["Poisson*-rdp-*", "Poisson*-pld-*", "fixed-size*-rdp-*"])
@pytest.mark.parametrize(("sampler", "accountant", "adjacency"), COMBINATIONS, ids=str)
def test_noise_steps_and_epsilon_are_each_others_inverse(sampler, accountant, adjacency):
    budget = Budget(0.9, 1e-6, adjacency)
    noise = planning.noise_multiplier(budget, sampler, 40, accountant)
    reached = planning.epsilon(sampler, adjacency, budget.delta, 40, noise, accountant)
    assert reached <= budget.epsilon * (1 + 1e-9)
    floor = accountant in ("paper_13", "moments")  # their epsilon cannot reach every target
    assert floor or reached >= budget.epsilon * (1 - 1e-4)
    steps = planning.num_steps(budget, sampler, noise, accountant)
    assert steps >= 40
    # Steps of one epoch share a charge.
    assert accountant == "paper_13" or steps < 40 + sampler.steps_per_charge
    assert planning.num_steps(budget, sampler, noise * 0.98, accountant) < 40 + sampler.steps_per_charge


@pytest.mark.slow(but=["0.001-ctcdp", "0.001-pld", "100.0-ctcdp", "100.0-rdp_all_orders"])
@pytest.mark.long(cases=["100.0-pld", "0.001-rdp"])
@pytest.mark.parametrize("accountant", ["rdp", "ctcdp", "pld", "rdp_all_orders"])
@pytest.mark.parametrize("epsilon", [0.001, 100.0])
def test_extreme_budgets(accountant, epsilon):
    for sampler in (Poisson(RATE), FullBatch()):
        budget = Budget(epsilon, 1e-12)
        noise = planning.noise_multiplier(budget, sampler, 3, accountant)
        reached = planning.epsilon(sampler, budget.adjacency, budget.delta, 3, noise, accountant)
        assert 0.99 * epsilon < reached <= epsilon * (1 + 1e-9)


@pytest.mark.parametrize(
    ("epsilon", "steps", "batch", "rows", "delta", "sigma"),
    [
        (0.05, 3, 184, 30400, 1e-8, 66.3),
        (0.8, 49, 184, 30400, 1e-8, 17.9),
        (0.8, 39, 165, 24320, 1e-8, 17.8),
        (1.0, 200, 500, 100_000, 1e-6, 19.29),
    ],
)
def test_strong_composition_asks_for_the_noise_of_sgd_adv(epsilon, steps, batch, rows, delta, sigma):
    """Lee & Kifer 2018's closed form; sigma in clipping norms, of which the sensitivity is two."""
    rate = batch / rows
    each = epsilon / (2 * math.sqrt(2 * steps * math.log(2 / delta))) / (2 * rate)
    assert each <= 1
    closed = 2 * math.sqrt(2 * math.log(1.25 / (delta / (2 * steps)))) / each
    assert closed == pytest.approx(sigma, rel=5e-3)
    budget, sampler = Budget(epsilon, delta, Adjacency.REPLACE_ONE), FixedSize(batch, rows)
    noise = 2 * planning.noise_multiplier(budget, sampler, steps, "strong_composition")
    assert noise == pytest.approx(closed, rel=1e-6)
    fair = 2 * planning.noise_multiplier(budget, sampler, steps, "rdp")
    assert 5 * fair < noise < 9 * fair


def test_golatkar_et_al():
    assert planning.num_steps(Budget(3.0, 1e-5), FullBatch(), 20.0, "gdp") == 206


def test_a_run_certifies_what_was_planned():
    budget = Budget(0.3, 1e-7)
    for accountant in ("rdp", "ctcdp"):
        noise = planning.noise_multiplier(budget, Poisson(0.01), 100, accountant)
        filter = Filter(accountant, budget, Poisson(0.01), 100)
        assert filter.certify(planning.equal_steps(100, noise), adaptive=True) == 0.3


def test_no_step_fits_too_little_noise():
    assert planning.num_steps(Budget(0.1, 1e-8), FullBatch(), 1.0, "gdp") == 0


@pytest.mark.parametrize(
    ("call", "phrase"),
    [
        (lambda: planning.noise_multiplier(Budget(0.1, 1e-8), Poisson(0.01), 5, "gdp"), "no theorem"),
        (lambda: planning.noise_multiplier(Budget(0.1, 1e-8), FullBatch(), 5, "moments"), "at no noise multiplier"),
        (lambda: planning.noise_multiplier(Budget(0.1, 1e-8), FullBatch(), 0, "gdp"), "at least one step"),
        (lambda: planning.noise_multiplier(Budget(0.1, 1e-8), FullBatch(), 5, "magic"), "unknown"),
        (lambda: planning.num_steps(Budget(0.1, 1e-8), FullBatch(), float("nan"), "gdp"), "finite noise"),
        (lambda: planning.num_steps(Budget(0.1, 1e-8), FIXED, 20.0, "rdp"), "adjacency"),
        (lambda: planning.epsilon(FullBatch(), Adjacency.ZERO_OUT, 1e-8, 5, -1.0, "gdp"), "noise multiplier is -1.0"),
        (lambda: planning.equal_steps(5, float("inf")), "noise multiplier is inf"),
        (lambda: planning.epsilon(FullBatch(), Adjacency.ZERO_OUT, 1e-8, 2**21, 9.0, "pld"), "too many to list"),
    ],
)
def test_what_cannot_be_planned_is_refused(call, phrase):
    with pytest.raises(InputError, match=phrase):
        call()
