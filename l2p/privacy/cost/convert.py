"""Budgets from (epsilon, delta) and back: float64 on the host, every rounding on the safe side.

Units: epsilon, rho and Renyi divergences use natural logarithms; `mu` is the mean shift of a unit normal; orders are
real numbers above 1. Throughout, L = ln(1 / delta). Inputs are those of a valid `Budget`: epsilon > 0, 0 < delta < 1.

Sources: Balle & Wang 2018 and Dong, Roth & Su 2022 (Gaussian curve); Bun & Steinke 2016 (zCDP); Bun, Dwork,
Rothblum & Steinke 2018 (tCDP); Canonne, Kamath & Steinke 2020, "CKS" (sharp Renyi conversion).
"""

import math
import sys
from collections.abc import Callable
from typing import NamedTuple, cast

from scipy.optimize import brentq, minimize_scalar
from scipy.special import erfcx, ndtr

from l2p.base.errors import InputError

# The closed forms below are good to about 1e-14, so this margin covers their float64 error many times over.
_DOWN, _UP = 1 - 1e-12, 1 + 1e-12
# The Gaussian curve is good to about 1e-11 and its root finder to 1e-12, both relative to delta.
_DELTA_MARGIN = 1 - 1e-9
# Three-point Gauss-Legendre rule on [-1, 1].
_GAUSS_LEGENDRE = ((-math.sqrt(0.6), 5 / 9), (0.0, 8 / 9), (math.sqrt(0.6), 5 / 9))


def log_inverse(delta: float) -> float:
    """L = ln(1 / delta).

    Raises:
      InputError: delta is 0, where no divergence bounds epsilon.

    >>> round(log_inverse(1e-8), 4)
    18.4207
    """
    if delta == 0:
        raise InputError(
            "delta is 0, which asks for pure differential privacy, but what is planned here adds noise that is never "
            "pure; choose a method whose noise is, such as bolt_on, or a delta above 0."
        )
    return -math.log(delta)


class CtCDP(NamedTuple):
    """Truncated concentrated privacy tied to one (epsilon, delta): D_a <= rho * a for all orders a in (1, omega)."""

    omega: float
    rho: float


def gdp_delta(mu: float, epsilon: float) -> float:
    """Smallest delta for which mu-Gaussian-DP implies (epsilon, delta)-DP: the exact trade-off, no bound.

    Phi(-low) - e^epsilon Phi(-high), with low and high = epsilon / mu -+ mu / 2 (Balle & Wang 2018, Theorem 8).
    Because high^2 - low^2 = 2 epsilon, e^epsilon Phi(-high) = e^(-low^2 / 2) erfcx(high / sqrt 2) / 2: no e^epsilon.

    >>> round(gdp_delta(1.0, 1.0), 6)
    0.126937
    """
    if mu == 0:
        return 0.0
    low, high = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    if low > 38:
        return sys.float_info.min  # an upper bound: float64 cannot represent the true value
    scale = math.exp(-low * low / 2) / 2
    if mu >= 0.1:
        return float(ndtr(-low) - scale * erfcx(high / math.sqrt(2)))
    # The two terms nearly cancel: integrate -erfcx'(z) = 2 / sqrt(pi) - 2 z erfcx(z) > 0 between the two points.
    centre, half = epsilon / mu / math.sqrt(2), mu / 2 / math.sqrt(2)
    nodes = ((centre + half * node, weight) for node, weight in _GAUSS_LEGENDRE)
    slope = sum(weight * (2 / math.sqrt(math.pi) - 2 * z * float(erfcx(z))) for z, weight in nodes)
    return scale * half * slope


def gdp_mu(epsilon: float, delta: float) -> float:
    """Largest mu such that mu-Gaussian-DP implies (epsilon, delta)-DP, from the safe (lower) side of the root.

    >>> round(gdp_mu(0.1, 1e-8), 6)
    0.021769
    """
    low = math.sqrt(2 * zcdp_rho_simple(epsilon, delta))  # mu^2 / 2 = rho for a Gaussian, and the bound is not tight
    high = 2 * low
    while gdp_delta(high, epsilon) <= delta:
        high *= 2
    target = delta * _DELTA_MARGIN
    return _root(lambda mu: math.log(gdp_delta(mu, epsilon) / target), low, high, xtol=1e-14 * low, rtol=1e-14)


