"""NoisyGD and DP-SGD: a noised gradient per step and momentum, at the settings one would guess without tuning."""

import dataclasses

import jax.numpy as jnp

from l2p.privacy.sampling import Poisson
from l2p.protectors.hand_designed import Problem, log_constant, logit_constant
from l2p.protectors.projectors import Optax
from l2p.protectors.register import hand_designed
from l2p.protectors.schedulers import Decaying
from l2p.protectors.stepwise import Stepwise


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
