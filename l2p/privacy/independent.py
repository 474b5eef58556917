"""The price of a trace by dp-accounting, a library that shares no formula with the filters here."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from l2p.base.errors import InputError
from l2p.privacy.accountants import find
from l2p.privacy.accountants.base import FixedTrace
from l2p.privacy.cap.filter import Filter
from l2p.privacy.cost import convert
from l2p.privacy.cost.sampling import FixedSize, PermutationEpochs, Poisson
from l2p.privacy.events import PURE, Adjacency, Answered

if TYPE_CHECKING:
    from dp_accounting.dp_event import DpEvent

# zCDP of mechanisms that dp-accounting does not know, as rho times the squared noise multiplier: pure differential
# privacy (Bun & Steinke 2016) and bounded range (Cesar & Rogers 2021). `_whole` prices one query alone.
_RHO = {"exponential": 0.5, "laplace": 0.5, "gamma": 0.5, "gumbel": 0.125}


# Relative errors: of rounding alone; with losses on a grid; with an order rounded to a whole number.
_EXACT, _CLOSE = 1e-6, 1e-3
# Beyond this order dp-accounting's series for fractional orders soon fail to converge.
_WHOLE = 1000


class Independent(NamedTuple):
    """Certificate of dp-accounting for a trace.

    Attributes:
      epsilon: at the budget's delta.
      method: how it was found.
      error: how far it may exceed the target of a correct run, relative to the target; infinite if it is only an upper
        bound.
    """

    epsilon: float
    method: str
    error: float


def compose(filter: Filter, answered: Sequence[Answered], adaptive: bool) -> Independent:
    """Epsilon of a trace by dp-accounting, as sharply as adaptivity, sampler and adjacency allow.

    Uses privacy loss distributions if the noise was fixed or the whole trace amounts to one Gaussian query, else Renyi
    divergences at the filter's own order.

    Raises:
      InputError: dp-accounting has no price for this trace.

    >>> from l2p.privacy.budget import Budget
    >>> certificate = compose(Filter("gdp", Budget(0.1, 1e-8)), [Answered(1, "gaussian", 50.0)], adaptive=True)
    >>> round(certificate.epsilon, 4), certificate.method
    (0.0915, 'privacy loss distribution')
    """
    if not answered:
        return Independent(0.0, "nothing to compose", _EXACT)
    sampler, budget = filter.sampler, filter.budget
    gaussian = all(query.mechanism == "gaussian" for query in answered)
    if isinstance(sampler, Poisson) and budget.adjacency is Adjacency.REPLACE_ONE:
        raise InputError(
            "dp-accounting has no proved price for Poisson batches under replace_one, so this card cannot be verified "
            "with it; leave out --verify."
        )
    if not filter.accountant.composes:
        return Independent(_whole(filter, answered), "worst-case losses of queries private as a whole", _CLOSE)
    if set(filter.coefficients) == {"gaussian"}:  # all its queries together are one Gaussian mechanism
        return Independent(_one_gaussian(filter, answered), "privacy loss distribution", _EXACT)
    if isinstance(sampler, Poisson) and gaussian and not adaptive:
        trace = FixedTrace(answered, sampler, budget.adjacency, budget.delta)
        epsilon = find("pld").epsilon_of(trace)
        return Independent(epsilon, "privacy loss distribution, for noise fixed in advance", _CLOSE)
    epsilon, order = _renyi(filter, answered)
    bounds = isinstance(sampler, FixedSize) or (isinstance(sampler, Poisson) and not gaussian)
    error = math.inf if bounds else _EXACT if order <= _WHOLE else _CLOSE
    return Independent(epsilon, f"Renyi divergence at order {order:.6g}", error)


def _one_gaussian(filter: Filter, answered: Sequence[Answered]) -> float:
    """Gaussian mechanisms compose to one Gaussian mechanism: the squares of their mu add up."""
    from dp_accounting import dp_event
    from dp_accounting.pld import PLDAccountant

    mu = math.sqrt(math.fsum(query.noise_multiplier**-2 for query in _reading_one_row(filter, answered)))
    # The grid of losses is fine in comparison to mu, their root mean square.
    accountant = PLDAccountant(value_discretization_interval=mu / 2000)
    accountant.compose(dp_event.GaussianDpEvent(1 / mu))
    return float(accountant.get_epsilon(filter.budget.delta))


def _whole(filter: Filter, answered: Sequence[Answered]) -> float:
    """Each query as the worst mechanism that is (1 / m, 0)-private, or (1 / m, delta)-private for `objective`.

    As zCDP a pure query would cost several times its epsilon: converted back at delta, e^2 / 2 is far above e.
    """
    from dp_accounting.pld import privacy_loss_distribution as pld
    from dp_accounting.pld.common import DifferentialPrivacyParameters

    grid = min(1 / query.noise_multiplier for query in answered) * _CLOSE / 10
    composed = pld.identity(value_discretization_interval=grid)
    for query in answered:
        delta = 0.0 if query.mechanism in PURE else filter.budget.delta
        alone = DifferentialPrivacyParameters(1 / query.noise_multiplier, delta)
        composed = composed.compose(pld.from_privacy_parameters(alone, value_discretization_interval=grid))
    return float(composed.get_epsilon_for_delta(filter.budget.delta))


def _renyi(filter: Filter, answered: Sequence[Answered]) -> tuple[float, float]:
    """Epsilon, and the order, which was fixed before the run: the filter's, or the budget's if the filter has none."""
    from dp_accounting.privacy_accountant import NeighboringRelation
    from dp_accounting.rdp import RdpAccountant

    budget = filter.budget
    order = filter.order if math.isfinite(filter.order) else convert.planned_order(budget.epsilon, budget.delta)
    relation = NeighboringRelation.ADD_OR_REMOVE_ONE
    if isinstance(filter.sampler, FixedSize):
        relation = NeighboringRelation.REPLACE_ONE
    if order > _WHOLE or isinstance(filter.sampler, FixedSize):
        order = float(math.ceil(order))  # its bound for fixed-size batches holds for whole orders only
    accountant = RdpAccountant(orders=[order], neighboring_relation=relation)
    queries = [
        (query.step > 0, query.mechanism, query.noise_multiplier) for query in _reading_one_row(filter, answered)
    ]
    for (sampled, mechanism, multiplier), count in Counter(queries).items():
        accountant.compose(_event(filter, sampled, mechanism, multiplier), count)
    return float(accountant.get_epsilon(budget.delta)), order


def _event(filter: Filter, sampled: bool, mechanism: str, multiplier: float) -> "DpEvent":
    """The query as a dp-accounting event. Its multipliers are relative to the sensitivity, too; 2 clipping norms under
    replacement."""
    from dp_accounting import dp_event

    if mechanism in _RHO:
        return dp_event.ZCDpEvent(_RHO[mechanism] / multiplier**2)  # priced without amplification: an upper bound
    if mechanism != "gaussian":
        raise InputError(
            f"dp-accounting has no price for mechanism {mechanism!r}, so this card cannot be verified with it; leave "
            "out --verify."
        )
    gaussian, sampler = dp_event.GaussianDpEvent(multiplier), filter.sampler
    if sampled and isinstance(sampler, Poisson):
        return dp_event.PoissonSampledDpEvent(sampler.rate(), gaussian)
    if sampled and isinstance(sampler, FixedSize):
        return dp_event.SampledWithoutReplacementDpEvent(sampler.num_rows, sampler.batch_size, gaussian)
    return gaussian


def _reading_one_row(filter: Filter, answered: Sequence[Answered]) -> list[Answered]:
    """The queries that can read one given row: all, or with permutation epochs those of `init` and each epoch's
    costliest step."""
    if not isinstance(filter.sampler, PermutationEpochs):
        return list(answered)
    steps: dict[int, list[Answered]] = {}
    for query in answered:
        steps.setdefault(query.step, []).append(query)
    costliest: dict[int, list[Answered]] = {}
    for step, queries in steps.items():
        epoch = 0 if step == 0 else 1 + (step - 1) // filter.sampler.steps_per_charge
        costliest[epoch] = max(costliest.get(epoch, []), queries, key=filter.spent)
    return [query for queries in costliest.values() for query in queries]