def gdp_epsilon(mu: float, delta: float) -> float:
    """Smallest safe epsilon such that mu-Gaussian-DP implies (epsilon, delta)-DP, from the upper side of the root.

    >>> round(gdp_epsilon(0.021769, 1e-8), 5)
    0.1
    """
    target = delta * _DELTA_MARGIN
    if math.isinf(mu * mu):
        return math.inf
    if gdp_delta(mu, 0.0) <= target:
        return 0.0
    high = zcdp_epsilon_simple(mu * mu / 2, delta)
    root = _root(lambda eps: math.log(gdp_delta(mu, eps) / target), 0.0, high, xtol=1e-14 * high, rtol=1e-14)
    return root * _UP


def zcdp_rho_simple(epsilon: float, delta: float) -> float:
    """Root of rho + 2 sqrt(rho L) = epsilon (Bun & Steinke 2016, Proposition 1.3), without cancellation.

    >>> round(zcdp_rho_simple(0.1, 1e-8), 7)
    0.0001353
    """
    inverse = log_inverse(delta)
    root = epsilon / (math.sqrt(epsilon + inverse) + math.sqrt(inverse))
    return root * root * _DOWN


def zcdp_epsilon_simple(rho: float, delta: float) -> float:
    """Epsilon of rho-zCDP at delta by rho + 2 sqrt(rho L) (Bun & Steinke 2016, Proposition 1.3).

    >>> round(zcdp_epsilon_simple(1.353e-4, 1e-8), 3)
    0.1
    """
    return (rho + 2 * math.sqrt(rho * log_inverse(delta))) * _UP


def rdp_epsilon(rdp: float, order: float, delta: float) -> float:
    """Epsilon at delta of a mechanism whose Renyi divergence at one real `order` > 1 is `rdp` (CKS, Proposition 12).

    >>> round(rdp_epsilon(249.6 * 2.088e-4, 249.6, 1e-8), 3)
    0.1
    """
    return (rdp + _conversion_cost(order - 1, delta)) * _UP if rdp < math.inf else math.inf


def planned_order(epsilon: float, delta: float) -> float:
    """Order alpha* at which a Renyi budget for (epsilon, delta) admits the largest rho-zCDP total.

    For a given rho the best order solves rho (alpha - 1)^2 + ln alpha = L; putting that rho into CKS leaves one
    equation in alpha, whose left side falls from infinity at 1 to below 0 at 1 / delta: one root.

    >>> round(planned_order(0.1, 1e-8), 1)
    249.6
    """
    inverse = log_inverse(delta)

    def excess(log_x: float) -> float:
        x = math.exp(log_x)  # alpha - 1
        return (inverse - math.log1p(x)) * (2 * x + 1) / (x * x) - math.log1p(1 / x) - epsilon

    return 1 + math.exp(_root(excess, -300.0, math.log(math.expm1(inverse)), xtol=1e-12))


def zcdp_rho(epsilon: float, delta: float) -> float:
    """Largest rho whose zCDP implies (epsilon, delta)-DP by CKS, attained at `planned_order`.

    >>> round(zcdp_rho(0.1, 1e-8), 7)
    0.0002088
    """
    order = planned_order(epsilon, delta)
    return rdp_budget(order, epsilon, delta) / order * _DOWN


