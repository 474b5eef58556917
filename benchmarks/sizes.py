"""One protector on tables of 500 to a million rows.

    python benchmarks/sizes.py [--seeds 10] [--only 1000000]

Uses the noisy linear teacher of 50 features of `large_table.py` and budgets with delta 1e-8. For each size and epsilon:
mean test accuracy of `universal-logistic` as deployed (its constants outside the range on its card), and its gain over
these constants and over NoisyGD tuned on Adult on the same splits with the same noise, with standard errors over seeds.
"""

import argparse
import math
import platform
import time

import jax
import numpy as np
from large_table import NUM_FEATURES, table
from ranges import difference

from l2p import Budget, Rows
from l2p.compare.methods import find_method
from l2p.models import MODELS, Logistic
from l2p.privacy.cost.convert import gdp_mu
from l2p.run.simulate import simulate, split

SIZES, EPSILONS, DELTA = (500, 5_000, 50_000, 1_000_000), (0.0125, 0.1, 0.8), 1e-8
OURS, OTHERS = "universal-logistic", ("control-universal-logistic", "noisygd-tuned-logistic-adult")


def scores(name: str, rows: Rows, num_rows: int, seeds: range) -> np.ndarray:
    """Test accuracy f64[seeds, budgets] of a method."""
    model, budgets = Logistic(), [Budget(epsilon, DELTA) for epsilon in EPSILONS]
    accuracy = np.zeros((len(seeds), len(budgets)))
    method = find_method(name, budgets, MODELS["logistic"], num_rows)
    # One budget at a time: where the constants run, a protector has a different structure.
    for column, budget in enumerate(budgets):
        prepared = method.prepare(budget, model, rows)
        params = simulate([prepared.protector], [prepared.setup], rows, seeds).params[:, 0]
        for seed in seeds:
            test = split(rows, seed).test
            right = (np.asarray(model.predict(params[seed], test.x)) == np.asarray(test.y)) * np.asarray(test.mask)
            accuracy[seed, column] = right.sum() / np.asarray(test.mask).sum()
    return accuracy


def main(num_seeds: int, sizes: tuple[int, ...]) -> None:
    print(
        f"{NUM_FEATURES} features, {num_seeds} seeds; jax {jax.__version__} on {jax.default_backend()}, Python "
        f"{platform.python_version()}"
    )
    print(f"| rows | epsilon | log(mu N) | {OURS} | over its constants | over noisygd:tuned |")
    print("|---|---|---|---|---|---|")
    for num_rows in sizes:
        began = time.monotonic()
        rows = table(num_rows * 5 // 4)  # a fifth is held out
        ours, *others = (scores(name, rows, num_rows, range(num_seeds)) for name in (OURS, *OTHERS))
        for column, epsilon in enumerate(EPSILONS):
            over = " | ".join(difference(ours[:, column], theirs[:, column]) for theirs in others)
            signal, mean = math.log(gdp_mu(epsilon, DELTA) * num_rows), 100 * ours[:, column].mean()
            print(f"| {num_rows:,} | {epsilon:g} | {signal:.1f} | {mean:.1f} | {over} |")
        print(f"{num_rows:,} rows: {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", type=int, choices=SIZES)
    arguments = parser.parse_args()
    main(arguments.seeds, SIZES if arguments.only is None else (arguments.only,))
