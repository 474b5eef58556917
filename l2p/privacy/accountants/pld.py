"""Privacy loss distributions (PLD) of a trace whose noise was fixed beforehand, composed by dp-accounting.

The pair of distributions that represents a mechanism at noise multiplier m, on all rows or in Poisson batches:

- gaussian: N(0, m^2) against N(1, m^2), the exact worst case (Zhu, Dong & Wang 2022).
- laplace, gamma, exponential, gumbel: Laplace(m) against its shift by 1. While the true answer, or the scores, move by
  1 along a straight line, the logarithm of the probability of any event, and of its complement, moves at rate 1 / m at
  most; that of a threshold on a Laplace variable moves at exactly that rate, so no test distinguishes the ends better.
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from l2p.base.errors import InputError
from l2p.privacy.accountants.base import FixedTrace
from l2p.privacy.accountants.families import ENVELOPE, EnvelopeOnly
from l2p.privacy.accountants.gdp import ACCOUNTANT as GDP
from l2p.privacy.cost.sampling import FullBatch, PermutationEpochs, Poisson, Sampler
from l2p.privacy.events import Adjacency, Answered

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

# Losses are rounded to multiples of an interval h so that their mean and mean exponential are kept ("connect the
# dots"), which adds at most h^2 / 4 to the variance of each. This share of their root mean square keeps epsilon within
# 1e-3; above `_COARSEST` rounding matters even if the losses are large.
_SHARE, _COARSEST = 0.05, 1e-3
# The most grid points per query, roughly: losses over a wide range are large, so a coarser grid does no harm.
_MAX_POINTS = 2e5
# Noise multipliers are rounded down to this relative grid, so that nearly equal queries are composed together.
_GRID = 1e-6
# The share of delta that truncating tails may add over all compositions.
_TRUNCATED = 1e-4
# Probabilities pass through Fourier transforms in float64, which round either way: by up to 5e-17 in delta for each
# query, as compared with the exact Gaussian curve for 10 to 1e5 queries. Twice that is set aside.
_ROUNDING_BASE, _ROUNDING = 2e-15, 1e-16


class _Kind(NamedTuple):
    mechanism: str
    sampled: bool
    noise_multiplier: float


class PrivacyLossDistributions(EnvelopeOnly):
    """The sharpest accountant. Losses are rounded up.

    Gaussian queries on all rows, or by epochs, together are one Gaussian query, which is exact without a grid.

    Poisson batches are priced under zero_out and add_remove only. Under replace_one, dp-accounting composes the pair
    (1 - q) N(0, m^2) + q N(-+1, m^2), for which we know of no proof that it is the worst one (Lebeda, Regehr, Kamath &
    Steinke 2024 on such traps), and measures m by the clipping norm, not by the sensitivity of 2 clipping norms. A
    delta that float64 cannot distinguish from rounding (4e-15, and 2e-16 for each query) is refused, too.

    >>> trace = [Answered(1, "gaussian", 20.0)] * 50
    >>> round(ACCOUNTANT.epsilon_of(FixedTrace(trace, Poisson(1000 / 30400), Adjacency.ZERO_OUT, 1e-8)), 4)
    0.0528
    """

    name = row = "pld"
    theorem = f"Privacy loss distribution {ENVELOPE} (composition by dp-accounting; Koskela, Jalko & Honkela 2020)."
    samplers = (Poisson,)  # on all rows `gdp` is as sharp, and a filter
    counts = "privacy loss distributions, by dp-accounting"
    trains = False

    def covers(self, sampler: Sampler, adjacency: Adjacency, mechanism: str = "gaussian") -> bool:
        proved = adjacency is not Adjacency.REPLACE_ONE and mechanism == "gaussian"
        return proved and super().covers(sampler, adjacency, mechanism)

    def epsilon_of(self, trace: FixedTrace) -> float:
        answered, sampler = trace.answered, trace.sampler
        sampler.check_adjacency(trace.budget.adjacency)
        if any(query.mechanism == "none" or not query.noise_multiplier > 0 for query in answered):
            return math.inf
        if any(query.mechanism == "objective" for query in answered):
            raise InputError(
                "an objective perturbation is (epsilon, delta)-private as a whole, and of its privacy loss "
                "distribution nothing more is proved; choose accountant basic."
            )
        if not isinstance(sampler, Poisson) and all(query.mechanism == "gaussian" for query in answered):
            return _one_gaussian(trace)
        kinds = _kinds(answered, sampler, trace.budget.adjacency)
        return _composed(kinds, sampler.rate(), trace.delta) if kinds else 0.0


ACCOUNTANT = PrivacyLossDistributions()


def _one_gaussian(trace: FixedTrace) -> float:
    if isinstance(trace.sampler, (FullBatch, PermutationEpochs)):
        return GDP.epsilon_of(trace)
    raise InputError(
        f"no privacy loss distribution is proved for {trace.sampler}, so none can be composed; choose accountant rdp, "
        "or Poisson sampling."
    )


def _composed(kinds: Counter[_Kind], rate: float, delta: float) -> float:
    """Epsilon at delta of all these queries together."""
    rounding = _ROUNDING_BASE + _ROUNDING * kinds.total()
    if rounding > delta / 2:
        raise InputError(
            f"losses of {kinds.total()} queries are composed in float64, whose rounding drowns a delta of {delta:g}; "
            f"choose accountant rdp, or delta of at least {2 * rounding:.2g}."
        )
    interval = _interval(kinds, rate)
    tail = min(1e-15, _TRUNCATED * delta / (2 * len(kinds)))
    parts = [
        _losses(kind, rate, interval).self_compose(count, tail_mass_truncation=tail) for kind, count in kinds.items()
    ]
    # Short ones first: a composition costs as much as its longer part.
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=False)
        odd = parts[-1:] if len(parts) % 2 else []
        parts = [left.compose(right, tail_mass_truncation=tail) for left, right in pairs] + odd
    epsilon = float(parts[0].get_epsilon_for_delta(delta - rounding))
    return math.inf if math.isnan(epsilon) else epsilon  # a loss too large for a float


def _kinds(answered: Sequence[Answered], sampler: Sampler, adjacency: Adjacency) -> Counter[_Kind]:
    """Counts of each kind of query; Gaussian queries on all rows count as one."""
    if not isinstance(sampler, (FullBatch, Poisson)):
        raise InputError(
            f"no privacy loss distribution of these mechanisms is proved for {sampler}; choose accountant rdp or zcdp."
        )
    amplified = isinstance(sampler, Poisson)
    if amplified and adjacency is Adjacency.REPLACE_ONE:
        raise InputError(
            "the pair of distributions that dp-accounting composes for Poisson batches under replace_one is not proved "
            "to be the worst, so its epsilon might be too low; choose accountant rdp, or adjacency zero_out."
        )
    kinds: Counter[_Kind] = Counter()
    mu_squared = 0.0
    for query in answered:
        sampled = amplified and query.step > 0
        if query.mechanism == "sinh_normal":
            raise InputError(
                "mechanism 'sinh_normal' has no pair of distributions here, so its losses cannot be composed; choose "
                "accountant rdp."
            )
        if query.mechanism == "gaussian" and not sampled:
            mu_squared += query.noise_multiplier**-2
        else:
            kinds[_Kind(query.mechanism, sampled, _rounded_down(query.noise_multiplier))] += 1
    if mu_squared:
        kinds[_Kind("gaussian", False, _rounded_down(mu_squared**-0.5))] += 1
    return kinds


def _rounded_down(noise_multiplier: float) -> float:
    """The next lower multiplier on the grid: less noise, which is the safe side."""
    return math.exp(math.floor(math.log(noise_multiplier) / _GRID) * _GRID) * (1 - 1e-12)


def _interval(kinds: Counter[_Kind], rate: float) -> float:
    """Spacing of the grid of losses."""
    squares, longest = 0.0, 0.0
    for (_, sampled, noise_multiplier), count in kinds.items():
        mu, share = 1 / noise_multiplier, rate if sampled else 1.0
        # Root mean square of ln(1 - q + q e^(mu z - mu^2 / 2)) for small mu; too little for large ones, but then
        # `_COARSEST` or `_MAX_POINTS` decides.
        squares += count * (share * min(mu, 1.0)) ** 2
        # dp-accounting keeps normal variables up to 10 standard deviations.
        longest = max(longest, 10 * mu if share == 1 else math.log1p(share * math.expm1(min(10 * mu, 500.0))))
    return max(min(_SHARE * math.sqrt(squares / kinds.total()), _COARSEST), longest / _MAX_POINTS)


def _losses(kind: _Kind, rate: float, interval: float) -> "PrivacyLossDistribution":
    from dp_accounting.pld import privacy_loss_distribution

    share = rate if kind.sampled else 1.0
    if kind.mechanism == "gaussian":
        return privacy_loss_distribution.from_gaussian_mechanism(
            kind.noise_multiplier, value_discretization_interval=interval, sampling_prob=share
        )
    return privacy_loss_distribution.from_laplace_mechanism(
        kind.noise_multiplier, value_discretization_interval=interval, sampling_prob=share
    )
