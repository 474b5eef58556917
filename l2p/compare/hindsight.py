"""Settings found in hindsight: random search on the private rows themselves, for METHOD:oracle.

This search on private rows is not charged, so its result is not private. It shows how much of a method's distance to
the best is due to its settings.
"""

import math
from functools import partial

import jax
import numpy as np

from l2p.models import Model
from l2p.oracle.setup import Setup
from l2p.protectors.learned.tunable import around
from l2p.run.protector import Protector
from l2p.run.simulate import Divide, mean_loss, simulate, split
from l2p.task.rows import Rows

#: Standard deviations of the search rounds: the first is around the method's own settings, later ones around the best
#: so far.
SPREADS = (1.5, 0.5, 0.2)
#: Settings tried per round, including the best so far.
CANDIDATES = 12
#: Seeds of their splits and noise; comparisons count theirs from 0.
SEEDS = tuple(1_000_000 + seed for seed in range(3))


def search(protector: Protector, setup: Setup, rows: Rows, start: np.ndarray, divide: Divide = split) -> Protector:
    """`protector` with the fields of the lowest mean train loss over `SEEDS` at the budget of `setup`."""
    for number, spread in enumerate(SPREADS):
        keys = jax.random.split(jax.random.key(number), CANDIDATES - 1)
        candidates = [protector, *(around(protector, spread, key) for key in keys)]
        scores = _scores(candidates, setup, rows, start, divide)
        protector = candidates[int(np.argmin(scores))]
    return protector


def _scores(candidates: list[Protector], setup: Setup, rows: Rows, start: np.ndarray, divide: Divide) -> np.ndarray:
    """Mean train loss f64[k] of every candidate; infinite for one that diverged."""
    outcome = simulate(candidates, [setup] * len(candidates), rows, SEEDS, start=start, divide=divide)
    losses = [
        _losses(params, setup.model, divide(rows, seed).private)
        for seed, params in zip(SEEDS, outcome.params, strict=True)
    ]
    mean = np.array(losses, np.float64).mean(0)
    return np.where(np.isnan(mean), math.inf, mean)


@partial(jax.jit, static_argnames="model")
def _losses(params: jax.Array, model: Model, rows: Rows) -> jax.Array:
    """Train losses f32[k] of params f32[k, p]."""
    return jax.vmap(mean_loss, (0, None, None))(params, model, rows)
