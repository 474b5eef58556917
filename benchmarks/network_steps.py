"""One gradient step of a user's loss on 256 rows: without privacy, in a simulation and in a release.

    python benchmarks/network_steps.py

CPU milliseconds of the sum of clipped gradients (without privacy: of the mean gradient), the least of several calls
after compilation, and MiB of temporary memory that XLA plans for it, on 256 rows and on 2,048.
"""

import platform
import time
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

from l2p.base.layout import Layout
from l2p.oracle.sums import add_quantized
from l2p.queries import ClippedGradient
from l2p.release.custom import custom_model
from l2p.task.exact_sums import ExactSum, as_they_are
from l2p.task.feature_map import FeatureMap
from l2p.task.rows import Rows

BATCHES, CALLS = (256, 2048), 5


class Dense(nn.Module):
    """A hidden layer."""

    hidden: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return nn.Dense(10)(nn.tanh(nn.Dense(self.hidden)(x.reshape(-1))))


class Convolutions(nn.Module):
    """Two small convolutions and a layer on top."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for channels in (8, 16):
            x = nn.avg_pool(nn.relu(nn.Conv(channels, (3, 3))(x)), (2, 2), (2, 2))
        return nn.Dense(10)(x.reshape(-1))


NETWORKS = {
    "8x8, 32 units": (Dense(32), (8, 8, 1)),
    "28x28, 128 units": (Dense(128), (28, 28, 1)),
    "16x16, 2 convolutions": (Convolutions(), (16, 16, 1)),
}


def programs(network: nn.Module, shape: tuple[int, ...], num_rows: int) -> tuple[int, dict[str, Callable[[], Any]]]:
    """Number of parameters, and a compiled program of each kind with its arguments."""
    random = np.random.default_rng(0)
    data = {"x": random.random((num_rows, *shape), np.float32), "y": random.integers(0, 10, num_rows)}
    params = network.init(jax.random.key(0), data["x"][0])

    def loss(params: Any, row: Any) -> jax.Array:
        return optax.softmax_cross_entropy_with_integer_labels(network.apply(params, row["x"]), row["y"])

    model, start = custom_model(loss, params, Layout.of(data, stacked=1))
    rows = Rows(jnp.asarray(model.rows.flat(data)), jnp.zeros(num_rows), jnp.ones(num_rows))
    identity = FeatureMap.identity(model.rows.size)
    query = ClippedGradient(model, start, identity, jnp.float32(1.0), jnp.float32(1.0))

    def plain(params: jax.Array, rows: Rows) -> jax.Array:
        return jax.grad(lambda params: jax.vmap(model.loss, (None, 0, 0))(params, rows.x, rows.y).mean())(params)

    def released(query: ClippedGradient, rows: Any) -> ExactSum:
        return add_quantized(query, rows, ExactSum.empty(start.size))

    kinds = {
        "without privacy": jax.jit(plain).lower(start, rows).compile(),
        "simulation": jax.jit(lambda query, rows: query.add(query.empty(), rows)).lower(query, rows).compile(),
    }
    arguments: dict[str, Any] = dict.fromkeys(kinds, (query, rows)) | {"without privacy": (start, rows)}
    with jax.enable_x64(True):
        arguments["release"] = query, as_they_are(rows.x, rows.y, rows.mask)
        kinds["release"] = jax.jit(released).lower(*arguments["release"]).compile()
    return start.size, {kind: (program, arguments[kind]) for kind, program in kinds.items()}


def milliseconds(program: Any, arguments: Any) -> float:
    """CPU time of a call."""
    least = np.inf
    for _ in range(CALLS + 1):
        begun = time.process_time()
        jax.block_until_ready(program(*arguments))
        least = min(least, time.process_time() - begun)
    return 1e3 * least


def main() -> None:
    print(f"{platform.machine()}, jax {jax.__version__} on {jax.default_backend()}, Python {platform.python_version()}")
    print("\n| network | parameters | | CPU ms | MiB, 256 rows | MiB, 2,048 rows |\n|---|---|---|---|---|---|")
    for name, (network, shape) in NETWORKS.items():
        size, few = programs(network, shape, BATCHES[0])
        _, many = programs(network, shape, BATCHES[1])
        for kind, (program, arguments) in few.items():
            memory = [each[kind][0].memory_analysis().temp_size_in_bytes / 2**20 for each in (few, many)]
            text = f"{milliseconds(program, arguments):.2f} | {memory[0]:.1f} | {memory[1]:.1f}"
            print(f"| {name} | {size:,} | {kind} | {text} |", flush=True)


if __name__ == "__main__":
    main()
