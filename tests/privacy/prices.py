"""Filters, divergences and mechanisms whose prices are checked."""

import numpy as np
from scipy.special import logsumexp

from l2p.privacy import (
    Adjacency,
    Budget,
    FixedSize,
    FullBatch,
    PermutationEpochs,
    Poisson,
)
from l2p.privacy.accountants import covering

#: Those that price Gaussian noise; `basic` is tested in test_objective.py.
WHOLE = tuple(name for name in covering(FullBatch()) if name != "basic")
BUDGET = Budget(0.1, 1e-8)
PRICED = [("gdp", "gaussian")] + [
    (name, mechanism) for name in ("zcdp", "rdp", "ctcdp") for mechanism in ("gaussian", "gumbel", "exponential")
]


def renyi(p, q, order):
    return logsumexp(order * np.log(p) + (1 - order) * np.log(q)) / (order - 1)


POISSON, FIXED, EPOCHS = Poisson(1000 / 30400), FixedSize(1000, 30400), PermutationEpochs(1000, 30400)
ZERO_OUT, ADD_REMOVE, REPLACE_ONE = Adjacency


#: Every combination that has a theorem: sampler, its accountants, its neighbours. All others are refused.
ALLOWED = [
    (FullBatch(), ("gdp", "zcdp", "rdp", "ctcdp", "moments", "strong_composition", "basic"), tuple(Adjacency)),
    (POISSON, ("rdp", "ctcdp", "pld", "moments", "strong_composition"), (ZERO_OUT, ADD_REMOVE, REPLACE_ONE)),
    (FIXED, ("rdp", "ctcdp", "paper_13", "strong_composition"), (REPLACE_ONE,)),
    (EPOCHS, ("gdp", "zcdp", "rdp", "ctcdp"), (ZERO_OUT, REPLACE_ONE)),
]
COMBINATIONS = [
    (name, sampler, adjacency) for sampler, names, adjacencies in ALLOWED for name in names for adjacency in adjacencies
]


#: Ledgers of fixed schedules all count as that of "pld" does.
AMPLIFIED = [
    (name, sampler, adjacency)
    for name, sampler, adjacency in COMBINATIONS
    if sampler in (POISSON, FIXED) and name not in ("moments", "strong_composition")
]
