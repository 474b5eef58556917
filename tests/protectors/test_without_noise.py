"""Every protector where its noise vanishes or its budget does: the method without privacy, or its public start."""

import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from scipy import special

from l2p.models import INTERCEPT_COLUMN, Square
from l2p.oracle.setup import Setup
from l2p.oracle.trace import trace_of
from l2p.privacy import Adjacency, Filter
from l2p.privacy.cost.sampling import FullBatch
from l2p.protectors import (
    AGD,
    HAND_DESIGNED,
    AutoClip,
    Centering,
    Decaying,
    MixProjector,
    PublicGeometry,
    Stepwise,
)
from l2p.protectors.by_hand.hyfree import _least_change
from l2p.run.run import Simulation
from tests.protectors.conformance import CASES
from tests.protectors.each_case import every_case
from tests.protectors.examples import (
    ADADP,
    ADAGRAD_LIKE,
    BUDGETS,
    EVEN,
    GREEDY,
    HYFREE,
    KEY,
    MIDDLE,
    OTHER_ROWS,
    ROWS,
    STEPS,
    TARGETS,
    ZERO,
    D,
    N,
    f32,
    logs,
    sgd,
)
from tests.protectors.runs import grid, jit_advance, jit_start, pick, run, setup, setup_of


def unlimited(accountant):
    """A budget so large that its noise, about 1e-6 on a mean gradient, is below the tolerance of the limits."""
    here = setup(accountant)
    return here.replace(price_list=here.price_list.replace(budget=f32(1e12)), cap=f32(1e12))


def naive_gradient(params, lines, y):
    return (special.expit(lines @ params) - y) @ lines / len(y)


def naive_lines(center=0.0, scale=1.0):
    return np.c_[(np.asarray(ROWS.x, float) - center) * scale, np.full(N, INTERCEPT_COLUMN)]


LABELS = np.asarray(ROWS.y, float)


def plain_descent(rate, momentum=0.0, lines=None):
    lines, params, trace = naive_lines() if lines is None else lines, np.zeros(D + 1), np.zeros(D + 1)
    for _ in range(STEPS):
        trace = momentum * trace + naive_gradient(params, lines, LABELS)
        params = params - rate * trace
    return params


def plain_automatic(rate, stability):
    lines, params = naive_lines(), np.zeros(D + 1)
    for _ in range(STEPS):
        gradients = (special.expit(lines @ params) - LABELS)[:, None] * lines
        gradients /= np.linalg.norm(gradients, axis=1, keepdims=True) + stability
        params = params - rate * gradients.mean(0)
    return params


def plain_adadp(rate, tolerance):
    lines, params, rates = naive_lines(), np.zeros(D + 1), [rate]
    for _ in range(STEPS):
        gradient = naive_gradient(params, lines, LABELS)
        full, middle = params - rate * gradient, params - rate / 2 * gradient
        half = middle - rate / 2 * naive_gradient(middle, lines, LABELS)
        error = np.linalg.norm((full - half) / np.maximum(1.0, np.abs(full)))
        params = half if error <= tolerance else params
        rate *= min(max(math.sqrt(tolerance / error), 0.9), 1.1)
        rates.append(rate)
    return params, rates


def plain_adam():
    params, mean, square = np.zeros(D + 1), np.zeros(D + 1), np.zeros(D + 1)
    for step in range(1, STEPS + 1):
        gradient = naive_gradient(params, naive_lines(), LABELS)
        mean, square = 0.8 * mean + 0.2 * gradient, 0.999 * square + 0.001 * gradient**2
        params = params - 0.2 * mean / (1 - 0.8**step) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
    return params


def plain_agd():
    """Exact line search along the normalised gradient, in AGD's own window of ten moves."""
    params, most, largest, moves = np.zeros(D + 1), 2.0, 0.0, 0
    lines = naive_lines()
    for _ in range(STEPS):
        gradient = naive_gradient(params, lines, LABELS)
        direction = gradient / np.linalg.norm(gradient) + 0.01 * params
        sizes = most * np.arange(21) / 20
        margins = lines @ (params - np.outer(sizes, direction)).T
        best = np.argmin((np.logaddexp(0, margins) - LABELS[:, None] * margins).sum(0))
        params = params - sizes[best] * direction
        if best:
            moves, largest = moves + 1, max(largest, sizes[best])
            if moves % 10 == 0:
                most, largest = min(1.1 * largest, 2.0), 0.0
    return params


