"""Protectors before any training, by name."""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.protectors import (
    AGD,
    BaseRate,
    Centering,
    CurveScheduler,
    Decaying,
    DeepProjector,
    Eigenbasis,
    KalmanProjector,
    LSTMProjector,
    LSTMScheduler,
    MixProjector,
    NormQuery,
    Optax,
    PublicFilter,
    PublicRecurrentScheduler,
    PublicTrust,
    PulledAdam,
    RecurrentProjector,
    RecurrentScheduler,
    RecurrentSteps,
    RowLength,
    ShareScheduler,
    Stepwise,
)
from l2p.protectors.fields import KNOT_COLUMNS
from l2p.protectors.learned import deep as deep_network
from l2p.protectors.learned.curve_scheduler import PUBLIC_INPUTS, SCHEDULE_INPUTS
from l2p.protectors.learned.kalman import INPUTS, OUTPUTS
from l2p.protectors.learned.line import LineStep
from l2p.protectors.learned.lstm import NUM_UNITS
from l2p.protectors.learned.recurrent import SCHEDULE_OUTPUTS
from l2p.protectors.learned.retreat import Retreat
from l2p.protectors.stepwise.networks import init_lstm, init_mlp
from l2p.protectors.stepwise.projectors import COORDINATE_INPUTS, MEMORY, TENSOR_INPUTS
from l2p.run.protector import Protector

#: Knots of a curve over log(mu N): nearly two apart, so that each learns from enough tasks.
KNOTS = 8
#: Inputs of the schedule's network.
SHARE_INPUTS = 4


def _quadratic(*constants: float) -> jax.Array:
    """Coefficients f32[3, ...] of quadratics in log(mu N) that start as the given constants."""
    start = jnp.zeros((3, len(constants))).at[0].set(jnp.array(constants))
    return start[:, 0] if len(constants) == 1 else start


def noisygd(key: jax.Array) -> Stepwise:
    """NoisyGD with every constant a function of the budget: learning rate, momentum, clipping, decay, averaging."""
    del key
    return Stepwise(
        scheduler=Decaying(log_clip_norm=_quadratic(0.5), rate=_quadratic(0.0)),
        projector=Optax("sgd", {"learning_rate": _quadratic(-1.0), "momentum": _quadratic(1.0)}),
        averaging=_quadratic(0.0),
    )


def noisygd_mean(key: jax.Array) -> Stepwise:
    """`noisygd` with the private feature mean."""
    return noisygd(key).with_purchases(_centering())


def dp_fc(key: jax.Array) -> Stepwise:
    """`noisygd_mean` on rows whitened by private second moments, for the share of the budget that `universal` pays."""
    whitening = _eigenbasis().replace(log_ridge=_quadratic(0.0))
    return noisygd_mean(key).with_purchases(whitening)


def _centering() -> Centering:
    return Centering(
        logit_share=_quadratic(-2.5),
        log_spread=jnp.log(jnp.float32(0.3)),
        row_norm=jnp.float32(0.5),
        target_norm=jnp.float32(2.5),
    )


def control(key: jax.Array) -> Stepwise:
    """Constants as functions of the budget, with the private feature mean: the baseline that networks have to beat."""
    del key
    return Stepwise(
        scheduler=ShareScheduler(_quadratic(0.0, 0.0), log_clip_norm=_quadratic(0.5, 0.0)),
        projector=MixProjector(
            log_learning_rate=_quadratic(0.5, 0.0), mix=_quadratic(*[1.0 * (rate == 0.8) for rate in MEMORY])
        ),
        purchases=(_centering(),),
        averaging=_quadratic(0.0),
    )


def control_eigen(key: jax.Array) -> Stepwise:
    """`control` with rows scaled to a private length, in a private eigenbasis."""
    return control(key).with_purchases(_row_length(), _eigenbasis())


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


def _curve(low: float, high: float) -> jax.Array:
    """Knots f32[k, 5] on a line over log(mu N)."""
    return jnp.zeros((KNOTS, KNOT_COLUMNS)).at[:, 0].set(jnp.linspace(low, high, KNOTS))


