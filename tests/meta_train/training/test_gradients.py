import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.base.errors import InputError
from l2p.models import Logistic, find_model
from l2p.protectors import Eigenbasis, Stepwise
from l2p.protectors.learned.tunable import combine, partition
from l2p.run.run import Simulation, start
from l2p.run.simulate import mean_loss
from l2p.task.feature_map import FeatureMap
from meta_train.config import Constrained, EveryModel, Perturbed, Plain, Search
from meta_train.config.bands import BANDS
from meta_train.config.parts import USUAL, Scoring
from meta_train.evaluation.budgets import ByMu, budgets_of_shapes
from meta_train.evaluation.marks import Marks, marks_of
from meta_train.evaluation.resolved import Resolved
from meta_train.evaluation.scores import Score, evaluate, score, whole_run
from meta_train.tasks.family import TaskFamily
from meta_train.training import clipping, gradients, search, turns
from meta_train.training.constraints import MULTIPLIER_EVERY, constrained_targets, penalty
from meta_train.training.objective import first_segment, next_segment, soft_run, with_constant_gradients
from meta_train.training.starting_points import warm_start
from meta_train.training.untrained import BUILDERS

MODEL = Logistic()
STEPS = 8
SMALL = {"steps": 40, "tasks": 8, "rows": 96, "num_features": (5,), "log_signal": (2.0, 7.0), "seed": 3}
CONFIG = Plain.of("t", "control", learning_rate=0.05, **SMALL)
#: Of a scheduler that may overspend.
CONSTRAINED = Constrained.of("t", "paper", accountant="ctcdp", learning_rate=0.01, **SMALL)


@pytest.fixture(scope="module")
def family() -> TaskFamily:
    generator = np.random.default_rng(0)
    x = (generator.random((400, 10)) < 0.4).astype(np.float32)
    return TaskFamily.from_table(x, (x[:, 0] + x[:, 1] > 0).astype(np.float32))


@pytest.fixture(scope="module")
def batch(family):
    return jax.jit(lambda key: family.sample(key, MODEL, **CONFIG.tasks.arguments(CONFIG.shapes[0])))(jax.random.key(0))


@pytest.fixture(scope="module")
def update(family):
    return step_of(CONFIG, family, short("control"))


def resolved(config, family, start) -> dict:
    """Every shape of a config's tasks, drawn from this family in place of its source."""
    every = budgets_of_shapes(config.simulated, config.tasks, start).items()
    return {
        shape: Resolved(shape, config.tasks.find_model(shape), shape_family, family, family)
        for shape, shape_family in every
    }


def step_of(config, family, start):
    """The outer step of a training on these tasks."""
    return gradients.compiled(
        config.tasks, resolved(config, family, start), config.learner, config.outer, config.scoring
    )


def short(name: str):
    return BUILDERS[name](jax.random.key(0)).replace(num_steps=STEPS)


def moved(before, after) -> dict[str, bool]:
    """Paths of the parameters that changed."""
    pairs = zip(jax.tree_util.tree_leaves_with_path(before), jax.tree.leaves(after), strict=True)
    return {jax.tree_util.keystr(path): not np.array_equal(old, new) for (path, old), new in pairs}


@pytest.mark.long
@pytest.mark.parametrize("estimator", ["backpropagation", "evolution"])
def test_meta_training_lowers_the_score_on_its_family(estimator, update, family, batch):
    if estimator == "evolution":
        update = step_of(Perturbed.of("t", "control", learning_rate=0.05, **SMALL), family, short("control"))
    state = gradients.init(short("control"))
    judge = jax.jit(lambda protector: evaluate(protector, jax.random.key(9), batch, MODEL, ByMu("gdp"))["score"].mean())
    before = float(judge(state.protector))
    for step in range(CONFIG.outer.steps):
        state, metrics = update(state, step)
    assert np.isfinite(float(metrics["score"]))
    assert float(judge(state.protector)) < before - 0.1


@pytest.mark.long
def test_fixed_parameters_never_move(update):
    start = short("control")
    state, _ = update(gradients.init(start), 0)
    changed = moved(start, state.protector)
    assert not changed[".centering.row_norm"]
    assert not changed[".centering.target_norm"]
    assert changed[".scheduler.log_clip_norm"]
    assert changed[".projector.log_learning_rate"]


