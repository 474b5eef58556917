"""Every protector against one table of properties: its budget, its end, its replays, its limits and its gradients."""

import dataclasses
import functools
import json
import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads
from scipy import special

from l2p import run as runs
from l2p.checkpoints.structure import decode, encode
from l2p.errors import InputError
from l2p.models import INTERCEPT_COLUMN, Logistic, Square
from l2p.privacy import Adjacency, Budget, Filter
from l2p.privacy.noise import Entropy
from l2p.privacy.sampling import FixedSize, FullBatch, PermutationEpochs, Poisson
from l2p.protectors import (
    AGD,
    CLASSES,
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
    Ridge,
    RowLength,
    ShareScheduler,
    Stepwise,
)
from l2p.protectors.bolt_on import PassProtector
from l2p.protectors.curve_scheduler import SCHEDULE_INPUTS
from l2p.protectors.hand_designed import HandDesigned
from l2p.protectors.hyfree import _least_change
from l2p.protectors.kalman import INPUTS, OUTPUTS
from l2p.protectors.line import LineStep
from l2p.protectors.networks import init_mlp
from l2p.protectors.projectors import COORDINATE_INPUTS, TENSOR_INPUTS
from l2p.protectors.public_parts import OverCurvature, PublicClip, PublicFit, PublicSubspace, PublicSum
from l2p.public_facts import Setup
from l2p.result import answered
from l2p.run import Release, Simulation, trace_rows
from l2p.task import Rows

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
    leaves, structure = jax.tree.flatten(tree)
    keys = jax.random.split(jax.random.key(17), len(leaves))
    return jax.tree.unflatten(
        structure, [leaf + size * jax.random.normal(key, leaf.shape) for leaf, key in zip(leaves, keys, strict=True)]
    )


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
CONTROL = Stepwise(
    SHARES,
    MixProjector(f32([[0.5, 0.2]]), f32([[0.5, 0.0, 0.0, 1.0, 0.0]])),
    Centering(f32([-2.2]), f32(-1.2), f32(0.5), f32(1.5)),
    averaging=f32([0.0]),
)
NORM = NormQuery(f32([-2.0]), jnp.log(f32(1.0)))
CENSUS = CONTROL.replace(
    scheduler=SHARES.replace(network=perturbed(init_mlp(KEY, (2, 8, 2)))),
    projector=CONTROL.projector.replace(
        tensor_network=perturbed(init_mlp(KEY, (2, 8, 6))),
        coordinate_network=perturbed(init_mlp(KEY, (COORDINATE_INPUTS - 1, 8, 6))),
    ),
)
LENGTH = RowLength(f32([-3.0]), f32(1.5))
EIGENBASIS = Eigenbasis(f32([-1.5]), f32([-0.3]), f32([0.2]), f32(1.5))
#: With networks that have every input, and a mean that is shrunk towards its own average.
IN_BASIS = CENSUS.replace(
    centering=CONTROL.centering.replace(log_level_spread=f32(-2.0)),
    eigenbasis=EIGENBASIS,
    scheduler=SHARES.replace(network=perturbed(init_mlp(KEY, (3, 8, 2)))),
    projector=CENSUS.projector.replace(
        tensor_network=perturbed(init_mlp(KEY, (TENSOR_INPUTS, 8, 6))),
        coordinate_network=perturbed(init_mlp(KEY, (COORDINATE_INPUTS, 8, 6))),
    ),
)
#: Two directions of three features.
ALONG = CONTROL.replace(
    centering=None,
    geometry=PublicGeometry(
        f32([0.4, 0.5, 0.6]),
        f32([[0.6, 0.0], [0.8, 0.0], [0.0, 1.0]]),
        f32([0.1, 0.05]),
        f32([-0.5]),
        f32([-2.0]),
    ),
)
#: Knots that change over the budgets of this table, and slopes in the numbers of features and margins.
RISING = f32([[-0.5, 0.1, 0.2, 0.1, 0.1], [0.5, 0.1, 0.2, 0.1, 0.1]])
KALMAN = Stepwise(
    CurveScheduler(RISING, RISING, RISING, perturbed(init_mlp(KEY, (SCHEDULE_INPUTS, 4, 1)), 0.03)),
    KalmanProjector(
        *[RISING] * 13,
        perturbed(init_mlp(KEY, (INPUTS, 4, OUTPUTS)), 0.03),
        LineStep(RISING, RISING - 2.0, RISING),
    ),
    centering=CONTROL.centering.replace(log_level_spread=f32(-2.0), log_width=f32(0.1)),
    row_length=LENGTH,
    eigenbasis=EIGENBASIS,
    base_rate=BaseRate(f32([-2.0]), f32(-1.0)),
)
#: What it may have besides: prices by what was bought first.
ADAPTIVE_KALMAN = KALMAN.replace(base_rate=BaseRate(RISING - 2.0, f32(-1.0), f32(0.1), RISING - 1.0, RISING))
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

    def one(path, leaf):
        return jnp.log(f32([3.0])) if "['learning_rate']" in jax.tree_util.keystr(path) else leaf

    return jax.tree_util.tree_map_with_path(one, HAND_DESIGNED[name](BUDGETS[MIDDLE], num_rows=N))


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
#: All properties below hold for sampled protectors, too, except two. The cost of a sampled query is not a multiple of
#: 1 / m^2, so constant noise is checked by its price; and a batch does not give the full gradient, so the limits of
#: sampled protectors without privacy are in test_samplers.py.
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
        HAND_DESIGNED["boosted_adassp"](BUDGETS[MIDDLE]).replace(
            centering=CONTROL.centering.replace(row_norm=f32(1.1))
        ),
        first=(MEAN, "least_eigenvalue", "second_moment"),
    ),
    "linear_scaling": Case(
        HAND_DESIGNED["linear_scaling"](BUDGETS[MIDDLE]).replace(num_trials=2, trial_steps=2), each=(GRADIENT, LOSS)
    ),
    "control": Case(CONTROL, first=(MEAN,)),
    "census": Case(CENSUS, first=(MEAN,)),
    "control, eigenbasis": Case(CONTROL.replace(eigenbasis=EIGENBASIS), first=(MEAN, COVARIANCE), accountant="rdp"),
    "census, row length, eigenbasis": Case(IN_BASIS.replace(row_length=LENGTH), first=(MEAN, "row_length", COVARIANCE)),
    "control, public geometry": Case(ALONG),
    "kalman, eigenbasis": Case(KALMAN, first=(TARGETS, MEAN, "row_length", COVARIANCE)),
    "kalman": Case(ADAPTIVE_KALMAN.replace(centering=None, row_length=None, eigenbasis=None), first=(TARGETS, TARGETS)),
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
    "shares, LSTM projector": Case(Stepwise(SHARES, LSTM, CONTROL.centering), first=(MEAN,), accountant="zcdp"),
    "dpsgd": Case(Stepwise(EVEN, sgd(), sampler=Poisson(0.2)), accountant="rdp", slack=2e-3),
    "dpsgd, LSTM scheduler": Case(
        Stepwise(spender(1.3), sgd(), sampler=Poisson(0.2)), accountant="ctcdp", exhausts=True
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
            public_start=PublicFit(f32([0.5]), f32([-3.0]), num_steps=5),
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
            CONTROL.centering,
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
    "nonprivate": "it asks for answers without noise, which no budget here pays for; its own test is below",
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


def every_case(trait):
    """Test a property on every case, but for exceptions."""

    def marks(name):
        reason = EXCEPTIONS.get((trait, name))
        return pytest.mark.skip(reason=f"{name}: {reason}") if reason else ()

    return pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in CASES])


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
    records, seen = jax.tree.map(lambda *leaves: np.concatenate(leaves), *later)
    return jax.device_get((jit_finish(protector, current, here), current, (first, records), seen))


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
    return answered(trace_rows(first, [records]))