def rdp_budget(order: float, epsilon: float, delta: float) -> float:
    """Largest Renyi divergence at one real `order` > 1 that implies (epsilon, delta)-DP (CKS, Proposition 12).

    At most 0 if that order certifies nothing.

    >>> round(rdp_budget(249.6, 0.1, 1e-8) / 249.6, 7)
    0.0002088
    """
    cost = _conversion_cost(order - 1, delta)
    return epsilon - cost - 1e-12 * (epsilon + abs(cost))


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Epsilon at delta of rho-zCDP by CKS, the minimum over all real orders; `rho` must be fixed in advance.

    >>> round(zcdp_epsilon(2.088e-4, 1e-8), 3)
    0.1
    """
    if rho == 0 or math.isinf(rho):
        return rho
    inverse = log_inverse(delta)
    # Each term of rho x^2 + ln(1 + x) = L reaches L / 2 or L there, so the two ends enclose the root.
    low = 0.9 * min(math.expm1(inverse / 2), math.sqrt(inverse / 2 / rho))
    high = 1.1 * min(math.expm1(inverse), math.sqrt(inverse / rho))
    x = _root(lambda x: rho * x * x + math.log1p(x) - inverse, low, high, xtol=1e-12 * low)
    return max(rho * (1 + x) + _conversion_cost(x, delta), 0.0) * _UP


def zcdp_delta(rho: float, epsilon: float) -> float:
    """Delta at epsilon of rho-zCDP by CKS: any order gives a bound, so an inexact search can only raise it.

    >>> round(zcdp_delta(2.088e-4, 0.1) / 1e-8, 2)
    1.0
    """
    if rho == 0:
        return 0.0

    def log_delta(log_x: float) -> float:
        x = math.exp(log_x)  # alpha - 1
        return x * (rho * (1 + x) - epsilon) - (1 + x) * math.log1p(1 / x) - log_x

    # Without the logarithms the best order is (1 + epsilon / rho) / 2; they matter where that is near 1 or below.
    middle = math.log(max(epsilon / rho, 1.0))
    best = minimize_scalar(log_delta, bounds=(middle - 12, middle + 2), method="bounded", options={"xatol": 1e-9})
    return min(math.exp(float(best.fun)) * _UP, 1.0)


def ctcdp(epsilon: float, delta: float) -> CtCDP:
    """The paper's compact truncated concentrated privacy (Hong et al., Definition 0.1) for one (epsilon, delta).

    With a = L / epsilon: omega = 1 + a + sqrt(a (a + 1)) and rho = epsilon (sqrt(a + 1) - sqrt(a))^2. The rho printed
    in the paper is the other, spurious root of rho + 2 sqrt(rho L) = epsilon and guarantees nothing; this is the valid
    one, and omega = 1 + sqrt(L / rho) is the smallest order bound under which the simple conversion holds at it.

    >>> [round(value, 6) for value in ctcdp(0.1, 1e-8)]
    [369.912938, 0.000135]
    """
    a = log_inverse(delta) / epsilon
    return CtCDP(omega=1 + a + math.sqrt(a * (a + 1)), rho=epsilon / (math.sqrt(a + 1) + math.sqrt(a)) ** 2 * _DOWN)


def ctcdp_epsilon(rho: float, omega: float, delta: float) -> float:
    """Epsilon at delta of (rho, omega)-tCDP by the largest allowed order: rho omega + L / (omega - 1).

    Valid for any rho, and the best bound by orders below omega as long as (omega - 1)^2 rho <= L (Bun et al. 2018).

    >>> round(ctcdp_epsilon(1.353e-4, 369.9, 1e-8), 3)
    0.1
    """
    return (rho * omega + log_inverse(delta) / (omega - 1)) * _UP


def tcdp_epsilon(rho: float, omega: float, delta: float) -> float:
    """Epsilon at delta of (rho, omega)-tCDP with rho and omega fixed in advance (Bun et al. 2018, Lemma 6).

    >>> round(tcdp_epsilon(1.353e-4, 1e6, 1e-8), 3)
    0.1
    """
    if log_inverse(delta) <= (omega - 1) ** 2 * rho:
        return zcdp_epsilon_simple(rho, delta)
    return ctcdp_epsilon(rho, omega, delta)


def _conversion_cost(x: float, delta: float) -> float:
    """The term that CKS adds to a Renyi divergence at order 1 + x; takes x because 1 + x would round a small x away."""
    return (log_inverse(delta) - math.log1p(x)) / x - math.log1p(1 / x)


def _root(function: Callable[[float], float], low: float, high: float, xtol: float, rtol: float = 1e-12) -> float:
    """The root between `low` and `high`, by Brent's method."""
    return float(cast(float, brentq(function, low, high, xtol=xtol, rtol=rtol)))
