"""A filter that starts at the minimum of public rows, and knows how far private ones may be from there."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.base.errors import InputError
from l2p.models import MODELS, find_model
from l2p.models.base import INTERCEPT_COLUMN
from l2p.oracle.setup import Setup
from l2p.privacy import Budget
from l2p.privacy.cap.filter import Filter
from l2p.protectors import CurveScheduler, Stepwise
from l2p.protectors.with_public_rows.public_filter import PublicFilter, PublicTrust
from l2p.protectors.with_public_rows.public_prior import SCALES, _scale
from l2p.protectors.with_public_rows.warm_start import WarmStart
from l2p.queries.solve import most_likely
from l2p.run.run import Simulation, start
from l2p.task.rows import Rows
from tests.protectors.kalman_filters import curve, filter_of

D, LOGISTIC = 6, find_model("logistic")


#: Nothing is bought, and features count as equally long; steps are as long as curvature and noise allow.
FILTER = Stepwise(
    CurveScheduler(curve(0.0), curve(0.0), curve(0.0)),
    dataclasses.replace(
        filter_of(spread=1.0, certain=0.0, momentum=1.0, width=0.0),
        log_intercept=curve(0.0),
        log_steepest=curve(1.0),
        log_gradient_norm=curve(0.0),
        logit_return=curve(1.0),
    ),
    num_steps=60,
)


def table(num_rows, seed=0, slope=8.0, label_noise=0.0):
    """Two classes that differ along the first feature, most steeply, and a little along the second."""
    draw = np.random.default_rng(seed)
    x = draw.uniform(size=(num_rows, D)).astype(np.float32)
    logits = slope * (x[:, 0] - 0.5) + 0.3 * slope * (x[:, 1] - 0.5)
    y = (draw.uniform(size=num_rows) < 1 / (1 + np.exp(-logits))).astype(np.float32)
    return Rows(x, np.where(draw.uniform(size=num_rows) < label_noise, 1 - y, y), np.ones(num_rows, np.float32))


def rows_of(rows):
    return jax.tree.map(jnp.asarray, rows)


def setup_of(epsilon, num_rows):
    budget = Budget(epsilon, 1e-6)
    return Setup.create(LOGISTIC, budget.adjacency, Filter("gdp", budget).price_list(), num_rows)


jit_start = jax.jit(start)


def begun(private, public=None):
    """The run of the filter after its start, from public rows if there are any."""
    setup, noise = setup_of(1.0, len(private.y)), Simulation(jax.random.key(0))
    protector = FILTER if public is None else WarmStart(FILTER)
    return jit_start(protector, LOGISTIC.init(D), rows_of(private), setup, noise, public and rows_of(public))[0]


def loss(params):
    return float(np.mean(LOGISTIC.losses(jnp.asarray(params)[None, :], TEST.x, TEST.y)[0]))


TEST = table(4000, 9)


@pytest.mark.slow
def test_the_most_likely_params_of_least_squares_are_those_of_a_formula():
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(30, 3)).astype(np.float32), draw.normal(size=30).astype(np.float32)
    mask = (np.arange(30) < 20).astype(np.float32)
    begin, variance = np.array([0.5, 0.0, -0.5, 0.2], np.float32), np.array([1.0, 0.1, 10.0, 0.01], np.float32)
    solution = most_likely(MODELS["square"], jnp.asarray(begin), jnp.asarray(variance), Rows(x, y, mask))
    lines = np.column_stack([x, np.full(30, INTERCEPT_COLUMN)])[:20].astype(np.float64)
    # Losses are halves of squares.
    precision = lines.T @ lines + np.diag(1 / variance)
    expected = begin + np.linalg.solve(precision, lines.T @ (y[:20] - lines @ begin))
    np.testing.assert_allclose(solution, expected, atol=2e-3)


@pytest.mark.long
@pytest.mark.parametrize("name", ["logistic", "hinge", "svm", "softmax:3", "mlp"])
def test_the_most_likely_params_lie_between_start_and_minimum(name):
    model = find_model(name)
    rows, begin = rows_of(table(60)), find_model(name).init(D)
    params = most_likely(model, begin, jnp.full_like(begin, 1e-8), rows)
    np.testing.assert_allclose(params, begin, atol=1e-3)
    narrow, wide = (most_likely(model, begin, jnp.full_like(begin, variance), rows) for variance in (0.1, 1e3))
    losses = [float(model.losses(params[None, :], rows.x, rows.y)[0].mean()) for params in (begin, narrow, wide)]
    assert losses[2] < losses[1] - 0.01 < losses[0] - 0.05


@pytest.mark.long
def test_many_public_rows_are_followed_and_few_that_contradict_one_another_are_not():
    guess = jnp.full(D + 1, 1.0)

    def chosen(rows):
        return float(_scale(LOGISTIC, LOGISTIC.init(D), guess, rows_of(rows)))

    assert chosen(table(400)) >= 1.0
    assert chosen(table(12, label_noise=0.5, seed=3)) == pytest.approx(SCALES[0])
    # Null rows neither count nor are left out.
    rows = table(400)
    padded = jax.tree.map(lambda leaf: np.concatenate([leaf, leaf]), rows)
    padded = dataclasses.replace(padded, mask=np.concatenate([rows.mask, 0 * rows.mask]))
    assert chosen(padded) == chosen(rows)


@pytest.mark.long
def test_the_start_is_read_off_public_rows_alone_and_the_prior_is_narrower_the_more_there_are():
    few, many = table(40, 1), table(4000, 2)
    first, second = begun(table(300, 3), few), begun(table(300, 4), few)
    np.testing.assert_array_equal(first.params, second.params)
    np.testing.assert_array_equal(first.params, first.state.projector.start)
    plain = begun(table(300, 3))
    before, _ = FILTER.projector.at_start(plain.params, plain.state.observation, setup_of(1.0, 300))
    assert (first.state.observation.prior <= before).all()
    assert begun(table(300, 3), many).state.observation.prior.sum() < first.state.observation.prior.sum()
    assert loss(plain.params) > loss(first.params) > loss(begun(table(300, 3), many).params)


def test_a_filter_that_has_learned_to_start_from_public_rows_does_not_start_from_them_twice():
    trust = PublicTrust(*map(curve, (0.0, 0.0, -4.0, -4.0, 2.0)))
    learned = PublicFilter(FILTER.scheduler, FILTER.projector, trust=trust)
    with pytest.raises(InputError, match="name it without that variant"):
        WarmStart.of(learned, "mine:pretrained", pretrained=True, projected=False)
    assert WarmStart.of(learned, "mine:projected", pretrained=False, projected=True).inner is learned
