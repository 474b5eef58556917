"""Protectors before any training whose constants are polynomials in log(mu N), the paper's pair, and AGD."""

import math
from typing import Any

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.protectors import (
    AGD,
    Centering,
    Decaying,
    DecayingByLength,
    DeepProjector,
    Eigenbasis,
    GradientLength,
    LSTMProjector,
    LSTMScheduler,
    MixProjector,
    NormQuery,
    Optax,
    PulledAdam,
    RowLength,
    ShareScheduler,
    Stepwise,
)
from l2p.protectors.learned import deep as deep_network
from l2p.protectors.stepwise.networks import init_mlp
from l2p.protectors.stepwise.projectors import COORDINATE_INPUTS, MEMORY, TENSOR_INPUTS

#: Inputs of the schedule's network.
SHARE_INPUTS = 4


def quadratic(*constants: float) -> jax.Array:
    """Coefficients f32[3, ...] of quadratics in log(mu N) that start as the given constants."""
    start = jnp.zeros((3, len(constants))).at[0].set(jnp.array(constants))
    return start[:, 0] if len(constants) == 1 else start


def noisygd(key: jax.Array) -> Stepwise:
    """NoisyGD with every constant a function of the budget: learning rate, momentum, clipping, decay, averaging."""
    del key
    return Stepwise(
        scheduler=Decaying(log_clip_norm=quadratic(0.5), rate=quadratic(0.0)),
        projector=Optax("sgd", {"learning_rate": quadratic(-1.0), "momentum": quadratic(1.0)}),
        averaging=quadratic(0.0),
    )


def noisygd_mean(key: jax.Array) -> Stepwise:
    """`noisygd` with the private feature mean."""
    return noisygd(key).with_purchases(centering())


def dp_fc(key: jax.Array) -> Stepwise:
    """`noisygd_mean` on rows whitened by private second moments, for the share of the budget that `universal` pays."""
    whitening = eigenbasis().replace(log_ridge=quadratic(0.0))
    return noisygd_mean(key).with_purchases(whitening)


def control(key: jax.Array) -> Stepwise:
    """Constants as functions of the budget, with the private feature mean: the baseline that networks have to beat."""
    del key
    return Stepwise(
        scheduler=ShareScheduler(quadratic(0.0, 0.0), log_clip_norm=quadratic(0.5, 0.0)),
        projector=MixProjector(
            log_learning_rate=quadratic(0.5, 0.0), mix=quadratic(*[1.0 * (rate == 0.8) for rate in MEMORY])
        ),
        purchases=(centering(),),
        averaging=quadratic(0.0),
    )


def control_eigen(key: jax.Array) -> Stepwise:
    """`control` with rows scaled to a private length, in a private eigenbasis."""
    return control(key).with_purchases(row_length(), eigenbasis())


def universal_batches(key: jax.Array) -> Stepwise:
    """`control_eigen` with zero-initialised networks on top: schedule, learning rate and mixture, and every coordinate.
    Among their inputs are the sampling rate, how much of each average is signal, and the private spectrum."""
    plain = control_eigen(key)
    schedule, tensor = jax.random.split(jax.random.fold_in(key, 4))
    coordinate = init_mlp(jax.random.fold_in(key, 3), (COORDINATE_INPUTS, 24, 12, len(MEMORY) + 1))
    return plain.replace(
        scheduler=plain.scheduler.replace(network=init_mlp(schedule, (SHARE_INPUTS, 16, 2))),
        projector=plain.projector.replace(
            tensor_network=init_mlp(tensor, (TENSOR_INPUTS, 24, len(MEMORY) + 1)), coordinate_network=coordinate
        ),
    )


def centering() -> Centering:
    """The private mean of features."""
    return Centering(
        logit_share=quadratic(-2.5),
        log_spread=jnp.log(jnp.float32(0.3)),
        row_norm=jnp.float32(0.5),
        target_norm=jnp.float32(2.5),
    )


