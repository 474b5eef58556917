"""A small table as a pytree, and losses of one row of it, written with several libraries."""

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from l2p.models.base import softplus

NUM_ROWS, NUM_FEATURES = 300, 3


def table(num_rows=NUM_ROWS, seed=0):
    x = np.random.default_rng(seed).uniform(size=(num_rows, NUM_FEATURES)).astype(np.float32)
    return {"x": x, "y": (x @ [3, -2, 1] > 1).astype(np.int32)}


DATA = table()
START = (jnp.zeros(NUM_FEATURES), jnp.zeros(1))


def logistic(params, row):
    """The loss of `l2p.models.Logistic`, with its params in the same order."""
    weights, bias = params
    margin = row["x"] @ weights + 0.5 * bias[0]
    return softplus(margin) - row["y"] * margin


def above(params, row):
    weights, bias = params
    return row["x"] @ weights + 0.5 * bias[0] > 0


class Linen(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(2)(nn.tanh(nn.Dense(4)(x)))


def linen():
    module = Linen()
    return module.init(jax.random.key(0), DATA["x"][0]), lambda params, x: module.apply(params, x)


class Nnx(nnx.Module):
    def __init__(self, rngs):
        self.hidden, self.out = nnx.Linear(NUM_FEATURES, 4, rngs=rngs), nnx.Linear(4, 2, rngs=rngs)

    def __call__(self, x):
        return self.out(jax.nn.tanh(self.hidden(x)))


def from_nnx():
    graph, params = nnx.split(Nnx(nnx.Rngs(0)), nnx.Param)
    return params, lambda params, x: nnx.merge(graph, params)(x)


def equinox():
    return eqx.nn.MLP(NUM_FEATURES, 2, 4, 1, key=jax.random.key(0)), lambda module, x: module(x)


def cross_entropy(apply):
    """The loss of one row for a network (params, x) -> logits."""

    def loss(params, row):
        return optax.softmax_cross_entropy_with_integer_labels(apply(params, row["x"]), row["y"])

    return loss


NETWORKS = {"linen": linen, "nnx": from_nnx, "equinox": equinox}


# Losses that no row can be trained by alone, because they read a batch.


class Normed(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(2)(nn.BatchNorm(use_running_average=False)(x))


def of_norm(params, row):
    return Normed().apply(params, row["x"][None]).sum()


def of_batch(params, row):
    return jnp.mean((row["x"] @ params[0][:, None] - row["y"][:, None]) ** 2)
