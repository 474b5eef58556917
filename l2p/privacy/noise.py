"""Where noise comes from: JAX keys for simulation, the operating system for a release.

A simulation may be reproduced from its key, so it protects nobody, and float32 Gaussian noise never leaves
[-5.42, 5.22] standard deviations. A release therefore adds float64 noise drawn from the operating system's entropy
to a sum that lies on a public grid, and rounds the result back to that grid.
"""

import abc
import dataclasses
import secrets
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

#: Steps of the release grid per unit of a query's bound on one row's contribution.
GRID_STEPS = 2.0**20


class Noise(abc.ABC):
    """Adds noise to aggregates; each call uses fresh randomness."""

    @abc.abstractmethod
    def add(self, distribution: str, aggregate: jax.Array, scale: jax.Array) -> jax.Array:
        """aggregate f[k] + scale f[] * standard noise of `distribution` (gaussian, gumbel or exponential)."""


class KeyNoise(Noise):
    """Simulated noise from one JAX key; successive calls fold in a counter."""

    def __init__(self, key: jax.Array):
        self._key = key
        self._calls = 0

    def add(self, distribution: str, aggregate: jax.Array, scale: jax.Array) -> jax.Array:
        key = jax.random.fold_in(self._key, self._calls)
        self._calls += 1
        sampler = {"gaussian": jax.random.normal, "gumbel": jax.random.gumbel, "exponential": jax.random.exponential}
        return aggregate + scale * sampler[distribution](key, aggregate.shape, jnp.float32)


@dataclasses.dataclass(frozen=True)
class Draw:
    """What one call of `Noise.add` needs: a distribution and the number of values."""

    distribution: str
    size: int


class PlannedNoise(Noise):
    """Adds nothing and writes down what would have been drawn; used under `jax.eval_shape`."""

    def __init__(self):
        self.draws: list[Draw] = []

    def add(self, distribution: str, aggregate: jax.Array, scale: jax.Array) -> jax.Array:
        self.draws.append(Draw(distribution, aggregate.size))
        return aggregate


class HostNoise(Noise):
    """Noise drawn on the host before the step, as float64 bit patterns u32[size, 2], in the order of the calls.

    Must be used inside `jax.enable_x64(True)`; a Gaussian answer is rounded to multiples of `grid`.
    """

    def __init__(self, bits: list[jax.Array], plan: Sequence[Draw]):
        self._draws = zip(bits, plan, strict=True)
        self.grid: jax.Array | float = 0.0

    def add(self, distribution: str, aggregate: jax.Array, scale: jax.Array) -> jax.Array:
        bits, draw = next(self._draws)
        if draw != Draw(distribution, aggregate.size):
            raise RuntimeError(f"{draw} was planned, but the step asked for {distribution} noise of {aggregate.shape}.")
        standard = jax.lax.bitcast_convert_type(bits, jnp.float64).reshape(aggregate.shape)
        noised = aggregate + scale * standard
        # A selection's proof is about the noised scores themselves, of which only the index leaves.
        return jnp.rint(noised / self.grid) * self.grid if distribution == "gaussian" else noised


class Entropy:
    """Float64 standard noise for a release.

    Args:
      seed: None draws the generator's key, 128 bits, from the operating system. A number makes the noise
        reproducible, and whatever it protects is not a private release.
    """

    def __init__(self, seed: int | None = None):
        self.is_private = seed is None
        self._generator = np.random.Generator(np.random.Philox(secrets.randbits(128) if seed is None else seed))

    def draw(self, plan: Sequence[Draw], num_steps: int) -> list[np.ndarray]:
        """Bit patterns u32[num_steps, size, 2] for each planned draw."""
        samplers = {
            "gaussian": self._generator.standard_normal,
            "gumbel": lambda shape: self._generator.gumbel(size=shape),
            "exponential": self._generator.standard_exponential,
        }
        drawn = [samplers[draw.distribution]((num_steps, draw.size)) for draw in plan]
        return [np.ascontiguousarray(values).view(np.uint32).reshape(*values.shape, 2) for values in drawn]
