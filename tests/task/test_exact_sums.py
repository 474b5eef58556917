"""A row's contribution to a sum of a release depends only on that row and on public facts.

The property is exact: the sum over a table equals the sum over all rows but one plus that of this row on its own, in
whole units, for any table length, row position, other rows and params.
"""

import functools
import math
from fractions import Fraction
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import l2p
from l2p.base import struct
from l2p.models import INTERCEPT_COLUMN, MODELS, Logistic, Model, find_model
from l2p.oracle.sums import add_quantized, exact_sum
from l2p.privacy import Adjacency, Budget
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
    NoisyLineSearch,
    NoisyMinimum,
    NormalizedGradient,
    Query,
    SecondMoment,
    TargetSum,
)
from l2p.run.protector import Protector
from l2p.task import exact_sums
from l2p.task.exact_sums import BLOCK, MARGIN, Block, ExactSum, QuantizedRows, feature_bits, quantize
from l2p.task.feature_map import Basis, FeatureMap
from l2p.task.rows import Rows

D, CLIP = 5, 0.7
#: Powers of two and their neighbours, up to three blocks, and lengths at which a kernel of XLA was seen to change.
COUNTS = sorted({n + step for n in (2, 8, 16, 128, 1024, 4096) for step in (-1, 0, 1)} | {24, 25, 5000})
PLACES = (0, 1, 7, 8, 63, 64, 1023, 2046, 2047, 2048, 2049, 4095, 4096, 4999)
RANDOM = np.random.default_rng(20261124)


def f32(value):
    return jnp.asarray(value, jnp.float32)


def square_basis(size, seed=0):
    """Directions that are far from orthogonal and of different lengths, as a private eigenbasis may have."""
    forward = np.random.default_rng(seed).normal(size=(size, size)) * np.exp(np.linspace(-1, 2, size))
    return Basis(f32(forward), f32(np.linalg.inv(forward)))


def moved(size, basis=None):
    return FeatureMap(f32(np.linspace(0.2, 0.9, size)), f32(1.7), basis)


class Unfamiliar(Logistic):
    """A user's model without a closed form."""

    exact_gradient_sum = Model.exact_gradient_sum
    exact_losses = Model.exact_losses
    exact_classes = Model.exact_classes


@struct.dataclass
class Custom(Query):
    """A user's own query, which defines only a row's contribution."""

    noise_multiplier: jax.Array
    name: ClassVar[str] = "custom"
    mechanism: ClassVar[str] = "gaussian"

    @property
    def bound(self):
        return f32(CLIP)

    def contributions(self, rows):
        return jnp.sin(3.0 * rows.x) * rows.y[:, None] + rows.x

    def empty(self):
        return jnp.zeros(D)


def params_for(model, size=D, scale=1.0, seed=1):
    return f32(np.random.default_rng(seed).normal(size=model.num_params(size)) * scale)


def gradient(model="logistic", features=None, size=D, scale=1.0):
    model = find_model(model) if isinstance(model, str) else model
    features = FeatureMap.identity(size) if features is None else features
    return ClippedGradient(model, params_for(model, size, scale), features, f32(CLIP), f32(1.0))


def losses(model="logistic", size=D, scale=1.0, query=ClippedLoss):
    model = find_model(model) if isinstance(model, str) else model
    candidates = jnp.stack([params_for(model, size, scale, seed) for seed in range(3)])
    return query(model, candidates, f32(CLIP), f32(1.0))


def line_search(scale=1.0):
    model = MODELS["logistic"]
    params, direction = params_for(model, D, scale), params_for(model, D, scale, 2)
    return NoisyLineSearch(model, params, direction, f32([0.0, 0.3, 1.0]), f32(CLIP), f32(1.0))


