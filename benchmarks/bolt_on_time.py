"""Time of bolt-on SGD and its rivals over SGD without noise.

    taskset -c 0 python benchmarks/bolt_on_time.py [--rows 50000] [--turns 9]

One pass of logistic regression over random rows of 54 numbers, compiled, noise included, in seconds of CPU, which other
jobs on the machine do not lengthen. All methods are interleaved, and a ratio is the median over turns of what one turn
gives.
"""

import dataclasses
import platform
import statistics
import time
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
import tyro

from l2p.compare.summary import markdown
from l2p.models import GeneralizedLinear, Logistic
from l2p.privacy.events import Adjacency
from l2p.privacy.sensitivity.passes import Passes
from l2p.queries import NoisyPasses, PassDescent, SampledPasses
from l2p.queries.rows_in_order import orders
from l2p.task.noise import KeyNoise
from l2p.task.rows import Rows

NUM_FEATURES, BATCHES = 54, (1, 10, 500)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Sizes of what is timed.

    Attributes:
      rows: of the table.
      turns: how often each method is timed.
    """

    rows: int = 50_000
    turns: int = 9


def seconds(settings: Settings) -> Iterator[list[str]]:
    """CPU time of each method and batch size over that of SGD without noise; of the latter, seconds."""
    generator, loss = np.random.default_rng(0), Logistic()
    x = generator.random((settings.rows, NUM_FEATURES), np.float32)
    rows = Rows(jnp.asarray(x), jnp.asarray(x[:, 0] > 0.5, jnp.float32), jnp.ones(len(x)))
    lines: dict[str, list[str]] = {}
    for batch in BATCHES:
        # Rows are arguments: those of a closure would be folded into the program as it is compiled.
        timed = {name: jax.jit(call) for name, call in runs(loss, settings.rows, batch)}
        for call in timed.values():
            jax.block_until_ready(call(rows, jax.random.key(0)))
        spans: dict[str, list[float]] = {name: [] for name in timed}
        for turn in range(settings.turns):
            for name, call in timed.items():
                began = time.process_time()
                jax.block_until_ready(call(rows, jax.random.key(turn)))
                spans[name].append(time.process_time() - began)
        for name, span in spans.items():
            over = statistics.median(
                span_seconds / plain for span_seconds, plain in zip(span, spans["noiseless"], strict=True)
            )
            cell = f"{statistics.median(span):.3f} s" if name == "noiseless" else f"{over:.3f}"
            lines.setdefault(name, []).append(cell)
    yield from ([name, *cells] for name, cells in lines.items())


def runs(
    loss: GeneralizedLinear, lines: int, batch: int
) -> Iterator[tuple[str, Callable[[Rows, jax.Array], jax.Array]]]:
    """One pass of each method, noise included, as a function of rows and a key."""
    start, unit = jnp.zeros(NUM_FEATURES + 1), jnp.ones(())
    plan, rooted = Passes(lines, 0.25, 1, batch), Passes(lines, 0.25, 1, batch, "inverse_root", step_size=1.0)
    bolt_on = PassDescent(loss, plan, start, unit, jnp.full((), -jnp.inf))
    yield "noiseless", lambda rows, key: bolt_on.result(rows, orders(plan, KeyNoise(key)))
    log_delta = jnp.log(jnp.float32(1e-9))
    for name, query in {
        "bolt_on": bolt_on,
        "scs13": NoisyPasses(loss, rooted, start, unit),
        "bst14": SampledPasses(loss, rooted, start, log_delta, unit, in_ball=False),
    }.items():
        yield name, lambda rows, key, query=query: query.answer(rows, KeyNoise(key), Adjacency.REPLACE_ONE)


def main(settings: Settings) -> None:
    """Print the table."""
    print(f"{platform.processor() or platform.machine()}, jax {jax.__version__}, {jax.default_backend()}")
    print(f"CPU time over SGD without noise, one pass over {settings.rows:,} x {NUM_FEATURES}\n")
    print(markdown(["b", *map(str, BATCHES)], list(seconds(settings))))


if __name__ == "__main__":
    main(tyro.cli(Settings))
