"""Accuracy of PNSGD by the ball that its params stay in, the step size, and its noise.

    L2P_DATA_DIR=/path/to/data python -m benchmarks.pnsgd_ball [--data adult ipums_br] [--epsilons .1 .5 5 1000]

Test accuracy of `pnsgd` with Huber's hinge on the rows of benchmarks/ppsgd_table.py, mean of two splits that its table
does not use, by radius and by the step size over that of the corollary. At epsilon 1,000 there is hardly any noise.
"""

import dataclasses

import jax
import numpy as np
import tyro

from benchmarks.ppsgd_table import Cell, divided, prepared
from l2p.models import find_model
from l2p.protectors.hand_designed import log_constant
from l2p.run.run import run
from l2p.run.simulate import noise_key, score

RADII, STEPS, SPLITS = (2.0, 10.0, 50.0), (0.3, 1.0, 3.0), (100, 101)
_run = jax.jit(run)


def accuracy(data: str, epsilon: float, radius: float, step: float) -> float:
    """Mean of the splits."""
    model, accuracies = find_model("svm"), []
    protector, setup = prepared(Cell(data, "hinge", epsilon, "pnsgd"), "svm")
    protector = dataclasses.replace(protector, log_radius=log_constant(radius), log_step=log_constant(step))  # type: ignore[call-arg]
    for split in SPLITS:
        private, public, test = divided(data, split, True)
        params = _run(protector, model.init(private.x.shape[1]), private, setup, noise_key(split), public)[0]
        accuracies.append(float(score(params, model, test, "binary")))
    return float(np.mean(accuracies))


def main(data: tuple[str, ...] = ("adult", "ipums_br"), epsilons: tuple[float, ...] = (0.1, 0.5, 5.0, 1000.0)) -> None:
    """Print the table."""
    print("| data, epsilon | " + " | ".join(f"{radius:g}, {step:g}" for radius in RADII for step in STEPS) + " |")
    print("|---|" + "---|" * (len(RADII) * len(STEPS)))
    for name in data:
        for epsilon in epsilons:
            right = [accuracy(name, epsilon, radius, step) for radius in RADII for step in STEPS]
            print(f"| {name}, {epsilon:g} | " + " | ".join(f"{share:.3f}" for share in right) + " |", flush=True)


if __name__ == "__main__":
    tyro.cli(main)
