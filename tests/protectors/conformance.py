"""The conformance table: a row for every protector."""

import dataclasses

import jax.numpy as jnp

from l2p.privacy import Adjacency
from l2p.privacy.cost.sampling import FixedSize, PermutationEpochs, Poisson
from l2p.protectors import (
    HAND_DESIGNED,
    PNSGD,
    AdaSSP,
    ApproximateMinima,
    AutoClip,
    AveragedWithPublic,
    BoltOn,
    Centering,
    Decaying,
    Eigenbasis,
    ObjectivePerturbation,
    OutputPerturbation,
    PrivateMeta,
    RowLength,
    Stepwise,
)
from l2p.protectors.by_hand.bolt_on import PassProtector
from l2p.protectors.hand_designed import HandDesigned
from l2p.protectors.stepwise.public_parts import OverCurvature, PublicClip, PublicFit, PublicSubspace, PublicSum
from tests.protectors.examples import (
    ADADP,
    ADAGRAD_LIKE,
    ADAPTIVE_KALMAN,
    ALONG,
    BUDGETS,
    CHOICE,
    CONTROL,
    COVARIANCE,
    DEEP,
    EIGENBASIS,
    EVEN,
    GRADIENT,
    GREEDY,
    GROWING,
    HYFREE,
    IN_BASIS,
    KALMAN,
    LENGTH,
    LOSS,
    LSTM,
    MEAN,
    MEAN_OF_ROWS,
    MIDDLE,
    NETWORKS,
    NORM,
    NORM_OF,
    NORMALIZED,
    PAIR,
    PPSGD,
    PUBLIC_PAIR,
    SCALED,
    SHARES,
    STEPS,
    TARGETS,
    WITH_PUBLIC,
    N,
    f32,
    gentle,
    logs,
    sgd,
    spender,
)


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
    "dp_adam": Case(),
    "dp_adamw": Case(),
    "dp_adambc": Case(),
    "dp_adam_scaled": Case(each=(SCALED,)),
    "disk": Case(),
    "noisygd_pulled": Case(),
    "dp_adam_pulled": Case(),
    "deep": Case(DEEP, first=("gradient_length",)),
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
    "networks": Case(NETWORKS, first=(MEAN,)),
    "control, eigenbasis": Case(CONTROL.with_purchases(EIGENBASIS), first=(MEAN, COVARIANCE), accountant="rdp"),
    "networks, row length, eigenbasis": Case(IN_BASIS.with_purchases(LENGTH), first=(MEAN, "row_length", COVARIANCE)),
    "control, public geometry": Case(ALONG),
    "kalman, eigenbasis": Case(KALMAN, first=(TARGETS, MEAN, "row_length", COVARIANCE)),
    "kalman": Case(ADAPTIVE_KALMAN.without(Centering, RowLength, Eigenbasis), first=(TARGETS, TARGETS)),
    "kalman, public rows": Case(WITH_PUBLIC, first=(TARGETS, MEAN, "row_length", COVARIANCE)),
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
    "adamix_projected": Case(gentle("adamix_projected")),
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
EXCEPTIONS |= {("vmapped", "bolt_on"): "its steps are planned for one budget, so that those of two are no one program"}
EXCEPTIONS |= {
    ("no steps", "kalman, public rows"): "its start is fitted to public rows beside the base rate that it has paid for"
}
EXCEPTIONS |= {
    ("differences", "adamix, learned"): "meta-gradients hold singular vectors still, and differences move them"
}
