"""PNSGD's pass: its guarantee by the exact law of its end, its steps by brute force, its order, its refusals."""

import dataclasses
import functools
import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from l2p.base.errors import InputError
from l2p.models import INTERCEPT_COLUMN, Hinge, HuberSVM, Logistic, Square
from l2p.oracle import Oracle, Terms, reader_of
from l2p.oracle.setup import Setup
from l2p.privacy import Adjacency, Filter
from l2p.privacy.budget import Budget
from l2p.privacy.cap.spending import Spending
from l2p.protectors import HAND_DESIGNED
from l2p.queries import OnePass
from l2p.task.noise import KeyNoise, Noise
from l2p.task.rows import Rows

D = 2
NOISE = 1.7


def f32(value):
    return jnp.asarray(value, jnp.float32)


def rows_of(x, y, mask=None):
    return Rows(f32(np.reshape(x, (-1, D))), f32(y), f32(np.ones(len(y)) if mask is None else mask))


def some_rows(count, seed=0):
    random = np.random.default_rng(seed)
    return rows_of(random.random((count, D)), random.integers(0, 2, count))


def query(model=Square(), public=None, norm=0.9, radius=1.5, step=0.7, rows=4, start=(0.1, -0.2, 0.3)):  # noqa: B008
    public = some_rows(3, 5) if public is None else public
    return OnePass(model, f32(start), public, f32(norm), f32(radius), f32(step), f32(rows), f32(NOISE))


class Given(Noise):
    """Noise that a test chooses."""

    def __init__(self, values):
        self.values = values

    def standard(self, distribution, shape):
        assert distribution == "gaussian"
        return self.values.reshape(shape)

    def batch(self, sampler, num_rows, step):
        raise AssertionError("a pass reads all rows")


# ----------------------------------------------------------------------------------------------------------- guarantee
@functools.partial(jax.jit, static_argnames=("adjacency", "answer"))
def _true_mu(one_pass, table, neighbour, adjacency, answer):
    drawn = jnp.zeros((1 + one_pass.public.y.shape[0]) * one_pass.start.shape[0])

    def end(noise, rows):
        return answer(one_pass, rows, Given(noise), adjacency)

    moved = end(drawn, table) - end(drawn, neighbour)
    # Both runs make the same steps after the row in which they differ, so their covariances are the same.
    spread = jax.jacobian(end)(drawn, neighbour)
    return jnp.sqrt(moved @ jnp.linalg.solve(spread @ spread.T, moved))


def true_mu(one_pass, table, neighbour, adjacency, answer):
    """mu of the pass over two tables of one row, exact: without projection least squares is affine in the noise."""
    with jax.enable_x64(True):
        table, neighbour = (
            jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), rows) for rows in (table, neighbour)
        )
        return float(_true_mu(one_pass, table, neighbour, adjacency, answer))


def honest(one_pass, rows, noise, adjacency):
    return one_pass.answer(rows, noise, adjacency)


def last_step_without_noise(one_pass, rows, noise, adjacency):
    size = one_pass.start.shape[0]
    return one_pass.answer(rows, Given(noise.values.at[-size:].set(0.0)), adjacency)


def amplified_twice(one_pass, rows, noise, adjacency):
    return one_pass.answer(rows, Given(noise.values / math.sqrt(one_pass.num_last)), adjacency)


def sensitivity_of_zero_out(one_pass, rows, noise, adjacency):
    return one_pass.answer(rows, Given(noise.values / adjacency.sensitivity_factor), adjacency)


@dataclasses.dataclass(frozen=True)
class Affine(Square):
    """Least squares with the bound of its residual at zero, where these passes start; a later one need not hold it."""

    lipschitz: ClassVar[float] = 1.0


