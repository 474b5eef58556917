"""Queries on batches: the rows that are added up, and what a query costs."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.oracle import Oracle, Terms, reader_of
from l2p.privacy import Answered, Event, Filter
from l2p.queries import FeatureSum
from l2p.run.run import Simulation, advance_streaming, start
from l2p.task.exact_sums import value_of
from l2p.task.noise import Batch, HostNoise
from l2p.task.rows import Rows
from l2p.task.sources import ArraySource
from tests.run.batches import (
    ASKS,
    EPOCHS,
    EVERY,
    KEY,
    QUIET,
    SAMPLERS,
    STEPS,
    WHO,
    N,
    budget_for,
    drawn_batches,
    drawn_for,
    f32,
    members_of,
    read,
    reader,
    release,
    setup,
)


def garbage_rows():
    """Rows of four features in [0, 1]; line 0, which padding points at, holds huge numbers, and line 3 NaNs."""
    x = np.random.default_rng(1).random((N, 4)).astype(np.float32)
    x[0] = 1e15
    x[3, 1] = np.nan
    return Rows(f32(x), jnp.zeros(N, jnp.float32), jnp.ones(N, jnp.float32).at[5].set(0.0))


def naive_sums(lines, clip=1.0):
    """f64[n, 4], the sum over drawn lines i32[n, capacity], clipped and without null rows, one line at a time."""
    x = np.asarray(garbage_rows().x, float)
    sums = np.zeros((len(lines), x.shape[1]))
    for total, listed in zip(sums, lines, strict=True):
        for line in listed[listed >= 0]:
            if line not in (3, 5):
                total += x[line] * min(1.0, clip / np.linalg.norm(x[line]))
    return sums


@pytest.mark.long(cases=["None-*", "7-fixed-size"])
@pytest.mark.slow(but=["7-permutation epochs"])
@SAMPLERS
@pytest.mark.parametrize("block", [None, 7, 16, 100])
def test_a_release_adds_up_the_drawn_rows_and_no_padding(sampler, block):
    rows = garbage_rows() if block is None else ArraySource(jax.tree.map(np.asarray, garbage_rows()), block)
    drawn = drawn_for(sampler, 4, num_steps=4)
    _, current = release(sampler, rows, drawn)
    total, answers = current.state
    batches = drawn_batches(drawn)
    assert len(batches) == (1 if sampler is EPOCHS else ASKS)
    assert any(0 not in listed for lines in batches for listed in lines)
    for ask in range(ASKS):
        expected = naive_sums(batches[min(ask, len(batches) - 1)])
        np.testing.assert_allclose(answers[:, ask], expected, atol=1e-4)  # N rows rounded to a grid of 2^-20
    np.testing.assert_allclose(total, naive_sums(np.arange(N)[None])[0], atol=1e-4)


@pytest.mark.long(cases=["Poisson", "fixed-size"])
@pytest.mark.slow
@pytest.mark.parametrize("sampler", EVERY, ids=lambda sampler: sampler.name)
def test_a_simulation_adds_up_the_rows_that_it_drew(sampler):
    # The same key draws the same lines of any table of N rows: unit vectors tell which.
    members = members_of(read(sampler)[0].state[1])
    lines = np.where(members, np.arange(N), -1).reshape(-1, N)
    answers = np.asarray(read(sampler, garbage_rows())[0].state[1]).reshape(-1, 4)
    np.testing.assert_allclose(answers, naive_sums(lines), atol=20 * QUIET)


@pytest.mark.long(cases=["Poisson"])
@pytest.mark.slow
@SAMPLERS
def test_a_simulation_over_a_stream_draws_what_it_draws_in_memory(sampler):
    here, protector, noise = setup(sampler, cap=f32(math.inf)), reader(sampler), Simulation(KEY)
    source = ArraySource(jax.tree.map(np.asarray, WHO), 16)
    current, _ = start(protector, jnp.zeros(N + 1), source, here, noise)
    current, _ = advance_streaming(protector, current, source, here, noise, 4)
    np.testing.assert_allclose(current.state[1][:4], read(sampler)[0].state[1][:4], atol=1e-5)


@pytest.mark.slow
@SAMPLERS
def test_null_rows_are_drawn_as_others_are_and_contribute_nothing(sampler):
    null = WHO.replace(mask=WHO.mask.at[jnp.array([0, 9])].set(0.0))
    before, after = (members_of(read(sampler, rows)[0].state[1]) for rows in (WHO, null))
    assert before[..., 0].any()
    assert before[..., 9].any()
    assert not after[..., [0, 9]].any()
    before[..., [0, 9]] = False
    assert np.array_equal(before, after)


class Scripted(HostNoise):
    """Given batches, and no noise."""

    def __init__(self, batch):
        self.rows_drawn, self.calls = batch, []

    def add(self, distribution, aggregate, scale):
        return value_of(aggregate)

    def batch(self, sampler, num_rows, step):
        self.calls.append((sampler, num_rows, int(step)))
        return self.rows_drawn


@pytest.mark.slow
@SAMPLERS
def test_a_query_in_init_reads_every_row_and_pays_for_every_row(sampler):
    current, first, later = read(sampler)
    assert members_of(current.state[0]).all()
    accountant, event = setup(sampler).price_list, Event("gaussian", f32(QUIET))
    assert float(first[0].cost) == pytest.approx(float(accountant.price(event)), rel=1e-6)
    # And so it does where sampling amplifies: a quieter query, of which a sampled one costs less.
    noise = f32(30.0)
    costs = []
    for sampled in (False, True):
        scripted = Scripted(Batch(jnp.array([4, 0], jnp.int32), f32([1.0, 0.0])))
        oracle = Oracle(
            reader_of(WHO),
            setup(sampler, cap=f32(math.inf)),
            fresh_spending(),
            scripted,
            jnp.array(2),
            Terms(sampled=sampled),
        )
        answer = oracle.ask(FeatureSum(N, f32(1.0), noise))
        costs.append(float(oracle.records[0].cost))
        assert np.flatnonzero(np.rint(answer)).tolist() == ([4] if sampled else list(range(N)))
        assert scripted.calls == ([(sampler, N, 2)] if sampled else [])
        events = [Answered(3 if sampled else 0, "gaussian", 30.0)]
        assert costs[-1] == pytest.approx(Filter("rdp", budget_for(sampler), sampler, STEPS).spent(events), rel=1e-3)
    assert costs[0] == pytest.approx(float(accountant.price(Event("gaussian", noise))), rel=1e-6)
    assert costs[1] < 0.5 * costs[0] if sampler is not EPOCHS else costs[1] == costs[0]
    assert len(later) == 1


def fresh_spending():
    from l2p.privacy import Spending

    return Spending(f32(0.0), f32(math.inf))
