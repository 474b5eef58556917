"""Class weights in queries and the oracle: what a row may change is no more than without them."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.base import struct
from l2p.oracle import Oracle, reader_of
from l2p.oracle.sums import add_quantized, exact_sum
from l2p.privacy import Adjacency, Spending, class_weights
from l2p.queries import (
    BinCounts,
    ClippedGradient,
    ClippedLoss,
    CorrectCount,
    Covariance,
    CrossMoment,
    FeatureSum,
    GradientLengths,
    LengthSum,
    NoisyMinimum,
    NormalizedGradient,
    Query,
    ScaledGradient,
    SecondMoment,
    TargetSum,
)
from l2p.queries.selection import Selection
from l2p.release.admission import admit
from l2p.release.planned_run import plan_run
from l2p.tables.schema import Unit
from l2p.task.exact_sums import MARGIN, ExactSum, picked, quantize
from l2p.task.feature_map import FeatureMap
from l2p.task.noise import HostNoise, KeyNoise
from l2p.task.rows import Rows
from l2p.task.sources import ArraySource
from tests.privacy import test_unit_prices as units
from tests.privacy.weights import (
    ALONE,
    BUDGET,
    MLP,
    MODEL,
    NULL,
    OTHERS,
    SHARES,
    SOFTMAX,
    TABLE,
    WEIGHTED,
    WEIGHTS,
    D,
    Nothing,
    encoded,
    f32,
    setup,
    table,
)

PARAMS = np.array([0.4, -0.3, 0.2, 0.1])
IDENTITY, CLIP, NOISE = FeatureMap.identity(D), f32(0.05), f32(3.0)


def gradient(model=MODEL, clip=CLIP):
    params = PARAMS if model is MODEL else np.linspace(-0.5, 0.5, model.num_params(D))
    return ClippedGradient(model, f32(params), IDENTITY, f32(clip), NOISE)


@struct.dataclass
class OneByOne(ClippedGradient):
    """Summed as a query of somebody else's is, which says nothing of exact sums."""

    exact = Query.exact


#: Bounds so small that rows reach them.
WEIGHED = {
    "gradient": gradient(),
    "softmax": gradient(SOFTMAX),
    "mlp": gradient(MLP),
    "one by one": OneByOne(MODEL, f32(PARAMS), IDENTITY, CLIP, NOISE),
    "normalized": NormalizedGradient(MODEL, f32(PARAMS), IDENTITY, CLIP, f32(0.0), NOISE),
    "scaled": ScaledGradient(MODEL, f32(PARAMS), IDENTITY, CLIP, NOISE, f32([2.0, 1.0, 0.5, 1.0])),
    "targets": TargetSum(1, NOISE),
    "classes": TargetSum(2, NOISE),
    "loss": ClippedLoss(MODEL, f32([PARAMS, -PARAMS]), CLIP, NOISE),
    "second moment": SecondMoment(D, CLIP, NOISE),
    "cross moment": CrossMoment(D, CLIP, NOISE, signed=True),
    "minimum": NoisyMinimum(MODEL, f32([PARAMS, -PARAMS]), CLIP, NOISE, "gumbel"),
}
DESCRIBE = {
    "feature sum": FeatureSum(D, CLIP, NOISE),
    "length": LengthSum(IDENTITY, CLIP, NOISE),
    "gradient length": GradientLengths(MODEL, f32(PARAMS), IDENTITY, f32(1.0), CLIP, NOISE),
    "covariance": Covariance(IDENTITY, CLIP, NOISE),
    "bins": BinCounts(D, 200, NOISE),
    "correct": CorrectCount(MODEL, f32(PARAMS), NOISE),
}
EVERY_WEIGHED = pytest.mark.parametrize("query", WEIGHED.values(), ids=WEIGHED)


def neighbours(adjacency):
    places = [place for place, row in enumerate(TABLE) if row is not NULL]
    for place in places:
        without = TABLE[:place], TABLE[place + 1 :]
        if adjacency is Adjacency.ZERO_OUT:
            yield [*without[0], NULL, *without[1]]
        elif adjacency is Adjacency.ADD_REMOVE:
            yield [*without[0], *without[1]]
        else:
            yield from ([*without[0], row, *without[1]] for row in OTHERS)
            yield [*without[0], (*TABLE[place][:D], 1 - TABLE[place][D], 1), *without[1]]  # another label alone
    if adjacency is Adjacency.ADD_REMOVE:
        for place, row in itertools.product((0, 3, 5), OTHERS):
            yield [*TABLE[:place], row, *TABLE[place:]]


