"""SGD-Adv's accountant (Bassily, Smith & Thakurta 2014), as Lee & Kifer 2018 run it; kept for comparison."""

import math

import numpy as np

from l2p.base.errors import InputError
from l2p.privacy.accountants.base import FixedTrace
from l2p.privacy.accountants.families import ENVELOPE, EnvelopeOnly
from l2p.privacy.accountants.gaussians import noise_multipliers
from l2p.privacy.cost.sampling import FixedSize, FullBatch, PermutationEpochs, Poisson, Sampler
from l2p.privacy.events import Adjacency

_UP = 1 + 1e-12


class StrongComposition(EnvelopeOnly):
    """A closed form for T Gaussian queries.

    Each of them is the textbook Gaussian mechanism, m = sqrt(2 ln(1.25 / delta0)) / eps0 with delta0 = delta / 2T
    and eps0 <= 1 (Dwork & Roth 2014, Theorem A.1), which sampling amplifies to eps = 2 q eps0. Together they cost
    2 sqrt(2 ln(2 / delta) sum of eps^2): half of it is strong composition's main term (Dwork, Rothblum & Vadhan 2010),
    and the other half covers its second one, the sum of eps (e^eps - 1). Infinite where eps0 exceeds 1 or the second
    term exceeds that half.

    >>> from l2p.privacy.events import Answered
    >>> trace = [Answered(1, "gaussian", 20.0)] * 50
    >>> round(ACCOUNTANT.epsilon_of(FixedTrace(trace, Poisson(0.03), Adjacency.ZERO_OUT, 1e-8)), 3)
    1.789
    """

    name = row = "strong_composition"
    theorem = f"Strong composition (Dwork, Rothblum & Vadhan 2010; Bassily, Smith & Thakurta 2014) {ENVELOPE}."
    samplers = (FullBatch, Poisson, FixedSize)
    counts = "SGD-Adv's closed form (Bassily, Smith & Thakurta 2014; constants of Lee & Kifer 2018)"

    def covers(self, sampler: Sampler, adjacency: Adjacency, mechanism: str = "gaussian") -> bool:
        return mechanism == "gaussian" and super().covers(sampler, adjacency, mechanism)

    def epsilon_of(self, trace: FixedTrace) -> float:
        if isinstance(trace.sampler, PermutationEpochs):
            raise InputError(
                "strong composition needs batches that are drawn afresh, not permutation epochs; choose accountant gdp."
            )
        start, steps = noise_multipliers(self.name, trace)
        multipliers = np.concatenate([start, steps])
        if not multipliers.size:
            return 0.0
        base = math.sqrt(2 * math.log(2.5 * multipliers.size / trace.delta)) / multipliers
        if base.max() > 1:
            return math.inf
        # (e^x - 1) <= 2 x up to 1, so ln(1 + q (e^x - 1)) <= 2 q x (Balle, Barthe & Gaboardi 2018).
        amplified = np.repeat([1.0, min(2 * trace.sampler.rate(), 1.0)], [start.size, steps.size]) * base
        half = math.sqrt(2 * math.log(2 / trace.delta) * math.fsum(amplified**2))
        return 2 * half * _UP if math.fsum(amplified * np.expm1(amplified)) <= half else math.inf

    def note(self, trace: FixedTrace) -> str:
        del trace
        return "proved for queries whose textbook epsilon before sampling is at most 1."


ACCOUNTANT = StrongComposition()
