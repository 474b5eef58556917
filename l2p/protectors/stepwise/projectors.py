"""Projectors: from noised gradients to updates. They read released answers only."""

import abc
import math
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, cast

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.polynomial.polynomial import polyval
from scipy.special import expit

from l2p.base import struct
from l2p.base.compiled import as_one
from l2p.base.errors import InputError
from l2p.models import Model
from l2p.oracle.setup import Setup
from l2p.protectors.conditioning import standardize, standardize_rate, standardize_size, value
from l2p.protectors.fields import Coefficients, Line, Polynomial
from l2p.protectors.register import stored
from l2p.protectors.stepwise.networks import Layers, apply_mlp
from l2p.protectors.stepwise.schedulers import Observation
from l2p.task.rows import Rows


class Projector(struct.Struct, abc.ABC):
    """Turns the noised mean gradient into an update.

    Attributes:
      needs_public: whether it works with public rows only.
      any_model: whether it updates the params of users' own models, too: nothing of it was learned on others.
    """

    needs_public: ClassVar[bool] = False
    any_model: ClassVar[bool] = False

    def check_public(self, public: Rows, model: Model, kind: str) -> None:
        """Refuse public rows, arrays on the host, that it cannot learn from; `InputError`."""
        del public, model, kind

    @abc.abstractmethod
    def init(self, params: jax.Array, setup: Setup) -> Any:
        """Projector state for params f32[p]."""

    @abc.abstractmethod
    def __call__(
        self, state: Any, observation: Observation, params: jax.Array, progress: jax.Array, setup: Setup
    ) -> tuple[jax.Array, Any]:
        """The update f32[p] (to be added to params) and the next state."""

    def at_end(self, state: Any, params: jax.Array, observation: Observation, setup: Setup) -> jax.Array:
        """The params f32[p] that a run ends with, in place of those after its last step."""
        del state, observation, setup
        return params


_RATE, _DECAY, _ADDED = (0.0, math.inf), (0.0, 1.0), (0.0, math.inf)
_ADAM = {"learning_rate": _RATE, "b1": _DECAY, "b2": _DECAY, "eps": _ADDED}
#: The optax optimizers that may be named, with the numbers that each takes: from the first bound to below the second.
OPTIMIZERS: dict[str, dict[str, tuple[float, float]]] = {
    "sgd": {"learning_rate": _RATE, "momentum": _DECAY},
    "adam": _ADAM,
    "adamw": _ADAM | {"weight_decay": _ADDED},
    "nadam": _ADAM,
    "rmsprop": {"learning_rate": _RATE, "decay": _DECAY, "eps": _ADDED, "momentum": _DECAY},
    "adagrad": {"learning_rate": _RATE, "initial_accumulator_value": _ADDED, "eps": _ADDED},
}


