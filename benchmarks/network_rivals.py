"""Hand-designed methods on networks, each tuned on the same public tasks with equally many runs.

    for name in dp_adam dp_adam_pulled dp_adamw dp_adambc disk noisygd noisygd_pulled auto_clip hyfree; do
        l2p meta-train --recipe $name-short --out FOLDER/$name
    done
    python -m benchmarks.network_rivals FOLDER > benchmarks/pages/network_rivals.md

The trainings take 10 to 15 minutes each on a core. Prints the scores on held-out tasks that ended them, by which a
default would be chosen, and mean test losses on digits and on sets that no training saw.
"""

from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import tyro

from benchmarks.network_table import CASES, EPSILONS, score
from l2p.checkpoints.checkpoint import read_checkpoint_card
from l2p.checkpoints.method_name import SUFFIX

#: Sets that no training saw.
SETS = ("openml:splice", "openml:cmc", "openml:credit.a")
#: Untuned settings were chosen on it.
DIGITS = ("digits", "dense 96-96")
SEEDS = 3
INTRODUCTION = """\
# Rivals on networks after equally many runs

Methods whose settings were tuned as polynomials in log(mu N) over the root of the number of params, on the same public
tasks of networks with equally many simulated runs ({steps} steps of {tasks} tasks, twice each;
`l2p meta-train --recipe NAME-short`). All of what training changed is kept here, which is half of it in what ships as
`dp_adam:tuned` ([networks.md](networks.md)).

On held-out tasks: the score that training minimises, the mean over budgets of log(excess loss over that of the start +
.05); and by how much runs end above the better of the start and a bought base rate, in units of the gap between that
and the non-private model.

Of nine recipes four have been trained so far. **`dp_adam_pulled`, the untuned default, is the best of them on held-out
tasks.** What training changed helps on the three tables below, but for epsilon .5 on credit.a, and costs on digits,
whose classes are easily told apart, a third of the loss at the smallest budget (the three others were not run there);
so the default stays untuned. `noisygd_pulled` ends above its start on credit.a from epsilon 3 on, and on cmc at .5, and
untuned `dp_adam` on both at every budget: with few rows to train on, networks grow too sure of themselves
([what a pull does about it](network_pull.md)).

`python -m benchmarks.network_rivals FOLDER > benchmarks/pages/network_rivals.md`
(x86_64, jax {version}).

| method | score | ends above |
|---|---|---|"""


def cards(folder: Path) -> dict[str, tuple[Path, dict]]:
    """Checkpoints in a folder and below by their protectors' names, best score first: paths and cards."""
    paths = sorted(folder.rglob(f"*{SUFFIX}"))
    trained = [(path, read_checkpoint_card(path)) for path in paths]
    trained.sort(key=lambda pair: pair[1]["held_out"]["held_out_score"])
    return {card["config"]["protector"]: (path, card) for path, card in trained}


def page(folder: Path) -> Iterator[str]:
    """Lines of the page."""
    trained = cards(folder)
    config = next(iter(trained.values()))[1]["config"]
    yield INTRODUCTION.format(steps=config["steps"], tasks=config["tasks"], version=jax.__version__)
    for name, (_, card) in trained.items():
        held_out = card["held_out"]
        above = np.mean(held_out["held_out_above_per_budget"])
        yield f"| `{name}` | {held_out['held_out_score']:.3f} | {above:.3f} |"
    for case in (case for case in CASES if case.data in SETS or (case.data, case.name) == DIGITS):
        yield f"\n## {case.title}\n\nMean test loss of {SEEDS} runs (its standard error).\n"
        yield "| method | " + " | ".join(f"epsilon {epsilon:g}" for epsilon in EPSILONS) + " |"
        yield "|---" * (len(EPSILONS) + 1) + "|"
        methods = {"start": "start", "dp_adam, untuned": "dp_adam", "dp_adam_pulled, untuned": "dp_adam_pulled"}
        methods |= {name: str(path) for name, (path, _) in trained.items()}
        for name, method in methods.items():
            ended = [[score(case, method, epsilon, seed)["loss"] for seed in range(SEEDS)] for epsilon in EPSILONS]
            cells = [f"{np.mean(losses):.3f} ({np.std(losses, ddof=1) / SEEDS**0.5:.3f})" for losses in ended]
            yield f"| `{name}` | {' | '.join(cells)} |"


def main(folder: tyro.conf.Positional[Path]) -> None:
    """Measure and print.

    Args:
      folder: of trainings.
    """
    for line in page(folder):
        print(line, flush=True)


if __name__ == "__main__":
    tyro.cli(main)
