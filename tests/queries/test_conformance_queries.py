"""Every query against one table of properties: its value, its sensitivity, its noise and its price."""

import dataclasses
import functools
import inspect
import itertools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.test_util import check_grads
from scipy import integrate, special, stats

from l2p.errors import InputError
from l2p.features import Basis, FeatureMap
from l2p.fixed_point import MARGIN, ExactSum, Whole
from l2p.models import INTERCEPT_COLUMN, Hinge, HuberSVM, Logistic, Quadratic, Square
from l2p.oracle import Oracle
from l2p.privacy import Adjacency, Budget, Filter, FullBatch, Spending, convert
from l2p.privacy.accountants import covering, of_fixed_noise
from l2p.privacy.noise import Draw, Entropy, HostNoise, KeyNoise, Noise
from l2p.privacy.passes import Passes
from l2p.protectors import HAND_DESIGNED
from l2p.protectors.agd import NUM_CANDIDATES
from l2p.protectors.private_meta import MetaDescent
from l2p.public_facts import Setup
from l2p.queries import (
    ApproximateMinimum,
    BinCounts,
    ClassMoment,
    ClippedGradient,
    ClippedLoss,
    CorrectCount,
    Covariance,
    CrossMoment,
    Descent,
    FeatureSum,
    FewestErrors,
    GradientNorm,
    HessianSum,
    LeastEigenvalue,
    LengthSum,
    Minimizer,
    NoisyLineSearch,
    NoisyMinimum,
    NoisyPasses,
    NormalizedGradient,
    OnePass,
    PassDescent,
    PerturbedMinimum,
    Query,
    SampledPasses,
    SecondMoment,
    TargetSum,
)
from l2p.queries.selection import Selection
from l2p.run import null_invalid
from l2p.sums import exact_sum
from l2p.task import Rows

D, N, PAD = 3, 14, 3
CLIP, NOISE = 0.4, 1.7
BUDGET = Budget(0.5, 1e-6)
MODEL = Logistic()
RANDOM = np.random.default_rng(20260101)
PARAMS = RANDOM.normal(size=D + 1)
MAP = FeatureMap(jnp.asarray(RANDOM.random(D), jnp.float32), jnp.float32(1.6))
FORWARD = np.eye(D)[::-1] + 0.2
TURNED = MAP.replace(basis=Basis(*(jnp.asarray(side, jnp.float32) for side in (FORWARD, np.linalg.inv(FORWARD)))))
CANDIDATES = PARAMS + RANDOM.normal(size=(5, D + 1))
#: Three points on a line, as in a line search: a bad row may be bad at all of them.
LINE = PARAMS * np.array([[0.8], [1.0], [1.2]])
#: At this level no false alarm is expected in the life of the project; every test has far more power.
LEVEL = 1e-6


def gradient(clip=CLIP, features=MAP):
    return ClippedGradient(MODEL, f32(PARAMS), features, f32(clip), f32(NOISE))


def normalized(stability, features=MAP, clip=CLIP):
    return NormalizedGradient(MODEL, f32(PARAMS), features, f32(clip), f32(stability), f32(NOISE))


def minimum(mechanism, candidates=CANDIDATES, clip=CLIP, noise=NOISE):
    return NoisyMinimum(MODEL, f32(candidates), f32(clip), f32(noise), mechanism)


def line_search(mechanism):
    # At the points of `LINE`, and one more.
    sizes = f32([-0.2, 0.0, 0.2, 0.4])
    return NoisyLineSearch(MODEL, f32(PARAMS), f32(-PARAMS), sizes, f32(CLIP), f32(NOISE), mechanism)


def losses(candidates=LINE, clip=0.6):
    return ClippedLoss(MODEL, f32(candidates), f32(clip), f32(NOISE))


def f32(value):
    return jnp.asarray(value, jnp.float32)


QUERIES = {
    "gradient": gradient(),
    "gradient, no map": gradient(features=FeatureMap.identity(D)),
    "normalized gradient": normalized(0.01),
    "normalized gradient, no map": normalized(0.05, FeatureMap.identity(D)),
    "gradient norm": GradientNorm(gradient(), f32(NOISE)),
    "feature sum": FeatureSum(D, f32(0.9), f32(NOISE)),
    "correct count": CorrectCount(MODEL, f32(PARAMS), f32(NOISE)),
    "bin counts": BinCounts(D, 255, f32(NOISE)),
    "clipped loss": losses(),
    "clipped loss, one candidate": losses(LINE[:1]),
    "second moment": SecondMoment(D, f32(0.9), f32(NOISE)),
    "second moment, mapped": SecondMoment(D, f32(0.9), f32(NOISE), TURNED),
    "covariance": Covariance(TURNED, f32(0.9), f32(NOISE)),
    "target sum": TargetSum(1, f32(NOISE)),
    "class counts": TargetSum(2, f32(NOISE)),
    "row_length": LengthSum(TURNED, f32(0.9), f32(NOISE)),
    "least eigenvalue": LeastEigenvalue(SecondMoment(D, f32(0.9), f32(NOISE)), f32(NOISE)),
    "cross moment": CrossMoment(D, f32(0.9), f32(NOISE)),
    "cross moment, two classes": CrossMoment(D, f32(0.9), f32(NOISE), signed=True),
    "class moment": ClassMoment(D, 2, f32(0.9), f32(NOISE)),
    "hessian": HessianSum(MODEL, f32(0.2 * PARAMS), f32(0.9), f32(NOISE)),
    "hessian, svm": HessianSum(HuberSVM(0.4), f32(0.2 * PARAMS), f32(0.9), f32(NOISE)),
    "minimum, gumbel": minimum("gumbel"),
    "minimum, exponential": minimum("exponential"),
    "line search, gumbel": line_search("gumbel"),
    "line search, exponential": line_search("exponential"),
}
ADDITIVE = pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
ADJACENCIES = pytest.mark.parametrize("adjacency", Adjacency)


class NoNoise(Noise):
    def standard(self, distribution, shape):
        return jnp.zeros(shape)

    def batch(self, sampler, num_rows, step):
        raise AssertionError("a query never draws its own rows")


def table(seed=0, count=N, pad=PAD):
    """Rows followed by null rows that hold garbage."""
    random = np.random.default_rng(seed)
    x = random.random((count + pad, D))
    y = (random.random(count + pad) < 0.5).astype(float)
    return Rows(f32(x), f32(y), f32(np.arange(count + pad) < count))


def as_float64(rows):
    return (np.asarray(leaf, np.float64) for leaf in (rows.x, rows.y, rows.mask))


