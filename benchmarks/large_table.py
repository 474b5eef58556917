"""Releases from a million rows: full batches against Poisson batches, which read fewer rows in more steps.

    python -m benchmarks.large_table [--rows 1000000]

Each is run twice and the second run is timed, so that compilation is not included. Epsilon 0.1, delta
1e-8, a noisy linear teacher of 50 features; accuracy is on rows of the same teacher.
"""

import argparse
import platform
import time

import jax
import numpy as np

from l2p import Budget, Rows, private_train
from l2p.models import Logistic

NAMES = ("noisygd", "dpsgd", "minibatch@0.2", "minibatch", "minibatch@0.02")
NUM_FEATURES, TEST_ROWS = 50, 20_000
BUDGET = Budget(0.1, 1e-8)


def table(num_rows: int) -> Rows:
    """Rows in [0, 1], correlated, and the label of a noisy linear teacher."""
    generator = np.random.default_rng(0)
    mixing = generator.normal(size=(NUM_FEATURES, NUM_FEATURES)) / NUM_FEATURES**0.5
    scores = generator.normal(size=(num_rows, NUM_FEATURES)).astype(np.float32) @ mixing.astype(np.float32)
    x = 1.0 / (1.0 + np.exp(-scores))
    logits = 6.0 * (x - 0.5) @ generator.normal(size=NUM_FEATURES).astype(np.float32)
    y = generator.random(num_rows) < 1.0 / (1.0 + np.exp(-logits))
    return Rows(x, y.astype(np.float32), np.ones(num_rows, np.float32))


def main(num_rows: int) -> None:
    everything = table(num_rows + TEST_ROWS)
    rows, test = (
        Rows(*(leaf[part] for leaf in (everything.x, everything.y, everything.mask)))
        for part in (slice(num_rows), slice(num_rows, None))
    )
    print(
        f"{num_rows:,} x {NUM_FEATURES}; jax {jax.__version__} on {jax.default_backend()}, {platform.python_version()}"
    )
    print("| protector | steps | rows read, in tables | seconds | accuracy |")
    print("|---|---|---|---|---|")
    for name in NAMES:
        private_train(rows, name, BUDGET)
        began = time.perf_counter()
        result = private_train(rows, name, BUDGET)
        seconds = time.perf_counter() - began
        steps, rate = result.card.steps, result.card.sampler.get("sampling_rate", 1.0)
        right = float((np.asarray(Logistic().predict(result.params, test.x)) == test.y).mean())
        print(f"| `{name}` | {steps} | {steps * rate:.0f} | {seconds:.1f} | {100 * right:.2f} |", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    main(parser.parse_args().rows)
