"""The host driver: rows that stream give what rows in memory give."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.base.errors import InputError
from l2p.models import Logistic
from l2p.oracle.setup import Setup
from l2p.oracle.trace import trace_of
from l2p.privacy.budget import Budget
from l2p.privacy.cap.filter import Filter
from l2p.protectors import HAND_DESIGNED
from l2p.release import api
from l2p.run.run import Release, Simulation, advance, advance_streaming, plan_noise, start
from l2p.task.entropy import Entropy
from l2p.task.rows import Rows
from l2p.task.sources import ArraySource, RowSource
from meta_train.training.untrained.plain import control

MODEL, N, D, STEPS = Logistic(), 150, 3, 6
BUDGET = Budget(1.0, 1e-4)
METHODS = {
    "noisygd": ("gdp", dataclasses.replace(HAND_DESIGNED["noisygd"](BUDGET), num_steps=STEPS)),
    "control": ("gdp", dataclasses.replace(control(jax.random.key(0)), num_steps=STEPS)),
    "agd": ("rdp", dataclasses.replace(HAND_DESIGNED["agd"](BUDGET), num_steps=STEPS)),
}
jit_start, jit_advance = jax.jit(start), jax.jit(advance, static_argnames="num_steps")


def table() -> Rows:
    generator = np.random.default_rng(0)
    x = generator.random((N, D)).astype(np.float32)
    x[7, 1] = np.nan  # a null row in either driver
    return Rows(x, (x[:, 0] > 0.5).astype(np.float32), np.ones(N, np.float32))


def setup(accountant: str) -> Setup:
    return Setup.create(MODEL, BUDGET.adjacency, Filter(accountant, BUDGET).price_list(), N)


@pytest.mark.long(cases=["16-control", "16-agd", "1000-control"])
@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("block", [16, 1000])
def test_a_streamed_simulation_is_the_simulation_in_memory(name, block):
    accountant, protector = METHODS[name]
    here, noise, rows = setup(accountant), Simulation(jax.random.key(1)), table()
    source = ArraySource(rows, block)
    run, first = jit_start(protector, MODEL.init(D), jax.tree.map(jnp.asarray, rows), here, noise)
    run, later, _ = jit_advance(protector, run, jax.tree.map(jnp.asarray, rows), here, noise, num_steps=STEPS)
    streamed, begun = start(protector, MODEL.init(D), source, here, noise)
    streamed, records = advance_streaming(protector, streamed, source, here, noise, STEPS)
    np.testing.assert_allclose(streamed.params, run.params, rtol=2e-4, atol=2e-5)
    for row, expected in zip(trace_of(begun, [records]), trace_of(first, [later]), strict=True):
        assert (row.step, row.query, row.mechanism) == (expected.step, expected.query, expected.mechanism)
        np.testing.assert_allclose(row.noise_multiplier, expected.noise_multiplier, rtol=1e-4)
        np.testing.assert_allclose(row.spent, expected.spent, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["control", "agd"])
def test_a_streamed_release_adds_up_to_the_same_bits(name):
    accountant, protector = METHODS[name]
    here, rows = setup(accountant), table()
    at_start, per_step = plan_noise(protector, MODEL.init(D), N, D, here)
    begin, steps = Entropy(3).draw(at_start, 1), Entropy(4).draw(per_step, STEPS)
    ends = []
    for block in (16, 64):
        source = ArraySource(rows, block)
        with jax.enable_x64(True):
            run, _ = start(protector, MODEL.init(D), source, here, Release(begin, [], at_start, ()))
            run, _ = advance_streaming(protector, run, source, here, Release([], steps, (), per_step), STEPS)
        ends.append(np.asarray(run.params))
    np.testing.assert_array_equal(ends[0], ends[1])
    assert np.abs(ends[0]).max() > 0


@pytest.mark.slow
def test_a_stream_stops_at_the_first_refusal_and_reads_nothing_for_it():
    class Counting(ArraySource):
        passes = 0

        def blocks(self):
            type(self).passes += 1
            return super().blocks()

    _, protector = METHODS["noisygd"]
    here = dataclasses.replace(setup("gdp"), cap=jnp.array(0.0))
    source = Counting(table(), 64)
    run, _ = start(protector, MODEL.init(D), source, here, Simulation(jax.random.key(0)))
    run, records = advance_streaming(protector, run, source, here, Simulation(jax.random.key(0)), STEPS)
    assert not run.alive
    assert records[0].granted.tolist() == [False]
    assert Counting.passes == 0


@pytest.mark.slow
def test_private_train_takes_a_source():
    result = api.private_train(ArraySource(table(), 64), "noisygd", BUDGET)
    assert result.card.num_rows == N
    assert result.card.private_release
    assert len(result.trace) == 50


def test_what_is_not_a_sum_cannot_be_streamed():
    source: RowSource = ArraySource(table(), 64)
    here = dataclasses.replace(setup("gdp"), cap=jnp.array(jnp.inf))
    run, _ = start(HAND_DESIGNED["nonprivate"](BUDGET), MODEL.init(D), source, here, Simulation(jax.random.key(0)))
    with pytest.raises(InputError, match="cannot stream"):
        advance_streaming(HAND_DESIGNED["nonprivate"](BUDGET), run, source, here, Simulation(jax.random.key(0)), 1)
