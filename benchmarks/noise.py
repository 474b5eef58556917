"""Normals per second for a release, for NumPy's own counter-based generator and for a simulation; cost of a new key.

    taskset -c 0 python benchmarks/noise.py

A release draws float64 normals from ChaCha20 through `Entropy`, a chunk of steps at a time. Philox, which is not
cryptographic, feeds the same ziggurat. A simulation draws float32 normals from a JAX key. Each time is the best of
`REPETITIONS` interleaved ones.
"""

import platform
import time
from collections.abc import Callable

import jax
import numpy as np
import randomgen

from l2p.task.noise import Draw, Entropy

#: Steps of a chunk and values per step: the gradient of a model with 53 params, and one of 10,000.
SHAPES, REPETITIONS, KEYS = ((256, 53), (256, 10_000)), 7, 1000


def best_seconds(functions: dict[str, Callable[[], object]]) -> dict[str, float]:
    """The shortest time of each function, after a warm-up; runs are interleaved."""
    fastest: dict[str, float] = {}
    for repetition in range(REPETITIONS + 1):
        for name, function in functions.items():
            begun = time.perf_counter()
            jax.block_until_ready(function())
            elapsed = time.perf_counter() - begun
            if repetition:
                fastest[name] = min(elapsed, fastest.get(name, elapsed))
    return fastest


def main() -> None:
    versions = f"NumPy {np.__version__}, randomgen {randomgen.__version__}, JAX {jax.__version__}"
    print(f"{versions}, Python {platform.python_version()}, {platform.processor() or platform.machine()}")
    entropy, philox, key = Entropy(), np.random.Generator(np.random.Philox()), jax.random.key(0)
    normal = jax.jit(jax.random.normal, static_argnums=1)
    for shape in SHAPES:
        plan = [Draw("gaussian", shape[1])]
        seconds = best_seconds(
            {
                "release: Entropy (ChaCha20)": lambda: entropy.draw(plan, shape[0]),  # noqa: B023
                "NumPy's Philox": lambda: philox.standard_normal(shape),  # noqa: B023
                "simulation: JAX key, float32": lambda: normal(key, shape),  # noqa: B023
            }
        )
        print(f"\n{shape[0]} steps x {shape[1]:,} normals")
        for name, spent in seconds.items():
            rate, step = shape[0] * shape[1] / spent / 1e6, 1e6 * spent / shape[0]
            print(f"  {name:<30} {rate:7.1f} million/s   {step:8.2f} us/step")
    keyed = best_seconds({"keys": lambda: [Entropy() for _ in range(KEYS)]})["keys"]
    print(f"\na new key from the operating system, with its generator: {1e6 * keyed / KEYS:.1f} us")


if __name__ == "__main__":
    main()