def row_length() -> RowLength:
    """The private length of rows."""
    return RowLength(logit_share=quadratic(-5.0), target_norm=jnp.float32(2.5))


def eigenbasis() -> Eigenbasis:
    """The private second moments of features."""
    return Eigenbasis(
        # Less than 1 % at mu N = 70, 6 % at 300, 12 to 16 % from 1,500 on.
        logit_share=jnp.array([-4.2, 3.5, -1.2]),
        log_power=quadratic(0.0),
        log_ridge=quadratic(-0.7),
        row_norm=jnp.float32(2.5),
        log_least_ratio=jnp.log(jnp.float32(4.0)),
    )


def control_deep_plain(key: jax.Array) -> Stepwise:
    """Adam with a pull to the start, for losses that users bring along; every setting is a quadratic in log(mu N), and
    the learning rate and the pull depend on the numbers of rows and of params."""
    del key
    return Stepwise(Decaying(log_clip_norm=quadratic(0.0), rate=quadratic(0.0)), _pulled_adam(0.0, 0.0))


def control_deep(key: jax.Array) -> Stepwise:
    """`control_deep_plain` whose learning rate, pull and clipping norm depend on the length of gradients at the start,
    too, which is bought."""
    del key
    scheduler = DecayingByLength(quadratic(1.0), quadratic(0.0), log_clip_by_length=quadratic(0.5))
    return Stepwise(scheduler, _pulled_adam(-0.7, 1.0), (GradientLength(quadratic(-4.0)),))


def _pulled_adam(rate_by_length: float, pull_by_length: float) -> PulledAdam:
    """Adam with a learning rate of .03 and a pull of 1, and what their logs gain with that of the length."""
    return PulledAdam(
        log_learning_rate=quadratic(math.log(0.03), 0.0, 0.0, 0.0, rate_by_length),
        log_pull=quadratic(0.0, 0.0, 0.0, 0.0, pull_by_length),
        logit_first=quadratic(math.log(9.0)),
        logit_second=quadratic(math.log(99.0)),
    )


def deep(key: jax.Array) -> Stepwise:
    """`control_deep_plain` with a network that corrects Adam in each coordinate."""
    plain = control_deep_plain(key)
    network = init_mlp(jax.random.fold_in(key, 9), (deep_network.INPUTS, 8, 8, deep_network.OUTPUTS))
    return plain.replace(projector=as_class(DeepProjector, plain.projector, network=network))


def paper(key: jax.Array) -> Stepwise:
    """The LSTM pair of Hong et al. (2021)."""
    scheduler, projector = jax.random.split(key)
    return Stepwise(LSTMScheduler.create(scheduler, clip_norm=1.0), LSTMProjector.create(projector))


def paper_norm(key: jax.Array) -> Stepwise:
    """`paper`, whose scheduler's input is the private norm of the next gradient, the one it sets the noise for
    (Algorithm 2)."""
    query = NormQuery(logit_share=jnp.array([-2.2]), log_clip_norm=jnp.zeros(()))
    return paper(key).replace(norm_query=query)


def agd(key: jax.Array) -> AGD:
    """AGD from settings near those of its authors for budgets that allow few steps: tuning from there ends better than
    from their defaults."""
    del key
    return AGD(
        log_gradient_share=jnp.array([-4.0, 0.0]),
        log_selection_share=jnp.array([-5.0, 0.0]),
        log_increase=jnp.array([-1.5, 0.0]),
        log_gradient_clip=jnp.array([0.0, 0.0]),
        log_loss_clip=jnp.array([0.7, 0.0]),
        log_max_step=jnp.array([0.0, 0.0]),
        log_regularization=jnp.array([-7.0, 0.0]),
        num_steps=256,
    )


def agd_gumbel(key: jax.Array) -> AGD:
    """`agd` with Gumbel selection."""
    return agd(key).replace(selection="gumbel")


def as_class(cls: type, part: Any, **changes: Any) -> Any:
    """A part of a protector as one of another class with the same fields, some of them changed."""
    return cls(**struct.children(part) | changes)
