"""The cases that a property is tested on: every one, one of each kind, or those with derivatives of their own."""

import pytest

from tests.conftest import EVERY_CASE
from tests.protectors.conformance import CASES, EXCEPTIONS

#: Cases that resemble another one. Their derivatives are not tested, and .ci/full alone runs the rest of their tests,
#: with L2P_CASES=all.
ALIKE = {
    "adamix, learned": "adamix",
    "adamix_projected": "adamix",
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
    "dp_adam": "noisygd",
    "dp_adamw": "noisygd",
    "noisygd_pulled": "noisygd",
    "dp_adam_pulled": "deep",
    "agd_gumbel": "agd",
    "adadp, batches": "adadp",
    "adadp, permutation epochs": "adadp",
    "hyfree, batches": "hyfree",
    "outpert_paper": "outpert",
    "objpert_paper": "objpert",
    "networks": "networks, row length, eigenbasis",
    "LSTM scheduler, sgd": "paper",
    "shares, LSTM projector": "paper",
    "dpsgd, LSTM scheduler": "dpsgd",
    "permutation epochs, LSTM scheduler": "control, permutation epochs",
    "shares, norm query, batches": "paper, norm query",
    "kalman, eigenbasis": "control, eigenbasis",
    "kalman, public rows": "control, eigenbasis",
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
    "control, eigenbasis": "networks, row length, eigenbasis",
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