@pytest.fixture
def compiled(monkeypatch):
    """Compiled functions by name; a draw gives its shape, and an update that of its tasks."""
    names = []

    def jit(function, compiler_options):
        del compiler_options
        names.append(function.func.__name__)
        if names[-1] == "draw_tasks":
            return lambda step: function.keywords["resolved"].shape
        return lambda state, step, batch: batch

    monkeypatch.setattr(gradients, "quick_options", dict)
    monkeypatch.setattr(jax, "jit", jit)
    return names


@pytest.mark.slow
def test_a_shape_that_has_several_turns_is_compiled_once(family, compiled):
    update = step_of(CONFIG.but(num_features=(3, 5, 3, 4)), family, short("control"))
    assert [update(None, step).num_features for step in range(6)] == [3, 5, 3, 4, 3, 5]
    assert sorted(compiled) == ["draw_tasks"] * 3 + ["update"] * 3


def test_a_step_is_compiled_once_for_all_sources(family, compiled):
    """The sources have targets of the same kind; a model may be trained on two kinds."""
    sources = ("synthetic", "synthetic:rough", "synthetic:numbers")
    config = EveryModel.of(
        "t", "control", **{**SMALL, "num_features": (3, 3, 3)}, sources=sources, models=("square",) * 3
    )
    update = step_of(config, family, short("control"))
    assert tuple(update(None, step).source for step in range(3)) == sources
    assert sorted(compiled) == ["draw_tasks"] * 3 + ["update"] * 2


def test_alternation_moves_one_group_at_a_time():
    learner, start = CONSTRAINED.but(alternate=(1, 2)).learner, short("control")
    ones, step_of_adam = jax.tree.map(jnp.ones_like, start), jax.jit(turns.adam_step, static_argnums=(4, 5))
    for step, group in ((0, "scheduler"), (1, "projector"), (2, "projector"), (3, "scheduler")):
        after, _ = step_of_adam(start, turns.init_moments(start), ones, jnp.array(step), learner, 40)
        for path, changed in moved(start, after).items():
            fixed = path in (".centering.row_norm", ".centering.target_norm")
            mine = path.startswith((".scheduler", ".centering")) == (group == "scheduler")
            assert changed == (mine and not fixed), (step, path)


@pytest.mark.long
@pytest.mark.parametrize("name", ["mlp"])
def test_rows_that_are_held_constant_give_the_gradients_of_mapped_ones(name, batch, monkeypatch):
    model = find_model(name)
    rows, best = jax.tree.map(lambda leaf: leaf[4], (batch.rows, batch.best_loss))
    setup = jax.tree.map(lambda leaf: leaf[4], ByMu("gdp").simulate(batch, model, capped=True)[1])
    floats, others = partition(dataclasses.replace(short("control_eigen"), num_steps=6))

    def value_and_gradient():
        run = functools.partial(whole_run, rows=rows, best_loss=best, setup=setup, key=jax.random.key(2))
        return jax.jit(jax.value_and_grad(lambda floats: run(combine(floats, others))[0].value))(floats)

    value, gradient = value_and_gradient()
    monkeypatch.setattr(Stepwise, "reads_remaining_map", False)
    plain, mapped = value_and_gradient()
    np.testing.assert_allclose(value, plain, rtol=1e-4)
    assert np.abs(mapped.purchase(Eigenbasis).log_ridge).max() > 1e-4  # so that a basis was bought and counts
    scale = max(float(np.abs(leaf).max()) for leaf in jax.tree.leaves(mapped))
    chex.assert_trees_all_close(gradient, mapped, rtol=2e-3, atol=1e-4 * scale)


@pytest.mark.long
def test_one_diverging_task_moves_the_mean_gradient_by_at_most_its_share(update):
    # Adam forgets scale, so look at the averaged gradient through the first moment: (1 - 0.9) * mean gradient.
    diverging = short("control")
    diverging = diverging.replace(
        projector=diverging.projector.replace(log_learning_rate=diverging.projector.log_learning_rate.at[0].set(12.0))
    )
    state, metrics = update(gradients.init(diverging), 0)
    moments = [state.adam[name].mu for name in ("scheduler", "projector")]
    size = np.sqrt(sum(float(jnp.square(leaf).sum()) for leaf in jax.tree.leaves(moments)))
    assert float(metrics["largest_gradient_norm"]) > 1.0
    assert size <= 0.1 * clipping.TASK_GRADIENT_NORM + 1e-6


