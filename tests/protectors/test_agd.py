"""AGD's step, line by line, against the errors of its authors' public code; answers are scripted here."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from l2p.models import Logistic
from l2p.oracle.setup import Setup
from l2p.privacy import Adjacency, Budget, Filter
from l2p.protectors import HAND_DESIGNED
from l2p.protectors.by_hand.agd import NUM_CANDIDATES, WINDOW
from l2p.queries import ClippedGradient

BUDGET, D = Budget(1.0, 1e-6), 3
PARAMS = np.array([0.5, -0.25, 1.0, 0.125])
GAMMA, L2, MOST = 0.1, 0.001, 2.0
GRADIENTS = np.random.default_rng(0).normal(size=(6, D + 1))


class Scripted:
    """An oracle with scripted answers that records the price of every query."""

    def __init__(self, choices):
        self.setup = Setup.create(Logistic(), Adjacency.ADD_REMOVE, Filter("zcdp", BUDGET).price_list(), 1000)
        self.gradients, self.choices = iter(GRADIENTS), iter(choices)
        self.paid, self.queries = [], []

    def noise_multiplier(self, cost, mechanism="gaussian"):
        return self.setup.price_list.noise_multiplier(cost, mechanism)

    def ask(self, query):
        self.paid.append(float(self.setup.price_list.price(query.event())))
        self.queries.append(query)
        if isinstance(query, ClippedGradient):
            return jnp.asarray(next(self.gradients), jnp.float32)
        return jnp.int32(next(self.choices))


def steps_with(choices, name="agd"):
    """The oracle, and params after each step, of a run whose choices are these."""
    protector, oracle = HAND_DESIGNED[name](BUDGET, accountant="zcdp"), Scripted(choices)
    params, state = protector.init(jnp.asarray(PARAMS, jnp.float32), oracle)
    path = []
    for _ in choices:
        params, state = protector.step(params, state, oracle)
        path.append(np.asarray(params))
    return oracle, path


def moved(params, gradient, index, most=MOST):
    direction = gradient / np.linalg.norm(gradient) + L2 * params
    return params - most * index / NUM_CANDIDATES * direction


@pytest.mark.slow(but=["0"])
@pytest.mark.parametrize("index", [0, 1, 2, NUM_CANDIDATES])
def test_the_candidate_that_was_chosen_is_the_one_taken(index):
    """Public code takes the one before it, so that choice 1 does not move and charges for a move."""
    oracle, (after,) = steps_with([index])
    np.testing.assert_allclose(after, moved(PARAMS, GRADIENTS[0], index), atol=1e-6)
    np.testing.assert_allclose(oracle.queries[1].point(0), PARAMS)
    np.testing.assert_allclose(oracle.queries[1].point(index), after, atol=1e-6)
    np.testing.assert_allclose(oracle.queries[1].sizes, MOST * np.arange(NUM_CANDIDATES + 1) / NUM_CANDIDATES)
    assert np.abs(moved(PARAMS, GRADIENTS[0], 1) - PARAMS).max() > 0.01


def test_every_rejected_gradient_is_averaged_by_inverse_variance_and_only_the_difference_is_paid():
    oracle, (_, _, after) = steps_with([0, 0, 7])
    first = oracle.paid[0]
    prices = first * np.array([1.0, 1.0 + GAMMA, (1.0 + GAMMA) ** 2])
    np.testing.assert_allclose(oracle.paid[::2], np.diff(prices, prepend=0.0), rtol=1e-4)
    weights = np.diff(prices, prepend=0.0) / prices[-1]
    average = weights @ GRADIENTS[:3]
    np.testing.assert_allclose(after, moved(PARAMS, average, 7), atol=1e-5)
    # An average's noise is that of one query at the last price: squares of weights times variances, 1 / price each.
    variance = (weights**2 / np.diff(prices, prepend=0.0)).sum()
    assert variance == pytest.approx(1 / prices[-1])
    # Public code keeps the first gradient beside the newest one only, and starts from the normalised one.
    share = prices[1] / prices[2]
    forgets = share * GRADIENTS[0] + (1 - share) * GRADIENTS[2]
    normalised = weights @ np.r_[GRADIENTS[:1] / np.linalg.norm(GRADIENTS[0]), GRADIENTS[1:3]]
    for wrong in (forgets, normalised):
        assert np.abs(moved(PARAMS, wrong, 7) - after).max() > 1e-2


def test_a_move_keeps_the_raised_price_forgets_its_gradient_and_is_charged_once():
    """Public code takes the price of the next gradient off twice after every move."""
    oracle, (_, before, after) = steps_with([0, 5, 3])
    raised = oracle.paid[0] * (1 + GAMMA)
    first = oracle.paid[0]
    np.testing.assert_allclose(oracle.paid[::2], [first, raised - first, raised], rtol=1e-4)
    np.testing.assert_allclose(after, moved(before, GRADIENTS[2], 3), atol=1e-6)
    assert len(oracle.paid) == 6
    np.testing.assert_allclose(oracle.paid[1::2], oracle.paid[1])


def test_the_largest_step_follows_the_largest_one_taken_every_ten_moves():
    protector = HAND_DESIGNED["agd"](BUDGET, accountant="zcdp")
    choices = [4] * (WINDOW - 1) + [0, 6, 20]
    oracle = Scripted(choices)
    oracle.gradients = iter(np.resize(GRADIENTS, (len(choices), D + 1)))
    params, state = protector.init(jnp.asarray(PARAMS, jnp.float32), oracle)
    most = []
    for _ in choices:
        params, state = protector.step(params, state, oracle)
        most.append(float(state.max_step))
    # A rejection is not a move; the window ends with the tenth move, at 1.1 times the largest step in it.
    expected = [MOST] * WINDOW + [1.1 * MOST * 6 / NUM_CANDIDATES] * 2
    np.testing.assert_allclose(most, expected, rtol=1e-6)


def test_settings_are_those_of_the_papers_code():
    """epsilon / 120 for a choice; the first gradient as the classic Gaussian calibration of the same epsilon."""
    oracle, _ = steps_with([1])
    epsilon = BUDGET.epsilon * 0.5 / 60
    gradient, choice = oracle.queries
    assert float(choice.noise_multiplier) == pytest.approx(1 / epsilon, rel=1e-4)
    assert float(gradient.noise_multiplier) == pytest.approx(
        math.sqrt(2 * math.log(1.25 / BUDGET.delta)) / epsilon, rel=1e-4
    )
    assert float(gradient.clip_norm) == float(choice.clip_norm) == pytest.approx(3.0)
    assert oracle.paid[1] == pytest.approx(epsilon**2 / 2, rel=1e-4)


@pytest.mark.parametrize("accountant", ["zcdp", "rdp", "ctcdp"])
def test_gumbel_choices_have_the_same_scale_for_a_quarter_of_the_price(accountant):
    priced = Filter(accountant, BUDGET).price_list()
    noises, costs = [], []
    for name, mechanism in (("agd", "exponential"), ("agd_gumbel", "gumbel")):
        agd = HAND_DESIGNED[name](BUDGET, accountant=accountant)
        assert agd.mechanisms == ("gaussian", mechanism)
        costs.append(float(jnp.exp(agd.log_selection_share[0]) * priced.budget))
        noises.append(float(priced.noise_multiplier(costs[-1], mechanism)))
    assert noises[0] == pytest.approx(noises[1], rel=1e-4)
    assert costs[0] == pytest.approx(4 * costs[1], rel=1e-4)


def test_scripted_gumbel_runs_differ_in_nothing_else():
    (exponential, exponential_params), (gumbel, gumbel_params) = steps_with([0, 3]), steps_with([0, 3], "agd_gumbel")
    np.testing.assert_array_equal(exponential_params, gumbel_params)
    np.testing.assert_allclose(exponential.paid[::2], gumbel.paid[::2], rtol=1e-5)
    np.testing.assert_allclose(exponential.paid[1::2], 4 * np.array(gumbel.paid[1::2]), rtol=1e-4)
