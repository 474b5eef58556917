"""The conformance table: a row for every protector, and runs of them that several properties read."""

import dataclasses
import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from l2p.models import Logistic
from l2p.oracle.setup import Setup
from l2p.oracle.trace import trace_of
from l2p.privacy import Adjacency, Budget, Filter
from l2p.privacy.cost.sampling import FixedSize, PermutationEpochs, Poisson
from l2p.protectors import (
    AGD,
    HAND_DESIGNED,
    PNSGD,
    AdaDP,
    AdaSSP,
    ApproximateMinima,
    AutoClip,
    AveragedWithPublic,
    BaseRate,
    BoltOn,
    Centering,
    CurveScheduler,
    Decaying,
    Eigenbasis,
    FineTuned,
    HyFree,
    KalmanProjector,
    LSTMProjector,
    LSTMScheduler,
    MixProjector,
    NormQuery,
    ObjectivePerturbation,
    Optax,
    OutputPerturbation,
    PrivateMeta,
    PublicGeometry,
    PublicGrowth,
    PublicRecurrentScheduler,
    RecurrentProjector,
    RecurrentScheduler,
    RecurrentSteps,
    Ridge,
    RowLength,
    ShareScheduler,
    Stepwise,
)
from l2p.protectors.by_hand.bolt_on import PassProtector
from l2p.protectors.hand_designed import HandDesigned
from l2p.protectors.learned.curve_scheduler import PUBLIC_INPUTS, SCHEDULE_INPUTS
from l2p.protectors.learned.kalman import INPUTS, OUTPUTS
from l2p.protectors.learned.line import LineStep
from l2p.protectors.learned.recurrent import SCHEDULE_OUTPUTS
from l2p.protectors.learned.retreat import Retreat
from l2p.protectors.stepwise.projectors import COORDINATE_INPUTS, TENSOR_INPUTS
from l2p.protectors.stepwise.public_parts import OverCurvature, PublicClip, PublicFit, PublicSubspace, PublicSum
from l2p.run import run as runs
from l2p.run.run import Simulation
from l2p.task.rows import Rows
from tests.conftest import EVERY_CASE
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


def public_for(protector):
    return PUBLIC if protector.needs_public else None


def start(protector, params, rows, here, noise):
    return runs.start(protector, params, rows, here, noise, public_for(protector))


def advance(protector, begun, rows, here, noise, num_steps, observe=None):
    return runs.advance(protector, begun, rows, here, noise, num_steps, public_for(protector), observe)


def run(protector, params, rows, here, key):
    return runs.run(protector, params, rows, here, key, public_for(protector))


def plan_noise(protector, params, num_rows, num_features, here):
    return runs.plan_noise(protector, params, num_rows, num_features, here, public_for(protector))


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
SHARES = ShareScheduler(f32([[0.1, 0.3], [0.1, 0.0]]), f32([[-0.2, 0.3]]))
MEAN_OF_ROWS = Centering(f32([-2.2]), f32(-1.2), f32(0.5), f32(1.5))
CONTROL = Stepwise(
    SHARES,
    MixProjector(f32([[0.5, 0.2]]), f32([[0.5, 0.0, 0.0, 1.0, 0.0]])),
    (MEAN_OF_ROWS,),
    averaging=f32([0.0]),
)
NORM = NormQuery(f32([-2.0]), jnp.log(f32(1.0)))
CENSUS = CONTROL.replace(
    scheduler=SHARES.replace(network=network((2, 8, 2))),
    projector=CONTROL.projector.replace(
        tensor_network=network((2, 8, 6)),
        coordinate_network=network((COORDINATE_INPUTS - 1, 8, 6)),
    ),
)
LENGTH = RowLength(f32([-3.0]), f32(1.5))
EIGENBASIS = Eigenbasis(f32([-1.5]), f32([-0.3]), f32([0.2]), f32(1.5))
#: With networks that have every input, and a mean that is shrunk towards its own average.
IN_BASIS = CENSUS.replace(
    purchases=(MEAN_OF_ROWS.replace(log_level_spread=f32(-2.0)), EIGENBASIS),
    scheduler=SHARES.replace(network=network((3, 8, 2))),
    projector=CENSUS.projector.replace(
        tensor_network=network((TENSOR_INPUTS, 8, 6)),
        coordinate_network=network((COORDINATE_INPUTS, 8, 6)),
    ),
)
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
RISING = f32([[-0.5, 0.1, 0.2, 0.1, 0.1], [0.5, 0.1, 0.2, 0.1, 0.1]])
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


