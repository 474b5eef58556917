"""The oracle: it charges before it answers, answers once per ask, and a refusal ends the run."""

import dataclasses
import functools
import math
from typing import Any, ClassVar

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.base import struct
from l2p.base.errors import InputError
from l2p.models import Logistic
from l2p.oracle import Oracle, Terms, reader_of
from l2p.oracle.setup import Setup
from l2p.oracle.trace import trace_of
from l2p.privacy import Adjacency, Answered, Budget, Event, Filter, Spending
from l2p.privacy.cost.prices import PriceList
from l2p.privacy.cost.sampling import Poisson
from l2p.protectors import AGD, CLASSES, HAND_DESIGNED
from l2p.queries import ClippedGradient, Descent, FeatureSum, NoisyMinimum
from l2p.run.protector import Protector
from l2p.run.run import Release, Simulation, advance, plan_noise, run, start
from l2p.task.feature_map import FeatureMap
from l2p.task.noise import Entropy, KeyNoise
from l2p.task.rows import Rows

D, N, STEPS = 3, 40, 6
MODEL, BUDGET, KEY = Logistic(), Budget(1.0, 1e-6), jax.random.key(0)


def f32(value):
    return jnp.asarray(value, jnp.float32)


def table(count=N):
    random = np.random.default_rng(0)
    return Rows(f32(random.random((count, D))), f32(random.random(count) < 0.5), f32(np.ones(count)))


ROWS = table()


def setup(name="gdp", budget=BUDGET, **changes):
    return Setup.create(MODEL, budget.adjacency, Filter(name, budget).price_list(), N).replace(**changes)


def mean(noise, clip=1.0):
    return FeatureSum(D, f32(clip), f32(noise))


def even(count, accountant=None):
    """The noise multiplier that `count` equal queries may afford, with room for rounding."""
    accountant = accountant or setup().price_list
    return float(accountant.noise_multiplier(accountant.budget / count)) * (1 + 1e-4)


@struct.dataclass
class Script(Protector):
    """Asks for feature sums at given noise multipliers f32[num_steps, q]; params add up the answers."""

    multipliers: jax.Array
    first: jax.Array | None = None
    num_steps: int = struct.field(pytree_node=False, default=STEPS)

    def init(self, params, oracle):
        if self.first is not None:
            params = params.at[:D].add(oracle.ask(mean(self.first)))
        return params, jnp.zeros((), jnp.int32)

    def step(self, params, state, oracle):
        for multiplier in self.multipliers[oracle.step % self.multipliers.shape[0]]:
            params = params.at[:D].add(oracle.ask(mean(multiplier)))
        return params + 1.0, state + 1

    def finish(self, params, state, setup):
        return params


def script(multipliers, **fields):
    multipliers = f32(multipliers)
    return Script(multipliers, num_steps=len(multipliers), **fields)


simulate = jax.jit(run)
ZERO = jnp.zeros(D + 1)


def opened(rows=ROWS, spending=None, **changes):
    here = setup(**changes)
    return Oracle(
        reader_of(rows), here, spending or Spending(f32(0), here.cap), KeyNoise(KEY), jnp.zeros((), jnp.int32)
    )


# ---------------------------------------------------------------------------------------------- rule 1: charge, answer
def test_a_solve_by_a_protector_of_sums_is_refused_whatever_the_number_of_rows():
    # Refused by what the protector declares, before anything runs: a refusal that depended on the number of rows would
    # reveal it where it is private.
    solve = Descent(Logistic(), jnp.zeros(3), *map(jnp.float32, (1.0, 0.1, 1.0, 60.0, 5.0)))
    for count in (60, 61):
        rows = Rows(jnp.ones((count, 2)), jnp.ones(count), jnp.ones(count))
        here = setup()
        args = reader_of(rows), here, Spending(f32(0), here.cap), KeyNoise(KEY), jnp.zeros((), jnp.int32)
        with pytest.raises(TypeError, match="additive = False"):
            Oracle(*args, terms=Terms(sums_only=True)).ask(solve)