# ---------------------------------------------------------------------------------------------------------- the table
def test_every_hand_designed_method_has_a_row():
    assert not NO_ROW.keys() & CASES.keys()
    assert HAND_DESIGNED.keys() <= CASES.keys() | NO_ROW.keys()
    assert NO_ROW.keys() <= HAND_DESIGNED.keys()


def test_every_row_of_a_method_is_of_the_class_that_the_method_makes():
    for name in HAND_DESIGNED.keys() & CASES.keys():
        assert type(CASES[name].protector) is type(HAND_DESIGNED[name](BUDGETS[MIDDLE], num_rows=N)), name


def test_every_class_that_a_checkpoint_may_name_is_in_a_row():
    structures = json.dumps([encode(case.protector, {}) for case in CASES.values()])
    assert {name for name in CLASSES if f'"class": "{name}"' in structures} == CLASSES.keys()


def test_exceptions_are_of_rows_that_there_are_and_have_reasons():
    assert {name for _, name in EXCEPTIONS} <= CASES.keys()
    assert all(EXCEPTIONS.values())


# --------------------------------------------------------------------------------------------------------- the budget
def within_budget(name, accountant=None):
    _, ended, (first, records), _ = grid(name, accountant)
    for index, budget in enumerate(BUDGETS):
        for seed in range(SEEDS):
            granted = events(pick(first, index, seed), pick(records, index, seed))
            planned = filter_of(CASES[name], budget, accountant)
            total, cap = planned.spent(granted), planned.limit
            assert 0 < total <= cap
            assert total <= float(ended.spending.spent[index, seed])
            # The conversion itself, without the clamp that `certify` may apply.
            assert planned.epsilon(total) <= budget.epsilon * (1 + 1e-9)
            if not CASES[name].exhausts:
                assert total >= cap * (1 - CASES[name].slack)  # planning by shares leaves nothing unspent


@every_case("budget")
def test_no_run_spends_more_than_its_budget_in_float64(name):
    within_budget(name)


OTHER_ACCOUNTANTS = [
    ("noisygd", "zcdp"),
    ("noisygd", "rdp"),
    ("noisygd", "ctcdp"),
    ("agd", "ctcdp"),
    ("dpsgd", "ctcdp"),
    ("control, fixed size", "ctcdp"),
    ("control, permutation epochs", "zcdp"),
]


@pytest.mark.parametrize(("name", "accountant"), OTHER_ACCOUNTANTS)
def test_nor_under_another_accountant(name, accountant):
    within_budget(name, accountant)


