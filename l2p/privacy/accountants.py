"""Accountants for full-batch runs: each prices a query at coefficient / noise_multiplier^2 and caps the sum.

The part in JAX decides inside a run; the part in float64 checks its trace afterwards. Sensitivity and adjacency are
already inside an event's noise multiplier, so no accountant sees them. Every price comes from one of

- gaussian: mu = 1 / noise_multiplier, and rho = mu^2 / 2 (Dong, Roth & Su 2022; Bun & Steinke 2016);
- gumbel: epsilon = 1 / noise_multiplier of bounded range, so rho = epsilon^2 / 8 (Cesar & Rogers 2021);
- exponential: epsilon = 1 / noise_multiplier, pure, so rho = epsilon^2 / 2 (Bun & Steinke 2016, Proposition 1.4).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from l2p.errors import InputError
from l2p.privacy import convert
from l2p.privacy.budget import Budget
from l2p.privacy.events import Event

Price = TypeVar("Price", float, jax.Array)

_RHO = {"gaussian": 1 / 2, "gumbel": 1 / 8, "exponential": 1 / 2}

#: For each accountant, why its cap holds although the noise of a query may depend on earlier answers.
THEOREM = {
    "gdp": "Gaussian-DP filter: while the sum of mu_t^2 stays within mu^2 the whole run is mu-Gaussian-DP, also when "
    "each mu_t depends on earlier answers (Smith & Thakurta 2022; Koskela, Tobaben & Honkela 2023).",
    "zcdp": "zCDP filter: while the sum of rho_t stays within rho the whole run is rho-zCDP, also when each rho_t "
    "depends on earlier answers (Whitehouse, Ramdas, Rogers & Wu 2023).",
    "rdp": "Renyi filter at one order fixed beforehand: while the divergences sum to within the budget, so does the "
    "whole run's, also when each depends on earlier answers (Feldman & Zrnic 2021; Lecuyer 2021).",
    "ctcdp": "Truncated CDP with its order bound fixed beforehand composes by adding rho (Bun, Dwork, Rothblum & "
    "Steinke 2018), also adaptively, by the Renyi filter (Feldman & Zrnic 2021) at every order below the bound.",
}
NAMES = tuple(THEOREM)

# With u = 2^-24, a price evaluated in float32 loses at most 8u: 2u for a multiplier cast from float64 (it is squared),
# u for the square, 4u for a division on a GPU (u on a CPU) and u for this product. 1 + 16u covers it twice, and stays
# a constant, so the price remains smooth. The coefficient itself is rounded up when planned.
_UP = 1 + 2.0**-20
# Within this range prices, noise multipliers and their derivatives (third powers) are normal float32 numbers.
# Less noise costs infinity, more noise is charged as the upper end: both err on the safe side.
_LEAST_NOISE, _MOST_NOISE = 2.0**-25, 2.0**40


@struct.dataclass
class Accountant:
    """Prices of queries and a cap on their sum; the cap and the coefficients may be stacked and vmapped.

    Attributes:
      name: one of `NAMES`; the price's unit is that accountant's own (mu^2, rho, or the divergence at one order).
      coefficients: mechanism to f32[], the price at noise multiplier 1.
      budget: f32[], rounded down.

    >>> accountant = plan("gdp", Budget(0.1, 1e-8))
    >>> round(float(accountant.price(Event("gaussian", jnp.float32(100.0)))), 6)
    0.0001
    >>> round(float(accountant.mu), 6)
    0.021769
    """

    name: str = struct.field(pytree_node=False)
    coefficients: dict[str, jax.Array]
    budget: jax.Array

    def price(self, event: Event) -> jax.Array:
        """f32[], never below the true price; differentiable in the noise multiplier, infinite where that is no noise.

        A mechanism this accountant has no theorem for raises `InputError` while tracing.
        """
        multiplier = jnp.asarray(event.noise_multiplier, jnp.float32)
        if event.mechanism == "none":
            return jnp.full_like(multiplier, jnp.inf)
        coefficient = _coefficient(self.name, self.coefficients, event.mechanism)
        noisy = multiplier >= _LEAST_NOISE  # false for NaN
        # The unused side of a `where` is differentiated too, so it divides by a safe value.
        safe = jnp.minimum(jnp.where(noisy, multiplier, 1.0), _MOST_NOISE)
        return jnp.where(noisy, coefficient / safe**2 * _UP, jnp.inf)

    def noise_multiplier(self, cost: jax.typing.ArrayLike, mechanism: str = "gaussian") -> jax.Array:
        """f32[], the least noise that `cost` pays for: its price is at most `cost`, and within 1e-5 of it.

        The multiplier stays between 2^-25 and 2^40, so costs that would leave that range pay for its ends.
        """
        coefficient = _coefficient(self.name, self.coefficients, mechanism)
        cost = jnp.clip(jnp.asarray(cost, jnp.float32), coefficient * _LEAST_NOISE**2, coefficient * _MOST_NOISE**2)
        # The price's own margin, and once more to cover the rounding of these two lines.
        return jnp.sqrt(coefficient * _UP) / jnp.sqrt(cost) * _UP

    @property
    def mu(self) -> jax.Array:
        """f32[], the signal-to-noise ratio of one Gaussian query that spends the whole budget."""
        return 1 / self.noise_multiplier(self.budget)


def plan(name: str, budget: Budget) -> Accountant:
    """The accountant `name` with the cap that certifies `budget`, for full-batch runs.

    >>> plan("zcdp", Budget(0.1, 1e-8)).name
    'zcdp'
    """
    coefficients, cap = _terms(name, budget)
    upward = {mechanism: jnp.asarray(_float32(value, math.inf)) for mechanism, value in coefficients.items()}
    return Accountant(name=name, coefficients=upward, budget=jnp.asarray(_float32(cap, 0.0)))


def plan_for_mu(name: str, mu: jax.Array) -> Accountant:
    """The accountant `name` with the cap of one Gaussian query at noise multiplier 1 / mu, for simulated budgets.

    Meta-training has no (epsilon, delta): it draws mu f32[] itself, which may be traced.

    >>> round(float(plan_for_mu("zcdp", jnp.float32(0.1)).budget), 6)
    0.005
    """
    if name not in ("gdp", "zcdp", "ctcdp"):
        raise InputError(f"accountant {name!r} depends on (epsilon, delta) beyond its cap; choose gdp, zcdp or ctcdp.")
    prices = {"gaussian": 1.0} if name == "gdp" else _RHO
    coefficients = {mechanism: jnp.float32(price) for mechanism, price in prices.items()}
    return Accountant(name, coefficients, prices["gaussian"] * jnp.square(mu))


def default_accountant(mechanisms: Iterable[str]) -> str:
    """The tightest accountant here that prices all of these mechanisms.

    >>> default_accountant({"gaussian"}), default_accountant({"gaussian", "gumbel"})
    ('gdp', 'rdp')
    """
    return "gdp" if set(mechanisms) <= {"gaussian", "none"} else "rdp"


def limit(name: str, budget: Budget) -> float:
    """The cap of accountant `name` in float64, in its own unit.

    >>> round(limit("gdp", Budget(0.1, 1e-8)), 7)
    0.0004739
    """
    return _terms(name, budget)[1]


def spent(name: str, budget: Budget, events: Sequence[tuple[str, float]]) -> float:
    """What (mechanism, noise multiplier) pairs cost together, in float64, each operation rounded up.

    Infinite if any multiplier is NaN or not above 0, or any answer carried no noise.

    >>> round(spent("gdp", Budget(0.1, 1e-8), [("gaussian", 100.0)] * 2), 9)
    0.0002
    """
    coefficients, _ = _terms(name, budget)
    total = 0.0
    for mechanism, noise_multiplier in events:
        if mechanism == "none":
            return math.inf
        coefficient = _coefficient(name, coefficients, mechanism)
        multiplier = float(noise_multiplier)
        square = math.nextafter(multiplier * multiplier, 0.0)
        if not (multiplier > 0 and square > 0):
            return math.inf
        cost = math.nextafter(coefficient / square, math.inf)
        total = math.nextafter(total + cost, math.inf)
    return total


def epsilon(name: str, budget: Budget, spent: float) -> float:
    """Epsilon at `budget.delta` of a run that cost `spent`, rounded up, if its noise was fixed in advance.

    For noise that depended on earlier answers this is no guarantee: `certify` then reports the cap.

    >>> round(epsilon("gdp", Budget(0.1, 1e-8), 0.0001), 3)
    0.044
    """
    _terms(name, budget)  # refuses an unknown name
    if spent == 0:
        return 0.0  # no query was answered; the conversions at a fixed order would still charge for delta
    delta = budget.delta
    if name == "gdp":
        return convert.gdp_epsilon(math.nextafter(math.sqrt(spent), math.inf), delta)
    if name == "zcdp":
        return convert.zcdp_epsilon(spent, delta)
    if name == "rdp":
        return max(convert.rdp_epsilon(spent, convert.planned_order(budget.epsilon, delta), delta), 0.0)
    return convert.ctcdp_epsilon(spent, convert.ctcdp(budget.epsilon, delta).omega, delta)


def certify(name: str, budget: Budget, events: Sequence[tuple[str, float]], adaptive: bool) -> float:
    """The epsilon that a finished run may print at `budget.delta`; never above `budget.epsilon`.

    Args:
      name: the accountant that ran as the filter.
      budget: the target it was planned for.
      events: every granted (mechanism, noise multiplier), in order.
      adaptive: whether any of them, or when the run stopped, depended on earlier answers; then the theorem covers the
        cap and not "what was spent so far".

    Raises:
      RuntimeError: the events cost more than the cap, which a run of this library cannot reach.

    >>> certify("gdp", Budget(0.1, 1e-8), [("gaussian", 100.0)], adaptive=True)
    0.1
    """
    total, cap = spent(name, budget, events), limit(name, budget)
    if not total <= cap:
        raise RuntimeError(
            f"the {name} accountant's float64 check finds {total!r} spent of {cap!r}, so {budget} does not hold; "
            "withhold the result and report this as a bug."
        )
    if adaptive:
        return budget.epsilon
    # Staying within the cap proves budget.epsilon by itself, so an upward rounding beyond it may be dropped.
    return min(epsilon(name, budget, total), budget.epsilon)


def _terms(name: str, budget: Budget) -> tuple[dict[str, float], float]:
    """Prices at noise multiplier 1 and the cap, in float64."""
    target = budget.epsilon, budget.delta
    if name == "gdp":
        return {"gaussian": 1.0}, math.nextafter(convert.gdp_mu(*target) ** 2, 0.0)
    if name == "zcdp":
        return _RHO, convert.zcdp_rho(*target)
    if name == "rdp":
        order = convert.planned_order(*target)
        return {mechanism: order * rho for mechanism, rho in _RHO.items()}, order * convert.zcdp_rho(*target)
    if name == "ctcdp":
        return _RHO, convert.ctcdp(*target).rho
    if name == "paper_13":
        raise InputError(
            "accountant 'paper_13' prices Poisson subsampling under that theorem's preconditions, but this run uses "
            "full batches, for which its price means nothing; use 'ctcdp', the same paper's measure, instead."
        )
    raise InputError(
        f"accountant {name!r} is unknown, so no guarantee could be stated; choose one of {', '.join(NAMES)}."
    )


def _coefficient(name: str, coefficients: Mapping[str, Price], mechanism: str) -> Price:
    """The price at noise multiplier 1, or a sentence that names the accountants that have one."""
    if mechanism in coefficients:
        return coefficients[mechanism]
    able = "zcdp, rdp or ctcdp" if mechanism in _RHO else "no accountant here"
    raise InputError(
        f"accountant {name!r} cannot price mechanism {mechanism!r}, so a run that asks it would have no guarantee; "
        f"{able} can: choose another accountant or another query."
    )


def _float32(value: float, toward: float) -> np.float32:
    """The nearest float32 that does not lie on the other side of `value` from `toward`."""
    rounded = np.float32(value)
    exact = float(rounded)  # compared as such, `value` would be cast to float32 first
    on_side = exact >= value if toward > value else exact <= value
    return rounded if on_side else np.nextafter(rounded, np.float32(toward))
