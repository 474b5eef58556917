"""Hyper-parameters as functions of the budget and the table's size."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from l2p.base.compiled import as_one
from l2p.oracle.setup import Setup

#: The range of log(mu N) for polynomials and the networks beside them, which most protectors were meta-trained on: mu N
#: from 2 to 6,000. Curves have `KNOT_RANGE`.
LOG_SIGNAL_RANGE = (0.7, 8.7)
#: The range of the logarithm of the number of params: 2 to 4,000.
LOG_SIZE_RANGE = (math.log(2.0), math.log(4000.0))
#: The range of log(mu N) that knots are spread over: from budgets that buy nothing to noise that can be neglected.
KNOT_RANGE = (0.7, 14.0)
#: Tables of more features are wide, and of more than the second number very wide: knots have numbers of their own for
#: both, which are learned apart.
NARROW, WIDE = 200, 512
#: The largest log(mu N) that curves have for very wide tables: few of their training tasks lie beyond, and on tables
#: that were made wide runs ended higher there (`benchmarks/wide_tables.py`).
MOST_SIGNAL_WIDE = 7.0
#: The most features of the tasks that the other numbers of knots are trained on.
MOST_FEATURES = 400


def standardize(log_signal: jax.Array, within: tuple[float, float] = LOG_SIGNAL_RANGE) -> jax.Array:
    """log(mu N) -> [-2, 2] over the range that a protector is meta-trained on, by default that of polynomials, and
    clipped to it.

    Outside, a polynomial or a network extrapolates badly, in places to results worse than without training.
    """
    low, high = within
    return 4.0 * (jnp.clip(log_signal, low, high) - low) / (high - low) - 2.0


def standardize_size(size: int) -> float:
    """Number of params -> [-2, 2]: the logarithm, scaled so that 2 to 4,000 params cover the range, and clipped.

    >>> standardize_size(2), round(standardize_size(90), 2)
    (-2.0, 0.0)
    """
    low, high = LOG_SIZE_RANGE
    return 4.0 * (min(max(math.log(size), low), high) - low) / (high - low) - 2.0


def standardize_rate(sampling_rate: float) -> float:
    """Share of the rows that a step reads -> [-2, 0]: half its logarithm, 0 for all rows, clipped at e^-4.

    >>> standardize_rate(1.0), round(standardize_rate(0.1), 2)
    (0.0, -1.15)
    """
    return max(math.log(sampling_rate), -4.0) / 2.0


@as_one
def value(coefficients: jax.Array, log_signal: jax.Array) -> jax.Array:
    """A hyper-parameter at a given log(mu N).

    Args:
      coefficients: f32[k, ...], a polynomial's coefficients, constant term first; f32[1, ...] is a constant.
      log_signal: f32[].

    Returns:
      f32[...].

    >>> import jax.numpy as jnp
    >>> float(value(jnp.array([2.0]), jnp.array(9.0)))
    2.0
    """
    coefficients = jnp.asarray(coefficients)
    powers = standardize(log_signal) ** jnp.arange(coefficients.shape[0])
    return jnp.tensordot(powers, coefficients, 1)


class Covariates(NamedTuple):
    """Public covariates of a run, on which constants and networks are conditioned.

    Attributes:
      log_signal: f32[], log(mu N), at most `MOST_SIGNAL_WIDE` for a very wide table.
      size: the number of features, from `standardize_size`; those beyond `MOST_FEATURES` do not count.
      margins: the number of margins of a row: half its logarithm, from 0 for one to 2 for 55 and more.
      hidden: 1 for a model with a hidden layer, 0 for one whose margins are linear in its params.
      wide: 1 for a table of more than `NARROW` features, 0 for others.
      very_wide: 1 for a table of more than `WIDE` features, which is wide, too, and a model without a hidden layer; 0
        for others.
    """

    log_signal: jax.Array
    size: float
    margins: float
    hidden: float
    wide: float
    very_wide: float

    @property
    def inputs(self) -> list[jax.Array]:
        """Inputs of networks beside the budget, f32[] each: not how wide a table is, because no shipped network runs
        on wide ones."""
        return [jnp.asarray(covariate) for covariate in (self.size, self.margins, self.hidden)]


def covariates_of(setup: Setup, num_params: int) -> Covariates:
    """Covariates of a run of the setup's model with f32[num_params] params."""
    return covariates_for(setup, setup.model.num_features(num_params))


def covariates_for(setup: Setup, num_features: int) -> Covariates:
    """Covariates of a run on rows of so many features."""
    size = standardize_size(min(max(num_features, 1), MOST_FEATURES))
    margins = min(math.log(setup.model.num_margins) / 2.0, 2.0)
    convex = setup.model.convex
    very_wide = convex and num_features > WIDE
    indicators = not convex, num_features > NARROW, very_wide
    log_signal = jnp.minimum(setup.log_signal, MOST_SIGNAL_WIDE) if very_wide else setup.log_signal
    return Covariates(log_signal, size, margins, *map(float, indicators))


def between_knots(knots: jax.Array, covariates: Covariates) -> jax.Array:
    """A hyper-parameter of a run; nothing is extrapolated.

    Args:
      knots: f32[k, 6], at k budgets spread evenly over `KNOT_RANGE`: the value for one margin, a typical number of
        features and no hidden layer, and its slopes in `size`, `margins`, `hidden`, `wide` and `very_wide`.
      covariates: of the run.

    Returns:
      f32[], linear between knots and constant beyond the first and the last.

    >>> import jax.numpy as jnp
    >>> knots = jnp.array([[1.0, 0.0, 0.0, 9.0, 9.0, 9.0], [3.0, 1.0, 2.0, 9.0, 9.0, 9.0]])
    >>> runs = [Covariates(jnp.array(signal), 0.5, 0.25, 0.0, 0.0, 0.0) for signal in (-5.0, 7.35, 99.0)]
    >>> [float(between_knots(knots, run)) for run in runs]
    [1.0, 2.5, 4.0]
    """
    low, high = KNOT_RANGE
    knots = jnp.asarray(knots)
    place = jnp.clip((covariates.log_signal - low) / (high - low), 0.0, 1.0) * (knots.shape[0] - 1)
    weights = jnp.maximum(0.0, 1.0 - jnp.abs(place - jnp.arange(knots.shape[0])))
    return weights @ knots @ jnp.stack([jnp.ones(()), *map(jnp.asarray, covariates[1:])])


def at(constants: jax.Array, covariates: Covariates) -> jax.Array:
    """A hyper-parameter f32[] of a run, from itself f32[], a polynomial f32[k] in log(mu N) or knots f32[k, 6]."""
    if constants.ndim == 0:
        return constants
    return between_knots(constants, covariates) if constants.ndim == 2 else value(constants, covariates.log_signal)
