"""Privacy loss distributions of a noise schedule's lower envelope: enforced inside the run, and priced once."""

import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.base.errors import InputError
from l2p.privacy import Adjacency, Answered, Budget, Event, Filter, Poisson, Spending
from l2p.privacy.cap.envelope import EnvelopeFilter, rehearsed
from l2p.privacy.cap.planning import noise_multiplier
from l2p.privacy.cost.sampling import FixedSize, FullBatch
from l2p.release.api import private_train
from l2p.task.rows import Rows

BUDGET, SAMPLER, STEPS = Budget(0.8, 1e-6), Poisson(0.05), 20


def gaussians(*queries):
    return tuple(Answered(step, "gaussian", noise) for step, noise in queries)


# One query in `init`, then two in each step: one with more noise, one with less.
NOISES = (9.0, 4.0)
QUERIES = gaussians((0, 12.0), *((step, noise) for step in range(1, STEPS + 1) for noise in NOISES))


@functools.cache
def enveloped():
    return EnvelopeFilter("pld", BUDGET, SAMPLER, STEPS, QUERIES)


@jax.jit
def run(accountant, at_start, noises):
    """Float32 decisions about f32[], at the start, and f32[T, 2]: as a run charges them."""

    def step(state, piece):
        index, values = piece
        granted = []
        for slot in range(2):
            price = accountant.price(Event("gaussian", values[slot]), True, index, slot)
            grant, state = state.charge(price)
            granted.append(grant)
        return state, jnp.stack(granted)

    price = accountant.price(Event("gaussian", at_start), False, None, 0)
    first, state = Spending(jnp.float32(0), accountant.budget).charge(price)
    final, granted = jax.lax.scan(step, state, (jnp.arange(noises.shape[0]), noises))
    return first, granted, final.spent


def planned():
    return jnp.float32(12.0), jnp.tile(jnp.asarray(NOISES, jnp.float32), (STEPS, 1))


@pytest.mark.slow
def test_a_run_at_its_envelope_is_granted_and_certified():
    filter = enveloped()
    assert filter.limit_epsilon <= BUDGET.epsilon
    first, granted, spent = run(filter.price_list(), *planned())
    assert first
    assert bool(granted.all())
    assert filter.spent(QUERIES) <= filter.limit
    assert float(spent) <= filter.limit
    assert filter.certify(QUERIES, adaptive=False) == pytest.approx(filter.limit_epsilon)
    assert "envelope" in filter.theorem


def test_more_noise_than_the_envelope_is_granted_and_nothing_is_given_back():
    filter, random = enveloped(), np.random.default_rng(0)
    at_start, noises = planned()
    noises = noises * np.exp(random.exponential(1.0, noises.shape)).astype(np.float32)
    first, granted, _ = run(filter.price_list(), at_start * 3, noises)
    assert first
    assert bool(granted.all())
    steps = [(step + 1, float(noise)) for step in range(STEPS) for noise in noises[step]]
    noisier = gaussians((0, 36.0), *steps)
    # Noise may depend on earlier answers, and the run may stop early; the envelope covers this.
    for trace in (noisier, noisier[:7], ()):
        assert filter.certify(trace, adaptive=True) <= BUDGET.epsilon
        if trace:
            assert filter.certify(trace, adaptive=False) == pytest.approx(filter.limit_epsilon)


def test_a_query_below_its_envelope_is_refused():
    filter = enveloped()
    at_start, noises = planned()
    _, granted, _ = run(filter.price_list(), at_start * (1 - 1e-6), noises.at[3, 1].multiply(1 - 1e-6))
    expected = np.ones((STEPS, 2), bool)
    expected[3, 1] = False
    np.testing.assert_array_equal(granted, expected)
    first, granted, _ = run(filter.price_list(), jnp.float32(math.nan), jnp.full_like(noises, jnp.nan))
    assert not first
    assert not granted.any()
    for index in (0, 1, 8):  # at the start, in a step with more noise, in one with less
        trace = list(QUERIES)
        trace[index] = trace[index].replace(noise_multiplier=trace[index].noise_multiplier * (1 - 1e-12))
        assert filter.spent(trace) == math.inf
        with pytest.raises(RuntimeError, match="does not hold"):
            filter.certify(trace, adaptive=True)