QUERIES = {
    **{f"gradient of {name}": gradient(name) for name in (*MODELS, "softmax:3")},
    "gradient of an unfamiliar model": gradient(Unfamiliar()),
    "gradient of centred rows": gradient("hinge", moved(D)),
    "gradient through a basis": gradient("logistic", moved(D, square_basis(D))),
    "softmax through a basis": gradient("softmax:3", moved(D, square_basis(D))),
    "normalized gradient": NormalizedGradient(
        MODELS["logistic"], params_for(MODELS["logistic"]), moved(D), f32(CLIP), f32(0.01), f32(1.0)
    ),
    "gradient norm": GradientNorm(gradient(), f32(1.0)),
    **{f"losses of {name}": losses(name) for name in ("logistic", "hinge", "mlp", "softmax:3", "quadratic")},
    "losses of an unfamiliar model": losses(Unfamiliar()),
    "minimum": losses("svm", query=NoisyMinimum),
    "line search": line_search(),
    **{
        f"correct by {name}": CorrectCount(find_model(name), params_for(find_model(name)), f32(1.0))
        for name in ("logistic", "square", "mlp", "softmax:3")
    },
    "mean": FeatureSum(D, f32(CLIP), f32(1.0)),
    "targets": TargetSum(1, f32(1.0)),
    "classes": TargetSum(3, f32(1.0)),
    "length": LengthSum(moved(D, square_basis(D)), f32(2.0), f32(1.0)),
    "second moment": SecondMoment(D, f32(CLIP), f32(1.0)),
    "least eigenvalue": LeastEigenvalue(SecondMoment(D, f32(CLIP), f32(1.0)), f32(1.0)),
    "covariance": Covariance(moved(D, square_basis(D)), f32(CLIP), f32(1.0)),
    "cross moment": CrossMoment(D, f32(CLIP), f32(1.0)),
    "custom": Custom(f32(1.0)),
}
EVERY = pytest.mark.parametrize("name", QUERIES)


def table(count, size=D, seed=0, equal=False):
    """Rows of which some are null and some not finite; or the same row again and again."""
    random = np.random.default_rng(seed)
    x = np.full((count, size), 1 / 3) if equal else random.random((count, size)) ** 2
    y = np.ones(count) if equal else random.integers(0, 3, count) / 1.0
    mask = np.ones(count) if equal else random.random(count) < 0.9
    if not equal and count > 11:
        x[11, 0] = np.nan
    return tuple(np.asarray(leaf, np.float32) for leaf in (x, y, mask))


_raw = jax.jit(quantize)
_add = jax.jit(add_quantized)


def stacked(x, y, mask, blocks=3):
    """Blocks as a release makes them, followed by null ones, so that tests compile for one number of blocks."""
    with jax.enable_x64(True):
        lines = _raw(jnp.asarray(x), jnp.asarray(y), jnp.asarray(mask))
        assert lines.block.y.shape == (-(-len(y) // BLOCK), BLOCK)  # of one size for any table
        more = blocks - lines.block.y.shape[0]
        pad = lambda leaf: jnp.pad(leaf, [(0, more)] + [(0, 0)] * (leaf.ndim - 1))  # noqa: E731
        return lines.replace(block=jax.tree.map(pad, lines.block))


def units(total):
    return np.asarray(total.high).astype(np.int64) * 2**32 + np.asarray(total.low).astype(np.int64)


def summed(query, lines):
    with jax.enable_x64(True):
        return _add(query, lines, ExactSum.empty(query.empty().shape[0]))


def total(query, rows):
    return units(summed(query, stacked(*rows)))


@functools.cache
def prefixes():
    rows = table(max(COUNTS))
    return {count: stacked(*(leaf[:count] for leaf in rows)) for count in {*COUNTS, *(n - 1 for n in COUNTS if n > 1)}}


@functools.cache
def alone(place):
    return stacked(*(leaf[place : place + 1] for leaf in table(max(COUNTS))))


@pytest.mark.slow(but=["correct by square", "least eigenvalue"])
@EVERY
def test_a_row_adds_the_same_to_a_table_of_any_length(name):
    query, lines = QUERIES[name], prefixes()
    sums = {count: units(summed(query, each)) for count, each in lines.items()}
    for count in COUNTS:
        before = sums[count - 1] if count > 1 else 0
        assert np.array_equal(sums[count], before + units(summed(query, alone(count - 1)))), count
    assert np.abs(sums[5000]).max() > 1000


@pytest.mark.slow(but=["*mo*", "minimum", "line search", "correct by s*", "losses of quadratic", "least*", "custom"])
@EVERY
def test_a_row_adds_the_same_at_any_place_and_within_its_bound(name):
    query = QUERIES[name]
    x, y, mask = table(5000, seed=1)
    full = total(query, (x, y, np.ones_like(mask)))
    for place in PLACES:
        without = total(query, (x, y, (np.arange(5000) != place).astype(np.float32)))
        single = summed(query, stacked(x[place : place + 1], y[place : place + 1], np.ones(1, np.float32)))
        assert np.array_equal(full - without, units(single)), place
        assert np.linalg.norm(units(single) * np.asarray(single.unit)) <= length_bound(query) * (1 + MARGIN)
    order = np.random.default_rng(2).permutation(5000)
    assert np.array_equal(full, total(query, (x[order], y[order], np.ones_like(mask))))


def length_bound(query):
    """The maximum length of a row's contribution: for selections, every entry may reach the bound."""
    if isinstance(query, (NoisyMinimum, NoisyLineSearch)):
        return float(query.bound) * query.num_candidates**0.5
    return float(query.bound)


@pytest.mark.parametrize("scale", [1.0, 1e3, 1e6, 1e9])
@pytest.mark.parametrize(
    "make", [functools.partial(gradient, "hinge"), functools.partial(losses, "logistic"), line_search]
)
@pytest.mark.parametrize("equal", [False, True])
def test_params_of_any_scale_that_cancel_on_a_row_change_nothing(make, scale, equal):
    query = make(scale=scale)
    for count in (2, 25, 129, 1025):
        rows = table(count, equal=equal, seed=3)
        parts = [total(query, tuple(leaf[place : place + 1] for leaf in rows)) for place in (0, count - 1)]
        without = total(query, tuple(leaf[:-1] for leaf in rows))
        assert np.array_equal(total(query, rows), without + parts[1])
        if equal:
            assert np.array_equal(total(query, rows), count * parts[0])


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 33, 128, 500])
def test_a_row_adds_the_same_with_any_number_of_features(size):
    for query in (gradient("hinge", moved(size), size), losses("logistic", size, 1e3)):
        rows = table(300, size, equal=False, seed=4)
        part = total(query, tuple(leaf[-1:] for leaf in rows))
        assert np.array_equal(total(query, rows), total(query, tuple(leaf[:-1] for leaf in rows)) + part)