def gentle(name):
    """A method with the learning rate 3, at which differences over these runs are accurate."""

    def gentle_leaf(path, leaf):
        return jnp.log(f32([3.0])) if "['learning_rate']" in jax.tree_util.keystr(path) else leaf

    return jax.tree_util.tree_map_with_path(gentle_leaf, HAND_DESIGNED[name](BUDGETS[MIDDLE], num_rows=N))


@dataclasses.dataclass(frozen=True)
class Case:
    """A protector and what is known of it: its queries, its accountants, and whether it uses its budget up.

    Without a protector it is the one that the hand-designed method of that name sets up for each budget. `slack` is the
    share of the budget that may be left when planning by shares: a sampled price is inverted less accurately.
    """

    protector: object = None
    first: tuple = ()
    each: tuple = (GRADIENT,)
    accountant: str = "gdp"
    exhausts: bool = False
    adjacency: Adjacency = Adjacency.ZERO_OUT
    slack: float = 1e-4
    method: HandDesigned | None = None

    def at(self, budget):
        """The protector for a budget."""
        if self.method is None:
            return self.protector
        return self.method(dataclasses.replace(budget, adjacency=self.adjacency), num_rows=N).replace(num_steps=STEPS)


#: Accountants of fixed noise divide their schedule by a Renyi cap, which is valid by itself and is tested here;
#: their envelopes are tested in privacy/test_envelope.py.
#: All properties hold for sampled protectors, too, except two. The cost of a sampled query is not a multiple of
#: 1 / m^2, so constant noise is checked by its price; and a batch does not give the full gradient, so the limits of
#: sampled protectors without privacy are in tests/run/test_batch_limits.py.
CASES = {
    "noisygd": Case(Stepwise(Decaying(jnp.log(f32([0.5])), f32([0.7])), sgd())),
    "noisygd, adam": Case(Stepwise(EVEN, ADAGRAD_LIKE)),
    "auto_clip": Case(AutoClip(EVEN, sgd(1.0), **logs(stability=0.2)), each=(NORMALIZED,)),
    "adadp": Case(ADADP, each=(GRADIENT, GRADIENT)),
    "adadp, batches": Case(
        ADADP.replace(sampler=Poisson(0.2)), each=(GRADIENT, GRADIENT), accountant="rdp", slack=2e-3
    ),
    "adadp, permutation epochs": Case(
        ADADP.replace(sampler=PermutationEpochs(40, N)), each=(GRADIENT, GRADIENT), slack=1e-3
    ),
    "hyfree": Case(HYFREE, each=(NORMALIZED, LOSS, NORMALIZED)),
    "hyfree, batches": Case(
        HYFREE.replace(sampler=Poisson(0.2)), each=(NORMALIZED, LOSS, NORMALIZED), accountant="rdp", slack=2e-3
    ),
    "agd": Case(GREEDY, each=(GRADIENT, CHOICE), accountant="rdp", exhausts=True),
    "agd_gumbel": Case(GREEDY.replace(selection="gumbel"), each=(GRADIENT, CHOICE), accountant="rdp", exhausts=True),
    "sgd_adv": Case(
        accountant="strong_composition",
        adjacency=Adjacency.REPLACE_ONE,
        slack=2e-3,
    ),
    "sgd_ma": Case(
        accountant="moments",
        adjacency=Adjacency.ADD_REMOVE,
        slack=2e-3,
    ),
    "noisygd_mean": Case(first=(MEAN,)),
    "dpsgd_mean": Case(first=(MEAN,), accountant="rdp", slack=2e-3),
    "dp_fc": Case(first=(MEAN, COVARIANCE)),
    # With a limit that some of its steps reach.
    "dp_newton": Case(
        HAND_DESIGNED["dp_newton"](BUDGETS[MIDDLE]).replace(**logs(max_step=0.3)),
        first=(MEAN,),
        each=("hessian", GRADIENT),
    ),
    "dp_ls": Case(first=(MEAN,), each=("second_moment", "cross_moment"), exhausts=True),
    "pass_glm": Case(first=(MEAN,), each=("second_moment", "cross_moment"), exhausts=True),
    # With a mean that clips no row: each row whose clipping starts or ends within a difference is a kink.
    "boosted_adassp": Case(
        HAND_DESIGNED["boosted_adassp"](BUDGETS[MIDDLE]).replace(centering=MEAN_OF_ROWS.replace(row_norm=f32(1.1))),
        first=(MEAN, "least_eigenvalue", "second_moment"),
    ),
    "linear_scaling": Case(
        HAND_DESIGNED["linear_scaling"](BUDGETS[MIDDLE]).replace(num_trials=2, trial_steps=2), each=(GRADIENT, LOSS)
    ),
    "control": Case(CONTROL, first=(MEAN,)),
    "census": Case(CENSUS, first=(MEAN,)),
    "control, eigenbasis": Case(CONTROL.with_purchases(EIGENBASIS), first=(MEAN, COVARIANCE), accountant="rdp"),
    "census, row length, eigenbasis": Case(IN_BASIS.with_purchases(LENGTH), first=(MEAN, "row_length", COVARIANCE)),
    "control, public geometry": Case(ALONG),
    "kalman, eigenbasis": Case(KALMAN, first=(TARGETS, MEAN, "row_length", COVARIANCE)),
    "kalman": Case(ADAPTIVE_KALMAN.without(Centering, RowLength, Eigenbasis), first=(TARGETS, TARGETS)),
    "pair": Case(PAIR),
    "pair, public schedule and steps": Case(PUBLIC_PAIR),
    "paper": Case(Stepwise(spender(3.0), LSTM), exhausts=True),
    "paper, norm query": Case(Stepwise(spender(1.5), LSTM, norm_query=NORM), each=(NORM_OF, GRADIENT), exhausts=True),
    "shares, norm query, batches": Case(
        Stepwise(SHARES, sgd(), norm_query=NORM, sampler=Poisson(0.2)),
        each=(NORM_OF, GRADIENT),
        accountant="rdp",
        slack=2e-3,
    ),
    "private_meta": Case(
        PrivateMeta(
            Stepwise(EVEN, sgd(), num_steps=STEPS),
            f32([-1.0]),
            **logs(clip_norm=0.1, learning_rate=0.1),
            num_outer=2,
            num_blocks=4,
        ),
        first=("meta_descent",),
    ),
    "LSTM scheduler, sgd": Case(Stepwise(spender(2.0), sgd()), exhausts=True),
    "shares, LSTM projector": Case(Stepwise(SHARES, LSTM, CONTROL.purchases), first=(MEAN,), accountant="zcdp"),
    "dpsgd": Case(Stepwise(EVEN, sgd(), sampler=Poisson(0.2)), accountant="rdp", slack=2e-3),
    "dpsgd, LSTM scheduler": Case(
        Stepwise(spender(1.6), sgd(), sampler=Poisson(0.2)), accountant="ctcdp", exhausts=True
    ),
    "control, fixed size": Case(
        CONTROL.replace(sampler=FixedSize(20, N)),
        first=(MEAN,),
        accountant="rdp",
        adjacency=Adjacency.REPLACE_ONE,
        slack=2e-3,
    ),
    "control, permutation epochs": Case(CONTROL.replace(sampler=PermutationEpochs(40, N)), first=(MEAN,)),
    "permutation epochs, LSTM scheduler": Case(
        Stepwise(spender(2.0), sgd(), sampler=PermutationEpochs(40, N)), exhausts=True
    ),
    # One query takes the whole budget; here it is asked again, and refused.
    "objpert": Case(
        ObjectivePerturbation(jnp.log(f32([0.8])), jnp.log(f32([1e-3])), f32([-1.0])),
        each=("perturbed_minimum",),
        accountant="basic",
        exhausts=True,
    ),
    "objpert_paper": Case(each=("perturbed_minimum",), accountant="basic", exhausts=True),
    "amp": Case(
        ApproximateMinima(
            # With so little ridge some convexity is bought, other than in `objpert`.
            ObjectivePerturbation(jnp.log(f32([0.8])), jnp.log(f32([1e-4])), f32([-1.0])),
            f32([-3.0]),
            f32([-10.0]),
        ),
        each=("approximate_minimum",),
        accountant="basic",
        exhausts=True,
    ),
    "adassp": Case(
        AdaSSP(jnp.log(f32([1.2])), jnp.log(f32([0.05]))),
        each=("least_eigenvalue", "second_moment", "cross_moment"),
        exhausts=True,
    ),
    "outpert": Case(OutputPerturbation.create(0.8, 0.01, 1.5, num_iterations=6), each=("descent",), exhausts=True),
    "outpert_paper": Case(each=("descent",), adjacency=Adjacency.REPLACE_ONE, exhausts=True),
    "bolt_on": Case(each=("pass_descent",), exhausts=True),
    "bolt_on_sc": Case(each=("pass_descent",), exhausts=True),
    "bolt_on, rows drawn with replacement": Case(
        BoltOn(N, batch_size=5, order="with_replacement", tail=1e-9),
        each=("pass_descent",),
        accountant="basic",
        exhausts=True,
    ),
    "scs13": Case(each=("noisy_passes",), exhausts=True),
    "bst14": Case(each=("sampled_passes",), accountant="basic", adjacency=Adjacency.REPLACE_ONE, exhausts=True),
    "bst14_sc": Case(each=("sampled_passes",), accountant="basic", adjacency=Adjacency.REPLACE_ONE, exhausts=True),
    "adamix": Case(gentle("adamix")),
    "adamix, learned": Case(
        Stepwise(
            PublicClip(spender(2.0), f32([1.0])),
            PublicSubspace(PublicSum(OverCurvature(CONTROL.projector)), 2, "rows"),
            (PublicFit(f32([0.5]), f32([-3.0]), num_steps=5),),
        ),
        exhausts=True,
    ),
    "adamix_theory": Case(),
    "ngd": Case(gentle("ngd")),
    "fully_private": Case(gentle("fully_private")),
    "pda_dpmd": Case(gentle("pda_dpmd")),
    "public_moments": Case(gentle("public_moments")),
    # At the largest budget it ends where a precondition fails, at others for lack of budget.
    "ppsgd": Case(
        PPSGD.replace(
            inner=PPSGD.inner.replace(
                scheduler=GROWING.replace(**logs(share=0.005, growth=4.0), published=True),
                sampler=FixedSize(9, N),
            )
        ),
        accountant="paper_13",
        adjacency=Adjacency.REPLACE_ONE,
        exhausts=True,
    ),
    "ppsgd_tight": Case(
        PPSGD.replace(inner=PPSGD.inner.replace(sampler=Poisson(0.1))), accountant="rdp", exhausts=True
    ),
    "ppgd": Case(PPSGD, exhausts=True),
    "public growth, adam, maximum": Case(
        Stepwise(
            GROWING.replace(clip_by="maximum"),
            ADAGRAD_LIKE,
            (MEAN_OF_ROWS,),
        ),
        first=(MEAN,),
        exhausts=True,
    ),
    "agd_avg": Case(
        AveragedWithPublic(GREEDY, **logs(weight=0.01)), each=(GRADIENT, CHOICE), accountant="rdp", exhausts=True
    ),
    "pnsgd": Case(PNSGD(**logs(norm_bound=0.8, radius=3.0, step=1.5)), each=("one_pass",), exhausts=True),
}
#: Hand-designed methods without a row, and why.
NO_ROW = {
    "nonprivate": "it asks for answers without noise, which no budget here pays for; test_without_noise.py tests it",
    "no_features": "the same",
    "onlypub": "it asks nothing and spends nothing; its own tests are in test_ppsgd.py",
}