@pytest.mark.slow
def test_a_query_that_was_not_planned_is_refused():
    filter = enveloped()
    accountant, enough = filter.price_list(), jnp.float32(1e6)
    for event, sampled, step, slot in (
        (Event("gaussian", enough), True, STEPS, 0),  # a step too many
        (Event("gaussian", enough), True, 0, 2),  # a third query of a step
        (Event("gaussian", enough), False, None, 1),  # a second one at the start
        (Event("laplace", enough), True, 0, 0),  # another mechanism
        (Event("none", enough), True, 0, 0),
    ):
        assert accountant.price(event, sampled, step if step is None else jnp.int32(step), slot) == jnp.inf
    extra = gaussians((STEPS + 1, 1e6))
    for trace in (
        QUERIES + extra,
        (*QUERIES[:3], QUERIES[2].replace(noise_multiplier=1e6)),
        (QUERIES[0], QUERIES[0]),
        (Answered(1, "laplace", 1e6),),
        (Answered(1, "none", 1e6),),
    ):
        assert filter.spent(trace) == math.inf
    # A planner asks for prices without a step.
    assert accountant.price(Event("gaussian", jnp.float32(1.0)), True) < jnp.inf


def test_on_full_batches_too_the_start_and_the_steps_have_envelopes_of_their_own():
    envelope = EnvelopeFilter("moments", Budget(3.0, 1e-5), FullBatch(), 2, gaussians((0, 9.0), (1, 5.0), (2, 6.0)))
    price = envelope.price_list().price
    for step, least in ((None, 9.0), (jnp.int32(0), 5.0), (jnp.int32(1), 6.0)):
        granted = [price(Event("gaussian", jnp.float32(least * by)), False, step, 0) < jnp.inf for by in (0.99, 1.01)]
        assert granted == [False, True]


@pytest.mark.slow
def test_a_full_batch_run_under_a_fixed_schedule_takes_its_steps():
    rows = Rows(jnp.ones((900, 1)), jnp.ones(900), jnp.ones(900))
    result = private_train(rows, "noisygd", Budget(3.0, 1e-5), accountant="moments", key=jax.random.key(0))
    assert result.steps == 50


@pytest.mark.slow
def test_float32_and_float64_decide_alike_next_to_the_envelope():
    """The float32 envelope is rounded up, so what it grants is above the float64 one."""
    noise = 6.0 * (1 + 2.0**-30)
    filter = EnvelopeFilter("pld", BUDGET, SAMPLER, 1, gaussians((1, noise)))
    accountant = filter.price_list()
    values = np.float32(6.0) + np.arange(-3, 4, dtype=np.float32) * np.spacing(np.float32(6.0))
    for value in values:
        granted = accountant.price(Event("gaussian", jnp.asarray(value)), True, jnp.int32(0), 0) < jnp.inf
        assert granted == (value > 6.0)
        assert granted == (filter.spent(gaussians((1, float(value)))) < math.inf)


def test_an_envelope_beyond_the_budget_or_without_a_proof_is_refused():
    with pytest.raises(InputError, match=r"above the target 0.1; choose more noise"):
        EnvelopeFilter("pld", Budget(0.1, 1e-6), SAMPLER, STEPS, QUERIES)
    with pytest.raises(InputError, match=r"accountant 'pld' or .* and has at least one query"):
        EnvelopeFilter("pld", BUDGET, SAMPLER, STEPS)
    with pytest.raises(InputError, match="accountant 'pld'"):
        EnvelopeFilter("rdp", BUDGET, SAMPLER, STEPS, QUERIES)
    with pytest.raises(InputError, match="choose accountant rdp"):
        EnvelopeFilter("pld", Budget(0.8, 1e-6, Adjacency.REPLACE_ONE), SAMPLER, STEPS, QUERIES)
    with pytest.raises(InputError, match="drowns a delta"):
        EnvelopeFilter("pld", Budget(0.8, 1e-15), SAMPLER, STEPS, QUERIES)


@pytest.mark.long
@pytest.mark.parametrize("decay", [0.0, 1.5])
def test_a_rehearsed_schedule_uses_the_budget_up_and_beats_the_renyi_filter(decay):
    """Spending grows by exp(decay) from the first step to the last."""
    weights = np.exp(decay * np.arange(STEPS) / STEPS)
    rehearsals = []

    @jax.jit
    def schedule(accountant):
        costs = jnp.asarray(weights / weights.sum() * (1 - 1e-3), jnp.float32) * accountant.budget
        return jax.vmap(lambda cost: accountant.noise_multiplier(cost, sampled=True))(costs)

    def rehearse(accountant):
        rehearsals.append(accountant)
        noises = schedule(accountant)
        return [Answered(step + 1, "gaussian", float(noise)) for step, noise in enumerate(noises)]

    renyi = Filter("pld", BUDGET, SAMPLER, STEPS)
    filter = rehearsed(renyi, rehearse)
    assert len(rehearsals) <= 13
    assert 0.99 * BUDGET.epsilon <= filter.limit_epsilon <= BUDGET.epsilon
    by_filter = [query.noise_multiplier for query in rehearse(renyi.price_list())]
    by_envelope = [query.noise_multiplier for query in filter.envelope]
    assert all(mine < 0.97 * theirs for mine, theirs in zip(by_envelope, by_filter, strict=True))
    assert all(later <= earlier for earlier, later in itertools.pairwise(by_envelope))
    if decay == 0:
        # Within one percent of the budget and one grid point of what an exact plan needs.
        assert by_envelope[0] == pytest.approx(noise_multiplier(BUDGET, SAMPLER, STEPS, "pld"), rel=5e-3)
    # The same schedule, run under the envelope's own accountant, is granted to the last step.
    accountant = filter.price_list()
    noises = jnp.asarray(schedule(accountant))
    state = Spending(jnp.float32(0), accountant.budget)
    price = jax.jit(lambda noise, step: accountant.price(Event("gaussian", noise), True, step, 0))
    for step, noise in enumerate(noises):
        granted, state = state.charge(price(noise, jnp.int32(step)))
        assert granted
    trace = [Answered(step + 1, "gaussian", float(noise)) for step, noise in enumerate(noises)]
    assert filter.certify(trace, adaptive=False) == pytest.approx(filter.limit_epsilon)


