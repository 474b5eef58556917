"""Accountants as papers published them, kept for comparison; valid only for noise that was fixed beforehand.

They price Gaussian queries, on all rows or sampled; each says which sampler it is proved for.
"""

import math
from collections.abc import Sequence

import numpy as np

from l2p.errors import InputError
from l2p.privacy import convert
from l2p.privacy.budget import Budget
from l2p.privacy.events import Adjacency, Answered
from l2p.privacy.prices import PAPER_FACTOR, PAPER_MOST
from l2p.privacy.renyi import Neighbours, divergence_up
from l2p.privacy.sampling import FullBatch, PermutationEpochs, Poisson, Sampler

#: Abadi et al. 2016 count moments up to this one, as does the reference code of SGD-MA.
MOST_MOMENT = 32
_UP = 1 + 1e-12


def moments(answered: Sequence[Answered], sampler: Sampler, adjacency: Adjacency, delta: float) -> float:
    """SGD-MA's accountant as in the paper (Abadi et al. 2016): epsilon at delta in nats.

    The least over moments l = 1..32 of (sum of ln E e^(l loss) + ln(1 / delta)) / l. It cannot certify less than
    ln(1 / delta) / 32, which is 0.576 at delta 1e-8, however much noise there is; `pld` is the same as it should be.

    Raises:
      InputError: other than full batches or Poisson batches, Poisson batches under replace_one, other mechanisms.

    >>> round(moments([Answered(1, "gaussian", 20.0)] * 50, Poisson(1000 / 30400), Adjacency.ZERO_OUT, 1e-8), 4)
    0.5779
    """
    if not isinstance(sampler, (FullBatch, Poisson)) or (
        isinstance(sampler, Poisson) and adjacency is Adjacency.REPLACE_ONE
    ):
        raise InputError(
            f"the moments accountant is proved for full batches, and for Poisson batches when a row leaves or enters, "
            f"not for {sampler} under {adjacency}; choose accountant rdp."
        )
    start, steps = _gaussians("moments", answered, sampler, adjacency, delta)
    if not start.size + steps.size:
        return 0.0
    log_inverse = -math.log(delta)
    start_rho = math.fsum(1 / start**2) / 2
    distinct, counts = np.unique(steps, return_counts=True)
    found = []
    for moment in range(1, MOST_MOMENT + 1):
        order = moment + 1.0
        costs = divergence_up(distinct, sampler.rate(), order, Neighbours.ONE_SIDED) if steps.size else np.zeros(0)
        found.append(start_rho * order + math.fsum(counts * costs) + log_inverse / moment)
    return min(found) * _UP


def tcdp(answered: Sequence[Answered], sampler: Sampler, adjacency: Adjacency, delta: float) -> float:
    """The rule of PPSGD (Wang & Zhou) and L2P (Hong et al.): epsilon at delta in nats.

    On all rows, and by epochs, rho = 1 / (2 m^2) adds up and epsilon = rho + 2 sqrt(rho ln(1 / delta)). A sampled query
    costs 13 q^2 rho up to order ln(1/q) / (4 rho) (Bun, Dwork, Rothblum & Steinke 2018, Theorem 11); infinite where the
    theorem's preconditions fail. It is proved for fixed-size batches under replace_one. The papers apply it to Poisson
    batches as well, where it is not proved.

    >>> round(tcdp([Answered(1, "gaussian", 20.0)] * 50, Poisson(1000 / 30400), Adjacency.ZERO_OUT, 1e-8), 3)
    0.255
    """
    start, steps = _gaussians("tcdp", answered, sampler, adjacency, delta)
    if not start.size + steps.size:
        return 0.0
    if not steps.size:
        return convert.zcdp_epsilon_simple(math.fsum(1 / start**2) / 2, delta)
    if tcdp_preconditions(answered, sampler) is not None:
        return math.inf
    rate, rhos = sampler.rate(), 1 / steps**2 / 2
    rho = math.fsum(1 / start**2) / 2 + PAPER_FACTOR * rate**2 * math.fsum(rhos)
    return convert.tcdp_epsilon(rho * _UP, -math.log(rate) / (4 * float(rhos.max())) * (1 - 1e-12), delta)


