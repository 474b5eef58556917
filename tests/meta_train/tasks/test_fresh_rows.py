import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.base.errors import InputError
from l2p.models import MODELS
from l2p.run.simulate import mean_loss
from meta_train.config import ClassPairs, EveryModel, Plain
from meta_train.evaluation.budgets import ByMu
from meta_train.evaluation.marks import marks_of
from meta_train.evaluation.scores import evaluate, score, whole_run
from meta_train.tasks.family import TaskFamily
from meta_train.tasks.fresh_rows import FOLDS, with_fresh_rows
from meta_train.tasks.sources import families
from meta_train.training.starting_points import starting_point

NUM, CLASSES = 240, 3
#: Rows with their index in the first column and their class in the second.
Y = (np.arange(NUM) % CLASSES).astype(np.float32)
TABLE = TaskFamily.from_table(np.stack([np.arange(NUM) / NUM, Y / CLASSES], 1).astype(np.float32), Y)


def rows_in(rows) -> set:
    return set(np.round(np.asarray(rows.x[..., 0]).ravel() * NUM).astype(int))


@pytest.mark.slow
def test_no_run_is_scored_on_rows_that_it_read_and_every_row_has_its_turn():
    train, chosen = with_fresh_rows(*TABLE.cut_at(200))
    scored = set()
    draw = jax.jit(lambda key: train.draw_both(key, 4, 300, None))
    for seed in range(40):
        read, fresh = draw(jax.random.key(seed))
        assert not rows_in(read) & rows_in(fresh)
        assert len(rows_in(fresh)) <= 200 // FOLDS < len(rows_in(read))
        scored |= rows_in(fresh)
    assert scored == set(range(200))
    args = jax.random.key(0), 4, 300, None
    assert max(rows_in(chosen.draw_both(*args)[0])) < 200 <= min(rows_in(chosen.draw_both(*args)[1]))


@pytest.mark.slow
def test_the_rows_are_of_the_same_task():
    train, _ = with_fresh_rows(*TABLE.cut_at(200))
    args = jax.random.key(1), 16, 200, None

    def majority_classes(rows) -> list[float]:
        """The class of most rows with label 1; labels may be flipped in up to a fifth of all rows."""
        classes, labels = np.asarray(rows.x[..., 1]) * CLASSES, np.asarray(rows.y)
        return [float(np.round(np.median(values[label == 1]))) for values, label in zip(classes, labels, strict=True)]

    read, scored = majority_classes(train.draw_both(*args)[0]), majority_classes(train.draw_both(*args)[1])
    assert read == scored
    assert set(read) == {0.0, 1.0, 2.0}


@pytest.mark.slow
def test_a_run_is_scored_where_it_is_told_to_be():
    config = ClassPairs.of("x", "noisygd", source="digits:3,5", rows=64, tasks=8)
    train, _ = with_fresh_rows(*families("digits:3,5"))
    model = MODELS["logistic"]
    batch = jax.jit(lambda key: train.sample(key, model, **config.tasks.arguments(config.shapes[0])))(jax.random.key(0))
    protector = dataclasses.replace(starting_point(config), num_steps=5)
    rows, setups = ByMu("gdp").simulate(batch, model, capped=True)
    keys = jax.random.split(jax.random.key(1), 8)
    judge = jax.jit(lambda key, batch: evaluate(protector, key, batch, model, ByMu("gdp"))["score"])
    scores = judge(jax.random.key(1), batch)
    task = [jax.tree.map(lambda leaf: leaf[5], part) for part in (rows, batch.best_loss, setups, keys, batch.scored)]
    alone = jax.jit(lambda *task: whole_run(protector, *task)[0].value)
    on_read, on_scored = alone(*task[:-1]), alone(*task)
    assert float(scores[5]) == pytest.approx(float(on_scored), rel=1e-4)
    assert abs(float(on_read) - float(on_scored)) > 1e-3
    # The reference loss is measured on those rows, too.
    losses = jax.vmap(lambda rows: mean_loss(jnp.zeros(65), model, rows))(batch.scored)
    assert (np.asarray(batch.best_loss) < np.asarray(losses)).all()
    # The log of 1, less what is added to the excess that `score` divides by.
    setup, rows = (jax.tree.map(lambda leaf: leaf[0], part) for part in (setups, batch.scored))
    marks = marks_of(model, rows, rows, batch.best_loss[0], setup)
    assert float(score(losses[0], marks).value) == pytest.approx(0.0, abs=0.15)


@pytest.mark.slow
def test_held_out_tasks_may_be_of_classes_that_no_task_in_training_is_of():
    labels = (np.arange(NUM) % 5).astype(np.float32)
    table = TaskFamily.from_table(np.stack([np.arange(NUM) / NUM, labels / 5], 1).astype(np.float32), labels)
    train, chosen = with_fresh_rows(*table.cut_at(200), unseen=(1, 3))

    def classes(rows) -> set:
        return set(np.round(np.asarray(rows.x[..., 1]).ravel() * 5).astype(int))

    args = jax.random.key(0), 16, 200, None
    assert classes(train.draw_both(*args)[0]) == classes(train.draw_both(*args)[1]) == {0, 2, 4}
    assert classes(chosen.draw_both(*args)[0]) == classes(chosen.draw_both(*args)[1]) == {1, 3}
    assert max(rows_in(chosen.draw_both(*args)[0])) < 200 <= min(rows_in(chosen.draw_both(*args)[1]))


@pytest.mark.parametrize("unseen", [(), (1,), (0, 1, 2, 3), (7, 9)])
def test_two_classes_are_left_on_either_side(unseen):
    labels = (np.arange(NUM) % 5).astype(np.float32)
    table = TaskFamily.from_table(np.eye(5, dtype=np.float32)[labels.astype(int)], labels)
    with pytest.raises(InputError, match="leave two on either side"):
        with_fresh_rows(table, table, unseen)


@pytest.mark.parametrize("source", ["synthetic", "synthetic+breast_cancer"])
def test_tasks_of_no_table_of_their_own_are_refused(source):
    with pytest.raises(InputError, match="leave fresh_rows out"):
        with_fresh_rows(*families(source))


@pytest.mark.parametrize("change", [{"unroll": 5}, {"constraint": "soft"}])
def test_runs_that_are_scored_on_their_way_are_refused(change):
    """Fresh rows score the end of a run, and unseen classes need them."""
    with pytest.raises(InputError, match="kind 'class_pairs' has no"):
        ClassPairs.of("x", "noisygd", source="digits:3,5", **change)
    with pytest.raises(InputError, match="kind 'plain' has no unseen"):
        Plain.of("x", "noisygd", unseen=(7, 9))


@pytest.mark.parametrize("shares", [(-0.1, 1.0), (0.0, 1.5), (float("nan"), 1.0), (1.0,)])
def test_shares_are_shares(shares):
    with pytest.raises(InputError, match="fresh_shares is"):
        EveryModel.of("x", "noisygd", num_features=(8,), sources=("adult",), models=("svm",), fresh_shares=shares)
