"""Networks on public sets, as a user brings them along, and simulated runs of methods on them."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

import l2p
from l2p.models.custom import CustomLoss
from l2p.privacy.cost.sampling import Poisson
from l2p.protectors.by_hand.pulled import PulledAdam
from l2p.release.admission import admit
from l2p.tables.public import catalog

DELTA = 1e-5
#: The most rows that are trained on.
MOST_ROWS = 8_000


class Dense(nn.Module):
    """Hidden layers of these widths, rectified."""

    widths: tuple[int, ...]
    num_classes: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        for width in self.widths:
            x = nn.relu(nn.Dense(width)(x))
        return nn.Dense(self.num_classes)(x)


class Convolutions(nn.Module):
    """Two convolutions with strides on square images, and a linear layer."""

    num_classes: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        side = round(x.shape[-1] ** 0.5)
        x = x.reshape(side, side, 1)
        for channels in (8, 16):
            x = nn.relu(nn.Conv(channels, (3, 3), strides=2)(x))
        return nn.Dense(self.num_classes)(x.reshape(-1))


class Head(nn.Module):
    """A linear layer on random features, of which the first layer is never trained."""

    num_classes: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return nn.Dense(self.num_classes, name="head")(nn.relu(nn.Dense(256, name="frozen")(x)))


class Adapter(nn.Module):
    """A frozen layer with a trained sum of four outer products, and a linear layer."""

    num_classes: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        change = nn.Dense(96, use_bias=False, kernel_init=nn.initializers.zeros)(nn.Dense(4, use_bias=False)(x))
        return nn.Dense(self.num_classes)(nn.relu(nn.Dense(96, name="frozen")(x) + change))


@dataclasses.dataclass(frozen=True)
class Case:
    """A network on a set, and how it is read.

    Attributes:
      name, data: of the case and the set.
      make: the network for a number of classes.
      sampling_rate: of Poisson batches; 1 for full ones.
      num_steps: None for the method's own.
      scale: by which features are multiplied.
    """

    name: str
    data: str
    make: Callable[[int], nn.Module]
    sampling_rate: float = 1.0
    num_steps: int | None = None
    scale: float = 1.0

    @property
    def title(self) -> str:
        return f"{self.data.removeprefix('openml:')}, {self.name}"


CASES = (
    Case("dense 96-96", "digits", lambda classes: Dense((96, 96), classes)),
    Case("convolutions", "digits", Convolutions),
    Case("adapter", "digits", Adapter),
    Case("dense 128-64", "mnist", lambda classes: Dense((128, 64), classes)),
    Case("head", "mnist", Head),
    Case("dense 32", "openml:splice", lambda classes: Dense((32,), classes)),
    Case("dense 64-64-64", "ipums_br", lambda classes: Dense((64, 64, 64), classes)),
    Case("dense 64-32", "openml:waveform5000", lambda classes: Dense((64, 32), classes)),
    Case("adapter", "openml:waveform5000", Adapter),
    Case("dense 32", "openml:cmc", lambda classes: Dense((32,), classes)),
    Case("dense 48-48", "openml:credit.a", lambda classes: Dense((48, 48), classes)),
)


@functools.cache
def rows_of(data: str) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], int]:
    """Rows to train on and to test on, and the number of classes; MNIST's images are halved in width and height."""
    table = catalog.load(data)
    x, y = np.asarray(table.x, np.float32), np.asarray(table.y).astype(np.int32)
    if data == "mnist":
        x = x.reshape(-1, 14, 2, 14, 2).mean((2, 4)).reshape(len(x), -1)
    order = np.random.default_rng(0).permutation(len(x))
    order = order[: MOST_ROWS * 5 // 4]
    cut = len(order) * 4 // 5
    train, test = ({"x": x[part], "y": y[part]} for part in (order[:cut], order[cut:]))
    return train, test, int(y.max()) + 1


@functools.cache
def network_of(case: Case) -> tuple[nn.Module, Callable[[Any, Any], jax.Array]]:
    """The network and its loss of one row: one object, so that its programs are compiled once."""
    network = case.make(rows_of(case.data)[2])

    def loss(params: Any, row: Any) -> jax.Array:
        return optax.softmax_cross_entropy_with_integer_labels(network.apply(params, row["x"]), row["y"])

    return network, loss


def is_trained(path: str) -> bool:
    return "frozen" not in path


def protector_of(method: Any, budget: l2p.Budget) -> Any:
    """A protector as it is, a method by its name, or the candidate of an oracle: a name, a learning rate and a clipping
    norm."""
    if not isinstance(method, str):
        return method
    name, *numbers = method.split()
    if not numbers:
        return method
    rate, clip = (jnp.log(jnp.full(1, float(number))) for number in numbers)
    protector = l2p.load(name, budget)
    projector, scheduler = protector.projector, protector.scheduler.replace(log_clip_norm=clip)
    if isinstance(projector, PulledAdam):
        changed = {"log_learning_rate": jnp.zeros_like(projector.log_learning_rate).at[0, 0].set(rate[0])}
    else:
        changed = {"hyperparameters": projector.hyperparameters | {"learning_rate": rate}}
    return protector.replace(projector=projector.replace(**changed), scheduler=scheduler)


def read_as(case: Case, method: Any, budget: l2p.Budget) -> Any:
    """A method with the batches and the steps of a case."""
    protector = protector_of(method, budget)
    if case.sampling_rate == 1 and case.num_steps is None:
        return protector
    if isinstance(protector, str):
        protector = admit(protector, budget, CustomLoss.stand_in(1, 1), None).protector
    sampler = protector.sampler if case.sampling_rate == 1 else Poisson(case.sampling_rate)
    return protector.replace(sampler=sampler, num_steps=case.num_steps or protector.num_steps)


def score(case: Case, method: Any, epsilon: float, seed: int) -> dict[str, float]:
    """Mean test loss and accuracy of a simulated run."""
    train, test = (rows | {"x": case.scale * rows["x"]} for rows in rows_of(case.data)[:2])
    network, loss = network_of(case)
    start, noise = jax.random.split(jax.random.key(seed))
    params = network.init(start, train["x"][0])
    if method != "start":
        budget = l2p.Budget(epsilon, DELTA)
        setting = {"budget": budget, "model": loss, "params": params, "key": noise, "trainable": is_trained}
        params = l2p.private_train(train, read_as(case, method, budget), **setting).params
    logits = jax.vmap(lambda x: network.apply(params, x))(jnp.asarray(test["x"]))
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, test["y"])
    return {"loss": float(losses.mean()), "accuracy": float((logits.argmax(1) == test["y"]).mean())}
