"""The price of the best of K runs (Papernot and Steinke, ICLR 2022; Liu and Talwar, STOC 2019), in float64.

A base run releases a model with a private score and is rho-zCDP as a whole. It is repeated K times, K drawn at random,
and only the best run is released: neither K nor any other run. The number of candidates costs nothing, because a base
run draws its candidate at random. Each bound below holds at one Renyi order, and any order may be chosen afterwards.
"""

import abc
import dataclasses
import math

import numpy as np
from scipy.optimize import brentq, minimize_scalar
from scipy.special import gammaln

from l2p.base.errors import InputError
from l2p.privacy.cost import convert

_UP = 1 + 1e-12
# Orders are searched from 1 + 1e-4 to 1 / delta, beyond which the conversion cannot improve.
_MIN_LOG_ORDER, _GRID = math.log(1e-4), 60
_MIN_RHO = 1e-20
_BLOCK = 1024


class Repetitions(abc.ABC):
    """The public distribution of the number of runs, K.

    Attributes:
      theorem: the source of its price.
    """

    theorem: str

    @property
    @abc.abstractmethod
    def mean(self) -> float:
        """E[K]."""

    @abc.abstractmethod
    def log_pmf(self, k: np.ndarray) -> np.ndarray:
        """ln P[K = k] for f64[n] of whole numbers, starting at the smallest possible one."""

    @abc.abstractmethod
    def divergence(self, rho: float, order: float) -> float:
        """Renyi divergence at real `order` > 1 of the best run, where one run is rho-zCDP; rounded up."""

    def draw(self, uniform: float) -> int:
        """K by inversion of a number drawn uniformly from [0, 1)."""
        total, first = 0.0, 0
        while True:
            k = np.arange(first, first + _BLOCK)
            chances = total + np.cumsum(np.exp(self.log_pmf(k)))
            # The sum stops growing once terms fall below float64's resolution; it also stays put while small K have
            # probability 0.
            if chances[-1] > uniform or 0.0 < chances[-1] <= total:
                return int(k[min(np.searchsorted(chances, uniform, side="right"), _BLOCK - 1)])
            total, first = float(chances[-1]), first + _BLOCK


@dataclasses.dataclass(frozen=True)
class NegativeBinomial(Repetitions):
    """Truncated negative binomial: at least one run (Papernot and Steinke, Definition 1).

    P[K = k] is in proportion to (1 - gamma)^k Gamma(k + eta) / k!, k >= 1.

    Attributes:
      eta: shape above -1; 1 is the geometric law, 0 the logarithmic one. The larger, the closer K is to its mean and
        the higher the price.
      gamma: in (0, 1); the smaller, the more runs.

    >>> NegativeBinomial(1.0, 0.1).mean
    10.0
    """

    eta: float
    gamma: float
    theorem = "truncated negative binomial number of runs (Papernot & Steinke 2022, Theorem 2)"

    def __post_init__(self) -> None:
        """Check both."""
        if not (-1 < self.eta < math.inf and 0 < self.gamma < 1):
            raise InputError(
                f"eta {self.eta!r} and gamma {self.gamma!r} do not define a truncated negative binomial, so no theorem "
                "prices the runs; choose eta above -1 and gamma strictly between 0 and 1."
            )

    @classmethod
    def with_mean(cls, mean: float, eta: float = 0.0) -> "NegativeBinomial":
        """The law of this shape and E[K] = `mean` > 1.

        >>> round(NegativeBinomial.with_mean(10.0).gamma, 4)
        0.0269
        """

        def excess(log_gamma: float) -> float:
            return math.log(cls(eta, math.exp(log_gamma)).mean / mean)

        if not 1 < mean < math.inf or excess(-600.0) < 0:
            raise InputError(
                f"no truncated negative binomial of shape {eta!r} has {mean!r} runs on average; choose a mean above 1 "
                "and a shape of 0 or 1, say."
            )
        return cls(eta, math.exp(float(brentq(excess, -600.0, -1e-9, xtol=1e-13))))  # pyrefly: ignore

    @property
    def mean(self) -> float:
        return (1 / self.gamma - 1) / self._missing

    @property
    def _missing(self) -> float:
        """(1 - gamma^eta) / eta, whose limit at eta = 0 is ln(1 / gamma)."""
        log_gamma = math.log(self.gamma)
        return -math.expm1(self.eta * log_gamma) / self.eta if self.eta else -log_gamma

    def log_pmf(self, k: np.ndarray) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            log = k * math.log1p(-self.gamma) + self.eta * math.log(self.gamma) - math.log(self._missing)
            log += gammaln(k + self.eta) - gammaln(1 + self.eta) - gammaln(k + 1.0)
        return np.where(k >= 1, log, -np.inf)

    def divergence(self, rho: float, order: float) -> float:
        """Theorem 2, for a base of divergence e(a) = rho a at every order a:

            e(order) + (1 + eta) (1 - 1 / a) e(a) + (1 + eta) ln(1 / gamma) / a + ln E[K] / (order - 1), any a >= 1,

        where the best a is sqrt(ln(1 / gamma) / rho), or 1 if that is smaller.
        """
        log_inverse = -math.log(self.gamma)
        choice = 2 * math.sqrt(rho * log_inverse) - rho if rho < log_inverse else log_inverse
        return (order * rho + (1 + self.eta) * choice + math.log(self.mean) / (order - 1)) * _UP


