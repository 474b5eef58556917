"""Methods on networks that a user brings along, on sets and architectures that no tuning saw.

    python -m benchmarks.network_table > benchmarks/pages/networks.md

runs the cells that the results lack, for hours, and prints the page; with --page it prints what is there.
"""

import itertools
import json
import platform
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import jax
import numpy as np
import tyro

from benchmarks.network_cases import CASES, Case, score
from l2p.checkpoints.defaults import OF_USERS

RESULTS = Path(__file__).parent / "results" / "networks.jsonl"
EPSILONS, SEEDS = (0.5, 1.0, 3.0, 8.0), 10
BY_HAND = (
    "dp_adam",
    "dp_adam_pulled",
    "dp_adamw",
    "dp_adambc",
    "dp_adam_scaled",
    "disk",
    "noisygd_pulled",
    "noisygd",
    "auto_clip",
    "hyfree",
)
#: Seeds below which a line is left out.
LEAST_SEEDS = 3
#: Those of which tuned settings ship.
TUNED = ("dp_adam",)
ORACLE = ":oracle"
#: The learning rates and clipping norms of an oracle's grid.
RATES = {
    "dp_adam": (0.003, 0.01, 0.03, 0.1),
    "dp_adam_pulled": (0.003, 0.01, 0.03, 0.1),
    "noisygd": (0.05, 0.2, 0.8, 3.0),
}
CLIPS = (0.3, 1.0, 3.0)
LEARNED = ("control-deep",)
METHODS = (
    "start",
    *BY_HAND,
    *LEARNED,
    *(f"{method}:tuned" for method in TUNED),
    *(f"{method}{ORACLE}" for method in RATES),
)
#: 1 for scores of which less is better, -1 for those of which more is.
SIGNS = {"loss": 1.0, "accuracy": -1.0}
#: Seeds on which an oracle chooses.
CHOOSING = (100, 101, 102)
INTRODUCTION = """\
# Methods on networks, tuned elsewhere

Networks that a user brings along as a loss of one row, trained by simulated runs of every method: as its authors set
it, with settings that were tuned on public tasks of networks (`:tuned`; `l2p meta-train --recipe
dp_adam-tuned-custom-networks`), and with the best learning rate and clipping norm of a grid that was searched on the
very data, uncharged (`:oracle`; with a pull that is kept), which no private run can afford. Mean test loss, its
standard error over seeds, and accuracy; delta 1e-5, full batches. No image was among the tasks of the settings that
ship (the recipe has synthetic images and signals by now), and no set below. Digits have 1,437 rows to train on, MNIST
(its 10,000 test images, halved in width and height) and ipums_br 8,000, waveform5000 4,000, splice 2,552, cmc 1,178,
credit.a 552. Methods that lack a cell are left out, as `dp_adam_scaled`, which has run in three.

What a method is by default was chosen on the digits, and after a first look at them classes that a network separates
came among the tasks, and then images: they are spent, and home to untuned `dp_adam`. Trained settings have far more
loss there where budgets are small ([why](network_settings.md)), also with pictures among the tasks (1.08, 1.26 and 1.37
at epsilon .5 with dense layers, convolutions and an adapter, after 160 steps of the recipe with all of it kept). So
half of what training changed ships (`kept` in the recipe), which was chosen on the digits at epsilon .5. Nothing was
chosen on splice, waveform5000, cmc, credit.a and ipums_br; MNIST was looked at while `control-deep` was designed. On
credit.a and ipums_br `dp_adam`, `dp_adamw` and `dp_adambc` end above the start at most budgets, on cmc some of them at
some, and the shipped settings less far: they are too sure of the rows that they get wrong. Where budgets are small, and
on cmc, credit.a and ipums_br at most or all, the methods whose steps grow with the noise end above it, some of them
far: `noisygd`, `noisygd_pulled`, `disk`, `auto_clip` and `hyfree`. `disk` does so on waveform5000 at six budgets of
eight, `hyfree` at three and `auto_clip` at one, and why was not looked into. `dp_adam_pulled`, the default, ends above
its start at epsilon .5 on ipums_br alone, where it is right in three rows of four, and too sure where it is wrong. Its
two constants were chosen on digits and on public tasks ([how](network_pull.md)), and in their mean it is better than
`dp_adam`. It is worse with the head on MNIST, and on digits where budgets are small. `control-deep`, which was learned,
ends above its start nowhere; it is better than the default on most sets where nothing was chosen, and worse on digits
and with the head, so that it [is not the default](deep.md). Rivals that were tuned by equally many runs are [on a page
of their own](network_rivals.md).

`python -m benchmarks.network_table --page > benchmarks/pages/networks.md`
"""


