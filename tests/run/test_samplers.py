"""Samplers: which rows are drawn, how often, and independently of which others."""

import functools
import math

import jax
import numpy as np
import pytest
import scipy.stats

from l2p.privacy.cost.sampling import FixedSize, Poisson
from l2p.task.entropy import Entropy
from l2p.task.noise import BatchDraw
from tests.run.batches import (
    ASKS,
    EPOCHS,
    FIXED,
    KEY,
    LEVEL,
    POISSON,
    RATE,
    RUNS,
    SIZE,
    STEPS,
    N,
    drawn_batches,
    frequency_p,
    members_of,
    read,
    release,
    sizes_p,
)


def many(sampler):
    """True for rows in the batch of an ask: bool[RUNS, STEPS, ASKS, N]."""
    answers = jax.jit(jax.vmap(lambda key: read(sampler, key=key)[0].state[1]))(jax.random.split(KEY, RUNS))
    return members_of(answers)


simulated = functools.cache(many)


@functools.cache
def released(sampler):
    """The same shape from the generator of releases; permutation epochs share a step's batch."""
    asks = 1 if sampler is EPOCHS else ASKS
    drawn = Entropy(3).draw([BatchDraw(sampler, N)] * asks, RUNS * STEPS)
    return np.stack([lines_to_members(lines) for lines in drawn], 1).reshape(RUNS, STEPS, asks, N)


def lines_to_members(lines):
    """i32[n, capacity] with -1 for none -> bool[n, N]; no row is listed twice."""
    members = np.zeros((len(lines), N), int)
    for row, listed in zip(members, lines, strict=True):
        np.add.at(row, listed[listed >= 0], 1)
    assert members.max() <= 1
    return members.astype(bool)


SOURCES = pytest.mark.parametrize("drawn_by", [simulated, released], ids=["simulated", "released"])


def pairs_z(members, correlation=0.0):
    """Largest |z| over pairs of rows. Null: their inclusions correlate by `correlation` exactly; |z| > 6.5 has
    probability 780 * 8e-11 = 6e-8 at most."""
    flat = members.reshape(-1, N)
    correlations = np.corrcoef(flat.T)[np.triu_indices(N, 1)]
    return np.abs(correlations - correlation).max() * math.sqrt(len(flat))


@pytest.mark.slow(but=["released"])
@SOURCES
def test_a_poisson_batch_holds_every_row_with_the_stated_probability_independently_of_others(drawn_by):
    members = drawn_by(POISSON)
    assert members.size // N == 7200
    assert frequency_p(members, RATE, N) > LEVEL
    assert sizes_p(members, RATE) > LEVEL
    assert pairs_z(members) < 6.5


def test_the_tests_of_poisson_batches_can_fail():
    # Power: 10 % too many rows have a noncentrality of 360 on 40 degrees of freedom, found with probability > 0.999999;
    # batches of one size have no variance at all; two rows that go together correlate by 1, which is z = 85.
    random = np.random.default_rng(0)
    assert frequency_p(random.random((7200, N)) < 1.1 * RATE, RATE, N) < LEVEL
    assert sizes_p(released(FixedSize(6, N)), RATE) < LEVEL
    paired = random.random((7200, N)) < RATE
    paired[:, 1] = paired[:, 0]
    assert pairs_z(paired) > 6.5
    assert frequency_p(np.ones((7200, N), bool), RATE, N) < LEVEL


@pytest.mark.slow(but=["Poisson-released", "fixed-size-released"])
@SOURCES
@pytest.mark.parametrize("sampler", [POISSON, FIXED], ids=lambda sampler: sampler.name)
def test_two_asks_of_one_step_and_two_steps_draw_batches_of_their_own(sampler, drawn_by):
    members, rate = drawn_by(sampler).astype(float), sampler.rate()
    centred = (members - rate) / math.sqrt(rate * (1 - rate))
    # Null: independent batches; a mean of products of standardised inclusions, whose deviation is at most 1 / sqrt of
    # their number (batches of one size correlate negatively within). Power: one batch for both gives a mean of 1.
    for first, second in [(centred[:, :, 0], centred[:, :, 1]), (centred[:, 1:], centred[:, :-1])]:
        assert abs((first * second).mean()) * math.sqrt(first.size / N) < 5  # 6e-7, and less as rows average out
    assert abs((centred[1:] * centred[:-1]).mean()) * math.sqrt(centred[1:].size / N) < 5  # and so do two runs