@every_case("frozen")
def test_a_run_is_frozen_from_its_first_refusal_on(name):
    _, ended, (_, records), seen = grid(name)
    granted = np.stack([record.granted for record in records], -1)
    assert np.all(np.diff(granted.reshape(*granted.shape[:2], -1).astype(int)) <= 0)
    assert np.array_equal(ended.step, granted.all(-1).sum(-1))
    assert np.array_equal(ended.alive, granted.all((-1, -2)))
    if CASES[name].exhausts:
        assert np.all((ended.step > 0) & (ended.step < STEPS))
    else:
        assert np.all(ended.step == STEPS)
    for index in np.ndindex(ended.step.shape):
        last = ended.step[index]
        assert np.all(seen[index][last - 1 :] == seen[index][last - 1])
        assert np.any(seen[index][last - 1])
    for record in records:
        assert np.all(record.cost[~record.granted] == 0)
        assert np.all(np.diff(record.spent, axis=-1) >= 0)


def test_constant_noise_is_constant_and_spends_the_whole_budget():
    for index, budget in enumerate(BUDGETS):
        _, ended, (_, (record,)), _ = pick(grid("noisygd, adam"), index, 0)
        np.testing.assert_allclose(record.noise_multiplier, record.noise_multiplier[0], rtol=1e-4)
        total = Filter("gdp", budget).spent(events([], [record]))
        assert Filter("gdp", budget).limit * (1 - 1e-4) <= total <= Filter("gdp", budget).limit
        assert total == pytest.approx(STEPS / float(record.noise_multiplier[0]) ** 2, rel=2e-4)
        assert int(ended.step) == STEPS


def test_constant_noise_of_batches_costs_the_same_at_every_step():
    for index, budget in enumerate(BUDGETS):
        _, _, (_, (record,)), _ = pick(grid("dpsgd"), index, 0)
        planned = filter_of(CASES["dpsgd"], budget)
        np.testing.assert_allclose(record.noise_multiplier, record.noise_multiplier[0], rtol=1e-3)
        assert planned.spent(events([], [record])) == pytest.approx(planned.limit, rel=2e-3)
        # Reading every row with as much noise would cost more than the budget.
        assert Filter("gdp", budget).spent(events([], [record])) > 3 * Filter("gdp", budget).limit


def test_batches_of_an_epoch_share_its_price():
    _, _, (_, (record,)), _ = pick(grid("control, permutation epochs"), MIDDLE, 0)
    noise = record.noise_multiplier.reshape(-1, 2)  # two batches an epoch
    np.testing.assert_allclose(noise[:, 0], noise[:, 1], rtol=1e-4)
    assert np.all(np.abs(np.diff(noise[:, 0])) > 1e-3 * noise[1:, 0])  # epochs have prices of their own
    spent = record.spent.reshape(-1, 2)
    np.testing.assert_allclose(spent[:, 0], spent[:, 1], rtol=1e-4)
    assert np.all(np.diff(spent[:, 0]) > 0.01 * spent[-1, 0])


@every_case("checkpoint")
def test_a_checkpoint_gives_it_back(name):
    arrays = {}
    again = decode(json.loads(json.dumps(encode(CASES[name].protector, arrays))), arrays)
    assert type(again) is type(CASES[name].protector)
    assert again.sampler == CASES[name].protector.sampler
    chex.assert_trees_all_equal(again, CASES[name].protector)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.protector.sampler != FullBatch()])
def test_a_checkpoint_with_an_unknown_sampler_is_refused(name):
    arrays = {}
    structure = json.loads(json.dumps(encode(CASES[name].protector, arrays)))
    owner = structure if "sampler" in structure["static"] else structure["fields"]["inner"]
    owner["static"]["sampler"]["name"] = "shuffle"
    with pytest.raises(InputError, match="sampler 'shuffle' is unknown"):
        decode(structure, arrays)


def test_decaying_noise_spends_geometrically():
    _, _, (_, (record,)), _ = pick(grid("noisygd"), MIDDLE, 0)
    ratios = (record.noise_multiplier[:-1] / record.noise_multiplier[1:]) ** 2
    np.testing.assert_allclose(ratios, math.exp(0.7 / STEPS), rtol=1e-4)


# ---------------------------------------------------------------------------------------------------------- the queries
@every_case("queries")
def test_it_asks_exactly_the_queries_and_mechanisms_it_declares(name):
    case = CASES[name]
    _, _, (first, records), _ = grid(name)
    assert tuple(record.query for record in first) == case.first
    assert tuple(record.query for record in records) == case.each
    assert {record.mechanism for record in [*first, *records]} == set(case.protector.mechanisms)


@every_case("adaptive")
def test_it_says_truly_whether_its_noise_depends_on_the_rows(name):
    case, noise = CASES[name], Simulation(KEY)
    here, protector = setup_of(case, BUDGETS[2]), case.at(BUDGETS[2])
    # Steps of 10 lower the loss only if labels depend on the features.
    if isinstance(protector, AGD):
        protector = protector.replace(**logs(max_step=200.0))
    elif isinstance(protector, AveragedWithPublic):
        protector = protector.replace(inner=protector.inner.replace(**logs(max_step=200.0)))
    other = OTHER_ROWS
    if getattr(protector, "base_rate", None) is not None:
        # A second purchase depends on how uneven classes are.
        other = other.replace(y=jnp.ones_like(other.y))
    ends, asked = [], []
    for rows in (ROWS, other):
        begun, first = jit_start(protector, ZERO, rows, here, noise)
        ended, records, _ = jit_advance(protector, begun, rows, here, noise, num_steps=STEPS)
        ends.append(ended.params)
        asked.append(
            [(np.asarray(record.noise_multiplier), np.asarray(record.granted)) for record in [*first, *records]]
        )
    same = all(
        np.array_equal(*pair) for one, other in zip(*asked, strict=True) for pair in zip(one, other, strict=True)
    )
    assert same is not protector.adaptive_noise
    assert not np.array_equal(*ends)  # the rows did matter


