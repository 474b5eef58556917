"""Sums of per-row Hessians, each limited in Frobenius norm, as Newton's method needs them."""

from typing import ClassVar

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.models import GeneralizedLinear
from l2p.queries.base import Query, positive, within
from l2p.queries.moments import exact_moment, folded
from l2p.task.exact_sums import Quantized, QuantizedRows
from l2p.task.rows import Rows


@struct.dataclass
class HessianSum(Query):
    """Sum over rows of the loss's Hessian, each limited to Frobenius norm `smoothness * norm_bound^2`, with Gaussian
    noise; `folded`.

    A row's Hessian is its curvature times z z', z the row with its intercept column, and has the Frobenius norm
    curvature * ||z||^2. The curvature is at most the loss's smoothness, so a row that is no longer than `norm_bound` is
    never limited. Where a loss has straight parts the curvature is that of a parabola above it
    (`GeneralizedLinear.newton_curvature`), which is at most the smoothness, too.

    Attributes:
      model: with a finite smoothness (static).
      params: f32[p], parameters for the rows as they are given; released or public.
      norm_bound: f32[], R; above 0.
      noise_multiplier: f32[], noise standard deviation over the sensitivity.
    """

    model: GeneralizedLinear = struct.field(pytree_node=False)
    params: jax.Array
    norm_bound: jax.Array
    noise_multiplier: jax.Array
    name: ClassVar[str] = "hessian"
    mechanism: ClassVar[str] = "gaussian"
    is_plain_sum: ClassVar[bool] = True

    @property
    def bound(self) -> jax.Array:
        most = self.model.smoothness * jnp.square(self.norm_bound)
        return within(most, positive(self.norm_bound), positive(jnp.asarray(self.model.smoothness)))

    def contributions(self, rows: Rows) -> jax.Array:
        design = self.model.design(rows.x)
        curvature = self.model.newton_curvature(self.model.margin(self.params, rows.x), rows.y)
        return folded(curvature[:, None, None] * design[:, :, None] * design[:, None, :])

    def empty(self) -> jax.Array:
        size = self.params.shape[0]
        return jnp.zeros(size * (size + 1) // 2, jnp.float32)

    def add(self, aggregate: jax.Array, rows: Rows) -> jax.Array:
        design = self.model.design(rows.x)
        curvature = self.model.newton_curvature(self.model.margin(self.params, rows.x), rows.y)
        norms = curvature * jnp.square(design).sum(-1)
        finite = jnp.isfinite(norms)
        norms = jnp.where(finite, norms, 1.0)
        # The floor keeps derivatives finite; such rows are never limited.
        weight = curvature * jnp.minimum(1.0, self.bound / jnp.maximum(norms, 1e-12))
        weight = jnp.where(finite, rows.mask * weight, 0.0)
        design = jnp.where(finite[:, None], design, 0.0)
        return aggregate + folded((design.T * weight[None, :]) @ design)

    def exact(self, rows: QuantizedRows) -> Quantized:
        curvature = self.model.newton_curvature(self.model.exact_margins(self.params, rows), rows.y)
        rows, constant = self.model.exact_rows(rows)
        return exact_moment(rows, jnp.sqrt(self.bound.astype(jnp.float64)), constant, jnp.sqrt(curvature))
