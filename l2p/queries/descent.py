"""Output perturbation: gradient descent without noise, and noise added once to its result."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.models import GeneralizedLinear
from l2p.privacy.events import Adjacency
from l2p.queries.base import Query, positive, within
from l2p.queries.shrunk import shrunk
from l2p.task.exact_sums import ExactSum, value_of
from l2p.task.noise import GRID_STEPS, Noise
from l2p.task.rows import Rows

# Margins for float32 rounding: of a product of a few factors, and of one step of a recursion of positive terms.
_ROUNDING, _PER_ROUND = 2.0**-18, 2.0**-22


@struct.dataclass
class Descent(Query):
    """Result of gradient descent on the mean loss of shrunk rows plus ridge/2 ||params||^2, with Gaussian noise.

    Sensitivity (Zhang, Zheng, Mou & Wang 2017; `l2p.privacy.sensitivity.sensitivity` has the same in float64, for any
    steps). Two runs on neighbours are moved apart by at most L eta / N in a step, L = lipschitz * norm_bound, where a
    row leaves or enters, and by twice that where it is replaced; the regulariser moves both alike. A step with eta <= 2
    / beta brings no two points further apart, beta = smoothness * norm_bound^2 + ridge, and stretches their distance by
    at most max(1 - ridge eta, eta beta - 1). So the sensitivity is L eta / N times the sum of powers of that factor: T
    without a ridge, at most 1 / (ridge eta) with one. N is a public divisor, so this also covers `add_remove`, for
    tables of at most N rows.

    Attributes:
      model: with finite lipschitz and smoothness (static).
      start: f32[p], public; finite.
      norm_bound: f32[], that rows are shrunk to; above 0.
      ridge: f32[], at least 0: a negative one would drive two runs apart ever faster.
      step_size: f32[], eta in multiples of 1 / beta, above 0 and at most 2.
      num_rows: f32[], N, public; at least 1.
      noise_multiplier: f32[], noise standard deviation over the sensitivity.
      num_iterations: T (static); at least 1.
    """

    model: GeneralizedLinear = struct.field(pytree_node=False)
    start: jax.Array
    norm_bound: jax.Array
    ridge: jax.Array
    step_size: jax.Array
    num_rows: jax.Array
    noise_multiplier: jax.Array
    num_iterations: int = struct.field(pytree_node=False, default=50)
    name: ClassVar[str] = "descent"
    mechanism: ClassVar[str] = "gaussian"
    additive: ClassVar[bool] = False

    @property
    def _multiple(self) -> jax.Array:
        """eta beta f32[], kept below 2 by the possible rounding error of eta."""
        return jnp.clip(self.step_size, 0.0, 2.0) * (1.0 - _ROUNDING)

    @property
    def _eta(self) -> jax.Array:
        return self._multiple / (self.model.smoothness * jnp.square(self.norm_bound) + self.ridge)

    @property
    def bound(self) -> jax.Array:
        """f32[], how far removing one row moves the released result, rounding included.

        In float64 (u = 2^-53) a mean of N gradients errs by at most (N + p) u L, a margin by p u norm_bound ||params||,
        and ||params|| <= ||start|| + T eta L. So two runs drift apart by at most 8 (N + p reach) u L eta in a step,
        reach = T + ||start|| / (eta L), where L eta / N is counted. The result is rounded to the grid, by half a step
        of bound / GRID_STEPS in each coordinate.
        """
        if self.num_iterations < 1:
            raise ValueError(f"descent by {self.num_iterations} steps goes nowhere; take at least one.")
        stretch = jnp.maximum(1.0 - self.ridge * self._eta, self._multiple - 1.0)
        stretch = jnp.clip(stretch + _PER_ROUND, 0.0, 1.0)
        rounds = jax.lax.fori_loop(
            0, self.num_iterations, lambda _, total: stretch * total + 1.0, jnp.zeros_like(stretch)
        )
        move = self.model.lipschitz * self.norm_bound * self._eta
        size = self.start.shape[0]
        reach = self.num_iterations + jnp.abs(self.start).sum() / move
        drift = 2.0**-50 * self.num_rows * (self.num_rows + size * reach)
        grid = 2.0 * size**0.5 / GRID_STEPS
        moved = move / self.num_rows * rounds
        return within(
            moved * (1.0 + 2.0 * _ROUNDING + _PER_ROUND * self.num_iterations + grid + drift),
            positive(self.model.lipschitz * self.norm_bound),
            positive(self.model.smoothness * self.norm_bound),
            (self.ridge >= 0) & (self.ridge < jnp.inf),
            (self.step_size > 0) & (self.step_size <= 2),
            (self.num_rows >= 1) & (self.num_rows < jnp.inf),
            jnp.isfinite(self.start).all(),
        )

    @property
    def most_rows(self) -> jax.Array:
        # With more rows than this divisor, a step of 2 / beta would be too long.
        return self.num_rows

    def empty(self) -> jax.Array:
        return jnp.zeros_like(self.start)

    def add(self, aggregate: jax.Array, rows: Rows) -> jax.Array:
        """The result of the descent: f[p]. It is not added to `aggregate`."""
        table, labels = shrunk(rows, self.norm_bound)
        weight = rows.mask / self.num_rows

        def step(params: jax.Array, _: None) -> tuple[jax.Array, None]:
            gradient = (weight * self.model.residual(table @ params, labels)) @ table + self.ridge * params
            return params - self._eta * gradient, None

        return jax.lax.scan(step, self.start.astype(table.dtype), length=self.num_iterations)[0]

    def release(self, aggregate: jax.Array | ExactSum, noise: Noise, adjacency: Adjacency) -> jax.Array:
        # On the grid before and after adding noise, so that the possible answers are the same on every table.
        return super().release(noise.on_grid(value_of(aggregate)), noise, adjacency)