# ---------------------------------------------------------------------------- against exact arithmetic, by fractions
def exact_dot(steps, shift, unit, weights, constant):
    """The sum that `Lines.dot` specifies, of weights rounded to whole units, in exact fractions."""
    bits = 52 - (feature_bits(len(weights)) + 1) - math.ceil(math.log2(len(weights)))
    scaled = [float(weight) * float(unit) for weight in np.asarray(weights, float)]
    step = max(max(map(abs, scaled)) * 2.0**-bits, abs(float(constant)) * 2.0**-52)
    units_of_weights = [Fraction(float(np.rint(weight / step))) for weight in scaled]
    moved_steps = [Fraction(float(s)) - Fraction(float(c)) for s, c in zip(steps, shift, strict=True)]
    terms = sum((s * w for s, w in zip(moved_steps, units_of_weights, strict=True)), Fraction(0))
    return float(terms + Fraction(float(np.rint(float(constant) / step)))) * step


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1.0, 1e9])
def test_margins_are_those_of_exact_arithmetic(scale):
    x, y, mask = table(40, seed=5)
    x[3] = x[4] = np.nan
    weights, constant = RANDOM.normal(size=D) * scale, RANDOM.normal() * scale
    weights[1] = -weights[0]  # cancels on rows that are equal there
    x[:, 1] = x[:, 0]
    with jax.enable_x64(True):
        lines = stacked(x, y, mask).map(moved(D))
        first = lines.replace(block=jax.tree.map(lambda leaf: leaf[0], lines.block))
        sums = np.asarray(jax.jit(QuantizedRows.dot)(first, f32(weights), jnp.asarray(constant)))[:40]
        steps, shift, unit = np.asarray(first.steps)[:40], np.asarray(first.shift), float(first.unit)
    exact = [exact_dot(line, shift, unit, np.float32(weights), constant) for line in steps]
    assert np.array_equal(sums, exact)
    # Rounding is small: features to 2^-22, weights to 2^-27 of the largest.
    valid = (mask > 0) & np.isfinite(x).all(1)
    values = (np.where(valid[:, None], x, 0) - np.asarray(moved(D).center)) * 1.7
    np.testing.assert_allclose(sums, values @ np.float32(weights) + constant, atol=5 * scale * 2e-6)


