"""Which tuned setting of `dp_adam` is at fault on digits where the budget is small.

python -m benchmarks.network_settings > benchmarks/pages/network_settings.md
"""

import platform
from collections.abc import Iterator

import jax
import numpy as np

import l2p
from benchmarks.network_cases import CASES, DELTA, score
from l2p.checkpoints import checkpoint
from l2p.protectors import Stepwise
from meta_train.recipes import resolve
from meta_train.training.starting_points import between, starting_point

EPSILON, SEEDS = 0.5, 3
TUNED = "dp_adam-tuned-custom-networks"
INTRODUCTION = """\
# Tuned settings of dp_adam on digits, one at a time

Mean test loss at epsilon .5 (standard error over seeds), as on [networks.md](networks.md): with the settings that
training ended with, with all but some of them, and with the untuned ones, which are 50 steps at a learning rate of .03
and a clipping norm of 1. At fault is the learning rate, .012 to .016 over 100 steps here, and next the clipping norm,
4.8. Half of what training changed, in logarithms, ships.

`python -m benchmarks.network_settings > benchmarks/pages/network_settings.md`
"""


def settings(protector: Stepwise) -> dict[str, jax.Array]:
    """The numbers of a relative of Adam on clipped gradients, by name."""
    scheduler, numbers = protector.scheduler, protector.projector.hyperparameters
    return {"clipping norm": scheduler.log_clip_norm, "noise over time": scheduler.rate, **numbers}


def variants(trained: Stepwise, untuned: Stepwise) -> Iterator[tuple[str, Stepwise]]:
    """The trained protector with settings of the untuned one in place of its own, by what they are."""
    yield "trained", trained
    for names in (
        ("learning_rate",),
        ("clipping norm",),
        ("learning_rate", "steps"),
        ("learning_rate", "clipping norm", "steps"),
        ("noise over time", "b1", "b2"),
    ):
        mixed = {**settings(trained), **{name: settings(untuned)[name] for name in names if name != "steps"}}
        numbers = {name: mixed[name] for name in trained.projector.hyperparameters}
        yield (
            "trained but " + ", ".join(names).replace("_", " "),
            trained.replace(
                scheduler=trained.scheduler.replace(
                    log_clip_norm=mixed["clipping norm"], rate=mixed["noise over time"]
                ),
                projector=trained.projector.replace(hyperparameters=numbers),
                num_steps=untuned.num_steps if "steps" in names else trained.num_steps,
            ),
        )


def main() -> None:
    """Run all of them, and print the page."""
    print(f"{INTRODUCTION}({SEEDS} seeds; {platform.machine()}, jax {jax.__version__}).\n")
    cases = [case for case in CASES if case.data == "digits"]
    print("| settings | " + " | ".join(case.name for case in cases) + " |\n|---|" + "---|" * len(cases))
    config, shipped = resolve.like(TUNED), checkpoint.load(TUNED).protector
    trained = between(starting_point(config), shipped, 1.0 / config.start.kept)
    untuned = l2p.load("dp_adam", l2p.Budget(EPSILON, DELTA))
    for name, protector in (*variants(trained, untuned), ("untuned", untuned), ("shipped", shipped)):
        cells = []
        for case in cases:
            losses = np.array([score(case, protector, EPSILON, seed)["loss"] for seed in range(SEEDS)])
            cells.append(f"{losses.mean():.3f} ({losses.std(ddof=1) / SEEDS**0.5:.3f})")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
