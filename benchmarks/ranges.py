"""Protectors within and outside their ranges: tasks of 2 to 100 classes and 2 to 1,000 of MNIST's frozen features, on
which they were not trained.

    python benchmarks/ranges.py [--tasks 16] [--rows 2048] [--only probe]

For each shape and log(mu N): mean test accuracy of the protector as deployed (its constants outside its range, and
where its card says that networks gain nothing), and its gain over those constants and over tuned NoisyGD on the same
tasks with the same noise, with standard errors over tasks. A row represents N / rows rows of a table of N. Needs the
MNIST test set (`L2P_DATA_DIR`, or a download).
"""

import argparse
import dataclasses
import platform
import time

import jax
import jax.numpy as jnp
import numpy as np

from l2p.checkpoints import checkpoint
from l2p.checkpoints.control import control_of
from l2p.models import Logistic, Model, Softmax
from meta_train.evaluation.budgets import ByMu
from meta_train.evaluation.meta_test import Tasks, accuracies, draw

SOURCE, SIGNALS, SEED = "mnist:features:1152", (4.0, 6.0, 8.0), 91


@dataclasses.dataclass(frozen=True)
class Case:
    """A protector, NoisyGD tuned for its model, and shapes of tasks: numbers of features and of classes."""

    name: str
    tuned: str
    shapes: tuple[tuple[int, int], ...]


CASES = (
    Case(
        "universal-logistic-no-mnist",
        "noisygd-tuned-logistic-adult",
        ((2, 2), (8, 2), (64, 2), (128, 2), (288, 2), (512, 2), (1000, 2)),
    ),
    Case(
        "probe",
        "noisygd-tuned-softmax-digits-features",
        ((64, 3), (64, 10), (288, 30), (128, 100), (512, 100), (1000, 10)),
    ),
)


def main(num_tasks: int, num_rows: int, only: str | None) -> None:
    print(f"jax {jax.__version__} on {jax.default_backend()}, Python {platform.python_version()}; {num_tasks} tasks")
    for case in CASES:
        if only in (None, case.name):
            measure(case, num_tasks, num_rows)


def measure(case: Case, num_tasks: int, num_rows: int) -> None:
    """Print a protector's table."""
    ours = checkpoint.load(case.name)
    control = control_of(ours.card)
    if control is None:
        raise SystemExit(f"{case.name} has no constants of its own to be compared with")
    loaded = {name: checkpoint.load(name) for name in (case.name, control.name, case.tuned)}
    print(f"| features | classes | log(mu N) | {case.name} | over its constants | over noisygd:tuned |")
    print("|---|---|---|---|---|---|")
    for num_features, num_classes in case.shapes:
        began = time.monotonic()
        model: Model = Logistic() if num_classes == 2 else Softmax(num_classes)
        tasks = draw(SOURCE, model, num_features, num_tasks, num_rows, SEED, num_classes=num_classes)
        inside = ours.card["range"]["num_features"][0] <= num_features <= ours.card["range"]["num_features"][1]
        for signal in SIGNALS:
            by_name = {name: scores(saved, model, tasks, signal) for name, saved in loaded.items()}
            if not inside or control.is_level(signal, model.name):
                by_name[case.name] = by_name[control.name]
            over = [difference(by_name[case.name], by_name[name]) for name in (control.name, case.tuned)]
            mean = f"{100 * by_name[case.name].mean():.1f}"
            print(f"| {num_features} | {num_classes} | {signal:g} | {mean} | {' | '.join(over)} |")
        print(f"{num_features} x {num_classes}: {time.monotonic() - began:.0f} s", flush=True)


def scores(saved: checkpoint.Checkpoint, model: Model, tasks: Tasks, signal: float) -> np.ndarray:
    """Test accuracy of every task at one budget."""
    at = jnp.full(tasks.trivial.size, signal)
    return np.asarray(accuracies(saved.protector, model, ByMu("gdp"), tasks, at, SEED))


def difference(ours: np.ndarray, theirs: np.ndarray) -> str:
    """Mean and standard error of a paired difference, in points; "same" where nothing differs."""
    gain = 100 * (ours - theirs)
    return f"{gain.mean():+.2f} ({gain.std(ddof=1) / len(gain) ** 0.5:.2f})" if gain.any() else "same"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=16)
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--only", choices=[case.name for case in CASES])
    arguments = parser.parse_args()
    main(arguments.tasks, arguments.rows, arguments.only)
