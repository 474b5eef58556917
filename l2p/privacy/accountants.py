"""Filters: what is fixed before a run so that its cap holds, in float64; and the certificate after it.

A `Filter` is one accountant for one budget and one sampler. `Filter.price_list` is its float32 part, which decides
inside the run; `spent` and `certify` price the trace again with every operation rounded up. At noise multiplier m:

- gaussian: mu = 1 / m, and rho = mu^2 / 2 (Dong, Roth & Su 2022; Bun & Steinke 2016);
- laplace, gamma, exponential: epsilon = 1 / m, pure, so rho = epsilon^2 / 2 (Bun & Steinke 2016, Proposition 1.4);
- gumbel: epsilon = 1 / m of bounded range, so rho = epsilon^2 / 8 (Cesar & Rogers 2021);
- sinh_normal: rho = 8 / m^2 below order tail / 8 (Bun, Dwork, Rothblum & Steinke 2018);
- objective: (1 / m, delta), for which accountant `basic` takes the whole budget, and no other has a price.

Sampled: a Gaussian sum by `l2p.privacy.renyi`; pure epsilon shrinks to ln(1 + q (e^epsilon - 1)) (Balle, Barthe &
Gaboardi 2018); nothing costs more than on all rows. Permutation epochs amplify nothing: see `spent`.
"""

import dataclasses
import functools
import math
from collections.abc import Iterable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from l2p.errors import InputError
from l2p.privacy import convert
from l2p.privacy.budget import Budget
from l2p.privacy.events import Answered
from l2p.privacy.orders import order_for_steps
from l2p.privacy.prices import (
    DIVERGENCES,
    FIXED_SCHEDULES,
    PAPER_FACTOR,
    PAPER_MOST,
    SINH_ORDERS,
    WHOLE,
    PriceList,
    WholePriceList,
    coefficient_of,
    float32_down,
    float32_up,
)
from l2p.privacy.renyi import Neighbours, divergence_up
from l2p.privacy.sampling import FullBatch, PermutationEpochs, Sampler

_ENVELOPE = "of a public lower envelope of the noise, fixed beforehand for the whole run: noisier queries are a "
_ENVELOPE += "post-processing of it"

_RHO = {"gaussian": 1 / 2, "gumbel": 1 / 8, "exponential": 1 / 2, "laplace": 1 / 2, "gamma": 1 / 2}
_SINH_RHO = {"sinh_normal": 8.0}

#: For each accountant, why its cap holds although the noise of a query may depend on earlier answers.
THEOREM = {
    "gdp": "Gaussian-DP filter: while the sum of mu_t^2 stays within mu^2 the whole run is mu-Gaussian-DP, also when "
    "each mu_t depends on earlier answers (Smith & Thakurta 2022; Koskela, Tobaben & Honkela 2023).",
    "zcdp": "zCDP filter: while the sum of rho_t stays within rho the whole run is rho-zCDP, also when each rho_t "
    "depends on earlier answers (Whitehouse, Ramdas, Rogers & Wu 2023).",
    "rdp": "Renyi filter at one order fixed beforehand: while the divergences sum to within the budget, so does the "
    "whole run's, also when each depends on earlier answers (Feldman & Zrnic 2021; Lecuyer 2021).",
    "ctcdp": "Truncated CDP with its order bound fixed beforehand composes by adding rho (Bun, Dwork, Rothblum & "
    "Steinke 2018), also adaptively, by the Renyi filter (Feldman & Zrnic 2021) at the order bound.",
    "paper_13": "Truncated CDP with its order bound fixed beforehand, each query priced at 13 q^2 rho by the "
    "subsampling theorem for fixed-size batches, whose preconditions every query met (Bun, Dwork, Rothblum & Steinke "
    "2018, Theorem 11), composed by the Renyi filter (Feldman & Zrnic 2021) at the order bound.",
    "basic": "Objective perturbation: a single query that is (epsilon, delta)-private as a whole and takes the whole "
    "budget, so that nothing is composed (Kifer, Smith & Thakurta 2012; for generalized linear models, Redberg, "
    "Koskela & Wang 2023).",
    "pld": f"Privacy loss distribution {_ENVELOPE} (composition by dp-accounting; Koskela, Jalko & Honkela 2020).",
    "moments": f"Moments accountant, of moments 1 to 32 (Abadi et al. 2016), {_ENVELOPE}.",
    "strong_composition": f"Strong composition (Dwork, Rothblum & Vadhan 2010; Bassily, Smith & Thakurta 2014) "
    f"{_ENVELOPE}.",
}
NAMES = tuple(THEOREM)

