"""Readers: in memory, streamed and remote ones give the same sums, and an oracle calls none before it has charged."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.base.errors import InputError
from l2p.models import Logistic
from l2p.oracle import InMemory, Oracle, Reader, Remote, Streamed, Terms, reader_of
from l2p.oracle.setup import Setup
from l2p.privacy.budget import Budget
from l2p.privacy.cap.filter import Filter
from l2p.privacy.cap.spending import Spending
from l2p.privacy.cost.sampling import FullBatch, Poisson
from l2p.queries import ClippedGradient
from l2p.queries.descent import Descent
from l2p.task.exact_sums import ExactSum, mapped, quantize
from l2p.task.feature_map import Basis, FeatureMap
from l2p.task.noise import Batch, BatchDraw, Draw, HostNoise, KeyNoise
from l2p.task.rows import Rows
from l2p.task.sources import ArraySource, RemoteRows

MODEL, N, D = Logistic(), 40, 3
RANDOM = np.random.default_rng(0)
X = RANDOM.random((N, D)).astype(np.float32)
X[7, 1] = np.nan  # a null row to every reader
ROWS = Rows(X, (RANDOM.random(N) > 0.4).astype(np.float32), np.ones(N, np.float32))
ON_DEVICE = jax.tree.map(jnp.asarray, ROWS)
VIEW = FeatureMap(
    jnp.float32([0.1, 0.2, 0.3]),
    jnp.float32(1.5),
    Basis(jnp.float32(RANDOM.normal(size=(D, D))), jnp.eye(D)),
)
PARAMS = jnp.float32([0.3, -0.2, 0.5, 0.1])
QUERY = ClippedGradient(MODEL, PARAMS, FeatureMap.identity(D), jnp.float32(0.8), jnp.ones(()))
GRADIENT = QUERY.replace(noise_multiplier=jnp.float32(8.0))
SOLVE = Descent(MODEL, jnp.zeros(D + 1), *map(jnp.float32, (1.0, 0.1, 1.0, N, 8.0)))
GAUSSIAN = Draw("gaussian", D + 1)
BATCH = Batch(jnp.array([5, 7, 31, 0, 0], jnp.int32), jnp.float32([1, 1, 1, 1, 0]))
WEIGHTS = jnp.float32([1.0, 0.3])


class Elsewhere(RemoteRows):
    """Three machines of rows."""

    num_rows, num_features = N, D
    parts = (slice(0, 9), slice(9, 30), slice(30, N))

    def exact_sum(self, summed, lines):
        member = np.ones(N, bool) if lines is None else np.isin(np.arange(N), lines)
        sums = [summed(iter([Rows(X[part], ROWS.y[part], member[part].astype(np.float32))])) for part in self.parts]
        return ExactSum(*(sum(getattr(part, name) for part in sums) for name in ("high", "low")), sums[0].unit)


def readers(view=None):
    with jax.enable_x64(True):
        lines = quantize(ON_DEVICE.x, ON_DEVICE.y, ON_DEVICE.mask)
        lines = lines if view is None else mapped(lines, view)
    return [InMemory(ON_DEVICE, lines), Streamed(ArraySource(ROWS, 16), view), Remote(Elsewhere(), view)]


def setup(sampler=FullBatch()):  # noqa: B008 - it has no state
    budget = Budget(5.0, 1e-5)
    prices = Filter("rdp" if sampler != FullBatch() else "gdp", budget, sampler, 5).price_list()
    return Setup.create(MODEL, budget.adjacency, prices, N)


def test_each_source_has_its_reader():
    readers_of_sources = [reader_of(rows) for rows in (ON_DEVICE, ArraySource(ROWS, 16), Elsewhere())]
    assert [type(reader) for reader in readers_of_sources] == [InMemory, Streamed, Remote]
    assert {reader.num_lines for reader in readers_of_sources} == {N}


@pytest.mark.slow
@pytest.mark.parametrize(("view", "batch"), [(None, BATCH), (VIEW, None)], ids=["raw, batch", "mapped, all rows"])
def test_exact_sums_are_the_same_whoever_reads(view, batch):
    with jax.enable_x64(True):
        sums = [jax.device_get(reader.exact_sum(QUERY, batch, WEIGHTS)) for reader in readers(view)]
        values = [exact_sum.high * 2.0**32 + exact_sum.low for exact_sum in sums]
    assert np.abs(values[0]).max() > 0
    for exact_sum, value in zip(sums[1:], values[1:], strict=True):
        np.testing.assert_array_equal(value, values[0])
        np.testing.assert_array_equal(exact_sum.unit, sums[0].unit)


@pytest.mark.slow
def test_releases_are_the_same_to_the_last_bit_whoever_reads():
    sampler, answers = Poisson(0.1), []
    drawn = np.array([5, 7, 31, -1], np.int32), RANDOM.normal(size=D + 1).view(np.uint32).reshape(D + 1, 2)
    for reader in readers():
        here, noise = setup(sampler), HostNoise(list(map(jnp.asarray, drawn)), (BatchDraw(sampler, N), GAUSSIAN))
        spending = Spending(jnp.zeros(()), here.cap)
        oracle = Oracle(reader, here, spending, noise, jnp.zeros((), jnp.int32), Terms(sampled=True))
        answers.append(np.asarray(oracle.ask(GRADIENT)))
        assert bool(oracle.records[0].granted)
    assert np.abs(answers[0]).max() > 0
    assert all(np.array_equal(answer, answers[0]) for answer in answers)


@pytest.mark.slow
def test_simulations_that_add_in_floating_point_agree_with_exact_ones():
    sums = []
    for reader in (InMemory(clean()), *readers()[1:]):
        with jax.enable_x64(reader.always_exact):
            sums.append(np.asarray(reader.sum(QUERY, None, WEIGHTS)))
    for float_sum in sums[1:]:
        assert float_sum.dtype == np.float32
        np.testing.assert_allclose(float_sum, sums[0], rtol=1e-4, atol=1e-4)


def clean():
    """The rows in memory as a simulation has them."""
    valid = np.isfinite(X).all(1)
    return Rows(jnp.asarray(np.where(valid[:, None], X, 0)), ON_DEVICE.y, jnp.asarray(valid, jnp.float32))


class Watched(Reader):
    """Rows that are to be read only once their query has been charged."""

    num_lines = N

    def __init__(self, skips):
        self.skips_refused, self.calls, self.oracle = skips, [], None

    def _note(self, call):
        self.calls.append((call, float(self.oracle.spending.spent)))

    def sum(self, query, batch, weights):
        self._note("sum")
        return query.empty()

    def exact_sum(self, query, batch, weights):
        self._note("exact_sum")
        return ExactSum.empty(query.empty().shape[0])

    def whole(self, query, exact):
        self._note("whole")
        return clean()


def watched(noise, skips=True, **terms):
    here, reader = setup(), Watched(skips)
    reader.oracle = Oracle(reader, here, Spending(jnp.zeros(()), here.cap), noise, jnp.zeros((), int), Terms(**terms))
    return reader


def host_noise():
    return HostNoise([jnp.zeros((D + 1, 2), jnp.uint32)], (GAUSSIAN,))


@pytest.mark.parametrize(
    ("query", "noise", "call"),
    [
        (GRADIENT, lambda: KeyNoise(jax.random.key(0)), "sum"),
        (GRADIENT, host_noise, "exact_sum"),
        (SOLVE, lambda: KeyNoise(jax.random.key(0)), "whole"),
    ],
    ids=["simulated", "released", "solved"],
)
def test_a_reader_is_called_once_and_only_after_the_charge(query, noise, call):
    reader = watched(noise())
    reader.oracle.ask(query)
    ((called, spent),) = reader.calls
    assert called == call
    assert spent == float(reader.oracle.spending.spent) > 0


def test_a_refused_query_is_not_read_where_that_is_known():
    too_dear = QUERY.replace(noise_multiplier=jnp.float32(1e-3))
    reader = watched(KeyNoise(jax.random.key(0)))
    assert not np.any(reader.oracle.ask(too_dear))
    assert not reader.calls
    assert float(reader.oracle.spending.spent) == 0
    in_memory = watched(KeyNoise(jax.random.key(0)), skips=False)
    assert not np.any(in_memory.oracle.ask(too_dear))
    assert in_memory.calls == [("sum", 0.0)]


def test_what_a_protector_may_not_ask_reads_nothing():
    reader = watched(KeyNoise(jax.random.key(0)), mechanisms=("laplace",))
    with pytest.raises(TypeError, match="does not declare"):
        reader.oracle.ask(GRADIENT)
    sums = watched(KeyNoise(jax.random.key(0)), sums_only=True)
    with pytest.raises(TypeError, match="additive = False"):
        sums.oracle.ask(SOLVE)
    sums.oracle.close()
    with pytest.raises(RuntimeError, match="after its step"):
        sums.oracle.ask(GRADIENT)
    assert not reader.calls
    assert not sums.calls


def test_a_solve_needs_rows_in_memory():
    for reader in readers()[1:]:
        with pytest.raises(InputError, match="cannot stream"):
            reader.whole(SOLVE, exact=False)
    rows = readers()[0].whole(SOLVE, exact=False)
    assert all(
        leaf is original for leaf, original in zip(jax.tree.leaves(rows), jax.tree.leaves(ON_DEVICE), strict=True)
    )
