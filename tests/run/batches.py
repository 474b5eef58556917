"""A protector that reads batches, its setups, and the rows that it read."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from l2p.base import struct
from l2p.models import Logistic
from l2p.oracle.setup import Setup
from l2p.privacy import Adjacency, Budget, Filter
from l2p.privacy.cost.sampling import FixedSize, PermutationEpochs, Poisson, Sampler
from l2p.protectors import Decaying, Optax, Stepwise
from l2p.queries import FeatureSum
from l2p.run.protector import Protector
from l2p.run.run import Release, Simulation, advance, advance_streaming, plan_noise, start
from l2p.task.entropy import Entropy
from l2p.task.noise import BatchDraw
from l2p.task.rows import Rows
from l2p.task.sources import RowSource

N, STEPS, ASKS, RUNS = 40, 12, 2, 300
MODEL, KEY = Logistic(), jax.random.key(11)
RATE, SIZE = 0.15, 12
POISSON, FIXED, EPOCHS = Poisson(RATE), FixedSize(SIZE, N), PermutationEpochs(SIZE, N)
EVERY = [POISSON, FIXED, EPOCHS]
SAMPLERS = pytest.mark.parametrize("sampler", EVERY, ids=lambda sampler: sampler.name)
ZERO_OUT, REPLACE_ONE = Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE


#: A test here fails by chance with this probability at most; its seeds are fixed, so it has passed or failed already.
LEVEL = 1e-6


def f32(value):
    return jnp.asarray(value, jnp.float32)


def budget_for(sampler, epsilon=1.0, delta=1e-6):
    return Budget(epsilon, delta, ZERO_OUT if ZERO_OUT in sampler.adjacencies else REPLACE_ONE)


def setup(sampler, accountant="rdp", **changes):
    budget = budget_for(sampler)
    here = Setup.create(MODEL, budget.adjacency, Filter(accountant, budget, sampler, STEPS).price_list(), N)
    return here.replace(**changes)


#: Every row is a different unit vector, so that a sum of rows lists its members.
WHO = Rows(jnp.eye(N, dtype=jnp.float32), jnp.zeros(N, jnp.float32), jnp.ones(N, jnp.float32))
QUIET = 1e-3


@struct.dataclass
class Reader(Protector):
    """Asks for the same sum repeatedly and keeps every answer: f32[d] of `init`, f32[T, ASKS, d] of the steps."""

    noise_multiplier: jax.Array
    clip_norm: jax.Array
    sampler: Sampler = struct.field(pytree_node=False)
    num_steps: int = struct.field(pytree_node=False, default=STEPS)

    def init(self, params, oracle):
        sum_of_all = oracle.ask(FeatureSum(len(params) - 1, self.clip_norm, self.noise_multiplier))
        return params, (sum_of_all, jnp.zeros((self.num_steps, ASKS, len(params) - 1), jnp.float32))

    def step(self, params, state, oracle):
        query = FeatureSum(len(params) - 1, self.clip_norm, self.noise_multiplier)
        answers = jnp.stack([oracle.ask(query) for _ in range(ASKS)])
        return params, (state[0], state[1].at[oracle.step].set(answers))

    def finish(self, params, state, setup):
        return params


def reader(sampler, noise=QUIET, clip=1.0, **fields):
    return Reader(f32(noise), f32(clip), sampler, **fields)


jit_start, jit_advance = jax.jit(start), jax.jit(advance, static_argnames="num_steps")


def read(sampler, rows=WHO, key=KEY, parts=(STEPS,), with_start=jit_start, with_advance=jit_advance):
    """A simulated run of the reader without a cap: (run, records of init, of the steps)."""
    protector, here = reader(sampler), setup(sampler, cap=f32(math.inf))
    current, first = with_start(protector, jnp.zeros(rows.x.shape[1] + 1), rows, here, Simulation(key))
    later = []
    for part in parts:
        current, records, _ = with_advance(protector, current, rows, here, Simulation(key), num_steps=part)
        later.append(records)
    return current, first, later


def members_of(answers):
    answers = np.asarray(answers)
    members = np.rint(answers).astype(int)
    assert set(np.unique(members)) <= {0, 1}
    assert np.abs(answers - members).max() < 10 * QUIET * 2  # noise, under either adjacency
    return members.astype(bool)


def frequency_p(members, rate, degrees):
    """Null: every row is in a batch with probability `rate`, and batches are independent; two-sided p-value.

    `degrees` is N for independent rows, and N - 1 where sizes are fixed (then counts are negatively correlated).
    """
    counts = members.reshape(-1, N).sum(0)
    batches = members.size // N
    statistic = ((counts - batches * rate) ** 2).sum() / (batches * rate * (1 - rate)) * degrees / N
    upper = scipy.stats.chi2.sf(statistic, degrees)
    return 2 * min(upper, 1 - upper)


def sizes_p(members, rate):
    """Null: the sizes of batches are binomial, as they are if rows are drawn independently; chi-square p-value."""
    sizes = members.reshape(-1, N).sum(1)
    observed = np.bincount(sizes, minlength=N + 1).astype(float)
    expected = len(sizes) * scipy.stats.binom.pmf(np.arange(N + 1), N, rate)
    usual = expected >= 10
    observed, expected = (np.append(part[usual], part[~usual].sum()) for part in (observed, expected))
    return scipy.stats.chi2.sf(((observed - expected) ** 2 / expected).sum(), len(expected) - 1)


def drawn_for(sampler, width=N, seed=5, noiseless=True, num_steps=STEPS, protector=None):
    """(plans, what was drawn for init, for the steps); `noiseless` puts zeros where the noise was."""
    protector = protector or reader(sampler, noise=1.0, num_steps=num_steps)
    plans = plan_noise(protector, jnp.zeros(width + 1), N, width, setup(sampler))
    entropy = Entropy(seed)
    begun, steps = entropy.draw(plans[0], 1), entropy.draw(plans[1], num_steps)
    if noiseless:
        begun, steps = (
            [
                values if isinstance(draw, BatchDraw) else np.zeros_like(values)
                for values, draw in zip(*part, strict=True)
            ]
            for part in ((begun, plans[0]), (steps, plans[1]))
        )
    return plans, begun, steps


def drawn_batches(drawn):
    (_, plan), _, steps = drawn
    return [values for values, draw in zip(steps, plan, strict=True) if isinstance(draw, BatchDraw)]


def release(sampler, rows=WHO, drawn=None, protector=None, **changes):
    """A release with noise of zero, over rows in memory or a source: (what was drawn, the run)."""
    width = rows.num_features if isinstance(rows, RowSource) else rows.x.shape[1]
    drawn = drawn or drawn_for(sampler, width)
    (first, later), begun, steps = drawn
    protector = protector or reader(sampler, noise=1.0, num_steps=len(steps[0]))
    here, params = setup(sampler, **({"cap": f32(math.inf)} | changes)), jnp.zeros(width + 1)
    at_start, at_steps = Release(begun, [], first, ()), Release([], steps, (), later)
    with jax.enable_x64(True):
        if isinstance(rows, RowSource):
            current, _ = start(protector, params, rows, here, at_start)
            current, _ = advance_streaming(protector, current, rows, here, at_steps, protector.num_steps)
        else:
            current, _ = jit_start(protector, params, rows, here, at_start)
            current, _, _ = jit_advance(protector, current, rows, here, at_steps, num_steps=protector.num_steps)
    return drawn, current


def descent(sampler, num_steps=4, clip=1.0, rate=1.0, **fields):
    scheduler = Decaying(jnp.log(f32([clip])), f32([0.0]))
    optimizer = Optax("sgd", {"learning_rate": jnp.log(f32([rate])), "momentum": f32([-jnp.inf])})
    return Stepwise(scheduler, optimizer, num_steps=num_steps, sampler=sampler, **fields)
