"""Fits to public rows, which cost nothing: alone, or held near a private result (biased regularisation)."""

import math

import jax
import jax.numpy as jnp

from l2p.base.errors import InputError
from l2p.models import INTERCEPT_COLUMN, GeneralizedLinear, Hinge, HuberSVM, Model, Softmax
from l2p.protectors.stepwise.public_rows import PublicGradients
from l2p.task.rows import Rows

#: Models whose loss has a known bound on its curvature, by which a fit chooses its steps, or a smooth stand-in.
FITTED = ("logistic", "svm", "hinge", "square", "softmax", "quadratic")
#: Width of the bend that replaces the hinge's kink; it moves the mean loss by at most a quarter of that.
HINGE_WIDTH = 0.05
#: Steps of a fit. With a weight of .01 the hinge's distance to the minimum falls below a thousandth.
NUM_STEPS = 200


def fit(model: Model, start: jax.Array, rows: Rows, toward: jax.Array, weight: jax.Array) -> jax.Array:
    """Approximate minimiser f32[p] of the rows' mean loss + weight ||params - toward||^2.

    `NUM_STEPS` accelerated gradient steps (Nesterov 2004, 2.2.1), as many on every table, so that it has a derivative.

    Args:
      model: one of `FITTED`.
      start: f32[p].
      rows: public ones, all finite.
      toward: f32[p].
      weight: f32[], above 0.
    """
    smooth = HuberSVM(HINGE_WIDTH) if isinstance(model, Hinge) else model
    counts = rows.mask > 0
    length = (_squared_norms(smooth, rows.x) @ counts) / jnp.maximum(counts.sum(), 1)
    curvature = _curvature(smooth) * length
    largest, smallest = curvature + 2.0 * weight, 2.0 * weight
    momentum = (jnp.sqrt(largest) - jnp.sqrt(smallest)) / (jnp.sqrt(largest) + jnp.sqrt(smallest))

    def step(carry: tuple[jax.Array, jax.Array], _: None) -> tuple[tuple[jax.Array, jax.Array], None]:
        params, ahead = carry
        slope = PublicGradients.at(smooth, ahead, rows).mean() + 2.0 * weight * (ahead - toward)
        moved = ahead - slope / largest
        return (moved, moved + momentum * (moved - params)), None

    return jax.lax.scan(step, (start, start), length=NUM_STEPS)[0][0]


def _curvature(model: Model) -> float:
    """Supremum of the largest second derivative of the loss in the margins."""
    if isinstance(model, Softmax):
        return 0.5  # the covariance of an indicator has no larger eigenvalue
    if isinstance(model, GeneralizedLinear) and math.isfinite(model.smoothness):
        return model.smoothness
    raise InputError(
        f"a fit to public rows takes its steps from the loss's curvature, which nothing bounds for model {model}; "
        f"choose one of {', '.join(FITTED)}."
    )


def _squared_norms(model: Model, x: jax.Array) -> jax.Array:
    if isinstance(model, GeneralizedLinear):
        return jnp.square(model.design(x)).sum(-1)
    return jnp.square(x).sum(-1) + INTERCEPT_COLUMN**2
