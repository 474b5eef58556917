"""Objective perturbation adds noise to the objective; approximate minima perturbation adds a little more to the
result."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.models import GeneralizedLinear
from l2p.privacy.events import Adjacency, Event
from l2p.privacy.sensitivity import objective
from l2p.privacy.sensitivity.objective import Calibration
from l2p.queries.base import Query, positive, within
from l2p.queries.newton import Objective, minimize
from l2p.queries.shrunk import shrunk
from l2p.task.noise import Noise
from l2p.task.rows import Rows

# A minimiser counts as exact if the gradient there is at most this share of the noise. A simulation adds N gradients in
# float32, each at most a bound long, so the gradient may be longer by this many bounds per row.
_EXACT, _SIMULATED = 2.0**-24, 2.0**-18
# Margin on epsilon, so that 1 / noise_multiplier in float32 is at most what was charged.
_ROUNDING = 2.0**-20


@struct.dataclass
class PerturbedMinimum(Query):
    """The minimiser of the summed loss of shrunk rows, plus Delta/2 ||params||^2, plus Gaussian noise times params.

    (epsilon, delta)-DP as a whole, by `l2p.privacy.sensitivity.objective`, which computes Delta and the noise. Every
    coordinate is regularised, including the intercept's. The theorem is about the exact minimiser: if the gradient is
    not far below the noise, the answer is NaN, and `private_train` withholds it.

    Attributes:
      model: with finite lipschitz and smoothness (static).
      start: f32[p], public, finite; the search starts here, and the answer does not depend on it.
      norm_bound: f32[], that rows are shrunk to; above 0.
      ridge: f32[], weight of ||params||^2 / 2 beside the mean loss, at least 0; N times it counts towards Delta.
      num_rows: f32[], N, public; at least 1.
      share: f32[], share of epsilon for the Jacobians, in (0, 1): below, Delta would be negative, and above, nothing
        would be left for the noise. Ignored if `published`, where it is a half.
      log_delta: f32[], natural logarithm of delta; below 0, and finite.
      noise_multiplier: f32[], 1 / epsilon.
      published: whether to calibrate as published (static).
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
        return within(
            self.model.lipschitz * self.norm_bound,
            positive(self.model.lipschitz * self.norm_bound),
            positive(self.smoothness),
            (self.ridge >= 0) & (self.ridge < jnp.inf),
            (self.num_rows >= 1) & (self.num_rows < jnp.inf),
            (self.share > 0) & (self.share < 1),
            (self.log_delta < 0) & (self.log_delta > -jnp.inf),
            jnp.isfinite(self.start).all(),
        )

    @property
    def most_rows(self) -> jax.Array:
        return self.num_rows

    @property
    def unit(self) -> jax.Array:
        # A lower bound on how far one row can move the minimiser.
        most = self.num_rows * self.smoothness + self.calibrate(Adjacency.ZERO_OUT).convexity
        return self.bound / most

    @property
    def smoothness(self) -> jax.Array:
        """lambda f32[], the largest eigenvalue of one row's Hessian."""
        return self.model.smoothness * jnp.square(self.norm_bound)

    def event(self) -> Event:
        return Event(self.mechanism, jnp.asarray(self.noise_multiplier), log_delta=self.log_delta)

    def calibrate(self, adjacency: Adjacency) -> Calibration:
        """Delta, the strong convexity of the whole objective, and the standard deviation of its noise."""
        epsilon, existing = (1.0 - _ROUNDING) / self.noise_multiplier, self.ridge * self.num_rows
        constants = epsilon, self.log_delta, self.bound, self.smoothness, adjacency.sensitivity_factor
        if not self.published:
            return objective.exact(*constants, self.share, existing)
        least, noise_scale = objective.published(*constants)
        return Calibration(jnp.maximum(least, existing), noise_scale)

    def empty(self) -> jax.Array:
        return jnp.zeros_like(self.start)

    def answer(self, rows: Rows, noise: Noise, adjacency: Adjacency) -> jax.Array:
        return noise.on_grid(self.search(rows, noise, self.calibrate(adjacency), _EXACT))

    def search(self, rows: Rows, noise: Noise, calibration: Calibration, share: float | jax.Array) -> jax.Array:
        """A point f[p] where the noised objective's gradient is at most `share` of the noise long; NaN without one.

        In float32 the gradient may be longer, by the rounding error of its sum.
        """
        table, labels = shrunk(rows, self.norm_bound)
        linear = calibration.noise_scale * noise.standard("gaussian", self.start.shape)
        tolerance = share * calibration.noise_scale
        if table.dtype != jnp.float64:
            tolerance += _SIMULATED * (calibration.noise_scale + self.bound * len(labels))
        objective = Objective(self.model, table, labels, rows.mask, calibration.convexity, linear)
        params, norm = minimize(objective, self.start, tolerance)
        return jnp.where(norm <= tolerance, params, jnp.nan)


