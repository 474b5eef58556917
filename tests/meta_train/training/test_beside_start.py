"""Runs that are scored beside those of the protector that training starts from."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.base.errors import InputError
from l2p.models import Logistic
from l2p.protectors.learned.tunable import combine, partition
from meta_train.config import EveryModel
from meta_train.config.parts import USUAL
from meta_train.evaluation.budgets import ByMu
from meta_train.evaluation.scores import Score, whole_run
from meta_train.tasks.family import TaskFamily
from meta_train.training import clipping, gradients
from meta_train.training.objective import run_beside
from meta_train.training.untrained import BUILDERS

MODEL = Logistic()
TASKS = {"num_features": (5,), "sources": ("synthetic",), "models": ("logistic",), "tasks": 8, "rows": 96}
CONFIG = EveryModel.of("t", "control", aversion=3.0, draws=2, steps=4, fresh_shares=(1.0, 1.0), **TASKS)


def short():
    return BUILDERS["control"](jax.random.key(0)).replace(num_steps=4)


@pytest.fixture(scope="module")
def batch():
    generator = np.random.default_rng(0)
    x = (generator.random((400, 10)) < 0.4).astype(np.float32)
    family = TaskFamily.from_table(x, (x[:, 0] + x[:, 1] > 0).astype(np.float32))
    arguments = CONFIG.tasks.arguments(CONFIG.shapes[0]) | {"log_signal": (2.0, 7.0)}
    return jax.jit(lambda key: family.sample(key, MODEL, **arguments))(jax.random.key(0))


@functools.cache
def score_beside(aversion: float, draws: int):
    """(score, gradient) of runs beside those of a start, in the first task of a batch."""

    @jax.jit
    def run(protector, start, task):
        floats, others = partition(protector)

        def value(floats):
            return run_beside(combine(floats, others), start, *task, aversion=aversion, draws=draws)[0].value

        return jax.value_and_grad(value)(floats)

    return run


@pytest.fixture(scope="module")
def first_task(batch):
    rows, setups = ByMu("gdp").simulate(batch, MODEL, capped=True)
    return jax.tree.map(lambda leaf: leaf[0], (rows, batch.best_loss, setups, jax.random.split(jax.random.key(5), 8)))


@pytest.mark.slow
def test_runs_beside_their_start_count_losses_more(first_task):
    start, (rows, best_loss, setup, key) = short(), first_task
    others = [
        start.replace(projector=start.projector.replace(log_learning_rate=start.projector.log_learning_rate + change))
        for change in (-1.0, 1.0)
    ]
    same, _ = score_beside(3.0, 2)(start, start, first_task)
    assert float(same) == pytest.approx(0.0, abs=1e-5)
    run = jax.jit(lambda protector, key: whole_run(protector, rows, best_loss, setup, key)[0].value)
    signs = set()
    for protector in others:
        keys = jax.random.split(key, 2)
        change = np.mean([float(run(protector, each)) - float(run(start, each)) for each in keys])
        (averse, steep), (even, flat) = (score_beside(weight, 2)(protector, start, first_task) for weight in (3.0, 1.0))
        assert float(even) == pytest.approx(change, abs=1e-5)
        factor = 3.0 if change > 0 else 1.0
        assert float(averse) == pytest.approx(factor * change, abs=1e-5)
        chex.assert_trees_all_close(steep, jax.tree.map(lambda leaf, factor=factor: factor * leaf, flat), rtol=1e-4)
        signs.add(change > 0)
    assert signs == {True, False}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"aversion": 0.5}, "from 1 up"),
        ({"aversion": 2.0, "unroll": 2}, "leave out unroll"),
        ({"draws": 4}, "set aversion"),
        ({"aversion": 2.0, "draws": 0}, "draws"),
    ],
)
def test_odd_comparisons_with_the_start_are_refused(values, message):
    with pytest.raises(InputError, match=message):
        EveryModel.of("t", "control", **TASKS | values)


@pytest.mark.long
def test_an_outer_step_moves_the_protector_and_leaves_the_start(batch):
    fixed = {"learner": CONFIG.learner, "outer": CONFIG.outer, "scoring": CONFIG.scoring}
    step = jax.jit(functools.partial(gradients.update, **fixed, budgets=ByMu("gdp"), model=MODEL))
    first = gradients.init(short(), compares_with_start=True)
    state, metrics = step(first, jnp.array(0), batch)
    assert float(metrics["score"]) == pytest.approx(0.0, abs=1e-5)
    state, metrics = step(state, jnp.array(1), batch)
    chex.assert_trees_all_equal(state.start, short())
    assert float(metrics["score"]) != pytest.approx(0.0, abs=1e-5)
    moved = jax.tree.map(lambda before, after: bool((before != after).any()), short(), state.protector)
    assert any(jax.tree.leaves(moved))


def test_clipping_leaves_losses_their_weight():
    scores = Score(jnp.array([-1.0, 0.5]), jnp.zeros(2))
    longest = gradients._longest(scores, CONFIG.learner, USUAL)
    assert longest.tolist() == [clipping.TASK_GRADIENT_NORM, 3.0 * clipping.TASK_GRADIENT_NORM]
