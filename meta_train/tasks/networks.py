"""Networks as users bring them, by the loss of one row, and tasks whose rows such a loss reads."""

import dataclasses
import functools
import itertools
import math
from typing import Any, ClassVar, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax

from l2p.base.errors import InputError
from l2p.base.layout import Layout
from l2p.models.custom import CustomLoss, Parameters
from l2p.release.losses.custom import starting_point
from l2p.task.rows import Rows
from meta_train.tasks.family import Family

ACTIVATIONS = {"relu": jax.nn.relu, "tanh": jnp.tanh, "gelu": jax.nn.gelu}
#: A layer in front of the first that stays as it was drawn: its outputs are features, of which a layer more is trained;
#: or it has a sum of `RANK` outer products added to it, which begins at zero.
HEAD, ADAPTER = "head", "adapter"
RANK = 2
#: Rectified convolutions of three by three pixels, at every other of them, on square images, or of three along a line;
#: and a linear layer.
IMAGE, LINE = CONVOLUTIONS = ("image", "line")
PATCH, STRIDE = 3, 2
KINDS = (*ACTIVATIONS, HEAD, ADAPTER, *CONVOLUTIONS)
#: Seed of the params that runs of a network start from.
SEED = 5
#: Columns that vary less are not scaled up: those of zeros that fill up narrow tables are none.
LEAST_DEVIATION = 0.01


