"""Runs of the cases of the conformance table, each made once, which several properties read."""

import dataclasses
import functools

import jax
import numpy as np

from l2p.oracle.setup import Setup
from l2p.oracle.trace import trace_of
from l2p.privacy import Filter
from l2p.run import run as runs
from l2p.run.run import Simulation
from tests.protectors.conformance import CASES
from tests.protectors.examples import BUDGETS, KEY, MIDDLE, MODEL, PUBLIC, ROWS, SEEDS, STEPS, ZERO, N


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