def hinge_gradient(x, y, params):
    """A hinge gradient's sign, by exact arithmetic on rounded features: -(2 y - 1) where (2 y - 1) margin < 1."""
    steps = np.rint(np.float32(x) * 2.0 ** feature_bits(D))
    constant = INTERCEPT_COLUMN * float(params[-1])
    margin = exact_dot(steps, np.zeros(D), 2.0 ** -feature_bits(D), np.float32(params[:-1]), constant)
    sign = 2 * y - 1
    return -sign if sign * margin < 1 else 0


def kinks():
    """Rows whose margin is 1 up to differences that float32 cannot represent: params of 2^26 that cancel."""
    params = np.float32([2.0**26, 1.0, -(2.0**26), 0.0, 0.0, 0.0])
    x = np.repeat(RANDOM.random((40, 1)), D, 1).astype(np.float32)
    x[:, 1] = 1.0
    x[::2, 1] -= 2.0**-20
    return x, np.ones(40, np.float32), params


def hinge_signs(margins, y):
    return np.asarray(MODELS["hinge"].residual(jnp.asarray(margins), jnp.asarray(y)))


def test_a_hinge_turns_where_exact_arithmetic_says():
    x, y, params = kinks()
    query = ClippedGradient(MODELS["hinge"], f32(params), FeatureMap.identity(D), f32(10.0), f32(1.0))
    expected = [hinge_gradient(line, label, params) for line, label in zip(x, y, strict=True)]
    assert 0 < np.count_nonzero(expected) < 40
    for place in range(40):
        part = total(query, (x[place : place + 1], y[place : place + 1], np.ones(1, np.float32)))
        assert np.sign(part[1]) == expected[place]


# --------------------------------------------------------------------------------------------- planted bugs are caught
def cancelling(count=2, size=16):
    """Losses of candidates of scale 1e9 whose margins are 0 on rows that are equal in every feature."""
    params = np.random.default_rng(0).normal(size=(count, size + 1))
    params[:, :-1] -= params[:, :-1].mean(1, keepdims=True)
    params[:, -1] = 0
    return ClippedLoss(MODELS["logistic"], f32(1e9 * params), f32(1.0), f32(1.0))


_contributions = jax.jit(lambda query, rows: query.contributions(rows))


def sum_that_follows_the_table(query, x, y, mask):
    """Release sums with a planted bug: float32 contributions, in blocks whose size follows the number of lines."""
    size, count = query.empty().shape[0], len(y)
    block = min(4096, count)
    total, rows = jnp.zeros(size), jax.tree.map(jnp.asarray, Rows(x, y, mask))
    grid = float(query.bound) / 2.0**20
    for start in range(0, count, block):
        part = jax.tree.map(lambda leaf, start=start: leaf[start : start + block], rows)
        with jax.enable_x64(True):
            limited = query.limit(_contributions(query, part).astype(jnp.float64))
            total = total + (jnp.rint(limited / grid) * part.mask[:, None]).sum(0)
    return np.asarray(total).astype(np.int64)


def is_broken(sum_of, rows):
    """True if the last row's contribution to the table differs from its sum alone."""
    alone = sum_of(*(leaf[-1:] for leaf in rows))
    without, full = sum_of(*(leaf[:-1] for leaf in rows)), sum_of(*rows)
    return not np.array_equal(full, without + alone)


@pytest.mark.slow
def test_float32_contributions_in_a_block_that_follows_the_table_are_caught():
    # Which of these tables shows it depends on the processor: some have no more rounding in one block than in another.
    counts = {16: (25, 129, 1025), 17: (3, 25), 7: (25,)}
    cases = [(cancelling(size=size), table(count, size, equal=True)) for size in counts for count in counts[size]]
    assert any(is_broken(functools.partial(sum_that_follows_the_table, query), rows) for query, rows in cases)
    assert not any(
        is_broken(functools.partial(lambda query, *rows: total(query, rows), query), rows) for query, rows in cases
    )