def of_length(protector, num_steps):
    if hasattr(protector, "inner"):  # its length is its inner protector's
        return protector.replace(inner=of_length(protector.inner, num_steps))
    return protector.replace(num_steps=num_steps)


def completed(name, case):
    """The case with its method's protector where it has none, and with the number of steps of all runs here."""
    if case.protector is None:
        if name not in HAND_DESIGNED:
            raise KeyError(f"no method is called {name}; register its factory, import its file, or give a protector")
        case = dataclasses.replace(case, method=HAND_DESIGNED[name])
        return dataclasses.replace(case, protector=case.at(BUDGETS[MIDDLE]))
    return dataclasses.replace(case, protector=of_length(case.protector, STEPS))


CASES = {name: completed(name, case) for name, case in CASES.items()}

#: Properties that a case cannot have, by property and case, and why.
EXCEPTIONS: dict[tuple[str, str], str] = {
    (trait, name): "all its settings are constants, so there is nothing to differentiate"
    for trait in ("gradients", "differences")
    for name in CASES
    if isinstance(CASES[name].protector, PassProtector)
}
EXCEPTIONS |= {
    ("adaptive", name): "here its price grows at every step; test_ppsgd.py has runs whose noise depends on the rows"
    for name in ("ppsgd", "ppsgd_tight", "ppgd", "public growth, adam, maximum")
}
EXCEPTIONS |= {
    ("differences", "adamix, learned"): "meta-gradients hold singular vectors still, and differences move them"
}


