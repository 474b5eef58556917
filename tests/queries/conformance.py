"""The conformance table: every query, and what each should answer, in naive NumPy."""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from l2p.base.layout import Layout
from l2p.models import INTERCEPT_COLUMN, HuberSVM, Logistic
from l2p.oracle.sums import exact_sum
from l2p.privacy import Adjacency, Budget
from l2p.queries import (
    BinCounts,
    ClassMoment,
    ClippedGradient,
    ClippedLoss,
    CorrectCount,
    Covariance,
    CrossMoment,
    FeatureSum,
    GradientLengths,
    GradientNorm,
    HessianSum,
    LeastEigenvalue,
    LengthSum,
    NoisyLineSearch,
    NoisyMinimum,
    NormalizedGradient,
    Query,
    ScaledGradient,
    SecondMoment,
    TargetSum,
)
from l2p.queries.selection import Selection
from l2p.release.losses.custom import custom_model
from l2p.run.run import null_invalid
from l2p.task.feature_map import Basis, FeatureMap
from l2p.task.noise import Noise
from l2p.task.rows import Rows

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
#: Of a noise or of a selection.
DRAWS = 60_000


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


NOTHING = (np.nan, np.inf, -np.inf)
POSITIVE = Refused((0.0, -CLIP, *NOTHING))
NOT_NEGATIVE = Refused((-1e-3, *NOTHING))
POINT = Harmless(tuple(f32(PARAMS).at[1].set(bad) for bad in (*NOTHING, 3e38)))
COUNT = Raises((-1, 0, 2.5))
WIDTH = Raises((-1, 0, 1, D + 1, 2.5))


def by_tensor(params, row):
    """The loss of one row, whose target is whether its first feature is large, with weights and a bias apart."""
    margin = row @ params["w"] + INTERCEPT_COLUMN * params["b"][0]
    return jax.nn.softplus(margin) - (row[0] > 0.5) * margin


def naive_by_tensor(query, x, y):
    """Arrays in the order of their names: the bias first. By 3 and 4, they have .6 and .8 of the norm."""
    bias, *weights = np.asarray(query.params, float)
    gradient = special.expit(x @ weights + INTERCEPT_COLUMN * bias) - (x[0] > 0.5)
    clip_norm = float(query.clip_norm)
    return np.append(clipped([gradient * INTERCEPT_COLUMN], 0.6 * clip_norm), clipped(gradient * x, 0.8 * clip_norm))


TENSORS, _ = custom_model(
    by_tensor,
    {"w": np.zeros(D), "b": np.zeros(1)},
    Layout.of(f32(np.zeros(D))),
    per_tensor=lambda path: {"b": 3.0, "w": 4.0}[path],
)


#: Coordinates of very different sizes.
SCALE = np.array([3.0, 0.01, 1.0, 0.5])


def naive_scaled(query, x, y):
    line = np.append(x, INTERCEPT_COLUMN)
    return clipped((special.expit(line @ PARAMS) - y) * line * SCALE, float(query.clip_norm))


def naive_log_length(query, x, y):
    line = np.append((x - np.asarray(MAP.center, float)) * float(MAP.scale), INTERCEPT_COLUMN)
    length = np.linalg.norm((special.expit(line @ PARAMS) - y) * line)
    return clipped([math.log(length / float(query.typical))], float(query.most))


class Row(NamedTuple):
    """All that the tests of queries need of one of them.

    Attributes:
      query: it, on rows of D features.
      naive: what one row (x f64[D], y) adds, in naive NumPy.
      ranges: for each field but `noise_multiplier`, values outside the range of its proof, or harmless ones; none where
        those of another query of its class are in `test_ranges.py`.
    """

    query: Query
    naive: Callable[[Any, np.ndarray, float], np.ndarray]
    ranges: dict[str, Refused | Raises | Harmless]


