"""Objective perturbation: noise in the objective, and none on its minimiser."""

from typing import ClassVar

import jax
import jax.numpy as jnp
from flax import struct

from l2p.models import GeneralizedLinear
from l2p.privacy import objective
from l2p.privacy.events import Adjacency, Event
from l2p.privacy.noise import Noise
from l2p.privacy.objective import Calibration
from l2p.queries.base import Query
from l2p.queries.newton import Objective, minimize
from l2p.queries.shrunk import shrunk
from l2p.task import Rows

# How long the gradient may be where a minimiser counts as exact, of the noise. Where a simulation adds N gradients in
# float32, of which each is at most a bound long, it may be longer by this many bounds per row.
_EXACT, _SIMULATED = 2.0**-24, 2.0**-18
# Of epsilon, so that 1 / noise_multiplier in float32 is no more than what was paid.
_ROUNDING = 2.0**-20


@struct.dataclass
class PerturbedMinimum(Query):
    """The minimiser of the summed loss of shrunk rows, plus Delta/2 ||params||^2, plus Gaussian noise times params.

    (epsilon, delta)-DP as a whole, by `l2p.privacy.objective`, where Delta and the noise come from. Every coordinate is
    regularised, the intercept's too. The theorem is about the exact minimiser: where the gradient there is not far
    below the noise, the answer is NaN, and `private_train` withholds it.

    Attributes:
      model: with finite lipschitz and smoothness (static).
      start: f32[p], public; where the search starts, which the answer does not depend on.
      norm_bound: f32[], that rows are shrunk to.
      ridge: f32[], weight of ||params||^2 / 2 beside the mean loss, at least 0; N times it counts towards Delta.
      num_rows: f32[], N, public.
      share: f32[], of epsilon for the Jacobians, in (0, 1); unused as published, where it is a half.
      log_delta: f32[], natural logarithm of delta.
      noise_multiplier: f32[], 1 / epsilon.
      published: calibrated as published (static).
    """

    model: GeneralizedLinear = struct.field(pytree_node=False)
    start: jax.Array
    norm_bound: jax.Array
    ridge: jax.Array
    num_rows: jax.Array
    share: jax.Array
    log_delta: jax.Array
    noise_multiplier: jax.Array
    published: bool = struct.field(pytree_node=False, default=False)
    name: ClassVar[str] = "perturbed_minimum"
    mechanism: ClassVar[str] = "objective"
    additive: ClassVar[bool] = False

    @property
    def bound(self) -> jax.Array:
        return self.model.lipschitz * self.norm_bound

    @property
    def unit(self) -> jax.Array:
        # What one row can move the minimiser by, at the least.
        most = self.num_rows * self._smoothness + self.calibrate(Adjacency.ZERO_OUT).convexity
        return self.bound / most

    @property
    def _smoothness(self) -> jax.Array:
        return self.model.smoothness * jnp.square(self.norm_bound)

    def event(self) -> Event:
        return Event(self.mechanism, jnp.asarray(self.noise_multiplier), log_delta=self.log_delta)

    def calibrate(self, adjacency: Adjacency) -> Calibration:
        """Delta, the strong convexity of the whole objective, and the standard deviation of its noise."""
        epsilon, existing = (1.0 - _ROUNDING) / self.noise_multiplier, self.ridge * self.num_rows
        constants = epsilon, self.log_delta, self.bound, self._smoothness, adjacency.sensitivity_factor
        if not self.published:
            return objective.exact(*constants, self.share, existing)
        least, noise_scale = objective.published(*constants)
        return Calibration(jnp.maximum(least, existing), noise_scale)

    def empty(self) -> jax.Array:
        return jnp.zeros_like(self.start)

    def answer(self, rows: Rows, noise: Noise, adjacency: Adjacency) -> jax.Array:
        convexity, noise_scale = self.calibrate(adjacency)
        table, labels = shrunk(rows, self.norm_bound)
        linear = noise_scale * noise.standard("gaussian", self.start.shape)
        tolerance = _EXACT * noise_scale
        if table.dtype != jnp.float64:
            tolerance += _SIMULATED * self.bound * len(labels) + _SIMULATED * noise_scale
        objective = Objective(self.model, table, labels, rows.mask, convexity, linear)
        params, norm = minimize(objective, self.start, tolerance)
        return noise.on_grid(jnp.where(norm <= tolerance, params, jnp.nan))