def even(steps, accountant):
    """A trial run with equal prices."""
    noise = float(_noise(accountant, (1 - 1e-3) / steps))
    return [Answered(step + 1, "gaussian", noise) for step in range(steps)]


@jax.jit
def _noise(accountant, share):
    return accountant.noise_multiplier(accountant.budget * share, sampled=True)


REPLACED = Budget(0.8, 1e-6, Adjacency.REPLACE_ONE)
LOOSER = {
    "moments, Poisson": (Filter("moments", BUDGET, Poisson(0.05), 20), 1.02),
    "moments, next to its floor": (Filter("moments", Budget(0.44, 1e-6), Poisson(0.05), 20), 2.0),
    "moments, full batch": (Filter("moments", BUDGET, FullBatch(), 20), 1.02),
    "strong composition, fixed size": (Filter("strong_composition", REPLACED, FixedSize(50, 1000), 20), 3.0),
    "strong composition, Poisson": (Filter("strong_composition", BUDGET, Poisson(0.05), 20), 3.0),
    "strong composition, full batch": (Filter("strong_composition", BUDGET, FullBatch(), 20), 2.0),
}


@pytest.mark.slow(but=["moments, full batch", "strong composition, full batch"])
@pytest.mark.parametrize("case", LOOSER)
def test_looser_accountants_are_given_the_noise_that_they_need_and_no_more(case):
    filter, times = LOOSER[case]
    planned = rehearsed(filter, lambda accountant: even(20, accountant))
    assert planned.limit_epsilon <= filter.budget.epsilon
    noise = planned.envelope[0].noise_multiplier
    assert noise == pytest.approx(noise_multiplier(filter.budget, filter.sampler, 20, filter.name), rel=2e-3)
    renyi = noise_multiplier(filter.budget, filter.sampler, 20, "rdp")
    assert noise > times * renyi
    # What the Renyi filter would have certified is no more, and a query with less noise has no certificate at all.
    trace = even(20, planned.price_list())
    assert planned.certify(trace, adaptive=True) == filter.budget.epsilon
    assert planned.certify(trace, adaptive=False) == pytest.approx(planned.limit_epsilon)
    assert planned.spent([query.replace(noise_multiplier=0.999 * noise) for query in trace]) == math.inf


@pytest.mark.slow
def test_an_accountant_that_certifies_nothing_here_says_so_in_a_sentence():
    rehearsals = []

    def rehearse(accountant):
        rehearsals.append(accountant)
        return even(20, accountant)

    with pytest.raises(
        InputError, match=r"'moments' certifies .* no amount of noise .*below ln\(1/delta\) / 32 = 0.576.*"
    ):
        rehearsed(Filter("moments", Budget(0.5, 1e-8), Poisson(0.05), 20), rehearse)
    assert len(rehearsals) < 10
    del rehearsals[:]
    with pytest.raises(InputError, match="moments accountant is proved for full batches"):
        rehearsed(Filter("moments", REPLACED, Poisson(0.05), 20), rehearse)
    assert len(rehearsals) == 1  # no theorem: more noise would not help


@pytest.mark.slow
def test_a_textbook_mechanism_is_never_given_less_noise_than_its_theorem_needs():
    """At a large epsilon the precondition is the limit and not the budget, part of which is then left unspent."""
    filter = Filter("strong_composition", Budget(30.0, 1e-6), Poisson(0.05), 20)
    planned = rehearsed(filter, lambda accountant: even(20, accountant))
    least = math.sqrt(2 * math.log(1.25 * 2 * 20 / 1e-6))
    assert planned.envelope[0].noise_multiplier == pytest.approx(least, rel=2e-3)
    assert planned.envelope[0].noise_multiplier >= least
    assert planned.limit_epsilon < 15
