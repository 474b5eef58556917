"""Tasks of several classes: all of a table's, fewer, more, or some against the others."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.base.errors import InputError
from l2p.models import Softmax
from meta_train.tasks.family import TaskFamily
from meta_train.tasks.sources import families
from meta_train.tasks.targets import from_table


@pytest.mark.long
def test_tasks_of_many_classes_keep_them_all_under_other_names():
    train, held_out = families("digits:features")
    assert (train.num_classes, train.max_features) == (10, 288)
    arguments = {"num_tasks": 6, "num_rows": 200, "log_signal": (1.0, 7.0)}
    own = jax.jit(lambda key: train.sample(key, Softmax(10), num_features=None, **arguments))(jax.random.key(0))
    assert own.rows.x.shape == (6, 200, 288)
    assert all(set(np.unique(labels)) <= set(range(10)) and len(np.unique(labels)) == 10 for labels in own.rows.y)
    assert (np.asarray(own.best_loss) < np.log(10)).all()
    drawn = jax.jit(lambda key: held_out.sample(key, Softmax(10), num_features=20, **arguments))(jax.random.key(1))
    assert drawn.rows.x.shape == (6, 200, 20)
    # The same rows, relabelled: labels of two tasks agree up to a permutation, where there is no noise.
    family = from_table(np.eye(4, dtype=np.float32), np.arange(4, dtype=np.float32), 4)
    draw = jax.jit(lambda key: family.draw(key, 200, None))
    assert len({tuple(np.asarray(draw(jax.random.key(seed)).x.argmax(1))) for seed in range(3)}) == 3
    names = set()
    for seed in range(12):
        rows = draw(jax.random.key(seed))
        table = np.zeros((4, 4))
        np.add.at(table, (np.asarray(rows.x).argmax(1), np.asarray(rows.y).astype(int)), 1)
        assert (table.max(1) > 0.7 * table.sum(1)).all()  # noise is at most a fifth, of which a quarter changes nothing
        names.add(tuple(table.argmax(1)))
    assert len(names) > 6


@pytest.mark.slow
def test_tasks_of_many_classes_set_some_of_them_against_the_others():
    random = np.random.default_rng(2)
    y = random.integers(0, 4, 400).astype(np.float32)
    x = np.stack([y / 4, random.random(400).astype(np.float32)], 1).astype(np.float32)
    family = TaskFamily.from_table(x, y).with_columns(np.array([0, 1]))
    splits = set()
    for seed in range(30):
        label = np.asarray(family._grouped(jax.random.key(seed), family.y))
        groups = [set(label[y == group_label]) for group_label in range(4)]
        assert all(len(group) == 1 for group in groups)  # a class lies on one side
        assert set(label) == {0.0, 1.0}
        splits.add(tuple(next(iter(group)) for group in groups))
    assert len(splits) > 8


@pytest.mark.slow
def test_tasks_of_fewer_classes_are_of_rows_of_some():
    # Each row is a class of its own here: a task's rows show which of the table's classes it has.
    family = from_table(np.eye(6, dtype=np.float32), np.arange(6, dtype=np.float32), 6).with_num_classes(3)
    draw = jax.jit(jax.vmap(lambda key: family.draw(key, 64, None)))
    rows = draw(jax.random.split(jax.random.key(0), 20))
    classes = [set(np.unique(x.argmax(1))) for x in np.asarray(rows.x)]
    assert {len(some) for some in classes} == {3}
    assert len(set().union(*classes)) == 6
    assert set(np.unique(rows.y)) == {0.0, 1.0, 2.0}
    # Half of the tasks have no label noise: there, each class has a single label.
    pairs = [set(zip(x.argmax(1), y, strict=True)) for x, y in zip(np.asarray(rows.x), np.asarray(rows.y), strict=True)]
    assert min(map(len, pairs)) == 3
    assert family.with_num_classes(None) is family


@pytest.mark.slow
def test_tasks_of_more_classes_are_of_parts_that_a_linear_model_can_tell():
    x = np.random.default_rng(0).random((500, 8)).astype(np.float32)
    family = from_table(x, (x[:, 0] > 0.5).astype(np.float32), 2).with_num_classes(6)
    rows = jax.jit(jax.vmap(lambda key: family.draw(key, 400, None)))(jax.random.split(jax.random.key(0), 8))
    right = []
    for table, y in zip(np.asarray(rows.x), np.asarray(rows.y, int), strict=True):
        lines = np.column_stack([table, np.ones(400)])
        weights = np.linalg.lstsq(lines, np.eye(6)[y], rcond=None)[0]
        right.append(((lines @ weights).argmax(1) == y).mean())
        assert len(np.unique(y)) == 6
    assert max(right) > 0.6
    assert min(right) > 0.4
    with pytest.raises(InputError, match="multiples of 2"):
        family.with_num_classes(2 * 3 + 1)


@pytest.mark.long
@pytest.mark.parametrize("source", ["synthetic:classes:3", "digits"])
def test_halves_of_several_classes_are_the_same_tasks_of_other_rows(source):
    held_out = families(source)[1].with_num_classes(3)
    first, second = (
        jax.jit(half.draw, static_argnums=(1, 2))(jax.random.key(3), 1000, 5) for half in held_out.halves()
    )
    assert not jnp.array_equal(first.x, second.x)
    # Least squares for each class's indicator, fitted on one half, also classifies the other half.
    table, second_table = (np.column_stack([half.x, np.ones(1000)]) for half in (first, second))
    weights = np.linalg.lstsq(table, np.eye(3)[np.asarray(first.y, int)], rcond=None)[0]
    right = [((lines @ weights).argmax(1) == half.y).mean() for lines, half in ((table, first), (second_table, second))]
    assert right[1] > right[0] - 0.15
    assert right[1] > 0.4
