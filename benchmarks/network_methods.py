"""Hand-designed methods, untuned, on networks that a user brings along: why `noisygd` is their default.

    python benchmarks/network_methods.py

Test loss and accuracy of a network of 32 tanh units after a simulated run, means over seeds: scikit-learn's digits
(1,400 rows to train on), and 10,000 rows of four classes with 30 correlated features. `agd` is left out: its choices of
a step size compute 20 losses of every row.
"""

import platform
from typing import Any

import flax.linen as nn
import jax
import numpy as np
import optax
from sklearn.datasets import load_digits, make_classification

import l2p

METHODS = "noisygd", "dpsgd", "auto_clip", "hyfree", "adadp", "linear_scaling"
EPSILONS, DELTA, SEEDS = (1.0, 3.0), 1e-5, 3


class Network(nn.Module):
    """One hidden layer."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return nn.Dense(10)(nn.tanh(nn.Dense(32)(x)))


def digits() -> tuple[np.ndarray, np.ndarray, int]:
    pixels, digit = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(digit))
    return pixels[order] / 16, digit[order], 1400


def clusters() -> tuple[np.ndarray, np.ndarray, int]:
    x, y = make_classification(
        14_000, 30, n_informative=12, n_redundant=6, n_classes=4, n_clusters_per_class=2, class_sep=1.5, random_state=0
    )
    return (x - x.mean(0)) / x.std(0), y, 10_000


def loss(params: Any, row: Any) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(Network().apply(params, row["x"]), row["y"])


def main() -> None:
    print(f"{platform.machine()}, jax {jax.__version__} on {jax.default_backend()}, Python {platform.python_version()}")
    print("\n| data | epsilon | method | test loss | accuracy |\n|---|---|---|---|---|")
    for make in (digits, clusters):
        x, y, size = make()
        rows = {"x": x.astype(np.float32), "y": y.astype(np.int32)}
        train, test = ({name: part[cut] for name, part in rows.items()} for cut in (slice(size), slice(size, None)))
        for epsilon in EPSILONS:
            for method in METHODS:
                losses, right = [], []
                for seed in range(SEEDS):
                    start, noise = jax.random.split(jax.random.key(seed))
                    params = Network().init(start, train["x"][0])
                    budget = l2p.Budget(epsilon, DELTA)
                    result = l2p.private_train(train, method, budget, model=loss, params=params, key=noise)
                    logits = Network().apply(result.params, test["x"])
                    losses.append(optax.softmax_cross_entropy_with_integer_labels(logits, test["y"]).mean())
                    right.append((logits.argmax(1) == test["y"]).mean())
                text = f"{np.mean(losses):.3f} | {np.mean(right):.3f}"
                print(f"| {make.__name__} | {epsilon:g} | `{method}` | {text} |", flush=True)


if __name__ == "__main__":
    main()