@dataclasses.dataclass(frozen=True)
class PoissonRuns(Repetitions):
    """A Poisson number of runs; if it is 0, nothing is learned.

    Attributes:
      rate: E[K], at least 1.

    >>> round(PoissonRuns(10.0).divergence(1e-3, 50.0), 4)
    0.2621
    """

    rate: float
    theorem = "Poisson number of runs (Papernot & Steinke 2022, Theorem 6)"

    def __post_init__(self) -> None:
        """Check the mean."""
        if not 1 <= self.rate < math.inf:
            raise InputError(f"{self.rate!r} runs on average are priced by no theorem here; choose 1 or more.")

    @property
    def mean(self) -> float:
        return self.rate

    def log_pmf(self, k: np.ndarray) -> np.ndarray:
        return k * math.log(self.mean) - self.mean - gammaln(k + 1.0)

    def divergence(self, rho: float, order: float) -> float:
        """Theorem 6: e(order) + E[K] delta' + ln E[K] / (order - 1), where the base is (ln(order / (order - 1)),
        delta')-DP; here delta' is that of rho-zCDP."""
        surprise = convert.zcdp_delta(rho, math.log1p(1 / (order - 1)))
        return (order * rho + self.mean * surprise + math.log(self.mean) / (order - 1)) * _UP


def total_epsilon(repetitions: Repetitions, rho: float, delta: float) -> float:
    """Epsilon at `delta` of releasing the best of K runs that are `rho`-zCDP each, score included; rounded up.

    >>> round(total_epsilon(NegativeBinomial.with_mean(10.0), 0.001, 1e-6), 3)
    0.325
    """

    def epsilon(log_x: float) -> float:
        order = 1 + math.exp(log_x)
        return convert.rdp_epsilon(repetitions.divergence(rho, order), order, delta)

    grid = np.linspace(_MIN_LOG_ORDER, -math.log(delta), _GRID)
    epsilons = [epsilon(float(log_x)) for log_x in grid]
    best = int(np.argmin(epsilons))
    ends = grid[max(best - 1, 0)], grid[min(best + 1, _GRID - 1)]
    refined = minimize_scalar(epsilon, bounds=ends, method="bounded", options={"xatol": 1e-9})
    return max(min(epsilons[best], float(refined.fun)), 0.0)


def base_rho(repetitions: Repetitions, epsilon: float, delta: float) -> float:
    """The largest rho of a base run, score included, whose best of K is (epsilon, delta)-DP; rounded down.

    A base run may also be mu-Gaussian-DP with mu = sqrt(2 rho), which implies rho-zCDP.

    Raises:
      InputError: no base run is private enough.

    >>> rho = base_rho(NegativeBinomial.with_mean(10.0), 1.0, 1e-6)
    >>> round(rho, 5), round(convert.zcdp_rho(1.0, 1e-6), 5)
    (0.00892, 0.02436)
    """
    if delta == 0:
        raise InputError(
            "delta is 0, which asks for pure differential privacy, but the choice among runs here is proved for a "
            "delta above 0; choose one, or l2p.release.tuning.split_tuning with methods whose noise is pure."
        )
    low, high = math.log(_MIN_RHO), math.log(convert.zcdp_rho(epsilon, delta))
    if total_epsilon(repetitions, math.exp(low), delta) > epsilon:
        raise InputError(
            f"the best of {repetitions.mean:g} runs on average is ({epsilon!r}, {delta!r})-DP for no base run; choose "
            "fewer runs, or a larger epsilon or delta."
        )
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if total_epsilon(repetitions, math.exp(middle), delta) <= epsilon else (low, middle)
    return math.exp(low)