# ------------------------------------------------------------------------------------------------ naive NumPy, float64
def clipped(vector, bound):
    norm = math.sqrt(sum(value * value for value in vector))
    return vector if norm <= bound else vector * (bound / norm)


def naive_gradient(query, rows):
    center, scale = np.asarray(query.features.center, float), float(query.features.scale)
    params = np.asarray(query.params, float)
    total = np.zeros(D + 1)
    for x, y, mask in zip(*as_float64(rows), strict=True):
        line = np.append((x - center) * scale, INTERCEPT_COLUMN)
        gradient = (special.expit(line @ params) - y) * line
        if isinstance(query, NormalizedGradient):
            total += mask * float(query.clip_norm) * gradient / (np.linalg.norm(gradient) + float(query.stability))
        else:
            total += mask * clipped(gradient, float(query.clip_norm))
    return total


def naive_losses(query, rows):
    if isinstance(query, NoisyLineSearch):
        params, direction, sizes = (np.asarray(part, float) for part in (query.params, query.direction, query.sizes))
        candidates = [params - size * direction for size in sizes]
    else:
        candidates = np.asarray(query.candidates, float)
    totals = np.zeros(len(candidates))
    for x, y, mask in zip(*as_float64(rows), strict=True):
        for index, params in enumerate(candidates):
            margin = np.append(x, INTERCEPT_COLUMN) @ params
            totals[index] += mask * min(np.logaddexp(0.0, margin) - y * margin, float(query.clip_norm))
    return totals


def naive_mapped(query, rows):
    """The rows that a query reads, with float64 features."""
    if getattr(query, "features", None) is None:
        return rows
    return rows.replace(x=(np.asarray(rows.x, float) - np.asarray(MAP.center, float)) * float(MAP.scale) @ FORWARD)


def naive_hessian(query, rows):
    params, most = np.asarray(query.params, float), float(query.bound)
    total = np.zeros((D + 1, D + 1))
    for x, y, mask in zip(*as_float64(rows), strict=True):
        line = np.append(x, INTERCEPT_COLUMN)
        margin = line @ params
        if isinstance(query.model, Logistic):
            curvature = special.expit(margin) * special.expit(-margin)
        else:
            curvature = 0.5 / max(abs(1 - (2 * y - 1) * margin), query.model.width)
        hessian = curvature * np.outer(line, line)
        total += mask * hessian * min(1.0, most / np.linalg.norm(hessian))
    return total


def naive_moments(norm_bound, rows, signed=False):
    """The second moment and the cross moment of shrunk rows, with unchanged targets or 0 and 1 read as -1 and 1."""
    second, cross = np.zeros((D + 1, D + 1)), np.zeros(D + 1)
    for x, y, mask in zip(*as_float64(rows), strict=True):
        line = clipped(np.append(x, INTERCEPT_COLUMN), float(norm_bound))
        target = 2 * y - 1 if signed else y
        second, cross = second + mask * np.outer(line, line), cross + mask * target * line
    return second, cross


def naive(query, rows):
    """(aggregate, answer without noise)"""
    if isinstance(query, ClassMoment):
        total = np.zeros((D + 1, 2))
        for x, y, mask in zip(*as_float64(rows), strict=True):
            total[:, int(y)] += mask * clipped(np.append(x, INTERCEPT_COLUMN), float(query.norm_bound))
        return total.ravel(), total.ravel()
    if isinstance(query, HessianSum):
        total = naive_hessian(query, rows)
        entries = [total[i, j] * (1 if i == j else math.sqrt(2)) for i in range(D + 1) for j in range(i, D + 1)]
        return entries, entries
    if isinstance(query, CrossMoment):
        cross = naive_moments(query.norm_bound, rows, query.signed)[1]
        return cross, cross
    if isinstance(query, (SecondMoment, LeastEigenvalue)):
        moment = query if isinstance(query, SecondMoment) else query.moment
        second = naive_moments(moment.norm_bound, naive_mapped(moment, rows))[0]
        entries = [(i, j) for i in range(D + 1) for j in range(i, D + 1)]
        total = np.array([second[i, j] * (1 if i == j else math.sqrt(2)) for i, j in entries])
        return total, total if moment is query else [np.linalg.eigvalsh(second)[0]]
    if isinstance(query, Covariance):
        total = np.zeros((D, D))
        for x, _, mask in zip(*as_float64(rows), strict=True):
            line = clipped((x - np.asarray(MAP.center, float)) * float(MAP.scale) @ FORWARD, float(query.norm_bound))
            total += mask * np.outer(line, line)
        entries = np.array([total[i, j] * (1 if i == j else math.sqrt(2)) for i in range(D) for j in range(i, D)])
        return entries, entries
    if isinstance(query, TargetSum):
        lines = zip(*as_float64(rows), strict=True)
        parts = [mask * np.array([1 - y, y] if query.num_classes == 2 else [y - 0.5]) for _, y, mask in lines]
        return sum(parts), sum(parts)
    if isinstance(query, LengthSum):
        total = 0.0
        for x, _, mask in zip(*as_float64(rows), strict=True):
            line = (x - np.asarray(MAP.center, float)) * float(MAP.scale) @ FORWARD
            total += mask * min(math.sqrt(line @ line), float(query.longest))
        return [total], [total]
    if isinstance(query, GradientNorm):
        total = naive_gradient(query.gradient, rows)
        return total, [math.sqrt(total @ total)]
    if isinstance(query, (ClippedGradient, NormalizedGradient)):
        total = naive_gradient(query, rows)
        return total, total
    if isinstance(query, FeatureSum):
        lines = zip(*as_float64(rows), strict=True)
        total = sum(mask * clipped(x, float(query.clip_norm)) for x, _, mask in lines)
        return total, total
    if isinstance(query, CorrectCount):
        lines = zip(*as_float64(rows), strict=True)
        params = np.asarray(query.params, float)
        right = [mask * ((np.append(x, INTERCEPT_COLUMN) @ params > 0) == y) for x, y, mask in lines]
        return [sum(right)], [sum(right)]
    if isinstance(query, BinCounts):
        counts = np.zeros((D, query.num_bins + 1))
        for x, _, mask in zip(*as_float64(rows), strict=True):
            for column, value in enumerate(x):
                counts[column, min(round(value * 256), query.num_bins)] += mask
        return counts[:, 1:].ravel(), counts[:, 1:].ravel()
    totals = naive_losses(query, rows)
    return totals, totals if isinstance(query, ClippedLoss) else int(np.argmin(totals))


