"""Runs on batches where these are nearly the whole table, and streamed ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.privacy.cost.sampling import FixedSize, FullBatch, Poisson
from l2p.protectors import Centering
from l2p.run.run import Simulation
from l2p.task.rows import Rows
from l2p.task.sources import ArraySource
from tests.run.batches import (
    EPOCHS,
    EVERY,
    FIXED,
    KEY,
    N,
    descent,
    drawn_for,
    f32,
    jit_advance,
    jit_start,
    release,
    setup,
)


def labelled(x):
    return Rows(f32(x), f32(np.arange(N) % 3 > 0), jnp.ones(N, jnp.float32))


TABLE = labelled(np.random.default_rng(2).random((N, 3)))


#: Every batch of these has the mean of the table.
ALIKE = Rows(jnp.full((N, 3), 0.7, jnp.float32), jnp.ones(N, jnp.float32), jnp.ones(N, jnp.float32))
FEW = 6


def unlimited(sampler):
    """Noise of about 1e-5 on a sum, and no cap."""
    here = setup(sampler)
    return here.replace(price_list=here.price_list.replace(budget=f32(1e12)), cap=f32(1e12))


def descend(sampler, rows, centering=None):
    protector, here = descent(sampler, FEW, clip=30.0, purchases=(centering,) if centering else ()), unlimited(sampler)
    current, _ = jit_start(protector, jnp.zeros(4), rows, here, Simulation(KEY))
    current, _, _ = jit_advance(protector, current, rows, here, Simulation(KEY), num_steps=FEW)
    assert int(current.step) == FEW
    return np.asarray(protector.finish(current.params, current.state, here))


@pytest.mark.long
def test_reading_nearly_every_row_is_nearly_the_full_batch():
    full_batch = descend(FullBatch(), TABLE)
    assert np.abs(full_batch).max() > 0.1
    np.testing.assert_allclose(descend(Poisson(0.999999), TABLE), full_batch, atol=1e-4)
    # One row of 40 is missing from every batch: it moves a mean of gradients of length 1 by 1 / 39 at most.
    np.testing.assert_allclose(descend(FixedSize(N - 1, N), TABLE), full_batch, atol=FEW / (N - 1))


@pytest.mark.long(cases=["fixed-size*"])
@pytest.mark.slow
@pytest.mark.parametrize("sampler", [FIXED, EPOCHS, FixedSize(1, N)], ids=str)
def test_sums_are_divided_by_the_rows_that_a_batch_is_expected_to_have(sampler):
    np.testing.assert_allclose(descend(sampler, ALIKE), descend(FullBatch(), ALIKE), atol=5e-3)


@pytest.mark.slow
def test_a_centring_bought_in_init_is_that_of_the_whole_table_whatever_steps_read():
    centering = Centering(f32([0.0]), f32(-1.2), f32(5.0), f32(1.5))
    rows = TABLE.replace(x=TABLE.x.at[: N // 2].set(0.0))
    maps = []
    for sampler in (FullBatch(), EPOCHS):
        protector = descent(sampler, FEW, purchases=(centering,))
        current, _ = jit_start(protector, jnp.zeros(4), rows, unlimited(sampler), Simulation(KEY))
        maps.append(np.asarray(current.state.features.center))
    np.testing.assert_allclose(maps[0], maps[1], atol=1e-4)
    np.testing.assert_allclose(maps[0], np.asarray(rows.x).mean(0), atol=1e-3)


@pytest.mark.long(cases=["Poisson", "fixed-size"])
@pytest.mark.slow
@pytest.mark.parametrize("sampler", EVERY, ids=lambda sampler: sampler.name)
def test_a_streamed_release_is_the_release_in_memory_with_the_same_batches(sampler):
    protector = descent(sampler, FEW, purchases=(Centering(f32([-2.0]), f32(-1.2), f32(0.5), f32(1.5)),))
    drawn = drawn_for(sampler, 3, noiseless=False, num_steps=FEW, protector=protector)
    here = setup(sampler)
    ends = []
    for block in (None, 16, 100):
        rows = TABLE if block is None else ArraySource(jax.tree.map(np.asarray, TABLE), block)
        _, current = release(sampler, rows, drawn, protector, cap=here.cap)
        assert int(current.step) == FEW
        ends.append(np.asarray(current.params))
    assert np.array_equal(ends[1], ends[2])  # sums are exact, so that blocks make no difference
    np.testing.assert_allclose(ends[0], ends[1], rtol=2e-4, atol=2e-5)
    assert np.abs(ends[0]).max() > 0