@pytest.mark.slow
def test_rows_mapped_outside_the_block_are_caught():
    size, bits = 128, feature_bits(128)
    forward = f32(np.random.default_rng(0).normal(size=(size, size)))
    features = moved(size, Basis(forward, jnp.linalg.inv(forward)))
    query, apply = gradient("logistic", None, size), jax.jit(features.apply)

    def mapped_before(x, y, mask):
        mapped, unit = np.asarray(apply(x)), 2.0 ** (5 - bits)
        with jax.enable_x64(True):
            empty = stacked(np.zeros_like(mapped), y, mask)
            steps = np.zeros((3 * BLOCK, size), np.float32)
            steps[: len(y)] = np.rint(mapped / unit)
            block = Block.of(jnp.asarray(steps.reshape(3, BLOCK, size)), empty.block.y, empty.block.counted)
            public = jnp.zeros(size), jnp.asarray(unit), jnp.asarray(-(2.0**bits))
            return units(summed(query, QuantizedRows(block, *public)))

    def mapped_within(x, y, mask):
        with jax.enable_x64(True):
            return units(summed(query, exact_sums.mapped(stacked(x, y, mask), features)))

    tables = [table(count, size, seed=count) for count in range(2, 12)]
    assert any(is_broken(mapped_before, rows) for rows in tables)
    assert not any(is_broken(mapped_within, rows) for rows in tables)


def test_a_kink_met_by_rounded_margins_is_caught():
    x, y, params = kinks()
    expected = [hinge_gradient(line, label, params) for line, label in zip(x, y, strict=True)]
    rounded = x @ params[:-1] + np.float32(INTERCEPT_COLUMN) * params[-1]
    assert not np.array_equal(hinge_signs(rounded, y), expected)


@pytest.mark.slow
def test_blocks_have_one_size_whatever_the_table_s_and_one_that_follows_it_is_caught(monkeypatch):
    def shape(count):
        with jax.enable_x64(True):
            return quantize(*(jnp.asarray(leaf) for leaf in table(count))).block.y.shape

    assert [shape(count) for count in (1, 100, 2048, 2049)] == [(1, 2048), (1, 2048), (1, 2048), (2, 2048)]
    assert BLOCK == 2048
    monkeypatch.setattr(exact_sums, "BLOCK", 128)  # as with min(BLOCK, lines)
    assert shape(100) != (1, BLOCK)


# ------------------------------------------------------------------------------------------------- from end to end
@struct.dataclass
class Ask(Protector):
    """Asks one query, and releases its answer."""

    query: Query
    num_steps: int = struct.field(pytree_node=False, default=1)
    adaptive_noise = False

    def init(self, params, oracle):
        return params, ()

    def step(self, params, state, oracle):
        noise = oracle.noise_multiplier(0.99 * oracle.setup.price_list.budget)
        answer = oracle.ask(self.query.replace(noise_multiplier=noise))
        return params.at[: answer.shape[0]].set(answer), state

    def finish(self, params, state, setup):
        return params


@pytest.mark.slow
def test_a_release_moves_by_one_row_s_bound_where_the_table_has_a_line_more():
    """Review 1.1: at params of 1e9 that cancel on equal rows, 1,025 lines in place of 1,024 moved a sum by 1,025."""
    query, answers = cancelling(), {}
    for count in (1024, 1025):
        x, y, mask = table(count, 16, equal=True)
        result = l2p.private_train(
            Rows(x, y, mask), Ask(query), Budget(2000.0, 1e-6, Adjacency.ADD_REMOVE), num_rows=1000
        )
        assert result.card.private_release
        answers[count] = np.asarray(result.params)[:2]
    moved = np.abs(answers[1025] - answers[1024]).max()
    assert moved < 1.0 + 0.5  # the bound, and noise of .05


@pytest.mark.slow
def test_rows_in_memory_and_rows_that_stream_sum_up_to_the_same_units():
    query, rows = gradient("logistic"), table(5000, seed=6)
    view = moved(D, square_basis(D))
    with jax.enable_x64(True):
        here = exact_sums.mapped(stacked(*rows), view)
        streamed = [
            units(exact_sum(query, Rows(*(jnp.asarray(leaf[at : at + 777]) for leaf in rows)), view))
            for at in range(0, 5000, 777)
        ]
    assert np.array_equal(units(summed(query, here)), sum(streamed))