@jax.jit
def aggregate(query, rows):
    return query.add(query.empty(), rows)


@jax.jit
def readable(query, rows):
    return query.empty() + rows.mask @ query.limit(query.contributions(rows))


_exact = jax.jit(exact_sum)


def exact(query, rows):
    """The aggregate that a release forms, in whole units i64[..., k], and the units f64[..., k]."""
    with jax.enable_x64(True):
        return in_units(_exact(query, rows))


def in_units(total):
    high, low = np.asarray(total.high), np.asarray(total.low)
    assert high.dtype == low.dtype == np.float64
    assert np.array_equal(high, np.rint(high))
    assert np.array_equal(low, np.rint(low))
    return high.astype(np.int64) * 2**32 + low.astype(np.int64), np.asarray(total.unit)


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


@ADDITIVE
def test_fast_sum_is_the_readable_sum(query):
    for seed in range(3):
        np.testing.assert_allclose(aggregate(query, table(seed)), readable(query, table(seed)), atol=1e-6 * N, rtol=0)


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
def hostile_rows():
    """(x, y) that a database may hold: not finite, too large to square in float32, and extreme."""
    huge = np.float32(3e38)
    xs = [
        np.full(D, np.nan), np.array([np.inf, 0, 0]), np.array([-np.inf, np.inf, 0]), np.full(D, huge),
        np.full(D, -huge), np.array([huge, -huge, huge]), np.full(D, 1e30), np.array([1e20, 0, -1e20]),
        np.full(D, 1e-38), np.zeros(D), np.ones(D), np.full(D, 50.0), np.full(D, -50.0),
    ]  # fmt: skip
    ys = [0.0, 1.0, np.nan, np.inf, 1e30, -3e38]
    pairs = [(x, y) for x in xs for y in (0.0, 1.0)] + [(np.full(D, 0.5), y) for y in ys]
    return [np.array(part, np.float32) for part in zip(*pairs, strict=True)]


@functools.cache
def neighbours(adjacency, base_seed=0):
    """All neighbours of a tiny table that has hostile rows: stacked Rows, the table itself first."""
    rows = table(base_seed, count=8, pad=1)
    x, y, mask = (np.array(leaf) for leaf in (rows.x, rows.y, rows.mask))
    bad_x, bad_y = hostile_rows()
    x[6], x[7] = np.nan, 3e38
    tables = [(x, y, mask)]
    for row in range(8):
        gone = np.where(np.arange(9) == row, 0, mask)
        if adjacency is Adjacency.ZERO_OUT:
            tables.append((x, y, gone))
        elif adjacency is Adjacency.ADD_REMOVE:  # the rows behind it move up
            keep = np.r_[np.delete(np.arange(9), row), row]
            tables.append((x[keep], y[keep], gone[keep]))
        else:
            for new_x, new_y in zip(bad_x, bad_y, strict=True):
                here = np.arange(9) == row
                tables.append((np.where(here[:, None], new_x, x), np.where(here, new_y, y), mask))
    if adjacency is not Adjacency.REPLACE_ONE:
        for new_x, new_y in zip(bad_x, bad_y, strict=True):  # seen from the neighbour, the row is the one added
            tables.append((np.r_[x[:8], new_x[None]], np.r_[y[:8], new_y], np.ones(9, np.float32)))
    return Rows(*(jnp.asarray(np.stack(leaf)) for leaf in zip(*tables, strict=True)))


@functools.cache
def stacked():
    def clean(query, rows):
        rows = null_invalid(rows)
        return query.add(query.empty(), rows)

    return jax.jit(jax.vmap(clean, (None, 0)))


@functools.cache
def stacked_exact():
    return jax.jit(lambda query, tables: jax.lax.map(lambda rows: exact_sum(query, null_invalid(rows)), tables))


def counts(query):
    return isinstance(query, BinCounts) or (isinstance(query, TargetSum) and query.num_classes > 1)


def check_sensitivity(query, differences, bound, adjacency, rounding=0.0):
    """Differences [tables, k] from the first table, under the norm that the query's noise is scaled to."""
    # Counts are never negative, so that a row in the place of another moves them less than twice as far.
    limit = bound * adjacency.sensitivity_factor ** (0.5 if counts(query) else 1)
    assert differences.dtype == np.float64
    one_sign = np.all((differences >= -rounding).all(1) | (differences <= rounding).all(1))
    if isinstance(query, Selection):
        # Selections need more than a bound per score: one sign (monotone), or a range of twice the bound.
        assert np.ptp(differences, axis=1).max() <= limit
        assert np.abs(differences).max() <= bound
        assert one_sign or adjacency is Adjacency.REPLACE_ONE
        return np.abs(differences).max()
    if isinstance(query, ClippedLoss):
        assert one_sign or adjacency is Adjacency.REPLACE_ONE  # monotone
    squares = (differences * differences).sum(1)
    assert squares.max() <= limit * limit
    return math.sqrt(squares.max())


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


@pytest.mark.parametrize("kind", ["gradient", "feature sum", "minimum, gumbel"])
def test_exact_sum_is_the_same_integer_in_any_order_and_any_parts(kind):
    query = QUERIES[kind]
    random = np.random.default_rng(3)
    count = 301
    rows = Rows(f32(random.random((count, D))), f32(random.random(count) < 0.5), f32(random.random(count) < 0.9))
    whole, _ = exact(query, rows)
    for _ in range(5):
        order = random.permutation(count)
        steps, _ = exact(query, jax.tree.map(lambda leaf, order=order: leaf[order], rows))
        assert np.array_equal(steps, whole)
        cut = int(random.integers(count))
        parts = [rows.replace(mask=rows.mask * f32(side)) for side in (np.arange(count) < cut, np.arange(count) >= cut)]
        assert np.array_equal(sum(exact(query, part)[0] for part in parts), whole)


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


# -------------------------------------------------------------------------------------------------------- noise scale
DISTRIBUTIONS = {"gaussian": stats.norm, "gumbel": stats.gumbel_r, "exponential": stats.expon}
DRAWS = 60_000


def scale_p_value(noise, scale, distribution):
    """p-value of "noise is `distribution` at `scale`"; chi-square where scale has one, Kolmogorov-Smirnov for Gumbel.

    With 60,000 draws a standard deviation estimate has a relative error of 0.3 % (Gaussian) or 0.4 % (exponential),
    so 5 % is over 12 of them; for Gumbel 5 % moves the distribution function by 0.018, 4.5 times 1/sqrt(60,000).
    """
    standard = np.asarray(noise, np.float64).ravel() / scale
    if distribution == "gumbel":
        return stats.kstest(standard, stats.gumbel_r.cdf).pvalue
    total, freedom = (
        ((standard**2).sum(), standard.size) if distribution == "gaussian" else (2 * standard.sum(), 2 * standard.size)
    )
    return 2 * min(stats.chi2.cdf(total, freedom), stats.chi2.sf(total, freedom))


