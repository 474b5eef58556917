"""Rivals of today without noise, beside NumPy: least squares, Newton's method, a polynomial loss, a scaling rule."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.polynomial import chebyshev
from scipy import special

import l2p
from l2p.base.errors import InputError
from l2p.models import INTERCEPT_COLUMN, Logistic, Softmax, Square, find_model
from l2p.oracle.setup import Setup
from l2p.privacy import Adjacency, Budget, Filter
from l2p.protectors import HAND_DESIGNED
from l2p.protectors.by_hand.linear_scaling import LEVEL_COST
from l2p.protectors.by_hand.pass_glm import curvature
from l2p.release.admission import admit
from l2p.run.run import run
from l2p.task.rows import Rows

D, N = 3, 300
BUDGET = Budget(1.0, 1e-6)
RANDOM = np.random.default_rng(3)
X = RANDOM.random((N, D)).astype(np.float32)
SCORE = (X - 0.5) @ [3.0, -2.0, 1.0]


def rows(y):
    return Rows(jnp.asarray(X), jnp.asarray(y, jnp.float32), jnp.ones(N))


BINARY = rows(RANDOM.random(N) < special.expit(2.0 * SCORE))
NUMBERS = rows(np.clip(0.5 + 0.15 * SCORE + 0.02 * RANDOM.normal(size=N), 0, 1))
CLASSES = rows(np.digitize(SCORE + 0.2 * RANDOM.normal(size=N), [-0.5, 0.5]))


def without_noise(name, table, model, kind=None, **changes):
    """Params of a run with a budget at which noise does not matter, and with norm bounds that no row exceeds."""
    protector = HAND_DESIGNED[name](BUDGET).replace(**{"log_norm_bound": jnp.array([3.0])} | changes)
    planned = Filter("gdp", BUDGET).price_list()
    setup = Setup.create(model, Adjacency.ZERO_OUT, planned, N, kind)
    setup = setup.replace(price_list=setup.price_list.replace(budget=jnp.float32(1e14)), cap=jnp.float32(1e14))
    return np.asarray(jax.jit(run)(protector, model.init(D), table, setup, jax.random.key(0))[0], float)


LINES = np.c_[X.astype(float), np.full(N, INTERCEPT_COLUMN)]


@pytest.mark.long
def test_without_noise_dp_ls_is_least_squares_on_numbers_signs_and_one_hot_classes():
    numbers = np.linalg.lstsq(LINES, np.asarray(NUMBERS.y, float), rcond=None)[0]
    np.testing.assert_allclose(without_noise("dp_ls", NUMBERS, Square()), numbers, atol=2e-3)
    labels = np.linalg.lstsq(LINES, np.asarray(BINARY.y, float), rcond=None)[0]
    np.testing.assert_allclose(without_noise("dp_ls", BINARY, Square(), "binary"), labels, atol=5e-3)
    one_hot = np.eye(3)[np.asarray(CLASSES.y, int)]
    matrix = 3.0 * np.linalg.lstsq(LINES, one_hot - one_hot.mean(1, keepdims=True), rcond=None)[0]
    params = without_noise("dp_ls", CLASSES, Softmax(3)).reshape(D + 1, 3)
    # Centring moves what all classes share, so compare margins less their average.
    np.testing.assert_allclose(
        params - params.mean(1, keepdims=True), matrix - matrix.mean(1, keepdims=True), atol=0.03
    )
    assert np.mean((LINES @ params).argmax(1) == np.asarray(CLASSES.y)) > 0.7


def test_the_two_moments_of_dp_ls_are_bought_for_their_shares():
    protector = HAND_DESIGNED["dp_ls"](BUDGET).replace(logit_share=jnp.array([special.logit(0.2)], jnp.float32))
    result = l2p.private_train(NUMBERS, protector, BUDGET, model="square", key=jax.random.key(0))
    mean, second, cross = (1 / event.noise_multiplier**2 for event in result.card.answered())
    assert second / cross == pytest.approx(0.2 / 0.8, rel=1e-3)
    assert mean / (mean + second + cross) == pytest.approx(0.05, rel=0.1)


@pytest.mark.slow
def test_without_noise_boosted_adassp_is_least_squares_whatever_a_round_adds():
    numbers = np.linalg.lstsq(LINES, np.asarray(NUMBERS.y, float), rcond=None)[0]
    for name, shrinkage in (("a third", 0.3), ("nearly all", 0.99)):
        changes = {"logit_shrinkage": jnp.array([special.logit(shrinkage)], jnp.float32), "num_steps": 30}
        params = without_noise("boosted_adassp", NUMBERS, Square(), log_clip_norm=jnp.array([2.0]), **changes)
        np.testing.assert_allclose(params, numbers, atol=3e-3, err_msg=name)


@pytest.mark.long
def test_without_noise_dp_newton_finds_the_minimum_in_its_eight_steps_and_one_is_not_enough():
    wide = {"log_clip_norm": jnp.array([3.0])}
    gradient = lambda params: (special.expit(LINES @ params) - np.asarray(BINARY.y)) @ LINES / N  # noqa: E731
    assert np.abs(gradient(without_noise("dp_newton", BINARY, Logistic(), **wide))).max() < 1e-4
    assert np.abs(gradient(without_noise("dp_newton", BINARY, Logistic(), num_steps=1, **wide))).max() > 1e-3


def test_no_step_of_dp_newton_is_longer_than_its_limit():
    short = without_noise("dp_newton", BINARY, Logistic(), num_steps=1, log_max_step=jnp.array([math.log(0.1)]))
    centre = X.astype(float).mean(0)
    scale = 2.5 / math.sqrt((centre * (1 - centre)).sum() + 0.01)
    assert np.linalg.norm(short[:D] / scale) == pytest.approx(0.1, rel=0.3)  # the intercept moves, too
    assert np.linalg.norm(short[:D] / scale) <= 0.1 * 1.02  # the mean has some noise left, which the scale depends on


@pytest.mark.parametrize("radius", [0.1, 1.0, 4.0, 30.0])
def test_the_polynomial_of_pass_glm_is_chebyshevs(radius):
    nodes = np.cos((np.arange(4000) + 0.5) * np.pi / 4000)
    loss = np.logaddexp(0.0, radius * nodes)
    coefficients = chebyshev.cheb2poly(2.0 / 4000 * chebyshev.chebvander(nodes, 2).T @ loss * [0.5, 1, 1])
    assert float(curvature(jnp.float32(radius))) == pytest.approx(coefficients[2] / radius**2, rel=2e-3)


@pytest.mark.slow
def test_without_noise_pass_glm_minimises_its_polynomial():
    params = without_noise("pass_glm", BINARY, Logistic(), log_radius=jnp.array([math.log(2.0)]))
    bend = float(curvature(jnp.float32(2.0)))
    expected = np.linalg.solve(2 * bend * LINES.T @ LINES, LINES.T @ (np.asarray(BINARY.y, float) - 0.5))
    np.testing.assert_allclose(params, expected, atol=0.03)


def test_the_final_run_of_linear_scaling_moves_what_the_line_says_within_its_limits():
    protector = HAND_DESIGNED["linear_scaling"](BUDGET)
    prices = jnp.where(jnp.arange(130) < 80, 1.0, 1.8)  # the final run's mu is 3 times that of a trial of level 1
    for best, wanted in (((4.0, 7.0), 10.0), ((4.0, 9.0), 13.5), ((4.0, 3.0), 3.0)):
        assert float(protector._extrapolated(jnp.array(best), prices)) == pytest.approx(wanted, rel=1e-5)


@pytest.mark.slow
def test_trials_of_linear_scaling_are_paid_for_and_cost_their_share():
    result = l2p.private_train(BINARY, "linear_scaling", BUDGET, key=jax.random.key(0))
    queries = ("clipped_gradient", "clipped_loss")
    cost = np.array([[row.cost for row in result.trace if row.query == name] for name in queries])
    total = Filter("gdp", BUDGET).limit
    assert cost.sum() == pytest.approx(total, rel=1e-3)
    assert cost[:, :80].sum() == pytest.approx(0.2 * total, rel=1e-2)
    levels = cost[:, :80].reshape(2, 2, 40).sum((0, 2))
    assert levels[1] / levels[0] == pytest.approx(LEVEL_COST, rel=1e-2)
    assert (cost[1, :80] > 1e-4 * total).sum() == 8
    assert cost[1, 80:].sum() < 1e-3 * total


@pytest.mark.parametrize(
    ("name", "model", "instead"),
    [
        ("dp_newton", "square", "choose dp_ls or boosted_adassp"),
        ("dp_newton", "softmax:3", "choose dp_fc"),
        ("dp_newton", "mlp", "choose dp_fc"),
        ("dp_newton", "hinge", "choose model logistic or svm"),
        ("dp_ls", "logistic", "pass_glm"),
        ("pass_glm", "svm", "dp_ls"),
        ("boosted_adassp", "logistic", "dp_newton or dp_fc"),
        ("dp_fc", "quadratic", "choose noisygd"),
        ("noisygd_mean", "quadratic", "choose noisygd"),
        ("dpsgd_mean", "quadratic", "choose noisygd"),
    ],
)
def test_what_a_method_refuses_it_refuses_with_a_way_out(name, model, instead):
    with pytest.raises(InputError, match=instead):
        admit(name, BUDGET, find_model(model))
