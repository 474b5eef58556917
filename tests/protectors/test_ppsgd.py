"""PPSGD and its rivals: the paper's equations, its rules, where a run stops, limits without noise, what is spent."""

import dataclasses
import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

import l2p
from l2p.base.errors import InputError
from l2p.models import INTERCEPT_COLUMN, MODELS, Hinge, Logistic, Softmax, find_model
from l2p.oracle.setup import Setup
from l2p.oracle.trace import trace_of
from l2p.privacy import Adjacency, Budget, Filter
from l2p.privacy.cost.sampling import FixedSize
from l2p.protectors import HAND_DESIGNED, FineTuned, Stepwise
from l2p.protectors.hand_designed import log_constant
from l2p.protectors.stepwise.public_rows import PublicGradients
from l2p.protectors.stepwise.schedulers import Observation
from l2p.protectors.with_public_rows.ppsgd import with_settings
from l2p.protectors.with_public_rows.public_fit import fit
from l2p.protectors.with_public_rows.public_growth import GrowthState, published_noise
from l2p.run.run import run
from l2p.task.rows import Rows
from l2p.task.task import Task

D, N = 3, 400
KEY = jax.random.key(4)
MODEL = Logistic()
REPLACED = Budget(1.0, 1e-6, Adjacency.REPLACE_ONE)


def f32(value):
    return jnp.asarray(value, jnp.float32)


def table(count, seed):
    random = np.random.default_rng(seed)
    x = random.random((count, D))
    y = random.random(count) < special.expit(6 * (x @ [1.5, -1.0, 0.5] - 0.5))
    return Rows(f32(x), f32(y), f32(np.ones(count)))


ROWS, PUBLIC = table(N, 0), table(20, 1)
ZERO = jnp.zeros(D + 1)
jit_run = jax.jit(run)


def method(name, budget=REPLACED, model="logistic"):
    return HAND_DESIGNED[name](budget, find_model(model), N)


def changed(protector, num_steps=None, sampler=None, **logs):
    """A PPSGD with other constants in its scheduler, given as they are."""
    scheduler = protector.inner.scheduler.replace(**{f"log_{k}": jnp.log(f32([v])) for k, v in logs.items()})
    inner = protector.inner.replace(scheduler=scheduler, num_steps=num_steps or protector.inner.num_steps)
    return protector.replace(inner=inner if sampler is None else inner.replace(sampler=sampler))


def setup_of(protector, accountant, budget=REPLACED, model=MODEL, **changes):
    filter = Filter(accountant, budget, protector.sampler, protector.num_steps)
    setup = Setup.create(model, budget.adjacency, filter.price_list(), N)
    return filter, dataclasses.replace(setup, **changes)


# ----------------------------------------------------------------------------------------------------------- equations
@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (0.5, 1e-8), (0.7, 1e-5)])
def test_the_budget_is_that_of_equation_3(epsilon, delta):
    size = math.log(1 / delta)
    rho = epsilon + 2 * size - 2 * math.sqrt(size * (epsilon + size))
    planned = Filter("paper_13", Budget(epsilon, delta, Adjacency.REPLACE_ONE), FixedSize(100, 1000), 10)
    assert planned.limit == pytest.approx(rho, rel=1e-6)
    assert planned.order == pytest.approx(math.sqrt(size / rho) + 1, rel=1e-6)
    assert rho + 2 * math.sqrt(rho * size) == pytest.approx(epsilon)  # Theorem 2


