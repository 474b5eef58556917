"""Time of the sum of clipped per-row gradients of `mlp` and `softmax`, with and without materialising the gradients.

    python benchmarks/clipped_sums.py

Random rows, compilation excluded, medians over interleaved repetitions.
"""

import os
import platform
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

from l2p.models import Model, find_model
from l2p.task.feature_map import FeatureMap
from l2p.task.rows import Rows

SHAPES, REPETITIONS = ((30_000, 52), (8_000, 784)), 5


def clip_to_one(norms: jax.Array) -> jax.Array:
    """The factors that clip gradients of these norms to 1."""
    return 1.0 / jnp.maximum(norms, 1.0)


def median_seconds(functions: list, *arguments: jax.Array | Rows) -> list[float]:
    """Median times of the functions, run in turn and compiled beforehand."""
    times: list[list[float]] = [[] for _ in functions]
    for repetition in range(REPETITIONS + 1):
        for function, found in zip(functions, times, strict=True):
            began = time.perf_counter()
            jax.block_until_ready(function(*arguments))
            if repetition:
                found.append(time.perf_counter() - began)
    return [statistics.median(found) for found in times]


def main() -> None:
    print(
        f"jax {jax.__version__} on {jax.default_backend()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    )
    generator = np.random.default_rng(0)
    for num_rows, num_features in SHAPES:
        x = jnp.asarray(generator.random((num_rows, num_features), np.float32))
        for model, classes in ((find_model("mlp"), 2), (find_model("softmax:10"), 10)):
            y = jnp.asarray(generator.integers(classes, size=num_rows).astype(np.float32))
            rows, features = Rows(x, y, jnp.ones(num_rows)), FeatureMap.identity(num_features)

            def closed(params, rows, model=model, features=features):
                return model.scaled_gradient_sum(params, rows, features, clip_to_one)

            def formed(params, rows, model=model, features=features):
                return Model.scaled_gradient_sum(model, params, rows, features, clip_to_one)

            here, naive = median_seconds([jax.jit(closed), jax.jit(formed)], model.init(num_features), rows)
            shape = f"{num_rows:,} x {num_features}"
            print(
                f"{model.name:8s} {shape:14s} {1e3 * here:7.1f} ms, formed {1e3 * naive:7.1f} ms: {naive / here:.0f}x"
            )


if __name__ == "__main__":
    main()