def tcdp_preconditions(answered: Sequence[Answered], sampler: Sampler) -> str | None:
    """Which precondition of `tcdp`'s theorem on sampled queries fails, as a sentence; None where all hold.

    They are q <= 0.1, rho <= 0.1 and ln(1/q) >= 3 rho (2 + log2(1/rho)); the last one follows from the first two,
    because its right side grows with rho and is 1.6 at 0.1, where ln(10) = 2.3.

    >>> tcdp_preconditions([Answered(1, "gaussian", 1.0)], Poisson(0.01))
    'a query costs rho = 0.5, but the theorem holds up to 0.1: choose a noise multiplier of at least 2.24.'
    """
    steps = [query.noise_multiplier for query in answered if query.step > 0]
    if not steps or isinstance(sampler, (FullBatch, PermutationEpochs)):
        return None
    rate, rho = sampler.rate(), 1 / min(steps) ** 2 / 2
    if rate > PAPER_MOST:
        return f"the sampling rate is {rate:.3g}, but the theorem holds up to {PAPER_MOST}: choose smaller batches."
    if rho > PAPER_MOST:
        least = math.sqrt(0.5 / PAPER_MOST)
        return (
            f"a query costs rho = {rho:.3g}, but the theorem holds up to {PAPER_MOST}: choose a noise multiplier of at "
            f"least {least:.2f}."
        )
    return None


def strong_composition(answered: Sequence[Answered], sampler: Sampler, adjacency: Adjacency, delta: float) -> float:
    """SGD-Adv's accountant (Bassily, Smith & Thakurta 2014), as Lee & Kifer 2018 run it: epsilon at delta in nats.

    Each of T queries is the textbook Gaussian mechanism, m = sqrt(2 ln(1.25 / delta0)) / eps0 with delta0 = delta / 2T
    and eps0 <= 1 (Dwork & Roth 2014, Theorem A.1), which sampling amplifies to eps = 2 q eps0. Together they cost
    2 sqrt(2 ln(2 / delta) sum of eps^2): half of it is strong composition's main term (Dwork, Rothblum & Vadhan 2010),
    and the other half covers its second one, the sum of eps (e^eps - 1). Infinite where eps0 exceeds 1 or it does not.

    Raises:
      InputError: permutation epochs, which amplify nothing; other mechanisms.

    >>> round(strong_composition([Answered(1, "gaussian", 20.0)] * 50, Poisson(0.03), Adjacency.ZERO_OUT, 1e-8), 3)
    1.789
    """
    if isinstance(sampler, PermutationEpochs):
        raise InputError(
            "strong composition needs batches that are drawn afresh, not permutation epochs; choose accountant gdp."
        )
    start, steps = _gaussians("strong_composition", answered, sampler, adjacency, delta)
    multipliers = np.concatenate([start, steps])
    if not multipliers.size:
        return 0.0
    base = math.sqrt(2 * math.log(2.5 * multipliers.size / delta)) / multipliers
    if base.max() > 1:
        return math.inf
    # (e^x - 1) <= 2 x up to 1, so ln(1 + q (e^x - 1)) <= 2 q x (Balle, Barthe & Gaboardi 2018).
    amplified = np.repeat([1.0, min(2 * sampler.rate(), 1.0)], [start.size, steps.size]) * base
    half = math.sqrt(2 * math.log(2 / delta) * math.fsum(amplified**2))
    return 2 * half * _UP if math.fsum(amplified * np.expm1(amplified)) <= half else math.inf


def _gaussians(
    accountant: str, answered: Sequence[Answered], sampler: Sampler, adjacency: Adjacency, delta: float
) -> tuple[np.ndarray, np.ndarray]:
    """Noise multipliers f64[...] of queries on all rows, and of sampled ones; epochs count their least noisy step."""
    sampler.check(Budget(1.0, delta, adjacency).adjacency)
    others = sorted({query.mechanism for query in answered} - {"gaussian"})
    if others:
        raise InputError(
            f"accountant {accountant!r} prices Gaussian queries only, but this trace has {', '.join(others)}; choose "
            "accountant rdp."
        )
    if not all(query.noise_multiplier > 0 for query in answered):
        raise InputError(
            f"accountant {accountant!r} needs noise multipliers above 0, because an answer without noise has no finite "
            "price; check the trace."
        )
    start = [query.noise_multiplier for query in answered if query.step == 0]
    steps = [query for query in answered if query.step > 0]
    if isinstance(sampler, PermutationEpochs):
        whole = start + _dearest(steps, sampler.steps_per_charge)
    elif isinstance(sampler, FullBatch):
        whole = start + [query.noise_multiplier for query in steps]
    else:
        return np.array(start), np.array([query.noise_multiplier for query in steps])
    return np.array(whole), np.zeros(0)


def _dearest(steps: Sequence[Answered], steps_per_charge: int) -> list[float]:
    """The noise multiplier of each epoch's dearest step, all its queries taken together."""
    per_step: dict[int, float] = {}
    for query in steps:
        per_step[query.step] = per_step.get(query.step, 0.0) + query.noise_multiplier**-2
    dearest: dict[int, float] = {}
    for step, cost in per_step.items():
        epoch = (step - 1) // steps_per_charge
        dearest[epoch] = max(dearest.get(epoch, 0.0), cost)
    return [cost**-0.5 for cost in dearest.values()]