_UNITS = {"basic": "epsilon", "gdp": "mu^2", "zcdp": "rho", "rdp": "divergence", "ctcdp": "rho", "paper_13": "rho"}
_UNITS |= dict.fromkeys(FIXED_SCHEDULES, "divergence")


@dataclasses.dataclass(frozen=True)
class Filter:
    """One accountant, planned for one budget and one sampler, in float64.

    Attributes:
      name: one of `NAMES`.
      budget: the target, with its adjacency.
      sampler: which rows the queries of a step read.
      num_steps: T, public; plans the Renyi order of sampled runs, which T equal steps then make best use of.
      fixed_order: the Renyi order itself, where it was planned before, as a card says.

    Raises:
      InputError: there is no theorem for this combination.

    >>> filter = Filter("gdp", Budget(0.1, 1e-8))
    >>> round(filter.limit, 7), round(filter.spent([Answered(1, "gaussian", 100.0)] * 2), 9)
    (0.0004739, 0.0002)
    """

    name: str
    budget: Budget
    sampler: Sampler = FullBatch()  # noqa: RUF009 - frozen
    num_steps: int | None = None
    fixed_order: float | None = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """Refuse what has no theorem."""
        if self.name not in NAMES:
            raise InputError(
                f"accountant {self.name!r} is unknown, so no guarantee could be stated; "
                f"choose one of {', '.join(NAMES)}."
            )
        self.sampler.check(self.budget.adjacency)
        if self.name not in self.sampler.accountants:
            raise InputError(
                f"accountant {self.name!r} has no theorem for {self.sampler}, so its price would mean nothing; choose "
                f"{' or '.join(self.sampler.accountants)}, or another sampler."
            )
        if self.name == "paper_13" and self.sampler.rate() > PAPER_MOST:
            raise InputError(
                f"accountant 'paper_13' is proved for sampling rates up to {PAPER_MOST}, but this run's is "
                f"{self.sampler.rate():.3g}; choose smaller batches, or 'ctcdp', the same measure priced tightly."
            )

    @property
    def theorem(self) -> str:
        """Why the cap holds."""
        return THEOREM[self.name]

    @property
    def unit(self) -> str:
        """What prices are counted in."""
        return f"{_UNITS[self.name]} at order {self.order:.4g}" if self.name == "rdp" else _UNITS[self.name]

    @functools.cached_property
    def neighbours(self) -> Neighbours | None:
        """Which divergence prices a sampled Gaussian."""
        return self.sampler.neighbours(self.budget.adjacency)

    @functools.cached_property
    def order(self) -> float:
        """The order at which divergences are counted; infinite for measures of all orders."""
        if self.name in ("ctcdp", "paper_13"):
            return convert.ctcdp(self.budget.epsilon, self.budget.delta).omega
        if self.name not in DIVERGENCES:
            return math.inf
        if self.fixed_order is not None:
            return self.fixed_order
        if self.neighbours is None or self.num_steps is None:
            return convert.planned_order(self.budget.epsilon, self.budget.delta)
        return order_for_steps(self.budget, self.sampler.rate(), self.neighbours, self.num_steps)

    @functools.cached_property
    def limit(self) -> float:
        """The cap, rounded down, in the accountant's own unit."""
        target = self.budget.epsilon, self.budget.delta
        if self.name == "basic":
            return self.budget.epsilon
        if self.name == "gdp":
            return math.nextafter(convert.gdp_mu(*target) ** 2, 0.0)
        if self.name == "zcdp":
            return convert.zcdp_rho(*target)
        if self.name in ("ctcdp", "paper_13"):
            return convert.ctcdp(*target).rho
        return convert.rdp_budget(self.order, *target)

    @functools.cached_property
    def coefficients(self) -> dict[str, float]:
        """Mechanism to its price on all rows at noise multiplier 1."""
        if self.name == "basic":
            return {"objective": 1.0}
        if self.name == "gdp":
            return {"gaussian": 1.0}
        per_order = self.order if self.name in DIVERGENCES else 1.0
        priced = _RHO | (_SINH_RHO if self.name in ("rdp", "ctcdp") else {})
        return {mechanism: per_order * rho for mechanism, rho in priced.items()}

    def price_list(self) -> PriceList:
        """The part that decides inside a run: budget rounded down, prices rounded up, in float32.

        >>> accountant = Filter("zcdp", Budget(0.1, 1e-8)).price_list()
        >>> accountant.name, round(float(accountant.mu), 4)
        ('zcdp', 0.0204)
        """
        upward = {mechanism: jnp.asarray(float32_up(value)) for mechanism, value in self.coefficients.items()}
        planned = (
            self.name,
            upward,
            jnp.asarray(float32_down(self.limit)),
            # An order one rounding off would be priced at another point than the cap is.
            jnp.asarray(np.float32(self.order)),
            self.sampler,
            self.neighbours,
        )
        if self.name != "basic":
            return PriceList(*planned)
        epsilon, delta = self.budget.epsilon, self.budget.delta
        return WholePriceList(
            *planned,
            least=jnp.asarray(float32_up(math.nextafter(1 / epsilon, math.inf))),
            log_delta=jnp.asarray(np.nextafter(np.float32(math.log(delta)), np.float32(-np.inf))),
            signal=jnp.asarray(float32_down(convert.gdp_mu(epsilon, delta))),
        )

    def prices(self, mechanism: str, noise_multiplier: np.ndarray, sampled: bool, tail: float = math.inf) -> np.ndarray:
        """f64[n], each rounded up; infinite where the multiplier is NaN or not above 0, or a precondition fails."""
        multiplier = np.asarray(noise_multiplier, np.float64)
        if mechanism == "none":
            return np.full(multiplier.shape, np.inf)
        coefficient = coefficient_of(self.name, self.coefficients, mechanism)
        if self.name == "basic":
            # As `WholePriceList`, whose multiplier is above 1 / epsilon by a rounding at least.
            return np.where(multiplier * self.limit >= 1.0, WHOLE * self.limit, np.inf)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            square = np.nextafter(multiplier * multiplier, 0.0)
            whole = np.nextafter(coefficient / square, np.inf)
        usable = (multiplier > 0) & (square > 0)
        if mechanism == "sinh_normal":
            usable &= (square > 0.5 * (1 + 1e-9)) & (2 * square * (1 + 1e-9) <= tail * tail)
            usable &= SINH_ORDERS * self.order < tail
        if sampled and self.neighbours is not None:
            whole = self._sampled(mechanism, np.where(usable, multiplier, 1.0), np.where(usable, whole, 1.0))
        return np.where(usable, whole, np.inf)

    def _sampled(self, mechanism: str, multiplier: np.ndarray, whole: np.ndarray) -> np.ndarray:
        rate = self.sampler.rate()
        if self.name == "paper_13":
            amplifies = -math.log(rate) * (1 - 1e-12)
            fits = (whole <= PAPER_MOST) & (3 * whole * (2 - np.log2(whole)) <= amplifies)
            fits &= 4 * whole * self.order <= amplifies
            return np.where(fits, PAPER_FACTOR * rate**2 * whole * (1 + 1e-12), np.inf)
        per_order = 1.0 if self.name in DIVERGENCES else 1.0 / self.order
        if mechanism == "sinh_normal":
            return whole
        if mechanism == "gaussian":
            assert self.neighbours is not None
            counted = divergence_up(multiplier, rate, self.order, self.neighbours)
        else:
            less = np.log1p(rate * np.expm1(np.minimum(1 / multiplier, 700.0)))
            counted = np.where(multiplier > 1 / 700, self.order * less * less / 2 * (1 + 1e-12), np.inf)
        return np.minimum(counted * per_order * (1 + 1e-15), whole)

    def spent(self, answered: Iterable[Answered]) -> float:
        """What a trace cost, in float64, rounded up; infinite if any answer had no noise to speak of.

        With permutation epochs a row meets one step of each epoch, so an epoch costs what its dearest step costs.
        """
        trace = list(answered)
        costs = np.zeros(len(trace))
        kinds = [(entry.mechanism, entry.step > 0, entry.tail) for entry in trace]
        for kind in set(kinds):
            chosen = np.array([other == kind for other in kinds])
            multipliers = np.array([entry.noise_multiplier for entry in trace], np.float64)[chosen]
            costs[chosen] = self.prices(kind[0], multipliers, kind[1], kind[2])
        if isinstance(self.sampler, PermutationEpochs):
            costs = _per_epoch([entry.step for entry in trace], costs, self.sampler.steps_per_charge)
        # fsum rounds once, to the nearest.
        return math.nextafter(math.fsum(costs), math.inf) if len(trace) else 0.0

    def epsilon(self, spent: float) -> float:
        """Epsilon at `budget.delta` of a run that cost `spent`, rounded up, if its noise was fixed in advance.

        For noise that depended on earlier answers this is no guarantee: `certify` then reports the cap.

        >>> round(Filter("gdp", Budget(0.1, 1e-8)).epsilon(0.0001), 3)
        0.044
        """
        if spent == 0:
            return 0.0  # no query was answered; the conversions at a fixed order would still charge for delta
        if self.name == "basic":
            return self.limit if spent <= self.limit else math.inf
        delta = self.budget.delta
        if self.name == "gdp":
            return convert.gdp_epsilon(math.nextafter(math.sqrt(spent), math.inf), delta)
        if self.name == "zcdp":
            return convert.zcdp_epsilon(spent, delta)
        if self.name in ("ctcdp", "paper_13"):
            return convert.ctcdp_epsilon(spent, self.order, delta)
        return max(convert.rdp_epsilon(spent, self.order, delta), 0.0)

    def certify(self, answered: Sequence[Answered], adaptive: bool) -> float:
        """The epsilon that a finished run may print at `budget.delta`; never above `budget.epsilon`.

        Args:
          answered: every granted query, in order.
          adaptive: whether any noise, or when the run stopped, depended on earlier answers; then the theorem covers
            the cap and not "what was spent so far".

        Raises:
          RuntimeError: the trace costs more than the cap, which a run of this library cannot reach.

        >>> Filter("gdp", Budget(0.1, 1e-8)).certify([Answered(1, "gaussian", 100.0)], adaptive=True)
        0.1
        """
        total = self.spent(answered)
        if not total <= self.limit:
            raise RuntimeError(
                f"the {self.name} accountant's float64 check finds {total!r} spent of {self.limit!r}, so {self.budget} "
                "does not hold; withhold the result and report this as a bug."
            )
        if adaptive:
            return self.budget.epsilon
        # Staying within the cap proves budget.epsilon by itself, so an upward rounding beyond it may be dropped.
        return min(self.epsilon(total), self.budget.epsilon)