@stored
@struct.dataclass
class Optax(Projector):
    """An optax optimizer by name.

    Attributes:
      optimizer: one of `OPTIMIZERS` (static).
      hyperparameters: its keyword arguments, each f32[k], a polynomial in log(mu N). `learning_rate` and others in
        `log_scale` are given as logarithms, `momentum` and others in `logit_scale` as logits, so that tuning by
        gradients cannot leave their range.
    """

    optimizer: str = struct.field(pytree_node=False)
    hyperparameters: dict[str, Polynomial]
    log_scale: tuple[str, ...] = struct.field(pytree_node=False, default=("learning_rate",))
    logit_scale: tuple[str, ...] = struct.field(pytree_node=False, default=("momentum",))
    any_model = True

    def misfit(self) -> str | None:
        """Reason why optax would refuse it, or the number that leaves its range at some budget; None if all is well."""
        if self.optimizer not in OPTIMIZERS:
            return f"names the optimizer {self.optimizer[:40]!r}, which is none of {', '.join(OPTIMIZERS)}"
        ranges = OPTIMIZERS[self.optimizer]
        if odd := [name for name in self.hyperparameters if name not in ranges]:
            return f"has a number {odd[0][:40]!r}, but {self.optimizer} takes {', '.join(ranges)}"
        if "learning_rate" not in self.hyperparameters:
            return "lacks a learning_rate"
        for name, coefficients in self.hyperparameters.items():
            # Computes what `value` does at 33 budgets, without compiling.
            numbers = polyval(np.linspace(-2.0, 2.0, 33), np.asarray(coefficients, np.float64))
            plain = self._plain(name, numbers, np.exp, expit).astype(np.float32)
            low, high = ranges[name]
            if not ((plain >= low) & (plain < high)).all():
                return f"has a {name} outside [{low:g}, {high:g}) at some budget"
        return None

    def _plain(self, name: str, numbers: Any, exp: Callable, sigmoid: Callable) -> Any:
        """The hyper-parameter of this name as optax takes it."""
        if name in self.log_scale:
            return exp(numbers)
        return sigmoid(numbers) if name in self.logit_scale else numbers

    def _transformation(self, setup: Setup) -> optax.GradientTransformation:
        if self.optimizer not in OPTIMIZERS:
            raise InputError(f"a projector {self.misfit()}; name one of these, or write a projector.")
        arguments = {
            name: self._plain(name, value(coefficients, setup.log_signal), jnp.exp, jax.nn.sigmoid)
            for name, coefficients in self.hyperparameters.items()
        }
        return getattr(optax, self.optimizer)(**arguments)

    @as_one
    def init(self, params: jax.Array, setup: Setup) -> Any:
        return self._transformation(setup).init(params)

    @as_one
    def __call__(
        self, state: Any, observation: Observation, params: jax.Array, progress: jax.Array, setup: Setup
    ) -> tuple[jax.Array, Any]:
        update, state = self._transformation(setup).update(observation.gradient, state, params)
        return cast(jax.Array, update), state


#: Decay rates of the gradient averages that a `MixProjector` mixes.
MEMORY = (0.0, 0.5, 0.8, 0.9, 0.95)
#: Inputs of a coordinate network: one signal-to-noise ratio per average; six numbers on the coordinate and the
#: run; and the strength of the coordinate's feature, 0 if no eigenbasis was bought.
COORDINATE_INPUTS = len(MEMORY) + 6 + 1
#: Inputs of a tensor network: progress, log(mu N), number of params, signal-to-noise ratio of each average,
#: mean and maximum strength of the coordinates' features, and the sampling rate.
TENSOR_INPUTS = 3 + len(MEMORY) + 2 + 1


@struct.dataclass
class Averages(struct.Struct):
    """Running averages of noised gradients: mean f32[5, p] and the noise variance f32[5] each of them carries."""

    mean: jax.Array
    variance: jax.Array
    count: jax.Array