#: Cases that resemble another one. Their derivatives are not tested, and .ci/full alone runs the rest of their tests,
#: with L2P_CASES=all.
ALIKE = {
    "adamix, learned": "adamix",
    "adamix_theory": "adamix",
    "fully_private": "noisygd",
    "pda_dpmd": "adamix",
    "public_moments": "adamix",
    "ppsgd_tight": "ppsgd",
    "ppgd": "ppsgd",
    "public growth, adam, maximum": "ppsgd",
    "agd_avg": "agd",
    "bolt_on_sc": "bolt_on",
    "bolt_on, rows drawn with replacement": "bolt_on",
    "scs13": "bst14",
    "bst14_sc": "bst14",
    "noisygd, adam": "noisygd",
    "agd_gumbel": "agd",
    "adadp, batches": "adadp",
    "adadp, permutation epochs": "adadp",
    "hyfree, batches": "hyfree",
    "outpert_paper": "outpert",
    "objpert_paper": "objpert",
    "census": "census, row length, eigenbasis",
    "LSTM scheduler, sgd": "paper",
    "shares, LSTM projector": "paper",
    "dpsgd, LSTM scheduler": "dpsgd",
    "permutation epochs, LSTM scheduler": "control, permutation epochs",
    "shares, norm query, batches": "paper, norm query",
    "kalman, eigenbasis": "control, eigenbasis",
    "pair, public schedule and steps": "pair",
    "noisygd_mean": "control",
    "dpsgd_mean": "dpsgd",
    "dp_fc": "control",
    "dp_newton": "adadp",
    "dp_ls": "adassp",
    "pass_glm": "adassp",
    "boosted_adassp": "adassp",
    "linear_scaling": "hyfree",
}
#: Cases with derivatives that pass through nothing that those of another case do not: .ci/full alone tests theirs.
ALIKE_DERIVATIVES = {
    "sgd_adv": "dpsgd",
    "sgd_ma": "dpsgd",
    "control, fixed size": "dpsgd",
    "control, eigenbasis": "census, row length, eigenbasis",
    "paper": "paper, norm query",
}
#: One case of each way to run, for what run.py promises whatever the protector. All but the first two are slow.
KINDS = (
    "noisygd",
    "dpsgd",
    "control, permutation epochs",
    "control, eigenbasis",
    "paper",
    "hyfree",
    "agd",
    "bolt_on",
    "ppsgd",
)


