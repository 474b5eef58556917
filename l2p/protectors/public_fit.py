"""Fits to public rows, which cost nothing: alone, or held near a private result (biased regularisation)."""

import math

import jax
import jax.numpy as jnp

from l2p.errors import InputError
from l2p.features import FeatureMap
from l2p.models import INTERCEPT_COLUMN, GeneralizedLinear, Hinge, HuberSVM, Model, Softmax
from l2p.oracle import Oracle
from l2p.task import Rows, null_invalid

#: Models whose loss has a known bound on its curvature, or a smooth stand-in: what a fit can choose its steps by.
FITTED = ("logistic", "svm", "hinge", "square", "softmax", "quadratic")
#: Width of the bend that replaces the hinge's kink; it moves the mean loss by at most a quarter of that.
HINGE_WIDTH = 0.05
#: Steps of a fit. With a weight of .01 the hinge's distance to the minimum falls below a thousandth.
NUM_STEPS = 200


def public_rows(oracle: Oracle) -> Rows:
    """The public rows of a run; invalid ones are null rows.

    Raises:
      InputError: there are none.
    """
    if oracle.public is None:
        raise InputError(
            "this protector learns from public rows beside the private ones, but the run has none; pass some "
            "(public=), or choose a protector that needs none, such as noisygd."
        )
    return null_invalid(oracle.public)


def mean_gradient(model: Model, params: jax.Array, rows: Rows, features: FeatureMap | None = None) -> jax.Array:
    """Mean f32[p] of the rows' gradients at params for rows mapped by `features`, not clipped; zeros of no rows."""
    features = FeatureMap.identity(rows.x.shape[1]) if features is None else features
    total = model.scaled_gradient_sum(params, rows, features, jnp.ones_like)
    return total / jnp.maximum(rows.mask.sum(), 1.0)


def fit(model: Model, start: jax.Array, rows: Rows, toward: jax.Array, weight: jax.Array) -> jax.Array:
    """About the minimiser f32[p] of the rows' mean loss + weight ||params - toward||^2.

    `NUM_STEPS` accelerated gradient steps (Nesterov 2004, 2.2.1), as many on every table, so that it has a derivative.

    Args:
      model: one of `FITTED`.
      start: f32[p].
      rows: public ones.
      toward: f32[p].
      weight: f32[], above 0.
    """
    smooth = HuberSVM(HINGE_WIDTH) if isinstance(model, Hinge) else model
    counted = jnp.maximum(rows.mask.sum(), 1.0)
    curvature = _curvature(smooth) * (_squared_norms(smooth, rows.x) @ rows.mask) / counted
    most, least = curvature + 2.0 * weight, 2.0 * weight
    momentum = (jnp.sqrt(most) - jnp.sqrt(least)) / (jnp.sqrt(most) + jnp.sqrt(least))

    def step(carry: tuple[jax.Array, jax.Array], _: None) -> tuple[tuple[jax.Array, jax.Array], None]:
        params, ahead = carry
        slope = mean_gradient(smooth, ahead, rows) + 2.0 * weight * (ahead - toward)
        moved = ahead - slope / most
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
        return jnp.square(model.lines(x)).sum(-1)
    return jnp.square(x).sum(-1) + INTERCEPT_COLUMN**2
