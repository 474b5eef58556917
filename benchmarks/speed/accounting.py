"""Pricing an adaptive run, each of whose queries has noise of its own, against dp-accounting's accountants.

l2p's filters are valid although noise depends on earlier answers; dp-accounting's numbers are valid only for noise that
was fixed beforehand.
"""

import functools
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
from dp_accounting import PrivacyAccountant, dp_event, pld, rdp

from benchmarks.speed.timing import Contender, Prepare, Table, measure
from l2p.privacy import Answered, Budget, Event, Filter, FullBatch, Poisson, Sampler, Spending

#: Queries of a run, and of one that the slowest accountants are timed on.
QUERIES, QUICK_QUERIES, FEW, RATE, BUDGET = 10_000, 500, 100, 1000 / 30_400, Budget(1.0, 1e-8)
BASE = "l2p, certified in float64"


def tables(quick: bool, rounds: int) -> Iterator[Table]:
    """A table for every sampler and accountant; seconds are those per query."""
    num_queries = QUICK_QUERIES if quick else QUERIES
    for sampler, name in ((FullBatch(), "gdp"), (FullBatch(), "rdp"), (Poisson(RATE), "rdp"), (Poisson(RATE), "ctcdp")):
        filter = Filter(name, BUDGET, sampler)
        title = f"a query of {num_queries:,}: {name}, {sampler}"
        yield measure(title, BASE, contenders(filter, trace(filter, num_queries)), rounds)


def trace(filter: Filter, num_queries: int) -> list[Answered]:
    """Noise that varies by a factor of 2 around the level that spends the budget evenly."""
    even = float(filter.price_list().noise_multiplier(filter.limit / num_queries, sampled=True))
    factors = np.exp(np.random.default_rng(0).normal(0.3, 0.2, num_queries))
    return [Answered(step + 1, "gaussian", float(value)) for step, value in enumerate(even * factors)]


def contenders(filter: Filter, answered: list[Answered]) -> dict[str, Prepare]:
    """l2p after a run and within one; dp-accounting where it has the same accountant, and with its defaults."""
    few = answered[:FEW]
    ours = {
        BASE: lambda: Contender(
            functools.partial(filter.certify, answered, adaptive=True),
            len(answered),
            lambda: filter.epsilon(filter.spent(few)),
        ),
        "l2p, in a run, float32": lambda: in_a_run(filter, len(answered)),
    }
    if filter.name != "rdp":
        return ours

    def theirs(make: Callable[[], PrivacyAccountant], queries: list[Answered], same: bool = False) -> Contender:
        check = (lambda: composed(make(), filter.sampler, few)) if same else None
        return Contender(lambda: composed(make(), filter.sampler, queries), len(queries), check)

    return ours | {
        "dp-accounting, the same order": lambda: theirs(lambda: rdp.RdpAccountant([filter.order]), answered, True),
        "dp-accounting, default orders": lambda: theirs(rdp.RdpAccountant, few),
        "dp-accounting, loss distributions": lambda: theirs(pld.PLDAccountant, few),
    }


def composed(accountant: PrivacyAccountant, sampler: Sampler, answered: list[Answered]) -> float:
    """Epsilon by dp-accounting, one event per query."""
    for query in answered:
        event = dp_event.GaussianDpEvent(query.noise_multiplier)
        accountant.compose(dp_event.PoissonSampledDpEvent(RATE, event) if sampler != FullBatch() else event)
    return accountant.get_epsilon(BUDGET.delta)


def in_a_run(filter: Filter, num_queries: int) -> Contender:
    """A scan that plans, prices and charges queries, as a run does."""
    price_list = filter.price_list()
    shares = jnp.asarray(np.random.default_rng(1).uniform(0.5, 2.0, num_queries) / num_queries, jnp.float32)

    @jax.jit
    def scan(shares: jax.Array) -> jax.Array:
        def step(spending: Spending, share: jax.Array) -> tuple[Spending, jax.Array]:
            noise = price_list.noise_multiplier(share * spending.left * spending.budget, sampled=True)
            granted, spending = spending.charge(price_list.price(Event("gaussian", noise), sampled=True))
            return spending, granted

        return jax.lax.scan(step, Spending(jnp.zeros(()), price_list.budget), shares)[0].spent

    return Contender(lambda: scan(shares).block_until_ready(), num_queries)