@stored
@struct.dataclass
class MixProjector(Projector):
    """A learned mixture of gradient averages, with per-coordinate corrections from a zero-initialised network.

    Without networks it is momentum SGD with a learning rate that changes over the run, whose constants depend on
    log(mu N). `tensor_network` reads inputs of the whole run (`_run_inputs`); `coordinate_network` reads each
    coordinate's signal-to-noise ratios, its parameter and the noise, and returns the coordinate's own mixture and gain.

    Attributes:
      log_learning_rate: f32[k, 2], intercept and slope in progress.
      mix: f32[k, 5], logits of the weights of the averages in `MEMORY`.
      tensor_network: network with `TENSOR_INPUTS` inputs and 6 outputs (log gain, logits), or None.
      coordinate_network: network with `COORDINATE_INPUTS` inputs and 6 outputs, or None.
    """

    log_learning_rate: Line
    mix: Annotated[jax.Array, Coefficients((len(MEMORY),))]
    tensor_network: Annotated[dict, Layers(TENSOR_INPUTS, 1 + len(MEMORY))] | None = None
    coordinate_network: Annotated[dict, Layers(COORDINATE_INPUTS, 1 + len(MEMORY))] | None = None

    def init(self, params: jax.Array, setup: Setup) -> Averages:
        zeros = jnp.zeros((len(MEMORY), params.shape[0]), jnp.float32)
        return Averages(zeros, jnp.zeros(len(MEMORY), jnp.float32), jnp.zeros((), jnp.float32))

    def __call__(
        self, state: Averages, observation: Observation, params: jax.Array, progress: jax.Array, setup: Setup
    ) -> tuple[jax.Array, Averages]:
        state, average, std = _averaged(state, observation)
        log_gain = value(self.log_learning_rate, setup.log_signal) @ jnp.stack([jnp.ones(()), progress])
        logits = value(self.mix, setup.log_signal)
        inputs = jnp.stack([2 * progress - 1, standardize(setup.log_signal)])
        if self.tensor_network is not None:
            extra = apply_mlp(self.tensor_network, self._run_inputs(average, std, observation, inputs, setup))
            log_gain, logits = log_gain + extra[0], logits + extra[1:]
        if self.coordinate_network is None:
            # Weights are computed before they are broadcast over coordinates: otherwise XLA for CPUs (jaxlib 0.10.2)
            # gives every seed the first one's averages if seeds x budgets x coordinates are many.
            return -jnp.exp(log_gain) * jnp.sum(jax.nn.softmax(logits)[:, None] * average, axis=0), state
        coordinates = self._coordinates(average, std, params, observation, inputs)
        extra = apply_mlp(self.coordinate_network, coordinates).T
        weights = jax.nn.softmax(logits[:, None] + extra[1:], axis=0)
        return -jnp.exp(log_gain + extra[0]) * jnp.sum(weights * average, axis=0), state

    def _run_inputs(
        self, average: jax.Array, std: jax.Array, observation: Observation, inputs: jax.Array, setup: Setup
    ) -> jax.Array:
        """Inputs of the tensor network f32[TENSOR_INPUTS], about the whole run."""
        size = average.shape[1]
        # Squared lengths relative to those of noise alone; the logarithm below is 0 if an average is as long as pure
        # noise.
        energy = jnp.square(average).sum(1) / (size * jnp.square(std) + 1e-20)
        strength = jnp.zeros(1) if observation.strength is None else observation.strength
        spectrum = jnp.stack([strength.mean(), strength.max()]) / 4.0
        ratios = (jnp.log1p(energy) - math.log(2.0)) / 2.0
        rate = standardize_rate(setup.price_list.sampler.rate())
        return jnp.concatenate([inputs, jnp.array([standardize_size(size)]), ratios, spectrum, jnp.array([rate])])

    def _coordinates(
        self, average: jax.Array, std: jax.Array, params: jax.Array, observation: Observation, inputs: jax.Array
    ) -> jax.Array:
        """Inputs of the coordinate network f32[p, COORDINATE_INPUTS]."""
        ratios = jnp.arcsinh(average / (std[:, None] + 1e-12))
        # The share of signal in the whole gradient: its squared length relative to that of noise alone.
        size = average.shape[1]
        energy = jnp.square(average[-2]).sum() / (size * jnp.square(std[-2]) + 1e-20)
        shared = jnp.stack(
            [*inputs, jnp.log(observation.noise_std + 1e-12) / 4.0, jnp.log1p(energy), jnp.log(size) / 4.0]
        )
        strength = jnp.zeros_like(params) if observation.strength is None else observation.strength / 4.0
        columns = [ratios.T, params[:, None], jnp.broadcast_to(shared[None, :], (size, shared.shape[0]))]
        return jnp.concatenate([*columns, strength[:, None]], axis=1)


def _averaged(state: Averages, observation: Observation) -> tuple[Averages, jax.Array, jax.Array]:
    """The next state, the averages f32[5, p] with the newest gradient, and the noise f32[5] of each."""
    decay = jnp.array(MEMORY)
    count = state.count + 1.0
    mean = decay[:, None] * state.mean + (1.0 - decay)[:, None] * observation.gradient[None, :]
    variance = decay**2 * state.variance + (1.0 - decay) ** 2 * jnp.square(observation.noise_std)
    # Early averages are biased towards their zero start; dividing by their total weight corrects that.
    total = 1.0 - decay**count
    following = state.replace(mean=mean, variance=variance, count=count)
    return following, mean / total[:, None], jnp.sqrt(variance + 1e-20) / total
