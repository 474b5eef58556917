"""Networks inside learned protectors: parameters are plain dictionaries, so that they can be saved and vmapped."""

import dataclasses
import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from l2p.protectors.fields import ARRAYS, Numbers, Sizes


def init_mlp(key: jax.Array, sizes: tuple[int, ...]) -> dict:
    """Parameters of a tanh network with layer `sizes`; the last layer starts at zero, so the network outputs zero."""
    layers = {}
    for index, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
        last = index == len(sizes) - 2
        weight = jax.random.normal(jax.random.fold_in(key, index), (fan_in, fan_out)) / fan_in**0.5
        layers[f"layer{index}"] = {"w": jnp.zeros_like(weight) if last else weight, "b": jnp.zeros(fan_out)}
    return layers


def apply_mlp(params: dict, inputs: jax.Array) -> jax.Array:
    """f32[..., in] -> f32[..., out]."""
    hidden = inputs
    for index in range(len(params)):
        layer = params[f"layer{index}"]
        # Unrolled along the last axis, because there are many coordinates and layers are narrow.
        hidden = jnp.matmul(hidden, layer["w"]) + layer["b"].reshape((1,) * (hidden.ndim - 1) + (-1,))
        if index < len(params) - 1:
            hidden = jnp.tanh(hidden)
    return hidden


@dataclasses.dataclass(frozen=True)
class Layers:
    """Rule of a field that holds a network for `apply_mlp`: numbers of inputs and of outputs."""

    inputs: int
    outputs: int

    def __call__(self, value: dict, sizes: Sizes) -> str | None:
        del sizes
        names = [f"layer{index}" for index in range(len(value))]
        if not names or set(value) != set(names):
            return f"has layers {', '.join(map(repr, value)) or 'none'} where layer0, layer1 and so on belong"
        width: dict[str, int] = {}
        for name, following in itertools.pairwise([*names, "out"]):
            shapes = {"w": Numbers((name, following)), "b": Numbers((following,))}
            if reason := _misfit(value[name], shapes, width):
                return f"'s {name}{reason}"
        if (width[names[0]], width["out"]) != (self.inputs, self.outputs):
            expected = f"{self.inputs} and {self.outputs}"
            return f"takes {width[names[0]]} inputs to {width['out']} outputs where {expected} belong"
        return None


def _misfit(layer: Any, shapes: dict[str, Numbers], sizes: Sizes) -> str | None:
    """Reason why a layer does not have these arrays; None if it does."""
    if not isinstance(layer, dict) or layer.keys() != shapes.keys():
        return f" is no layer of {' and '.join(shapes)}"
    if missing := [name for name in shapes if not isinstance(layer[name], ARRAYS)]:
        return f".{missing[0]} is no array"
    reasons = ((name, shape(layer[name], sizes)) for name, shape in shapes.items())
    return next((f".{name} {reason}" for name, reason in reasons if reason), None)


def init_lstm(key: jax.Array, num_inputs: int, num_units: int, num_outputs: int) -> dict:
    """Parameters of a `StackedLSTM` as a plain dictionary; its head starts at zero."""
    from l2p.protectors.stepwise import stacked_lstm  # late: flax takes a third of a second, and few protectors need it

    return stacked_lstm.params(key, num_inputs, num_units, num_outputs)


@dataclasses.dataclass(frozen=True)
class LikeLSTM:
    """The rule of a field that holds parameters as `init_lstm` makes them for these sizes."""

    num_inputs: int
    num_units: int
    num_outputs: int

    def __call__(self, value: dict, sizes: Sizes) -> str | None:
        del sizes
        expected, shapes = (dict(map(_shape_at, jax.tree.leaves_with_path(tree))) for tree in (self._like, value))
        if expected.keys() != shapes.keys():
            return "has other arrays than a network of two LSTM layers and a head"
        if mismatches := [name for name in expected if expected[name] != shapes[name]]:
            return f"'s {mismatches[0]} has shape {shapes[mismatches[0]]} where {expected[mismatches[0]]} belongs"
        finite = all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(value))
        return None if finite else "holds a number that is not finite"

    @functools.cached_property
    def _like(self) -> Any:
        make = functools.partial(init_lstm, jax.random.key(0), self.num_inputs, self.num_units, self.num_outputs)
        return jax.eval_shape(make)


def _shape_at(item: tuple[Any, Any]) -> tuple[str, list[int]]:
    path, leaf = item
    return jax.tree_util.keystr(path, simple=True, separator="."), list(jnp.shape(leaf))


def lstm_carry(num_coordinates: int, num_units: int) -> Any:
    """The state before the first step: zeros, for so many coordinates."""
    zeros = jnp.zeros((num_units, num_coordinates), jnp.float32)
    return ((zeros, zeros), (zeros, zeros))


def apply_lstm(params: dict, carry: Any, inputs: jax.Array) -> tuple[Any, jax.Array]:
    """One step: carry, f32[p, in] -> carry, f32[p, out] for p coordinates.

    Coordinates, of which there are more than units, lie along the last axis: four times 20 numbers in a row fill few
    lanes of a processor, and this takes two thirds of the time.
    """
    first, hidden = _apply_cell(params["first"], carry[0], inputs.T)
    second, hidden = _apply_cell(params["second"], carry[1], hidden)
    head = params["head"]
    return (first, second), (head["kernel"].T @ hidden + head["bias"][:, None]).T


def _apply_cell(params: dict, carry: Any, inputs: jax.Array) -> tuple[Any, jax.Array]:
    """One step of a layer: (cells, hidden f32[units, p]), f32[in, p] -> the same, hidden f32[units, p]."""
    cells, hidden = carry
    kernel = jnp.concatenate([params["dense_i"]["kernel"], params["dense_h"]["kernel"]])
    gates = kernel.T @ jnp.concatenate([inputs, hidden]) + params["dense_h"]["bias"][:, None]
    input_gate, forget_gate, candidate, output_gate = jnp.split(gates, 4)
    cells = jax.nn.sigmoid(forget_gate) * cells + jax.nn.sigmoid(input_gate) * jnp.tanh(candidate)
    hidden = jax.nn.sigmoid(output_gate) * jnp.tanh(cells)
    return (cells, hidden), hidden
