"""A filter's prior from public rows: the minimum to expect, and the variance of the distance to it."""

import functools
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from l2p.models import Model
from l2p.oracle.setup import Setup
from l2p.protectors.learned.kalman import KalmanProjector
from l2p.protectors.stepwise.public_rows import PublicGradients, has_matrix
from l2p.protectors.stepwise.schedulers import Observation
from l2p.protectors.stepwise.stepwise import Stepwise, StepwiseState
from l2p.queries.solve import most_likely
from l2p.task.rows import Rows

#: Factors from a filter's own variance to the one that public rows are fitted with. A filter's own is tuned for noisy
#: answers and is smaller than the squared distance of minima; few public rows need a smaller one still.
SCALES = 10.0 ** np.arange(-3, 3, dtype=np.float32)
#: Parts of the public rows for the cross-validation of the factor.
FOLDS = 4
#: Share of the variance that remains after any number of public rows, since private rows differ from them.
SHIFT = 0.5


class Taken(NamedTuple):
    """What a run takes from public rows, f32[] each.

    Attributes:
      reach: how far along the line from its own start to the minimum of public rows it starts.
      shift: in place of `SHIFT`.
      off: share of the prior's variance that is taken away off the directions of public rows' gradients.
    """

    reach: jax.Array
    shift: jax.Array
    off: jax.Array


def is_filter(protector: Any) -> bool:
    """True if a protector's projector has a prior that public rows can narrow."""
    return isinstance(protector, Stepwise) and isinstance(protector.projector, KalmanProjector)


def from_public_rows(
    params: jax.Array, state: StepwiseState, rows: Rows, setup: Setup, protector: Stepwise, taken: Taken | None = None
) -> tuple[jax.Array, StepwiseState]:
    """Params f32[p] at the minimum of public rows, and the state of a run that begins there, with the variance that
    public rows leave as its prior. Arguments are of a run that begins without public rows; `taken` has numbers that
    were learned, in place of those of this file.

    A filter has a variance P of the distance from its start to the minimum, and public rows a most likely minimum for
    some multiple of it, which is chosen by cross-validation (`_scale`). In a coordinate with curvature h, where the
    rows' gradients vary by v, the fit goes a share a of the way, and the remaining distance has variance
    (1 - a)^2 P + a^2 v / (n h^2). Private rows may differ from public ones, so a share of P is added. The filter then
    scales the sum by what private gradients show, up where they disagree with public rows.
    """
    projector = cast(KalmanProjector, protector.projector)
    gradients = PublicGradients.at(setup.model, params, rows, state.features)
    # Where noise dominates, moments that were bought are bounds far above the truth.
    with_moments = _with_moment(state.observation, setup.model.moment_per_param(gradients.moments()))
    guess, curvature = projector.at_start(params, with_moments, setup)
    scale, minimum = _searched(setup.model, params, guess, gradients.rows)
    # Taken at the start, where gradients vary at least as much as at a minimum that few rows overfit.
    noise = gradients.variance()
    # Divided twice where it is learned: the square of a square of a feature that is nearly zero would be no number.
    noise = noise / jnp.square(curvature) if taken is None else noise / curvature / curvature
    share, (prior, _) = scale * guess / (scale * guess + noise), projector.at_start(params, state.observation, setup)
    shift: jax.Array | float = SHIFT
    if taken is not None:
        minimum, share, shift = params + taken.reach * (minimum - params), taken.reach * share, taken.shift
        prior = prior * (1.0 - taken.off * (1.0 - _within(gradients)))
    remaining = jnp.square(1.0 - share) * prior + jnp.square(share) * noise + shift * prior
    observation = state.observation.replace(prior=jnp.minimum(remaining, prior))
    changes = {"observation": observation, "projector": projector.init(minimum, setup), "average": minimum}
    return minimum, state.replace(**changes)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _searched(model: Model, start: jax.Array, variance: jax.Array, rows: Rows) -> tuple[jax.Array, jax.Array]:
    """A multiple f32[] of the prior's variance, and the most likely params f32[p] under it. Constant to derivatives,
    which a search has not: how far to follow what it finds is what is learned."""
    scale = _scale(model, start, variance, rows)
    return scale, most_likely(model, start, scale * variance, rows)


@_searched.defjvp
def _(model: Model, primals: tuple, tangents: tuple) -> tuple[tuple, tuple]:
    del tangents
    scale, minimum = _searched(model, *primals)
    return (scale, minimum), (jnp.zeros_like(scale), jnp.zeros_like(minimum))


def _scale(model: Model, start: jax.Array, variance: jax.Array, rows: Rows) -> jax.Array:
    """The smallest f32[] of `SCALES` whose loss on rows that were left out is at most a standard error above the
    lowest (Breiman et al. 1984, 3.4.3): with few rows the start is kept."""
    fold = jnp.arange(rows.y.shape[0]) % FOLDS

    def left_out(scale: jax.Array) -> jax.Array:
        def fold_losses(number: jax.Array) -> jax.Array:
            training = rows.replace(mask=rows.mask * (fold != number))
            params = most_likely(model, start, scale * variance, training)
            return model.losses(params[None, :], rows.x, rows.y)[0] * (fold == number)

        return jax.lax.map(fold_losses, jnp.arange(FOLDS)).sum(0)

    losses = jax.lax.map(left_out, jnp.asarray(SCALES))
    weight = rows.mask / jnp.maximum(rows.mask.sum(), 1.0)
    means = losses @ weight
    best = losses[jnp.argmin(means)]
    error = jnp.sqrt(jnp.square(best - means.min()) @ weight / jnp.maximum(rows.mask.sum() - 1.0, 1.0))
    return jnp.asarray(SCALES)[jnp.argmax(means <= means.min() + error)]


def _within(gradients: PublicGradients) -> jax.Array | float:
    """Share f32[p] of each coordinate that lies in the directions of public rows' gradients; 1 where these have none,
    since params are no matrix."""
    if not has_matrix(gradients.model):
        return 1.0
    within = jnp.square(gradients.directions(None, "rows")).sum(1)
    return jnp.repeat(within, gradients.params.shape[0] // within.shape[0])


def _with_moment(observation: Observation, moment: jax.Array) -> Observation:
    """`observation` with other moments f32[p] of features."""
    if observation.moment is None:
        return observation
    moment = jnp.where(observation.moment > 0.0, jnp.maximum(moment, 1e-9), 0.0)
    return observation.replace(moment=moment)