def check_scale(noise, scale, distribution):
    assert scale_p_value(noise, scale, distribution) > LEVEL
    for wrong in (scale * 1.05, scale / 1.05):  # power: a 5 % error is seen
        assert scale_p_value(noise, wrong, distribution) < LEVEL


def host_noise(distribution, size, grid, seed=11):
    plan = [Draw(distribution, size)]
    (bits,) = Entropy(seed).draw(plan, 1)
    noise = HostNoise([jnp.asarray(bits[0])], plan)
    noise.grid = grid
    return noise


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_key_noise_has_the_scale_asked_for(distribution):
    added = KeyNoise(jax.random.key(1)).add(distribution, jnp.full(DRAWS, 3.0), f32(2.5))
    check_scale(np.asarray(added) - 3.0, 2.5, distribution)


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_host_noise_has_the_scale_asked_for_in_float64_and_sums_lie_on_the_grid(distribution):
    grid = 2.0**-20
    with jax.enable_x64(True):
        noise = host_noise(distribution, DRAWS, grid)
        added = np.asarray(noise.add(distribution, jnp.full(DRAWS, 3.0, jnp.float64), jnp.float32(2.5)))
    assert added.dtype == np.float64
    # Only the index of a selection is released, so its noised scores are not rounded.
    assert np.array_equal(added / grid, np.rint(added / grid)) == (distribution == "gaussian")
    check_scale(added - 3.0, 2.5, distribution)


@pytest.mark.parametrize(("distribution", "size"), [("gumbel", 8), ("gaussian", 7)])
def test_host_noise_drawn_for_something_else_is_refused(distribution, size):
    with jax.enable_x64(True), pytest.raises(RuntimeError, match="was planned"):
        host_noise("gaussian", 8, 2.0**-20).add(distribution, jnp.zeros(size, jnp.float64), jnp.float32(1.0))


def test_host_noise_is_what_the_host_drew_bit_for_bit():
    (bits,) = Entropy(4).draw([Draw("gaussian", 64)], 1)
    with jax.enable_x64(True):
        drawn, rounded = (HostNoise([jnp.asarray(bits[0])], [Draw("gaussian", 64)]) for _ in range(2))
        rounded.grid = 2.0**-20
        given = np.asarray(drawn.standard("gaussian", (64,)))
        added = np.asarray(rounded.add("gaussian", jnp.zeros(64, jnp.float64), jnp.float32(1.0)))
    drawn = bits[0].view(np.float64).ravel()
    assert np.array_equal(given, drawn)
    assert 2.0**-23 < np.abs(added - drawn).max() <= 2.0**-21
    assert np.any(drawn != drawn.astype(np.float32))


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_noise_on_an_exact_sum_has_the_scale_asked_for_and_hides_low_bits(scale):
    unit, high = 2.0**-40, 2.0**20  # a sum of 2^52 units, which many blocks of rows may reach
    with jax.enable_x64(True):
        total = ExactSum(*(jnp.full(DRAWS, value, jnp.float64) for value in (high, 1.0, unit)))
        noise = host_noise("gaussian", DRAWS, 0.0)
        added = np.asarray(noise.add("gaussian", total, jnp.float32(scale)))
    check_scale(added - (high * 2.0**32 + 1.0) * unit, scale, "gaussian")
    coarse = unit * 2.0 ** max(0, math.ceil(math.log2(scale / unit) - 20 + 1e-9))
    assert np.array_equal(added / coarse, np.rint(added / coarse))
    assert coarse == unit or coarse > scale * 2.0**-21


def test_exact_sums_of_any_number_of_blocks_lose_no_unit():
    most = 2.0**53
    with jax.enable_x64(True):
        total = ExactSum.empty(2)
        plus = jax.jit(lambda total, steps: total.plus(Whole(steps, jnp.ones(()))))
        for sign in (1, 1, 1, -1, 1, 1):
            total = plus(total, jnp.array([sign * most, sign * (most - 1)]))
        steps, _ = in_units(total)
    assert steps.tolist() == [4 * 2**53, 4 * (2**53 - 1)]


def test_noise_calls_are_independent_of_each_other_and_of_the_key():
    noise, other = KeyNoise(jax.random.key(1)), KeyNoise(jax.random.key(2))
    first, second, third = (
        np.asarray(source.add("gaussian", jnp.zeros(DRAWS), f32(1.0))) for source in (noise, noise, other)
    )
    for left, right in ((first, second), (first, third), (second, third)):
        # Under the null the correlation is normal with deviation 1/sqrt(n); five of them.
        assert abs(np.corrcoef(left, right)[0, 1]) < 5 / DRAWS**0.5
    assert np.corrcoef(first, first)[0, 1] > 0.99
    two = Entropy(3).draw([Draw("gaussian", 1000), Draw("gaussian", 1000)], 2)
    assert len({part.tobytes() for draw in two for part in draw}) == 4


def test_operating_system_entropy_never_repeats_and_only_it_is_private():
    plan_ = [Draw("gaussian", 4)]
    one, other = Entropy(), Entropy()
    assert one.is_private
    assert not Entropy(0).is_private
    assert not np.array_equal(one.draw(plan_, 1)[0], other.draw(plan_, 1)[0])
    assert np.array_equal(Entropy(0).draw(plan_, 1)[0], Entropy(0).draw(plan_, 1)[0])


def wide(query, size):
    """The same query over `size` coordinates, for many draws at once."""
    if isinstance(query, FeatureSum):
        return query.replace(num_features=size)
    if isinstance(query, BinCounts):
        return query.replace(num_columns=size, num_bins=1)
    if isinstance(query, TargetSum):
        return query.replace(num_classes=size)
    if isinstance(query, ClippedLoss):
        return query.replace(candidates=jnp.zeros((size, D + 1)))
    if isinstance(query, CrossMoment):
        return query.replace(num_features=size - 1)
    return query.replace(params=jnp.zeros(size))