def plain_centred():
    center = np.asarray(ROWS.x, float).mean(0)
    scale = 1.5 / math.sqrt((center * (1 - center)).sum() + 0.01)
    mapped = plain_descent(math.exp(0.5), lines=naive_lines(center, scale))
    weights = mapped[:D] * scale
    return np.append(weights, mapped[D] - weights @ center / INTERCEPT_COLUMN)


WIDE = Decaying(jnp.log(f32([30.0])), f32([0.0]))
LIMITS = {
    "gradient descent": (Stepwise(WIDE, sgd(2.0, 0.0)), lambda: plain_descent(2.0)),
    "momentum": (Stepwise(WIDE, sgd(1.0, 0.5)), lambda: plain_descent(1.0, 0.5)),
    "sgd_adv": (
        HAND_DESIGNED["sgd_adv"](BUDGETS[0], num_rows=N).replace(scheduler=WIDE, sampler=FullBatch()),
        lambda: plain_descent(0.1),
    ),
    "adam": (Stepwise(WIDE, ADAGRAD_LIKE), plain_adam),
    "adadp": (
        ADADP.replace(**logs(clip_norm=30.0, learning_rate=5.5, tolerance=0.22)),
        lambda: plain_adadp(5.5, 0.22)[0],
    ),
    "automatic clipping": (
        AutoClip(EVEN, sgd(0.5, 0.0), **logs(stability=0.01)),
        lambda: plain_automatic(0.5, 0.01),
    ),
    "automatic clipping, large constant": (
        AutoClip(EVEN, sgd(6e3, 0.0), **logs(stability=3e3)),
        lambda: plain_descent(2.0),
    ),
    "agd": (
        GREEDY.replace(
            **logs(gradient_clip=30.0, loss_clip=30.0, gradient_share=1e-2, selection_share=1e-2, max_step=2.0)
        ),
        plain_agd,
    ),
    "centred mixture": (
        Stepwise(
            WIDE,
            MixProjector(f32([[0.5, 0.0]]), f32([[60.0, 0, 0, 0, 0]])),
            (Centering(f32([0.0]), f32(-1.2), f32(5.0), f32(1.5)),),
        ),
        plain_centred,
    ),
}


@pytest.mark.parametrize("limit_name", LIMITS)
def test_with_a_huge_budget_and_clip_norm_it_is_the_method_without_privacy(limit_name):
    protector, reference = LIMITS[limit_name]
    accountant = "rdp" if isinstance(protector, AGD) else "gdp"
    params, ended, _, _ = jax.jit(run)(protector.replace(num_steps=STEPS), ZERO, ROWS, unlimited(accountant), KEY)
    assert int(ended.step) == STEPS
    np.testing.assert_allclose(params, reference(), rtol=3e-4, atol=2e-4)
    assert np.abs(params).max() > 0.1


def test_the_reference_of_adadp_changes_its_rate_by_less_than_the_most():
    _, rates = plain_adadp(5.5, 0.22)
    assert 1.005 < rates[1] / rates[0] < 1.02 < rates[2] / rates[1]


@pytest.mark.parametrize(("tolerance", "change", "moves"), [(1e9, 1.1, True), (1e-9, 0.9, False)])
def test_adadp_without_error_takes_larger_steps_and_with_nothing_but_error_none(tolerance, change, moves):
    protector = ADADP.replace(**logs(tolerance=tolerance), num_steps=STEPS)
    params, ended, _, _ = jax.jit(run)(protector, ZERO, ROWS, unlimited("gdp"), KEY)
    np.testing.assert_allclose(ended.state.log_rate, math.log(0.4) + STEPS * math.log(change), rtol=1e-5)
    assert np.any(params != 0) == moves