@dataclasses.dataclass(frozen=True)
class Loss:
    """Cross-entropy of a network on one row, (params, {"x": f32[k], "y": f32[]}) -> f32[]; equal where shapes are.

    Attributes:
      kind: one of `ACTIVATIONS`, for a network of dense layers that are all trained; or `HEAD`, `ADAPTER` or one of
        `CONVOLUTIONS`, which are rectified.
      widths: of the hidden layers; channels of convolutions.
      num_classes: K.
    """

    kind: str
    widths: tuple[int, ...]
    num_classes: int

    def params(self, num_features: int) -> dict[str, Any]:
        """The public starting point, normal with the variance 2 or 1 over the number of inputs, and zero offsets."""
        chance = np.random.default_rng(SEED)
        gain = 1.0 if self.kind == "tanh" else 2.0

        def matrix(inputs: int, outputs: int, gain: float = gain) -> np.ndarray:
            return chance.normal(0.0, math.sqrt(gain / inputs), (inputs, outputs)).astype(np.float32)

        pairs = self._sizes(num_features)
        layers = [
            {"w": matrix(*pair, gain if pair != pairs[-1] else 1.0), "b": np.zeros(pair[1], np.float32)}
            for pair in pairs
        ]
        if self.kind != ADAPTER:
            return {"layers": layers}
        inputs, outputs = pairs[0]
        return {"layers": layers, "in": matrix(inputs, RANK), "out": np.zeros((RANK, outputs), np.float32)}

    def _sizes(self, num_features: int) -> list[tuple[int, int]]:
        """Inputs and outputs of every layer."""
        if self.kind not in CONVOLUTIONS:
            return list(itertools.pairwise((num_features, *self.widths, self.num_classes)))
        shape, sizes = self._places(num_features), []
        for channels in self.widths:
            sizes.append((PATCH ** (len(shape) - 1) * shape[-1], channels))
            shape = (*(-(-side // STRIDE) for side in shape[:-1]), channels)
        return [*sizes, (math.prod(shape), self.num_classes)]

    def _places(self, num_features: int) -> tuple[int, ...]:
        """The shape of a row for convolutions: places, and one channel."""
        side = math.isqrt(num_features)
        if self.kind == IMAGE and side**2 != num_features:
            raise InputError(
                f"images of {num_features} pixels are not square; set num_features to squares, such as 64 for 8x8."
            )
        return (side, side, 1) if self.kind == IMAGE else (num_features, 1)

    def is_trained(self, path: str) -> bool:
        """Whether the params at a path are trained."""
        return self.kind not in (HEAD, ADAPTER) or not path.startswith("layers/0/")

    def logits(self, params: dict[str, Any], x: jax.Array) -> jax.Array:
        """Logits f32[K] of one row."""
        activation = ACTIVATIONS.get(self.kind, jax.nn.relu)
        if self.kind in CONVOLUTIONS:
            *convolutions, last = params["layers"]
            out = x.reshape(self._places(x.shape[0]))
            for layer in convolutions:
                offsets = jnp.expand_dims(layer["b"], range(out.ndim - 1))
                out = activation(_patches(out) @ layer["w"] + offsets)
            return out.reshape(-1) @ last["w"] + last["b"]
        first, *others = params["layers"]
        out = x @ first["w"] + first["b"]
        if self.kind == ADAPTER:
            out = out + (x @ params["in"]) @ params["out"]
        for layer in others:
            out = activation(out) @ layer["w"] + layer["b"]
        return out

    def __call__(self, params: dict[str, Any], row: dict[str, jax.Array]) -> jax.Array:
        label = row["y"].astype(jnp.int32)
        return optax.softmax_cross_entropy_with_integer_labels(self.logits(params, row["x"]), label)


def _patches(x: jax.Array) -> jax.Array:
    """What a convolution sees at each of its places, f32[..., patch], of places with channels f32[..., c]."""
    for axis in range(x.ndim - 1):
        places = -(-x.shape[axis] // STRIDE)
        ends = [(0, 0)] * x.ndim
        ends[axis] = (PATCH // 2, PATCH)
        padded = jnp.pad(x, ends)
        x = jnp.concatenate(
            [jax.lax.slice_in_dim(padded, first, first + STRIDE * places, STRIDE, axis) for first in range(PATCH)],
            axis=-1,
        )
    return x


class Network(CustomLoss):
    """A network, which knows where its runs start; params lie in a vector, and rows in lines, as in any user's loss."""

    kinds: ClassVar[tuple[str, ...]] = ("multiclass", "binary")

    @property
    def labels(self) -> tuple[float, ...]:
        return tuple(map(float, range(cast(Loss, self.function).num_classes)))

    def init(self, num_features: int) -> jax.Array:
        return jnp.asarray(_start(cast(Loss, self.function), num_features - 1)[1])


@functools.cache
def _start(loss: Loss, num_features: int) -> tuple[Parameters, np.ndarray]:
    """The parameters of a network, and where their training starts f32[p]."""
    return starting_point(loss.params(num_features), loss.is_trained)


def find(name: str, num_features: int) -> Network:
    """The network of a name, as `relu:64,64:4`: its kind, the widths of its hidden layers, and the number of classes.

    Raises:
      InputError: the name is none.

    >>> find("relu:64,32:4", 10).parameters.trained.size == 10 * 64 + 64 + 64 * 32 + 32 + 32 * 4 + 4
    True
    """
    kind, *numbers = name.split(":")
    widths = numbers[0].split(",") if numbers else []
    has_form = kind in KINDS and len(numbers) == 2
    if not has_form or not all(number.isdecimal() and int(number) for number in (*widths, numbers[1])):
        raise InputError(
            f"network {name!r} is unknown; name its kind ({', '.join(KINDS)}), the widths of its "
            "hidden layers and the number of classes, as in relu:64,64:10."
        )
    loss = Loss(kind, tuple(map(int, widths)), int(numbers[1]))
    row = {"x": jax.ShapeDtypeStruct((num_features,), jnp.float32), "y": jax.ShapeDtypeStruct((), jnp.float32)}
    return Network(loss, _start(loss, num_features)[0], Layout.of(row))


@dataclasses.dataclass(frozen=True)
class InLines(Family):
    """The tasks of a family with each row's features and its label in a line; in half of the tasks features have mean 0
    and deviation 1, in the others they are within [0, 1], as users bring either.

    Attributes:
      family: of the tasks.
    """

    family: Family

    def draw(self, key: jax.Array, num_rows: int, num_features: int | None) -> Rows:
        rows = self.family.draw(key, num_rows, num_features)
        return _in_lines(key, rows, rows)

    def draw_both(
        self, key: jax.Array, num_tasks: int, num_rows: int, num_features: int | None
    ) -> tuple[Rows, Rows | None]:
        read, scored = self.family.draw_both(key, num_tasks, num_rows, num_features)
        keys = jax.random.split(jax.random.fold_in(key, num_tasks), num_tasks)
        in_lines = jax.vmap(_in_lines)
        return in_lines(keys, read, read), None if scored is None else in_lines(keys, scored, read)

    @property
    def max_features(self) -> float:
        return self.family.max_features

    def with_num_classes(self, num_classes: int | None) -> "InLines":
        return dataclasses.replace(self, family=self.family.with_num_classes(num_classes))


def _in_lines(key: jax.Array, rows: Rows, like: Rows) -> Rows:
    """Rows whose features are scaled, if at all, by what others of the task are `like`."""
    scaled = jax.random.bernoulli(key)
    mean = jnp.where(scaled, like.x.mean(0), 0.0)
    deviation = jnp.where(scaled, jnp.maximum(like.x.std(0), LEAST_DEVIATION), 1.0)
    x = (rows.x - mean[None, :]) / deviation[None, :]
    return rows.replace(x=jnp.concatenate([x, rows.y[:, None]], axis=1))