@pytest.mark.slow
def test_noise_is_that_of_equation_4_and_its_price_is_rho():
    protector = changed(method("ppsgd"), num_steps=6, growth=1e-9, noise_ratio=1e6, clip_ratio=1e6)
    planned, here = setup_of(protector, "paper_13")
    _, ended, (_, (record,)), _ = jit_run(protector, ZERO, ROWS, here, KEY, PUBLIC)
    assert int(ended.step) == 6
    batch, clip, rho = 40, 1.0, planned.limit / 100
    rho_s = rho / (13 * (batch / N) ** 2)
    std = math.sqrt(2 * clip**2 / (batch**2 * rho_s))  # of the mean over a batch
    np.testing.assert_allclose(record.noise_multiplier * 2 * clip / batch, std, rtol=1e-4)
    np.testing.assert_allclose(record.cost, rho, rtol=1e-4)
    assert np.all(record.cost <= rho)
    # At batch 5 % of 26,000 rows, epsilon .1 and delta 1e-6.
    assert float(published_noise(1.8e-6, 0.05)) == pytest.approx(0.05 * math.sqrt(13 / 2 / 1.8e-6), rel=1e-5)


# --------------------------------------------------------------------------------------------------------------- rules
def planned_step(mean_norm, longest, noise, clip_norm=1.0, clip_by="mean", step=1):
    """(price, clip norm) of a step, the last price 1, with public gradients of these lengths."""
    scheduler = method("ppgd").inner.scheduler.replace(clip_by=clip_by)
    public = SimpleNamespace(mean=lambda: f32([0.0, mean_norm]), norms=lambda: f32([0.0, longest]))
    observation = Observation(jnp.zeros(4), f32(noise), f32(0.0), public=public)
    _, setup = setup_of(method("ppgd"), "gdp")
    oracle = SimpleNamespace(step=jnp.int32(step), setup=setup, noise_multiplier=setup.price_list.noise_multiplier)
    plan, state = scheduler(GrowthState(f32(1.0), f32(clip_norm)), observation, oracle, 50)
    assert float(plan.clip_norm) == float(state.clip_norm)
    return round(float(state.price), 5), round(float(state.clip_norm), 5)


def test_the_price_grows_where_noise_drowns_the_public_gradient():
    # phi = 10, and the noise of 4 coordinates is twice that of one.
    assert planned_step(0.21, 0.21, noise=1.0) == (1.0, 1.0)
    assert planned_step(0.19, 0.19, noise=1.0) == (1.3, 1.0)
    assert planned_step(0.19, 0.19, noise=1.0, step=0) == (1.0, 1.0)  # nothing was released yet


def test_the_clipping_norm_shrinks_where_public_gradients_are_short():
    # varphi = 100.
    assert planned_step(0.011, 0.5, noise=0.01) == (1.0, 1.0)
    assert planned_step(0.009, 0.5, noise=0.01) == (1.0, 0.7)
    assert planned_step(0.009, 0.5, noise=0.01, clip_by="maximum") == (1.0, 1.0)
    assert planned_step(0.009, 0.009, noise=0.01, clip_by="maximum") == (1.0, 0.7)


def test_settings_are_the_papers():
    for epsilon, model, ratio in ((0.1, "hinge", 100), (0.1, "square", 5), (0.3, "square", 10)):
        scheduler = method("ppsgd", Budget(epsilon, 1e-6, Adjacency.REPLACE_ONE), model).inner.scheduler
        assert math.exp(float(scheduler.log_clip_ratio[0])) == pytest.approx(ratio)
    assert math.exp(float(scheduler.log_noise_ratio[0])) == pytest.approx(10)
    assert math.exp(float(scheduler.log_growth[0])) == pytest.approx(0.3)
    assert float(special.expit(scheduler.logit_shrinking[0])) == pytest.approx(0.3)


