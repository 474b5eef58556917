"""Stochastic gradient descent with noise in every step: SCS13, which permutes the rows, and BST14, which samples them.

A whole run is one query, since only its last iterate is released: noise of all steps is drawn before the first, and
the price is that of all steps together.
"""

import math
from typing import ClassVar

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.base.errors import InputError
from l2p.models import GeneralizedLinear
from l2p.privacy.cost.strong_sampling import noise_ratio
from l2p.privacy.events import Adjacency, Event
from l2p.privacy.sensitivity.passes import Passes
from l2p.queries.base import Query, within
from l2p.queries.pass_descent import check_adjacency, check_classes
from l2p.queries.rows_in_order import Matrix, all_passes, gradient_sum, orders, projected, shrunk_rows
from l2p.task.noise import GRID_STEPS, Noise
from l2p.task.rows import Rows

_ROUNDING = 2.0**-18


@struct.dataclass
class NoisyPasses(Query):
    """Last iterate of SGD over permuted rows with noise in each batch's sum (Song, Chaudhuri & Sarwate 2013), k passes.

    A row is in one batch of a pass, so a pass costs what one noised sum costs, whatever the earlier ones showed; k
    passes add up to k times epsilon (`gamma` noise), or to sqrt(k) times mu (`gaussian`). Both are in the bound, so the
    noise multiplier is that of the whole run. Of K one-vs-rest problems each has noise of its own, for 1 / K of
    epsilon, or all together a sum that is sqrt(K) times as long.

    Attributes:
      loss: of each problem, with finite lipschitz (static).
      plan: the course of the run; its steps may have any length (static).
      start: f32[p K], public; finite.
      noise_multiplier: f32[], scale of the noise over the sensitivity of the whole run.
      num_classes: K (static); 1 for two classes, which are one problem.
      norm_bound: that rows are shrunk to (static).
      mechanism: "gaussian" or "gamma" (static).
    """

    loss: GeneralizedLinear = struct.field(pytree_node=False)
    plan: Passes = struct.field(pytree_node=False)
    start: jax.Array
    noise_multiplier: jax.Array
    num_classes: int = struct.field(pytree_node=False, default=1)
    norm_bound: float = struct.field(pytree_node=False, default=1.0)
    mechanism: str = struct.field(pytree_node=False, default="gaussian")  # type: ignore[misc]
    name: ClassVar[str] = "noisy_passes"
    additive: ClassVar[bool] = False

    @property
    def bound(self) -> jax.Array:
        """f32[], by how much nulling one row moves the sums of all passes together, the rounding of sums included."""
        times = self.plan.num_passes * self.num_classes
        length = longest(self.loss, self.norm_bound, self.plan, self.start)
        return length * (times if self.mechanism == "gamma" else math.sqrt(times))

    @property
    def most_rows(self) -> jax.Array:
        return jnp.asarray(self.plan.num_rows, jnp.float32)

    @property
    def unit(self) -> jax.Array:
        # One row's share of one sum.
        return longest(self.loss, self.norm_bound, self.plan, self.start)

    def event(self) -> Event:
        check_classes(self.num_classes, self.start)
        if self.mechanism not in ("gaussian", "gamma") or self.plan.order == "with_replacement":
            raise InputError(
                f"steps with {self.mechanism} noise on rows in order {self.plan.order!r} have no price; choose "
                "gaussian or gamma noise, and rows that are permuted, so that each is read once in a pass."
            )
        return super().event()

    def empty(self) -> jax.Array:
        return jnp.zeros_like(self.start)

    def answer(self, rows: Rows, noise: Noise, adjacency: Adjacency) -> jax.Array:
        check_adjacency(adjacency)
        order, dtype = orders(self.plan, noise), rows.x.dtype
        size, steps = self.start.shape[0] // self.num_classes, self.plan.num_steps
        if self.mechanism == "gamma":
            drawn = noise.directions(steps * self.num_classes, size).reshape(steps, self.num_classes, size)
            drawn = drawn.transpose(0, 2, 1)
        else:
            drawn = noise.standard("gaussian", (steps, size, self.num_classes))
        scale = jnp.asarray(self.noise_multiplier, dtype) * jnp.asarray(self.bound, dtype)
        scale = scale * adjacency.sensitivity_factor
        return descend(self, rows, order, noise, drawn, scale, jnp.ones((), dtype))