def worst_mu(adjacency, num_public, answer=honest):
    """The largest mu over neighbours, in units of the stated one; public rows are null in half of the cases."""
    random = np.random.default_rng(0)
    worst, null = 0.0, rows_of(np.zeros((1, D)), [0.0], [0.0])
    for index in range(6):
        public = some_rows(num_public, index)
        if index % 2:
            public = public.replace(mask=jnp.zeros(num_public))
        one_pass = query(Affine(), public, radius=1e3, rows=1, start=np.zeros(D + 1))
        x = 100 * random.random(D)
        table = rows_of(x, [1.0])
        others = [null] if adjacency is Adjacency.ZERO_OUT else [rows_of(-x, [1.0]), rows_of(x, [0.0])]
        worst = max([worst, *(true_mu(one_pass, table, neighbour, adjacency, answer) * NOISE for neighbour in others)])
    return worst


@pytest.mark.long(cases=["replace_one-*"])
@pytest.mark.slow(but=["replace_one-0"])
@pytest.mark.parametrize("num_public", [0, 1, 4])
@pytest.mark.parametrize("adjacency", [Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE])
def test_the_end_is_as_private_as_one_gaussian_query_and_not_much_more(adjacency, num_public):
    assert 0.95 < worst_mu(adjacency, num_public) <= 1.0


@pytest.mark.slow
@pytest.mark.parametrize("bug", [last_step_without_noise, amplified_twice, sensitivity_of_zero_out])
def test_planted_bugs_exceed_the_guarantee(bug):
    assert worst_mu(Adjacency.REPLACE_ONE, 4, bug) > 1.05


@pytest.mark.slow
def test_amplification_is_by_the_number_of_steps_after_a_row_and_none_without_public_rows():
    alone = query(public=some_rows(0))
    assert float(alone.bound) == pytest.approx(float(alone.eta * alone.lipschitz), rel=1e-4)
    for count in (1, 8):
        assert float(query(public=some_rows(count)).bound) == pytest.approx(
            float(alone.bound) / math.sqrt(count + 1), rel=1e-4
        )


# ---------------------------------------------------------------------------------------------------------- every step
MODELS = [Logistic(), HuberSVM(), Square()]


def steps_of(one_pass, points, line, label, eta):
    """One step without noise from each of f64[k, p]."""
    line = np.append(line, INTERCEPT_COLUMN)
    line = line * min(1.0, float(one_pass.norm_bound) / np.linalg.norm(line))
    residual = np.asarray(one_pass.model.residual(jnp.asarray(points @ line), jnp.full(len(points), label)))
    return points - eta * residual[:, None] * line


def widest(one_pass, eta):
    """(how much a step stretches a distance, how far one row moves a point over 2 eta L), the largest found."""
    random = np.random.default_rng(3)
    stretched, moved = 0.0, 0.0
    with jax.enable_x64(True):
        for _ in range(40):
            points = random.normal(size=(2, D + 1))
            points *= float(one_pass.radius) * random.random() / np.linalg.norm(points, axis=1, keepdims=True)
            points[1] = points[0] + (points[1] - points[0]) * 10 ** random.uniform(-3, 0)
            lines, labels = random.normal(size=(2, D)) * 10 ** random.uniform(-1, 2), random.integers(0, 2, 2)
            ends = steps_of(one_pass, points, lines[0], labels[0], eta)
            distance = np.linalg.norm(points[0] - points[1])
            stretched = max(stretched, np.linalg.norm(ends[0] - ends[1]) / distance)
            others = steps_of(one_pass, points, lines[1], labels[1], eta)
            most = 2 * eta * float(one_pass.lipschitz)
            moved = max(moved, np.linalg.norm(ends - others, axis=1).max() / most)
    return stretched, moved


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_no_step_stretches_a_distance_and_no_row_moves_a_point_further_than_is_stated(model):
    one_pass = query(model, step=2.0)
    stretched, moved = widest(one_pass, float(one_pass.eta))
    assert stretched <= 1 + 1e-9
    assert 0.3 < moved <= 1


def test_longer_steps_than_two_over_beta_would_stretch():
    one_pass = query(Square(), step=2.0)
    assert widest(one_pass, 1.3 * float(one_pass.eta))[0] > 1.05