def stacked(tables):
    return Rows(*(jnp.asarray(np.stack(part)) for part in zip(*((r.x, r.y, r.mask) for r in tables), strict=True)))


_sums = jax.jit(lambda query, tables, weights: jax.lax.map(lambda rows: exact_sum(query, rows, None, weights), tables))


def in_units(query, tables, weights):
    """Exact sums in whole units i64[tables, k], and the units f64[k]."""
    with jax.enable_x64(True):
        total = _sums(query, tables, weights)
        return np.asarray(total.high, np.int64) * 2**32 + np.asarray(total.low, np.int64), np.asarray(total.unit)


@functools.cache
def everything():
    """The table, its neighbours of all three kinds, where each kind lies, and last every row alone."""
    tables, places = [TABLE], {}
    for adjacency in Adjacency:
        more = list(neighbours(adjacency))
        places[adjacency] = slice(len(tables), len(tables) + len(more))
        tables += more
    return stacked(map(encoded, [*tables, *([row] for row in ALONE)])), places


def check_sensitivity(query, weights):
    steps, unit = in_units(query, everything()[0], weights)
    assert (unit == unit[0]).all()
    for adjacency, place in everything()[1].items():
        moved = (steps[place] - steps[0]) * unit[0]
        bound = query.bound
        if isinstance(query, Selection):
            assert np.abs(moved).max() <= float(bound)
            assert adjacency is Adjacency.REPLACE_ONE or ((moved >= 0).all(1) | (moved <= 0).all(1)).all()
        else:
            farthest = np.linalg.norm(moved, axis=1).max()
            assert farthest <= float(bound) * adjacency.sensitivity_factor * (1 + MARGIN)
        assert np.abs(moved).max() > 0.4 * float(bound)


@pytest.mark.slow(but=["gradient", "minimum"])
@EVERY_WEIGHED
def test_no_neighbour_moves_a_weighted_sum_by_more_than_the_bound(query):
    check_sensitivity(query, SHARES)


def test_planted_weights_that_are_not_divided_by_the_largest_are_caught():
    with pytest.raises(AssertionError):
        check_sensitivity(gradient(), SHARES * 10)


def check_after_clipping(query):
    classes = np.array([row[D] for row in ALONE])
    (full, unit), (part, same_unit) = (in_units(query, everything()[0], w) for w in (SHARES * 0 + 1, SHARES))
    np.testing.assert_array_equal(unit, same_unit)
    full, part = (sums[-len(ALONE) :] * unit[-len(ALONE) :] for sums in (full, part))
    # What is left is half a unit of rounding.
    np.testing.assert_allclose(part, full * np.asarray(SHARES, np.float64)[classes][:, None], atol=1e-6)
    assert np.abs(full - part).max() > 0.1 * float(query.bound)


@EVERY_WEIGHED
def test_a_row_counts_its_share_of_what_it_counts_after_clipping(query):
    check_after_clipping(query)


@struct.dataclass
class WeighsBeforeClipping(ClippedGradient):
    def exact(self, lines):
        counted = lines.block.counted.astype(jnp.float64)

        def factor(norms):
            return jnp.minimum(counted, self.clip_norm / jnp.maximum(norms, 1e-12))

        in_full = lines.replace(block=lines.block.replace(counted=jnp.sign(counted)))
        return self.model.exact_gradient_sum(self.params, in_full.map(self.features), factor, self.bound)


def test_planted_weights_before_clipping_are_caught():
    with pytest.raises(AssertionError):
        check_after_clipping(WeighsBeforeClipping(MODEL, f32(PARAMS), IDENTITY, CLIP, NOISE))


@pytest.mark.slow(but=["second_moment"])
@pytest.mark.parametrize(
    "query", [WEIGHED["gradient"], WEIGHED["second moment"], WEIGHED["loss"]], ids=lambda q: q.name
)
def test_equal_weights_are_no_weights_bit_for_bit(query):
    for weighted, plain in zip(
        in_units(query, everything()[0], class_weights.shares((7.0, 7.0))),
        in_units(query, everything()[0], None),
        strict=True,
    ):
        np.testing.assert_array_equal(weighted, plain)


def ask(query, weights=SHARES, rows=None, noise=Nothing):
    rows = jax.tree.map(jnp.asarray, encoded(TABLE)) if rows is None else rows
    here = Oracle(
        reader_of(rows), setup(weights), Spending(f32(0), f32(1e9)), noise(jax.random.key(0)), jnp.zeros((), int)
    )
    return here, here.ask(query)