@ADJACENCIES
@pytest.mark.parametrize(
    "kind",
    ["gradient", "normalized gradient", "feature sum", "clipped loss", "cross moment", "bin counts", "class counts"],
)
@pytest.mark.parametrize("source", ["key", "host"])
def test_vector_answers_carry_noise_multiplier_times_sensitivity(kind, source, adjacency):
    query = wide(QUERIES[kind], DRAWS)
    # A vector of clipped losses may move in all its entries at once.
    length = {"cross moment": "norm_bound", "bin counts": "noise_multiplier"}.get(kind, "clip_norm")
    bound = DRAWS**0.5 if kind == "bin counts" else 1.0 if kind == "class counts" else float(getattr(query, length))
    bound *= DRAWS**0.5 if kind == "clipped loss" else 1
    replaced = 2**0.5 if counts(query) else 2
    scale = NOISE * bound * (replaced if adjacency is Adjacency.REPLACE_ONE else 1)
    with jax.enable_x64(source == "host"):
        noise = KeyNoise(jax.random.key(7)) if source == "key" else host_noise("gaussian", DRAWS, bound * 2.0**-24)
        answer = query.release(query.empty(), noise, adjacency)
    check_scale(answer, scale, "gaussian")


@ADJACENCIES
def test_gradient_norm_carries_noise_multiplier_times_sensitivity(adjacency):
    query = QUERIES["gradient norm"]
    total = jnp.array([3.0, 0.0, 4.0, 0.0])
    release = jax.jit(jax.vmap(lambda key: query.release(total, KeyNoise(key), adjacency)))
    noise = np.asarray(release(jax.random.split(jax.random.key(8), DRAWS))) - 5.0
    check_scale(noise, NOISE * CLIP * (2 if adjacency is Adjacency.REPLACE_ONE else 1), "gaussian")


# -------------------------------------------------------------------------------------------------------------- price
@ADDITIVE
@pytest.mark.parametrize("noise", [0.3, 1.7, 1234.5])
def test_event_prices_the_noise_as_in_float64(query, noise):
    event = query.replace(noise_multiplier=f32(noise)).event()
    mechanism = event.mechanism
    assert mechanism == (query.mechanism if isinstance(query, Selection) else "gaussian")
    exact_noise = float(f32(noise))
    rho = {"gaussian": 1 / 2, "gumbel": 1 / 8, "exponential": 1 / 2}[mechanism] / exact_noise**2
    order = convert.planned_order(BUDGET.epsilon, BUDGET.delta)
    truths = {"gdp": 1 / exact_noise**2, "zcdp": rho, "ctcdp": rho, "rdp": order * rho}
    assert set(truths) == set(covering(FullBatch())) - {"basic", *of_fixed_noise()}
    for name, truth in truths.items():
        if name == "gdp" and mechanism != "gaussian":
            with pytest.raises(InputError, match="gdp"):
                Filter(name, BUDGET).price_list().price(event)
        else:
            price = float(Filter(name, BUDGET).price_list().price(event))
            assert truth <= price <= truth * (1 + 3e-6)


@ADDITIVE
def test_more_noise_is_cheaper_and_its_gradient_says_so(query):
    name = "gdp" if query.mechanism == "gaussian" else "rdp"
    accountant = Filter(name, BUDGET).price_list()
    price = lambda noise: accountant.price(query.replace(noise_multiplier=noise).event())  # noqa: E731
    check_grads(price, (f32(1.7),), order=1, modes=["rev"], rtol=2e-2)
    assert float(jax.grad(price)(f32(1.7))) < 0


def test_minimizer_costs_infinity_finds_the_minimum_and_is_no_sum():
    query = Minimizer(MODEL, jnp.zeros(D + 1), jnp.zeros(()))
    for name in set(covering(FullBatch())) - set(of_fixed_noise()):
        assert float(Filter(name, BUDGET).price_list().price(query.event())) == math.inf
    rows = table(count=120)
    found = np.asarray(jax.jit(lambda rows: query.add(query.empty(), rows))(rows), float)
    assert np.array_equal(query.release(jnp.asarray(found), NoNoise(), Adjacency.ZERO_OUT), f32(found))
    x, y, mask = as_float64(rows)
    lines = np.c_[x, np.full(len(x), INTERCEPT_COLUMN)]
    mean_gradient = (mask * (special.expit(lines @ found) - y)) @ lines / mask.sum()
    assert np.abs(mean_gradient).max() < 1e-5  # float32 Newton; the ridge of 1e-6 included
    assert np.abs(found).max() > 0.1
    assert not query.additive
    with pytest.raises(TypeError, match="not a sum"), jax.enable_x64(True):
        exact_sum(query, rows)


# -------------------------------------------------------------------------------------------------------- selections
def choices(query, scores, adjacency, count=DRAWS):
    release = jax.jit(jax.vmap(lambda key: query.release(scores, KeyNoise(key), adjacency)))
    return np.bincount(np.asarray(release(jax.random.split(jax.random.key(9), count))), minlength=len(scores))


def fit_p_value(counts, probabilities):
    probabilities = np.asarray(probabilities, float)
    return stats.chisquare(counts, probabilities / probabilities.sum() * counts.sum()).pvalue


def one_sided(qualities):
    """P(largest of qualities + Exp(1)) per candidate, by quadrature: what permute-and-flip is."""
    qualities = np.asarray(qualities, float)

    def chance(index):
        gaps = qualities[index] - np.delete(qualities, index)
        kinks = sorted({max(-gap, 0.0) for gap in gaps} | {0.0})
        inner = lambda z: math.exp(-z) * np.prod(-np.expm1(-np.maximum(z + gaps, 0.0)))  # noqa: E731
        return sum(integrate.quad(inner, low, high)[0] for low, high in zip(kinks, [*kinks[1:], 60.0], strict=True))

    return np.array([chance(index) for index in range(len(qualities))])


def wrong_sign(qualities):
    """P(largest of qualities - Exp(1)) per candidate: the noise raises the score that is minimised."""
    qualities = np.asarray(qualities, float)

    def chance(index):
        gaps = qualities[index] - np.delete(qualities, index)
        kinks = sorted({max(gap, 0.0) for gap in gaps} | {0.0})
        inner = lambda z: math.exp(-z) * np.exp(-np.maximum(z - gaps, 0.0)).prod()  # noqa: E731
        return sum(integrate.quad(inner, low, high)[0] for low, high in zip(kinks, [*kinks[1:], 60.0], strict=True))

    return np.array([chance(index) for index in range(len(qualities))])


SCORES = {2: np.array([1.0, 0.3]), 21: np.random.default_rng(2).uniform(0, 2.5, 21)}
TABLES = pytest.mark.parametrize("size", SCORES)


