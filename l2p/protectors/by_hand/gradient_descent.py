"""NoisyGD and DP-SGD: a noised gradient per step and momentum, at the settings one would guess without tuning.

Each with and without a private feature mean, on which rows are centred.
"""

import dataclasses
import math

import jax.numpy as jnp

from l2p.base.errors import InputError
from l2p.privacy.cost.sampling import Poisson
from l2p.protectors.hand_designed import Problem, log_constant, logit_constant
from l2p.protectors.register import hand_designed
from l2p.protectors.stepwise.centering import Centering
from l2p.protectors.stepwise.projectors import Optax
from l2p.protectors.stepwise.schedulers import Decaying
from l2p.protectors.stepwise.stepwise import Stepwise


@hand_designed()
def noisygd(problem: Problem) -> Stepwise:
    """Full-batch DP-SGD with momentum and constant noise."""
    del problem
    scheduler = Decaying(log_clip_norm=log_constant(1.0), rate=jnp.array([0.0]))
    rates = {"learning_rate": log_constant(0.5), "momentum": logit_constant(0.9)}
    return Stepwise(scheduler, Optax("sgd", rates))


@hand_designed()
def dpsgd(problem: Problem) -> Stepwise:
    """DP-SGD with momentum on Poisson batches of 5 % of the rows.

    `noisygd` on Poisson batches of a twentieth of the rows, for four times as many steps (Abadi et al. 2016).
    """
    return dataclasses.replace(noisygd(problem), sampler=Poisson(0.05), num_steps=200)


@hand_designed()
def noisygd_mean(problem: Problem) -> Stepwise:
    """`noisygd` on rows centred on a private feature mean.

    The mean costs a twentieth of the budget, and rows are scaled to a length that is estimated from it.
    """
    return on_private_mean(noisygd(problem), problem)


@hand_designed()
def dpsgd_mean(problem: Problem) -> Stepwise:
    """`dpsgd` on rows centred on a private feature mean.

    The mean reads every row and costs a twentieth of the budget; rows are scaled to a length that is estimated from it.
    """
    return on_private_mean(dpsgd(problem), problem)


def private_mean(share: float = 0.05, length: float = 2.5) -> Centering:
    """A private feature mean for a share of the budget; centred rows are scaled to about this length."""
    return Centering(
        logit_share=logit_constant(share),
        log_spread=jnp.float32(math.log(0.3)),
        row_norm=jnp.float32(0.5),
        target_norm=jnp.float32(length),
    )


def on_private_mean(plain: Stepwise, problem: Problem, share: float = 0.05) -> Stepwise:
    """`plain` on rows centred on a private mean.

    Raises:
      InputError: the model has no intercept.
    """
    if not problem.model.has_intercept:
        raise InputError(
            f"rows are centred on a private mean, and model {problem.model} has no intercept to absorb the shift; "
            "choose noisygd, dpsgd or another model."
        )
    return plain.with_purchases(private_mean(share))
