"""Sensitivities against gradient descent itself, on all neighbours of small tables."""

import itertools
import math

import numpy as np
import pytest

from l2p.base.errors import InputError
from l2p.privacy.events import Adjacency
from l2p.privacy.sensitivity.sensitivity import gradient_descent

NUM_ROWS = 4
POSSIBLE = [(x, y) for x in ((1.0, 0.0), (-1.0, 0.0), (0.6, 0.8), (0.0, -1.0)) for y in (-1.0, 1.0)]


def logistic_gradient(w, row):
    """Gradient of ln(1 + exp(-y x.w)): at most ||x|| = 1, with a Hessian of at most 1 / 4."""
    if row is None:
        return np.zeros_like(w)
    x, y = np.array(row[0]), row[1]
    return -y * x / (1 + math.exp(y * x @ w))


def descend(table, step_sizes, penalty=0.0):
    w = np.zeros(2)
    for size in step_sizes:
        w = w - size * (sum(logistic_gradient(w, row) for row in table) / len(table) + penalty * w)
    return w


def neighbours(table, adjacency):
    for row in [None] if adjacency is Adjacency.ZERO_OUT else POSSIBLE:
        yield [row, *table[1:]]


SCHEDULES = {
    "constant": ([2.0] * 20, 0.0),
    "long steps": ([8.0] * 10, 0.0),
    "shrinking": ([4.0 / (1 + t) for t in range(15)], 0.0),
    "strongly convex": ([1.5] * 25, 0.3),
    "strongly convex, long steps": ([3.4] * 12, 0.3),
}


@pytest.mark.slow(cases=["constant-replace_one", "shrinking-replace_one", "strongly convex-replace_one"])
@pytest.mark.parametrize("adjacency", [Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE])
@pytest.mark.parametrize("name", SCHEDULES)
def test_no_neighbour_of_any_table_is_further_away(name, adjacency):
    step_sizes, penalty = SCHEDULES[name]
    bound = gradient_descent(1.0, 0.25 + penalty, step_sizes, NUM_ROWS, adjacency, strong_convexity=penalty)
    farthest = 0.0
    # The order of rows does not matter: every multiset of rows, with each of its rows changed.
    for first in POSSIBLE:
        for rest in itertools.islice(itertools.combinations_with_replacement(POSSIBLE, NUM_ROWS - 1), 0, None, 7):
            table = [first, *rest]
            result = descend(table, step_sizes, penalty)
            for neighbour in neighbours(table, adjacency):
                farthest = max(farthest, float(np.linalg.norm(result - descend(neighbour, step_sizes, penalty))))
    assert 0.01 * bound < farthest <= bound


@pytest.mark.parametrize("strong_convexity", [0.0, 0.2])
@pytest.mark.parametrize("size", [0.5, 1.9])
def test_tight_for_a_linear_loss_with_a_quadratic_regulariser(strong_convexity, size):
    # l(w, z) = z w with |z| <= 1 and r(w) = gamma w^2 / 2, whose smoothness is gamma: the recursion is an equality.
    distance = 0.0
    for _ in range(30):
        distance = (1 - strong_convexity * size) * distance + 2 * size / 10
    smoothness = strong_convexity or 1.0
    bound = gradient_descent(1.0, smoothness, [size] * 30, 10, Adjacency.REPLACE_ONE, strong_convexity)
    assert bound == pytest.approx(distance, rel=1e-9)
    assert bound >= distance


def test_tight_where_a_step_overshoots():
    # r(w) = beta w^2 / 2 in one coordinate and gamma w^2 / 2 in another; and along the first, |1 - beta eta| is more.
    gamma, beta, size = 0.1, 1.0, 1.95
    one_step = 2 * size / 10
    bound = gradient_descent(1.0, beta, [size, size], 10, Adjacency.REPLACE_ONE, gamma)
    # The second step's new difference may point against the first's, stretched by 1 - beta eta < 0.
    assert bound == pytest.approx((beta * size - 1) * one_step + one_step)


def test_noise_for_a_nulled_row_is_half_of_that_for_a_replaced_one():
    args = (3.0, 0.5, [1.0, 2.0, 3.0], 100)
    assert gradient_descent(*args, Adjacency.ZERO_OUT) == pytest.approx(3.0 * 6.0 / 100)
    assert gradient_descent(*args, Adjacency.REPLACE_ONE) == pytest.approx(2 * 3.0 * 6.0 / 100)


def test_strongly_convex_never_exceeds_the_long_run():
    # Summed up to infinity: 2 L / (gamma N).
    bound = gradient_descent(1.0, 1.0, [0.7] * 10_000, 50, Adjacency.REPLACE_ONE, strong_convexity=0.05)
    assert bound == pytest.approx(2 / (0.05 * 50))


REFUSED = {
    "private N": ((1.0, 1.0, [1.0], 10, Adjacency.ADD_REMOVE), "add_remove"),
    "no rows": ((1.0, 1.0, [1.0], 0, Adjacency.ZERO_OUT), "number of rows"),
    "steps too long": ((1.0, 1.0, [1.0, 2.1], 10, Adjacency.ZERO_OUT), "exceeds 2 / beta"),
    "a step backwards": ((1.0, 1.0, [-1.0], 10, Adjacency.ZERO_OUT), "a step size is -1.0"),
    "a step that is no number": ((1.0, 1.0, [math.nan], 10, Adjacency.ZERO_OUT), "a step size is nan"),
    "unbounded gradients": ((math.inf, 1.0, [1.0], 10, Adjacency.ZERO_OUT), "Lipschitz constant"),
    "no smoothness": ((1.0, math.inf, [1.0], 10, Adjacency.ZERO_OUT), "smoothness"),
    "more convex than smooth": ((1.0, 1.0, [1.0], 10, Adjacency.ZERO_OUT, 2.0), "strong convexity"),
    "strong convexity that is no number": ((1.0, 1.0, [1.0], 10, Adjacency.ZERO_OUT, math.nan), "strong convexity"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_bound_is_refused(case):
    args, phrase = REFUSED[case]
    with pytest.raises(InputError, match=phrase):
        gradient_descent(*args)
