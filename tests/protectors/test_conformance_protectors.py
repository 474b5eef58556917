"""Every protector against one table of properties: its budget, its queries and its replays."""

import json
import math

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.base.errors import InputError
from l2p.checkpoints.structure import decode, encode
from l2p.oracle.trace import trace_of
from l2p.privacy import Filter
from l2p.privacy.cost.sampling import FullBatch
from l2p.protectors import (
    AGD,
    CLASSES,
    HAND_DESIGNED,
    AveragedWithPublic,
    BaseRate,
    Stepwise,
)
from l2p.run.run import Release, Simulation
from l2p.task.entropy import Entropy
from tests.conftest import EVERY_CASE
from tests.protectors.conformance import CASES, EXCEPTIONS, NO_ROW, of_length
from tests.protectors.each_case import ALIKE, ALIKE_DERIVATIVES, KINDS, every_case, every_kind
from tests.protectors.examples import (
    BUDGETS,
    KEY,
    MIDDLE,
    OTHER_ROWS,
    PART,
    ROWS,
    SEEDS,
    STEPS,
    ZERO,
    D,
    N,
    f32,
    logs,
    perturbed,
)
from tests.protectors.runs import (
    advance,
    events,
    filter_of,
    grid,
    jit_advance,
    jit_start,
    pick,
    plan_noise,
    run,
    setup_of,
    single,
    start,
)


def test_every_hand_designed_method_has_a_row():
    assert not NO_ROW.keys() & CASES.keys()
    assert HAND_DESIGNED.keys() <= CASES.keys() | NO_ROW.keys()
    assert NO_ROW.keys() <= HAND_DESIGNED.keys()


def test_every_row_of_a_method_is_of_the_class_that_the_method_makes():
    for name in HAND_DESIGNED.keys() & CASES.keys():
        assert type(CASES[name].protector) is type(HAND_DESIGNED[name](BUDGETS[MIDDLE], num_rows=N)), name


def test_every_class_that_a_checkpoint_may_name_is_in_a_row():
    structures = json.dumps([encode(case.protector, {}) for case in CASES.values()])
    assert {name for name in CLASSES if f'"class": "{name}"' in structures} == CLASSES.keys()


def test_exceptions_and_cases_that_are_alike_are_of_rows_that_there_are():
    assert {name for _, name in EXCEPTIONS} | ALIKE.keys() | set(KINDS) <= CASES.keys()
    assert set(ALIKE.values()) <= CASES.keys() - ALIKE.keys()
    assert not ALIKE.keys() & ALIKE_DERIVATIVES.keys()
    assert ALIKE_DERIVATIVES.keys() | set(ALIKE_DERIVATIVES.values()) <= CASES.keys() - ALIKE.keys()
    assert set(ALIKE_DERIVATIVES.values()) <= CASES.keys() - ALIKE_DERIVATIVES.keys()
    assert all(EXCEPTIONS.values())


# --------------------------------------------------------------------------------------------------------- the budget
def within_budget(name, accountant=None):
    _, ended, (first, records), _ = grid(name, accountant)
    for index, budget in enumerate(BUDGETS):
        for seed in range(SEEDS):
            granted = events(pick(first, index, seed), pick(records, index, seed))
            planned = filter_of(CASES[name], budget, accountant)
            total, cap = planned.spent(granted), planned.limit
            assert 0 < total <= cap
            assert total <= float(ended.spending.spent[index, seed])
            # The conversion itself, without the clamp that `certify` may apply.
            assert planned.epsilon(total) <= budget.epsilon * (1 + 1e-9)
            if not CASES[name].exhausts:
                assert total >= cap * (1 - CASES[name].slack)  # planning by shares leaves nothing unspent


@every_case("budget")
def test_no_run_spends_more_than_its_budget_in_float64(name):
    within_budget(name)


OTHER_ACCOUNTANTS = [
    ("noisygd", "zcdp"),
    ("noisygd", "rdp"),
    ("noisygd", "ctcdp"),
    ("agd", "ctcdp"),
    ("dpsgd", "ctcdp"),
    ("control, fixed size", "ctcdp"),
    ("control, permutation epochs", "zcdp"),
]