@pytest.mark.slow
def test_noise_depends_on_the_private_rows_through_what_was_released():
    """Private rows like the public ones shorten the public gradient, others lengthen it."""
    protector = changed(method("ppgd"), num_steps=12, share=0.03, noise_ratio=0.5)
    protector = protector.replace(
        inner=protector.inner.replace(projector=protector.inner.projector.inner)
    )  # without the L2 term
    _, here = setup_of(protector, "gdp", Budget(5.0, 1e-6, Adjacency.REPLACE_ONE))
    projector = protector.inner.projector
    rates = {"learning_rate": jnp.log(f32([3.0]))}
    protector = protector.replace(inner=protector.inner.replace(projector=projector.replace(hyperparameters=rates)))
    noise = [
        jit_run(protector, ZERO, rows, here, KEY, PUBLIC)[2][1][0].noise_multiplier
        for rows in (ROWS, ROWS.replace(y=1.0 - ROWS.y))
    ]
    assert not np.array_equal(*noise)
    assert protector.adaptive_noise


# ------------------------------------------------------------------------------------------------------------ stopping
@pytest.mark.slow
def test_a_precondition_that_fails_midway_stops_the_run_having_spent_what_was_answered():
    """The third price has no theorem: its output order is below omega, though most of the budget is left."""
    budget = REPLACED
    protector = changed(method("ppsgd", budget), share=0.02, growth=2.0, noise_ratio=1e-6, clip_ratio=1e6)
    planned, here = setup_of(protector, "paper_13", budget)
    params, ended, (first, (record,)), _ = jit_run(protector, ZERO, ROWS, here, KEY, PUBLIC)
    trace = trace_of(first, [(record,)])
    steps = int(ended.step)
    assert steps == 2
    assert not bool(ended.alive)
    assert [row.step for row in trace] == list(range(1, steps + 1))
    refused = 0.02 * 3.0**steps * planned.limit
    assert refused < planned.limit - planned.spent(trace)  # it could be paid
    assert planned.spent(trace) == pytest.approx(planned.limit * 0.02 * sum(3.0**t for t in range(steps)), rel=1e-3)
    refused_noise = record.noise_multiplier[steps]
    rho_s = 0.5 / float(refused_noise) ** 2
    assert math.log(10) / (4 * rho_s) < planned.order  # what eq. 4 forgets
    assert rho_s <= 0.1
    assert planned.prices("gaussian", np.array([refused_noise]), sampled=True)[0] == math.inf
    assert np.all(np.isfinite(planned.prices("gaussian", np.asarray(record.noise_multiplier[:steps]), sampled=True)))
    assert np.any(params != 0)


# -------------------------------------------------------------------------------------------------------------- limits
@pytest.mark.slow
def test_without_noise_growth_and_shrinking_it_is_gradient_descent():
    protector = with_settings(method("ppgd"), alpha=0.0, beta=0.0, reuse=1e8)
    protector = changed(protector, num_steps=10, clip_norm=30.0)
    inner = protector.inner
    rates = {"learning_rate": jnp.log(f32([2.0]))}
    projector = inner.projector.inner.replace(hyperparameters=rates)
    protector = protector.replace(inner=inner.replace(projector=projector))
    _, here = setup_of(protector, "gdp")
    here = here.replace(price_list=here.price_list.replace(budget=f32(1e14)), cap=f32(1e14))
    params = jit_run(protector, ZERO, ROWS, here, KEY, PUBLIC)[0]
    lines, expected = np.c_[np.asarray(ROWS.x, float), np.full(N, INTERCEPT_COLUMN)], np.zeros(D + 1)
    for _ in range(10):
        expected = expected - 2.0 * (special.expit(lines @ expected) - np.asarray(ROWS.y)) @ lines / N
    np.testing.assert_allclose(params, expected, rtol=2e-3, atol=2e-3)


@pytest.mark.long(but=["square"])
@pytest.mark.parametrize("model", [Logistic(), Softmax(2), find_model("square"), find_model("svm")], ids=str)
def test_a_fit_is_the_minimum_of_the_public_loss_and_the_distance(model):
    start = model.init(D) + 0.2
    params = jax.jit(lambda: fit(model, start, PUBLIC, start, f32(0.1)))()
    gradient = PublicGradients.at(model, params, PUBLIC).mean() + 2 * 0.1 * (params - start)
    assert np.abs(gradient).max() < 2e-3
    np.testing.assert_allclose(fit(model, start, PUBLIC, start, f32(1e8)), start, atol=1e-5)


