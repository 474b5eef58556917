"""Protectors before any training whose steps are a Kalman filter's, and whose constants are curves over log(mu N)."""

import math

import jax
import jax.numpy as jnp

from l2p.protectors import (
    BaseRate,
    CurveScheduler,
    Eigenbasis,
    KalmanProjector,
    LSTMScheduler,
    PublicFilter,
    PublicRecurrentScheduler,
    PublicTrust,
    RecurrentProjector,
    RecurrentScheduler,
    RecurrentSteps,
    Stepwise,
)
from l2p.protectors.fields import KNOT_COLUMNS
from l2p.protectors.learned.curve_scheduler import PUBLIC_INPUTS, SCHEDULE_INPUTS
from l2p.protectors.learned.kalman import INPUTS, OUTPUTS
from l2p.protectors.learned.line import LineStep
from l2p.protectors.learned.lstm import NUM_UNITS
from l2p.protectors.learned.recurrent import SCHEDULE_OUTPUTS
from l2p.protectors.learned.retreat import Retreat
from l2p.protectors.stepwise.networks import init_lstm, init_mlp
from meta_train.training.untrained.plain import as_class, centering, control_eigen, eigenbasis, row_length

#: Knots of a curve over log(mu N): nearly two apart, so that each learns from enough tasks.
KNOTS = 8


def _curve(low: float, high: float) -> jax.Array:
    """Knots f32[k, 6] on a line over log(mu N)."""
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
            centering().replace(
                logit_share=_curve(-2.5, -2.5),
                log_level_spread=jnp.log(jnp.float32(0.1)),
                log_width=jnp.zeros(()),
            ),
            row_length().replace(logit_share=_curve(-5.0, -5.0)),
            eigenbasis(),
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


def filter_with_lstm(key: jax.Array) -> Stepwise:
    """`filter` with an LSTM in place of the network that corrects the filter."""
    plain = filter_with_network(key)
    network = init_lstm(jax.random.fold_in(key, 7), INPUTS, NUM_UNITS, OUTPUTS)
    return plain.replace(projector=as_class(RecurrentProjector, plain.projector, network=network))


def lstm(key: jax.Array) -> Stepwise:
    """`control_line` with the paper's pair of LSTMs: one corrects the filter in each coordinate, the other shares of
    what is left and clipping norms."""
    plain = filter_with_lstm(key)
    network = init_lstm(jax.random.fold_in(key, 8), SCHEDULE_INPUTS, NUM_UNITS, SCHEDULE_OUTPUTS)
    return plain.replace(scheduler=as_class(RecurrentScheduler, control_line(key).scheduler, network=network))


def lstm_public(key: jax.Array) -> Stepwise:
    """`lstm` whose noise is fixed in advance."""
    network = init_lstm(jax.random.fold_in(key, 8), PUBLIC_INPUTS, NUM_UNITS, SCHEDULE_OUTPUTS)
    return lstm(key).replace(scheduler=as_class(PublicRecurrentScheduler, control_line(key).scheduler, network=network))


def lstm_steps(key: jax.Array) -> Stepwise:
    """`lstm` whose projector's output is the step, in place of the filter's."""
    plain = lstm(key)
    return plain.replace(projector=as_class(RecurrentSteps, plain.projector))


def lstm_spender(key: jax.Array) -> Stepwise:
    """`lstm` with the paper's scheduler, which may overspend."""
    return lstm(key).replace(scheduler=LSTMScheduler.create(jax.random.fold_in(key, 8), clip_norm=1.0))
