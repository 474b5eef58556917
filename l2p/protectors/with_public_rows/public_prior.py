"""What public rows tell a filter: where the minimum is, and how far it may be from there."""

from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np

from l2p.models import Model
from l2p.oracle import Oracle
from l2p.protectors.learned.kalman import KalmanProjector
from l2p.protectors.stepwise.public_rows import PublicGradients, public_rows
from l2p.protectors.stepwise.schedulers import Observation
from l2p.protectors.stepwise.stepwise import Stepwise, StepwiseState
from l2p.queries.solve import most_likely
from l2p.task.rows import Rows

#: How many times a filter's own variance the one may be that public rows are fitted with: its own is what pays where
#: noise is large, which is less than how far minima are, and few public rows bear less.
SCALES = 10.0 ** np.arange(-3, 3, dtype=np.float32)
#: Parts of the public rows, each of which is left out once to choose among these.
FOLDS = 4
#: The share of the variance that is left after any number of public rows, since private ones differ from them.
SHIFT = 0.5


def is_filter(protector: Any) -> bool:
    """Whether a protector's projector has a prior that public rows can narrow."""
    return isinstance(protector, Stepwise) and isinstance(protector.projector, KalmanProjector)


def from_public_rows(
    params: jax.Array, state: StepwiseState, oracle: Oracle, protector: Stepwise
) -> tuple[jax.Array, StepwiseState]:
    """Params f32[p] at the minimum of public rows, and the state of a run that begins there with what these leave open
    as its prior, from those of a run that begins without public rows.

    A filter has a variance P of the distance from its start to the minimum, and public rows a most likely minimum for
    some multiple of it, which is chosen by cross-validation (`_scale`). In a coordinate with curvature h, where the
    rows' gradients vary by v, that goes a share a of the way, and a distance of variance (1 - a)^2 P + a^2 v / (n h^2)
    is left. Private rows may differ from public ones, so a share of P is added; the filter then scales the sum by what
    private gradients show, up where the two disagree.
    """
    setup, projector = oracle.setup, cast(KalmanProjector, protector.projector)
    rows = public_rows(oracle, "a prior from public rows")
    gradients = PublicGradients.at(setup.model, params, rows, state.features)
    # Where noise dominates, moments that were bought are bounds far above the truth.
    known = _with_moment(state.seen, setup.model.moment_per_param(gradients.moments()))
    guess, curvature = projector.at_start(params, known, setup)
    scale = _scale(setup.model, params, guess, gradients.rows)
    found = most_likely(setup.model, params, scale * guess, gradients.rows)
    # Taken at the start, where gradients vary at least as much as at a minimum that few rows overfit.
    noise = gradients.variance() / jnp.square(curvature)
    went, (before, _) = scale * guess / (scale * guess + noise), projector.at_start(params, state.seen, setup)
    left = jnp.square(1.0 - went) * before + jnp.square(went) * noise + SHIFT * before
    seen = state.seen.replace(prior=jnp.minimum(left, before))
    changes = {"seen": seen, "projector": projector.init(found, setup), "average": found}
    return found, state.replace(**changes)


def _scale(model: Model, start: jax.Array, variance: jax.Array, rows: Rows) -> jax.Array:
    """The smallest f32[] of `SCALES` whose loss on rows that were left out is at most a standard error above the
    lowest (Breiman et al. 1984, 3.4.3): where few rows tell little, the start is kept."""
    fold = jnp.arange(rows.y.shape[0]) % FOLDS

    def left_out(scale: jax.Array) -> jax.Array:
        def one(number: jax.Array) -> jax.Array:
            kept = rows.replace(mask=rows.mask * (fold != number))
            params = most_likely(model, start, scale * variance, kept)
            return model.losses(params[None, :], rows.x, rows.y)[0] * (fold == number)

        return jax.lax.map(one, jnp.arange(FOLDS)).sum(0)

    losses = jax.lax.map(left_out, jnp.asarray(SCALES))
    weight = rows.mask / jnp.maximum(rows.mask.sum(), 1.0)
    means = losses @ weight
    best = losses[jnp.argmin(means)]
    error = jnp.sqrt(jnp.square(best - means.min()) @ weight / jnp.maximum(rows.mask.sum() - 1.0, 1.0))
    return jnp.asarray(SCALES)[jnp.argmax(means <= means.min() + error)]


def _with_moment(seen: Observation, moment: jax.Array) -> Observation:
    """`seen` with other moments f32[p] of features."""
    if seen.moment is None:
        return seen
    moment = jnp.where(seen.moment > 0.0, jnp.maximum(moment, 1e-9), 0.0)
    return seen.replace(moment=moment)