def test_a_solve_on_a_random_batch_is_refused():
    """A batch is priced as if a null row in it were a row that was not drawn, which holds for sums."""
    solve = Descent(Logistic(), ZERO, *map(jnp.float32, (1.0, 0.1, 1.0, 60.0, 5.0)))
    prices = Filter("rdp", BUDGET, Poisson(0.1), 1).price_list()
    here = Setup.create(MODEL, BUDGET.adjacency, prices, N)
    args = reader_of(ROWS), here, Spending(f32(0), here.cap), KeyNoise(KEY), jnp.zeros((), jnp.int32)
    with pytest.raises(InputError, match="proved for sums"):
        Oracle(*args, terms=Terms(sampled=True)).ask(solve)


def test_ask_prices_then_charges_then_reads_rows_then_releases():
    log = []

    @struct.dataclass
    class LoggedSpending(Spending):
        def charge(self, cost):
            log.append("charge")
            return super().charge(cost)

    @struct.dataclass
    class LoggedSum(FeatureSum):
        def event(self):
            log.append("event")
            return super().event()

        def contributions(self, rows):
            log.append("rows")
            return super().contributions(rows)

        def release(self, aggregate, noise, adjacency):
            log.append("release")
            return super().release(aggregate, noise, adjacency)

    @struct.dataclass
    class LoggedPriceList(PriceList):
        def price(self, event, *when):
            log.append("price")
            return super().price(event, *when)

    prices = setup().price_list
    price_list = LoggedPriceList(**{field.name: getattr(prices, field.name) for field in dataclasses.fields(prices)})
    oracle = opened(spending=LoggedSpending(f32(0), setup().cap), price_list=price_list)
    oracle.ask(LoggedSum(D, f32(1), f32(1e3)))
    assert log == ["event", "price", "charge", "rows", "release"]


def test_a_granted_query_is_charged_its_price_and_answered_with_noise():
    oracle = opened()
    query = mean(1e3)
    answer = oracle.ask(query)
    assert float(oracle.spending.spent) == pytest.approx(float(oracle.setup.price_list.price(query.event())), rel=1e-5)
    assert not bool(oracle.refused)
    assert np.abs(answer).min() > 1.0  # noise of deviation 1000 that happens to be below 1 has chance 1e-3 at most
    assert bool(oracle.records[0].granted)


@pytest.mark.parametrize(
    "noise", [0.5 * even(1), 0.0, -0.0, -1.0, math.nan, math.inf, -math.inf, 1e-45, 1e-30], ids=str
)
def test_a_refused_query_is_answered_with_zeros_costs_nothing_and_shuts_the_oracle(noise):
    oracle = opened()
    oracle.ask(mean(2 * even(1)))
    before = float(oracle.spending.spent)
    answer = oracle.ask(mean(noise))
    cheap = oracle.ask(mean(1e4))
    assert before > 0
    assert float(oracle.spending.spent) == before
    assert bool(oracle.refused)
    assert np.array_equal(answer, np.zeros(D))
    assert np.array_equal(cheap, np.zeros(D))
    assert [bool(record.granted) for record in oracle.records] == [True, False, False]
    assert [float(record.cost) for record in oracle.records][1:] == [0.0, 0.0]


@pytest.mark.slow
def test_a_refused_selection_is_the_integer_zero():
    query = NoisyMinimum(MODEL, jnp.ones((4, D + 1)), f32(1), f32(0.0))
    answer = opened(name="rdp").ask(query)
    assert answer.dtype == jnp.int32
    assert int(answer) == 0