@pytest.mark.long(but=["noisygd-zcdp"])
@pytest.mark.parametrize(("name", "accountant"), OTHER_ACCOUNTANTS)
def test_nor_under_another_accountant(name, accountant):
    within_budget(name, accountant)


@every_case("frozen")
def test_a_run_is_frozen_from_its_first_refusal_on(name):
    _, ended, (_, records), params_by_step = grid(name)
    granted = np.stack([record.granted for record in records], -1)
    assert np.all(np.diff(granted.reshape(*granted.shape[:2], -1).astype(int)) <= 0)
    assert np.array_equal(ended.step, granted.all(-1).sum(-1))
    assert np.array_equal(ended.alive, granted.all((-1, -2)))
    if CASES[name].exhausts:
        assert np.all((ended.step > 0) & (ended.step < STEPS))
    else:
        assert np.all(ended.step == STEPS)
    for index in np.ndindex(ended.step.shape):
        last = ended.step[index]
        assert np.all(params_by_step[index][last - 1 :] == params_by_step[index][last - 1])
        assert np.any(params_by_step[index][last - 1])
    for record in records:
        assert np.all(record.cost[~record.granted] == 0)
        assert np.all(np.diff(record.spent, axis=-1) >= 0)


def test_constant_noise_is_constant_and_spends_the_whole_budget():
    for index, budget in enumerate(BUDGETS):
        _, ended, (_, (record,)), _ = pick(grid("noisygd, adam"), index, 0)
        np.testing.assert_allclose(record.noise_multiplier, record.noise_multiplier[0], rtol=1e-4)
        total = Filter("gdp", budget).spent(events([], [record]))
        assert Filter("gdp", budget).limit * (1 - 1e-4) <= total <= Filter("gdp", budget).limit
        assert total == pytest.approx(STEPS / float(record.noise_multiplier[0]) ** 2, rel=2e-4)
        assert int(ended.step) == STEPS


def test_constant_noise_of_batches_costs_the_same_at_every_step():
    for index, budget in enumerate(BUDGETS):
        _, _, (_, (record,)), _ = pick(grid("dpsgd"), index, 0)
        planned = filter_of(CASES["dpsgd"], budget)
        np.testing.assert_allclose(record.noise_multiplier, record.noise_multiplier[0], rtol=1e-3)
        assert planned.spent(events([], [record])) == pytest.approx(planned.limit, rel=2e-3)
        # Reading every row with as much noise would cost more than the budget.
        assert Filter("gdp", budget).spent(events([], [record])) > 3 * Filter("gdp", budget).limit


def test_batches_of_an_epoch_share_its_price():
    _, _, (_, (record,)), _ = pick(grid("control, permutation epochs"), MIDDLE, 0)
    noise = record.noise_multiplier.reshape(-1, 2)  # two batches an epoch
    np.testing.assert_allclose(noise[:, 0], noise[:, 1], rtol=1e-4)
    assert np.all(np.abs(np.diff(noise[:, 0])) > 1e-3 * noise[1:, 0])  # epochs have prices of their own
    spent = record.spent.reshape(-1, 2)
    np.testing.assert_allclose(spent[:, 0], spent[:, 1], rtol=1e-4)
    assert np.all(np.diff(spent[:, 0]) > 0.01 * spent[-1, 0])


@every_case("checkpoint")
def test_a_checkpoint_gives_it_back(name):
    arrays = {}
    again = decode(json.loads(json.dumps(encode(CASES[name].protector, arrays))), arrays)
    assert type(again) is type(CASES[name].protector)
    assert again.sampler == CASES[name].protector.sampler
    chex.assert_trees_all_equal(again, CASES[name].protector)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.protector.sampler != FullBatch()])
