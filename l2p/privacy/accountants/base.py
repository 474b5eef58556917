"""The interface of accountants: `Accountant` certifies finished traces of fixed noise, `RunAccountant` also stops runs.

At noise multiplier m the price of a query on all rows depends on its mechanism:

- gaussian: mu = 1 / m, and rho = mu^2 / 2 (Dong, Roth & Su 2022; Bun & Steinke 2016);
- laplace, gamma, exponential: epsilon = 1 / m, pure, so rho = epsilon^2 / 2 (Bun & Steinke 2016, Proposition 1.4);
- gumbel: epsilon = 1 / m of bounded range, so rho = epsilon^2 / 8 (Cesar & Rogers 2021);
- sinh_normal: rho = 8 / m^2 below order tail / 8 (Bun, Dwork, Rothblum & Steinke 2018);
- objective: (1 / m, delta) as a whole.

No mechanism costs more on a sample than on all rows (joint quasi-convexity).
"""

import abc
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base.errors import InputError
from l2p.privacy.accountants import covering
from l2p.privacy.accountants.least_target import least_target
from l2p.privacy.budget import Budget
from l2p.privacy.cost.prices import SINH_ORDERS, PriceList, coefficient_of, float32_down, float32_up
from l2p.privacy.cost.renyi import Neighbours
from l2p.privacy.cost.sampling import FullBatch, PermutationEpochs, Sampler
from l2p.privacy.events import Adjacency, Answered

#: rho of a query at noise multiplier 1.
RHO = {"gaussian": 1 / 2, "gumbel": 1 / 8, "exponential": 1 / 2, "laplace": 1 / 2, "gamma": 1 / 2}
SINH_RHO = {"sinh_normal": 8.0}


class Terms(NamedTuple):
    """Terms of a run, fixed before its first query, on which prices depend.

    Attributes:
      budget: the target, with its adjacency.
      sampler: which rows a step's queries read.
      order: the Renyi order at which divergences are counted; infinite for measures of all orders.
    """

    budget: Budget
    sampler: Sampler
    order: float

    @property
    def neighbours(self) -> Neighbours | None:
        """The kind of divergence that prices a sampled Gaussian; None where sampling amplifies nothing."""
        return self.sampler.neighbours(self.budget.adjacency)


class FixedTrace(NamedTuple):
    """A finished run, or a plan, whose noise and length were fixed beforehand.

    Attributes:
      answered: every query, in order.
      sampler: which rows the steps read.
      adjacency: which tables are neighbours.
      delta: a probability, at which epsilon is asked for.
      num_steps: T, public, if an order was planned for it.
    """

    answered: Sequence[Answered]
    sampler: Sampler
    adjacency: Adjacency
    delta: float
    num_steps: int | None = None

    @property
    def budget(self) -> Budget:
        """A checked budget of adjacency and delta, with a placeholder epsilon."""
        return Budget(1.0, self.delta, self.adjacency)


class Accountant(abc.ABC):
    """Certifies a finished trace, or a plan, whose noise was fixed beforehand.

    Attributes:
      name: as `accountants.LISTED` has it.
      theorem: why what it certifies holds, in a sentence or two.
      samplers: those that it has a price for.
      coefficients: for each mechanism that it prices, the price on all rows at noise multiplier 1, which falls with the
        square of the multiplier; divided by the order if `at_order`.
      adaptive: whether its cap holds even if noise depends on earlier answers, so that it can stop runs as a filter.
      proved: False for a rule that papers also apply where it is not proved; shown for comparison, never planned with.
      row: its name in tables of finished traces (`l2p.privacy.fixed.table`); None if they omit it.
    """

    name: ClassVar[str]
    theorem: ClassVar[str]
    samplers: ClassVar[tuple[type[Sampler], ...]]
    coefficients: ClassVar[Mapping[str, float]]
    adaptive: ClassVar[bool] = False
    proved: ClassVar[bool] = True
    row: ClassVar[str | None]

    def covers(self, sampler: Sampler, adjacency: Adjacency, mechanism: str = "gaussian") -> bool:
        """True if its theorem covers such a query."""
        priced = isinstance(sampler, self.samplers) and adjacency in sampler.adjacencies
        return priced and mechanism in self.coefficients

    @abc.abstractmethod
    def epsilon_of(self, trace: FixedTrace) -> float:
        """Epsilon, rounded up: 0 for an empty trace, infinite if an answer had no noise.

        Raises:
          InputError: there is no theorem for this trace.
        """

    def note(self, trace: FixedTrace) -> str:
        """A sentence on what `epsilon_of` assumes about a trace, or cannot certify; may be empty."""
        floor = self.floor(trace.delta)
        return f"{floor}." if floor else ""

    def floor(self, delta: float) -> str:
        """The lowest epsilon that any amount of noise can reach, in words; empty if there is no such bound."""
        del delta
        return ""