@pytest.mark.long(cases=["cross moment"])
@pytest.mark.slow
@pytest.mark.parametrize("name", ["gradient", "normalized", "loss", "second moment", "cross moment"])
def test_a_simulation_weighs_each_row_by_its_class(name):
    query, rows = WEIGHED[name], jax.tree.map(jnp.asarray, encoded(TABLE))
    one_by_one = jax.vmap(lambda x, y: query.add(query.empty(), Rows(x[None], y[None], jnp.ones(1))))
    counts = rows.mask * SHARES[rows.y.astype(int)]
    expected = counts @ jax.jit(one_by_one)(rows.x, rows.y)
    for row_source in (rows, ArraySource(encoded(TABLE), 2)):
        np.testing.assert_allclose(ask(query, rows=row_source)[1], expected, rtol=1e-4, atol=1e-7)


@pytest.mark.slow(cases=["covariance", "bins"])
@pytest.mark.parametrize("query", DESCRIBE.values(), ids=DESCRIBE)
def test_what_describes_rows_counts_all_in_full(query):
    np.testing.assert_array_equal(ask(query)[1], ask(query, weights=None)[1])


def test_every_shipped_query_is_weighed_describes_rows_or_is_refused():
    def descendants(cls):
        return {cls}.union(*map(descendants, cls.__subclasses__()))

    ours = {cls for cls in descendants(Query) if cls.__module__.startswith("l2p.") and not cls.__abstractmethods__}
    assert {cls for cls in ours if cls.additive and not cls.weighed} == set(map(type, DESCRIBE.values()))


def test_a_release_weighs_rows_in_memory_and_in_a_stream_alike():
    def total(rows):
        here = Oracle(reader_of(rows), setup(), Spending(f32(0), f32(1e9)), HostNoise([], ()), jnp.zeros((), int))
        return here._aggregate(gradient(), jnp.array(True))

    with jax.enable_x64(True):
        expected = in_units(gradient(), everything()[0], SHARES)[0][0]
        for exact in (jax.jit(total)(jax.tree.map(jnp.asarray, encoded(TABLE))), total(ArraySource(encoded(TABLE), 3))):
            np.testing.assert_array_equal(np.asarray(exact.high) * 2**32 + np.asarray(exact.low), expected)


@pytest.mark.slow
def test_a_drawn_batch_is_weighed_by_the_classes_of_its_own_rows():
    rows = jax.tree.map(jnp.asarray, encoded(TABLE))
    with jax.enable_x64(True):
        lines = quantize(rows.x, rows.y, rows.mask)
        drawn = picked(lines, jnp.array([4, 1, 0]), jnp.array([1.0, 1.0, 0.0]))
        total = jax.jit(add_quantized)(WEIGHED["loss"], drawn, ExactSum.empty(2), SHARES).steps
    expected = in_units(WEIGHED["loss"], everything()[0], SHARES)[0][-len(ALONE) :]
    np.testing.assert_array_equal(total, expected[1] + expected[3])


def test_weights_change_neither_noise_nor_price():
    nobody = jax.tree.map(jnp.asarray, encoded([NULL]))
    (weighted, noised), (plain, expected) = (ask(gradient(), w, nobody, KeyNoise) for w in (SHARES, None))
    np.testing.assert_array_equal(noised, expected)
    assert float(weighted.spending.spent) == float(plain.spending.spent) > 0
    assert weighted.records[0].noise_multiplier == plain.records[0].noise_multiplier


def test_rows_of_one_person_weigh_at_most_one_each():
    weights = class_weights.shares((1.0, 4.0))
    for adjacency in Adjacency:
        steps, unit = in_units(units.GRADIENT, units.stacked(adjacency), weights)
        farthest = np.linalg.norm((steps[1:] - steps[0]) * unit[0], axis=1).max()
        most = units.sensitivity(units.GRADIENT, adjacency)
        assert 0.3 * most < farthest <= most * (1 + MARGIN + 1e-6)


def test_a_run_takes_units_and_weights_together():
    target = dataclasses.replace(WEIGHTED.target, weights=WEIGHTS)
    schema = dataclasses.replace(WEIGHTED, target=target, unit=Unit("person", 2))
    planned = plan_run(table(), admit("noisygd", BUDGET, MODEL, schema=schema), BUDGET, MODEL, schema=schema)
    assert planned.setup.rows_per_unit == 2
    np.testing.assert_array_equal(planned.setup.class_weights, SHARES)
