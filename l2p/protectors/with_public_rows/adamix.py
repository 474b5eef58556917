"""AdaMix (Golatkar, Achille, Wang, Roth, Kearns and Soatto, CVPR 2022): NoisyGD that a few public rows start and steer.

Its parts are in `l2p.protectors.stepwise.public_parts`. The paper sums losses and gradients over rows where this
package takes means, so a learning rate here is the paper's times the number of rows.
"""

import math

import jax.numpy as jnp

from l2p.models import GeneralizedLinear, Model, Softmax
from l2p.privacy.budget import Budget
from l2p.privacy.cap import planning
from l2p.privacy.cost.sampling import FullBatch
from l2p.protectors.hand_designed import Problem, log_constant, logit_constant
from l2p.protectors.register import hand_designed
from l2p.protectors.stepwise.projectors import Optax, Projector
from l2p.protectors.stepwise.public_parts import (
    Decay,
    OverCurvature,
    PublicClip,
    PublicFit,
    PublicLength,
    PublicSubspace,
    PublicSum,
)
from l2p.protectors.stepwise.public_rows import Matrix
from l2p.protectors.stepwise.schedulers import Decaying
from l2p.protectors.stepwise.stepwise import Stepwise

#: Noise of a step over its clipping norm, in every experiment of the paper.
SIGMA = 20.0
#: The most steps of a run: a large epsilon would pay for more than anyone waits for.
MOST_STEPS = 2000
#: Learning rates on rows of length 1, chosen on one split of scikit-learn's digits: at a fixed clipping norm of 1, and
#: at that of public gradients, which are short once the model fits public rows. That of public rows was not tuned.
PRIVATE_RATE, CLIPPED_RATE, PUBLIC_RATE = 5.0, 30.0, 3.0
#: That of least squares, over a bound on its curvature; 2 is the largest stable one.
UNBOUNDED_RATE = 1.0


def steps_for(budget: Budget, noise_multiplier: float = SIGMA) -> int:
    """T, the most steps with this noise that (epsilon, delta) pays for under exact Gaussian DP, from 1 to `MOST_STEPS`.

    T = mu^2 sigma^2, since the paper's T^2 / (2 sigma^2) is a misprint of T / (2 sigma^2). A run of T steps divides its
    whole budget among them, so that the noise of a step is the least multiplier for T steps, just below sigma.

    >>> steps_for(Budget(3.0, 1e-5))
    206
    """
    steps = planning.num_steps(budget, FullBatch(), noise_multiplier, "gdp")
    return min(max(steps, 1), MOST_STEPS)


def descent(rate: float, to_start: bool = False) -> Decay:
    """Gradient descent on the regularised loss, lambda = 0.01 as in the paper."""
    return Decay(Optax("sgd", {"learning_rate": log_constant(rate)}), log_constant(0.01), to_start)


def descent_for(model: Model, rate: float) -> Projector:
    """`descent` at a rate that was chosen for softmax, whose gradients are bounded; for least squares, whose gradients
    are not, at a rate by the curvature."""
    return descent(rate) if has_bounded_gradients(model) else OverCurvature(descent(UNBOUNDED_RATE))


def has_bounded_gradients(model: Model) -> bool:
    """True if a row's gradient is bounded, whatever the params."""
    return not isinstance(model, GeneralizedLinear) or math.isfinite(model.lipschitz)


def mixed(budget: Budget, model: Model, projector: Projector) -> Stepwise:
    """NoisyGD from the model of public rows, at a fixed clipping norm, on rows that are centred and have a mean
    length of 1."""
    start = PUBLIC_RATE if has_bounded_gradients(model) else UNBOUNDED_RATE
    return Stepwise(
        Decaying(log_clip_norm=log_constant(1.0), rate=jnp.array([0.0])),
        projector,
        (PublicLength(jnp.float32(1.0), centered=True), PublicFit(log_constant(start), log_constant(1e-3))),
        num_steps=steps_for(budget),
    )


@hand_designed(form="paper")
def adamix(problem: Problem) -> Stepwise:
    """AdaMix: start, clipping and some of the gradient are public.

    The authors' constants: 200 public epochs, the 90 % quantile of public gradients' norms, sigma = 20, lambda = 0.01.
    No projection: 2,000 of 2,048 directions, as in their experiments, are nearly all; `adamix_projected` has one.
    """
    ngd_like = mixed(problem.budget, problem.model, PublicSum(descent_for(problem.model, CLIPPED_RATE)))
    return ngd_like.replace(scheduler=PublicClip(ngd_like.scheduler, logit_constant(0.9)))


@hand_designed(form="paper")
def adamix_projected(problem: Problem) -> Stepwise:
    """AdaMix along directions of public gradients (Algorithm 2).

    `adamix`, projected onto the left singular vectors of the total public gradient, as many as that has: at most one
    less than there are classes. The paper asks for more of them than exist. Models with one column of params, of which
    it says nothing, would have a single direction; they get those of all public rows' gradients.
    """
    matrix: Matrix = "total" if isinstance(problem.model, Softmax) else "rows"
    plain = adamix(problem)
    return plain.replace(projector=PublicSubspace(plain.projector, matrix=matrix))


@hand_designed(form="paper")
def ngd(problem: Problem) -> Stepwise:
    """AdaMix without its adaptive parts.

    NoisyGD from the model of public rows, with their gradient, at the fixed clipping norm 1 and without projection."""
    return mixed(problem.budget, problem.model, PublicSum(descent_for(problem.model, PRIVATE_RATE)))


@hand_designed(form="paper")
def fully_private(problem: Problem) -> Stepwise:
    """NoisyGD from zero, with public rows among the private ones.

    Algorithm 1 of the AdaMix paper: its baseline, which reads no public rows."""
    scheduler = Decaying(log_clip_norm=log_constant(1.0), rate=jnp.array([0.0]))
    return Stepwise(scheduler, descent_for(problem.model, PRIVATE_RATE), num_steps=steps_for(problem.budget))
