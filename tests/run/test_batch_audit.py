"""Audit of sampled queries: planted bugs and an attack on a canary against the accountant."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from l2p.base import struct
from l2p.oracle import InMemory
from l2p.oracle.setup import Setup
from l2p.privacy import Answered, Budget, Filter
from l2p.privacy.cost.sampling import Poisson, Sampler
from l2p.queries import FeatureSum
from l2p.run.protector import Protector
from l2p.run.run import Simulation, advance, start
from l2p.task.rows import Rows
from tests.run.batches import (
    KEY,
    LEVEL,
    MODEL,
    POISSON,
    RATE,
    ZERO_OUT,
    N,
    f32,
    frequency_p,
    members_of,
    read,
    sizes_p,
)


@pytest.mark.slow
def test_an_oracle_that_reads_every_row_at_the_price_of_a_batch_is_caught(monkeypatch):
    monkeypatch.setattr(InMemory, "_drawn", lambda self, batch: self.rows)
    answers = jax.jit(jax.vmap(lambda key: read(POISSON, key=key, with_start=start, with_advance=advance)[0].state[1]))(
        jax.random.split(KEY, 50)
    )
    members = members_of(answers)
    assert sizes_p(members, RATE) < LEVEL
    assert frequency_p(members, RATE, N) < LEVEL


AUDIT = {"rate": 0.1, "noise": 2.0, "steps": 50, "runs": 100_000, "delta": 1e-5}


@struct.dataclass
class Audited(Protector):
    """Sums the canary's direction T times; the state is the log likelihood ratio of its being there."""

    sampler: Sampler = struct.field(pytree_node=False)
    num_steps: int = struct.field(pytree_node=False, default=AUDIT["steps"])

    def init(self, params, oracle):
        return params, jnp.zeros((), jnp.float32)

    def step(self, params, state, oracle):
        noise = AUDIT["noise"]
        answer = oracle.ask(FeatureSum(1, f32(1.0), f32(noise)))[0]
        rate = AUDIT["rate"]
        return params, state + jnp.log1p(rate * jnp.expm1((2 * answer - 1) / (2 * noise**2)))

    def finish(self, params, state, setup):
        return params


def likelihood_ratios():
    """f32[2, runs]: without and with the canary, whose features are C e_1 where other rows have zeros."""
    sampler = Poisson(AUDIT["rate"])
    rows = Rows(jnp.zeros((8, 1)).at[3].set(1.0), jnp.zeros(8), jnp.ones(8))
    accountant = Filter("rdp", Budget(1.0, AUDIT["delta"]), sampler, AUDIT["steps"]).price_list()
    here = Setup.create(MODEL, ZERO_OUT, accountant, 8).replace(cap=f32(math.inf))
    protector = Audited(sampler)

    def ratio_of(key, mask):
        table, noise = rows.replace(mask=rows.mask.at[3].set(mask)), Simulation(key)
        begun, _ = start(protector, jnp.zeros(2), table, here, noise)
        return advance(protector, begun, table, here, noise, AUDIT["steps"])[0].state

    keys = jax.random.split(jax.random.key(29), (2, AUDIT["runs"]))
    return np.asarray(jax.jit(jax.vmap(jax.vmap(ratio_of, (0, None))))(keys, f32([0.0, 1.0])))


def lower_bound(ratios):
    """Epsilon that the runs refute from below, by Clopper-Pearson at 5e-7 on either side: wrong with probability 1e-6.

    The threshold is chosen on the first half of the runs, and judged on the second.
    """
    half = AUDIT["runs"] // 2
    first, second = ratios[:, :half], ratios[:, half:]

    def bound(sample, threshold, error):
        hits = (sample > threshold).sum(1)
        false = scipy.stats.beta.ppf(1 - error, hits[0] + 1, half - hits[0])
        true = scipy.stats.beta.ppf(error, max(hits[1], 1e-9), half - hits[1] + 1)
        return math.log(max(true - AUDIT["delta"], 1e-12) / false)

    thresholds = np.quantile(first, np.linspace(0.5, 0.9999, 200))
    return bound(second, max(thresholds, key=lambda threshold: bound(first, threshold, 0.01)), 5e-7)


@pytest.mark.slow
def test_no_attack_on_a_canary_beats_the_accountant_and_one_on_unsampled_batches_does(monkeypatch):
    budget = Budget(1.0, AUDIT["delta"])
    events = [Answered(step + 1, "gaussian", AUDIT["noise"]) for step in range(AUDIT["steps"])]
    # The tightest order for just this run, so that nothing is hidden behind a loose conversion.
    claimed = min(
        planned.epsilon(planned.spent(events))
        for planned in (
            Filter("rdp", Budget(epsilon, budget.delta), Poisson(AUDIT["rate"]), AUDIT["steps"])
            for epsilon in (1.0, 2.0, 3.0, 4.0)
        )
    )
    assert 1.0 < claimed < 2.0
    honest = lower_bound(likelihood_ratios())
    assert 0.1 < honest <= claimed
    monkeypatch.setattr(InMemory, "_drawn", lambda self, batch: self.rows)
    assert lower_bound(likelihood_ratios()) > claimed