def test_adadp_pays_for_both_gradients_alike():
    _, _, (_, (first, second)), _ = pick(grid("adadp"), MIDDLE, 0)
    np.testing.assert_allclose(first.cost, second.cost, rtol=1e-5)
    np.testing.assert_allclose(first.noise_multiplier, first.noise_multiplier[0], rtol=1e-4)
    assert float(first.cost.sum()) == pytest.approx(float(setup_of(CASES["adadp"]).price_list.budget) / 2, rel=1e-3)


@pytest.mark.slow(but=["0.5-*"])
@pytest.mark.parametrize(("first", "factor"), [(0.5, None), (3.0, None), (0.01, 4.0), (300.0, 0.25)])
def test_hyfree_without_noise_takes_the_step_of_an_exact_line_search_or_goes_as_far_towards_it_as_it_may(first, factor):
    protector = HYFREE.replace(**logs(learning_rate=first, loss_clip=3e4), interval=1, num_steps=1)
    here = Setup.create(Square(), Adjacency.ZERO_OUT, Filter("gdp", BUDGETS[0]).price_list(), N)
    here = here.replace(price_list=here.price_list.replace(budget=f32(1e15)), cap=f32(1e15))
    params, ended, _, _ = jax.jit(run)(protector, ZERO, ROWS, here, KEY)
    lines = naive_lines()
    gradients = -LABELS[:, None] * lines
    direction = (gradients / (np.linalg.norm(gradients, axis=1, keepdims=True) + 0.1)).mean(0)
    best = gradients.mean(0) @ direction / np.mean(np.square(lines @ direction))
    assert 0.75 < best < 2.0  # within a factor of 4 of the first two rates
    rate = best if factor is None else first * factor
    np.testing.assert_allclose(math.exp(ended.state.log_rate), rate, rtol=3e-3)
    np.testing.assert_allclose(params, -rate * direction, rtol=4e-3, atol=1e-4)


def test_hyfree_probes_cost_their_share_and_its_other_queries_the_rest_alike():
    _, _, (_, (first, probe, second)), _ = pick(grid("hyfree"), MIDDLE, 0)
    budget = float(setup_of(CASES["hyfree"]).price_list.budget)
    assert float(probe.cost.sum()) == pytest.approx(special.expit(1.0) * budget, rel=1e-3)
    np.testing.assert_allclose(first.cost, second.cost, rtol=1e-4)
    np.testing.assert_allclose(probe.cost, probe.cost[0], rtol=1e-3)


@pytest.mark.slow
def test_hyfree_changes_its_rate_by_what_a_probe_proves_and_not_by_its_noise():
    rng = np.random.default_rng(0)
    before, here, after = rng.normal(size=(3, 20_000))
    for doubt, low, high in ((2.0, 0.0, 0.05), (0.0, 0.7, 1.1)):
        change = _least_change(before - after, 2**0.5 * doubt, 2 * (before - 2 * here + after), 24**0.5 * doubt)
        assert low <= np.mean(np.asarray(change) != 0) < high
    # An accurate slope and a curvature dominated by noise: the rate may still rise.
    assert float(_least_change(f32(1.0), f32(0.1), f32(-0.05), f32(0.2))) == pytest.approx(math.log(4.0))
    assert float(_least_change(f32(0.9), f32(0.1), f32(0.2), f32(0.2))) == pytest.approx(math.log(2.0), rel=1e-5)
    assert float(_least_change(f32(0.3), f32(0.1), f32(1.0), f32(0.2))) == pytest.approx(math.log(0.5), rel=1e-5)
    assert float(_least_change(f32(-0.3), f32(0.1), f32(1.0), f32(0.2))) == pytest.approx(-math.log(4.0))
    for point in ((0.9, 0.1, 0.2, 0.2), (0.3, 0.1, 1.0, 0.2)):  # the accuracy of a probe has a derivative, too
        check_grads(_least_change, tuple(map(f32, point)), order=1, modes=["rev"], rtol=2e-2)
        assert np.all(np.asarray(jax.grad(_least_change, (0, 1, 2, 3))(*map(f32, point))) != 0)


@pytest.mark.slow
def test_hyfrees_loss_bound_stays_within_what_the_oracle_takes():
    """A run above this bound would end, at a step that depends on the losses, which are charged as separate queries."""
    protector = HYFREE.replace(**logs(loss_clip=2.0**41, loss_ratio=1e13), interval=1, num_steps=3)
    _, ended, _, _ = jax.jit(run)(protector, ZERO, ROWS, unlimited("gdp"), KEY)
    assert bool(ended.alive)
    assert float(ended.state.log_loss_clip) == pytest.approx(40 * math.log(2))


