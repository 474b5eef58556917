"""What a release loses by working in whole numbers, as a share of its noise.

    python -m benchmarks.rounding

The largest error in a coordinate of a sum of clipped gradients, compared with the sum in float64, at ten random params,
over the deviation of its noise in 50 equal steps of one budget.
"""

import os
import platform

import jax
import jax.numpy as jnp
import numpy as np

from l2p.models import MODELS
from l2p.oracle.sums import exact_sum
from l2p.privacy.budget import Budget
from l2p.privacy.cost import convert
from l2p.queries import ClippedGradient
from l2p.task.feature_map import FeatureMap
from l2p.task.rows import Rows

SHAPES = ((30_400, 52), (200_000, 52))
BUDGET, NUM_STEPS, NUM_PARAMS = Budget(0.8, 1e-8), 50, 10


def table(num_rows: int, num_features: int) -> Rows:
    """Random rows whose labels follow the first feature."""
    generator = np.random.default_rng(0)
    x = generator.random((num_rows, num_features), np.float32)
    y = (x[:, 0] + 0.3 * generator.normal(size=num_rows) > 0.5).astype(np.float32)
    return Rows(jnp.asarray(x), jnp.asarray(y), jnp.ones(num_rows))


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
    print(f"jax {jax.__version__}, {os.cpu_count()} cores, Python {platform.python_version()}, {BUDGET}")
    for shape in SHAPES:
        print(f"{shape[0]:7,d} x {shape[1]}: {100 * loss_by_rounding(table(*shape)):.6f} % of the noise")


if __name__ == "__main__":
    main()