# ------------------------------------------------------------------------------------------------------------- replays
@every_case("vmapped")
def test_a_run_vmapped_over_budgets_and_seeds_is_the_run_alone(name):
    case = CASES[name]
    setups = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(setup_of(case, budget) for budget in BUDGETS))

    protectors, axis = case.protector, None
    if case.method is not None:
        protectors, axis = jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(case.at, BUDGETS)), 0

    def one(protector, here, key):
        return run(protector, ZERO, ROWS, here, key)

    keys, seeds = jax.random.split(KEY, SEEDS), jax.vmap(one, (None, None, 0))
    together = jax.device_get(jax.jit(jax.vmap(seeds, (axis, 0, None)))(protectors, setups, keys))
    params, ended, (first, records), _ = together
    alone, alone_ended, (alone_first, alone_records), _ = grid(name)
    np.testing.assert_allclose(params, alone, rtol=2e-4, atol=2e-5)
    assert np.array_equal(ended.step, alone_ended.step)
    for one, other in zip([*first, *records], [*alone_first, *alone_records], strict=True):
        assert np.array_equal(one.granted, other.granted)
        np.testing.assert_allclose(one.noise_multiplier, other.noise_multiplier, rtol=1e-4)


@every_case("parts")
def test_a_run_in_parts_is_the_run_in_one_piece_bit_for_bit(name):
    chex.assert_trees_all_equal(single(name, parts=(PART, PART, PART)), single(name))


@every_case("without jit")
def test_a_run_without_jit_is_the_run_with_it(name):
    case = CASES[name]
    here, noise = setup_of(case), Simulation(jax.random.split(KEY, SEEDS)[0])
    with jax.disable_jit():
        current, _ = start(case.protector, ZERO, ROWS, here, noise)
        current, records, _ = advance(case.protector, current, ROWS, here, noise, PART)
    _, jitted, (_, jitted_records), _ = single(name, parts=(PART,))
    chex.assert_trees_all_close(current, jitted, rtol=2e-4, atol=2e-5)
    chex.assert_trees_all_close(records, jitted_records, rtol=2e-4)


@every_case("seeds")
def test_seeds_differ_and_the_same_seed_is_the_same_run(name):
    params = grid(name)[0]
    assert len(np.unique(params.reshape(-1, D + 1), axis=0)) == len(BUDGETS) * SEEDS
    case = CASES[name]
    here, noise = setup_of(case), Simulation(jax.random.split(KEY, SEEDS)[0])
    again, _ = jit_start(case.protector, ZERO, ROWS, here, noise)
    again, _, _ = jit_advance(case.protector, again, ROWS, here, noise, num_steps=STEPS)
    chex.assert_trees_all_equal(jax.device_get(again), single(name)[1])


@every_case("release")
def test_a_release_in_chunks_is_the_release_in_one_piece_and_within_budget(name):
    case = CASES[name]
    here = setup_of(case)
    first, steps = plan_noise(case.protector, ZERO, N, D, here)
    begun, drawn = Entropy(1).draw(first, 1), Entropy(2).draw(steps, STEPS)
    jit_chunk, ends = jax.jit(advance, static_argnames="num_steps"), []
    for parts in ((STEPS,), (PART, PART, PART)):
        with jax.enable_x64(True):
            current, bought = jit_start(case.protector, ZERO, ROWS, here, Release(begun, [], first, ()))
            at, later = 0, []
            for part in parts:
                noise = Release([], [bits[at : at + part] for bits in drawn], (), steps)
                current, records, _ = jit_chunk(case.protector, current, ROWS, here, noise, num_steps=part)
                later.append(records)
                at += part
        ends.append(current)
        granted = answered(trace_rows(bought, later))
        case_filter = filter_of(case)
        assert 0 < case_filter.spent(granted) <= case_filter.limit
    chex.assert_trees_all_equal(*ends)
    assert {leaf.dtype.name for leaf in jax.tree.leaves(ends[0])} <= {"float32", "int32", "bool"}
    assert int(ends[0].step) > 0


@every_case("one trace")
def test_hyper_parameters_budgets_seeds_and_table_sizes_share_one_trace(name):
    case, count = CASES[name], 0

    def counted(*arguments):
        nonlocal count
        count += 1
        return run(*arguments)[0]

    jitted, here = jax.jit(counted), setup_of(case)
    jitted.lower(case.protector, ZERO, ROWS, here, KEY)
    jitted.lower(perturbed(case.protector), ZERO + 1, OTHER_ROWS, here, jax.random.key(99))
    jitted.lower(case.protector, ZERO, ROWS, setup_of(case, BUDGETS[0], num_rows=f32(7)), KEY)
    assert count == 1
    jitted.lower(of_length(case.protector, 2), ZERO, ROWS, here, KEY)
    assert count == 2


# -------------------------------------------------------------------------------------------------------------- limits
def unlimited(accountant):
    """A budget so large that its noise, about 1e-6 on a mean gradient, is below the tolerance of the limits."""
    here = setup(accountant)
    return here.replace(price_list=here.price_list.replace(budget=f32(1e12)), cap=f32(1e12))


