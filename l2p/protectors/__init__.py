"""Methods by name. Hand-designed ones are made here; tuned and learned ones are loaded from checkpoints."""

import dataclasses
import math
from collections.abc import Callable

import jax
import jax.numpy as jnp

from l2p.privacy.accountants import Filter
from l2p.privacy.budget import Budget
from l2p.privacy.sampling import FullBatch, Poisson
from l2p.protector import Protector
from l2p.protectors.agd import AGD
from l2p.protectors.lstm import LSTMProjector, LSTMScheduler
from l2p.protectors.nonprivate import NonPrivate
from l2p.protectors.projectors import MixProjector, Optax
from l2p.protectors.schedulers import Decaying, ShareScheduler
from l2p.protectors.stepwise import Centering, Stepwise


def noisygd(budget: Budget) -> Stepwise:
    """Full-batch DP-SGD with momentum and constant noise, at the settings one would guess without tuning."""
    del budget
    scheduler = Decaying(log_clip_norm=_log(1.0), rate=jnp.array([0.0]))
    rates = {"learning_rate": _log(0.5), "momentum": _log(0.9 / (1.0 - 0.9))}
    return Stepwise(scheduler, Optax("sgd", rates))


def dpsgd(budget: Budget) -> Stepwise:
    """`noisygd` on Poisson batches of a twentieth of the rows, for four times as many steps (Abadi et al. 2016)."""
    return dataclasses.replace(noisygd(budget), sampler=Poisson(0.05), num_steps=200)


def agd(budget: Budget, accountant: str = "rdp") -> AGD:
    """AGD at its authors' settings: epsilon / 120 for the first choice and, by the classic Gaussian calibration, the
    first gradient; clipping norms 3, gamma 0.1, 20 step sizes up to 2, L2 weight 0.001 (Lee and Kifer 2018)."""
    first_epsilon = 0.5 * budget.epsilon / 60
    selection_rho = 0.5 * first_epsilon**2
    gradient_rho = 0.5 * first_epsilon**2 / (2.0 * math.log(1.25 / budget.delta))
    # An accountant without a theorem for it is refused where the run is planned; its settings need some unit.
    filter = Filter(accountant if accountant in FullBatch.accountants else "rdp", budget)
    rho = filter.limit / filter.coefficients["gaussian"] / 2.0
    return AGD(
        log_gradient_share=_log(gradient_rho / rho),
        log_selection_share=_log(selection_rho / rho),
        log_increase=_log(0.1),
        log_gradient_clip=_log(3.0),
        log_loss_clip=_log(3.0),
        log_max_step=_log(2.0),
        log_regularization=_log(0.001),
    )


def _log(constant: float) -> jax.Array:
    """A constant polynomial f32[1] whose exponential is `constant`."""
    return jnp.array([math.log(constant)], jnp.float32)


def nonprivate(budget: Budget) -> NonPrivate:
    """The exact minimiser, outside any budget."""
    del budget
    return NonPrivate()


#: Methods that need no checkpoint.
HAND_DESIGNED: dict[str, Callable[[Budget], Protector]] = {
    "noisygd": noisygd,
    "dpsgd": dpsgd,
    "agd": agd,
    "nonprivate": nonprivate,
}

#: Every class that a checkpoint may name.
CLASSES: dict[str, type] = {
    cls.__name__: cls
    for cls in (AGD, Centering, Decaying, LSTMProjector, LSTMScheduler, MixProjector, Optax, ShareScheduler, Stepwise)
}