def overspending():
    """The paper's pair, which spends exp(0.6) times the budget at first."""
    protector = short("paper")
    protector.scheduler.network["head"]["bias"] -= 0.3
    return protector


def after_tug(learner, step: int = 0) -> gradients.GradientState:
    """The state after an outer step in which tasks pull the scheduler's bias to both sides, as hard as a million, while
    it spends 2 where the target is 1; and all of them pull on the scale of the projector's updates."""

    def tug(protector, side: jax.Array):
        (bias,) = protector.scheduler.network["head"]["bias"]
        step_size = protector.projector.log_step
        return Score(1e6 * side * bias + step_size, jnp.zeros(())), (None, 2.0 * jnp.exp(-2.0 * bias))

    state, sides = gradients.init(short("paper")), jnp.resize(jnp.array([1.0, -1.0]), BANDS)
    step_of_tug = jax.jit(
        lambda step: gradients._descend(state, step, learner, CONSTRAINED.outer, USUAL, tug, (sides,), jnp.array(0))[0]
    )
    return step_of_tug(jnp.array(step))


def test_a_small_penalty_beside_a_huge_score_still_moves_the_scheduler():
    # Adam forgets scale, so look at the averaged gradient through the first moment: (1 - 0.9) * mean gradient. That of
    # the penalty h^2 / (2 mu) of h = 1 is -4 / mu, clipped to 1.
    apart, together = (
        after_tug(CONSTRAINED.but(clips=clips).learner).adam["scheduler"].mu.scheduler.network["head"]["bias"][0]
        for clips in ("apart", "together")
    )
    assert float(apart) == pytest.approx(-0.1, rel=1e-4)
    assert abs(float(together)) < 1e-5


def test_updates_of_the_projector_are_of_the_score_alone():
    learner = CONSTRAINED.but(alternate=(1, 5)).learner
    state = after_tug(learner, step=1)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(state.adam["scheduler"].mu))
    # What it does not change would use up the norm that its gradient is clipped to.
    assert float(state.adam["projector"].mu.projector.log_step) == pytest.approx(0.1, rel=1e-4)


@pytest.mark.long
def test_the_soft_constraint_trains_scheduler_and_projector(family, batch):
    config = CONSTRAINED.but(steps=120, constraint="soft", alternate=(1, 5))
    judge = jax.jit(lambda protector: evaluate(protector, jax.random.key(9), batch, MODEL, ByMu("ctcdp")))
    start = short("paper")
    update, state = step_of(config, family, start), gradients.init(start, config.learner.unroll)
    for step in range(config.outer.steps):
        state, _ = update(state, step)
    before, after = (float(judge(protector)["score"].mean()) for protector in (start, state.protector))
    assert after < before - 0.2
    assert moved(start.scheduler, state.protector.scheduler)[".network['head']['bias']"]


@pytest.mark.long
def test_gradient_of_a_soft_run_is_its_slope(batch):
    setup = jax.tree.map(lambda leaf: leaf[3], ByMu("ctcdp").simulate(batch, MODEL, capped=False)[1])
    rows, best = jax.tree.map(lambda leaf: leaf[3], (batch.rows, batch.best_loss))
    start = overspending().replace(projector=short("noisygd").projector)  # the paper's own does not move at first

    @jax.jit
    def value(shift: jax.Array) -> jax.Array:
        head = start.scheduler.network["head"]
        network = {**start.scheduler.network, "head": {**head, "bias": head["bias"] + shift}}
        protector = start.replace(scheduler=start.scheduler.replace(network=network))
        return soft_run(protector, rows, best, setup, jax.random.key(1))[0].value

    # Between kinks: the budget ends at the same step on both sides.
    at, width = jnp.array(0.02), 0.004
    slope = (value(at + width) - value(at - width)) / (2 * width)
    np.testing.assert_allclose(jax.grad(value)(at), slope, rtol=0.03)


