"""PPSGD (Wang & Zhou, AAAI 2020): private SGD that a small public set steers, and then fine-tunes.

Its settings are the paper's where it gives them. It does not give the first price, the clipping norm, the batch and the
learning rate; its regulariser it took from the private rows, which costs privacy that nobody counted, so here it is a
constant.
"""

import dataclasses

import jax
import jax.numpy as jnp

from l2p.base.errors import InputError
from l2p.privacy.accountants.paper_13 import MAX_RATE
from l2p.privacy.cost.sampling import FixedSize, FullBatch, Poisson, Sampler
from l2p.privacy.events import Adjacency
from l2p.protectors.hand_designed import Problem, log_constant, logit_constant
from l2p.protectors.register import hand_designed
from l2p.protectors.stepwise.projectors import Optax
from l2p.protectors.stepwise.stepwise import Stepwise
from l2p.protectors.with_public_rows.public_end import FineTuned
from l2p.protectors.with_public_rows.public_growth import PublicGrowth
from l2p.protectors.with_public_rows.ridge import Ridge

#: phi, alpha and beta; varphi for losses with bounded gradients, and for least squares below and from epsilon .3 on.
NOISE_RATIO, GROWTH, SHRINKING = 10.0, 0.3, 0.3
CLIP_RATIO, SQUARE_RATIO, SQUARE_RATIO_LARGE, LARGE = 100.0, 5.0, 10.0, 0.3
#: lambda, the middle one of the three that the paper uses.
REUSE = 0.1
#: That of `noisygd`, and the weight of the L2 term.
LEARNING_RATE, RIDGE = 0.5, 1e-3
#: Steps without growth.
NUM_STEPS = 100


@hand_designed("paper_13", Adjacency.REPLACE_ONE, "paper")
def ppsgd(problem: Problem) -> FineTuned:
    """PPSGD as published: 13 q^2 rho on fixed-size batches.

    PPSGD as published (Wang & Zhou 2020), on batches of a tenth of the rows, the largest that its theorem allows: the
    noise on a mean is the same for all sizes, and preconditions hold the longest. Where one fails the run ends, having
    spent what was answered.
    """
    return _ppsgd(problem, FixedSize(_batch(problem), problem.rows), published=True)


@hand_designed()
def ppsgd_tight(problem: Problem) -> FineTuned:
    """PPSGD with tight accounting of its batches.

    `ppsgd` with a tight accountant, on fixed-size batches where rows are replaced, on Poisson batches of that rate
    elsewhere.
    """
    rows, batch = problem.rows, _batch(problem)
    fixed = problem.budget.adjacency is Adjacency.REPLACE_ONE
    return _ppsgd(problem, FixedSize(batch, rows) if fixed else Poisson(batch / rows))


@hand_designed()
def ppgd(problem: Problem) -> FineTuned:
    """PPSGD on full batches, with exact Gaussian DP."""
    return _ppsgd(problem, FullBatch())


def _batch(problem: Problem) -> int:
    batch = int(problem.rows * MAX_RATE)
    if batch < 1:
        raise InputError(
            f"PPSGD reads batches of a tenth of the rows, and {problem.num_rows} rows have none; choose ppgd, which "
            "reads all of them."
        )
    return batch


def _ppsgd(problem: Problem, sampler: Sampler, published: bool = False) -> FineTuned:
    clip_ratio = CLIP_RATIO
    if problem.model.name == "square":
        clip_ratio = SQUARE_RATIO_LARGE if problem.budget.epsilon >= LARGE else SQUARE_RATIO
    scheduler = PublicGrowth(
        log_share=log_constant(1.0 / NUM_STEPS),
        log_clip_norm=log_constant(1.0),
        log_noise_ratio=log_constant(NOISE_RATIO),
        log_clip_ratio=log_constant(clip_ratio),
        log_growth=log_constant(GROWTH),
        logit_shrinking=logit_constant(SHRINKING),
        published=published,
    )
    inner = Stepwise(scheduler, _descent(LEARNING_RATE), num_steps=NUM_STEPS, sampler=sampler)
    return FineTuned(inner, log_constant(REUSE))


def with_settings(
    protector: FineTuned,
    *,
    phi: float | None = None,
    alpha: float | None = None,
    varphi: float | None = None,
    beta: float | None = None,
    reuse: float | None = None,
    learning_rate: float | None = None,
) -> FineTuned:
    """A protector of this file with some of the paper's five parameters or its learning rate changed, others kept.

    Alpha and beta may be 0. The learning rate of this file is one for features in [0, 1]. Rows of length 1, which the
    paper's experiments have, want a larger one.

    >>> from l2p.privacy import Budget
    >>> protector = with_settings(ppgd(Problem(Budget(1.0, 1e-6))), alpha=0.0, reuse=1.0)
    >>> protector.log_weight.tolist(), protector.inner.scheduler.log_growth.tolist()
    ([0.0], [-inf])
    """
    inner = protector.inner
    assert isinstance(inner, Stepwise)
    scheduler: dict[str, jax.Array] = {}
    if phi is not None:
        scheduler["log_noise_ratio"] = log_constant(phi)
    if alpha is not None:
        scheduler["log_growth"] = log_constant(alpha) if alpha else jnp.array([-jnp.inf])
    if varphi is not None:
        scheduler["log_clip_ratio"] = log_constant(varphi)
    if beta is not None:
        scheduler["logit_shrinking"] = logit_constant(beta) if beta else jnp.array([-jnp.inf])
    inner = inner.replace(scheduler=inner.scheduler.replace(**scheduler))
    if learning_rate is not None:
        inner = inner.replace(projector=_descent(learning_rate))
    weight = protector.log_weight if reuse is None else log_constant(reuse)
    return dataclasses.replace(protector, inner=inner, log_weight=weight)


def _descent(learning_rate: float) -> Ridge:
    return Ridge(Optax("sgd", {"learning_rate": log_constant(learning_rate)}), log_constant(RIDGE))
