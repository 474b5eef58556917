"""What `bolt_on` does unless told otherwise: its constants on public sets, and its scores on Adult and MNIST.

    python -m benchmarks.bolt_on_default [--runs FOLDER] > benchmarks/pages/bolt_on_default.md

The constants of `l2p.protectors.by_hand.planned_bolt_on` are compared on sixteen public sets that are neither, by the
test loss of gradient descent on shrunk rows with noise on its result: the same as passes in large batches. OpenML's
tables are read from the folder `L2P_TABLES`, if set, and MNIST from `L2P_DATA_DIR`.
"""

import argparse
import itertools
import math
import platform
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np

from l2p.compare import results
from l2p.compare.config import CompareConfig
from l2p.compare.runner import compare
from l2p.tables.public.catalog import load, num_classes

CHOSEN_ON = (
    *("breast_cancer", "digits", "ipums_br", "openml:credit.g", "openml:diabetes", "openml:ionosphere"),
    *("openml:kr.vs.kp", "openml:mushroom", "openml:nursery", "openml:page.blocks", "openml:segment", "openml:sick"),
    *("openml:splice", "openml:tic-tac-toe", "openml:vote", "openml:waveform5000"),
)
ROWS, DRAWS, INTERCEPT = 3_000, 4, 0.5
SIGNALS = (10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4)
#: Steps of 1 / beta after which the loss is known; the first ten are tenths of a step.
STEPS = (0.1, 0.2, 0.5, 1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700, 1000, 1500)
PER_UNIT, NOISES, FAINTS = (4.0, 6.0, 8.0), (0.2, 0.3, 0.4, 0.5, 0.6, 0.8), (0.0, 20.0)
METHODS = ("bolt_on", "scs13", "bst14", "noisygd", "universal")
PURE = ("bolt_on", "scs13")
EPSILONS, DELTA, SEEDS = (0.1, 1.0, 3.0), 1e-6, 10

INTRODUCTION = """\
# What `bolt_on` does by default
The rule (`l2p/protectors/by_hand/planned_bolt_on.py`): rows are shrunk to B = sqrt(d / 6), at least 1; constant steps
of 1 / beta go on until noise on the margin of a row of length B has a standard deviation of .4 s / (s + 20), where the
signal s is N mu, divided by the root of the number of classes; pure, it is N epsilon over the number of classes and
sqrt(p + 1); half of that for replaced rows. Batches are as large as ten passes of so many steps allow; no ridge, no
average, no ball. [bolt_on.md](bolt_on.md) has the paper's settings, which `BoltOn` keeps.

`python -m benchmarks.bolt_on_default > benchmarks/pages/bolt_on_default.md`"""
CONSTANTS = """
## Chosen on public sets
Mean over sixteen sets and seven signals from 10 to 10,000: how far the test loss lies above the best after any number
of steps and for any of these lengths, as a share of the start's loss; then the most that a loss lies above the start.
"Features" are those to a squared length of 1, "faint" is the signal at which noise is halved. The halving costs little
on the mean and keeps faint signals near the start.
"""
MEASURED = """
## Adult and MNIST, of which nothing was chosen
Mean test loss and accuracy over ten splits with standard errors; delta 1e-6, zero_out, but `bst14`, whose proof is of
replaced rows; MNIST is the 10,000 rows of its test part, 8,000 to train on. `universal` stands for those of its folds
that have not seen the set. `bolt_on`, `scs13` and `bst14` train each class against the rest.
"""


class Curve(NamedTuple):
    """Test losses f[signal, step] of one set, with rows of one length bound; `start` is that of params of 0."""

    start: float
    losses: np.ndarray

    def at(self, signal: int, steps: float) -> float:
        """The loss after so many steps of 1 / beta, relative to the start."""
        losses = np.concatenate([[self.start], self.losses[signal]])
        return float(np.interp(steps, (0.0, *STEPS), losses)) / self.start


CLOSING = """
Losses above the start's and accuracies below the larger class are those of noise: `scs13` and `bst14` add it to every
gradient, and so does `noisygd`, untuned, which ends above the start on MNIST at .1. Pure noise on ten classes at .1
leaves params next to their start: the loss is just below the start's, and the accuracy is that of chance, which may lie
below the share of the larger class."""