@pytest.mark.slow
def test_the_step_that_sees_a_refusal_moves_nothing_but_what_it_was_granted_stays_paid():
    cost = even(8)
    multipliers = np.full((STEPS, 2), cost)
    multipliers[2, 1] = 1e-3  # too expensive, after the first ask of its step was granted
    params, ended, (first, later), _ = simulate(script(multipliers), ZERO, ROWS, setup(), KEY)
    before, _, _, _ = simulate(script(multipliers[:2]), ZERO, ROWS, setup(), KEY)
    assert np.array_equal(params, before)
    assert int(ended.step) == int(ended.state) == 2
    assert not bool(ended.alive)
    rows = trace_of(first, [later])
    assert [row.step for row in rows] == [1, 1, 2, 2, 3]
    assert float(ended.spending.spent) == rows[-1].spent == pytest.approx(5 / 8 * float(setup().cap), rel=1e-3)


@pytest.mark.slow
def test_a_refusal_in_init_leaves_the_whole_run_frozen():
    params, ended, (first, later), _ = simulate(
        script(np.full((STEPS, 1), 1e4), first=f32(1e-3)), ZERO, ROWS, setup(), KEY
    )
    assert np.array_equal(params, ZERO)
    assert int(ended.step) == 0
    assert float(ended.spending.spent) == 0
    assert trace_of(first, [later]) == []


@pytest.mark.slow
def test_frozen_runs_stay_frozen_however_far_they_are_advanced():
    protector = script(np.r_[np.full((2, 1), even(4)), [[1e-3]], np.full((3, 1), 1e5)])
    _, ended, _, _ = simulate(protector, ZERO, ROWS, setup(), KEY)
    assert int(ended.step) == 2
    further, records, _ = jax.jit(advance, static_argnames="num_steps")(
        protector, ended, ROWS, setup(), Simulation(KEY), num_steps=3
    )
    chex.assert_trees_all_equal(further, ended)
    assert not np.any(records[0].granted)


# -------------------------------------------------------------------------------------- rule 2: once per ask, or never
def nested(transform):
    """A protector whose step asks inside `transform`."""

    @struct.dataclass
    class Nested(Script):
        def step(self, params, state, oracle):
            return transform(lambda value: oracle.ask(mean(1e4)).sum() + value, params), state

    return Nested(jnp.zeros((2, 1)), num_steps=2)


TRANSFORMS = {
    "vmap": lambda ask, params: jax.vmap(ask)(params),
    "vmap, no argument": lambda ask, params: jax.vmap(lambda _: ask(0.0))(params),
    "grad": lambda ask, params: jax.grad(lambda value: ask(value[0]))(params),
    "value_and_grad": lambda ask, params: jax.value_and_grad(lambda value: ask(value[0]))(params)[1],
    "jvp": lambda ask, params: jax.jvp(ask, (params[0],), (params[0],))[1] + params,
    "vjp": lambda ask, params: jax.vjp(ask, params[0])[1](params[0])[0] + params,
    "linearize": lambda ask, params: jax.linearize(ask, params[0])[1](params[0]) + params,
    "jacfwd": lambda ask, params: jax.jacfwd(lambda value: ask(value[0]))(params),
    "hessian": lambda ask, params: jax.hessian(lambda value: ask(value[0]))(params)[0],
    "jit": lambda ask, params: jax.jit(ask)(params[0]) + params,
    "checkpoint": lambda ask, params: jax.checkpoint(ask)(params[0]) + params,
    "eval_shape": lambda ask, params: jnp.zeros(jax.eval_shape(ask, params[0]).shape) + params,
    "make_jaxpr": lambda ask, params: params + len(jax.make_jaxpr(ask)(params[0]).eqns),
    "cond": lambda ask, params: jax.lax.cond(params[0] > 0, ask, lambda value: value, params[0]) + params,
    "switch": lambda ask, params: jax.lax.switch(0, [lambda value: value, ask], params[0]) + params,
    "scan": lambda ask, params: jax.lax.scan(lambda total, value: (total, ask(value)), 0.0, params)[1],
    "map": lambda ask, params: jax.lax.map(ask, params),
    "fori_loop": lambda ask, params: jax.lax.fori_loop(0, 3, lambda _, value: ask(value), params[0]) + params,
    "while_loop, body": lambda ask, params: jax.lax.while_loop(lambda value: value < 1, ask, params[0]) + params,
    "while_loop, condition": lambda ask, params: (
        jax.lax.while_loop(lambda value: ask(value) < 1, lambda value: value + 1, params[0]) + params
    ),
}


