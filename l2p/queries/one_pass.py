"""PNSGD: one noisy pass over the rows of which only the end is released (Feldman, Mironov, Talwar & Thakurta 2018)."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.base.errors import InputError
from l2p.models import GeneralizedLinear
from l2p.privacy.events import Adjacency
from l2p.queries.base import Query, limit_norm, positive, within
from l2p.queries.shrunk import shrunk
from l2p.task.noise import GRID_STEPS, Noise
from l2p.task.rows import Rows

# Margin for float32 rounding of a product of a few factors.
_ROUNDING = 2.0**-18


@struct.dataclass
class OnePass(Query):
    """The end of one pass of projected SGD with batch 1 and Gaussian noise in every step, public rows last.

    Private rows are taken in the table's order, one step each, null rows too, then K public ones:
    w <- projection(w - eta (grad l(w, row) + noise)) onto the ball of this radius around zero. Rows are shrunk to
    `norm_bound`, so a gradient is at most L = `lipschitz` long and eta <= 2 / beta, beta = smoothness * norm_bound^2,
    makes every step without its noise bring no two points further apart.

    Guarantee: that of one Gaussian query of sensitivity s / sqrt(K + 1) and the noise of a step, eta sigma, where
    s = eta L, or 2 eta L where a row is replaced. Let two tables differ in row t, from which on there are k >= K + 1
    steps. X runs on the one table and Y on the other. V starts with X before row t, has X's noise, and makes Y's steps,
    each shifted by at most a = s / k towards where X's step leads. The first of the k steps leads V and X s apart, less
    the shift; later steps do not expand and so leave s - j a after the j-th, which is nothing after the k-th: V ends
    where X does. Given V's path so far, its next point and that of Y are Gaussians before the projection whose means
    differ by at most a (V's a mixture of such, over X), so the two are a / (eta sigma)-Gaussian DP apart; k such
    steps compose to sqrt(k) a / (eta sigma) = s / (eta sigma sqrt(k)). (Bok, Su & Altschuler 2024, "Shifted
    interpolation for differential privacy"; Feldman et al., Theorems 22 and 23, prove the same as Renyi divergences of
    all orders.) With K = 0 the last row has no amplification.

    Under `add_remove` every later row would shift to another step, so it is refused; so are tables whose order their
    rows decide (`Protector.reads_in_order`).

    Attributes:
      model: with finite smoothness, and an intercept (static).
      start: f32[p], public; finite.
      public: the rows that come last; their number is K, null rows included.
      norm_bound: f32[], that rows are shrunk to; above 0.
      radius: f32[], of the ball; above 0.
      step_size: f32[], eta in multiples of 1 / beta, above 0 and at most 2.
      num_rows: f32[], N, public; at least 1.
      noise_multiplier: f32[], a step's noise over the sensitivity above.
    """

    model: GeneralizedLinear = struct.field(pytree_node=False)
    start: jax.Array
    public: Rows
    norm_bound: jax.Array
    radius: jax.Array
    step_size: jax.Array
    num_rows: jax.Array
    noise_multiplier: jax.Array
    name: ClassVar[str] = "one_pass"
    mechanism: ClassVar[str] = "gaussian"
    additive: ClassVar[bool] = False

    @property
    def num_last(self) -> int:
        """K + 1, the fewest steps from a private row to the end."""
        return self.public.y.shape[0] + 1

    @property
    def lipschitz(self) -> jax.Array:
        """L f32[]: of least squares, whose residual is unbounded elsewhere, on the ball and for labels in [0, 1]."""
        if self.model.lipschitz < float("inf"):
            return self.model.lipschitz * self.norm_bound
        ends = jnp.stack([self.radius * self.norm_bound, -self.radius * self.norm_bound])
        labels = jnp.array([0.0, 1.0])
        return jnp.abs(self.model.residual(ends[:, None], labels[None, :])).max() * self.norm_bound

    @property
    def eta(self) -> jax.Array:
        """f32[], kept below 2 / beta by its possible rounding error."""
        multiple = jnp.clip(self.step_size, 0.0, 2.0) * (1.0 - _ROUNDING)
        return multiple / (self.model.smoothness * jnp.square(self.norm_bound))

    @property
    def bound(self) -> jax.Array:
        """f32[], eta L / sqrt(K + 1), rounding included.

        In float64 a step errs by at most 16 p u (radius + eta L), u = 2^-53, which shifts two runs apart once more at
        every step; over n steps this adds up to that times sqrt(n), where eta L / sqrt(K + 1) is counted. The last
        point before its noise is rounded to the grid, by half a step of bound / GRID_STEPS in each coordinate.
        """
        move, size = self.eta * self.lipschitz, self.start.shape[0]
        steps = self.num_rows + self.public.y.shape[0]
        drift = 2.0**-49 * size * (self.radius / move + 1.0) * jnp.sqrt(steps * self.num_last)
        grid = 2.0 * size**0.5 / GRID_STEPS
        return within(
            move / self.num_last**0.5 * (1.0 + 4.0 * _ROUNDING + drift + grid),
            jnp.asarray(self.model.has_intercept),
            positive(self.model.smoothness * self.norm_bound),
            positive(self.lipschitz),
            positive(self.radius),
            (self.step_size > 0) & (self.step_size <= 2),
            (self.num_rows >= 1) & (self.num_rows < jnp.inf),
            jnp.isfinite(self.start).all(),
        )

    @property
    def most_rows(self) -> jax.Array:
        # More lines than these would take more steps than the rounding errors of `bound` are counted for.
        return self.num_rows

    def empty(self) -> jax.Array:
        return jnp.zeros_like(self.start)

    def add(self, aggregate: jax.Array, rows: Rows) -> jax.Array:
        raise TypeError(f"{self.name} adds noise at every step, so there is no sum to add it to at the end.")

    def answer(self, rows: Rows, noise: Noise, adjacency: Adjacency) -> jax.Array:
        if adjacency is Adjacency.ADD_REMOVE:
            raise InputError(
                "PNSGD reads the rows one after the other, and all later ones shift where a row is added, so there is "
                "no guarantee under add_remove; choose zero_out or replace_one."
            )
        dtype = rows.x.dtype
        all_rows = jax.tree.map(
            lambda *parts: jnp.concatenate([part.astype(dtype) for part in parts]), rows, self.public
        )
        design, labels = shrunk(all_rows, self.norm_bound)
        scale = jnp.asarray(self.noise_multiplier, dtype) * jnp.asarray(self.bound, dtype)
        scale = scale * adjacency.sensitivity_factor
        noises = scale * noise.standard(self.mechanism, design.shape)
        eta, radius = jnp.asarray(self.eta, dtype), jnp.asarray(self.radius, dtype)

        def descended(params: jax.Array, line: jax.Array, label: jax.Array, counted: jax.Array) -> jax.Array:
            return params - eta * counted * self.model.residual(line @ params, label) * line

        def step(params: jax.Array, piece: tuple[jax.Array, ...]) -> tuple[jax.Array, None]:
            return limit_norm(descended(params, *piece[:-1]) + piece[-1], radius), None

        pieces = (design, labels, all_rows.mask, noises)
        start = limit_norm(self.start.astype(dtype), radius)
        params = jax.lax.scan(step, start, jax.tree.map(lambda leaf: leaf[:-1], pieces))[0]
        *last, added = (leaf[-1] for leaf in pieces)
        # On the grid before and after adding noise, as for any noised answer; then back into the ball.
        last_params = noise.coarse(noise.on_grid(descended(params, *last)) + added, scale)
        return limit_norm(last_params, radius)
