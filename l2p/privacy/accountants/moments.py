"""SGD-MA's accountant as in the paper (Abadi et al. 2016), kept for comparison."""

import math

import numpy as np

from l2p.base.errors import InputError
from l2p.privacy.accountants.base import FixedTrace
from l2p.privacy.accountants.families import ENVELOPE, EnvelopeOnly
from l2p.privacy.accountants.gaussians import noise_multipliers
from l2p.privacy.cost.renyi import Neighbours, divergence_up
from l2p.privacy.cost.sampling import FullBatch, Poisson, Sampler
from l2p.privacy.events import Adjacency

#: The largest moment that Abadi et al. 2016 count, as does the reference code of SGD-MA.
MAX_MOMENT = 32
_UP = 1 + 1e-12


class Moments(EnvelopeOnly):
    """The least over moments l = 1..32 of (sum of ln E e^(l loss) + ln(1 / delta)) / l, for Gaussian queries.

    It cannot certify less than ln(1 / delta) / 32, which is 0.576 at delta 1e-8, however much noise there is; `pld` has
    no such limit.

    >>> from l2p.privacy.events import Answered
    >>> trace = [Answered(1, "gaussian", 20.0)] * 50
    >>> round(ACCOUNTANT.epsilon_of(FixedTrace(trace, Poisson(1000 / 30400), Adjacency.ZERO_OUT, 1e-8)), 4)
    0.5779
    """

    name = row = "moments"
    theorem = f"Moments accountant, of moments 1 to {MAX_MOMENT} (Abadi et al. 2016), {ENVELOPE}."
    samplers = (FullBatch, Poisson)
    counts = "the moments accountant as published: moments 1 to 32, the simple conversion (Abadi et al. 2016)"

    def covers(self, sampler: Sampler, adjacency: Adjacency, mechanism: str = "gaussian") -> bool:
        proved = isinstance(sampler, FullBatch) or adjacency is not Adjacency.REPLACE_ONE
        return proved and mechanism == "gaussian" and super().covers(sampler, adjacency, mechanism)

    def epsilon_of(self, trace: FixedTrace) -> float:
        sampler, adjacency = trace.sampler, trace.adjacency
        if not isinstance(sampler, (FullBatch, Poisson)) or (
            isinstance(sampler, Poisson) and adjacency is Adjacency.REPLACE_ONE
        ):
            raise InputError(
                f"the moments accountant is proved for full batches, and for Poisson batches when a row leaves or "
                f"enters, not for {sampler} under {adjacency}; choose accountant rdp."
            )
        start, steps = noise_multipliers(self.name, trace)
        if not start.size + steps.size:
            return 0.0
        log_inverse = -math.log(trace.delta)
        start_rho = math.fsum(1 / start**2) / 2
        distinct, counts = np.unique(steps, return_counts=True)
        epsilons = []
        for moment in range(1, MAX_MOMENT + 1):
            order = moment + 1.0
            costs = divergence_up(distinct, sampler.rate(), order, Neighbours.ONE_SIDED) if steps.size else np.zeros(0)
            epsilons.append(start_rho * order + math.fsum(counts * costs) + log_inverse / moment)
        return min(epsilons) * _UP

    def floor(self, delta: float) -> str:
        return f"cannot certify below ln(1/delta) / {MAX_MOMENT} = {-math.log(delta) / MAX_MOMENT:.3g}"


ACCOUNTANT = Moments()
