"""`probe` over its range: tasks of 3 to 100 classes and 64 to 1,000 of MNIST's frozen features, which it never saw.

    python benchmarks/probe_shapes.py [--tasks 16] [--rows 2048]

For each shape and log(mu N): mean test accuracy of `probe` as deployed (its constants where its card says that networks
gain nothing), and by how much it beats `control-probe` and tuned NoisyGD on the same tasks with the same noise, with
standard errors over tasks. A row stands for N / rows rows of a table of N. Needs the MNIST test set (`L2P_DATA_DIR`, or
a download).
"""

import argparse
import platform
import time

import jax
import jax.numpy as jnp
import numpy as np

from l2p import checkpoint
from l2p.lookup import control_of
from l2p.models import Softmax
from meta_train.budgets import ByMu
from meta_train.meta_test import accuracies, draw

SOURCE = "mnist:features:1152"
SHAPES = ((64, 3), (64, 10), (288, 30), (128, 100), (512, 100), (1000, 10))
SIGNALS = (4.0, 6.0, 8.0)
OURS, CONTROL, TUNED = "probe", "control-probe", "noisygd-tuned-softmax-digits-features"
SEED = 91


def main(num_tasks: int, num_rows: int) -> None:
    loaded = {name: checkpoint.load(name) for name in (OURS, CONTROL, TUNED)}
    control = control_of(loaded[OURS].card)
    print(f"jax {jax.__version__} on {jax.default_backend()}, Python {platform.python_version()}; {num_tasks} tasks")
    print("| features | classes | log(mu N) | probe | over control-probe | over noisygd:tuned |")
    print("|---|---|---|---|---|---|")
    for num_features, num_classes in SHAPES:
        began, model = time.monotonic(), Softmax(num_classes)
        tasks = draw(SOURCE, model, num_features, num_tasks, num_rows, SEED, num_classes=num_classes)
        for signal in SIGNALS:
            at = jnp.full(tasks.trivial.size, signal)
            found = {
                name: np.asarray(accuracies(one.protector, model, ByMu("gdp"), tasks, at, SEED))
                for name, one in loaded.items()
            }
            if control is not None and control.is_level(signal):
                found[OURS] = found[CONTROL]
            over = [difference(found[OURS], found[name]) for name in (CONTROL, TUNED)]
            print(
                f"| {num_features} | {num_classes} | {signal:g} | {100 * found[OURS].mean():.1f} | {' | '.join(over)} |"
            )
        print(f"{num_features} x {num_classes}: {time.monotonic() - began:.0f} s", flush=True)


def difference(ours: np.ndarray, other: np.ndarray) -> str:
    """Mean and standard error of a paired difference, in points."""
    gain = 100 * (ours - other)
    return f"{gain.mean():+.2f} ({gain.std(ddof=1) / len(gain) ** 0.5:.2f})"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=16)
    parser.add_argument("--rows", type=int, default=2048)
    arguments = parser.parse_args()
    main(arguments.tasks, arguments.rows)
