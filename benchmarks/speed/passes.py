"""One pass of bolt-on SGD and its rivals, noise included, over the same pass without noise."""

from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp

from benchmarks.speed.steps import rows_of
from benchmarks.speed.timing import Contender, Prepare, Table, measure
from benchmarks.speed.work import Work
from l2p.models import Logistic
from l2p.privacy.events import Adjacency
from l2p.privacy.sensitivity.passes import Passes
from l2p.queries import NoisyPasses, PassDescent, SampledPasses
from l2p.queries.rows_in_order import orders
from l2p.task.noise import KeyNoise
from l2p.task.rows import Rows

NUM_ROWS, QUICK_ROWS, NUM_COLUMNS, BATCHES = 50_000, 2_000, 55, (1, 10, 500)
BASE = "without noise"


def tables(quick: bool, rounds: int) -> Iterator[Table]:
    """A table for every size of batches."""
    work = Work("logistic", QUICK_ROWS if quick else NUM_ROWS, NUM_COLUMNS)
    for batch in BATCHES:
        title = f"one pass of SGD, batches of {batch}, {work.num_rows:,} x {NUM_COLUMNS - 1}"
        yield measure(title, BASE, contenders(work, batch), rounds)


def contenders(work: Work, batch: int) -> dict[str, Prepare]:
    """One compiled pass of each method."""
    start, one = jnp.zeros(work.num_columns), jnp.ones(())
    plan = Passes(work.num_rows, 0.25, 1, batch)
    rooted = Passes(work.num_rows, 0.25, 1, batch, "inverse_power", step_size=1.0)
    bolt_on = PassDescent(Logistic(), plan, start, one, jnp.full((), -jnp.inf))
    sampled = SampledPasses(Logistic(), rooted, start, jnp.log(jnp.float32(1e-9)), one, in_ball=False)
    queries = {"bolt_on": bolt_on, "scs13": NoisyPasses(Logistic(), rooted, start, one), "bst14": sampled}

    def prepare(call: Callable[[Rows, jax.Array], jax.Array]) -> Contender:
        compiled, rows, key = jax.jit(call), rows_of(work), jax.random.key(0)
        return Contender(lambda: compiled(rows, key).block_until_ready())

    def noised(query: PassDescent | NoisyPasses | SampledPasses) -> Contender:
        return prepare(lambda rows, key: query.answer(rows, KeyNoise(key), Adjacency.REPLACE_ONE))

    return {
        BASE: lambda: prepare(lambda rows, key: bolt_on.result(rows, orders(plan, KeyNoise(key)))),
        **{name: lambda query=query: noised(query) for name, query in queries.items()},
    }
