"""Networks of up to ten million parameters on up to a million rows that stream: time, and the most memory.

    python -m benchmarks.large_network > benchmarks/pages/large_network.md

Each line is a process of its own.
"""

import platform
import resource
import subprocess
import sys
import time
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import tyro

import l2p

#: Parameters of a word, words of a row, and rows of a block.
WIDTH, WORDS, BLOCK = 100, 20, 10_000
#: Words, rows and steps of each line, and its level of exactness.
LINES = (
    (1_000, 10_000, 2, "float32"),
    (1_000, 1_000_000, 2, "float32"),
    (100_000, 10_000, 2, "float32"),
    (100_000, 1_000_000, 2, "float32"),
    (1_000, 10_000, 2, "exact"),
    (1_000, 1_000_000, 2, "exact"),
    (100_000, 10_000, 2, "exact"),
)
INTRODUCTION = """\
# Many parameters and many rows

A release of `l2p.private_train` for a loss of one's own, the mean of the embeddings of a row's {words} words, of rows
that stream ({block:,} at a time, made as they are read). All rows are read in every step. Seconds by the clock, with
compiling, and the most memory of the process, on one core that another job used, too.

`python -m benchmarks.large_network > benchmarks/pages/large_network.md` ({machine}, jax {version})

| parameters | rows | level | steps | seconds | GiB |
|---|---|---|---|---|---|"""


def loss(params: dict[str, jax.Array], row: dict[str, jax.Array]) -> jax.Array:
    """Logistic loss of a margin that is linear in the mean embedding."""
    margin = params["embedding"][row["words"]].mean(0) @ params["out"]
    return jnp.logaddexp(0.0, margin) - row["label"] * margin


def release(num_words: int, num_rows: int, num_steps: int, exactness: str) -> str:
    """The line of one release."""

    def blocks() -> Iterator[dict[str, np.ndarray]]:
        random = np.random.default_rng(1)
        for first in range(0, num_rows, BLOCK):
            size = min(BLOCK, num_rows - first)
            words = random.integers(0, num_words, (size, WORDS), dtype=np.int32)
            yield {"words": words, "label": random.integers(0, 2, size).astype(np.float32)}

    random = np.random.default_rng(0)
    params = {
        "embedding": 0.1 * random.normal(size=(num_words, WIDTH)).astype(np.float32),
        "out": 0.1 * random.normal(size=WIDTH).astype(np.float32),
    }
    budget = l2p.Budget(3.0, 1e-7)
    protector = l2p.load("dp_adam_pulled", budget).replace(num_steps=num_steps)
    started = time.perf_counter()
    source = l2p.BlockSource(blocks, num_rows)
    result = l2p.private_train(source, protector, budget, model=loss, params=params, exactness=exactness)
    seconds = time.perf_counter() - started
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    size = sum(leaf.size for leaf in jax.tree.leaves(params))
    return f"| {size:,} | {num_rows:,} | {exactness} | {result.steps} | {seconds:.0f} | {memory:.2f} |"


def main(line: int | None = None) -> None:
    """Print the page, or one of its lines."""
    if line is not None:
        print(release(*LINES[line]))
        return
    facts = {"machine": platform.machine(), "version": jax.__version__}
    print(INTRODUCTION.format(words=WORDS, block=BLOCK, **facts))
    for place in range(len(LINES)):
        command = [sys.executable, "-m", "benchmarks.large_network", "--line", str(place)]
        print(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout, end="", flush=True)


if __name__ == "__main__":
    tyro.cli(main)
