"""Tasks that are a table as it is: its own label, all its columns, no noise."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.base.errors import InputError
from meta_train.tasks.family import TaskFamily
from meta_train.tasks.stacks import draw_stacked
from meta_train.tasks.targets import Classes, Numbers

N, D, WIDE = 400, 5, 8
X = np.random.default_rng(0).random((N, D)).astype(np.float32)
Y = (X[:, 0] > 0.5).astype(np.float32)
TABLES = {
    "two classes": TaskFamily.from_table(X, Y),
    "three classes": Classes(jnp.asarray(X), jnp.asarray(np.floor(3 * X[:, 0])), 3),
    "numbers": Numbers(jnp.asarray(X), jnp.asarray(X[:, 0])),
}


@functools.cache
def all_plain(name):
    """Tasks with more columns than the table has, all of them plain."""
    return drawn(dataclasses.replace(TABLES[name], plain=1.0), WIDE)


def drawn(family, features, tasks=40):
    draw = jax.jit(jax.vmap(lambda key: family.draw(key, 100, features)))
    return jax.device_get(draw(jax.random.split(jax.random.key(1), tasks)))


def is_of_the_table(rows):
    """bool[tasks], whether features and targets are rows of the table, their columns in another order."""
    table_lines = {tuple(sorted(line)) for line in X.round(5).tolist()}
    matches = [{tuple(sorted(line)) for line in np.round(x[:, :D], 5).tolist()} <= table_lines for x in rows.x]
    return np.array(matches)


@pytest.mark.long
@pytest.mark.parametrize("name", TABLES)
def test_plain_tasks_have_all_columns_and_zeros_for_those_that_the_table_lacks(name):
    rows = all_plain(name)
    assert is_of_the_table(rows).all()
    assert (rows.x[..., D:] == 0.0).all()


@pytest.mark.long
@pytest.mark.parametrize("name", TABLES)
def test_targets_of_plain_tasks_are_the_tables_own(name):
    rows = all_plain(name)
    target = {tuple(sorted(line)): y for line, y in zip(X.round(5).tolist(), np.asarray(TABLES[name].y), strict=True)}
    for x, y in zip(rows.x, rows.y, strict=True):
        own = np.array([target[tuple(sorted(line))] for line in np.round(x[:, :D], 5).tolist()])
        # Classes have other names in each task.
        assert len({*zip(own.tolist(), y.tolist(), strict=True)}) == len(np.unique(own))


@pytest.mark.long
@pytest.mark.parametrize("name", TABLES)
def test_a_share_of_tasks_is_plain_and_without_one_none_is(name):
    half = is_of_the_table(drawn(dataclasses.replace(TABLES[name], plain=0.5), D)).mean()
    none = is_of_the_table(drawn(TABLES[name], D)).mean()
    assert none < half  # some tasks with drawn columns keep all of them as they are
    assert half > 0.3


@pytest.mark.long
@pytest.mark.parametrize("name", TABLES)
def test_columns_that_a_table_lacks_are_never_flipped_into_an_intercept(name):
    rows = drawn(dataclasses.replace(TABLES[name], plain=0.01), WIDE, tasks=200)
    assert (rows.x[..., D:] == 0.0).all(1).any()
    assert not (rows.x == 1.0).all(1).any()


@pytest.mark.parametrize("name", TABLES)
def test_more_features_than_that_are_refused(name):
    with pytest.raises(InputError, match="table of 5 columns"):
        TABLES[name].draw(jax.random.key(0), 10, D + 1)
    with pytest.raises(InputError, match="table of 5 columns"):
        dataclasses.replace(TABLES[name], plain=0.5).draw(jax.random.key(0), 10, 2 * D + 1)


@pytest.mark.long
def test_stacked_tables_are_drawn_as_they_are_too():
    narrow = dataclasses.replace(TABLES["two classes"], plain=1.0)
    wide = TaskFamily.from_table(np.tile(X, 2), Y)
    tables = [narrow, dataclasses.replace(wide, plain=1.0)]
    keys = [jax.random.key(0), jax.random.key(1)]
    rows = jax.device_get(jax.jit(lambda: draw_stacked(tables, keys, 3, 50, WIDE))())
    assert (rows.x[:3, :, D:] == 0.0).all()
    assert is_of_the_table(jax.tree.map(lambda leaf: leaf[:3], rows)).all()
    assert (rows.x[3:] != 0.0).all()
