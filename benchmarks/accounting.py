"""Time to price and certify an adaptive run: 10,000 queries, each with its own noise.

    taskset -c 0 python benchmarks/accounting.py

Each line computes epsilon for the same trace in a different way; the last column is its time relative to l2p's filter
for the same sampling. The filters are valid although the noise depends on earlier answers; dp-accounting's numbers are
valid only for noise fixed beforehand. `in a run` is the float32 price, the inverse price and the `Spending` inside
one jitted scan.
"""

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from dp_accounting import PrivacyAccountant, dp_event, pld, rdp

from l2p.privacy import Answered, Budget, Event, Filter, FullBatch, Poisson, Sampler, Spending

QUERIES, RATE = 10_000, 1000 / 30_400
#: Number of queries for timing the slowest accountants.
FEW = 200
BUDGET = Budget(1.0, 1e-8)


def trace(sampler: Sampler) -> list[Answered]:
    """Noise that varies by a factor of 2 around the level that spends the budget evenly."""
    filter = Filter("rdp", BUDGET, sampler)
    even = float(filter.price_list().noise_multiplier(filter.limit / QUERIES, sampled=True))
    factors = np.exp(np.random.default_rng(0).normal(0.3, 0.2, QUERIES))
    return [Answered(step + 1, "gaussian", float(value)) for step, value in enumerate(even * factors)]


def with_dp_accounting(accountant: PrivacyAccountant, sampler: Sampler, answered: list[Answered]) -> float:
    """Epsilon by dp-accounting, one event per query."""
    for query in answered:
        event = dp_event.GaussianDpEvent(query.noise_multiplier)
        accountant.compose(dp_event.PoissonSampledDpEvent(RATE, event) if sampler != FullBatch() else event)
    return accountant.get_epsilon(BUDGET.delta)


def in_a_run(filter: Filter, shares: jax.Array) -> Callable[[], jax.Array]:
    """A scan that plans, prices and charges QUERIES queries."""
    accountant = filter.price_list()

    @jax.jit
    def scan(shares: jax.Array) -> jax.Array:
        def step(spending: Spending, share: jax.Array) -> tuple[Spending, jax.Array]:
            noise = accountant.noise_multiplier(share * spending.left * spending.budget, sampled=True)
            granted, spending = spending.charge(accountant.price(Event("gaussian", noise), sampled=True))
            return spending, granted

        return jax.lax.scan(step, Spending(jnp.zeros(()), accountant.budget), shares)[0].spent

    scan(shares).block_until_ready()  # compiled
    return lambda: scan(shares).block_until_ready()


def seconds(function: Callable[[], object]) -> tuple[float, object]:
    begun = time.perf_counter()
    found = function()
    return time.perf_counter() - begun, found


def peers(sampler: Sampler, answered: list[Answered], order: float, taken: float) -> None:
    """dp-accounting on the same trace; its slowest accountants only on the first queries."""
    theirs, epsilon = seconds(lambda: with_dp_accounting(rdp.RdpAccountant([order]), sampler, answered))
    report("dp-accounting, the same order", theirs, f"epsilon {epsilon:.5f}", theirs / taken)
    accountants = {"default orders": rdp.RdpAccountant(), "loss distributions": pld.PLDAccountant()}
    for name, accountant in accountants.items():
        few, _ = seconds(lambda: with_dp_accounting(accountant, sampler, answered[:FEW]))  # noqa: B023
        theirs = few * QUERIES / FEW
        report(f"dp-accounting, {name}", theirs, f"(from {FEW})", theirs / taken)


def report(name: str, taken: float, found: str, ratio: float) -> None:
    print(f"  {name:<36} {taken:8.3f} s   {found:<16} {ratio:8.1f}")


def main() -> None:
    shares = jnp.asarray(np.random.default_rng(1).uniform(0.5e-4, 2e-4, QUERIES), jnp.float32)
    print(f"{QUERIES} queries, epsilon {BUDGET.epsilon:g}, delta {BUDGET.delta:g}")
    for sampler, name in ((FullBatch(), "gdp"), (FullBatch(), "rdp"), (Poisson(RATE), "rdp"), (Poisson(RATE), "ctcdp")):
        answered, filter = trace(sampler), Filter(name, BUDGET, sampler)
        print(f"\n{sampler}")
        taken, _ = seconds(lambda: filter.certify(answered, adaptive=True))  # noqa: B023
        report(f"{name}, certified in float64", taken, f"epsilon {filter.epsilon(filter.spent(answered)):.5f}", 1.0)
        run, _ = seconds(in_a_run(filter, shares))
        report(f"{name}, in a run", run, "", run / taken)
        if name == "rdp":
            peers(sampler, answered, filter.order, taken)


if __name__ == "__main__":
    main()