CONTEXT = """\

## Published, for context

Accuracy as the authors report it, of nothing that ran here: on whole training sets, of 60,000 rows (MNIST,
Fashion-MNIST) or 50,000 (CIFAR-10), in mini-batches, without other data. Sets above have at most 8,000 rows to train
on, so that one epsilon means several times more noise.

| data | epsilon | network | accuracy |
|---|---|---|---|
| MNIST | 3 | convolutions, DP-SGD (Tramer and Boneh 2021) | 98.1% |
| MNIST | 3 | linear on ScatterNet features (Tramer and Boneh 2021) | 98.7% |
| Fashion-MNIST | 3 | convolutions, DP-SGD (Tramer and Boneh 2021) | 86.0% |
| Fashion-MNIST | 3 | linear on ScatterNet features (Tramer and Boneh 2021) | 89.7% |
| CIFAR-10 | 3 | convolutions, DP-SGD (Tramer and Boneh 2021) | 59.2% |
| CIFAR-10 | 3 | linear on ScatterNet features (Tramer and Boneh 2021) | 67.0% |
| CIFAR-10 | 8 | WideResNet, DP-SGD (De et al. 2022) | 81.4% |
| CIFAR-10 | 1 | from features learned of images of random processes, DP-RandP (Tang et al. 2023) | 72.3% |"""


class Cells:
    """Scores by case, method, epsilon and seed, and seconds by the clock, each run once and kept in a file."""

    def __init__(self, path: Path):
        self._path = path
        lines = map(json.loads, path.read_text().splitlines() if path.is_file() else ())
        self.scores = {tuple(line.pop("cell")): line for line in lines}

    def __call__(self, case: Case, method: str, epsilon: float, seed: int) -> dict[str, float]:
        cell = (case.title, method, epsilon, seed)
        if cell not in self.scores:
            protector, started = self.protector(case, method, epsilon), time.perf_counter()
            scores = score(case, protector, epsilon, seed)
            self.scores[cell] = scores | {"seconds": round(time.perf_counter() - started, 2)}
            with self._path.open("a") as file:
                file.write(json.dumps({"cell": cell, **self.scores[cell]}) + "\n")
        return self.scores[cell]

    def protector(self, case: Case, method: str, epsilon: float) -> Any:
        """What runs for a method, as `protector_of` takes it: for an oracle the candidate with the least mean loss on
        seeds of its own."""
        if not method.endswith(ORACLE):
            return method
        name = method.removesuffix(ORACLE)
        candidates = [f"{name} {rate:g} {clip:g}" for rate in RATES[name] for clip in CLIPS]
        return min(
            candidates, key=lambda candidate: sum(self(case, candidate, epsilon, seed)["loss"] for seed in CHOOSING)
        )


def page(cells: Cells) -> Iterator[str]:
    """The page: mean loss with its standard error, and accuracy, on the seeds that all cells of a line have."""
    yield f"{INTRODUCTION}({platform.machine()}, jax {jax.__version__})."
    for case in CASES:
        lines = [line for method in METHODS if (line := _line(cells, case, method))]
        if lines:
            yield f"\n## {case.title}\n"
            yield "| method | seeds | " + " | ".join(f"epsilon {epsilon:g}" for epsilon in EPSILONS) + " |"
            yield "|---|---|" + "---|" * len(EPSILONS)
            yield from lines
    yield from comparison(cells)
    yield from comparison(cells, OF_USERS)
    yield from default_beside_others(cells)
    yield CONTEXT


