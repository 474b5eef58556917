"""The LSTM of coordinate-wise learned optimizers."""

from typing import Any

import jax
from flax import nnx


class StackedLSTM(nnx.Module):
    """Two LSTM layers and a linear head (Andrychowicz et al. 2016): names and first values of the parameters, and what
    `networks.apply_lstm` computes."""

    def __init__(self, num_inputs: int, num_units: int, num_outputs: int, rngs: nnx.Rngs):
        self.first = nnx.OptimizedLSTMCell(num_inputs, num_units, rngs=rngs)
        self.second = nnx.OptimizedLSTMCell(num_units, num_units, rngs=rngs)
        self.head = nnx.Linear(num_units, num_outputs, rngs=rngs, kernel_init=nnx.initializers.zeros_init())

    def __call__(self, carry: Any, inputs: jax.Array) -> tuple[Any, jax.Array]:
        first, hidden = self.first(carry[0], inputs)
        second, hidden = self.second(carry[1], hidden)
        return (first, second), self.head(hidden)


def params(key: jax.Array, num_inputs: int, num_units: int, num_outputs: int) -> dict:
    """Fresh parameters as a plain dictionary."""
    module = StackedLSTM(num_inputs, num_units, num_outputs, nnx.Rngs(key))
    return nnx.to_pure_dict(nnx.state(module, nnx.Param))