@pytest.mark.parametrize("outer", ["traced", "eager"])
@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_asking_inside_a_transformation_within_a_step_is_refused_while_tracing(transform, outer):
    protector = nested(transform)
    with pytest.raises(RuntimeError, match="inside a JAX transformation"):  # noqa: PT012
        if outer == "traced":
            jax.eval_shape(run, protector, ZERO, ROWS, setup(), KEY)
        else:
            protector.step(ZERO, 0, opened())


def test_an_oracle_kept_from_init_is_of_no_use_in_a_step():
    @struct.dataclass
    class Keeps(Script):
        def init(self, params, oracle):
            oracles.append(oracle)
            return params, 0

        def step(self, params, state, oracle):
            return params + oracles[0].ask(mean(1e4)).sum(), state

    oracles: list[Any] = []
    with pytest.raises(RuntimeError, match="step had ended"):
        jax.eval_shape(run, Keeps(jnp.zeros((2, 1)), num_steps=2), ZERO, ROWS, setup(), KEY)


@pytest.mark.slow(but=["plain", "vmap", "checkpoint"])
@pytest.mark.parametrize(
    "outer",
    [
        lambda function: function,
        jax.jit,
        lambda function: jax.vmap(function, axis_size=2, in_axes=None),
        jax.grad,
        lambda function: jax.jit(jax.grad(lambda scale: jax.vmap(function)(jnp.stack([scale, scale])).sum())),
        jax.checkpoint,
    ],
    ids=["plain", "jit", "vmap", "grad", "jit grad vmap", "checkpoint"],
)
def test_a_plain_step_may_be_transformed_from_outside(outer):
    def step_of(scale):
        return run(
            script(jnp.full((2, 2), 50.0)).replace(multipliers=jnp.full((2, 2), 50.0) * scale), ZERO, ROWS, setup(), KEY
        )[0].sum()

    jax.eval_shape(outer(step_of), f32(1.0))  # raises if a guard misfires
    if outer is jax.jit or outer is jax.grad:
        assert float(outer(step_of)(f32(1.0))) != 0


def test_each_ask_has_noise_of_its_own():
    params, _, (_, _), _ = simulate(script(np.full((1, 1), 1e4)), ZERO, ROWS, setup(), KEY)
    oracle = opened()
    first, second = oracle.ask(mean(1e4)), oracle.ask(mean(1e4))
    answers = np.r_[first, second, params[:D]]
    assert len(np.unique(answers)) == 3 * D


