"""SGD-Adv's accountant: valid where its theorem is, and loose."""

import math

import pytest

from l2p.privacy import fixed
from l2p.privacy.cost.sampling import Poisson
from l2p.privacy.events import Adjacency
from tests.privacy.traces import DELTA, FULL, POISSON, price, trace


@pytest.mark.parametrize("steps", [1, 50])
def test_strong_composition_is_valid_and_loose(steps):
    for sampler, noise in ((FULL, 50.0), (POISSON, 20.0)):
        answered = trace(noise, steps)
        loose, sharp = price("strong_composition", answered, sampler), price("pld", answered, sampler)
        assert sharp < loose < 40 * sharp


def test_strong_composition_holds_up_to_a_textbook_epsilon_of_1():
    """Dwork & Roth 2014, Theorem A.1, is proved only there; beyond, the true delta may exceed the claimed one."""
    least = math.sqrt(2 * math.log(1.25 * 2 * 3 / DELTA))
    for sampler in (FULL, POISSON):
        assert price("strong_composition", trace(least * (1 + 1e-9), 3), sampler) < math.inf
        assert price("strong_composition", trace(least * (1 - 1e-9), 3), sampler) == math.inf
    rows = {row.name: row for row in fixed.table(trace(2, 3), POISSON, Adjacency.ZERO_OUT, DELTA)}
    assert rows["strong_composition"].epsilon is None
    assert "textbook epsilon before sampling is at most 1" in rows["strong_composition"].note


def test_strong_composition_is_no_less_than_solving_its_theorem():
    """Dwork, Rothblum & Vadhan 2010 for (e, d)-DP steps: e_t amplified exactly, half of delta for the composition."""
    for noise, steps, rate in ((40.0, 30, 0.01), (8.0, 5, 0.2), (60.0, 400, 0.03), (900.0, 2000, 1.0)):
        sampler = FULL if rate == 1 else Poisson(rate)
        base = math.sqrt(2 * math.log(1.25 * 2 * steps / DELTA)) / noise
        each = math.log1p(rate * math.expm1(base))
        solved = steps * each * math.expm1(each) + math.sqrt(2 * steps * math.log(2 / DELTA)) * each
        assert solved < price("strong_composition", trace(noise, steps), sampler) < 4.1 * solved
    # Where the second term outweighs the first, the closed form would not cover it.
    assert price("strong_composition", trace(30, 1000), FULL) == math.inf
