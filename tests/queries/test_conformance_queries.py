"""Every query against one table of properties: its value, its sensitivity, its noise and its price."""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.test_util import check_grads
from scipy import integrate, special, stats

from l2p import oracle
from l2p.errors import InputError
from l2p.features import Basis, FeatureMap
from l2p.models import INTERCEPT_COLUMN, Logistic
from l2p.oracle import exact_sum
from l2p.privacy import Adjacency, Budget, Filter, FullBatch, convert
from l2p.privacy.accountants import covering, of_fixed_noise
from l2p.privacy.noise import GRID_STEPS, Draw, Entropy, HostNoise, KeyNoise, Noise
from l2p.protectors.agd import NUM_CANDIDATES
from l2p.queries import (
    ClippedGradient,
    ClippedLoss,
    CorrectCount,
    Covariance,
    CrossMoment,
    FeatureSum,
    GradientNorm,
    LeastEigenvalue,
    LengthSum,
    Minimizer,
    NoisyLineSearch,
    NoisyMinimum,
    NormalizedGradient,
    SecondMoment,
)
from l2p.queries.selection import Selection
from l2p.run import null_invalid
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
#: Three points on a line, as a line search asks about: a bad row may be bad at all of them.
LINE = PARAMS * np.array([[0.8], [1.0], [1.2]])
#: With this level no false alarm is expected in the life of the project; every test has power far above it.
LEVEL = 1e-6


def gradient(clip=CLIP, features=MAP):
    return ClippedGradient(MODEL, f32(PARAMS), features, f32(clip), f32(NOISE))


def normalized(stability, features=MAP, clip=CLIP):
    return NormalizedGradient(MODEL, f32(PARAMS), features, f32(clip), f32(stability), f32(NOISE))


def minimum(mechanism, candidates=CANDIDATES, clip=CLIP, noise=NOISE):
    return NoisyMinimum(MODEL, f32(candidates), f32(clip), f32(noise), mechanism)


def line_search(mechanism):
    # Of the points of `LINE`, and one beyond.
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
    "clipped loss": losses(),
    "clipped loss, one candidate": losses(LINE[:1]),
    "second moment": SecondMoment(D, f32(0.9), f32(NOISE)),
    "covariance": Covariance(TURNED, f32(0.9), f32(NOISE)),
    "row_length": LengthSum(TURNED, f32(0.9), f32(NOISE)),
    "least eigenvalue": LeastEigenvalue(SecondMoment(D, f32(0.9), f32(NOISE)), f32(NOISE)),
    "cross moment": CrossMoment(D, f32(0.9), f32(NOISE)),
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
    """Rows followed by null rows that hold rubbish."""
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


def naive_moments(norm_bound, rows):
    """The second moment and the cross moment of shrunk rows."""
    second, cross = np.zeros((D + 1, D + 1)), np.zeros(D + 1)
    for x, y, mask in zip(*as_float64(rows), strict=True):
        line = clipped(np.append(x, INTERCEPT_COLUMN), float(norm_bound))
        second, cross = second + mask * np.outer(line, line), cross + mask * y * line
    return second, cross


def naive(query, rows):
    """(aggregate, answer without noise)"""
    if isinstance(query, CrossMoment):
        cross = naive_moments(query.norm_bound, rows)[1]
        return cross, cross
    if isinstance(query, (SecondMoment, LeastEigenvalue)):
        moment = query if isinstance(query, SecondMoment) else query.moment
        second = naive_moments(moment.norm_bound, rows)[0]
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
    """The aggregate that a release forms, in whole grid steps, and the grid."""
    with jax.enable_x64(True):
        total, grid = _exact(query, rows)
    total, grid = np.asarray(total), float(grid)
    assert total.dtype == np.float64
    steps = total / grid
    assert np.array_equal(steps, np.rint(steps))  # on the grid: whole numbers, and exact ones below 2^53
    return steps.astype(np.int64), grid