def control_filter(key: jax.Array) -> Stepwise:
    """A Kalman filter in each coordinate decides the steps, for every model; prices, clipping and what the filter takes
    for granted are curves over log(mu N)."""
    plain = control_eigen(key)
    return plain.replace(
        scheduler=CurveScheduler(log_clip_norm=_curve(-1.0, 1.5), rate=_curve(-1.0, 2.0), clip_rate=_curve(0.0, 0.0)),
        projector=KalmanProjector(
            log_curvature=_curve(0.0, -0.6),
            log_unknown=_curve(0.0, 0.0),
            log_spread=_curve(1.0, 4.0),
            spread_power=_curve(0.0, 0.0),
            log_intercept=_curve(-2.0, 3.0),
            log_width=_curve(1.0, 0.5),
            logit_certain=_curve(2.0, -1.0),
            logit_momentum=_curve(-2.0, 1.0),
            log_steepest=_curve(2.0, 1.0),
            log_gradient_norm=_curve(0.0, 0.0),
            logit_return=_curve(1.0, 1.0),
            rate_power=_curve(1.0, 1.0),
            log_sampling=_curve(0.0, 0.0),
        ),
        purchases=(
            BaseRate(
                _curve(-2.5, -6.0),
                log_spread=jnp.log(jnp.float32(0.35)),
                log_width=jnp.zeros(()),
                logit_again=_curve(1.0, -3.0),
                urgency=_curve(1.0, 0.5),
            ),
            _centering().replace(
                logit_share=_curve(-2.5, -2.5),
                log_level_spread=jnp.log(jnp.float32(0.1)),
                log_width=jnp.zeros(()),
            ),
            _row_length().replace(logit_share=_curve(-5.0, -5.0)),
            _eigenbasis(),
        ),
        averaging=None,
    )


def control_line(key: jax.Array) -> Stepwise:
    """`control_filter` whose distance from the start is scaled along the line to the params."""
    plain = control_filter(key)
    line = LineStep(_curve(0.0, 1.0), log_spread=_curve(-3.0, -1.5), logit_renewed=_curve(-2.2, -2.2))
    return plain.replace(projector=plain.projector.replace(line=line))


def control_retreat(key: jax.Array) -> Stepwise:
    """`control_line` that takes back at the end what does not stand out from noise; how uneven classes are expected to
    be, and the eigenbasis's share of the budget, are curves."""
    plain = control_line(key)
    retreat = Retreat(logit_kept=_curve(2.0, 2.0), threshold=_curve(1.0, 1.0))
    spread = math.log(0.35)
    rates, basis = plain.purchase(BaseRate), plain.purchase(Eigenbasis)
    assert rates is not None
    assert basis is not None
    share = _curve(-2.0, -2.0).at[:3, 0].set(jnp.array([-8.0, -8.0, -4.5]))  # nearly what `control_filter` spends
    plain = plain.with_purchases(rates.replace(log_spread=_curve(spread, spread)), basis.replace(logit_share=share))
    return plain.replace(projector=plain.projector.replace(retreat=retreat))


def filter_with_network(key: jax.Array) -> Stepwise:
    """`control_line` with a network that corrects the filter in each coordinate, and one for clipping norms."""
    return _with_networks_of_filter(control_line(key), key)


def filter_retreat(key: jax.Array) -> Stepwise:
    """The same from `control_retreat`."""
    return _with_networks_of_filter(control_retreat(key), key)


def control_public(key: jax.Array) -> PublicFilter:
    """`control_retreat` that takes from public rows its start, its prior and a part of its clipping norms."""
    return _with_public_rows(control_retreat(key))


def filter_public(key: jax.Array) -> PublicFilter:
    """The same from `filter_retreat`."""
    return _with_public_rows(filter_retreat(key))


def _with_public_rows(plain: Stepwise) -> PublicFilter:
    trust = PublicTrust(
        log_reach=_curve(0.0, 0.0),
        logit_shift=_curve(0.0, 0.0),
        logit_off=_curve(-4.0, -4.0),
        logit_clip=_curve(-4.0, -4.0),
        logit_quantile=_curve(2.0, 2.0),
    )
    return PublicFilter(plain.scheduler, plain.projector, plain.purchases, trust=trust)


def _with_networks_of_filter(plain: Stepwise, key: jax.Array) -> Stepwise:
    network = init_mlp(jax.random.fold_in(key, 5), (INPUTS, 24, 12, OUTPUTS))
    schedule = init_mlp(jax.random.fold_in(key, 6), (SCHEDULE_INPUTS, 16, 1))
    return plain.replace(
        scheduler=plain.scheduler.replace(network=schedule),
        projector=plain.projector.replace(network=network),
    )


