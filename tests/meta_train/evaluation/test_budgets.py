"""Real budgets for runs that mu N alone does not determine: sampled queries, and Renyi orders."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.base.errors import InputError
from l2p.models import Logistic, Square
from l2p.privacy.budget import Budget
from l2p.privacy.cap.filter import Filter
from l2p.privacy.cost.prices import PriceList
from l2p.privacy.cost.sampling import FixedSize, FullBatch, PermutationEpochs, Poisson
from l2p.privacy.events import Adjacency, Event
from l2p.protectors import HAND_DESIGNED
from l2p.task.rows import Rows
from meta_train.config.one_source import OneSource
from meta_train.config.parts import Simulated
from meta_train.evaluation import budgets
from meta_train.evaluation.budgets import ByMu, Planned, budgets_for, budgets_of_shapes, epsilon_for, sized
from meta_train.tasks.family import TaskBatch

SIMULATED, LOG_SIGNAL = Simulated(accountant="rdp", simulated_rows=10_000), (2.0, 7.0)
DPSGD = HAND_DESIGNED["dpsgd"](Budget(1.0, 1e-8)).replace(num_steps=20)
SIGNALS = jnp.array([2.0, 3.3, 5.1, 7.0])
BATCH = TaskBatch(Rows(jnp.zeros((4, 50, 3)), jnp.zeros((4, 50)), jnp.ones((4, 50))), SIGNALS, jnp.zeros(4))


@pytest.fixture(scope="module")
def planned():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budgets, "PLANNED", 17)
        return budgets_for(SIMULATED, DPSGD, LOG_SIGNAL, "binary")


@pytest.mark.long
def test_tasks_of_every_sampling_rate_have_budgets_of_their_own(monkeypatch):
    monkeypatch.setattr(budgets, "PLANNED", 3)
    tasks = OneSource(log_signal=LOG_SIGNAL, num_features=(3, 4, 5, 3), sampling_rates=(0.1, 0.3, 0.1, 0.1))
    by_shape = budgets_of_shapes(SIMULATED, tasks, DPSGD)
    assert list(by_shape) == list(tasks.shapes[:3])  # the last is the first again
    first, second, third = by_shape.values()
    assert [simulated.price_lists.sampler.rate() for simulated in (first, second)] == [0.1, 0.3]
    assert first is third
    two = OneSource(log_signal=LOG_SIGNAL, num_features=(3, 4))
    plain = list(budgets_of_shapes(SIMULATED, two, DPSGD).values())
    assert plain[0] is plain[1]
    assert plain[0].price_lists.sampler == DPSGD.sampler


def test_only_mu_n_matters_where_it_does():
    agd = HAND_DESIGNED["agd"](Budget(1.0, 1e-8))
    assert budgets_for(Simulated(accountant="zcdp"), agd, LOG_SIGNAL, "binary") == ByMu("zcdp", "binary")


@pytest.mark.long
def test_simulated_runs_know_what_kind_of_target_a_source_has(monkeypatch):
    monkeypatch.setattr(budgets, "PLANNED", 3)
    for protector in (HAND_DESIGNED["noisygd"](Budget(1.0, 1e-6)), DPSGD):
        _, setups = budgets_for(SIMULATED, protector, LOG_SIGNAL, "binary").simulate(BATCH, Square(), capped=True)
        assert setups.kind == "binary" != Square().kind()


@pytest.mark.long
def test_tasks_get_the_signal_they_drew_to_half_a_spacing_and_rows_that_make_up_the_table(planned):
    rows, setups = planned.simulate(BATCH, Logistic(), capped=True)
    log_signals = jax.vmap(lambda setup: setup.log_signal)(setups)
    np.testing.assert_allclose(log_signals, SIGNALS, atol=0.55 * 5.0 / 16)
    np.testing.assert_allclose(rows.mask.sum(1), 10_000, rtol=1e-5)
    assert setups.price_list.sampler == Poisson(0.05)
    assert np.array_equal(setups.cap, setups.price_list.budget)
    assert np.isinf(planned.simulate(BATCH, Logistic(), capped=False)[1].cap).all()


@pytest.mark.long
def test_every_simulated_budget_is_one_that_a_filter_would_plan(planned):
    epsilon = epsilon_for(SIMULATED, DPSGD, 2.0)
    real = Filter("rdp", Budget(epsilon, 1e-8), DPSGD.sampler, 20).price_list()
    first = jax.tree.map(lambda leaf: leaf[0], planned.price_lists)
    for name in ("budget", "order", "coefficients"):
        jax.tree.map(np.testing.assert_array_equal, getattr(first, name), getattr(real, name))


@pytest.mark.long
def test_tabled_noise_is_paid_for_and_hardly_more_than_the_least(planned):
    shares = np.geomspace(2e-6, 1.0, 1999, dtype=np.float32)

    def at(price_list):
        costs = price_list.budget * shares
        tabled = price_list.noise_multiplier(costs, sampled=True)
        least = jax.vmap(lambda cost: PriceList.noise_multiplier(price_list, cost, sampled=True))(costs)
        price = jax.vmap(lambda noise: price_list.price(Event("gaussian", noise), sampled=True))(tabled)
        return price / costs, tabled / least

    paid, ratio = jax.jit(jax.vmap(at))(jax.tree.map(lambda leaf: leaf[jnp.array([0, 8, 16])], planned.price_lists))
    assert float(paid.max()) <= 1.0
    assert float(ratio.max()) < 1.005


@pytest.mark.long
def test_fixed_size_batches_keep_their_rate_and_their_neighbours(monkeypatch):
    monkeypatch.setattr(budgets, "PLANNED", 3)
    sampled = sized(DPSGD.replace(sampler=FixedSize(1000, 10_000)), 50)
    assert sampled.sampler == FixedSize(5, 50)
    of_batches = budgets_for(SIMULATED, sampled, LOG_SIGNAL, "binary")
    assert isinstance(of_batches, Planned)
    _, setups = of_batches.simulate(BATCH, Logistic(), capped=True)
    assert setups.adjacency is Adjacency.REPLACE_ONE
    # The noise on a mean doubles when a row may be replaced, so tasks are drawn by log(mu N / 2).
    np.testing.assert_allclose(of_batches.log_signal[jnp.array([0, -1])], [2.0, 7.0], atol=0.01)


@pytest.mark.parametrize("sampler", [FullBatch(), Poisson(0.1)])
def test_samplers_without_a_size_need_none(sampler):
    start = DPSGD.replace(sampler=sampler)
    assert sized(start, 50) is start


def test_permutation_epochs_are_planned_too(monkeypatch):
    monkeypatch.setattr(budgets, "PLANNED", 2)
    start = sized(DPSGD.replace(sampler=PermutationEpochs(2500, 10_000)), 48)
    of_epochs = budgets_for(dataclasses.replace(SIMULATED, accountant="gdp"), start, LOG_SIGNAL, "binary")
    assert isinstance(of_epochs, Planned)
    assert of_epochs.price_lists.sampler.steps_per_charge == 4


def test_an_accountant_without_a_theorem_for_the_sampler_is_refused():
    with pytest.raises(InputError, match="no theorem"):
        budgets_for(dataclasses.replace(SIMULATED, accountant="gdp"), DPSGD, LOG_SIGNAL, "binary")


def test_a_mechanism_that_the_accountant_does_not_price_is_refused():
    start = HAND_DESIGNED["agd"](Budget(1.0, 1e-8)).replace(num_steps=5)
    object.__setattr__(start, "selection", "unheard")
    with pytest.raises(InputError, match="cannot price"):
        budgets_for(SIMULATED, start, LOG_SIGNAL, "binary")