ROWS = {
    "feature sum": Row(
        FeatureSum(D, f32(0.9), f32(NOISE)),
        lambda query, x, y: clipped(x, float(query.clip_norm)),
        {"clip_norm": POSITIVE, "num_features": WIDTH},
    ),
    "correct count": Row(
        CorrectCount(MODEL, f32(PARAMS), f32(NOISE)),
        lambda query, x, y: np.array([(np.append(x, INTERCEPT_COLUMN) @ PARAMS > 0) == y], float),
        {"params": POINT, "model": Harmless()},
    ),
    "gradient, tensor by tensor": Row(
        ClippedGradient(TENSORS, f32(PARAMS), FeatureMap.identity(D), f32(CLIP), f32(NOISE)),
        naive_by_tensor,
        {},
    ),
    "scaled gradient": Row(
        ScaledGradient(MODEL, f32(PARAMS), FeatureMap.identity(D), f32(CLIP), f32(NOISE), f32(SCALE)),
        naive_scaled,
        {
            "clip_norm": POSITIVE,
            "params": POINT,
            "features": maps(FeatureMap.identity(D)),
            "model": Harmless(),
            "scale": Harmless((*POINT.values, f32(-SCALE), f32(0 * SCALE), f32(1e30 * SCALE))),
        },
    ),
    "row_length": Row(
        LengthSum(TURNED, f32(0.9), f32(NOISE)),
        lambda query, x, y: clipped([np.linalg.norm(mapped(x))], float(query.longest)),
        {"longest": POSITIVE, "features": maps(TURNED)},
    ),
    "gradient length": Row(
        GradientLengths(MODEL, f32(PARAMS), MAP, f32(0.7), f32(CLIP), f32(NOISE)),
        naive_log_length,
        {"typical": POSITIVE, "most": POSITIVE, "params": POINT, "features": maps(MAP), "model": Harmless()},
    ),
}
#: Those with a row, and others, whose naive answers are below and whose ranges are in `test_ranges.py`.
QUERIES = {name: row.query for name, row in ROWS.items()} | {
    "gradient": gradient(),
    "gradient, no map": gradient(features=FeatureMap.identity(D)),
    "normalized gradient": normalized(0.01),
    "normalized gradient, no map": normalized(0.05, FeatureMap.identity(D)),
    "gradient norm": GradientNorm(gradient(), f32(NOISE)),
    "bin counts": BinCounts(D, 255, f32(NOISE)),
    "clipped loss": losses(),
    "clipped loss, one candidate": losses(LINE[:1]),
    "second moment": SecondMoment(D, f32(0.9), f32(NOISE)),
    "second moment, mapped": SecondMoment(D, f32(0.9), f32(NOISE), TURNED),
    "covariance": Covariance(TURNED, f32(0.9), f32(NOISE)),
    "target sum": TargetSum(1, f32(NOISE)),
    "class counts": TargetSum(2, f32(NOISE)),
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
    return np.asarray(vector, float) * (bound / max(norm, bound))


def mapped(x):
    return (x - np.asarray(MAP.center, float)) * float(MAP.scale) @ FORWARD


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
    return rows.replace(x=mapped(np.asarray(rows.x, float)))


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
    row = next((row for row in ROWS.values() if row.query is query), None)
    if row is not None:
        total = sum(mask * row.naive(query, x, y) for x, y, mask in zip(*as_float64(rows), strict=True))
        return total, total
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
            line = clipped(mapped(x), float(query.norm_bound))
            total += mask * np.outer(line, line)
        entries = np.array([total[i, j] * (1 if i == j else math.sqrt(2)) for i in range(D) for j in range(i, D)])
        return entries, entries
    if isinstance(query, TargetSum):
        lines = zip(*as_float64(rows), strict=True)
        parts = [mask * np.array([1 - y, y] if query.num_classes == 2 else [y - 0.5]) for _, y, mask in lines]
        return sum(parts), sum(parts)
    if isinstance(query, GradientNorm):
        total = naive_gradient(query.gradient, rows)
        return total, [math.sqrt(total @ total)]
    if isinstance(query, (ClippedGradient, NormalizedGradient)):
        total = naive_gradient(query, rows)
        return total, total
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