def naive_gradient(params, lines, y):
    return (special.expit(lines @ params) - y) @ lines / len(y)


def naive_lines(center=0.0, scale=1.0):
    return np.c_[(np.asarray(ROWS.x, float) - center) * scale, np.full(N, INTERCEPT_COLUMN)]


LABELS = np.asarray(ROWS.y, float)


def plain_descent(rate, momentum=0.0, lines=None):
    lines, params, trace = naive_lines() if lines is None else lines, np.zeros(D + 1), np.zeros(D + 1)
    for _ in range(STEPS):
        trace = momentum * trace + naive_gradient(params, lines, LABELS)
        params = params - rate * trace
    return params


def plain_automatic(rate, stability):
    lines, params = naive_lines(), np.zeros(D + 1)
    for _ in range(STEPS):
        gradients = (special.expit(lines @ params) - LABELS)[:, None] * lines
        gradients /= np.linalg.norm(gradients, axis=1, keepdims=True) + stability
        params = params - rate * gradients.mean(0)
    return params


def plain_adadp(rate, tolerance):
    lines, params, rates = naive_lines(), np.zeros(D + 1), [rate]
    for _ in range(STEPS):
        gradient = naive_gradient(params, lines, LABELS)
        full, middle = params - rate * gradient, params - rate / 2 * gradient
        half = middle - rate / 2 * naive_gradient(middle, lines, LABELS)
        error = np.linalg.norm((full - half) / np.maximum(1.0, np.abs(full)))
        params = half if error <= tolerance else params
        rate *= min(max(math.sqrt(tolerance / error), 0.9), 1.1)
        rates.append(rate)
    return params, rates


def plain_adam():
    params, mean, square = np.zeros(D + 1), np.zeros(D + 1), np.zeros(D + 1)
    for step in range(1, STEPS + 1):
        gradient = naive_gradient(params, naive_lines(), LABELS)
        mean, square = 0.8 * mean + 0.2 * gradient, 0.999 * square + 0.001 * gradient**2
        params = params - 0.2 * mean / (1 - 0.8**step) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
    return params


def plain_agd():
    """Exact line search along the normalised gradient, in AGD's own window of ten moves."""
    params, most, largest, moves = np.zeros(D + 1), 2.0, 0.0, 0
    lines = naive_lines()
    for _ in range(STEPS):
        gradient = naive_gradient(params, lines, LABELS)
        direction = gradient / np.linalg.norm(gradient) + 0.01 * params
        sizes = most * np.arange(21) / 20
        margins = lines @ (params - np.outer(sizes, direction)).T
        best = np.argmin((np.logaddexp(0, margins) - LABELS[:, None] * margins).sum(0))
        params = params - sizes[best] * direction
        if best:
            moves, largest = moves + 1, max(largest, sizes[best])
            if moves % 10 == 0:
                most, largest = min(1.1 * largest, 2.0), 0.0
    return params


def plain_centred():
    center = np.asarray(ROWS.x, float).mean(0)
    scale = 1.5 / math.sqrt((center * (1 - center)).sum() + 0.01)
    mapped = plain_descent(math.exp(0.5), lines=naive_lines(center, scale))
    weights = mapped[:D] * scale
    return np.append(weights, mapped[D] - weights @ center / INTERCEPT_COLUMN)


WIDE = Decaying(jnp.log(f32([30.0])), f32([0.0]))
LIMITS = {
    "gradient descent": (Stepwise(WIDE, sgd(2.0, 0.0)), lambda: plain_descent(2.0)),
    "momentum": (Stepwise(WIDE, sgd(1.0, 0.5)), lambda: plain_descent(1.0, 0.5)),
    "sgd_adv": (
        HAND_DESIGNED["sgd_adv"](BUDGETS[0], num_rows=N).replace(scheduler=WIDE, sampler=FullBatch()),
        lambda: plain_descent(0.1),
    ),
    "adam": (Stepwise(WIDE, ADAGRAD_LIKE), plain_adam),
    "adadp": (
        ADADP.replace(**logs(clip_norm=30.0, learning_rate=5.5, tolerance=0.22)),
        lambda: plain_adadp(5.5, 0.22)[0],
    ),
    "automatic clipping": (
        AutoClip(EVEN, sgd(0.5, 0.0), **logs(stability=0.01)),
        lambda: plain_automatic(0.5, 0.01),
    ),
    "automatic clipping, large constant": (
        AutoClip(EVEN, sgd(6e3, 0.0), **logs(stability=3e3)),
        lambda: plain_descent(2.0),
    ),
    "agd": (
        GREEDY.replace(
            **logs(gradient_clip=30.0, loss_clip=30.0, gradient_share=1e-2, selection_share=1e-2, max_step=2.0)
        ),
        plain_agd,
    ),
    "centred mixture": (
        Stepwise(
            WIDE,
            MixProjector(f32([[0.5, 0.0]]), f32([[60.0, 0, 0, 0, 0]])),
            Centering(f32([0.0]), f32(-1.2), f32(5.0), f32(1.5)),
        ),
        plain_centred,
    ),
}


@pytest.mark.parametrize("limit_name", LIMITS)
def test_with_a_huge_budget_and_clip_norm_it_is_the_method_without_privacy(limit_name):
    protector, reference = LIMITS[limit_name]
    accountant = "rdp" if isinstance(protector, AGD) else "gdp"
    params, ended, _, _ = jax.jit(run)(protector.replace(num_steps=STEPS), ZERO, ROWS, unlimited(accountant), KEY)
    assert int(ended.step) == STEPS
    np.testing.assert_allclose(params, reference(), rtol=3e-4, atol=2e-4)
    assert np.abs(params).max() > 0.1


