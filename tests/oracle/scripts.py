"""Runs of few rows whose queries are scripted."""

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base import struct
from l2p.models import Logistic
from l2p.oracle import Oracle, reader_of
from l2p.oracle.setup import Setup
from l2p.privacy import Budget, Filter, Spending
from l2p.queries import FeatureSum
from l2p.run.protector import Protector
from l2p.run.run import run
from l2p.task.noise import KeyNoise
from l2p.task.rows import Rows

D, N, STEPS = 3, 40, 6
MODEL, BUDGET, KEY = Logistic(), Budget(1.0, 1e-6), jax.random.key(0)


def f32(value):
    return jnp.asarray(value, jnp.float32)


def table(count=N):
    random = np.random.default_rng(0)
    return Rows(f32(random.random((count, D))), f32(random.random(count) < 0.5), f32(np.ones(count)))


ROWS = table()


def setup(name="gdp", budget=BUDGET, **changes):
    return Setup.create(MODEL, budget.adjacency, Filter(name, budget).price_list(), N).replace(**changes)


def mean(noise, clip=1.0):
    return FeatureSum(D, f32(clip), f32(noise))


def even(count, accountant=None):
    """The noise multiplier that `count` equal queries may afford, with room for rounding."""
    accountant = accountant or setup().price_list
    return float(accountant.noise_multiplier(accountant.budget / count)) * (1 + 1e-4)


@struct.dataclass
class Script(Protector):
    """Asks for feature sums at given noise multipliers f32[num_steps, q]; params add up the answers."""

    multipliers: jax.Array
    first: jax.Array | None = None
    num_steps: int = struct.field(pytree_node=False, default=STEPS)

    def init(self, params, oracle):
        if self.first is not None:
            params = params.at[:D].add(oracle.ask(mean(self.first)))
        return params, jnp.zeros((), jnp.int32)

    def step(self, params, state, oracle):
        for multiplier in self.multipliers[oracle.step % self.multipliers.shape[0]]:
            params = params.at[:D].add(oracle.ask(mean(multiplier)))
        return params + 1.0, state + 1

    def finish(self, params, state, setup):
        return params


def script(multipliers, **fields):
    multipliers = f32(multipliers)
    return Script(multipliers, num_steps=len(multipliers), **fields)


simulate = jax.jit(run)
ZERO = jnp.zeros(D + 1)


def opened(rows=ROWS, spending=None, **changes):
    here = setup(**changes)
    return Oracle(
        reader_of(rows), here, spending or Spending(f32(0), here.cap), KeyNoise(KEY), jnp.zeros((), jnp.int32)
    )
