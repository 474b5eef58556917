"""Whole tunings of hand-designed methods."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.checkpoints import checkpoint, lookup
from l2p.models import find_model
from l2p.privacy.budget import Budget
from l2p.privacy.cost.sampling import Poisson
from l2p.protectors import HAND_DESIGNED
from l2p.protectors.hand_designed import HandDesigned
from l2p.task.rows import Rows
from meta_train.evaluation import budgets, meta_test
from meta_train.evaluation.resolved import Resolved
from meta_train.evaluation.scores import evaluate
from meta_train.tasks.family import TaskFamily
from meta_train.tasks.reference import best_loss
from meta_train.training import gradients, search
from meta_train.training.gradient_against_search import trials
from meta_train.training.loop import meta_train
from meta_train.training.starting_points import starting_point
from tests.meta_train.training.test_gradient_against_search import TINY


def slow(problem):
    """NoisyGD that hardly moves, which tuning has to improve."""
    start = HAND_DESIGNED["noisygd"](problem.budget)
    return start.replace(projector=start.projector.replace(hyperparameters={"learning_rate": jnp.array([-6.0])}))


def test_both_ways_improve_a_badly_set_start(monkeypatch):
    monkeypatch.setitem(HAND_DESIGNED, "slow", HandDesigned(slow))
    generator = np.random.default_rng(0)
    x = (generator.random((300, 8)) < 0.4).astype(np.float32)
    family = TaskFamily.from_table(x, (x[:, 0] + x[:, 1] > 0).astype(np.float32))
    config = TINY.but(
        protector="slow", steps=30, log_signal=(4.0, 8.0), num_features=(4,), num_steps=15, learning_rate=0.3
    )
    start, tasks = starting_point(config), config.tasks
    (shape,), model = tasks.shapes, tasks.one_model()
    batch = family.sample(jax.random.key(7), model, **tasks.arguments(shape))
    planned = budgets.budgets_for(config.simulated, start, tasks.log_signal, "binary")
    resolved = {shape: Resolved(shape, model, planned, family, family)}
    judge = jax.jit(lambda protector: evaluate(protector, jax.random.key(8), batch, model, planned))
    before = float(judge(start)["score"].mean())
    # With only eight tasks and without gradients, the search ends at unclipped gradients and small steps.
    descent, searched = trials(config).values()
    ways = (
        (
            0.3,
            descent,
            gradients.init(start),
            gradients.compiled(tasks, resolved, descent.learner, descent.outer, descent.scoring),
        ),
        (0.02, searched, search.init(start), search.compiled(tasks, resolved, searched.outer, searched.scoring)),
    )
    for gain, trial, state, update in ways:
        for step in range(trial.outer.steps):
            state, _ = update(state, step)
        assert float(judge(state.protector)["score"].mean()) < before - gain, trial.kind


def test_a_sampled_method_is_tuned_and_resolves_to_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(budgets, "PLANNED", 5)
    monkeypatch.setattr(checkpoint, "FOLDERS", (tmp_path,))
    config = TINY.but(name="dpsgd-tuned-logistic-breast_cancer", protector="dpsgd", accountant="rdp")
    config = trials(config)["gradient"]
    assert meta_train(config, tmp_path) == tmp_path / "dpsgd-tuned-logistic-breast_cancer.safetensors"
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    assert all(np.isfinite(json.loads(line)["score"]) for line in lines)
    budget = Budget(0.5, 1e-6)
    method = lookup.resolve("dpsgd:tuned", budget, "logistic", num_rows=500)
    assert (method.accountant, method.protector.sampler, method.protector.num_steps) == ("rdp", Poisson(0.05), 6)
    assert method.filter(budget).limit > 0
    rates = method.protector.projector.hyperparameters["learning_rate"]
    assert rates.shape == (2,)
    assert float(rates[0]) != float(HAND_DESIGNED["dpsgd"](budget).projector.hyperparameters["learning_rate"][0])


def test_another_model_is_tuned_and_tested_by_its_own_loss(tmp_path):
    config = trials(TINY.but(model="svm", name="noisygd-tuned-svm-breast_cancer"))["gradient"]
    path = meta_train(config, tmp_path)
    card = checkpoint.load(path).card
    assert card["models"] == ["svm"]
    figures = meta_test.update(path, num_tasks=4, num_rows=48)
    assert figures["tasks"] == 4


@pytest.mark.parametrize("model", ["logistic", "svm"])  # by Newton's method, and by accelerated descent
def test_where_classes_are_separable_a_smaller_ridge_leaves_less_loss(model):
    x = np.random.default_rng(0).random((60, 8)).astype(np.float32)
    family = TaskFamily.from_table(x, (x[:, 0] > 0.5).astype(np.float32))
    rows = Rows(family.x, family.y, jnp.ones(60))
    loss = jax.jit(lambda rows, ridge: best_loss(find_model(model), rows, ridge))
    losses = [float(loss(rows, ridge)) for ridge in (1e-1, 1e-2, 1e-3)]
    assert losses[0] > 1.2 * losses[1] > 1.2**2 * losses[2] > 0
    tasks = TINY.but(model=model, ridge=1e-4).tasks
    batch = jax.jit(
        lambda key: family.sample(key, find_model(model), **tasks.arguments(tasks.shapes[0]._replace(num_features=3)))
    )(jax.random.key(0))
    first = jax.tree.map(lambda leaf: leaf[0], batch.rows)
    np.testing.assert_allclose(batch.best_loss[0], loss(first, 1e-4), rtol=1e-2)
    assert float(batch.best_loss[0]) < 0.99 * float(loss(first, 1e-2))
