import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.errors import InputError
from l2p.models import Logistic
from l2p.run import Simulation, start
from l2p.simulate import mean_loss
from meta_train import gradient, search
from meta_train.budgets import ByMu
from meta_train.builders import BUILDERS, warm_start
from meta_train.config import MetaConfig
from meta_train.family import TaskFamily
from meta_train.objective import first_loss, first_segment, next_segment, score, whole_run

MODEL = Logistic()
STEPS = 8
CONFIG = MetaConfig(
    "t", "control", steps=40, tasks=8, rows=96, num_features=(5,), log_signal=(2.0, 7.0), learning_rate=0.05, seed=3
)


@pytest.fixture(scope="module")
def family() -> TaskFamily:
    generator = np.random.default_rng(0)
    x = (generator.random((400, 10)) < 0.4).astype(np.float32)
    return TaskFamily.from_table(x, (x[:, 0] + x[:, 1] > 0).astype(np.float32))


@pytest.fixture(scope="module")
def batch(family):
    return family.sample(jax.random.key(0), MODEL, **CONFIG.task_arguments(5))


@pytest.fixture(scope="module")
def update(family):
    return gradient.compiled(CONFIG, family, short("control"))


def short(name: str):
    return BUILDERS[name](jax.random.key(0)).replace(num_steps=STEPS)


def moved(before, after) -> dict[str, bool]:
    """Which parameters changed, by path."""
    pairs = zip(jax.tree_util.tree_leaves_with_path(before), jax.tree.leaves(after), strict=True)
    return {jax.tree_util.keystr(path): not np.array_equal(old, new) for (path, old), new in pairs}


def test_meta_training_lowers_the_score_on_its_family(update, batch):
    state = gradient.init(short("control"))
    judge = jax.jit(
        lambda protector: gradient.evaluate(protector, jax.random.key(9), batch, MODEL, ByMu("gdp"))["score"].mean()
    )
    before = float(judge(state.protector))
    for step in range(CONFIG.steps):
        state, metrics = update(state, step)
    assert np.isfinite(float(metrics["score"]))
    assert float(judge(state.protector)) < before - 0.1


def test_fixed_parameters_never_move(update):
    start = short("control")
    state, _ = update(gradient.init(start), 0)
    changed = moved(start, state.protector)
    assert not changed[".centering.row_norm"]
    assert not changed[".centering.target_norm"]
    assert changed[".scheduler.log_clip_norm"]
    assert changed[".projector.log_learning_rate"]


def test_alternation_moves_one_group_at_a_time():
    config, start = dataclasses.replace(CONFIG, alternate=(1, 2)), short("control")
    ones = jax.tree.map(jnp.ones_like, start)
    for step, group in ((0, "scheduler"), (1, "projector"), (2, "projector"), (3, "scheduler")):
        after, _ = gradient.adam_step(gradient.init(start), ones, jnp.array(step), config)
        for path, changed in moved(start, after).items():
            fixed = path in (".centering.row_norm", ".centering.target_norm")
            mine = path.startswith((".scheduler", ".centering")) == (group == "scheduler")
            assert changed == (mine and not fixed), (step, path)


def test_one_diverging_task_moves_the_mean_gradient_by_at_most_its_share(update):
    # Adam forgets scale, so look at the averaged gradient through the first moment: (1 - 0.9) * mean gradient.
    diverging = short("control")
    diverging = diverging.replace(
        projector=diverging.projector.replace(log_learning_rate=diverging.projector.log_learning_rate.at[0].set(12.0))
    )
    state, metrics = update(gradient.init(diverging), 0)
    moments = [state.adam[name].mu for name in ("scheduler", "projector")]
    size = np.sqrt(sum(float(jnp.square(leaf).sum()) for leaf in jax.tree.leaves(moments)))
    assert float(metrics["largest_gradient_norm"]) > 1.0
    assert size <= 0.1 * gradient.TASK_GRADIENT_NORM + 1e-6


def test_augmented_lagrangian_meets_the_budget(family):
    config = dataclasses.replace(
        CONFIG, steps=400, constraint="augmented_lagrangian", accountant="ctcdp", learning_rate=0.01
    )
    overspending = short("paper")
    network = overspending.scheduler.network
    network["head"]["bias"] = network["head"]["bias"] - 0.3  # exp(0.6) times the budget at first
    update, state = gradient.compiled(config, family, overspending), gradient.init(overspending)
    constraint = []
    for step in range(config.steps):
        state, metrics = update(state, step)
        constraint.append(float(metrics["constraint_abs"]))
    assert constraint[0] > 0.5
    assert np.mean(constraint[-20:]) < 0.01
    assert float(jnp.abs(state.multipliers).max()) > 0.0