# ---------------------------------------------------------------------------------- hostile schedulers: never above B
@pytest.mark.slow
@pytest.mark.parametrize("name", ["gdp", "zcdp", "rdp", "ctcdp"])
def test_no_scheduler_gets_past_the_budget_or_past_a_number_that_is_none(name):
    here, random, count = setup(name), np.random.default_rng(1), 200
    poison = np.array([math.nan, 0.0, math.inf, -math.inf, -1.0, 1e-45, 1e-30])
    scale = even(STEPS, here.price_list)
    multipliers = scale * np.exp(random.uniform(-1, 1, (count, STEPS, 2)))
    multipliers = np.where(
        random.random(multipliers.shape) < 0.1, random.choice(poison, multipliers.shape), multipliers
    )
    multipliers[0] = math.nan
    multipliers[1] = 1e30
    multipliers = multipliers.astype(np.float32)
    many = jax.jit(jax.vmap(lambda values: run(Script(values), ZERO, ROWS, here, KEY)))
    params, ended, (_, records), _ = many(jnp.asarray(multipliers))
    granted = np.stack([record.granted for record in records], -1)
    for index in range(count):
        events = [Answered(1, "gaussian", value) for value in multipliers[index][granted[index]]]
        total = Filter(name, BUDGET).spent(events)
        assert total <= Filter(name, BUDGET).limit
        assert total <= float(ended.spending.spent[index])
        grants = granted[index].ravel()
        assert not np.any(np.diff(grants.astype(int)) > 0)  # once refused, always refused: NaN stops
        assert np.all(multipliers[index].ravel()[grants] > 0)
    assert not granted[0].any()
    assert granted[1].all()
    assert np.all(np.isfinite(params[2:]))
    kinds = granted.reshape(count, -1).sum(1)
    assert len(np.unique(kinds)) > 6  # some runs stopped early, some late, some never


@pytest.mark.parametrize("clip", [math.nan, math.inf, 0.0, -1.0, 1e-42, 3e-38, 1e38])
def test_a_clip_norm_that_cannot_scale_noise_is_refused(clip):
    # Noise is a multiple of the clip norm: near 0 the product vanishes in float32, near infinity sums overflow first.
    oracle = opened()
    answer = oracle.ask(mean(2 * even(1), clip))
    assert bool(oracle.refused)
    assert np.array_equal(answer, np.zeros(D))
    assert float(oracle.spending.spent) == 0


def test_nothing_is_granted_when_the_budget_is_zero_and_everything_when_there_is_no_cap():
    protector = script(np.full((2, 1), 1e-2))
    _, ended, _, _ = simulate(protector, ZERO, ROWS, setup(cap=f32(0.0)), KEY)
    assert int(ended.step) == 0
    _, ended, _, _ = simulate(protector, ZERO, ROWS, setup(cap=f32(math.inf)), KEY)
    assert int(ended.step) == 2
    assert float(ended.spending.spent) == pytest.approx(2 / 1e-2**2, rel=1e-5)


@pytest.mark.parametrize("traced", [True, False])
def test_a_mechanism_without_a_theorem_is_refused_while_tracing(traced):
    protector = HAND_DESIGNED["agd"](BUDGET).replace(num_steps=2)
    with pytest.raises(InputError, match=r"gdp.*exponential"):  # noqa: PT012
        if traced:
            jax.eval_shape(run, protector, ZERO, ROWS, setup("gdp"), KEY)
        else:
            opened().ask(NoisyMinimum(MODEL, jnp.ones((4, D + 1)), f32(1), f32(1e3), "exponential"))
    jax.eval_shape(run, protector, ZERO, ROWS, setup("rdp"), KEY)


@struct.dataclass
class Undeclared(Script):
    """Asks for Gaussian sums, but declares selections only."""

    mechanisms: ClassVar[tuple[str, ...]] = ("exponential",)


def test_a_mechanism_that_is_not_declared_is_refused_while_tracing():
    with pytest.raises(TypeError, match=r"'gaussian', which its protector does not declare.* here exponential"):
        jax.eval_shape(run, Undeclared(f32([[9.0]])), ZERO, ROWS, setup("rdp"), KEY)
    with pytest.raises(TypeError, match="add it there"):
        plan_noise(Undeclared(f32([[9.0]])), ZERO, N, D, setup("rdp"))


@struct.dataclass
class Thin(FeatureSum):
    """A mean whose noise is declared sinh-normal, to follow its tail parameter."""

    tail: float = struct.field(pytree_node=False, default=math.inf)

    def event(self):
        return Event("sinh_normal", self.noise_multiplier, self.tail)