def test_the_averaged_iterate_is_their_mean_until_the_horizon():
    protector = Stepwise(WIDE, sgd(2.0, 0.0), averaging=f32([-20.0]), num_steps=STEPS)
    params, _, _, _ = jax.jit(run)(protector, ZERO, ROWS, unlimited("gdp"), KEY)
    iterates, current = [], np.zeros(D + 1)
    for _ in range(STEPS):
        current = current - 2.0 * naive_gradient(current, naive_lines(), LABELS)
        iterates.append(current)
    np.testing.assert_allclose(params, np.mean(iterates, 0), atol=1e-5)


def public_start(case, here, params):
    """The public start for raw rows: the given one, or what public rows make of it beside other private rows."""
    if not case.protector.needs_public:
        return params
    begun, _ = jit_start(case.protector, params, OTHER_ROWS, here, Simulation(jax.random.key(99)))
    return case.protector.finish(begun.params, begun.state, here)


@every_case("no budget")
def test_without_a_budget_only_the_public_start_is_released(name):
    case = CASES[name]
    here = setup_of(case, cap=f32(0.0))
    begun, first = jit_start(case.protector, ZERO, ROWS, here, Simulation(KEY))
    ended, records, _ = jit_advance(case.protector, begun, ROWS, here, Simulation(KEY), num_steps=STEPS)
    assert np.array_equal(case.protector.finish(ended.params, ended.state, here), public_start(case, here, ZERO))
    assert trace_of(first, [records]) == []
    assert float(ended.spending.spent) == 0


@every_case("no steps")
def test_without_steps_only_the_public_start_is_released(name):
    case = CASES[name]
    # Rows that are mapped have their weights mapped back, which is exact for none: and what lies outside public
    # directions is lost.
    directions = isinstance(case.protector, Stepwise) and case.protector.purchase(PublicGeometry) is not None
    mapped = case.first or directions
    here, start_params = setup_of(case), ZERO if mapped else ZERO + 0.3
    begun, _ = jit_start(case.protector, start_params, ROWS, here, Simulation(KEY))
    ended, _, _ = jit_advance(case.protector, begun, ROWS, here, Simulation(KEY), num_steps=0)
    chex.assert_trees_all_equal(begun, ended)
    released = np.asarray(case.protector.finish(ended.params, ended.state, here))
    expected = np.array(public_start(case, here, start_params))
    if TARGETS in case.first:  # its start is private, and paid for: the intercept, and nothing else
        assert float(begun.spending.spent) > 0
        assert released[-1] != expected[-1]
        expected[-1] = released[-1]
    assert np.array_equal(released, expected)


def test_the_non_private_protector_needs_an_unlimited_budget_and_then_finds_the_minimum():
    protector = HAND_DESIGNED["nonprivate"](BUDGETS[0])
    params, ended, _, _ = jax.jit(run)(protector, ZERO, ROWS, unlimited("gdp"), KEY)
    assert np.array_equal(params, ZERO)
    assert not bool(ended.alive)
    params, ended, (_, records), _ = jax.jit(run)(protector, ZERO, ROWS, setup("gdp", cap=f32(math.inf)), KEY)
    assert records[0].mechanism == "none"
    assert np.abs(naive_gradient(np.asarray(params, float), naive_lines(), LABELS)).max() < 2e-5
    assert np.abs(params).max() > 1


def test_without_features_the_minimum_is_the_log_odds_of_the_classes():
    protector = HAND_DESIGNED["no_features"](BUDGETS[0])
    params, _, _, _ = jax.jit(run)(protector, ZERO, ROWS, setup("gdp", cap=f32(math.inf)), KEY)
    share = (LABELS == 1).mean()
    np.testing.assert_allclose(INTERCEPT_COLUMN * params[-1], math.log(share / (1 - share)), atol=1e-3)
    assert abs(share - 0.5) > 0.02  # the start predicts even classes
    assert np.array_equal(params[:-1], ZERO[:-1])
