"""Rows shrunk to a public norm, so that a loss's constants hold for every row by construction."""

import jax
import jax.numpy as jnp

from l2p.models import INTERCEPT_COLUMN
from l2p.queries.base import limit_norm
from l2p.task.rows import Rows


def shrunk(rows: Rows, norm_bound: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Rows with their intercept column, each scaled by min(1, norm_bound / norm), and labels clipped to [0, 1].

    A generalized linear model's gradient on such a row is at most lipschitz * norm_bound long, and its Hessian at most
    smoothness * norm_bound^2, whatever the row held. Scaling a row by a positive factor keeps the sign of its margin,
    so if the sign decides the class, params fitted to shrunk rows classify raw rows like shrunk ones (least squares
    must be fitted to -1 and 1 for that). But what was minimised is the loss on the shrunk rows, and a regression fitted
    to them predicts larger values for raw rows.

    Args:
      rows: of n rows and d features.
      norm_bound: f32[], public.

    Returns:
      (f[n, d + 1], f[n]), in the precision of the rows.
    """
    design = jnp.column_stack([rows.x, jnp.full_like(rows.y, INTERCEPT_COLUMN)])
    return limit_norm(design, norm_bound), jnp.clip(rows.y, 0.0, 1.0)