def test_the_tail_of_a_noise_is_priced_and_recorded():
    def oracle_after(tail):
        oracle = opened(name="ctcdp")
        oracle.ask(Thin(D, f32(1), f32(50.0), tail))
        return oracle

    tail = 8.1 * Filter("ctcdp", BUDGET).order
    (record,) = oracle_after(tail).records
    assert bool(record.granted)
    row = trace_of([record], [])[0]
    assert row.tail == tail
    assert (row.step, row.mechanism, row.noise_multiplier) == (0, "sinh_normal", 50.0)
    spent = Filter("ctcdp", BUDGET).spent([row])
    assert float(oracle_after(tail).spending.spent) == pytest.approx(spent, rel=2e-6)
    assert not bool(oracle_after(tail / 2).records[0].granted)  # no theorem at the order counted at


def test_an_oracle_that_outlives_its_step_answers_nothing():
    oracle = opened()
    oracle.ask(mean(f32(1e3)))
    oracle.close()
    with pytest.raises(RuntimeError, match="step had ended"):
        oracle.ask(mean(f32(1e3)))


# ------------------------------------------------------------------------------------------------ rule 11: the release
def release(protector, rows=ROWS, here=None, seed=5, chunks=(STEPS,)):
    """A release as a caller makes it, with noise drawn for all steps and handed over in chunks."""
    here = here or setup()
    first, steps = plan_noise(protector, ZERO, N, D, here)
    entropy = Entropy(seed)
    begun, drawn = entropy.draw(first, 1), entropy.draw(steps, sum(chunks))
    later = []
    with jax.enable_x64(True):
        current, records = jit_start(protector, ZERO, rows, here, Release(begun, [], first, ()))
        at = 0
        for chunk in chunks:
            noise = Release([], [bits[at : at + chunk] for bits in drawn], (), steps)
            current, more, _ = jit_advance(protector, current, rows, here, noise, num_steps=chunk)
            later.append(more)
            at += chunk
    return current, records, later


jit_start, jit_advance = jax.jit(start), jax.jit(advance, static_argnames="num_steps")


@struct.dataclass
class Mixed(Script):
    """A gradient, a selection and a sum in every step, and a query in init."""

    mechanisms = ("gaussian", "gumbel")

    def step(self, params, state, oracle):
        features = FeatureMap(jnp.full(D, 0.4), f32(1.5))
        gradient = oracle.ask(ClippedGradient(MODEL, params, features, f32(0.5), self.multipliers[0, 0]))
        candidates = params[None, :] - jnp.array([0.0, 0.01, 0.1])[:, None] * gradient[None, :]
        index = oracle.ask(NoisyMinimum(MODEL, candidates, f32(1.0), self.multipliers[0, 0]))
        total = oracle.ask(mean(self.multipliers[0, 0]))
        return candidates[index].at[0].add(1e-4 * total.sum()), state + index


MIXED = Mixed(jnp.full((1, 1), 80.0), f32(100.0))


def test_a_release_leaves_no_float64_anywhere_but_inside_ask():
    ended, first, later = release(MIXED, here=setup("rdp"))
    for leaf in jax.tree.leaves((ended, first, later)):
        assert leaf.dtype in (jnp.float32, jnp.int32, jnp.bool_)
    assert int(ended.step) == STEPS
    assert np.any(np.asarray(ended.params))


def test_noise_is_planned_in_the_order_it_is_asked_for():
    first, steps = plan_noise(MIXED, ZERO, N, D, setup("rdp"))
    assert [(draw.distribution, draw.size) for draw in first] == [("gaussian", D)]
    assert [(draw.distribution, draw.size) for draw in steps] == [("gaussian", D + 1), ("gumbel", 3), ("gaussian", D)]