def cases_of(trait, names, slow):
    """Test a property on the named cases, but for exceptions."""

    def marks(name):
        reason = EXCEPTIONS.get((trait, name))
        skip = [pytest.mark.skip(reason=f"{name}: {reason}")] if reason else []
        return [*skip, *([pytest.mark.slow] if name in slow else [])]

    return pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in names])


def every_case(trait):
    """Test what each protector has to have."""
    return cases_of(trait, [name for name in CASES if EVERY_CASE or name not in ALIKE], ALIKE)


def every_kind(trait):
    """Test what run.py promises whatever the protector, once for each way to run."""
    return cases_of(trait, KINDS, KINDS[2:])


def every_derivative(trait):
    """Test what each protector has to have that resembles no other one; each compiles for seconds."""
    alike = ALIKE.keys() if EVERY_CASE else ALIKE.keys() | ALIKE_DERIVATIVES.keys()
    return cases_of(trait, [name for name in CASES if name not in alike], CASES.keys() - {"noisygd"})


def filter_of(case, budget=BUDGETS[MIDDLE], accountant=None):
    budget = dataclasses.replace(budget, adjacency=case.adjacency)
    return Filter(accountant or case.accountant, budget, case.protector.sampler, STEPS)


def setup_of(case, budget=BUDGETS[MIDDLE], accountant=None, **changes):
    planned = filter_of(case, budget, accountant).price_list()
    return Setup.create(MODEL, case.adjacency, planned, N).replace(**changes)