def test_the_reference_of_adadp_changes_its_rate_by_less_than_the_most():
    _, rates = plain_adadp(5.5, 0.22)
    assert 1.005 < rates[1] / rates[0] < 1.02 < rates[2] / rates[1]


@pytest.mark.parametrize(("tolerance", "change", "moves"), [(1e9, 1.1, True), (1e-9, 0.9, False)])
def test_adadp_without_error_takes_larger_steps_and_with_nothing_but_error_none(tolerance, change, moves):
    protector = ADADP.replace(**logs(tolerance=tolerance), num_steps=STEPS)
    params, ended, _, _ = jax.jit(run)(protector, ZERO, ROWS, unlimited("gdp"), KEY)
    np.testing.assert_allclose(ended.state.log_rate, math.log(0.4) + STEPS * math.log(change), rtol=1e-5)
    assert np.any(params != 0) == moves


def test_adadp_pays_for_both_gradients_alike():
    _, _, (_, (first, second)), _ = pick(grid("adadp"), MIDDLE, 0)
    np.testing.assert_allclose(first.cost, second.cost, rtol=1e-5)
    np.testing.assert_allclose(first.noise_multiplier, first.noise_multiplier[0], rtol=1e-4)
    assert float(first.cost.sum()) == pytest.approx(float(setup_of(CASES["adadp"]).price_list.budget) / 2, rel=1e-3)


@pytest.mark.parametrize(("first", "factor"), [(0.5, None), (3.0, None), (0.01, 4.0), (300.0, 0.25)])
def test_hyfree_without_noise_takes_the_step_of_an_exact_line_search_or_goes_as_far_towards_it_as_it_may(first, factor):
    protector = HYFREE.replace(**logs(learning_rate=first, loss_clip=3e4), interval=1, num_steps=1)
    here = Setup.create(Square(), Adjacency.ZERO_OUT, Filter("gdp", BUDGETS[0]).price_list(), N)
    here = here.replace(price_list=here.price_list.replace(budget=f32(1e15)), cap=f32(1e15))
    params, ended, _, _ = jax.jit(run)(protector, ZERO, ROWS, here, KEY)
    lines = naive_lines()
    gradients = -LABELS[:, None] * lines
    direction = (gradients / (np.linalg.norm(gradients, axis=1, keepdims=True) + 0.1)).mean(0)
    best = gradients.mean(0) @ direction / np.mean(np.square(lines @ direction))
    assert 0.75 < best < 2.0  # within a factor of 4 of the first two rates
    rate = best if factor is None else first * factor
    np.testing.assert_allclose(math.exp(ended.state.log_rate), rate, rtol=3e-3)
    np.testing.assert_allclose(params, -rate * direction, rtol=4e-3, atol=1e-4)


def test_hyfree_probes_cost_their_share_and_its_other_queries_the_rest_alike():
    _, _, (_, (first, probe, second)), _ = pick(grid("hyfree"), MIDDLE, 0)
    budget = float(setup_of(CASES["hyfree"]).price_list.budget)
    assert float(probe.cost.sum()) == pytest.approx(special.expit(1.0) * budget, rel=1e-3)
    np.testing.assert_allclose(first.cost, second.cost, rtol=1e-4)
    np.testing.assert_allclose(probe.cost, probe.cost[0], rtol=1e-3)


def test_hyfree_changes_its_rate_by_what_a_probe_proves_and_not_by_its_noise():
    rng = np.random.default_rng(0)
    before, here, after = rng.normal(size=(3, 20_000))
    for doubt, low, high in ((2.0, 0.0, 0.05), (0.0, 0.7, 1.1)):
        change = _least_change(before - after, 2**0.5 * doubt, 2 * (before - 2 * here + after), 24**0.5 * doubt)
        assert low <= np.mean(np.asarray(change) != 0) < high
    # An accurate slope and a curvature dominated by noise: the rate may still rise.
    assert float(_least_change(f32(1.0), f32(0.1), f32(-0.05), f32(0.2))) == pytest.approx(math.log(4.0))
    assert float(_least_change(f32(0.9), f32(0.1), f32(0.2), f32(0.2))) == pytest.approx(math.log(2.0), rel=1e-5)
    assert float(_least_change(f32(0.3), f32(0.1), f32(1.0), f32(0.2))) == pytest.approx(math.log(0.5), rel=1e-5)
    assert float(_least_change(f32(-0.3), f32(0.1), f32(1.0), f32(0.2))) == pytest.approx(-math.log(4.0))
    for point in ((0.9, 0.1, 0.2, 0.2), (0.3, 0.1, 1.0, 0.2)):  # the accuracy of a probe has a derivative, too
        check_grads(_least_change, tuple(map(f32, point)), order=1, modes=["rev"], rtol=2e-2)
        assert np.all(np.asarray(jax.grad(_least_change, (0, 1, 2, 3))(*map(f32, point))) != 0)


