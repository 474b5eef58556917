"""Adam with a pull to the start, and a network that corrects it in each coordinate, for losses that users bring along.

What a coordinate's gradients say is read in units of their noise, which is public: averages at three decays over their
own noise, the same for a tensor and for all params. Inputs do not change if a coordinate's sign does, so that the
network is the same for a loss and its mirror image; its outputs lengthen Adam's step, add a longer memory's, and
tighten the pull. Its last layer starts at zero, where it is `PulledAdam`.
"""

import math
from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base import struct
from l2p.models import Model
from l2p.models.custom import CustomLoss
from l2p.oracle.setup import Setup
from l2p.protectors.by_hand.adam import Moments
from l2p.protectors.by_hand.pulled import PulledAdam, sizes_of
from l2p.protectors.conditioning import standardize
from l2p.protectors.register import stored
from l2p.protectors.stepwise.networks import Layers, apply_mlp
from l2p.protectors.stepwise.schedulers import Observation

#: Decays of the averages that the network reads; the last one's may be added to the step.
MEMORY = (0.5, 0.9, 0.98)
#: Inputs of the network, see `DeepProjector._inputs`, and outputs, see `DeepProjector`.
INPUTS, OUTPUTS = 15, 3
#: Largest absolute value of an output that is a logarithm.
MOST = 3.0


class Memory(NamedTuple):
    """Where a run began f32[p], Adam's moments, averages f32[3, p] of gradients and their noise's variances f32[3]."""

    start: jax.Array
    moments: Moments
    mean: jax.Array
    variance: jax.Array


@stored
@struct.dataclass
class DeepProjector(PulledAdam):
    """The network above.

    Attributes:
      network: its outputs are logs of factors on Adam's step and on the pull, and between them what is added of the
        longest memory, over its root mean square in the tensor.
    """

    network: Annotated[dict, Layers(INPUTS, OUTPUTS)] | None = None

    def init(self, params: jax.Array, setup: Setup) -> Memory:  # type: ignore[override]
        averages = jnp.zeros((len(MEMORY), params.shape[0]), params.dtype)
        return Memory(params, Moments.none(params), averages, jnp.zeros(len(MEMORY), params.dtype))

    def __call__(  # type: ignore[override]
        self, state: Memory, observation: Observation, params: jax.Array, progress: jax.Array, setup: Setup
    ) -> tuple[jax.Array, Memory]:
        step, moments = self._step(state.moments, observation, setup)
        rate, pull = self._rate_and_pull(params.shape[0], observation, setup)
        decay, moved = jnp.array(MEMORY), params - state.start
        mean = decay[:, None] * state.mean + (1.0 - decay)[:, None] * observation.gradient[None, :]
        variance = decay**2 * state.variance + (1.0 - decay) ** 2 * jnp.square(observation.noise_std)
        state = Memory(state.start, moments, mean, variance)
        if self.network is not None:
            sizes = tensor_sizes(setup.model, params.shape[0])
            inputs = self._inputs(state, observation, moved, rate, progress, setup, sizes)
            longer, added, tighter = apply_mlp(self.network, inputs).T
            longest = mean[-1] * jax.lax.rsqrt(_of_tensors(jnp.square(mean[-1]), sizes) + 1e-20)
            step = jnp.exp(jnp.clip(longer, -MOST, MOST)) * step + added * longest
            pull = pull * jnp.exp(jnp.clip(tighter, -MOST, MOST))
        return -rate * step + jnp.expm1(-rate * pull) * moved, state

    def _inputs(
        self,
        state: Memory,
        observation: Observation,
        moved: jax.Array,
        rate: jax.Array,
        progress: jax.Array,
        setup: Setup,
        sizes: tuple[int, ...],
    ) -> jax.Array:
        """The network's inputs f32[p, INPUTS]; `state` has the gradient in it."""
        num_params, noise = moved.shape[0], jnp.square(observation.noise_std) + 1e-20
        ratios = state.mean * jax.lax.rsqrt(state.variance + 1e-20)[:, None]
        squares = jnp.square(ratios)
        energy = squares[1]
        columns = [
            *jnp.log1p(squares) / 2.0,
            jnp.tanh(ratios[0] * ratios[2]),
            jnp.tanh(ratios[2] * moved / rate),  # above 0 where gradients point back to the start
            jnp.log1p(jnp.square(moved / rate)) / 4.0,
            jnp.log1p(_of_tensors(energy, sizes)) / 2.0,
            jnp.log1p(state.moments.square / noise) / 4.0,
            jnp.repeat(jnp.log(np.array(sizes)) / 4.0 - 1.5, np.array(sizes), total_repeat_length=num_params),
        ]
        of_run = jnp.stack(
            [
                jnp.log1p(energy.mean()) / 2.0,
                jnp.log(noise) / 8.0 + 1.5,
                2.0 * progress - 1.0,
                standardize(setup.log_signal),
                *sizes_of(setup, num_params),
            ]
        )
        shared = jnp.broadcast_to(of_run, (num_params, of_run.shape[0]))
        return jnp.concatenate([jnp.stack(columns, axis=1), shared], axis=1)


def tensor_sizes(model: Model, num_params: int) -> tuple[int, ...]:
    """The numbers of params of the tensors that lie one after another in a vector; one tensor for our own models."""
    if not isinstance(model, CustomLoss):
        return (num_params,)
    return tuple(math.prod(shape) for shape in model.parameters.trained.shapes)


def _of_tensors(values: jax.Array, sizes: tuple[int, ...]) -> jax.Array:
    """In place of each of the values f32[p], the mean in its tensor."""
    ends = np.cumsum(sizes)[:-1]
    means = jnp.stack([part.mean() for part in jnp.split(values, ends)])
    return jnp.repeat(means, np.array(sizes), total_repeat_length=values.shape[0])