def test_a_checkpoint_with_an_unknown_sampler_is_refused(name):
    arrays = {}
    structure = json.loads(json.dumps(encode(CASES[name].protector, arrays)))
    owner = structure if "sampler" in structure["static"] else structure["fields"]["inner"]
    owner["static"]["sampler"]["name"] = "shuffle"
    with pytest.raises(InputError, match="sampler 'shuffle' is unknown"):
        decode(structure, arrays)


def test_decaying_noise_spends_geometrically():
    _, _, (_, (record,)), _ = pick(grid("noisygd"), MIDDLE, 0)
    ratios = (record.noise_multiplier[:-1] / record.noise_multiplier[1:]) ** 2
    np.testing.assert_allclose(ratios, math.exp(0.7 / STEPS), rtol=1e-4)


# ---------------------------------------------------------------------------------------------------------- the queries
@every_case("queries")
def test_it_asks_exactly_the_queries_and_mechanisms_it_declares(name):
    case = CASES[name]
    _, _, (first, records), _ = grid(name)
    assert tuple(record.query for record in first) == case.first
    assert tuple(record.query for record in records) == case.each
    assert {record.mechanism for record in [*first, *records]} == set(case.protector.mechanisms)


@every_case("adaptive")
def test_it_says_truly_whether_its_noise_depends_on_the_rows(name):
    case, noise = CASES[name], Simulation(KEY)
    here, protector = setup_of(case, BUDGETS[2]), case.at(BUDGETS[2])
    # Steps of 10 lower the loss only if labels depend on the features.
    if isinstance(protector, AGD):
        protector = protector.replace(**logs(max_step=200.0))
    elif isinstance(protector, AveragedWithPublic):
        protector = protector.replace(inner=protector.inner.replace(**logs(max_step=200.0)))
    second_table = OTHER_ROWS
    if isinstance(protector, Stepwise) and protector.purchase(BaseRate):
        # A second purchase depends on how uneven classes are.
        second_table = second_table.replace(y=jnp.ones_like(second_table.y))
    ends, multipliers = [], []
    for rows in (ROWS, second_table):
        begun, first = jit_start(protector, ZERO, rows, here, noise)
        ended, records, _ = jit_advance(protector, begun, rows, here, noise, num_steps=STEPS)
        ends.append(ended.params)
        multipliers.append(
            [(np.asarray(record.noise_multiplier), np.asarray(record.granted)) for record in [*first, *records]]
        )
    same = all(
        np.array_equal(*pair)
        for first, second in zip(*multipliers, strict=True)
        for pair in zip(first, second, strict=True)
    )
    assert same is not protector.adaptive_noise
    assert not np.array_equal(*ends)  # the rows did matter


@pytest.mark.long(cases=["ppsgd", "control, permutation epochs", "paper", "agd"])
# ------------------------------------------------------------------------------------------------------------- replays
@pytest.mark.long(cases=["control, eigenbasis", "hyfree"])
@every_kind("vmapped")
def test_a_run_vmapped_over_budgets_and_seeds_is_the_run_alone(name):
    case = CASES[name]
    setups = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(setup_of(case, budget) for budget in BUDGETS))

    protectors, axis = case.protector, None
    if case.method is not None:
        protectors, axis = jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(case.at, BUDGETS)), 0

    def run_alone(protector, here, key):
        return run(protector, ZERO, ROWS, here, key)

    keys, seeds = jax.random.split(KEY, SEEDS), jax.vmap(run_alone, (None, None, 0))
    together = jax.device_get(jax.jit(jax.vmap(seeds, (axis, 0, None)))(protectors, setups, keys))
    params, ended, (first, records), _ = together
    alone, alone_ended, (alone_first, alone_records), _ = grid(name)
    np.testing.assert_allclose(params, alone, rtol=2e-4, atol=2e-5)
    assert np.array_equal(ended.step, alone_ended.step)
    for batched, single_run in zip([*first, *records], [*alone_first, *alone_records], strict=True):
        assert np.array_equal(batched.granted, single_run.granted)
        np.testing.assert_allclose(batched.noise_multiplier, single_run.noise_multiplier, rtol=1e-4)