@pytest.mark.long
def test_observed_gradients_are_constants_to_a_meta_gradient(batch):
    model, rows = with_constant_gradients(MODEL), jax.tree.map(lambda leaf: leaf[0], batch.rows)
    assert model == with_constant_gradients(Logistic())
    params, features, clip_norm = jnp.full(6, 0.3), FeatureMap.identity(5), jnp.array(0.1)
    chex.assert_trees_all_equal(*(m.clipped_gradient_sum(params, rows, features, clip_norm) for m in (model, MODEL)))
    jacobian = jax.jacobian(lambda *at: model.clipped_gradient_sum(at[0], rows, features, at[1]), (0, 1))
    in_params, in_clip_norm = jacobian(params, clip_norm)
    assert not in_params.any()
    assert in_clip_norm.any()
    assert jax.grad(lambda at: mean_loss(at, model, rows))(params).any()


@pytest.mark.long
def test_stopping_the_inner_gradient_changes_what_is_learned(family, update):
    start = short("control")
    stopped = step_of(CONFIG.but(inner_gradient=False), family, start)
    states = [step(gradients.init(start), 0)[0] for step in (update, stopped)]
    learned = [state.adam["projector"].mu.projector.log_learning_rate for state in states]
    assert np.isfinite(learned).all()
    assert not np.allclose(*learned, rtol=1e-3)