@ADDITIVE
def test_clean_value_is_that_of_naive_float64_loops(query):
    rows = table()
    total, answer = naive(query, rows)
    fast = aggregate(query, rows)
    np.testing.assert_allclose(fast, total, atol=2e-6 * N, rtol=0)
    np.testing.assert_allclose(query.release(fast, NoNoise(), Adjacency.ZERO_OUT), answer, atol=2e-6 * N, rtol=0)
    steps, grid = exact(query, rows)
    # Each row is shrunk and rounded: a few steps of the grid, and float32 contributions.
    np.testing.assert_allclose(steps * grid, total, atol=N * (4 * grid + 1e-6), rtol=0)


@ADDITIVE
def test_some_rows_of_the_reference_table_are_limited_and_some_are_not(query):
    if isinstance(query, CorrectCount):
        pytest.skip("a row is right or wrong: there is nothing to limit")
    rows = table()
    if isinstance(query, CrossMoment):  # it limits the row before the label makes it shorter
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
    """(x, y) that a database may hold: not finite, beyond what squares in float32, and plainly extreme."""
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
    """All neighbours of a tiny table with hostile rows of its own: stacked Rows, the table itself first."""
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
        for new_x, new_y in zip(bad_x, bad_y, strict=True):  # from the neighbour's side, the row is what was added
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


def check_sensitivity(query, differences, bound, adjacency, rounding=0.0):
    """Differences [tables, k] from the first table, under the norm that the query's noise is scaled to."""
    limit = bound * adjacency.sensitivity_factor
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
    assert worst > 0.9 * bound  # the bound is reached: a test with half the clipping norm would be empty


@ADJACENCIES
@ADDITIVE
def test_no_neighbour_moves_the_exact_sum_by_more_than_the_bound_to_the_last_bit(query, adjacency, monkeypatch):
    monkeypatch.setattr(oracle, "RELEASE_BLOCK", 4)
    with jax.enable_x64(True):
        totals, grids = stacked_exact()(query, neighbours(adjacency))
    steps = np.asarray(totals) / np.asarray(grids)[:, None]
    assert np.array_equal(steps, np.rint(steps))
    differences = (steps[1:] - steps[0]).astype(np.int64).astype(object)  # Python integers: no rounding at all
    worst = check_sensitivity(query, differences.astype(np.int64), int(GRID_STEPS), adjacency)
    assert worst > 0.9 * GRID_STEPS


@ADDITIVE
def test_every_exact_contribution_is_within_the_bound_for_random_rows(query):
    random = np.random.default_rng(5)
    x = random.normal(size=(400, D)) * np.exp(random.uniform(-8, 8, (400, 1)))
    rows = Rows(f32(x), f32(np.ones(400)), f32(np.ones(400)))
    with jax.enable_x64(True):
        single = jax.jit(jax.vmap(exact_sum, (None, 0)))
        totals, grids = single(query, jax.tree.map(lambda leaf: leaf[:, None], rows))
        steps = (np.asarray(totals) / np.asarray(grids)[:, None]).astype(np.int64)
    if isinstance(query, Selection):
        assert steps.min() >= 0
        assert 0.999 * GRID_STEPS < steps.max() <= GRID_STEPS
    else:
        squares = (steps * steps).sum(1)
        assert 0.999 * GRID_STEPS**2 < squares.max() <= GRID_STEPS**2


def test_the_eigenvalue_that_is_released_moves_no_more_than_its_matrix():
    query = QUERIES["least eigenvalue"]
    for adjacency in Adjacency:
        with jax.enable_x64(True):
            totals, _ = stacked_exact()(query, neighbours(adjacency))
            least = np.array([float(query.release(total, NoNoise(), adjacency)[0]) for total in totals])
        moved = np.abs(least - least[0]).max()
        # No more where a row is replaced: x x' - y y' stretches nothing by more than the longer of the two.
        assert 0.01 * 0.81 < moved <= 0.81