@pytest.mark.slow
def test_a_release_never_cuts_a_batch_however_large(monkeypatch):
    monkeypatch.setattr(Poisson, "capacity", lambda self, num_rows: 1)
    sampler = Poisson(0.31)
    drawn, current = release(sampler)
    batches = drawn_batches(drawn)
    for lines in batches:
        # Room for the largest, and no more.
        assert lines.shape[-1] == lines_to_members(lines).sum(1).max() > sampler.capacity(N)
    answers = np.asarray(current.state[1])
    for ask, lines in enumerate(batches):
        assert np.array_equal(members_of(answers[:, ask]), lines_to_members(lines))


def test_a_simulation_has_room_for_all_but_a_trillionth_of_batches():
    for num_rows, rate in [(40, RATE), (30_400, 0.03), (5, 0.9), (10**6, 1e-4)]:
        capacity = Poisson(rate).capacity(num_rows)
        assert capacity <= num_rows
        assert scipy.stats.binom.sf(capacity, num_rows, rate) <= 1e-12
        assert capacity == num_rows or capacity < num_rows * rate + 9 * math.sqrt(num_rows * rate) + 10


@pytest.mark.slow(but=["released"])
@SOURCES
def test_a_batch_of_fixed_size_has_that_many_distinct_rows_each_as_likely_as_another(drawn_by):
    members = drawn_by(FIXED)
    assert np.all(members.sum(-1) == SIZE)
    assert frequency_p(members, SIZE / N, N - 1) > LEVEL
    assert pairs_z(members, -1 / (N - 1)) < 6.5
    # Power: one row that is drawn in 37 % of batches, where others are in 30 %, is 13 deviations away.
    favoured = members.copy()
    favoured[..., 0] |= np.random.default_rng(0).random(members.shape[:-1]) < 0.1
    assert frequency_p(favoured, SIZE / N, N - 1) < LEVEL


@pytest.mark.slow(but=["released"])
@SOURCES
def test_batches_of_an_epoch_are_disjoint_and_every_epoch_has_an_order_of_its_own(drawn_by):
    members = drawn_by(EPOCHS)
    assert np.all(members.sum(-1) == SIZE)
    assert np.all(members == members[:, :, :1])  # a step's queries share its batch
    per_epoch = EPOCHS.steps_per_charge
    assert per_epoch == 3
    epochs = members[:, :, 0].reshape(-1, per_epoch, N)
    covered = epochs.sum(1)
    assert covered.max() == 1
    assert np.all(covered.sum(1) == per_epoch * SIZE)  # 36 rows; the other 4 are left out
    # Null: independent uniform orders. Every row is as likely to be left out, and in every place as likely as another.
    assert frequency_p(covered == 0, 4 / N, N - 1) > LEVEL
    for place in range(per_epoch):
        assert frequency_p(epochs[:, place], SIZE / N, N - 1) > LEVEL
        assert pairs_z(epochs[:, place], -1 / (N - 1)) < 6.5
    # Two epochs in a row, of one run and of two, overlap as independent ones do: power as above, where one order for
    # all would put every product at 1.
    centred = (epochs - SIZE / N) / math.sqrt(SIZE / N * (1 - SIZE / N))
    assert abs((centred[1:] * centred[:-1]).mean()) * math.sqrt(centred[1:].size / N) < 5


@pytest.mark.slow
@pytest.mark.parametrize("parts", [(1,) * STEPS, (2, 5, 4, 1)], ids=str)
def test_epochs_go_on_where_the_last_chunk_ended(parts):
    at_once, _, _ = read(EPOCHS)
    chunked, _, _ = read(EPOCHS, parts=parts)
    assert np.array_equal(at_once.state[1], chunked.state[1])
    together, apart = Entropy(7), Entropy(7)
    plan = [BatchDraw(EPOCHS, N)]
    drawn = together.draw(plan, STEPS)[0]
    in_parts = np.concatenate([apart.draw(plan, part)[0] for part in parts])
    assert np.array_equal(drawn, in_parts)
    epochs = lines_to_members(in_parts).reshape(-1, EPOCHS.steps_per_charge, N).sum(1)
    assert epochs.max() == 1