class RunAccountant(Accountant):
    """An accountant that stops runs. It holds no numbers of a run; methods receive its plan.

    Attributes:
      unit: what it adds up, in words.
      budgeting: how a budget becomes a cap, with its source, for the table in docs/accounting.md.
      counts: what it adds up, as that table explains it.
      on_adaptive: whether noise may depend on earlier answers, and who proved it, for that table.
      at_order: whether it counts Renyi divergences at one order, so that prices grow with the order.
      default: whether runs use it unless told otherwise; the first that prices all of their queries.
      binds: whether a protector that was trained under it also runs under it; False for filters among which a run takes
        the tightest that prices its queries.
      per_rho: how much of its unit a rho-zCDP run spends per rho, if its cap holds at every order as that of zCDP; else
        None.
      composes: False for one that grants a single query, which takes the whole budget.
      trains: whether meta-training may simulate runs under it.
      pure: whether it can hold a run to delta = 0.
    """

    unit: ClassVar[str]
    counts: ClassVar[str]
    budgeting: ClassVar[str]
    on_adaptive: ClassVar[str]
    adaptive: ClassVar[bool] = True
    at_order: ClassVar[bool] = False
    default: ClassVar[bool] = False
    binds: ClassVar[bool] = True
    per_rho: ClassVar[float | None] = None
    composes: ClassVar[bool] = True
    trains: ClassVar[bool] = True
    pure: ClassVar[bool] = False

    # ----------------------------------------------------------------------------------------------- before a run
    def check_covers(self, sampler: Sampler, adjacency: Adjacency) -> None:
        """Refuse a sampler or an adjacency for which it has no price."""
        sampler.check_adjacency(adjacency)
        if not isinstance(sampler, self.samplers):
            raise InputError(
                f"accountant {self.name!r} has no theorem for {sampler}, so its price would mean nothing; choose "
                f"{' or '.join(covering(sampler))}, or another sampler."
            )

    def order(self, budget: Budget, sampler: Sampler, num_steps: int | None) -> float:
        """The Renyi order to count at, chosen before the run; infinite for measures of all orders."""
        del budget, sampler, num_steps
        return math.inf

    def terms(self, budget: Budget, sampler: Sampler, num_steps: int | None = None) -> Terms:
        """The terms of a run with this budget, sampler and number of steps."""
        return Terms(budget, sampler, self.order(budget, sampler, num_steps))

    @abc.abstractmethod
    def limit(self, terms: Terms) -> float:
        """The budget converted to the accountant's unit, rounded down."""

    @abc.abstractmethod
    def epsilon(self, spent: float, terms: Terms) -> float:
        """Epsilon at the budget's delta of a run that cost `spent` > 0, rounded up, if that was fixed beforehand."""

    def mu(self, budget: Budget) -> float | None:
        """mu of one Gaussian query on all rows that takes the whole budget, for planning; None if there is no such
        query."""
        del budget
        return None

    def gaussian_mu(self, spent: float) -> float | None:
        """The mu of Gaussian DP that what was spent proves, rounded up; None where an accountant proves none."""
        return None

    def epsilon_of_rho(self, rho: float, delta: float) -> float:
        """Epsilon at delta of what a rho-zCDP run may spend, in exact arithmetic; only where `per_rho` is known."""
        raise NotImplementedError(f"{self.name} holds no run to a rho")

    @property
    def by_mu(self) -> bool:
        """True if prices of full-batch runs are the same for all budgets, so that accuracy depends on mu N alone."""
        return "gaussian" in self.coefficients and FullBatch in self.samplers and not self.at_order

    def coefficients_at(self, order: float) -> dict[str, float]:
        """Price of each mechanism on all rows at noise multiplier 1."""
        per_order = order if self.at_order else 1.0
        return {mechanism: per_order * coefficient for mechanism, coefficient in self.coefficients.items()}

    def unit_at(self, order: float) -> str:
        """The unit that it adds up in a run that counts at this order, in words."""
        del order
        return self.unit

    # ------------------------------------------------------------------------------------------------- inside a run
    def price_list(self, terms: Terms, limit: float) -> PriceList:
        """The price list that decides inside the run, in float32: `limit` rounded down, prices rounded up."""
        coefficients = self.coefficients_at(terms.order)
        return PriceList(
            self.name,
            {mechanism: jnp.asarray(float32_up(value)) for mechanism, value in coefficients.items()},
            jnp.asarray(float32_down(limit)),
            # Even one rounding of the order would price queries at another order than the cap.
            jnp.asarray(np.float32(terms.order)),
            terms.sampler,
            terms.neighbours,
            self.sampled_price,
        )

    def sampled_price(
        self, terms: PriceList, mechanism: str, multiplier: jax.Array, full_batch: jax.Array
    ) -> jax.Array:
        """f32[], the price of a query on a sample, at most its price on all rows, `full_batch`."""
        del terms, mechanism, multiplier
        return full_batch

    # -------------------------------------------------------------------------------------------------- after a run
    def prices(
        self, terms: Terms, mechanism: str, noise_multiplier: np.ndarray, sampled: bool, tail: float = math.inf
    ) -> np.ndarray:
        """f64[n], each rounded up; infinite where the multiplier is NaN or not above 0, or a precondition fails."""
        multiplier = np.asarray(noise_multiplier, np.float64)
        if mechanism == "none":
            return np.full(multiplier.shape, np.inf)
        coefficient = coefficient_of(self.name, self.coefficients_at(terms.order), mechanism)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            square = np.nextafter(multiplier * multiplier, 0.0)
            price = np.nextafter(coefficient / square, np.inf)
        usable = (multiplier > 0) & (square > 0)
        if mechanism == "sinh_normal":
            usable &= (square > 0.5 * (1 + 1e-9)) & (2 * square * (1 + 1e-9) <= tail * tail)
            usable &= SINH_ORDERS * terms.order < tail
        if sampled and terms.neighbours is not None:
            price = self.sampled_prices(
                terms, mechanism, np.where(usable, multiplier, 1.0), np.where(usable, price, 1.0)
            )
        return np.where(usable, price, np.inf)

    def epsilon_of(self, trace: FixedTrace) -> float:
        """By default the least target that its filter would have held; accountants with a sharper way override it."""
        return least_target(self, trace)

    def sampled_prices(
        self, terms: Terms, mechanism: str, multiplier: np.ndarray, full_batch: np.ndarray
    ) -> np.ndarray:
        """f64[n], rounded up: prices of queries on a sample, at most their prices on all rows, `full_batch`."""
        del terms, mechanism, multiplier
        return full_batch

    def spent(self, terms: Terms, answered: Iterable[Answered]) -> float:
        """Cost of a trace in float64, rounded up; infinite if any answer had no noise, or misses a precondition of its
        price.

        With permutation epochs only one step of each epoch reads a given row, so an epoch costs what its costliest step
        costs.
        """
        trace = list(answered)
        costs = np.zeros(len(trace))
        kinds = [(entry.mechanism, entry.step > 0, entry.tail) for entry in trace]
        for kind in set(kinds):
            of_kind = np.array([entry_kind == kind for entry_kind in kinds])
            multipliers = np.array([entry.noise_multiplier for entry in trace], np.float64)[of_kind]
            costs[of_kind] = self.prices(terms, kind[0], multipliers, kind[1], kind[2])
        if isinstance(terms.sampler, PermutationEpochs):
            costs = _per_epoch([entry.step for entry in trace], costs, terms.sampler.steps_per_charge)
        # fsum rounds once, to the nearest.
        return math.nextafter(math.fsum(costs), math.inf) if len(trace) else 0.0


def _per_epoch(steps: Sequence[int], costs: np.ndarray, steps_per_epoch: int) -> list[float]:
    """The queries of `init`, which read every row, and each epoch's costliest step, its queries added up."""
    of_step: dict[int, list[float]] = {}
    for step, cost in zip(steps, costs, strict=True):
        of_step.setdefault(step, []).append(cost)
    at_start = of_step.pop(0, [])
    costliest: dict[int, float] = {}
    for step, queries in of_step.items():
        epoch = (step - 1) // steps_per_epoch
        costliest[epoch] = max(costliest.get(epoch, 0.0), math.nextafter(math.fsum(queries), math.inf))
    return [*at_start, *costliest.values()]