def test_hyfrees_loss_bound_stays_within_what_the_oracle_takes():
    """Above it the run would end, at a step that depends on the losses, which are charged as separate queries."""
    protector = HYFREE.replace(**logs(loss_clip=2.0**41, loss_ratio=1e13), interval=1, num_steps=3)
    _, ended, _, _ = jax.jit(run)(protector, ZERO, ROWS, unlimited("gdp"), KEY)
    assert bool(ended.alive)
    assert float(ended.state.log_loss_clip) == pytest.approx(40 * math.log(2))


def test_the_averaged_iterate_is_their_mean_until_the_horizon():
    protector = Stepwise(WIDE, sgd(2.0, 0.0), averaging=f32([-20.0]), num_steps=STEPS)
    params, _, _, _ = jax.jit(run)(protector, ZERO, ROWS, unlimited("gdp"), KEY)
    iterates, current = [], np.zeros(D + 1)
    for _ in range(STEPS):
        current = current - 2.0 * naive_gradient(current, naive_lines(), LABELS)
        iterates.append(current)
    np.testing.assert_allclose(params, np.mean(iterates, 0), atol=1e-5)


def public_start(case, here, params):
    """The public start for raw rows: the given one, or what public rows make of it beside other private rows."""
    if not case.protector.needs_public:
        return params
    begun, _ = jit_start(case.protector, params, OTHER_ROWS, here, Simulation(jax.random.key(99)))
    return case.protector.finish(begun.params, begun.state, here)


@every_case("no budget")
def test_without_a_budget_only_the_public_start_is_released(name):
    case = CASES[name]
    here = setup_of(case, cap=f32(0.0))
    begun, first = jit_start(case.protector, ZERO, ROWS, here, Simulation(KEY))
    ended, records, _ = jit_advance(case.protector, begun, ROWS, here, Simulation(KEY), num_steps=STEPS)
    assert np.array_equal(case.protector.finish(ended.params, ended.state, here), public_start(case, here, ZERO))
    assert trace_rows(first, [records]) == []
    assert float(ended.spending.spent) == 0


@every_case("no steps")
def test_without_steps_only_the_public_start_is_released(name):
    case = CASES[name]
    # Rows that are mapped have their weights mapped back, which is exact for none: and what lies outside public
    # directions is lost.
    mapped = case.first or getattr(case.protector, "geometry", None) is not None
    here, start_params = setup_of(case), ZERO if mapped else ZERO + 0.3
    begun, _ = jit_start(case.protector, start_params, ROWS, here, Simulation(KEY))
    ended, _, _ = jit_advance(case.protector, begun, ROWS, here, Simulation(KEY), num_steps=0)
    chex.assert_trees_all_equal(begun, ended)
    released = np.asarray(case.protector.finish(ended.params, ended.state, here))
    expected = np.array(public_start(case, here, start_params))
    if TARGETS in case.first:  # its start is private, and paid for: the intercept, and nothing else
        assert float(begun.spending.spent) > 0
        assert released[-1] != expected[-1]
        expected[-1] = released[-1]
    assert np.array_equal(released, expected)


def test_the_non_private_protector_needs_an_unlimited_budget_and_then_finds_the_minimum():
    protector = HAND_DESIGNED["nonprivate"](BUDGETS[0])
    params, ended, _, _ = jax.jit(run)(protector, ZERO, ROWS, unlimited("gdp"), KEY)
    assert np.array_equal(params, ZERO)
    assert not bool(ended.alive)
    params, ended, (_, records), _ = jax.jit(run)(protector, ZERO, ROWS, setup("gdp", cap=f32(math.inf)), KEY)
    assert records[0].mechanism == "none"
    assert np.abs(naive_gradient(np.asarray(params, float), naive_lines(), LABELS)).max() < 2e-5
    assert np.abs(params).max() > 1


def test_without_features_the_minimum_is_the_log_odds_of_the_classes():
    protector = HAND_DESIGNED["no_features"](BUDGETS[0])
    params, _, _, _ = jax.jit(run)(protector, ZERO, ROWS, setup("gdp", cap=f32(math.inf)), KEY)
    share = (LABELS == 1).mean()
    np.testing.assert_allclose(INTERCEPT_COLUMN * params[-1], math.log(share / (1 - share)), atol=1e-3)
    assert abs(share - 0.5) > 0.02  # the start predicts even classes
    assert np.array_equal(params[:-1], ZERO[:-1])


# ------------------------------------------------------------------------------------------------------ meta-gradients
@functools.cache
def meta(name):
    """(protector, loss of a protector, its gradient): mean training loss of two seeds, as meta-training sees it."""
    case = CASES[name]
    here = setup_of(case, BUDGETS[2])

    def loss(protector):
        def one(key):
            params, ended, _, _ = run(protector, ZERO, ROWS, here, key)
            return jax.vmap(MODEL.loss, (None, 0, 0))(params, ROWS.x, ROWS.y).mean(), ended.step

        losses, steps = jax.vmap(one)(jax.random.split(KEY, 2))
        return losses.mean(), steps

    value_and_grad = jax.jit(jax.value_and_grad(loss, has_aux=True))
    protector = case.at(BUDGETS[2])
    (_, steps), gradient = value_and_grad(protector)
    return protector, jax.jit(loss), gradient, steps


_CHOICE = "it only shapes the noise of a choice of step size, which is discrete: tuning it needs a search"
_MOST = "every rate here changes by the most that is allowed, however well its probe is known; not so in batches"
_PUBLIC_CLIP = "the clipping norm is a quantile of public gradients, and this one is not used"
_NO_RIDGE = "there is no ridge, and the logarithm of nothing does not move"