def price_list_for_mu(name: str, mu: jax.Array) -> PriceList:
    """A full-batch accountant with the cap of one Gaussian query at noise multiplier 1 / mu, for simulated budgets.

    Meta-training has no (epsilon, delta): it draws mu f32[] itself, which may be traced.

    >>> round(float(price_list_for_mu("zcdp", jnp.float32(0.1)).budget), 6)
    0.005
    """
    if name not in ("gdp", "zcdp", "ctcdp"):
        raise InputError(f"accountant {name!r} depends on (epsilon, delta) beyond its cap; choose gdp, zcdp or ctcdp.")
    prices = {"gaussian": 1.0} if name == "gdp" else _RHO
    coefficients = {mechanism: jnp.float32(price) for mechanism, price in prices.items()}
    return PriceList(name, coefficients, prices["gaussian"] * jnp.square(mu), jnp.float32(jnp.inf))


def default_accountant(mechanisms: Iterable[str], sampler: Sampler = FullBatch()) -> str:  # noqa: B008 - frozen
    """The tightest filter here that prices all of these mechanisms under this sampler.

    >>> default_accountant({"gaussian"}), default_accountant({"gaussian", "gumbel"})
    ('gdp', 'rdp')
    """
    if "objective" in mechanisms:
        return "basic"
    return "gdp" if set(mechanisms) <= {"gaussian", "none"} and "gdp" in sampler.accountants else "rdp"


def _per_epoch(steps: Sequence[int], costs: np.ndarray, steps_per_epoch: int) -> list[float]:
    """The dearest step of each epoch, each step's queries added up, and before them what every row met in `init`."""
    of_step: dict[int, list[float]] = {}
    for step, cost in zip(steps, costs, strict=True):
        of_step.setdefault(step, []).append(cost)
    at_start = of_step.pop(0, [])
    dearest: dict[int, float] = {}
    for step, queries in of_step.items():
        epoch = (step - 1) // steps_per_epoch
        dearest[epoch] = max(dearest.get(epoch, 0.0), math.nextafter(math.fsum(queries), math.inf))
    return [*at_start, *dearest.values()]
