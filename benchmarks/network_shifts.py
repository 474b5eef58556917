"""Methods on one set with networks, batches and horizons that no tuning saw, one changed at a time.

    python -m benchmarks.network_shifts > benchmarks/pages/network_shifts.md

runs the cells that the results lack, and prints the page; with --page it prints what is there.
"""

import dataclasses
import itertools
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import jax
import numpy as np
import tyro

from benchmarks.network_cases import Case, Dense
from benchmarks.network_table import RESULTS as OF_NETWORKS
from benchmarks.network_table import Cells

RESULTS = Path(__file__).parent / "results" / "network_shifts.jsonl"
EPSILONS, SEEDS = (1.0, 3.0), 10
METHODS = ("dp_adam_pulled", "control-deep", "dp_adam", "dp_adam:tuned")
SET = "openml:waveform5000"


def dense(*widths: int) -> Case:
    """A dense network of these widths."""
    return Case(f"dense {'-'.join(map(str, widths))}", SET, lambda classes: Dense(widths, classes))


USUAL = dense(64, 32)
CASES = {
    "as in the table": USUAL,
    "width 16": dense(16),
    "width 256": dense(256, 256),
    "five layers": dense(64, 64, 64, 64, 64),
    "batches of 5 %": dataclasses.replace(USUAL, name="dense 64-32, batches of 5 %", sampling_rate=0.05),
    "batches of 20 %": dataclasses.replace(USUAL, name="dense 64-32, batches of 20 %", sampling_rate=0.2),
    "15 steps": dataclasses.replace(USUAL, name="dense 64-32, 15 steps", num_steps=15),
    "200 steps": dataclasses.replace(USUAL, name="dense 64-32, 200 steps", num_steps=200),
    "features times 4": dataclasses.replace(USUAL, name="dense 64-32, features times 4", scale=4.0),
    "features over 4": dataclasses.replace(USUAL, name="dense 64-32, features over 4", scale=0.25),
}
INTRODUCTION = """\
# Networks, batches and horizons that no tuning saw

Waveform5000, of which nothing was chosen, with the dense network of [networks.md](networks.md) and full batches, and
with its width, depth, batches (Poisson), number of steps or the scale of its features changed, one at a time. Settings
stay as they ship: `dp_adam:tuned` was tuned with full batches, 100 steps and widths up to 128,
[`control-deep`](deep.md) was learned with full batches, 50 steps and up to two hidden layers and 128 units, `dp_adam`
is untuned, and the default, `dp_adam_pulled`, has [two constants](network_pull.md). Mean test loss of {seeds} seeds
(standard error), delta 1e-5. Seconds are those of a run of the default by the clock, compiled, with other jobs beside
it; memory of a step is on [a page of its own](network_steps.md).

`control-deep` has less loss than the default in all rows but three, two of a narrow network and one of 200 steps at
epsilon 1, and far less where networks are wide or deep and where features are four times as large: it knows the length
of gradients. The default has less than `dp_adam`, tuned or not, in all rows but three, of a narrow network and of small
features at epsilon 1 and of 15 steps at 3. Its loss rises where networks are deep, where batches are small and the
budget is, where features are on another scale, and where 15 steps are too few for its learning rate. With five layers
at epsilon 1 `dp_adam` ends above what even shares of the classes give (1.099): it grows too sure of rows that it gets
wrong, as on [other sets](networks.md).

`python -m benchmarks.network_shifts --page > benchmarks/pages/network_shifts.md`
({machine}, jax {version}).
"""


def page(cells: Cells) -> Iterator[str]:
    yield INTRODUCTION.format(seeds=SEEDS, machine=platform.machine(), version=jax.__version__)
    for epsilon in EPSILONS:
        yield f"\n## Epsilon {epsilon:g}\n"
        yield "| | " + " | ".join(f"`{method}`" for method in METHODS) + " | seconds |"
        yield "|---|" + "---|" * (len(METHODS) + 1)
        for name, case in CASES.items():
            scores = {
                method: [cells.scores[case.title, method, epsilon, seed] for seed in range(SEEDS)] for method in METHODS
            }
            losses = [np.array([score["loss"] for score in of_method]) for of_method in scores.values()]
            shown = [f"{loss.mean():.3f} ({loss.std(ddof=1) / SEEDS**0.5:.3f})" for loss in losses]
            times = [score["seconds"] for score in scores[METHODS[0]] if "seconds" in score]
            yield f"| {name} | {' | '.join([*shown, f'{min(times):.1f}' if times else ''])} |"


def main(
    out: Path = RESULTS,
    page_only: Annotated[bool, tyro.conf.arg(name="page")] = False,
) -> None:
    """Run what is not there, and print the page."""
    cells = Cells(out)
    cells.scores |= Cells(OF_NETWORKS).scores
    for cell in itertools.product([] if page_only else CASES.values(), METHODS, EPSILONS, range(SEEDS)):
        cells(*cell)
    print("\n".join(page(cells)))


if __name__ == "__main__":
    tyro.cli(main)
