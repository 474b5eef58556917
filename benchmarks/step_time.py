"""Time per step of five protectors relative to plain gradient descent, in one process.

    python benchmarks/step_time.py

A table of IPUMS-BR's shape (30,400 x 52, random), one run at a time, compilation excluded, medians over interleaved
repetitions, so that changes of the machine's speed affect all equally.
"""

import functools
import os
import platform
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

from l2p.checkpoints.lookup import resolve
from l2p.models import MODELS
from l2p.oracle.setup import Setup
from l2p.privacy.budget import Budget
from l2p.run.run import run
from l2p.task.rows import Rows

NUM_ROWS, NUM_FEATURES, NUM_STEPS, REPETITIONS = 30_400, 52, 50, 9
METHODS = ("noisygd", "noisygd:tuned", "control-plain-adult", "plain-adult", "paper-adult")


def table() -> Rows:
    """Random rows with the shape of IPUMS-BR's training part."""
    generator = np.random.default_rng(0)
    x = generator.random((NUM_ROWS, NUM_FEATURES), np.float32)
    y = (generator.random(NUM_ROWS) < 0.5).astype(np.float32)
    return Rows(jnp.asarray(x), jnp.asarray(y), jnp.ones(NUM_ROWS))


def plain_gradient_descent(rows: Rows) -> jax.Array:
    """The baseline: NUM_STEPS full-batch gradient steps, without clipping, noise or accounting."""
    model = MODELS["logistic"]

    def step(params: jax.Array, _: None) -> tuple[jax.Array, None]:
        residual = model.residual(model.margin(params, rows.x), rows.y)
        gradient = jnp.append(residual @ rows.x, 0.5 * residual.sum()) / NUM_ROWS
        return params - 0.5 * gradient, None

    return jax.lax.scan(step, model.init(NUM_FEATURES), length=NUM_STEPS)[0]


def environment() -> str:
    """The versions and the machine."""
    return (
        f"jax {jax.__version__} on {jax.default_backend()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    )


def main() -> None:
    rows, model, budget = table(), MODELS["logistic"], Budget(0.1, 1e-8)
    candidates = {"plain gradient descent": functools.partial(jax.jit(plain_gradient_descent), rows)}
    compiled = jax.jit(run)
    for name in METHODS:
        found = resolve(name, budget, "logistic")
        accountant = found.filter(budget).price_list()
        setup = Setup.create(model, budget.adjacency, accountant, NUM_ROWS)
        start = model.init(NUM_FEATURES)
        candidates[name] = functools.partial(compiled, found.protector, start, rows, setup, jax.random.key(0))
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for repetition in range(REPETITIONS + 1):
        for name, call in candidates.items():
            began = time.perf_counter()
            jax.block_until_ready(call())
            if repetition:  # the first one compiles
                seconds[name].append((time.perf_counter() - began) / NUM_STEPS)
    floor = statistics.median(seconds["plain gradient descent"])
    print(f"{NUM_ROWS} x {NUM_FEATURES}, {NUM_STEPS} steps, median of {REPETITIONS}; {environment()}")
    for name, times in seconds.items():
        median = statistics.median(times)
        print(f"{name:24s} {1e6 * median:9.0f} us/step {median / floor:6.2f} x plain")


if __name__ == "__main__":
    main()