def comparison(cells: Cells, tuned: str = "dp_adam:tuned", untuned: str = "dp_adam") -> Iterator[str]:
    """In which cells other settings are better and worse than untuned ones."""
    yield f"\n## `{tuned}` beside `{untuned}`\n"
    yield "Cells by paired differences over seeds, beyond two standard errors or within (level).\n"
    yield "| score | better | level | worse | worse in |\n|---|---|---|---|---|"
    for measure in SIGNS:
        titles = verdicts(cells, tuned, untuned, measure)
        counts = " | ".join(str(len(listed)) for listed in titles.values())
        yield f"| {measure} | {counts} | {'; '.join(titles['worse'])} |"


def default_beside_others(cells: Cells) -> Iterator[str]:
    """In how many cells the default is better and worse than each other method."""
    by_method = {
        method: [verdicts(cells, OF_USERS, method, measure) for measure in SIGNS]
        for method in METHODS
        if method != OF_USERS
    }
    missing = [f"`{method}`" for method, (of_loss, _) in by_method.items() if not any(of_loss.values())]
    yield f"\n## `{OF_USERS}`, the default for such losses, beside the others\n"
    yield f"Cells counted likewise, of those in which both have run. Not run: {', '.join(missing) or 'none'}.\n"
    yield "| beside | loss: better | level | worse | accuracy: better | level | worse |\n|---|---|---|---|---|---|---|"
    for method, by_measure in by_method.items():
        counts = [str(len(listed)) for titles in by_measure for listed in titles.values()]
        if f"`{method}`" not in missing:
            yield f"| `{method}` | {' | '.join(counts)} |"


def verdicts(cells: Cells, method: str, other: str, measure: str) -> dict[str, list[str]]:
    """Titles of the cells in which a method is better, level and worse than another one, by paired differences over
    seeds and two standard errors."""
    titles: dict[str, list[str]] = {"better": [], "level": [], "worse": []}
    for case, epsilon in itertools.product(CASES, EPSILONS):
        first, second = (
            [cells.scores.get((case.title, name, epsilon, seed)) for seed in range(SEEDS)] for name in (method, other)
        )
        differences = [mine[measure] - its[measure] for mine, its in zip(first, second, strict=True) if mine and its]
        if len(differences) >= LEAST_SEEDS:
            worse = SIGNS[measure] * np.array(differences)
            errors = worse.mean() / max(worse.std(ddof=1) / len(worse) ** 0.5, 1e-9)
            verdict = "better" if errors < -2 else "worse" if errors > 2 else "level"
            titles[verdict].append(f"{case.title} at {epsilon:g}")
    return titles


def _line(cells: Cells, case: Case, method: str) -> str:
    """A line of a table; empty where a cell lacks the least number of seeds."""
    scores = [[cells.scores.get((case.title, method, epsilon, seed)) for seed in range(SEEDS)] for epsilon in EPSILONS]
    seeds = [seed for seed in range(SEEDS) if all(row[seed] for row in scores)]
    if len(seeds) < LEAST_SEEDS:
        return ""
    return f"| `{method}` | {len(seeds)} | " + " | ".join(_cell([row[seed] for seed in seeds]) for row in scores) + " |"


def _cell(scores: list[dict[str, float]]) -> str:
    losses = np.array([score["loss"] for score in scores])
    accuracy = np.mean([score["accuracy"] for score in scores])
    return f"{losses.mean():.3f} ({losses.std(ddof=1) / len(losses) ** 0.5:.3f}), {accuracy:.1%}"


def main(
    out: Path = RESULTS,
    seeds: int = SEEDS,
    cases: tuple[str, ...] = tuple(dict.fromkeys(case.data for case in CASES)),
    methods: tuple[str, ...] = METHODS,
    page_only: Annotated[bool, tyro.conf.arg(name="page")] = False,
) -> None:
    """Run the cells of these sets and methods that are not there, and print the page."""
    cells = Cells(out)
    chosen = [] if page_only else [case for case in CASES if case.data in cases]
    for cell in itertools.product(chosen, methods, EPSILONS, range(seeds)):
        cells(*cell)
    print("\n".join(page(cells)))


if __name__ == "__main__":
    tyro.cli(main)
