"""Audit of DP-EBM's guarantee: its noise beside what its budget asks for, and a category that one row has.

    python -m benchmarks.peers.audit_interpret

Needs what with_interpret.py requires.
"""

import math
import warnings

import numpy as np
import pandas as pd
from interpret.privacy import DPExplainableBoostingClassifier
from scipy.optimize import brentq
from scipy.stats import norm

DELTA, ROWS, MODELS, BINS = 1e-6, 2000, 60, 31
#: Rows and features of the private part of Adult.
ADULT, FEATURES = 32_560, 14


def delta_of(epsilon: float, mu: float) -> float:
    return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)


def mu_of(epsilon: float, delta: float) -> float:
    return brentq(lambda mu: delta_of(epsilon, mu) - delta, 1e-4, 100)


def epsilon_of(mu: float, delta: float) -> float:
    return brentq(lambda epsilon: delta_of(epsilon, mu) - delta, 1e-6, 100)


def fitted(epsilon: float, seed: int, has_third: bool) -> DPExplainableBoostingClassifier:
    """A model of random rows, whose declared third category one row has, or none."""
    random = np.random.default_rng(seed)
    letters = np.array(["a", "b"])[random.integers(0, 2, ROWS)]
    letters[0] = "c" if has_third else "a"
    model = DPExplainableBoostingClassifier(
        feature_types=[["a", "b", "c"], "continuous"],
        privacy_bounds={"number": (0, 1)},
        epsilon=epsilon,
        delta=DELTA,
        max_rounds=2,
        random_state=seed,
        n_jobs=1,
    )
    table = pd.DataFrame({"letter": letters.astype(object), "number": random.random(ROWS)})
    return model.fit(table, random.random(ROWS) < 0.5)


def main() -> None:
    """Print both."""
    warnings.simplefilter("ignore")  # of a fixed seed
    model = fitted(1.0, 0, has_third=False)
    wanted = math.sqrt(2) / mu_of(0.1, DELTA / 2), 0.01 * math.sqrt(2 * 2) / mu_of(0.9, DELTA / 2)
    print(f"noise {model.noise_scale_binning_:.9g} and {model.noise_scale_boosting_:.9g}, by calculation", *wanted)
    for has_third in (False, True):
        shown = sum("c" in fitted(0.1, seed, has_third).bins_[0][0] for seed in range(MODELS))
        print(f"{int(has_third)} rows have the third category: {shown} of {MODELS} models show it")
    for epsilon in (0.1, 1.0, 3.0):
        parts = mu_of(0.1 * epsilon, DELTA / 2), mu_of(0.9 * epsilon, DELTA / 2)
        spent = epsilon_of(math.hypot(*parts), DELTA)
        shown = norm.sf((ADULT / BINS - 1) / (math.sqrt(FEATURES) / parts[0]))
        print(f"epsilon {epsilon:g}: as one Gaussian mechanism {spent:.3f}; one row's category shows with {shown:.2g}")


if __name__ == "__main__":
    main()
