"""Descent preconditioned by private second moments of the features (DP-FC; Mehta et al., TMLR 2023)."""

import jax.numpy as jnp

from l2p.protectors.by_hand.gradient_descent import on_private_mean
from l2p.protectors.hand_designed import Problem, log_constant, logit_constant
from l2p.protectors.register import hand_designed
from l2p.protectors.stepwise.eigenbasis import Eigenbasis
from l2p.protectors.stepwise.projectors import Optax
from l2p.protectors.stepwise.schedulers import Decaying
from l2p.protectors.stepwise.stepwise import Stepwise


@hand_designed(form="rival")
def dp_fc(problem: Problem) -> Stepwise:
    """Momentum SGD on whitened rows, by private second moments.

    DP-FC (Mehta et al. 2022): second moments of the features are bought once, and gradients are preconditioned by their
    inverse. Here rows are whitened with them before gradients are clipped, which is the same descent, but with noise
    that is alike in all whitened directions. Rows are first centred on a private mean. Mean and second moments cost a
    tenth of the budget each.
    """
    return on_private_mean(
        Stepwise(
            Decaying(log_clip_norm=log_constant(1.0), rate=jnp.array([0.0])),
            Optax("sgd", {"learning_rate": log_constant(0.5), "momentum": logit_constant(0.9)}),
            (
                Eigenbasis(
                    logit_share=logit_constant(0.1),
                    log_power=log_constant(1.0),
                    log_ridge=log_constant(1.0),
                    row_norm=jnp.float32(2.5),
                ),
            ),
        ),
        problem,
        share=0.1,
    )
