"""Properties of every accountant that stops runs, on all that it says it covers; `test_properties.py` runs them."""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant

from l2p.base.errors import InputError
from l2p.privacy import MECHANISMS, Adjacency, Answered, Budget, Event, Filter, Poisson
from l2p.privacy.accountants import find
from l2p.privacy.accountants.base import FixedTrace
from l2p.privacy.accountants.tables import EXAMPLES
from l2p.privacy.cap.envelope import EnvelopeFilter

EPSILON, DELTA = 0.4, 1e-6
#: From far too little noise to far more than any run needs; exact in float32.
NOISE = np.array([0.5, 2.0, 5.0, 40.0, 41.0, 1000.0, 2.0**20], np.float32)
TAIL = 1e7
#: dp-accounting's names for the mechanisms that it can price, too.
EVENTS = {"gaussian": dp_event.GaussianDpEvent, "laplace": dp_event.LaplaceDpEvent}
EVERYTHING = list(itertools.product(EXAMPLES, Adjacency, MECHANISMS))


def covered(name):
    """Every sampler, adjacency and mechanism that the accountant covers."""
    return [where for where in EVERYTHING if find(name).covers(*where)]


def filter_of(name, sampler, adjacency):
    return Filter(name, Budget(EPSILON, DELTA, adjacency), sampler, 20)


def prices_fall_with_noise_and_add_up(name):
    for sampler, adjacency, mechanism in covered(name):
        filter = filter_of(name, sampler, adjacency)
        for sampled in (False, True):
            prices = filter.prices(mechanism, NOISE, sampled, TAIL)
            assert np.all(prices[1:] <= prices[:-1]), (sampler, mechanism)
            finite = prices[np.isfinite(prices)]
            assert len(finite) >= 2
            assert np.all(np.diff(finite) < 0) == find(name).composes, (sampler, mechanism)
        # Steps of different epochs, since a row is in one step of an epoch.
        apart = 1 + sampler.steps_per_charge * np.arange(3)
        trace = [Answered(int(step), mechanism, 40.0 + 7 * index, TAIL) for index, step in enumerate(apart)]
        alone = [filter.spent([query]) for query in trace]
        assert 0 < sum(alone) * (1 - 1e-12) <= filter.spent(trace) <= sum(alone) * (1 + 1e-12) < math.inf
        assert find(name).composes or filter.spent(trace) > filter.limit


def prices_inside_the_run_bound_the_float64_ones(name):
    for sampler, adjacency, mechanism in covered(name):
        filter = filter_of(name, sampler, adjacency)
        price_list = filter.price_list()
        assert float(price_list.budget) <= filter.limit
        assert price_list.name == name
        for sampled in (False, True):
            true = filter.prices(mechanism, NOISE, sampled, TAIL)
            price = jax.vmap(lambda noise: price_list.price(Event(mechanism, noise, TAIL), sampled))  # noqa: B023
            prices = np.asarray(price(jnp.asarray(NOISE)), np.float64)
            # Inside the run the quadrature does not reach multipliers below order / 40, which cost what all rows do.
            reached = filter.order / 40 < NOISE if filter.neighbours is not None and sampled else np.isfinite(true)
            assert np.all(true <= prices), (sampler, mechanism)
            assert np.all(prices[reached] <= true[reached] * (1 + 1e-3)), (sampler, mechanism)


@functools.cache
def by_dp_accounting(mechanism, rate, noise, count):
    """Epsilon at DELTA of that many equal queries, by loss distributions."""
    event, accountant = EVENTS[mechanism](noise), PLDAccountant()
    accountant.compose(event if rate is None else dp_event.PoissonSampledDpEvent(rate, event), count)
    return accountant.get_epsilon(DELTA)


def a_certificate_is_never_below_dp_accountings(name):
    """Compares with dp-accounting where that has loss distributions; returns the number of comparisons."""
    # One that composes nothing certifies a single query, at its budget.
    accountant, compared, noise = find(name), 0, 8.0
    count = 12 if accountant.composes else 1
    for sampler, adjacency, mechanism in covered(name):
        one_sided = isinstance(sampler, Poisson) and adjacency is not Adjacency.REPLACE_ONE
        if mechanism not in EVENTS or not (one_sided or sampler.neighbours(adjacency) is None):
            continue
        steps = 1 + sampler.steps_per_charge * np.arange(count)
        trace = [Answered(int(step), mechanism, noise) for step in steps]
        epsilon = by_dp_accounting(mechanism, sampler.rate() if one_sided else None, noise, count)
        certified = []
        if accountant.composes:
            certified.append(accountant.epsilon_of(FixedTrace(trace, sampler, adjacency, DELTA, count)))
        if accountant.adaptive:
            certified.append(Filter(name, Budget(12.0, DELTA, adjacency), sampler, count).certify(trace, False))
        assert epsilon <= min(certified) * (1 + 1e-3), (sampler, adjacency, mechanism)
        compared += 1
    return compared


def what_is_not_covered_is_refused_in_a_sentence_or_never_granted(name):
    accountant = find(name)
    for sampler, adjacency, mechanism in EVERYTHING:
        if accountant.covers(sampler, adjacency, mechanism):
            continue
        trace = (Answered(1, mechanism, 1e3, TAIL),)
        try:
            filter = filter_of(name, sampler, adjacency)
            if not accountant.adaptive:
                filter = EnvelopeFilter(name, filter.budget, sampler, 20, envelope=trace)
            price = filter.price_list().price(Event(mechanism, jnp.float32(1e3), TAIL), True, jnp.int32(0), 0)
        except InputError as refusal:
            message = str(refusal)
            assert "\n" not in message
            assert message.endswith(".")
            assert "choose" in message
            continue
        assert math.isinf(price), (sampler, adjacency, mechanism)
        assert math.isinf(filter.spent(trace))
        with pytest.raises(RuntimeError, match="does not hold"):
            filter.certify(trace, adaptive=True)


PROPERTIES = [
    prices_fall_with_noise_and_add_up,
    prices_inside_the_run_bound_the_float64_ones,
    a_certificate_is_never_below_dp_accountings,
    what_is_not_covered_is_refused_in_a_sentence_or_never_granted,
]
