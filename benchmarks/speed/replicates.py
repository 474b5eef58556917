"""Many runs on one table at once, whose products with the table are one product of matrices."""

from collections.abc import Callable, Iterator

import jax
import numpy as np

from benchmarks.speed.steps import plain_descent, protector_and_setup, rows_of
from benchmarks.speed.timing import Contender, Prepare, Table, measure
from benchmarks.speed.work import Work
from l2p.run.run import run

NUM_RUNS, NUM_ROWS, QUICK_ROWS, STEPS = 64, 30_400, 2_048, 10


def tables(quick: bool, rounds: int) -> Iterator[Table]:
    """One table: a step of all runs together."""
    work = Work("logistic", QUICK_ROWS if quick else NUM_ROWS, steps=STEPS)
    yield measure(f"{NUM_RUNS} replicates: {work}", "two BLAS products", contenders(work), rounds)


def contenders(work: Work) -> dict[str, Prepare]:
    """What takes a step of all runs."""
    return {
        "two BLAS products": lambda: blas(work),
        "l2p": lambda: timed(l2p_runs, work),
        "optax, rows [N, d]": lambda: timed(plain_runs, work),
        "optax, rows [d, N]": lambda: timed(lambda work: plain_runs(work, by_feature=True), work),
    }


def timed(prepare: Callable[[Work], Callable[[], jax.Array]], work: Work) -> Contender:
    """A contender from a function that makes the runs of a work ready."""
    plain = work.plain()
    mean_loss = lambda: float(np.mean([plain.mean_loss(params) for params in np.asarray(prepare(plain)())]))  # noqa: E731
    return Contender(prepare(work), work.steps, mean_loss)


def starts(work: Work) -> jax.Array:
    """f32[64, p], a start for every run."""
    start = work.start()[None, :]
    return start + 0.1 * jax.random.normal(jax.random.key(1), (NUM_RUNS, start.shape[1]))


def l2p_runs(work: Work) -> Callable[[], jax.Array]:
    """Simulated runs with noise of their own, as comparisons take them: rows are shared."""
    protector, setup = protector_and_setup(work)
    keys = jax.random.split(jax.random.key(0), NUM_RUNS)
    compiled = jax.jit(jax.vmap(lambda *arguments: run(*arguments)[0], (None, 0, None, None, 0)))
    arguments = protector, starts(work), rows_of(work).ready(full_passes=False), setup, keys
    return lambda: compiled(*arguments).block_until_ready()


def plain_runs(work: Work, by_feature: bool = False) -> Callable[[], jax.Array]:
    """Plain runs."""
    descend, data = plain_descent(work, by_feature)
    compiled, params = jax.jit(jax.vmap(descend, (0, None, None))), starts(work)
    return lambda: compiled(params, *data).block_until_ready()


def blas(work: Work) -> Contender:
    """The margins of all runs and the sums of their gradients."""
    weights, table = np.asarray(starts(work)), np.ascontiguousarray(work.table.T)

    def run() -> None:
        for _ in range(work.steps):
            (weights @ table) @ work.table

    return Contender(run, work.steps)
