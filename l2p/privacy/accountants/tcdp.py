"""The 13 q^2 rho rule as PPSGD (Wang & Zhou) and L2P (Hong et al.) apply it, for comparison."""

import math
from collections.abc import Sequence

from l2p.privacy.accountants.base import Accountant, FixedTrace
from l2p.privacy.accountants.gaussians import noise_multipliers
from l2p.privacy.accountants.paper_13 import FACTOR, MAX_RATE, MAX_RHO
from l2p.privacy.cost import convert
from l2p.privacy.cost.sampling import FixedSize, FullBatch, PermutationEpochs, Poisson, Sampler
from l2p.privacy.events import Answered

_UP = 1 + 1e-12
_COEFFICIENTS = {"gaussian": 0.5}


class PapersRule(Accountant):
    """On all rows, and by epochs, rho = 1 / (2 m^2) adds up and epsilon = rho + 2 sqrt(rho ln(1 / delta)).

    A sampled query costs 13 q^2 rho up to order ln(1/q) / (4 rho) (Bun, Dwork, Rothblum & Steinke 2018, Theorem 11);
    infinite where the theorem's preconditions fail. It is proved for fixed-size batches under replace_one. The papers
    apply it to Poisson batches as well, where it is not proved.

    >>> from l2p.privacy.events import Adjacency
    >>> trace = [Answered(1, "gaussian", 20.0)] * 50
    >>> round(ACCOUNTANT.epsilon_of(FixedTrace(trace, Poisson(1000 / 30400), Adjacency.ZERO_OUT, 1e-8)), 3)
    0.255
    """

    name = row = "tcdp"
    theorem = (
        "Truncated CDP of noise fixed beforehand (Bun, Dwork, Rothblum & Steinke 2018), sampled queries at "
        "13 q^2 rho, which is proved for fixed-size batches alone."
    )
    samplers = (FullBatch, Poisson, FixedSize, PermutationEpochs)
    coefficients = _COEFFICIENTS
    proved = False

    def epsilon_of(self, trace: FixedTrace) -> float:
        start, steps = noise_multipliers(self.name, trace)
        if not start.size + steps.size:
            return 0.0
        if not steps.size:
            return convert.zcdp_epsilon_simple(math.fsum(1 / start**2) / 2, trace.delta)
        if failing_precondition(trace.answered, trace.sampler) is not None:
            return math.inf
        rate, rhos = trace.sampler.rate(), 1 / steps**2 / 2
        rho = math.fsum(1 / start**2) / 2 + FACTOR * rate**2 * math.fsum(rhos)
        return convert.tcdp_epsilon(rho * _UP, -math.log(rate) / (4 * float(rhos.max())) * (1 - 1e-12), trace.delta)

    def note(self, trace: FixedTrace) -> str:
        failing = failing_precondition(trace.answered, trace.sampler)
        if isinstance(trace.sampler, Poisson):
            return failing or "not proved for Poisson batches, to which the papers apply it."
        return failing or ""


def failing_precondition(answered: Sequence[Answered], sampler: Sampler) -> str | None:
    """The failing precondition of the theorem on sampled queries, as a sentence; None if all hold.

    They are q <= 0.1, rho <= 0.1 and ln(1/q) >= 3 rho (2 + log2(1/rho)); the last one follows from the first two,
    because its right side grows with rho and is 1.6 at 0.1, where ln(10) = 2.3.

    >>> failing_precondition([Answered(1, "gaussian", 1.0)], Poisson(0.01))
    'a query costs rho = 0.5, but the theorem holds up to 0.1: choose a noise multiplier of at least 2.24.'
    """
    steps = [query.noise_multiplier for query in answered if query.step > 0]
    if not steps or isinstance(sampler, (FullBatch, PermutationEpochs)):
        return None
    rate, rho = sampler.rate(), 1 / min(steps) ** 2 / 2
    if rate > MAX_RATE:
        return f"the sampling rate is {rate:.3g}, but the theorem holds up to {MAX_RATE}: choose smaller batches."
    if rho > MAX_RHO:
        least = math.sqrt(0.5 / MAX_RHO)
        return (
            f"a query costs rho = {rho:.3g}, but the theorem holds up to {MAX_RHO}: choose a noise multiplier of at "
            f"least {least:.2f}."
        )
    return None


ACCOUNTANT = PapersRule()