def test_a_release_lies_on_the_grid_and_differs_from_seed_to_seed():
    protector, grid = script(np.full((1, 1), 30.0)), 2.0**-20 * 32  # of noise 30 bounds wide
    answers = [np.asarray(release(protector, seed=seed, chunks=(1,))[0].params[:D] - 1.0, float) for seed in (1, 1, 2)]
    assert np.array_equal(answers[0], answers[1])
    assert not np.any(answers[0] == answers[2])
    # float32 keeps 24 bits of an answer of about 100: still a multiple of the grid, exactly.
    assert all(np.array_equal(answer / grid, np.rint(answer / grid)) for answer in answers)
    assert not all(np.array_equal(answer / grid / 2, np.rint(answer / grid / 2)) for answer in answers)


@pytest.mark.slow
def test_a_release_in_chunks_is_the_release_in_one_piece():
    at_once, _, (records,) = release(MIXED, here=setup("rdp"))
    parts, _, pieces = release(MIXED, here=setup("rdp"), chunks=(3, 3))
    chex.assert_trees_all_equal(at_once, parts)
    chex.assert_trees_all_equal(records, jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *pieces))


def test_a_release_that_is_refused_freezes_like_a_simulation():
    protector = script([[even(2)], [even(2)], [even(2)], [1e5]])
    ended, first, later = release(protector, chunks=(4,))
    assert int(ended.step) == 2
    assert len(trace_of(first, later)) == 2
    assert Filter("gdp", BUDGET).spent([Answered(1, "gaussian", f32(even(2)))] * 2) <= Filter("gdp", BUDGET).limit


def test_observing_a_release_is_refused():
    with pytest.raises(ValueError, match="simulations only"):
        advance(MIXED, None, ROWS, setup("rdp"), Release([], [], (), ()), 1, observe=lambda params: params)


# ----------------------------------------------------------------------------------------------- rule 8: invalid rows
@pytest.mark.slow
@pytest.mark.parametrize("mode", ["simulated", "released"])
@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
def test_a_row_that_is_not_finite_is_a_null_row(poison, mode):
    ran = simulate if mode == "simulated" else lambda protector, params, rows, here, key: release(protector, rows, here)
    null = ROWS.replace(x=ROWS.x.at[5].set(0.0).at[9].set(0.0), mask=ROWS.mask.at[5].set(0.0).at[9].set(0.0))
    expected = ran(MIXED, ZERO, null.replace(y=null.y.at[5].set(0.0).at[9].set(0.0)), setup("rdp"), KEY)
    features = ROWS.replace(x=ROWS.x.at[5, 1].set(poison).at[9].set(poison))
    chex.assert_trees_all_equal(ran(MIXED, ZERO, features, setup("rdp"), KEY), expected)
    labels = ROWS.replace(y=ROWS.y.at[5].set(poison).at[9].set(poison))
    chex.assert_trees_all_equal(ran(MIXED, ZERO, labels, setup("rdp"), KEY), expected)
    assert (
        not np.array_equal(ran(MIXED, ZERO, ROWS, setup("rdp"), KEY)[0], expected[0]) if mode == "simulated" else True
    )


# ------------------------------------------------------------------------------------------------------------- the rest
def test_hyper_parameters_and_budgets_are_leaves_and_the_model_is_not():
    leaves = jax.tree.leaves(setup())
    assert all(isinstance(leaf, jax.Array) for leaf in leaves)
    assert functools.reduce(lambda a, b: a and b, [leaf.dtype == jnp.float32 for leaf in leaves])
    assert AGD is CLASSES["AGD"]


@pytest.mark.slow(cases=["replace_one"])
@pytest.mark.parametrize("adjacency", Adjacency)
def test_log_signal_is_how_well_the_budget_resolves_a_mean(adjacency):
    here = setup(budget=Budget(1.0, 1e-6, adjacency))
    noise = math.sqrt(1 / Filter("gdp", BUDGET).limit) * (2 if adjacency is Adjacency.REPLACE_ONE else 1) / N
    assert float(here.log_signal) == pytest.approx(-math.log(noise), rel=1e-5)
    assert float(here.price_list.price(Event("gaussian", 1 / here.price_list.mu))) <= float(here.cap)
