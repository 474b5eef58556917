"""Rows, budgets and examples of protectors, of which the rows of the conformance table are made."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from l2p.models import Logistic
from l2p.privacy import Budget
from l2p.protectors import (
    AGD,
    HAND_DESIGNED,
    AdaDP,
    BaseRate,
    Centering,
    CurveScheduler,
    Decaying,
    DecayingByLength,
    DeepProjector,
    Eigenbasis,
    FineTuned,
    GradientLength,
    HyFree,
    KalmanProjector,
    LSTMProjector,
    LSTMScheduler,
    MixProjector,
    NormQuery,
    Optax,
    PublicFilter,
    PublicGeometry,
    PublicGrowth,
    PublicRecurrentScheduler,
    PublicTrust,
    RecurrentProjector,
    RecurrentScheduler,
    RecurrentSteps,
    Ridge,
    RowLength,
    ShareScheduler,
    Stepwise,
)
from l2p.protectors.learned import deep
from l2p.protectors.learned.curve_scheduler import PUBLIC_INPUTS, SCHEDULE_INPUTS
from l2p.protectors.learned.kalman import INPUTS, OUTPUTS
from l2p.protectors.learned.line import LineStep
from l2p.protectors.learned.recurrent import SCHEDULE_OUTPUTS
from l2p.protectors.learned.retreat import Retreat
from l2p.protectors.stepwise.projectors import COORDINATE_INPUTS, TENSOR_INPUTS
from l2p.task.rows import Rows
from tests.protectors.kalman_filters import recurrent

D, N, STEPS, PART = 3, 96, 12, 4
MODEL, KEY = Logistic(), jax.random.key(3)
BUDGETS = [Budget(0.2, 1e-6), Budget(1.0, 1e-6), Budget(5.0, 1e-6)]
MIDDLE, SEEDS = 1, 3
ZERO = jnp.zeros(D + 1)


def f32(value):
    return jnp.asarray(value, jnp.float32)


def table(seed):
    random = np.random.default_rng(seed)
    x = random.random((N, D))
    y = random.random(N) < special.expit(4 * (x @ [1.5, -1.0, 0.5] - 0.5))
    return Rows(f32(x), f32(y), f32(np.ones(N)))


ROWS = table(0)
#: What methods that need public rows read, of length 1 for those that need that, too; others run without any.
PUBLIC = jax.tree.map(lambda leaf: leaf[:12], table(7))
PUBLIC = PUBLIC.replace(x=PUBLIC.x / jnp.linalg.norm(PUBLIC.x, axis=1, keepdims=True))
#: The same features with labels that are independent of them.
OTHER_ROWS = ROWS.replace(y=jax.random.permutation(jax.random.key(5), ROWS.y))


def logs(**values):
    return {f"log_{name}": jnp.log(f32([value])) for name, value in values.items()}


def perturbed(tree, size=0.1):
    """The same tree with noise on every leaf, so that zero-initialised heads have an effect."""
    random = np.random.default_rng(17)  # numpy's: rows of the table are made while tests are collected
    return jax.tree.map(lambda leaf: f32(leaf + size * random.standard_normal(np.shape(leaf))), tree)


def network(sizes, size=0.1):
    """Parameters of a network with layer `sizes` (see `init_mlp`), drawn by numpy, and noise on every one."""
    random = np.random.default_rng(3)
    pairs = list(itertools.pairwise(sizes))
    layers = {
        f"layer{index}": {
            "w": random.standard_normal((fan_in, fan_out)) / fan_in**0.5 * (index < len(pairs) - 1),
            "b": np.zeros(fan_out),
        }
        for index, (fan_in, fan_out) in enumerate(pairs)
    }
    return perturbed(layers, size)


def spender(factor):
    """An LSTM scheduler that asks for about `factor` times the even price."""
    network = perturbed(LSTMScheduler.create(KEY, 1.0).network)
    network["head"]["bias"] = f32([-0.5 * math.log(factor)])
    return LSTMScheduler(network, jnp.log(f32(1.0)))


def sgd(rate=2.0, momentum=0.5):
    logit = math.log(momentum / (1 - momentum)) if momentum else -math.inf
    return Optax("sgd", {"learning_rate": jnp.log(f32([rate])), "momentum": f32([logit])})


ADAGRAD_LIKE = Optax("adam", {"learning_rate": jnp.log(f32([0.2])), "b1": f32([0.8])})
EVEN = Decaying(jnp.log(f32([1.0])), f32([0.0]))
DEEP = Stepwise(
    DecayingByLength(jnp.log(f32([1.0])), f32([0.0]), f32([0.3])),
    DeepProjector(
        f32([[-2.0, 0.1, 0.1, 0.1, -0.2]]),
        f32([[-1.0, 0.1, 0.1, -0.1, 0.2]]),
        f32([1.0]),
        f32([3.0]),
        network((deep.INPUTS, 4, deep.OUTPUTS)),
    ),
    (GradientLength(f32([-3.0])),),
)
SHARES = ShareScheduler(f32([[0.1, 0.3], [0.1, 0.0]]), f32([[-0.2, 0.3]]))
MEAN_OF_ROWS = Centering(f32([-2.2]), f32(-1.2), f32(0.5), f32(1.5))
CONTROL = Stepwise(
    SHARES,
    MixProjector(f32([[0.5, 0.2]]), f32([[0.5, 0.0, 0.0, 1.0, 0.0]])),
    (MEAN_OF_ROWS,),
    averaging=f32([0.0]),
)
NORM = NormQuery(f32([-2.0]), jnp.log(f32(1.0)))
NETWORKS = CONTROL.replace(
    scheduler=SHARES.replace(network=network((4, 8, 2))),
    projector=CONTROL.projector.replace(
        tensor_network=network((TENSOR_INPUTS, 8, 6)),
        coordinate_network=network((COORDINATE_INPUTS, 8, 6)),
    ),
)
LENGTH = RowLength(f32([-3.0]), f32(1.5))
EIGENBASIS = Eigenbasis(f32([-1.5]), f32([-0.3]), f32([0.2]), f32(1.5))
#: With a mean that is shrunk towards its own average.
IN_BASIS = NETWORKS.replace(purchases=(MEAN_OF_ROWS.replace(log_level_spread=f32(-2.0)), EIGENBASIS))
#: Two directions of three features.
ALONG = CONTROL.replace(
    purchases=(
        PublicGeometry(
            f32([0.4, 0.5, 0.6]),
            f32([[0.6, 0.0], [0.8, 0.0], [0.0, 1.0]]),
            f32([0.1, 0.05]),
            f32([-0.5]),
            f32([-2.0]),
        ),
    ),
)
#: Knots that change over the budgets of this table, and slopes in the numbers of features and margins.
RISING = f32([[-0.5, 0.1, 0.2, 0.1, 0.1, 0.1], [0.5, 0.1, 0.2, 0.1, 0.1, 0.1]])
KALMAN = Stepwise(
    CurveScheduler(RISING, RISING, RISING, network((SCHEDULE_INPUTS, 4, 1), 0.03)),
    KalmanProjector(
        *[RISING] * 13,
        network((INPUTS, 4, OUTPUTS), 0.03),
        LineStep(RISING, RISING - 2.0, RISING),
        Retreat(RISING, RISING),
    ),
    (
        BaseRate(f32([-2.0]), f32(-1.0)),
        MEAN_OF_ROWS.replace(log_level_spread=f32(-2.0), log_width=f32(0.1)),
        LENGTH,
        EIGENBASIS,
    ),
)
#: What it may have besides: prices by what was bought first.
ADAPTIVE_KALMAN = KALMAN.with_purchases(BaseRate(RISING - 2.0, f32(-1.0), f32(0.1), RISING - 1.0, RISING))
#: It takes something of everything from public rows.
WITH_PUBLIC = PublicFilter(
    KALMAN.scheduler, KALMAN.projector, KALMAN.purchases, trust=PublicTrust(RISING, RISING, RISING, RISING, RISING)
)
PAIR = Stepwise(
    RecurrentScheduler(RISING, RISING, RISING, recurrent(SCHEDULE_INPUTS, SCHEDULE_OUTPUTS)),
    RecurrentProjector(*[RISING] * 13, recurrent(INPUTS, OUTPUTS), KALMAN.projector.line),
)
#: Its steps are an LSTM's, and its noise is fixed in advance.
PUBLIC_PAIR = Stepwise(
    PublicRecurrentScheduler(RISING, RISING, RISING, recurrent(PUBLIC_INPUTS, SCHEDULE_OUTPUTS)),
    RecurrentSteps(*[RISING] * 13, recurrent(INPUTS, OUTPUTS)),
)
LSTM = LSTMProjector(perturbed(LSTMProjector.create(KEY).network), jnp.log(f32(0.3)))
GREEDY = AGD(
    **logs(
        gradient_share=0.08,
        selection_share=0.04,
        increase=0.3,
        gradient_clip=1.0,
        loss_clip=2.0,
        max_step=2.0,
        regularization=0.01,
    )
)
#: The tolerance falls with the noise, so that every budget has some of its steps rejected, but not all.
ADADP = AdaDP(**logs(clip_norm=0.4, learning_rate=0.4), log_tolerance=f32([-4.0, -1.7]))
HYFREE = HyFree(
    logit_probe_share=f32([1.0]),
    log_learning_rate=jnp.log(f32([20.0])),
    log_loss_clip=jnp.log(f32([2.0])),
    log_loss_ratio=jnp.log(f32([3.0])),
    log_stability=jnp.log(f32([0.1])),
    logit_momentum=f32([0.0]),
    interval=2,
)
#: Prices and clipping norms that change at every step, whatever the rows say: test_ppsgd.py has the rules.
GROWING = PublicGrowth(
    **logs(share=0.09, clip_norm=0.5, noise_ratio=1e-3, clip_ratio=1e-3, growth=0.4), logit_shrinking=f32([-1.0])
)
PPSGD = FineTuned(Stepwise(GROWING, Ridge(sgd(1.0), **logs(weight=0.01))), **logs(weight=0.1))
GRADIENT, MEAN, CHOICE = "clipped_gradient", "feature_mean", "noisy_line_search"
COVARIANCE, TARGETS = "covariance", "target_sum"
NORMALIZED, LOSS, NORM_OF = "normalized_gradient", "clipped_loss", "gradient_norm"
SCALED = "scaled_gradient"


def gentle(name):
    """A method with the learning rate 3, at which differences over these runs are accurate."""

    def gentle_leaf(path, leaf):
        return jnp.log(f32([3.0])) if "['learning_rate']" in jax.tree_util.keystr(path) else leaf

    return jax.tree_util.tree_map_with_path(gentle_leaf, HAND_DESIGNED[name](BUDGETS[MIDDLE], num_rows=N))