@struct.dataclass
class ApproximateMinimum(Query):
    """A point near the minimiser of a noised objective, with Gaussian noise that hides the distance (Iyengar et al.
    2019).

    Two mechanisms whose epsilons and deltas add up. Objective perturbation could release the exact minimiser. Given
    that, the answer is a Gaussian mechanism: if the gradient is at most tau long and the objective Delta-strongly
    convex, a point lies within tau / Delta of the minimiser, so on two tables with the same minimiser two such points
    are at most 2 tau / Delta apart. tau includes the float64 error of a gradient, so no exact solve is needed.

    Attributes:
      minimum: the objective, with `log_delta` that of both together; its own noise multiplier is not used.
      output_share: f32[], share of epsilon and of delta for the output's noise, in (0, 1).
      tolerance: f32[], largest length of the gradient, relative to the noise in the objective; at least 0.
      noise_multiplier: f32[], 1 / epsilon, of both together.
    """

    minimum: PerturbedMinimum
    output_share: jax.Array
    tolerance: jax.Array
    noise_multiplier: jax.Array
    name: ClassVar[str] = "approximate_minimum"
    mechanism: ClassVar[str] = "objective"
    additive: ClassVar[bool] = False

    @property
    def bound(self) -> jax.Array:
        return within(
            self.minimum.bound,
            (self.output_share > 0) & (self.output_share < 1),
            (self.tolerance >= 0) & (self.tolerance < jnp.inf),
        )

    @property
    def most_rows(self) -> jax.Array:
        return self.minimum.most_rows  # large enough to cover the rounding of as many rows

    @property
    def unit(self) -> jax.Array:
        return self.inner.unit

    @property
    def inner(self) -> PerturbedMinimum:
        """The objective with its share of epsilon and delta."""
        inner_share = 1.0 - self.output_share
        log_delta = self.minimum.log_delta + jnp.log1p(-self.output_share)
        return self.minimum.replace(noise_multiplier=self.noise_multiplier / inner_share, log_delta=log_delta)

    def event(self) -> Event:
        return Event(self.mechanism, jnp.asarray(self.noise_multiplier), log_delta=self.minimum.log_delta)

    def output_scale(self, calibration: Calibration) -> jax.Array:
        """Standard deviation f32[] of the noise on the output.

        In float64 (u = 2^-53) a sum of N gradients errs by at most N^2 u zeta, and margins by p u ||row|| ||params||,
        where Delta ||params|| <= N zeta + ||b|| and hardly ever ||b|| > 8 p sigma.
        """
        inner, size = self.minimum, self.minimum.start.shape[0]
        stretch = size * inner.smoothness / calibration.convexity
        rounding = inner.num_rows * (1.0 + stretch) * inner.bound + size * stretch * calibration.noise_scale
        distance = self.tolerance * calibration.noise_scale + 2.0**-50 * inner.num_rows * rounding
        epsilon = self.output_share * (1.0 - _ROUNDING) / self.noise_multiplier
        ratio = objective.gaussian_ratio(epsilon, inner.log_delta + jnp.log(self.output_share))
        return 2.0 * distance / calibration.convexity / ratio

    def empty(self) -> jax.Array:
        return self.minimum.empty()

    def answer(self, rows: Rows, noise: Noise, adjacency: Adjacency) -> jax.Array:
        calibration = self.inner.calibrate(adjacency)
        point = self.inner.search(rows, noise, calibration, self.tolerance)
        return noise.on_grid(point + self.output_scale(calibration) * noise.standard("gaussian", point.shape))
