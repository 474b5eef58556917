"""Every query against one table of properties: its value, its sensitivity and its feature map."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from l2p.privacy import Adjacency
from l2p.queries import (
    BinCounts,
    CorrectCount,
    CrossMoment,
    NormalizedGradient,
    SecondMoment,
    TargetSum,
)
from l2p.queries.selection import Selection
from l2p.task.exact_sums import MARGIN
from l2p.task.feature_map import FeatureMap
from l2p.task.rows import Rows
from l2p.task.table import ByFeature
from tests.queries.conformance import (
    ADDITIVE,
    ADJACENCIES,
    CANDIDATES,
    CLIP,
    MAP,
    MODEL,
    PAD,
    PARAMS,
    QUERIES,
    D,
    N,
    NoNoise,
    aggregate,
    check_sensitivity,
    exact,
    f32,
    gradient,
    in_units,
    naive,
    neighbours,
    normalized,
    readable,
    stacked,
    stacked_exact,
    table,
)


@pytest.mark.long(
    cases=["gradient, tensor by tensor", "scaled gradient", "normalized gradient", "line search, *", "minimum, gumbel"]
)
@pytest.mark.slow(but=["feature sum", "clipped loss", "cross moment, two classes", "line search, gumbel"])
@ADDITIVE
def test_clean_value_is_that_of_naive_float64_loops(query):
    rows = table()
    total, answer = naive(query, rows)
    fast = aggregate(query, rows)
    np.testing.assert_allclose(fast, total, atol=2e-6 * N, rtol=0)
    np.testing.assert_allclose(query.release(fast, NoNoise(), Adjacency.ZERO_OUT), answer, atol=2e-6 * N, rtol=0)
    steps, unit = exact(query, rows)
    # Features are rounded to 2^-21, coefficients to a few parts in 2^20 of the bound.
    np.testing.assert_allclose(steps * unit, total, atol=N * 4e-6, rtol=0)


@pytest.mark.slow(but=["clipped loss", "class counts", "bin counts", "line search, gumbel", "hessian, svm"])
@ADDITIVE
def test_rows_that_lie_feature_by_feature_have_the_same_sum(query):
    rows = table()
    turned = rows.replace(x=ByFeature.of(rows.x))
    np.testing.assert_allclose(aggregate(query, turned), aggregate(query, rows), atol=2e-6 * N, rtol=0)


@pytest.mark.long(
    cases=[
        "gradient, tensor by tensor",
        "minimum, gumbel",
        "scaled gradient",
        "line search, *",
        "normalized gradient",
        "hessian",
    ]
)
@pytest.mark.slow(
    but=["feature sum", "correct count", "bin counts", "target sum", "class counts", "row_length", "hessian, svm"]
)
@ADDITIVE
def test_some_rows_of_the_reference_table_are_limited_and_some_are_not(query):
    if isinstance(query, (CorrectCount, BinCounts, TargetSum)):
        pytest.skip("a row is right or wrong, a cell or a target in its range or in none: there is nothing to limit")
    rows = table()
    if isinstance(query, CrossMoment):  # it shrinks the row before the label makes it shorter
        query = SecondMoment(D, query.norm_bound, query.noise_multiplier)
    raw, limited = query.contributions(rows), query.limit(query.contributions(rows))
    changed = np.abs(np.asarray(raw - limited)).max(-1)[:N] > 1e-4
    # Normalising touches every row; it makes some of them longer and others shorter.
    longer = np.square(limited).sum(-1)[:N] > np.square(raw).sum(-1)[:N]
    assert 0 < (longer if isinstance(query, NormalizedGradient) else changed).sum() < N


@pytest.mark.slow(
    cases=["gradient", "normalized gradient", "gradient norm", "second moment", "covariance", "line search, gumbel"]
)
@ADDITIVE
def test_fast_sum_is_the_readable_sum(query):
    for seed in range(3):
        np.testing.assert_allclose(aggregate(query, table(seed)), readable(query, table(seed)), atol=1e-6 * N, rtol=0)


@pytest.mark.slow(but=["minimum, gumbel"])
@pytest.mark.parametrize("kind", ["gradient", "feature sum", "minimum, gumbel"])
@settings(max_examples=15)
@given(data=st.data())
def test_aggregate_of_blocks_is_the_aggregate_of_the_whole(kind, data):
    query, rows = QUERIES[kind], table()
    order = np.array(data.draw(st.permutations(range(N + PAD))))
    blocks = np.array(data.draw(st.lists(st.integers(0, 3), min_size=N + PAD, max_size=N + PAD)))
    total = query.empty()
    for block in range(4):  # a row belongs to one block and is padding in the others
        here = Rows(rows.x[order], rows.y[order], rows.mask[order] * f32(blocks == block))
        total = total + aggregate(query, here)
    np.testing.assert_allclose(total, aggregate(query, rows), atol=1e-6 * N, rtol=0)


# -------------------------------------------------------------------------------------------------------- sensitivity
@pytest.mark.slow(
    cases=["gradient-zero_out", "second moment, mapped-*", "cross moment, two classes-*", "hessian*", "line*gumbel-*"]
)
@ADJACENCIES
@ADDITIVE
def test_no_neighbour_moves_the_float32_sum_by_more_than_the_bound(query, adjacency):
    sums = np.asarray(stacked()(query, neighbours(adjacency)), np.float64)
    assert np.isfinite(sums).all()
    bound = float(query.bound)
    # A row that adds hardly anything may round a sum up or down.
    rounding = float(np.spacing(np.float32(N * bound)))
    worst = check_sensitivity(query, sums[1:] - sums[0], bound * (1 + 2e-5), adjacency, rounding)
    assert worst > 0.9 * bound  # the bound is nearly reached, so the test is not vacuous


@pytest.mark.slow(
    but=["*-add_remove", "least eigenvalue-*", "*exponential-*", "second moment-zero_out", "gradient norm-zero_out"]
)
@ADJACENCIES
@ADDITIVE
def test_no_neighbour_moves_the_exact_sum_by_more_than_the_bound_and_its_margin(query, adjacency):
    with jax.enable_x64(True):
        steps, unit = in_units(stacked_exact()(query, neighbours(adjacency)))
    assert (unit == unit[0]).all()  # public, hence the same for all neighbours
    bound = float(query.bound)
    # Losses are never above their bound, in whole units; sums have the margin that their noise is widened by.
    selects = isinstance(query, Selection)
    worst = check_sensitivity(
        query, (steps[1:] - steps[0]) * unit[0], bound * (1 if selects else 1 + MARGIN), adjacency
    )
    assert worst > 0.9 * bound


@pytest.mark.slow(but=["least eigenvalue", "line search, exponential"])
@ADDITIVE
def test_every_exact_contribution_is_within_the_bound_for_random_rows(query):
    random = np.random.default_rng(5)
    x = random.normal(size=(400, D)) * np.exp(random.uniform(-8, 8, (400, 1)))
    rows = Rows(f32(x), f32(np.ones(400)), f32(np.ones(400)))
    with jax.enable_x64(True):
        steps, unit = in_units(stacked_exact()(query, jax.tree.map(lambda leaf: leaf[:, None], rows)))
    if isinstance(query, Selection):
        assert steps.min() >= 0
        assert 0.999 * 2**20 < steps.max() <= 2**20
    else:
        lengths = np.sqrt(np.square(steps * unit).sum(1))
        # Gradients of rows in [0, 1] are never so large that the stability constant is negligible.
        reached = 0.9 if isinstance(query, NormalizedGradient) else 0.999
        assert reached * float(query.bound) < lengths.max() <= float(query.bound) * (1 + MARGIN)


@pytest.mark.long
def test_the_eigenvalue_that_is_released_moves_no_more_than_its_matrix():
    query = QUERIES["least eigenvalue"]
    for adjacency in Adjacency:
        with jax.enable_x64(True):
            totals = stacked_exact()(query, neighbours(adjacency)).value
            least = np.array([float(query.release(total, NoNoise(), adjacency)[0]) for total in totals])
        moved = np.abs(least - least[0]).max()
        # The same where a row is replaced: the norm of x x' - y y' is at most that of the longer of the two.
        assert 0.01 * 0.81 < moved <= 0.81


def test_the_norm_that_is_released_moves_no_more_than_its_gradient():
    query = QUERIES["gradient norm"]
    for adjacency in Adjacency:
        sums = stacked()(query, neighbours(adjacency))
        norms = np.array([float(query.release(total, NoNoise(), adjacency)[0]) for total in sums])
        moved = np.abs(norms - norms[0]).max()
        assert 0.5 * CLIP < moved <= float(query.bound) * adjacency.sensitivity_factor * (1 + 1e-5)


@pytest.mark.slow(but=["minimum, gumbel"])
@pytest.mark.parametrize("kind", ["gradient", "feature sum", "minimum, gumbel"])
def test_exact_sum_is_the_same_integer_in_any_order_and_any_parts(kind):
    query = QUERIES[kind]
    random = np.random.default_rng(3)
    count = 301
    rows = Rows(f32(random.random((count, D))), f32(random.random(count) < 0.5), f32(random.random(count) < 0.9))
    total, _ = exact(query, rows)
    for _ in range(5):
        order = random.permutation(count)
        steps, _ = exact(query, jax.tree.map(lambda leaf, order=order: leaf[order], rows))
        assert np.array_equal(steps, total)
        cut = int(random.integers(count))
        parts = [rows.replace(mask=rows.mask * f32(side)) for side in (np.arange(count) < cut, np.arange(count) >= cut)]
        assert np.array_equal(sum(exact(query, part)[0] for part in parts), total)


def test_a_large_stability_constant_makes_it_the_plain_gradient_sum():
    plain = aggregate(gradient(clip=1e6), table())
    for stability, error in ((1e2, 2e-2), (1e4, 2e-4)):  # the gradients here are up to 1.6 long
        scaled = aggregate(normalized(stability, clip=stability), table())
        np.testing.assert_allclose(scaled, plain, rtol=0, atol=error * float(np.abs(plain).max()))
    assert np.abs(aggregate(normalized(0.01), table()) - plain).max() > 0.1


def test_without_a_stability_constant_every_row_has_the_same_say():
    lengths = np.linalg.norm(normalized(0.0).limit(normalized(0.0).contributions(table())), axis=-1)
    np.testing.assert_allclose(lengths, CLIP, rtol=1e-5)


def test_float32_sums_depend_on_the_order_so_the_exact_test_has_teeth():
    random = np.random.default_rng(3)
    rows = Rows(f32(random.random((301, D))), f32(random.random(301) < 0.5), f32(np.ones(301)))
    orders = [random.permutation(301) for _ in range(8)]
    sums = {
        np.asarray(aggregate(gradient(), jax.tree.map(lambda leaf, order=order: leaf[order], rows))).tobytes()
        for order in orders
    }
    assert len(sums) > 1


# --------------------------------------------------------------------------------------------------------- feature map
def test_raw_margins_of_mapped_parameters_are_margins_on_mapped_rows():
    rows, features = table(), MAP
    for params, margin in ((f32(PARAMS), MODEL.margin), (f32(CANDIDATES), MODEL.margins)):
        mapped = margin(params, features.apply(rows.x))
        raw = margin(MODEL.params_for_raw_rows(params, features), rows.x)
        np.testing.assert_allclose(raw, mapped, atol=2e-5)
        assert np.abs(np.asarray(mapped - margin(params, rows.x))).max() > 0.1


def test_squared_norms_are_those_of_the_mapped_rows():
    x = table().x
    naive_norms = [sum(value * value for value in line) for line in np.asarray(MAP.apply(x), float)]
    np.testing.assert_allclose(MAP.squared_norms(x), naive_norms, atol=1e-5)
    assert float(MAP.squared_norms(MAP.center[None])[0]) == pytest.approx(0, abs=1e-5)
    assert np.all(np.asarray(MAP.squared_norms(MAP.center[None] + 1e-4 * x)) >= 0)


def test_identity_map_changes_nothing():
    x = table().x
    assert np.array_equal(FeatureMap.identity(D).apply(x), x)
    assert np.array_equal(MODEL.params_for_raw_rows(f32(PARAMS), FeatureMap.identity(D)), f32(PARAMS))