def setup(accountant, budget=BUDGETS[MIDDLE], **changes):
    return Setup.create(MODEL, budget.adjacency, Filter(accountant, budget).price_list(), N).replace(**changes)


jit_start = jax.jit(start)
jit_advance = jax.jit(functools.partial(advance, observe=lambda params: params), static_argnames="num_steps")
jit_finish = jax.jit(lambda protector, ended, here: protector.finish(ended.params, ended.state, here))


@functools.cache
def single(name, parts=(STEPS,), budget=MIDDLE, seed=0, accountant=None):
    """One run in parts: (params, run, (records of init, of steps), params seen)."""
    case = CASES[name]
    protector = case.at(BUDGETS[budget])
    here, noise = setup_of(case, BUDGETS[budget], accountant), Simulation(jax.random.split(KEY, SEEDS)[seed])
    current, first = jit_start(protector, ZERO, ROWS, here, noise)
    later = []
    for part in parts:
        current, *records_and_seen = jit_advance(protector, current, ROWS, here, noise, num_steps=part)
        later.append(records_and_seen)
    records, observations = jax.tree.map(lambda *leaves: np.concatenate(leaves), *later)
    return jax.device_get((jit_finish(protector, current, here), current, (first, records), observations))


@functools.cache
def grid(name, accountant=None):
    """All budgets [3] x seeds [3], one run at a time with the same compiled function."""
    runs = [
        single(name, budget=budget, seed=seed, accountant=accountant)
        for budget in range(len(BUDGETS))
        for seed in range(SEEDS)
    ]
    return jax.tree.map(lambda *leaves: np.stack(leaves).reshape(len(BUDGETS), SEEDS, *leaves[0].shape), *runs)


def pick(tree, *index):
    return jax.tree.map(lambda leaf: leaf[index], tree)


def events(first, records):
    return trace_of(first, [records])
