"""Traces of equal queries, and what an accountant of fixed noise makes of them."""

from l2p.privacy import fixed
from l2p.privacy.cost.sampling import FullBatch, Poisson
from l2p.privacy.events import Adjacency, Answered

DELTA = 1e-8
RATE = 1000 / 30400
POISSON, FULL = Poisson(RATE), FullBatch()


def trace(noise_multiplier, num_steps, mechanism="gaussian"):
    return [Answered(step, mechanism, float(noise_multiplier)) for step in range(1, num_steps + 1)]


def price(name, answered, sampler=POISSON, adjacency=Adjacency.ZERO_OUT, delta=DELTA):
    return fixed.epsilon(name, answered, sampler, adjacency, delta)