def _ratios(place):
    why = "it only decides whether a price or a clipping norm changes, which is discrete"
    return {f".{place}scheduler.{name}": why for name in ("log_noise_ratio", "log_clip_ratio")}


#: Leaves without a derivative, and why.
SILENT = {
    "kalman, eigenbasis": {
        ".projector.log_unknown": "second moments are bought here, and in `kalman` they are not",
        ".projector.log_steepest": "likewise",
        ".projector.logit_return": "no prior becomes narrower here",
    },
    "kalman": {
        ".projector.spread_power": "all features have the same moment until second moments are bought",
        ".projector.log_steepest": "no step is as long as it allows; see test_kalman.py",
    },
    "agd": {".log_selection_share": _CHOICE, ".log_loss_clip": _CHOICE},
    "agd_gumbel": {".log_selection_share": _CHOICE, ".log_loss_clip": _CHOICE},
    "hyfree": {".log_loss_clip": _MOST, ".log_loss_ratio": _MOST},
    "dp_ls": {".log_scale": "it scales the margins of several classes, and here are two"},
    "linear_scaling": {".log_loss_clip": _CHOICE},
    "objpert": {".logit_share": "its ridge gives convexity for nothing, and none need be bought; in `amp` some is"},
    "objpert_paper": {".log_ridge": _NO_RIDGE, ".logit_share": "as published the share is a half, whatever it says"},
    "adamix": {".scheduler.scheduler.log_clip_norm": _PUBLIC_CLIP},
    "public_moments": {".scheduler.scheduler.log_clip_norm": _PUBLIC_CLIP},
    "amp": {".minimum.log_ridge": "more convexity is bought than it gives; in `objpert` it gives more"},
    "outpert_paper": {".log_ridge": _NO_RIDGE},
    "ppsgd": _ratios("inner."),
    "ppsgd_tight": _ratios("inner."),
    "ppgd": _ratios("inner."),
    "public growth, adam, maximum": _ratios(""),
    "agd_avg": {".inner.log_selection_share": _CHOICE, ".inner.log_loss_clip": _CHOICE},
    "shares, norm query, batches": {
        ".norm_query.log_clip_norm": "this norm is paid for and read by nobody; that of `paper, norm query` is read"
    },
}
#: What shapes rows before their eigenbasis is bought. Meta-gradients hold eigenvectors and eigenvalues still, and
#: differences move them: an eigenvector may even change its sign. Where `eigh` is held still they agree, see
#: test_eigenbasis.py.
BEFORE_BASIS = (
    ".base_rate.logit_share",
    ".centering",
    ".row_length",
    ".eigenbasis.logit_share",
    ".eigenbasis.row_norm",
)


@every_case("gradients")
def test_meta_gradients_are_finite_through_exhaustion_and_reach_the_parameters(name):
    protector, _, gradient, steps = meta(name)
    chex.assert_tree_all_finite(gradient)
    assert bool(np.all(steps < STEPS)) is CASES[name].exhausts  # the cap binds inside the scan
    chex.assert_trees_all_equal_shapes(protector, gradient)
    silent = [
        jax.tree_util.keystr(path)
        for path, leaf in jax.tree_util.tree_leaves_with_path(gradient)
        if not np.any(np.asarray(leaf))
    ]
    assert silent == list(SILENT.get(name, ()))


#: Cases whose loss jumps a little wherever a coordinate's momentum is dropped, and carries some 1e-5 of rounding,
#: because a return divides by a variance that starts from nothing: some step must be short enough for the one and long
#: enough for the other. Two of their leaves have slopes of 1e-4, which rounding hides at every step.
JUMPING = ("kalman", "kalman, eigenbasis")
JUMPING_STEPS = (3e-4, 1e-3, 3e-3, 1e-2)


@every_case("differences")
def test_meta_gradients_are_central_differences(name):
    """Along each leaf's own gradient, so that the slope is that gradient's norm. A silent leaf has no difference.

    The loss carries about 2e-7 of float32 rounding and a third derivative of order 1 to 1000 where it is steep, so a
    difference errs by 2e-7 / h + 100 h^2: a flat leaf is moved further.
    """
    protector, loss, gradient, steps = meta(name)
    leaves, structure = jax.tree.flatten(protector)
    turned = getattr(protector, "eigenbasis", None) is not None
    for index, (path, slopes) in enumerate(jax.tree_util.tree_leaves_with_path(gradient)):
        place, slope = jax.tree_util.keystr(path), float(np.linalg.norm(slopes))
        if turned and place.startswith(BEFORE_BASIS):
            continue
        direction = slopes / slope if slope else np.ones_like(slopes) / slopes.size**0.5
        differences = []
        for step in JUMPING_STEPS if name in JUMPING else (3e-3 if slope > 3e-3 else 1e-2,):
            values = []
            for sign in (1, -1):
                moved = [*leaves]
                moved[index] = leaves[index] + sign * step * direction
                value, taken = loss(jax.tree.unflatten(structure, moved))
                assert np.array_equal(taken, steps)  # both sides end after the same step, or no derivative exists
                values.append(float(value))
            differences.append((values[0] - values[1]) / (2 * step))
        expected = pytest.approx(slope, rel=0.05, abs=2e-4 if name in JUMPING else 3e-5)
        assert any(difference == expected for difference in differences), (place, differences, slope)
