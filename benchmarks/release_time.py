"""Time of a release relative to its simulation, by the same code path as `l2p apply`.

    python benchmarks/release_time.py

`private_train` on random tables, warm: planning, noise, all steps, certification and the card; reading a file and
compiling are not included. Releases and simulations are interleaved, so that changes of the machine's speed affect them
equally. Also prints what a release loses by working in whole numbers: the error of a gradient sum of clipped rows
compared with the sum in float64, at ten random params, as a share of the noise on it.
"""

import os
import platform
import statistics
import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from l2p.models import MODELS
from l2p.oracle.sums import exact_sum
from l2p.privacy.budget import Budget
from l2p.privacy.cost import convert
from l2p.queries import ClippedGradient
from l2p.release.api import private_train
from l2p.task.feature_map import FeatureMap
from l2p.task.rows import Rows

SHAPES = ((30_400, 52), (200_000, 52))
METHODS = ("noisygd", "universal")
BUDGET, REPETITIONS, NUM_STEPS, NUM_PARAMS = Budget(0.8, 1e-8), 7, 50, 10


def table(num_rows: int, num_features: int) -> Rows:
    """Random rows whose labels follow the first feature."""
    generator = np.random.default_rng(0)
    x = generator.random((num_rows, num_features), np.float32)
    y = (x[:, 0] + 0.3 * generator.normal(size=num_rows) > 0.5).astype(np.float32)
    return Rows(jnp.asarray(x), jnp.asarray(y), jnp.ones(num_rows))


def seconds(call: Callable[[], object]) -> float:
    """Seconds of one call."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def times(rows: Rows, method: str) -> tuple[float, float]:
    """Median seconds of a release and of its simulation."""
    calls = [lambda key=key: private_train(rows, method, BUDGET, key=key) for key in (None, jax.random.key(0))]
    for call in calls:
        call()  # compiles
    pairs = [[seconds(call) for call in calls] for _ in range(REPETITIONS)]
    release, simulation = zip(*pairs, strict=True)
    return statistics.median(release), statistics.median(simulation)


def loss_by_rounding(rows: Rows) -> float:
    """The largest error in a coordinate of a gradient sum, relative to the deviation of its noise in NUM_STEPS equal
    steps."""
    model, size = MODELS["logistic"], rows.x.shape[1]
    multiplier = NUM_STEPS**0.5 / convert.gdp_mu(BUDGET.epsilon, BUDGET.delta)
    worst = 0.0
    with jax.enable_x64(True):
        double = Rows(*(jnp.asarray(leaf, jnp.float64) for leaf in (rows.x, rows.y, rows.mask)))
        for seed in range(NUM_PARAMS):
            params = jnp.asarray(np.random.default_rng(seed).normal(size=size + 1) * (seed > 0), jnp.float32)
            query = ClippedGradient(model, params, FeatureMap.identity(size), jnp.float32(0.3), jnp.float32(multiplier))
            exact = jax.jit(exact_sum)(query, rows).value
            wide = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), query)
            error = np.abs(exact - wide.add(jnp.zeros(size + 1, jnp.float64), double)).max()
            worst = max(worst, float(error) / (multiplier * 0.3))
    return worst


def main() -> None:
    about = (
        f"jax {jax.__version__} on {jax.default_backend()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    )
    print(f"a release beside its simulation, warm, medians of {REPETITIONS}; {about}")
    for shape in SHAPES:
        rows = table(*shape)
        for method in METHODS:
            release, simulation = times(rows, method)
            print(
                f"{shape[0]:7,d} x {shape[1]} {method:10s} {1e3 * release:7.0f} ms released {1e3 * simulation:7.0f} ms "
                f"simulated {release / simulation:5.2f} x",
                flush=True,
            )
        print(f"{shape[0]:7,d} x {shape[1]} rounding   {100 * loss_by_rounding(rows):.6f} % of the noise at {BUDGET}")


if __name__ == "__main__":
    main()
