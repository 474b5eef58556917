"""The filter that stops one run: an accountant set up for a budget and a sampler, in float64.

Before the run it plans `limit`; `price_list` decides inside the run, in float32; after it `spent` and `certify` price
the trace again with every operation rounded up.
"""

import dataclasses
import functools
import math
from collections.abc import Iterable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base.errors import InputError
from l2p.privacy.accountants import either, find, for_runs
from l2p.privacy.accountants.base import SINH_RHO, RunAccountant, Terms
from l2p.privacy.budget import Budget
from l2p.privacy.cost.prices import PriceList
from l2p.privacy.cost.renyi import Neighbours
from l2p.privacy.cost.sampling import FullBatch, Sampler
from l2p.privacy.events import PURE, Answered


@dataclasses.dataclass(frozen=True)
class Filter:
    """One accountant, planned for one budget and one sampler, in float64.

    Attributes:
      name: of the accountant, one of `accountants.run_names()`.
      budget: the target, with its adjacency.
      sampler: which rows the queries of a step read.
      num_steps: T, public; the Renyi order of sampled runs is planned for T equal steps.
      fixed_order: the Renyi order, if it was planned before, for example the one on a card.

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
        self.accountant.check_covers(self.sampler, self.budget.adjacency)
        if self.budget.delta == 0 and not self.accountant.pure:
            able = [accountant.name for accountant in for_runs() if accountant.pure]
            raise InputError(
                f"delta is 0, which asks for pure differential privacy, but accountant {self.name!r} certifies no "
                f"epsilon there; choose accountant {either(able)} with a method of pure noise, such as bolt_on, or "
                "a delta above 0."
            )

    @property
    def accountant(self) -> RunAccountant:
        """The accountant of this name."""
        return find(self.name)

    @property
    def theorem(self) -> str:
        """The reason why the cap holds."""
        return self.accountant.theorem

    @property
    def unit(self) -> str:
        """The unit of prices."""
        return self.accountant.unit_at(self.order)

    @functools.cached_property
    def neighbours(self) -> Neighbours | None:
        """The kind of divergence that prices a sampled Gaussian."""
        return self.sampler.neighbours(self.budget.adjacency)

    @functools.cached_property
    def order(self) -> float:
        """The order at which divergences are counted; infinite for measures of all orders."""
        if self.fixed_order is not None and self.accountant.at_order:
            return self.fixed_order
        return self.accountant.order(self.budget, self.sampler, self.num_steps)

    @property
    def terms(self) -> Terms:
        """The terms on which prices depend apart from the query."""
        return Terms(self.budget, self.sampler, self.order)

    @functools.cached_property
    def limit(self) -> float:
        """The cap, rounded down, in the accountant's own unit."""
        return self.accountant.limit(self.terms)

    @functools.cached_property
    def coefficients(self) -> dict[str, float]:
        """Price of each mechanism on all rows at noise multiplier 1."""
        return self.accountant.coefficients_at(self.order)

    def price_list(self) -> PriceList:
        """The part that decides inside a run: budget rounded down, prices rounded up, in float32.

        >>> prices = Filter("zcdp", Budget(0.1, 1e-8)).price_list()
        >>> prices.name, round(float(prices.mu), 4)
        ('zcdp', 0.0204)
        """
        return self.accountant.price_list(self.terms, self.limit)

    def prices(self, mechanism: str, noise_multiplier: np.ndarray, sampled: bool, tail: float = math.inf) -> np.ndarray:
        """f64[n], each rounded up; infinite where the multiplier is NaN or not above 0, or a precondition fails."""
        return self.accountant.prices(self.terms, mechanism, noise_multiplier, sampled, tail)

    def spent(self, answered: Iterable[Answered]) -> float:
        """Cost of a trace in float64, rounded up; infinite if any answer had no noise, or misses a precondition of its
        price.

        With permutation epochs only one step of each epoch reads a given row, so an epoch costs what its costliest step
        costs.
        """
        return self.accountant.spent(self.terms, answered)

    def epsilon(self, spent: float) -> float:
        """Epsilon at `budget.delta` of a run that cost `spent`, rounded up, if its noise was fixed in advance.

        For noise that depended on earlier answers this is not a guarantee; `certify` then reports the cap.

        >>> round(Filter("gdp", Budget(0.1, 1e-8)).epsilon(0.0001), 3)
        0.044
        """
        # If no query was answered, a conversion at a fixed order would still give an epsilon above 0.
        return 0.0 if spent == 0 else self.accountant.epsilon(spent, self.terms)

    def certify(self, answered: Sequence[Answered], adaptive: bool) -> float:
        """The epsilon that a finished run may claim at `budget.delta`; never above `budget.epsilon`.

        Args:
          answered: every granted query, in order.
          adaptive: whether any noise, or when the run stopped, depended on earlier answers; then the theorem covers
            only the cap, not what was spent so far.

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
        # Staying within the cap proves budget.epsilon by itself, so what rounding adds beyond it is dropped.
        return min(self.epsilon(total), self.budget.epsilon)

    def mu(self, answered: Sequence[Answered], adaptive: bool) -> float | None:
        """The mu of Gaussian DP that a finished run may claim, as `certify` its epsilon; None where none is proved.

        >>> round(Filter("gdp", Budget(0.1, 1e-8)).mu([Answered(1, "gaussian", 100.0)], adaptive=False), 9)
        0.01
        """
        return self.accountant.gaussian_mu(self.limit if adaptive else self.spent(answered))


def price_list_for_mu(name: str, mu: jax.Array) -> PriceList:
    """A full-batch price list for simulated budgets, whose cap is one Gaussian query at noise multiplier 1 / mu.

    Meta-training has no (epsilon, delta): it draws mu f32[] directly, which may be traced.

    >>> round(float(price_list_for_mu("zcdp", jnp.float32(0.1)).budget), 6)
    0.005
    """
    accountant = find(name)
    if not accountant.by_mu:
        able = [candidate.name for candidate in for_runs() if candidate.by_mu]
        raise InputError(f"accountant {name!r} depends on (epsilon, delta) beyond its cap; choose {either(able)}.")
    # sinh-normal tails are checked up to an order, and here there is none.
    prices = {mechanism: price for mechanism, price in accountant.coefficients.items() if mechanism not in SINH_RHO}
    coefficients = {mechanism: jnp.float32(price) for mechanism, price in prices.items()}
    return PriceList(name, coefficients, prices["gaussian"] * jnp.square(mu), jnp.float32(jnp.inf))


def default_accountant(
    mechanisms: Iterable[str],
    sampler: Sampler = FullBatch(),  # noqa: B008 - frozen
    asks_once: bool = False,
) -> str:
    """The tightest filter here that prices all of these mechanisms under this sampler.

    One query that is pure costs no more than its own epsilon; as a divergence it would cost several times that.

    >>> default_accountant({"gaussian"}), default_accountant({"gaussian", "gumbel"})
    ('gdp', 'rdp')
    >>> default_accountant({"gamma"}), default_accountant({"gamma"}, asks_once=True)
    ('rdp', 'basic')
    """
    priced = set(mechanisms) - {"none"}
    pure = [accountant for accountant in for_runs() if accountant.pure and isinstance(sampler, accountant.samplers)]
    if asks_once and priced and priced <= set(PURE) and pure:
        return pure[0].name
    usual = [accountant for accountant in for_runs() if accountant.default]
    for accountant in usual:
        if isinstance(sampler, accountant.samplers) and priced <= set(accountant.coefficients):
            return accountant.name
    # No accountant prices all of these; the one returned raises the error when it prices the others.
    general = max(usual, key=lambda accountant: len(accountant.coefficients))
    return next(
        (accountant.name for accountant in reversed(usual) if priced & set(accountant.coefficients)), general.name
    )