@pytest.mark.slow
def test_a_fit_of_the_hinge_is_nearly_its_minimum():
    start, model = ZERO + 0.2, Hinge()
    params = fit(model, start, PUBLIC, start, f32(0.1))

    def objective(params):
        return model.losses(params[None], PUBLIC.x, PUBLIC.y).mean() + 0.1 * jnp.square(params - start).sum()

    near = params[None] + 0.05 * jax.random.normal(KEY, (300, D + 1))
    assert float(objective(params)) < float(jax.vmap(objective)(near).min()) + 0.01


# -------------------------------------------------------------------------------------------------------- public alone
def test_onlypub_spends_nothing_and_does_not_look_at_private_rows():
    ends = []
    for private in (ROWS, ROWS.replace(y=1.0 - ROWS.y)):
        result = l2p.private_train(Task(private, public=PUBLIC), "onlypub", Budget(0.1, 1e-6))
        assert result.trace == []
        assert result.card.epsilon_certified == 0
        ends.append(np.asarray(result.params))
    assert np.array_equal(*ends)
    assert np.any(ends[0])


@pytest.mark.long
def test_agd_avg_is_the_mean_of_agd_and_onlypub():
    protector = method("agd_avg", Budget(1.0, 1e-6)).replace(
        inner=method("agd", Budget(1.0, 1e-6)).replace(num_steps=5)
    )
    _, here = setup_of(protector, "rdp", Budget(1.0, 1e-6))
    mean = jit_run(protector, ZERO, ROWS, here, KEY, PUBLIC)[0]
    private = jit_run(protector.inner, ZERO, ROWS, here, KEY, PUBLIC)[0]
    alone = jit_run(method("onlypub"), ZERO, ROWS, here, KEY, PUBLIC)[0]
    np.testing.assert_allclose(mean, (private + alone) / 2, atol=1e-5)
    assert np.abs(private - alone).max() > 0.01


@pytest.mark.parametrize("name", ["ppsgd", "ppsgd_tight", "ppgd", "pnsgd", "onlypub", "agd_avg"])
def test_without_public_rows_a_sentence_says_what_is_missing(name):
    protector = method(name)
    assert protector.needs_public
    accountant = {"ppsgd": "paper_13", "ppsgd_tight": "rdp", "agd_avg": "rdp"}.get(name, "gdp")
    _, here = setup_of(protector, accountant)
    with pytest.raises(InputError, match="public rows"):
        jax.eval_shape(run, protector, ZERO, ROWS, here, KEY)


def test_the_tight_form_takes_the_sampler_that_its_adjacency_allows():
    assert isinstance(method("ppsgd_tight").sampler, FixedSize)
    assert method("ppsgd_tight", Budget(1.0, 1e-6)).sampler.rate() == pytest.approx(0.1)
    ppgd = method("ppgd")
    assert isinstance(ppgd, FineTuned)
    assert isinstance(ppgd.inner, Stepwise)
    with pytest.raises(InputError, match="ppgd"):
        HAND_DESIGNED["ppsgd"](REPLACED, MODELS["logistic"], 9)


def test_settings_that_are_not_named_keep_what_loss_and_budget_gave_them():
    ppgd = method("ppgd", model="square")
    faster = with_settings(ppgd, reuse=1.0)
    assert faster.inner.scheduler.log_clip_ratio == ppgd.inner.scheduler.log_clip_ratio != log_constant(100.0)
    assert faster.log_weight == 0.0
    faster = with_settings(ppgd, learning_rate=2.0)
    assert faster.log_weight == ppgd.log_weight
    before, after = (each.inner.projector.inner.hyperparameters["learning_rate"] for each in (ppgd, faster))
    assert after == log_constant(2.0) != before
