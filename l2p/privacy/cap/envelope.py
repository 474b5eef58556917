"""Accountants of fixed noise, for schedules that are known, or bounded from below, before the run.

A privacy loss distribution is tighter than any filter, but it is not a valid stopping rule for noise that depends on
earlier answers (arXiv 2602.06756 and 2602.15815 show what goes wrong), and neither are the accountants that older
papers published. They are valid if a lower envelope of the noise is fixed beforehand: a noisier query is its envelope's
answer with more noise added, which is post-processing, and so is stopping early. Budget that a run saves by more noise
is not given back.
"""

import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base import struct
from l2p.base.errors import InputError
from l2p.privacy.accountants import of_fixed_noise
from l2p.privacy.accountants.base import FixedTrace
from l2p.privacy.cap.filter import Filter
from l2p.privacy.cost.prices import PriceList, float32_down, float32_up
from l2p.privacy.events import Answered, Event

# An envelope lies on a grid of this ratio: a float32 run differs from its rehearsal in the last bits, and composing
# fewer distinct distributions accumulates less discretisation error.
_GRID = 1.0005
# The Renyi cap of such a run only divides its schedule into shares: the envelope is what is enforced.
_ROOM = 1 + 1e-3
# The range of factors on that cap, in logarithms: at `_MIN` noise is 3000 times as wide, and more gains nothing.
_MAX, _MIN = math.log(64.0), -16.0
# Relative accuracy of the search for the cap; the noise is accurate to half of it.
_PRECISION = 2e-3


class _OverBudget(InputError):
    """An envelope that costs more than the target."""


@struct.dataclass
class EnvelopePriceList(PriceList):
    """Prices for schedules above a public lower envelope, which as a whole was priced beforehand.

    A query noisier than its envelope is a post-processing of one that is exactly as noisy, so whatever the noise
    depends on, the run costs at most what the envelope costs. Less noise is refused, and so is a query that has no
    envelope.

    Attributes:
      at_start: f32[A], the least noise multiplier of each query of `init`.
      at_steps: f32[T, B], of each query of each step.
    """

    at_start: jax.Array = struct.field(kw_only=True)
    at_steps: jax.Array = struct.field(kw_only=True)

    def price(
        self, event: Event, sampled: bool = False, step: jax.Array | None = None, slot: int | None = None
    ) -> jax.Array:
        price = super().price(event, sampled)
        if slot is None:
            return price
        planned = self.at_start[None] if step is None else self.at_steps
        if event.mechanism != "gaussian" or slot >= planned.shape[1]:
            return jnp.full_like(price, jnp.inf)
        row = jnp.zeros((), jnp.int32) if step is None else step
        # Beyond the planned steps nothing is allowed.
        least = jnp.where(row < planned.shape[0], planned[jnp.minimum(row, planned.shape[0] - 1), slot], jnp.inf)
        return jnp.where(event.noise_multiplier >= least, price, jnp.inf)


@dataclasses.dataclass(frozen=True)
class EnvelopeFilter(Filter):
    """A public lower envelope of a run's noise, whose price by an accountant of fixed noise certifies the run.

    Attributes:
      envelope: the least noise of every query of the run, in order; all Gaussian.
      cap: what a run may spend, of which its schedule takes shares; default what the envelope costs.

    Raises:
      InputError: the envelope alone exceeds the budget, or its accountant has no theorem for it.

    >>> from l2p.privacy.budget import Budget
    >>> from l2p.privacy.cost.sampling import Poisson
    >>> queries = tuple(Answered(step, "gaussian", 12.0) for step in range(1, 51))
    >>> round(EnvelopeFilter("pld", Budget(0.1, 1e-8), Poisson(1000 / 30400), 50, queries).limit_epsilon, 4)
    0.0912
    """

    envelope: tuple[Answered, ...] = ()
    cap: float | None = None

    def __post_init__(self) -> None:
        """Price the envelope."""
        super().__post_init__()
        if self.accountant.adaptive or not self.envelope:
            raise InputError(
                f"an envelope belongs to accountant {' or '.join(map(repr, of_fixed_noise()))}, and has at least one "
                "query; check both."
            )
        if not self.limit_epsilon <= self.budget.epsilon:
            raise _OverBudget(
                f"the envelope costs epsilon {self.limit_epsilon:.6g} at delta {self.budget.delta:g}, which is above "
                f"the target {self.budget.epsilon:g}; choose more noise or fewer steps."
            )

    @functools.cached_property
    def limit_epsilon(self) -> float:
        """Epsilon at `budget.delta` of the whole envelope, rounded up."""
        trace = FixedTrace(self.envelope, self.sampler, self.budget.adjacency, self.budget.delta)
        return self.accountant.epsilon_of(trace)

    @functools.cached_property
    def limit(self) -> float:  # type: ignore[override]
        """Cap of a run in the unit of its prices; the envelope's own cost unless `cap` is given."""
        return super().spent(self.envelope) * _ROOM if self.cap is None else self.cap

    def spent(self, answered: Iterable[Answered]) -> float:
        """Cost of a trace in the unit of the prices; infinite if a query had no envelope or less noise than it."""
        trace, least = list(answered), dict(_slots(self.envelope))
        within = all(
            query.mechanism == "gaussian" and slot in least and query.noise_multiplier >= least[slot].noise_multiplier
            for slot, query in _slots(trace)
        )
        return super().spent(trace) if within else math.inf

    def epsilon(self, spent: float) -> float:
        """The envelope's epsilon, whatever was spent: what a run saves is not given back."""
        return self.limit_epsilon if spent <= self.limit else math.inf

    def price_list(self) -> EnvelopePriceList:
        base = super().price_list()
        fields = {field.name: getattr(base, field.name) for field in dataclasses.fields(base)}
        start = [query for query in self.envelope if query.step == 0]
        steps = [query for query in self.envelope if query.step > 0]
        return EnvelopePriceList(**fields, at_start=_least(start, 1)[0], at_steps=_least(steps, self.num_steps or 1))