def test_the_norm_that_is_released_moves_no_more_than_its_gradient():
    query = QUERIES["gradient norm"]
    for adjacency in Adjacency:
        sums = stacked()(query, neighbours(adjacency))
        norms = np.array([float(query.release(total, NoNoise(), adjacency)[0]) for total in sums])
        moved = np.abs(norms - norms[0]).max()
        assert 0.5 * CLIP < moved <= float(query.bound) * adjacency.sensitivity_factor * (1 + 1e-5)


@pytest.mark.parametrize("kind", ["gradient", "feature sum", "minimum, gumbel"])
def test_exact_sum_is_the_same_integer_in_any_order_and_any_blocks(kind, monkeypatch):
    query = QUERIES[kind]
    random = np.random.default_rng(3)
    count = 301
    rows = Rows(f32(random.random((count, D))), f32(random.random(count) < 0.5), f32(random.random(count) < 0.9))
    whole, grid = exact(query, rows)
    for _ in range(5):
        order = random.permutation(count)
        steps, _ = exact(query, jax.tree.map(lambda leaf, order=order: leaf[order], rows))
        assert np.array_equal(steps, whole)
        cut = int(random.integers(count))
        parts = [rows.replace(mask=rows.mask * f32(side)) for side in (np.arange(count) < cut, np.arange(count) >= cut)]
        assert np.array_equal(sum(exact(query, part)[0] for part in parts), whole)
    # A block size that is a multiple of the vector width, as the shipped one is.
    assert oracle.RELEASE_BLOCK % 64 == 0
    monkeypatch.setattr(oracle, "RELEASE_BLOCK", 64)
    with jax.enable_x64(True):
        total, _ = jax.jit(lambda query, rows: exact_sum(query, rows))(query, rows)
    assert np.array_equal(np.asarray(total) / grid, whole)


def test_a_large_stability_constant_makes_it_the_plain_gradient_sum():
    plain = aggregate(gradient(clip=1e6), table())
    for stability, error in ((1e2, 2e-2), (1e4, 2e-4)):  # the gradients here are up to 1.6 long
        scaled = aggregate(normalized(stability, clip=stability), table())
        np.testing.assert_allclose(scaled, plain, rtol=0, atol=error * float(np.abs(plain).max()))
    assert np.abs(aggregate(normalized(0.01), table()) - plain).max() > 0.1


def test_without_a_stability_constant_every_row_has_the_same_say():
    lengths = np.linalg.norm(normalized(0.0).limit(normalized(0.0).contributions(table())), axis=-1)
    np.testing.assert_allclose(lengths, CLIP, rtol=1e-5)


@pytest.mark.parametrize("stability", [-0.01, -np.inf, np.nan])
def test_a_stability_constant_that_bounds_nothing_has_no_bound(stability):
    assert np.isnan(float(normalized(stability).bound))  # which the oracle refuses


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
    # Of a selection's noised scores only the index leaves, so they stay as they are.
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
    if isinstance(query, ClippedLoss):
        return query.replace(candidates=jnp.zeros((size, D + 1)))
    if isinstance(query, CrossMoment):
        return query.replace(num_features=size - 1)
    return query.replace(params=jnp.zeros(size))


@ADJACENCIES
@pytest.mark.parametrize("kind", ["gradient", "normalized gradient", "feature sum", "clipped loss", "cross moment"])
@pytest.mark.parametrize("source", ["key", "host"])
def test_vector_answers_carry_noise_multiplier_times_sensitivity(kind, source, adjacency):
    query = wide(QUERIES[kind], DRAWS)
    # A vector of clipped losses may move in all its entries at once.
    length = query.norm_bound if kind == "cross moment" else query.clip_norm
    bound = float(length) * (DRAWS**0.5 if kind == "clipped loss" else 1)
    scale = NOISE * bound * (2 if adjacency is Adjacency.REPLACE_ONE else 1)
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
    if size == 21:  # between two candidates the sign cannot be seen: the difference of two exponentials is symmetric
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
    assert NUM_CANDIDATES + 1 == 21  # the table size above is the one that AGD asks about