@pytest.mark.long(cases=["ppsgd", "paper", "bolt_on", "agd", "hyfree"])
@every_kind("parts")
def test_a_run_in_parts_is_the_run_in_one_piece_bit_for_bit(name):
    chex.assert_trees_all_equal(single(name, parts=(PART, PART, PART)), single(name))


@pytest.mark.long
@pytest.mark.parametrize("name", KINDS if EVERY_CASE else ("noisygd", "dpsgd", "hyfree", "bolt_on"))
def test_a_run_without_jit_is_the_run_with_it(name):
    case = CASES[name]
    here, noise = setup_of(case), Simulation(jax.random.split(KEY, SEEDS)[0])
    with jax.disable_jit():
        current, _ = start(case.protector, ZERO, ROWS, here, noise)
        current, records, _ = advance(case.protector, current, ROWS, here, noise, PART)
    _, jitted, (_, jitted_records), _ = single(name, parts=(PART,))
    chex.assert_trees_all_close(current, jitted, rtol=2e-4, atol=2e-5)
    chex.assert_trees_all_close(records, jitted_records, rtol=2e-4)


@every_kind("seeds")
def test_seeds_differ_and_the_same_seed_is_the_same_run(name):
    params = grid(name)[0]
    assert len(np.unique(params.reshape(-1, D + 1), axis=0)) == len(BUDGETS) * SEEDS
    case = CASES[name]
    here, noise = setup_of(case), Simulation(jax.random.split(KEY, SEEDS)[0])
    again, _ = jit_start(case.protector, ZERO, ROWS, here, noise)
    again, _, _ = jit_advance(case.protector, again, ROWS, here, noise, num_steps=STEPS)
    chex.assert_trees_all_equal(jax.device_get(again), single(name)[1])


@pytest.mark.long(
    cases=["hyfree", "control, permutation epochs", "paper", "ppsgd", "control, eigenbasis", "agd", "bolt_on"]
)
@every_kind("release")
def test_a_release_in_chunks_is_the_release_in_one_piece_and_within_budget(name):
    case = CASES[name]
    here = setup_of(case)
    first, steps = plan_noise(case.protector, ZERO, N, D, here)
    begun, drawn = Entropy(1).draw(first, 1), Entropy(2).draw(steps, STEPS)
    jit_chunk, ends = jax.jit(advance, static_argnames="num_steps"), []
    for parts in ((STEPS,), (PART, PART, PART)):
        with jax.enable_x64(True):
            current, bought = jit_start(case.protector, ZERO, ROWS, here, Release(begun, [], first, ()))
            at, later = 0, []
            for part in parts:
                noise = Release([], [bits[at : at + part] for bits in drawn], (), steps)
                current, records, _ = jit_chunk(case.protector, current, ROWS, here, noise, num_steps=part)
                later.append(records)
                at += part
        ends.append(current)
        granted = trace_of(bought, later)
        case_filter = filter_of(case)
        assert 0 < case_filter.spent(granted) <= case_filter.limit
    chex.assert_trees_all_equal(*ends)
    assert {leaf.dtype.name for leaf in jax.tree.leaves(ends[0])} <= {"float32", "int32", "bool"}
    assert int(ends[0].step) > 0


@every_kind("one trace")
def test_hyper_parameters_budgets_seeds_and_table_sizes_share_one_trace(name):
    case, count = CASES[name], 0

    def counted(*arguments):
        nonlocal count
        count += 1
        return run(*arguments)[0]

    jitted, here = jax.jit(counted), setup_of(case)
    jitted.lower(case.protector, ZERO, ROWS, here, KEY)
    jitted.lower(perturbed(case.protector), ZERO + 1, OTHER_ROWS, here, jax.random.key(99))
    jitted.lower(case.protector, ZERO, ROWS, setup_of(case, BUDGETS[0], num_rows=f32(7)), KEY)
    assert count == 1
    jitted.lower(of_length(case.protector, 2), ZERO, ROWS, here, KEY)
    assert count == 2