@pytest.mark.slow
def test_segments_add_up_to_the_whole_run(batch):
    protector, key = short("noisygd"), jax.random.key(5)
    setup = jax.tree.map(lambda leaf: leaf[3], ByMu("gdp").simulate(batch, MODEL, capped=True)[1])
    rows, best = jax.tree.map(lambda leaf: leaf[3], (batch.rows, batch.best_loss))
    _, (run, _) = first_segment(protector, rows, best, setup, key, num_steps=STEPS // 2)
    _, (run, _) = next_segment(protector, run, rows, best, setup, key, num_steps=STEPS // 2)
    of_whole_run, whole_spent = whole_run(protector, rows, best, setup, key)
    params = protector.finish(run.params, run.state, setup)
    np.testing.assert_allclose(
        score(mean_loss(params, MODEL, rows), marks_of(MODEL, rows, rows, best, setup)).value,
        of_whole_run.value,
        rtol=1e-5,
    )
    np.testing.assert_allclose(run.spending.spent / setup.price_list.budget, whole_spent, rtol=1e-6)


@pytest.mark.slow
def test_segments_may_be_scored_on_rows_that_they_do_not_read(batch):
    protector, key = short("noisygd"), jax.random.key(5)
    setup = jax.tree.map(lambda leaf: leaf[7], ByMu("gdp").simulate(batch, MODEL, capped=True)[1])
    rows, best = jax.tree.map(lambda leaf: leaf[7], (batch.rows, batch.best_loss))
    others = rows.replace(y=1.0 - rows.y)
    segment = jax.jit(functools.partial(first_segment, num_steps=STEPS))
    own, (run, _) = segment(protector, rows, best, setup, key)
    fresh, (same_run, _) = segment(protector, rows, best, setup, key, others)
    chex.assert_trees_all_close(run, same_run, rtol=1e-6)
    assert float(fresh.value) > float(own.value) + 0.05


@pytest.mark.long
def test_segments_spend_an_even_share_each(batch):
    setup = jax.tree.map(lambda leaf: leaf[2], ByMu("ctcdp").simulate(batch, MODEL, capped=False)[1])
    rows, best = jax.tree.map(lambda leaf: leaf[2], (batch.rows, batch.best_loss))
    even, key = short("paper"), jax.random.key(0)  # its head starts at zero: the even schedule
    _, (run, first) = first_segment(even, rows, best, setup, key, num_steps=2)
    _, (_, second) = next_segment(even, run, rows, best, setup, key, num_steps=2)
    np.testing.assert_allclose([first, second], 1.0, rtol=1e-3)


@pytest.mark.long
def test_truncated_unrolls_train_and_multipliers_move_once_per_step_however_many_segments(family):
    config = CONSTRAINED.but(unroll=4, learning_rate=1e-6)  # the scheduler stays where it is
    start = overspending()
    every = MULTIPLIER_EVERY // 2  # the scheduler is updated after each of the two segments
    state, metrics = step_of(config, family, start)(gradients.init(start, config.learner.unroll), every - 1)
    assert np.isfinite(float(metrics["score"]))
    assert moved(start, state.protector)[".scheduler.network['head']['bias']"]
    h = np.exp(0.6) - 1.0
    # Only one step of five was recorded, so spending looks a fifth of what it is, and even: targets stay equal.
    spent, mu = (1.0 + h) / every, penalty(jnp.array(every - 1), config.outer.steps)
    targets, global_h = constrained_targets(jnp.full(2, spent), jnp.array(0.0), mu)
    np.testing.assert_allclose(state.constraint.targets, jnp.broadcast_to(targets, (BANDS, 2)), rtol=0.1)
    np.testing.assert_allclose(state.constraint.multipliers, -(spent - targets[0]) / mu, rtol=0.2)
    np.testing.assert_allclose(state.constraint.global_multiplier, -4 * global_h / mu, rtol=0.2)
    assert float(jnp.abs(state.constraint.spent).max()) == 0.0


def test_a_lower_floor_tells_small_excesses_apart():
    def gap(floor: float) -> float:
        near, nearer = (
            score(jnp.array(0.5 + excess), Marks(jnp.array(0.5), jnp.array(0.22)), Scoring(excess_floor=floor)).value
            for excess in (1e-3, 1e-4)
        )
        return float(near - nearer)

    assert gap(0.02) < 0.25 < 1.5 < gap(5e-4)
    with pytest.raises(InputError, match="positive"):
        CONFIG.but(excess_floor=0.0)


def test_segments_that_do_not_fit_the_run_are_refused(family):
    config = CONFIG.but(unroll=3)
    with pytest.raises(InputError, match="does not divide"):
        step_of(config, family, short("noisygd"))(gradients.init(short("noisygd"), config.learner.unroll), 0)


@pytest.mark.long
def test_a_cap_that_does_not_bind_only_measures(batch):
    setup = jax.tree.map(lambda leaf: leaf[0], ByMu("ctcdp").simulate(batch, MODEL, capped=False)[1])
    rows = jax.tree.map(lambda leaf: leaf[0], batch.rows)
    begun, _ = start(short("paper"), MODEL.init(5), rows, setup, Simulation(jax.random.key(0)))
    assert np.isinf(float(begun.spending.budget))
    assert np.isfinite(float(setup.price_list.budget))


@pytest.mark.long
def test_random_search_keeps_the_best_and_starts_from_the_start(family):
    config = Search.of("t", "control", accountant="zcdp", **{**SMALL, "steps": 12})
    shapes = resolved(config, family, short("noisygd"))
    update, state = search.compiled(config.tasks, shapes, config.outer, config.scoring), search.init(short("noisygd"))
    best = []
    for step in range(config.outer.steps):
        state, metrics = update(state, step)
        best.append(float(metrics["best_score"]))
        if step == 0:
            assert not any(moved(short("noisygd"), state.protector).values())
    assert best == sorted(best, reverse=True)
    assert best[-1] < best[0]


def test_warm_start_takes_shared_parameters_and_keeps_new_ones():
    control = short("control")
    control = control.replace(averaging=control.averaging + 7.0)
    networks = warm_start(short("universal_batches"), control)
    assert np.array_equal(networks.averaging, control.averaging)
    assert networks.projector.coordinate_network is not None


@pytest.mark.slow
def test_warm_start_takes_constants_that_a_training_chose_at_its_end():
    control = short("control_filter")
    basis = control.purchase(Eigenbasis).replace(log_least_ratio=jnp.float32(0.7))
    started = warm_start(short("filter"), control.with_purchases(basis))
    assert float(started.purchase(Eigenbasis).log_least_ratio) == pytest.approx(0.7)
    assert started.projector.network is not None


def test_a_curriculum_begins_with_the_upper_half_of_the_budgets(monkeypatch):
    class Drawn(Exception):
        """Carries the range of budgets that was requested."""

    def sample(self, key, model, **arguments):
        raise Drawn(*map(float, arguments["log_signal"]))

    monkeypatch.setattr(TaskFamily, "sample", sample)
    config = CONFIG.but(steps=40, curriculum=0.5, log_signal=(1.0, 5.0))
    family = TaskFamily(jnp.zeros((1, 1)), jnp.zeros(1), jnp.zeros(0))
    on, ranges = Resolved(CONFIG.shapes[0], MODEL, ByMu("gdp"), family, family), {}
    for step in (0, 10, 20, 39):
        with pytest.raises(Drawn) as drawn:
            gradients.draw_tasks(jnp.array(step), config.tasks, on, config.learner, config.outer)
        ranges[step] = drawn.value.args
    assert ranges == {0: (3.0, 5.0), 10: (2.0, 5.0), 20: (1.0, 5.0), 39: (1.0, 5.0)}