@struct.dataclass
class SampledPasses(Query):
    """Last iterate of SGD on fresh random batches with Gaussian noise in each sum (Bassily, Smith & Thakurta 2014).

    (epsilon, delta)-private as a whole for a replaced row, by `l2p.privacy.cost.strong_sampling`; a nulled row is a
    case of that. Batches are drawn without replacement, afresh in each step: amplification by sampling does not hold
    for a permutation, which Wu et al. (2017) use.

    Attributes:
      loss, start, num_classes, norm_bound: as in `NoisyPasses`.
      plan: the course of the run, by fresh batches whatever its order says; T steps of b rows (static).
      log_delta: f32[], natural logarithm of delta; below 0, and finite.
      noise_multiplier: f32[], 1 / epsilon.
      in_ball: whether step sizes are those for a ball: 2 radius / (G sqrt t) on the noised sum, where G bounds its
        length's root mean square (Algorithm 4); else those of the plan (static).
    """

    loss: GeneralizedLinear = struct.field(pytree_node=False)
    plan: Passes = struct.field(pytree_node=False)
    start: jax.Array
    log_delta: jax.Array
    noise_multiplier: jax.Array
    num_classes: int = struct.field(pytree_node=False, default=1)
    norm_bound: float = struct.field(pytree_node=False, default=1.0)
    in_ball: bool = struct.field(pytree_node=False, default=True)
    name: ClassVar[str] = "sampled_passes"
    mechanism: ClassVar[str] = "objective"
    additive: ClassVar[bool] = False

    @property
    def bound(self) -> jax.Array:
        """f32[], the most that one row adds to a batch's sum over all problems, the rounding of sums included."""
        length = longest(self.loss, self.norm_bound, self.plan, self.start) * math.sqrt(self.num_classes)
        return within(length, (self.log_delta < 0) & (self.log_delta > -jnp.inf))

    @property
    def most_rows(self) -> jax.Array:
        return jnp.asarray(self.plan.num_rows, jnp.float32)

    def event(self) -> Event:
        check_classes(self.num_classes, self.start)
        if self.in_ball and self.plan.radius == math.inf:
            raise InputError("steps for a ball need its radius; give a finite one, or take the plan's own steps.")
        return Event(self.mechanism, jnp.asarray(self.noise_multiplier), log_delta=self.log_delta)

    def empty(self) -> jax.Array:
        return jnp.zeros_like(self.start)

    def noise_scale(self) -> jax.Array:
        """Standard deviation f32[] of each coordinate of the noise in a batch's sum."""
        plan, replaced = self.plan, Adjacency.REPLACE_ONE.sensitivity_factor
        epsilon = (1.0 - _ROUNDING) / jnp.asarray(self.noise_multiplier, jnp.float32)
        log_delta = jnp.asarray(self.log_delta, jnp.float32)
        ratio = noise_ratio(epsilon, log_delta, plan.num_steps, plan.batch_size / plan.num_rows)
        return self.bound * replaced * ratio * (1.0 + _ROUNDING)

    def answer(self, rows: Rows, noise: Noise, adjacency: Adjacency) -> jax.Array:
        check_adjacency(adjacency)
        plan, size = self.plan, self.start.shape[0] // self.num_classes
        order = noise.subsets(plan.num_rows, plan.num_steps, plan.batch_size).reshape(plan.num_passes, -1)
        drawn = noise.standard("gaussian", (plan.num_steps, size, self.num_classes))
        scale, rate = self.noise_scale(), jnp.ones((), jnp.float32)
        if self.in_ball:
            most = plan.batch_size * self.loss.lipschitz * self.norm_bound
            rate = 2.0 * plan.radius * plan.batch_size / jnp.sqrt(size * jnp.square(scale) + most**2)
        return descend(self, rows, order, noise, drawn, scale.astype(rows.x.dtype), rate.astype(rows.x.dtype))


def longest(loss: GeneralizedLinear, norm_bound: float, plan: Passes, start: jax.Array) -> jax.Array:
    """f32[], the most that one row adds to one problem's sum, with the rounding of a sum of b gradients and of the grid
    that it lies on; NaN where no such bound is proved."""
    length = loss.lipschitz * norm_bound
    if not (0 < length < math.inf and 0 < loss.smoothness * norm_bound**2 <= plan.smoothness):
        return jnp.array(jnp.nan, jnp.float32)
    rounding = _ROUNDING + 2.0 * start.shape[0] ** 0.5 / GRID_STEPS
    rounding += 2.0**-50 * plan.batch_size * (plan.batch_size + start.shape[0])
    return within(jnp.float32(length * (1.0 + rounding)), jnp.isfinite(start).all())


def descend(
    query: NoisyPasses | SampledPasses,
    rows: Rows,
    order: jax.Array,
    noise: Noise,
    drawn: jax.Array,
    scale: jax.Array,
    rate: jax.Array,
) -> jax.Array:
    """The last iterate f[p K].

    Args:
      order: i32[k, T / k * b], the lines of every pass.
      noise: puts noised sums on the public grid.
      drawn: f[T, p, K], standard noise of every step.
      scale: f[], of the noise in a batch's sum.
      rate: f[], multiplies the plan's step sizes.
    """
    shrunk, plan = shrunk_rows(rows, query.norm_bound, query.num_classes), query.plan
    dtype = shrunk.table.dtype

    def step(params: Matrix, batch: tuple) -> tuple[Matrix, None]:
        shrunk, size, drawn = batch
        total = noise.on_grid(gradient_sum(query.loss, params, shrunk))
        noised = noise.coarse(total + scale * drawn, scale)
        params = params - size * (noised / plan.batch_size + plan.ridge * params)
        return projected(params, plan.radius), None

    start = query.start.astype(dtype).reshape(-1, query.num_classes)
    sizes = jnp.asarray(plan.step_sizes, dtype) * rate
    return all_passes(plan, step, start, shrunk, order, sizes, drawn.astype(dtype)).ravel()