def lstm(key: jax.Array) -> Stepwise:
    """`control_line` with the paper's pair of LSTMs: one corrects the filter in each coordinate, the other shares of
    what is left and clipping norms."""
    plain = filter_with_lstm(key)
    network = init_lstm(jax.random.fold_in(key, 8), SCHEDULE_INPUTS, NUM_UNITS, SCHEDULE_OUTPUTS)
    return plain.replace(scheduler=_as(RecurrentScheduler, control_line(key).scheduler, network=network))


def lstm_public(key: jax.Array) -> Stepwise:
    """`lstm` whose noise is fixed in advance."""
    network = init_lstm(jax.random.fold_in(key, 8), PUBLIC_INPUTS, NUM_UNITS, SCHEDULE_OUTPUTS)
    return lstm(key).replace(scheduler=_as(PublicRecurrentScheduler, control_line(key).scheduler, network=network))


def lstm_steps(key: jax.Array) -> Stepwise:
    """`lstm` whose projector's output is the step, in place of the filter's."""
    plain = lstm(key)
    return plain.replace(projector=_as(RecurrentSteps, plain.projector))


def filter_with_lstm(key: jax.Array) -> Stepwise:
    """`filter` with an LSTM in place of the network that corrects the filter."""
    plain = filter_with_network(key)
    network = init_lstm(jax.random.fold_in(key, 7), INPUTS, NUM_UNITS, OUTPUTS)
    return plain.replace(projector=_as(RecurrentProjector, plain.projector, network=network))


def lstm_spender(key: jax.Array) -> Stepwise:
    """`lstm` with the paper's scheduler, which may overspend."""
    return lstm(key).replace(scheduler=LSTMScheduler.create(jax.random.fold_in(key, 8), clip_norm=1.0))


def _as(cls: type, part: Any, **changes: Any) -> Any:
    """A part of a protector as one of another class with the same fields, some of them changed."""
    return cls(**struct.children(part) | changes)


def _row_length() -> RowLength:
    return RowLength(logit_share=_quadratic(-5.0), target_norm=jnp.float32(2.5))


def _eigenbasis() -> Eigenbasis:
    return Eigenbasis(
        # Less than 1 % at mu N = 70, 6 % at 300, 12 to 16 % from 1,500 on.
        logit_share=jnp.array([-4.2, 3.5, -1.2]),
        log_power=_quadratic(0.0),
        log_ridge=_quadratic(-0.7),
        row_norm=jnp.float32(2.5),
        log_least_ratio=jnp.log(jnp.float32(4.0)),
    )


def control_deep(key: jax.Array) -> Stepwise:
    """Adam with a pull to the start, for losses that users bring along; every setting is a quadratic in log(mu N), and
    the learning rate and the pull depend on the numbers of rows and of params."""
    del key
    adam = PulledAdam(
        log_learning_rate=_quadratic(math.log(0.03), 0.0, 0.0),
        log_pull=_quadratic(0.0, 0.0, 0.0),
        logit_first=_quadratic(math.log(9.0)),
        logit_second=_quadratic(math.log(99.0)),
    )
    return Stepwise(Decaying(log_clip_norm=_quadratic(0.0), rate=_quadratic(0.0)), adam)


def deep(key: jax.Array) -> Stepwise:
    """`control_deep` with a network that corrects Adam in each coordinate."""
    plain = control_deep(key)
    network = init_mlp(jax.random.fold_in(key, 9), (deep_network.INPUTS, 8, 8, deep_network.OUTPUTS))
    return plain.replace(projector=_as(DeepProjector, plain.projector, network=network))


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


BUILDERS: dict[str, Callable[[jax.Array], Protector]] = {
    "noisygd": noisygd,
    "noisygd_mean": noisygd_mean,
    "dp_fc": dp_fc,
    "control": control,
    "control_eigen": control_eigen,
    "universal_batches": universal_batches,
    "control_filter": control_filter,
    "control_line": control_line,
    "control_retreat": control_retreat,
    "filter": filter_with_network,
    "filter_retreat": filter_retreat,
    "control_public": control_public,
    "filter_public": filter_public,
    "filter_lstm": filter_with_lstm,
    "lstm": lstm,
    "lstm_public": lstm_public,
    "lstm_spender": lstm_spender,
    "lstm_steps": lstm_steps,
    "control_deep": control_deep,
    "deep": deep,
    "paper": paper,
    "paper_norm": paper_norm,
    "agd": agd,
    "agd_gumbel": agd_gumbel,
}
