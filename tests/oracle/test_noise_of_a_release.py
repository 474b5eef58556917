"""Releases: their noise, their grid, their chunks, and rows that are not finite."""

import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.base import struct
from l2p.oracle.trace import trace_of
from l2p.privacy import Answered, Filter
from l2p.queries import ClippedGradient, NoisyMinimum
from l2p.run.run import Release, advance, plan_noise, start
from l2p.task.entropy import Entropy
from l2p.task.feature_map import FeatureMap
from tests.oracle.scripts import (
    BUDGET,
    KEY,
    MODEL,
    ROWS,
    STEPS,
    ZERO,
    D,
    N,
    Script,
    even,
    f32,
    mean,
    script,
    setup,
    simulate,
)


def release(protector, rows=ROWS, here=None, seed=5, chunks=(STEPS,)):
    """A release as a caller makes it, with noise drawn for all steps and handed over in chunks."""
    here = here or setup()
    first, steps = plan_noise(protector, ZERO, N, D, here)
    entropy = Entropy(seed)
    begun, drawn = entropy.draw(first, 1), entropy.draw(steps, sum(chunks))
    later = []
    with jax.enable_x64(True):
        current, records = jit_start(protector, ZERO, rows, here, Release(begun, [], first, ()))
        at = 0
        for chunk in chunks:
            noise = Release([], [bits[at : at + chunk] for bits in drawn], (), steps)
            current, more, _ = jit_advance(protector, current, rows, here, noise, num_steps=chunk)
            later.append(more)
            at += chunk
    return current, records, later


jit_start, jit_advance = jax.jit(start), jax.jit(advance, static_argnames="num_steps")


@struct.dataclass
class Mixed(Script):
    """A gradient, a selection and a sum in every step, and a query in init."""

    mechanisms = ("gaussian", "gumbel")

    def step(self, params, state, oracle):
        features = FeatureMap(jnp.full(D, 0.4), f32(1.5))
        gradient = oracle.ask(ClippedGradient(MODEL, params, features, f32(0.5), self.multipliers[0, 0]))
        candidates = params[None, :] - jnp.array([0.0, 0.01, 0.1])[:, None] * gradient[None, :]
        index = oracle.ask(NoisyMinimum(MODEL, candidates, f32(1.0), self.multipliers[0, 0]))
        total = oracle.ask(mean(self.multipliers[0, 0]))
        return candidates[index].at[0].add(1e-4 * total.sum()), state + index


MIXED = Mixed(jnp.full((1, 1), 80.0), f32(100.0))


def test_a_release_leaves_no_float64_anywhere_but_inside_ask():
    ended, first, later = release(MIXED, here=setup("rdp"))
    for leaf in jax.tree.leaves((ended, first, later)):
        assert leaf.dtype in (jnp.float32, jnp.int32, jnp.bool_)
    assert int(ended.step) == STEPS
    assert np.any(np.asarray(ended.params))


def test_noise_is_planned_in_the_order_it_is_asked_for():
    first, steps = plan_noise(MIXED, ZERO, N, D, setup("rdp"))
    assert [(draw.distribution, draw.size) for draw in first] == [("gaussian", D)]
    assert [(draw.distribution, draw.size) for draw in steps] == [("gaussian", D + 1), ("gumbel", 3), ("gaussian", D)]


def test_a_release_lies_on_the_grid_and_differs_from_seed_to_seed():
    protector, grid = script(np.full((1, 1), 30.0)), 2.0**-20 * 32  # of noise 30 bounds wide
    answers = [np.asarray(release(protector, seed=seed, chunks=(1,))[0].params[:D] - 1.0, float) for seed in (1, 1, 2)]
    assert np.array_equal(answers[0], answers[1])
    assert not np.any(answers[0] == answers[2])
    # float32 keeps 24 bits of an answer of about 100: still a multiple of the grid, exactly.
    assert all(np.array_equal(answer / grid, np.rint(answer / grid)) for answer in answers)
    assert not all(np.array_equal(answer / grid / 2, np.rint(answer / grid / 2)) for answer in answers)


@pytest.mark.slow
def test_a_release_in_chunks_is_the_release_in_one_piece():
    at_once, _, (records,) = release(MIXED, here=setup("rdp"))
    parts, _, pieces = release(MIXED, here=setup("rdp"), chunks=(3, 3))
    chex.assert_trees_all_equal(at_once, parts)
    chex.assert_trees_all_equal(records, jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *pieces))


def test_a_release_that_is_refused_freezes_like_a_simulation():
    protector = script([[even(2)], [even(2)], [even(2)], [1e5]])
    ended, first, later = release(protector, chunks=(4,))
    assert int(ended.step) == 2
    assert len(trace_of(first, later)) == 2
    assert Filter("gdp", BUDGET).spent([Answered(1, "gaussian", f32(even(2)))] * 2) <= Filter("gdp", BUDGET).limit


def test_observing_a_release_is_refused():
    with pytest.raises(ValueError, match="simulations only"):
        advance(MIXED, None, ROWS, setup("rdp"), Release([], [], (), ()), 1, observe=lambda params: params)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["simulated", "released"])
@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
def test_a_row_that_is_not_finite_is_a_null_row(poison, mode):
    ran = simulate if mode == "simulated" else lambda protector, params, rows, here, key: release(protector, rows, here)
    null = ROWS.replace(x=ROWS.x.at[5].set(0.0).at[9].set(0.0), mask=ROWS.mask.at[5].set(0.0).at[9].set(0.0))
    expected = ran(MIXED, ZERO, null.replace(y=null.y.at[5].set(0.0).at[9].set(0.0)), setup("rdp"), KEY)
    features = ROWS.replace(x=ROWS.x.at[5, 1].set(poison).at[9].set(poison))
    chex.assert_trees_all_equal(ran(MIXED, ZERO, features, setup("rdp"), KEY), expected)
    labels = ROWS.replace(y=ROWS.y.at[5].set(poison).at[9].set(poison))
    chex.assert_trees_all_equal(ran(MIXED, ZERO, labels, setup("rdp"), KEY), expected)
    assert (
        not np.array_equal(ran(MIXED, ZERO, ROWS, setup("rdp"), KEY)[0], expected[0]) if mode == "simulated" else True
    )