def curve(name: str, per_unit: float) -> Curve:
    """Gradient descent on a fixed split, with Gaussian noise of every signal on what it has reached."""
    table, classes = load(name), num_classes(name)
    assert classes is not None
    random = np.random.default_rng(0)
    order = random.permutation(len(table.y))[:ROWS]
    design = np.column_stack([table.x[order], np.full(len(order), INTERCEPT)]).astype(np.float32)
    bound = max(1.0, math.sqrt(table.x.shape[1] / per_unit))
    shrunk = design * np.minimum(1.0, bound / np.linalg.norm(design, axis=1, keepdims=True))
    labels = table.y[order].astype(int)[:, None] == np.arange(classes)
    labels = labels[:, 1:] if classes == 2 else labels
    count = len(order) * 4 // 5
    weights, done, losses = np.zeros((design.shape[1], labels.shape[1]), np.float32), 0.0, []
    noise = random.standard_normal((DRAWS, *weights.shape))
    for steps in STEPS:
        while done < steps - 1e-9:
            size = min(1.0, steps - done)
            slopes = 1.0 / (1.0 + np.exp(-shrunk[:count] @ weights)) - labels[:count]
            weights = weights - size * 4.0 / bound**2 / count * shrunk[:count].T @ slopes
            done += size
        noised = [weights + noise * (4.0 * steps / bound / signal) for signal in SIGNALS]
        losses.append([np.mean([loss(design[count:] @ w, labels[count:]) for w in draws]) for draws in noised])
    return Curve(math.log(classes), np.transpose(losses))


def loss(margins: np.ndarray, labels: np.ndarray) -> float:
    """Mean logistic loss, or cross-entropy for several classes."""
    if labels.shape[1] == 1:
        return float(np.logaddexp(0.0, np.where(labels, -margins, margins)).mean())
    return float((np.logaddexp.reduce(margins, axis=1) - margins[labels]).mean())


def steps_of(noise: float, faint: float, signal: float) -> float:
    """Steps of 1 / beta by the rule, for the logistic loss."""
    return noise * signal / (1.0 + faint / signal) / 4.0


def constants() -> None:
    curves = {(name, per): curve(name, per) for name in CHOSEN_ON for per in PER_UNIT}
    signals = range(len(SIGNALS))
    best = {
        (name, at): min(1.0, *(curves[name, per].losses[at].min() / curves[name, per].start for per in PER_UNIT))
        for name in CHOSEN_ON
        for at in signals
    }

    def scores(per: float, noise: float, faint: float) -> tuple[float, float]:
        """Mean regret, and the most that a loss lies above its start."""
        losses = {(name, at): curves[name, per].at(at, steps_of(noise, faint, SIGNALS[at])) for name, at in best}
        regret = np.mean([min(losses[cell] - best[cell], 1.0) for cell in best])
        return float(regret), max(losses.values()) - 1.0

    print("| features | faint | " + " | ".join(f"noise {noise:g}" for noise in NOISES) + " |")
    print("|" + "---|" * (len(NOISES) + 2))
    for per, faint in itertools.product(PER_UNIT, FAINTS):
        cells = (scores(per, noise, faint) for noise in NOISES)
        print(f"| {per:g} | {faint:g} | " + " | ".join(f"{regret:.3f}, {above:+.2f}" for regret, above in cells) + " |")


def measured(data: str, model: str, runs: Path) -> None:
    """A line for each method and noise, and one for the start and the larger class."""
    for noise, methods, accountant in (("Gaussian", METHODS, None), ("gamma, pure", PURE, "basic")):
        for method in methods:
            print(
                f"| {data} | {noise} | `{method}` | {' | '.join(scores_of(data, model, method, accountant, runs))} |",
                flush=True,
            )
    counts = np.bincount(load(data).y.astype(int))
    start = f"{math.log(len(counts)):.3f} | {counts.max() / counts.sum():.3f}"
    print(f"| {data} | none | start, larger class | " + " | ".join([start] * len(EPSILONS)) + " |", flush=True)


def scores_of(data: str, model: str, method: str, accountant: str | None, runs: Path) -> Iterator[str]:
    """Means over splits with their standard errors: test loss and accuracy at each epsilon."""
    folder = runs / f"{data}-{method}-{accountant}"
    settings = {"model": model, "methods": (method,), "epsilon": EPSILONS, "delta": DELTA, "seeds": SEEDS}
    rows = compare(CompareConfig(data, folder, accountant=accountant, **settings))
    for epsilon, column in itertools.product(EPSILONS, ("test_loss", "test_accuracy")):
        mean = results.Estimate.of([row[column] for row in rows if row["epsilon"] == epsilon])
        yield f"{mean.mean:.3f} ± {mean.error:.3f}"


def main(runs: Path) -> None:
    print(INTRODUCTION)
    print(f"({platform.machine()}, jax {jax.__version__}, Python {platform.python_version()}).")
    print(CONSTANTS)
    constants()
    print(MEASURED)
    print("| data | noise | method | " + " | ".join(f"loss, {e:g} | accuracy, {e:g}" for e in EPSILONS) + " |")
    print("|" + "---|" * (3 + 2 * len(EPSILONS)))
    measured("adult", "logistic", runs)
    measured("mnist", "softmax", runs)
    print(CLOSING)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="What `bolt_on` does unless told otherwise.")
    parser.add_argument("--runs", type=Path, help="a folder for what was run, with which the same command goes on")
    with tempfile.TemporaryDirectory() as temporary:
        main(parser.parse_args().runs or Path(temporary))