def test_segments_add_up_to_the_whole_run(batch):
    protector, key = short("noisygd"), jax.random.key(5)
    setup = jax.tree.map(lambda leaf: leaf[3], ByMu("gdp").simulate(batch, MODEL, capped=True)[1])
    rows, best = jax.tree.map(lambda leaf: leaf[3], (batch.rows, batch.best_loss))
    _, (run, _) = first_segment(protector, rows, best, setup, key, STEPS // 2)
    _, (run, _) = next_segment(protector, run, rows, best, setup, key, STEPS // 2)
    whole, whole_spent = whole_run(protector, rows, best, setup, key)
    params = protector.finish(run.params, run.state, setup)
    np.testing.assert_allclose(score(mean_loss(params, MODEL, rows), best, first_loss(MODEL, rows)), whole, rtol=1e-5)
    np.testing.assert_allclose(run.ledger.spent / setup.accountant.budget, whole_spent, rtol=1e-6)


def test_truncated_unrolls_train_too(family):
    config = dataclasses.replace(CONFIG, objective="truncated", unroll=4)
    start = short("noisygd")
    state, metrics = gradient.compiled(config, family, start)(gradient.init(start), 0)
    assert np.isfinite(float(metrics["score"]))
    assert moved(start, state.protector)[".projector.hyperparameters['learning_rate']"]


def test_segments_spend_an_even_share_each(batch):
    setup = jax.tree.map(lambda leaf: leaf[2], ByMu("ctcdp").simulate(batch, MODEL, capped=False)[1])
    rows, best = jax.tree.map(lambda leaf: leaf[2], (batch.rows, batch.best_loss))
    even, key = short("paper"), jax.random.key(0)  # its head starts at zero: the even schedule
    _, (run, first) = first_segment(even, rows, best, setup, key, 2)
    _, (_, second) = next_segment(even, run, rows, best, setup, key, 2)
    np.testing.assert_allclose([first, second], 1.0, rtol=1e-3)


def test_multipliers_move_once_per_step_however_many_segments(family):
    config = dataclasses.replace(
        CONFIG,
        objective="truncated",
        unroll=4,
        constraint="augmented_lagrangian",
        accountant="ctcdp",
        learning_rate=1e-6,  # the scheduler stays where it is
    )
    overspending = short("paper")
    overspending.scheduler.network["head"]["bias"] -= 0.3
    state, _ = gradient.compiled(config, family, overspending)(
        gradient.init(overspending), gradient.MULTIPLIER_EVERY - 1
    )
    h = np.exp(0.6) - 1.0
    penalty = gradient.PENALTY[0] * (gradient.PENALTY[1] / gradient.PENALTY[0]) ** (9 / config.steps)
    # One step of ten was seen, so the mean of h over ten is a tenth of it.
    np.testing.assert_allclose(state.multipliers, -h / 10 / penalty, rtol=0.2)
    assert float(jnp.abs(state.excess).max()) == 0.0


def test_segments_that_do_not_fit_the_run_are_refused(family):
    config = dataclasses.replace(CONFIG, objective="truncated", unroll=3)
    with pytest.raises(InputError, match="does not divide"):
        gradient.compiled(config, family, short("noisygd"))(gradient.init(short("noisygd")), 0)


def test_a_cap_that_does_not_bind_only_measures(batch):
    setup = jax.tree.map(lambda leaf: leaf[0], ByMu("ctcdp").simulate(batch, MODEL, capped=False)[1])
    rows = jax.tree.map(lambda leaf: leaf[0], batch.rows)
    begun, _ = start(short("paper"), MODEL.init(5), rows, setup, Simulation(jax.random.key(0)))
    assert np.isinf(float(begun.ledger.budget))
    assert np.isfinite(float(setup.accountant.budget))


def test_random_search_keeps_the_best_and_starts_from_the_start(family):
    config = dataclasses.replace(CONFIG, method="search", accountant="zcdp", steps=12)
    update, state = search.compiled(config, family, short("noisygd")), search.init(short("noisygd"))
    best = []
    for step in range(config.steps):
        state, metrics = update(state, step)
        best.append(float(metrics["best_score"]))
        if step == 0:
            assert not any(moved(short("noisygd"), state.protector).values())
    assert best == sorted(best, reverse=True)
    assert best[-1] < best[0]


def test_warm_start_takes_shared_parameters_and_keeps_new_ones():
    control = short("control")
    control = control.replace(averaging=control.averaging + 7.0)
    census = warm_start(short("census"), control)
    assert np.array_equal(census.averaging, control.averaging)
    assert census.projector.coordinate_network is not None