# ------------------------------------------------------------------------------------------------------- order and end
def naive_pass(one_pass, rows, noises, adjacency):
    scale = float(one_pass.noise_multiplier) * float(one_pass.bound) * adjacency.sensitivity_factor
    radius, eta = float(one_pass.radius), float(one_pass.eta)

    def inside(point):
        return point * min(1.0, radius / max(np.linalg.norm(point), 1e-30))

    params, at = inside(np.asarray(one_pass.start, float)), 0
    for part in (rows, one_pass.public):  # public rows last
        for x, y, mask in zip(*(np.asarray(leaf, float) for leaf in (part.x, part.y, part.mask)), strict=True):
            line = np.append(x, INTERCEPT_COLUMN)
            line *= min(1.0, float(one_pass.norm_bound) / np.linalg.norm(line))
            gradient = mask * (special.expit(line @ params) - y) * line
            params = inside(params - eta * gradient + scale * noises[at])
            at += 1
    return params


@pytest.mark.slow
def test_it_goes_once_over_private_rows_in_their_order_and_then_over_public_ones():
    rows = some_rows(4).replace(mask=f32([1, 0, 1, 1]))
    one_pass = query(Logistic(), step=1.9)
    noises = np.random.default_rng(1).normal(size=(7, D + 1))
    noise = Given(f32(noises))
    params = one_pass.answer(rows, noise, Adjacency.REPLACE_ONE)
    expected = naive_pass(one_pass, rows, noises, Adjacency.REPLACE_ONE)
    np.testing.assert_allclose(params, expected, atol=2e-6)
    swapped = one_pass.replace(public=jax.tree.map(lambda leaf: leaf[:3], rows))
    first = jax.tree.map(
        lambda *parts: jnp.concatenate(parts), one_pass.public, jax.tree.map(lambda leaf: leaf[3:], rows)
    )
    assert np.abs(swapped.answer(first, noise, Adjacency.REPLACE_ONE) - expected).max() > 1e-3


def test_it_stays_in_its_ball():
    one_pass = query(radius=0.4).replace(noise_multiplier=f32(50.0))
    ends = [one_pass.answer(some_rows(4), KeyNoise(jax.random.key(seed)), Adjacency.ZERO_OUT) for seed in range(5)]
    assert np.linalg.norm(ends, axis=1) == pytest.approx(0.4, rel=1e-4)


# ------------------------------------------------------------------------------------------------------------ protector
@pytest.mark.slow
def test_noise_of_least_squares_is_for_rows_as_long_as_public_ones():
    """Noise for the longest row in [0, 1]^d would be 70 times as much on 123 features of rows of length 1."""
    pnsgd = HAND_DESIGNED["pnsgd"](Budget(1.0, 1e-6), Square(), 100)
    setup = Setup.create(Square(), Adjacency.REPLACE_ONE, Filter("gdp", Budget(1.0, 1e-6)).price_list(), 100)
    ends = []
    for features in (2, 50):
        public = np.zeros((3, features), np.float32)
        public[:, 0] = 1.0, 0.5, 9.0
        rows = Rows(f32(public), f32([0, 1, 1]), f32([1, 1, 0]))  # the longest one is a null row
        oracle = Oracle(
            reader_of(rows),
            setup,
            Spending(f32(0.0), f32(1.0)),
            KeyNoise(jax.random.key(0)),
            jnp.zeros(()),
            Terms(rows),
        )
        ends.append(pnsgd.query(Square().init(features), oracle))
    norm = math.sqrt(1.0 + INTERCEPT_COLUMN**2)
    for end in ends:
        assert float(end.norm_bound) == pytest.approx(norm, rel=1e-5)
        assert float(end.lipschitz) == pytest.approx((2.0 * norm + 1.0) * norm, rel=1e-5)


# ------------------------------------------------------------------------------------------------------------ refusals
def test_added_rows_and_losses_that_are_not_smooth_are_refused():
    with pytest.raises(InputError, match="shift"):
        query().answer(some_rows(4), Given(jnp.zeros(21)), Adjacency.ADD_REMOVE)
    pnsgd = HAND_DESIGNED["pnsgd"](Budget(1.0, 1e-6))
    with pytest.raises(InputError, match="svm"):
        pnsgd.check_model(Hinge())
    for model in MODELS:
        pnsgd.check_model(model)