@ADJACENCIES
@TABLES
def test_gumbel_minimum_is_the_exponential_mechanism(size, adjacency):
    scores, query = SCORES[size], minimum("gumbel")
    scale = NOISE * CLIP * adjacency.sensitivity_factor
    counts = choices(query, f32(scores), adjacency)
    assert fit_p_value(counts, np.exp(-scores / scale)) > LEVEL
    for wrong in (scale * 1.15, scale / 1.15, -scale):
        assert fit_p_value(counts, np.exp(-scores / wrong)) < LEVEL


def test_gumbel_noise_of_the_wrong_sign_is_seen():
    scores, scale = SCORES[21], NOISE * CLIP
    noise = np.random.default_rng(0).gumbel(size=(DRAWS, 21)) * scale
    right, wrong = (np.bincount(np.argmin(scores + sign * noise, 1), minlength=21) for sign in (-1, 1))
    assert fit_p_value(right, np.exp(-scores / scale)) > LEVEL
    assert fit_p_value(wrong, np.exp(-scores / scale)) < LEVEL


@ADJACENCIES
@TABLES
def test_exponential_minimum_has_its_exact_frequencies(size, adjacency):
    scores, query = SCORES[size], minimum("exponential")
    scale = NOISE * CLIP * adjacency.sensitivity_factor
    counts = choices(query, f32(scores), adjacency)
    assert fit_p_value(counts, one_sided(-scores / scale)) > LEVEL
    for wrong in (scale * 1.15, scale / 1.15):
        assert fit_p_value(counts, one_sided(-scores / wrong)) < LEVEL
    if size == 21:  # with two candidates the sign has no effect: the difference of two exponentials is symmetric
        assert fit_p_value(counts, wrong_sign(-scores / scale)) < LEVEL


@TABLES
def test_gumbel_minimum_has_the_bounded_range_that_its_price_rests_on(size):
    """Cesar & Rogers 2021: epsilon^2 / 8 where log ratios of all candidates lie within epsilon of each other."""
    epsilon, random, scores = 1 / NOISE, np.random.default_rng(6), SCORES[size]
    vertices = [*random.integers(0, 2, (50, size)).astype(float), *random.random((50, size)), np.eye(size)[0]]
    worst = {1: 0.0, 2: 0.0}
    for sides in worst:  # one row more: scores rise; one row replaced: some rise and some fall
        for vertex, other in itertools.pairwise(vertices):
            moved = CLIP * (vertex - (sides - 1) * other)
            before, after = (special.log_softmax(-table_ / NOISE / CLIP) for table_ in (scores, scores + moved))
            worst[sides] = max(worst[sides], np.ptp(after - before))
    assert 0.99 * epsilon < worst[1] <= epsilon * (1 + 1e-9)
    assert 1.99 * epsilon < worst[2] <= 2 * epsilon * (1 + 1e-9)  # hence twice the noise


@TABLES
def test_exponential_minimum_keeps_its_privacy_ratio_and_the_wrong_sign_does_not(size):
    epsilon, random = 1 / NOISE, np.random.default_rng(6)
    scale = NOISE * CLIP
    vertices = [np.eye(size)[index] for index in (0, size - 1)] + [1 - np.eye(size)[0], np.ones(size)]
    vertices += [random.integers(0, 2, size).astype(float) for _ in range(3)] + [random.random(size)]
    ratios = {one_sided: 0.0, wrong_sign: 0.0}
    for scores in (SCORES[size], np.zeros(size)):
        for vertex in vertices:  # what one more row may add to the scores: anything in [0, clip norm]
            for law in ratios:
                before, after = law(-scores / scale), law(-(scores + CLIP * vertex) / scale)
                assert before.sum() == pytest.approx(1, abs=1e-6)
                ratios[law] = max(ratios[law], np.abs(np.log(after) - np.log(before)).max())
    assert 0.9 * epsilon < ratios[one_sided] <= epsilon + 1e-5
    if size == 21:
        assert ratios[wrong_sign] > 1.5 * epsilon


@TABLES
def test_released_exponential_choices_of_neighbours_stay_within_the_ratio(size):
    # The released frequencies themselves: worst candidate of two neighbours, Clopper-Pearson at LEVEL.
    query = minimum("exponential")
    scores = np.zeros(size)
    counts = [choices(query, f32(table_), Adjacency.ADD_REMOVE) for table_ in (scores, scores + CLIP * np.eye(size)[0])]
    low = stats.beta.ppf(LEVEL / 2, counts[0][0], DRAWS - counts[0][0] + 1)
    high = stats.beta.isf(LEVEL / 2, counts[1][0] + 1, DRAWS - counts[1][0])
    assert math.log(low / high) <= 1 / NOISE
    noise = np.random.default_rng(1).exponential(size=(DRAWS, size)) * NOISE * CLIP
    mutant = [(np.argmin(table_ + noise, 1) == 0).sum() for table_ in (scores, scores + CLIP * np.eye(size)[0])]
    low = stats.beta.ppf(LEVEL / 2, mutant[0], DRAWS - mutant[0] + 1)
    high = stats.beta.isf(LEVEL / 2, mutant[1] + 1, DRAWS - mutant[1])
    assert size == 2 or math.log(low / high) > 1 / NOISE


def test_losses_that_are_not_numbers_count_as_the_most_a_row_may_lose():
    limited = minimum("gumbel").limit(f32([[np.nan, np.inf, -np.inf, 0.1, 7.0]]))
    np.testing.assert_array_equal(limited, f32([[CLIP, CLIP, 0.0, 0.1, CLIP]]))


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


def test_selection_candidates_are_twenty_and_staying_put():
    assert NUM_CANDIDATES + 1 == 21  # the table size above is the number of AGD's candidates


# ---------------------------------------------------------------------------------------------------- ranges of fields
class Refused(NamedTuple):
    """Values of a field for which nothing is proved."""

    values: tuple


class Raises(NamedTuple):
    """Values of a static field, and what tracing a run with them raises."""

    values: tuple
    error: type[Exception] | tuple[type[Exception], ...] = (TypeError, ValueError)


class Harmless(NamedTuple):
    """Values of a field that only affects what a row contributes: the bound holds anyway."""

    values: tuple = ()


def maps(base):
    """Feature maps with a NaN or an infinity."""
    parts = [{"center": base.center.at[0].set(bad)} for bad in (np.nan, np.inf)]
    parts += [{"scale": f32(bad)} for bad in (np.nan, np.inf, -3.0, 0.0)]
    if base.basis is not None:
        parts += [{"basis": base.basis.replace(forward=base.basis.forward.at[0].set(bad))} for bad in (np.nan, np.inf)]
    return Harmless(tuple(base.replace(**part) for part in parts))


