"""Synthetic tasks: many kinds of features, styles of tables, numbers and classes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.linear_model import SGDClassifier

from l2p.base.errors import InputError
from l2p.models import Logistic, Softmax, Square
from meta_train.tasks.sources import class_counts, families, kind_of


@pytest.fixture(scope="module")
def synthetic():
    arguments = {"num_tasks": 24, "num_rows": 300, "num_features": 6, "log_signal": (1.0, 7.0)}
    return [
        jax.jit(lambda key, source=source: source.sample(key, Logistic(), **arguments))
        for source in families("synthetic")
    ]


@pytest.mark.long
def test_synthetic_features_are_of_many_kinds(synthetic):
    x = np.asarray(synthetic[0](jax.random.key(0)).rows.x)
    assert 0.0 <= x.min() <= x.max() <= 1.0
    binary = np.isin(x, (0.0, 1.0)).all(1)
    assert 0.2 < binary.mean() < 0.8
    assert binary.all(1).any() or binary.mean(1).max() > 0.8  # tasks that are (nearly) all indicators
    spread = x.std(1).max(1) / np.maximum(x.std(1).min(1), 1e-3)
    assert spread.max() > 3 > spread.min()
    varied = [task[:, task.std(0) > 0.05] for task in x]
    correlated = [np.abs(np.corrcoef(task.T) - np.eye(task.shape[1])).max() for task in varied]
    assert max(correlated) > 0.5
    assert min(correlated) < 0.25


@pytest.mark.long
def test_synthetic_tasks_can_be_learned_and_are_not_all_even(synthetic):
    batch = synthetic[0](jax.random.key(1))
    share = np.asarray(batch.rows.y.mean(1))
    entropy = -(share * np.log(share) + (1 - share) * np.log1p(-share))
    gained = entropy - np.asarray(batch.best_loss)
    assert np.median(gained) > 0.03
    assert np.minimum(share, 1 - share).min() < 0.25


@pytest.mark.long
def test_synthetic_numbers_lie_in_their_bounds_and_can_be_told_in_part():
    train, held_out = families("synthetic:numbers")
    arguments = {"num_tasks": 24, "num_rows": 300, "num_features": 6, "log_signal": (1.0, 7.0)}
    batch = jax.jit(lambda key: train.sample(key, Square(), **arguments))(jax.random.key(0))
    y = np.asarray(batch.rows.y)
    assert 0.0 <= y.min() <= y.max() <= 1.0
    explained = 1.0 - 2.0 * np.asarray(batch.best_loss) / y.var(1)
    assert explained.min() < 0.4 < 0.7 < explained.max() < 1.0
    assert y.std(1).max() > 2 * y.std(1).min()
    assert kind_of("synthetic:numbers") == "regression"
    with pytest.raises(InputError, match="not classes"):
        held_out.halves()


@pytest.mark.long
def test_synthetic_classes_are_all_there_and_can_be_told_in_part():
    train, _ = families("synthetic:classes:4")
    arguments = {"num_tasks": 16, "num_rows": 300, "num_features": 6, "log_signal": (1.0, 7.0)}
    batch = jax.jit(lambda key: train.sample(key, Softmax(4), **arguments))(jax.random.key(0))
    shares = np.stack([np.bincount(y.astype(int), minlength=4) / 300 for y in np.asarray(batch.rows.y)])
    assert shares.shape == (16, 4)
    assert (shares > 0).mean() > 0.9
    entropy = -(shares * np.log(np.maximum(shares, 1e-9))).sum(1)
    gained = entropy - np.asarray(batch.best_loss)
    assert gained.min() < 0.12 < 0.4 < gained.max()
    assert (kind_of("synthetic:classes:4"), class_counts("synthetic:classes:4")) == ("multiclass", {4})
    assert class_counts("digits:features+synthetic:classes:4") == {10, 4}
    for source in ("synthetic:classes:", "synthetic:classes:2", "synthetic:classes:many"):
        with pytest.raises(InputError, match="how many classes"):
            kind_of(source)


@pytest.mark.long
def test_rough_tasks_have_longer_tails_stronger_correlations_and_rarer_classes():
    def extremes(source):
        family = families(source)[0]
        rows = jax.jit(jax.vmap(lambda key: family.draw(key, 300, 4)))(jax.random.split(jax.random.key(1), 48))
        x, y = np.asarray(rows.x), np.asarray(rows.y)
        assert (x >= 0.0).all()
        assert (x <= 1.0).all()
        centred = (x - x.mean(1, keepdims=True)) / np.maximum(x.std(1, keepdims=True), 1e-6)
        values = np.linalg.svd(centred, compute_uv=False) ** 2
        tails = (x.max(1) / np.maximum(np.median(x, 1), 1e-6)).max(1)
        rare = np.array([np.bincount(labels.astype(int), minlength=3).min() for labels in y])
        return np.quantile(tails, 0.25), np.quantile(values[:, 0] / values.sum(1), 0.9), np.mean(rare < 5)

    smooth, rough = extremes("synthetic:classes:3"), extremes("synthetic:rough:classes:3")
    assert all(more > less for more, less in zip(rough, smooth, strict=True))
    assert (kind_of("synthetic:rough"), kind_of("synthetic:rough:numbers")) == ("binary", "regression")
    assert class_counts("synthetic:rough:classes:7") == {7}
    with pytest.raises(InputError):
        kind_of("rough")


@functools.cache
def of_style(source: str, num_rows: int, num_features: int):
    """Twelve tasks, as NumPy arrays."""
    family = families(source)[0]
    draw = jax.jit(lambda key: family.draw_several(key, 12, num_rows, num_features))
    return jax.tree.map(np.asarray, draw(jax.random.key(1)))


@pytest.mark.long
def test_one_hot_tasks_have_categories_of_which_every_row_has_one_value():
    x = of_style("synthetic:one_hot:classes:5", 300, 12).x
    is_indicator = np.isin(x, (0.0, 1.0)).all(1)
    assert is_indicator.mean() > 0.7
    # Columns of categories sum to one, so that one-hot tables have as many linear dependencies as categories.
    tables = [table[:, indicators] for table, indicators in zip(x, is_indicator, strict=True)]
    ranks = [np.linalg.matrix_rank(np.column_stack([table, np.ones(300)])) for table in tables]
    assert np.mean([rank < table.shape[1] + 1 for rank, table in zip(ranks, tables, strict=True)]) > 0.9
    assert (np.concatenate([table.mean(0) for table in tables]) < 0.05).mean() > 0.1
    assert class_counts("synthetic:one_hot:classes:5") == {5}


@pytest.mark.long
def test_a_linear_model_separates_the_classes_of_separable_tasks():
    def accuracies(source):
        rows = of_style(source, 300, 6)
        model = SGDClassifier(max_iter=300, tol=None, random_state=0)
        return [model.fit(x, y).score(x, y) for x, y in zip(rows.x, rows.y, strict=True) if 0.0 < y.mean() < 1.0]

    assert np.median(accuracies("synthetic:separable")) > 0.99 > 0.95 > np.median(accuracies("synthetic:rough"))


@pytest.mark.long
def test_heavy_tails_leave_most_numbers_in_a_small_part_of_their_range():
    def middle(source):
        y = of_style(source, 300, 6).y
        return np.median(np.subtract(*np.quantile(y, [0.75, 0.25], axis=1)) / np.ptp(y, axis=1))

    assert middle("synthetic:heavy:numbers") < 0.6 * middle("synthetic:numbers")
    assert kind_of("synthetic:heavy:numbers") == "regression"


@pytest.mark.long
def test_halves_make_the_same_tasks_of_other_rows():
    family = families("synthetic")[1]
    first, second = family.halves()
    x, second_half = (task.draw(jax.random.key(3), 2000, 5) for task in (first, second))
    np.testing.assert_allclose(x.x.mean(0), second_half.x.mean(0), atol=0.08)
    assert not jnp.array_equal(x.x, second_half.x)
    # What is learned on one half holds on the other.
    weights = np.linalg.lstsq(np.asarray(x.x) - 0.5, np.asarray(x.y) - 0.5, rcond=None)[0]
    fits = [np.corrcoef((np.asarray(half.x) - 0.5) @ weights, half.y)[0, 1] for half in (x, second_half)]
    assert fits[1] > fits[0] - 0.1
