"""Tables that are stacked make the tasks that each makes alone, without padding in tasks that are no wider."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meta_train.tasks.family import TaskFamily
from meta_train.tasks.mixtures import Mixture
from meta_train.tasks.stacks import draw_stacked
from meta_train.tasks.targets import Classes, Numbers
from tests.conftest import EVERY_CASE

ROWS, WIDTH, FEATURES, TASKS = (70, 40, 90), 9, 6, 5


def table(seed, rows, kind, width=WIDTH):
    """A table of some columns of numbers and, but for the second table, some that may serve as labels."""
    generator = np.random.default_rng(seed)
    x = generator.random((rows, width)).astype(np.float32)
    binary = (0, 3, 5)[seed % 3]
    x[:, :binary] = x[:, :binary] > 0.5
    if kind == "two":
        return TaskFamily.from_table(x, (x[:, -1] > 0.5).astype(np.float32))
    if kind == "numbers":
        return Numbers(jnp.asarray(x), jnp.asarray(x[:, -1] ** 2))
    family = Classes(jnp.asarray(x), jnp.asarray(np.arange(rows) % 4, jnp.float32), 4)
    return {"classes": family, "fewer": family.with_num_classes(3), "more": family.with_num_classes(8)}[kind]


@pytest.mark.long
@pytest.mark.parametrize("kind", ["two", "numbers", "fewer", "more", *(["classes"] if EVERY_CASE else [])])
def test_tables_of_one_width_make_the_tasks_that_they_make_alone(kind):
    tables = [table(seed, rows, kind) for seed, rows in enumerate(ROWS[:2])]
    keys = list(jax.random.split(jax.random.key(3), len(tables)))
    stacked = jax.jit(lambda keys: draw_stacked(tables, keys, TASKS, 30, FEATURES))(keys)
    alone = [
        jax.jit(lambda key, source=source: source.draw_several(key, TASKS, 30, FEATURES))(key)
        for source, key in zip(tables, keys, strict=True)
    ]
    for field in ("x", "y", "mask"):
        expected = np.concatenate([getattr(drawn, field) for drawn in alone])
        np.testing.assert_allclose(getattr(stacked, field), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["two", "numbers", "fewer"])
def test_no_task_has_a_column_of_padding_or_a_row_of_another_table(kind):
    # Constant tables: mixed or flipped, a half stays a half and a quarter is a quarter or three, and padding is 0 or 1.
    tables = [table(0, 70, kind, width) for width in (4, 9, 5)]
    values = (0.5, 0.25, 0.5)
    tables = [
        dataclasses.replace(source, x=jnp.full_like(source.x, value))
        for source, value in zip(tables, values, strict=True)
    ]
    if kind == "two":
        tables = [dataclasses.replace(source, label_columns=jnp.zeros(0, jnp.int32)) for source in tables]
    keys = list(jax.random.split(jax.random.key(4), 3))
    x = jax.jit(lambda keys: draw_stacked(tables, keys, 40, 16, 4).x)(keys).reshape(3, 40, 16, 4)
    for distance, value in zip(np.abs(np.asarray(x) - 0.5), values, strict=True):
        if kind == "numbers":  # a column that is the target is set to a half
            assert (distance < 0.5 - value + 1e-5).all()
        else:
            np.testing.assert_allclose(distance, 0.5 - value, atol=1e-5)


@pytest.mark.slow
def test_every_column_of_a_padded_table_is_drawn():
    narrow, wide = (table(0, 60, "two", width) for width in (4, 9))
    x = jnp.tile(jnp.arange(4.0) / 10, (60, 1))  # column j holds j / 10
    narrow = dataclasses.replace(narrow, x=x, label_columns=jnp.zeros(0, jnp.int32))
    wide = dataclasses.replace(wide, label_columns=jnp.zeros(0, jnp.int32))
    keys = list(jax.random.split(jax.random.key(5), 2))
    columns = jax.jit(lambda keys: draw_stacked([narrow, wide], keys, 64, 2, 4).x)(keys)[:64, 0]
    tenths = np.rint(np.asarray(columns) * 10).astype(int)
    # Tasks without mixed and flipped columns have each column once, in any order.
    orders = {tuple(order) for order in tenths.tolist() if sorted(order) == [0, 1, 2, 3]}
    assert len(orders) > 3


@pytest.mark.long
def test_a_mixture_draws_the_same_shares_whether_its_tables_are_stacked_or_not():
    tables = [table(seed, rows, "numbers") for seed, rows in enumerate(ROWS)]
    few = table(5, 40, "numbers", FEATURES - 1)  # too few columns: left out
    mixtures = Mixture((*tables, few)), Mixture((*tables, few), frozenset({1, 2, 3}))
    draws = [
        jax.jit(lambda key, mixture=mixture: mixture.draw_several(key, 7, 8, FEATURES))(jax.random.key(0))
        for mixture in mixtures
    ]
    np.testing.assert_allclose(draws[0].x, draws[1].x, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(draws[0].y, draws[1].y, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_tables_with_more_classes_lend_each_of_theirs():
    """Four classes are drawn, from seven as often as from four, and none merges several of the table's."""
    few, many = (
        Classes(jnp.zeros((84, 3)), jnp.asarray(np.arange(84) % count, jnp.float32), count).with_num_classes(4)
        for count in (4, 7)
    )
    mixture = Mixture((few, many), frozenset({0, 1}))
    labels = jax.jit(lambda key: mixture.draw_several(key, 16, 400, 3).y)(jax.random.key(0))
    shares = [np.bincount(task_labels.astype(int), minlength=4) / 400 for task_labels in np.asarray(labels)]
    assert np.shape(shares) == (16, 4)
    assert 0.15 < np.min(shares) < np.max(shares) < 0.35


def test_halves_and_counts_of_classes_stay_stacked():
    mixture = Mixture(tuple(table(seed, 40, "classes") for seed in range(3)), frozenset({0, 2}))
    first, second = mixture.halves()
    assert first.stacked == second.stacked == mixture.with_num_classes(3).stacked == {0, 2}
    assert all(part.num_chosen == 3 for part in mixture.with_num_classes(3).parts)