BASIC = Filter("basic", BUDGET).price_list()
NOTHING = (np.nan, np.inf, -np.inf)
POSITIVE = Refused((0.0, -CLIP, *NOTHING))
NOT_NEGATIVE = Refused((-1e-3, *NOTHING))
SHARE = Refused((0.0, 1.0, -0.2, 1.2, *NOTHING))
ROWS_N = Refused((0.0, 0.5, -3.0, *NOTHING))
PUBLIC_POINT = Refused(tuple(f32(PARAMS).at[1].set(bad) for bad in NOTHING))
#: Models with an unbounded gradient, with unbounded curvature, and with an invalid width of the kink.
SMOOTH = Refused((Square(), Hinge(), HuberSVM(-0.1)))
POINT = Harmless(tuple(f32(PARAMS).at[1].set(bad) for bad in (*NOTHING, 3e38)))
POINTS = Harmless(tuple(f32(LINE).at[1, 1].set(bad) for bad in NOTHING))
COUNT = Raises((-1, 0, 2.5))
WIDTH = Raises((-1, 0, 1, D + 1, 2.5))
KIND = Raises(("laplace", "gaussian"), InputError)

descent = Descent(MODEL, f32(PARAMS), f32(CLIP), f32(0.1), f32(1.0), f32(N), f32(NOISE))
perturbed = PerturbedMinimum(
    MODEL, f32(PARAMS), f32(CLIP), f32(0.1), f32(N), f32(0.4), BASIC.log_delta, BASIC.least * (1 + 1e-6)
)
approximate = ApproximateMinimum(perturbed, f32(0.1), f32(1e-3), perturbed.noise_multiplier)
drawn = PassDescent(
    MODEL, Passes(N, 0.25, order="with_replacement"), f32(PARAMS), perturbed.noise_multiplier, BASIC.log_delta,
    mechanism="objective", tail=1e-9,
)  # fmt: skip
noisy = NoisyPasses(MODEL, Passes(N, 0.25, rule="inverse_root"), f32(PARAMS), f32(NOISE))
sampled = SampledPasses(MODEL, Passes(N, 0.25), f32(PARAMS), BASIC.log_delta, perturbed.noise_multiplier, in_ball=False)
PROBLEMS = Raises((-1, 0, 2.5, 3), InputError)
#: A plan is checked when it is made; see privacy/test_passes.py.
PLAN = Harmless()

one_pass = OnePass(MODEL, f32(PARAMS), table(3, 5), f32(CLIP), f32(2.0), f32(1.0), f32(N), f32(NOISE))

#: Every field of every query, except `noise_multiplier`.
RANGES: list[tuple[Query, dict[str, Refused | Raises | Harmless]]] = [
    (gradient(), {"clip_norm": POSITIVE, "params": POINT, "features": maps(MAP), "model": Harmless()}),
    (normalized(0.01), {
        "clip_norm": POSITIVE, "stability": Refused((-1e-3, np.nan, -np.inf)), "params": POINT, "features": maps(MAP),
        "model": Harmless(),
    }),
    (QUERIES["gradient norm"], {"gradient": Refused(tuple(map(gradient, POSITIVE.values)))}),
    (QUERIES["feature sum"], {"clip_norm": POSITIVE, "num_features": WIDTH}),
    (QUERIES["correct count"], {"params": POINT, "model": Harmless()}),
    (QUERIES["bin counts"], {"num_columns": WIDTH, "num_bins": Harmless((1, 3, 300))}),
    (losses(), {"clip_norm": POSITIVE, "candidates": POINTS, "model": Harmless()}),
    (QUERIES["second moment, mapped"], {"norm_bound": POSITIVE, "num_features": WIDTH, "features": maps(TURNED)}),
    (QUERIES["covariance"], {"norm_bound": POSITIVE, "features": maps(TURNED)}),
    (QUERIES["class counts"], {"num_classes": Raises((-1, 0, 2.5))}),
    (QUERIES["row_length"], {"longest": POSITIVE, "features": maps(TURNED)}),
    (QUERIES["least eigenvalue"], {
        "moment": Refused(tuple(SecondMoment(D, f32(bad), f32(NOISE)) for bad in POSITIVE.values)),
    }),
    (QUERIES["cross moment"], {"norm_bound": POSITIVE, "num_features": WIDTH, "signed": Harmless((True,))}),
    (QUERIES["class moment"], {
        "norm_bound": POSITIVE, "num_features": WIDTH, "num_classes": Raises((-1, 0, 1, 2.5)),
    }),
    (QUERIES["hessian"], {
        "model": Refused((Hinge(), HuberSVM(-0.1))), "norm_bound": POSITIVE, "params": POINT,
    }),
    (minimum("gumbel", LINE), {
        "clip_norm": POSITIVE, "candidates": POINTS, "mechanism": KIND, "model": Harmless(),
    }),
    (FewestErrors(MODEL, f32(LINE), f32(NOISE)), {"candidates": POINTS, "mechanism": KIND, "model": Harmless()}),
    (line_search("gumbel"), {
        "clip_norm": POSITIVE, "params": POINT, "direction": POINT, "mechanism": KIND, "model": Harmless(),
        "sizes": Harmless(tuple(f32([bad, 0.0, 0.2, 0.4]) for bad in NOTHING)),
    }),
    (descent, {
        "model": SMOOTH, "start": PUBLIC_POINT, "norm_bound": POSITIVE, "ridge": NOT_NEGATIVE, "num_rows": ROWS_N,
        "step_size": Refused((0.0, -1.0, 2.0 + 1e-6, *NOTHING)), "num_iterations": COUNT,
    }),
    (perturbed, {
        "model": SMOOTH, "start": PUBLIC_POINT, "norm_bound": POSITIVE, "ridge": NOT_NEGATIVE, "num_rows": ROWS_N,
        "share": SHARE, "log_delta": Refused((0.0, 0.1, *NOTHING)), "published": Harmless(),
    }),
    (approximate, {
        "minimum": Refused((perturbed.replace(share=f32(1.5)), perturbed.replace(ridge=f32(-1.0)))),
        "output_share": SHARE, "tolerance": NOT_NEGATIVE,
    }),
    (drawn, {
        "loss": SMOOTH, "plan": PLAN, "start": PUBLIC_POINT, "log_delta": Refused((0.0, 0.1, -20.5, *NOTHING)),
        "num_classes": PROBLEMS, "norm_bound": Refused((0, -1)), "mechanism": Raises(("laplace",), InputError),
        "tail": Raises((0,), InputError), "snapshots": Raises((True,), InputError),
    }),
    (noisy, {
        "loss": SMOOTH, "plan": PLAN, "start": PUBLIC_POINT, "num_classes": PROBLEMS, "norm_bound": Refused((0, -1)),
        "mechanism": Raises(("laplace", "objective"), InputError),
    }),
    (sampled, {
        "loss": SMOOTH, "plan": PLAN, "start": PUBLIC_POINT, "log_delta": Refused((0.0, 0.1, *NOTHING)),
        "num_classes": PROBLEMS, "norm_bound": Refused((0, -1)), "in_ball": Raises((True,), InputError),
    }),
    (MetaDescent(HAND_DESIGNED["noisygd"](BUDGET), None, f32(CLIP), f32(0.1), f32(NOISE), 2, 3), {
        # Simulated runs clip gradients after any feature map.
        "protector": Harmless(), "setup": Harmless(), "learning_rate": Harmless(), "clip_norm": POSITIVE,
        "num_outer": COUNT, "num_blocks": COUNT,
    }),
    (one_pass, {
        "model": Refused((Hinge(), HuberSVM(-0.1), Quadratic())), "start": PUBLIC_POINT, "public": Harmless(),
        "norm_bound": POSITIVE, "radius": POSITIVE, "num_rows": ROWS_N,
        "step_size": Refused((0.0, -1.0, 2.0 + 1e-6, *NOTHING)),
    }),
    # No finite budget pays for it.
    (Minimizer(MODEL, f32(PARAMS), f32(NOISE)), {"model": Harmless(), "start": Harmless(), "features": Harmless()}),
]  # fmt: skip