def rehearsed(filter: Filter, rehearse: Callable[[PriceList], Sequence[Answered]]) -> EnvelopeFilter:
    """The envelope of a schedule that is fixed beforehand, scaled so that it uses the budget up.

    Args:
      filter: without an envelope; its cap is that of the Renyi filter; a sharper accountant would leave some of it
        unused, a looser one would exceed it.
      rehearse: the queries that a run would ask under an accountant; must not touch private rows.

    Raises:
      InputError: the accountant has no theorem for the schedule's queries, or cannot certify the budget with any noise.
    """
    best, low, high = _first_within(filter, rehearse)
    while high - low > _PRECISION:
        middle = (low + high) / 2
        try:
            best, low = _enveloped(filter, rehearse, middle), middle
        except _OverBudget:
            high = middle
    return best


def _first_within(
    filter: Filter, rehearse: Callable[[PriceList], Sequence[Answered]]
) -> tuple[EnvelopeFilter, float, float]:
    """An envelope within the budget, the logarithm by which the cap was raised for it, and the smallest that is, or is
    assumed to be, too much."""
    low, high = 0.0, _MAX
    while low >= _MIN:
        try:
            return _enveloped(filter, rehearse, low), low, high
        except _OverBudget:
            low, high = min(2 * low, -1.0), low
    floor = filter.accountant.floor(filter.budget.delta)
    reason = f" (it {floor})" if floor else ""
    raise InputError(
        f"accountant {filter.name!r} certifies {filter.budget} at no amount of noise{reason}, so nothing can be asked; "
        "choose a larger epsilon or delta, or accountant 'rdp'."
    )


def _enveloped(filter: Filter, rehearse: Callable[[PriceList], Sequence[Answered]], raised: float) -> EnvelopeFilter:
    cap = filter.limit * math.exp(raised)
    queries = rehearse(dataclasses.replace(filter.price_list(), budget=jnp.asarray(float32_down(cap))))
    envelope = tuple(
        Answered(query.step, query.mechanism, _below(query.noise_multiplier), query.tail) for query in queries
    )
    return EnvelopeFilter(filter.name, filter.budget, filter.sampler, filter.num_steps, envelope=envelope, cap=cap)


def _below(noise_multiplier: float) -> float:
    """The largest grid point safely below."""
    return _GRID ** math.floor(math.log(noise_multiplier * (1 - 1e-5)) / math.log(_GRID))


def _slots(answered: Iterable[Answered]) -> Iterator[tuple[tuple[int, int], Answered]]:
    """Each query with its step and its index among that step's queries."""
    places: Counter[int] = Counter()
    for query in answered:
        yield (query.step, places[query.step]), query
        places[query.step] += 1


def _least(queries: Sequence[Answered], num_steps: int) -> jax.Array:
    """Least noise multipliers f32[num_steps, places], rounded up; infinite where no query was planned."""
    places = [(max(step - 1, 0), place, query.noise_multiplier) for (step, place), query in _slots(queries)]
    least = np.full((num_steps, 1 + max((place for _, place, _ in places), default=-1)), np.inf, np.float32)
    for step, place, noise_multiplier in places:
        least[step, place] = float32_up(noise_multiplier)
    return jnp.asarray(least)