def rows_of(kind):
    """(query, field, value) of every row of the table of this kind."""
    found = [
        pytest.param(query, field, value, id=f"{type(query).__name__}-{field}-{index}")
        for query, fields in RANGES
        for field, row in fields.items()
        if isinstance(row, kind)
        for index, value in enumerate(row.values)
    ]
    assert found
    return found


def moved(query, field, value):
    return query.replace(**{field: f32(value) if isinstance(value, float) else value})


@jax.jit
def answered_at_all(query):
    """Whether the oracle grants it, what it charges, and the answer, which is 1 if granted."""
    name = {"objective": "basic", "gaussian": "gdp"}.get(query.event().mechanism, "rdp")
    setup = Setup.create(MODEL, BUDGET.adjacency, Filter(name, BUDGET).price_list(), N)
    spending = Spending(f32(0), f32(1e6))  # room for all that has a price
    asked = Oracle(table(pad=0), setup, spending, KeyNoise(jax.random.key(0)), jnp.zeros((), int))
    answer = asked.ask(query)
    return asked.records[0].granted, asked.spending.spent, answer


@pytest.fixture
def door(monkeypatch):
    """The oracle without the queries' own computations, which are tested elsewhere."""
    monkeypatch.setattr(Oracle, "_answer", lambda self, query, granted: jnp.ones(()))
    return answered_at_all


def test_every_field_of_every_query_has_its_row():
    def descendants(cls):
        return {cls}.union(*map(descendants, cls.__subclasses__()))

    shipped = {cls for cls in descendants(Query) if cls.__module__.startswith("l2p.") and not inspect.isabstract(cls)}
    assert {type(query) for query, _ in RANGES} == shipped
    for query, fields in RANGES:
        named = {field.name for field in dataclasses.fields(query)}
        assert fields.keys() | {"noise_multiplier"} == named, type(query)


@pytest.mark.parametrize(("query", "field", "value"), rows_of(Refused))
def test_a_field_outside_the_range_of_its_proof_has_no_bound_and_is_refused_at_no_charge(door, query, field, value):
    granted, spent, answer = door(query)
    assert (bool(granted), float(answer)) == (True, 1.0)
    assert float(spent) > 0
    bad = moved(query, field, value)
    assert math.isnan(float(bad.bound))
    granted, spent, answer = door(bad)
    assert (bool(granted), float(spent), float(answer)) == (False, 0.0, 0.0)


@pytest.mark.parametrize("query", [descent, perturbed, approximate, one_pass], ids=lambda query: query.name)
def test_a_solve_is_refused_for_a_table_of_more_rows_than_its_proof_divides_by(door, query):
    for count, allowed in ((N, True), (N - 1, False)):
        one = query.minimum if query is approximate else query
        asked = one.replace(num_rows=f32(count))
        granted, spent, _ = door(query.replace(minimum=asked) if query is approximate else asked)
        assert (bool(granted), float(spent) > 0) == (allowed, allowed)


@pytest.mark.parametrize("noise", [0.0, -1.0, *NOTHING])
@pytest.mark.parametrize("query", [query for query, _ in RANGES], ids=lambda query: type(query).__name__)
def test_noise_that_is_none_is_refused_at_no_charge(door, query, noise):
    granted, spent, _ = door(query.replace(noise_multiplier=f32(noise)))
    assert (bool(granted), float(spent)) == (False, 0.0)


@pytest.mark.parametrize(("query", "field", "value"), rows_of(Raises))
def test_a_static_field_that_means_nothing_raises_before_anything_runs(query, field, value):
    row = dict(next(fields for other, fields in RANGES if other is query))[field]

    def ask(rows):
        setup = Setup.create(MODEL, BUDGET.adjacency, Filter("rdp", BUDGET).price_list(), N)
        bad = moved(query, field, value)
        bad = bad.replace(setup=setup) if isinstance(query, MetaDescent) else bad
        spending = Spending(f32(0), setup.cap)
        Oracle(rows, setup, spending, KeyNoise(jax.random.key(0)), jnp.zeros((), int)).ask(bad)
        if query.additive:
            with jax.enable_x64(True):
                exact_sum(bad, rows)  # as a release adds up

    with pytest.raises(row.error):
        jax.eval_shape(ask, table(pad=0))


@pytest.mark.parametrize(("query", "field", "value"), rows_of(Harmless))
def test_the_bound_holds_whatever_a_field_says_that_only_contributions_depend_on(query, field, value):
    bad = moved(query, field, value)
    assert float(bad.bound) == float(query.bound)
    with jax.enable_x64(True):
        steps, unit = in_units(stacked_exact()(bad, neighbours(Adjacency.REPLACE_ONE)))
    assert np.isfinite(unit).all()
    assert (unit == unit[0]).all()
    margin = 0 if isinstance(query, Selection) else MARGIN
    check_sensitivity(bad, (steps[1:] - steps[0]) * unit[0], float(bad.bound) * (1 + margin), Adjacency.REPLACE_ONE)
