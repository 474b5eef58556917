"""Tasks drawn from a table: labels, budgets, keys, held-out rows, kinds of targets."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.base.errors import InputError
from l2p.models import Logistic, Softmax, Square
from meta_train.config.one_source import OneSource
from meta_train.tasks.family import TaskFamily
from meta_train.tasks.sources import families, kind_of
from meta_train.tasks.targets import from_table

MODEL = Logistic()


@pytest.fixture(scope="module")
def family() -> TaskFamily:
    generator = np.random.default_rng(0)
    x = np.concatenate([generator.random((300, 6)), generator.random((300, 6)) < 0.4], 1).astype(np.float32)
    return TaskFamily.from_table(x, (x[:, 0] > 0.5).astype(np.float32))


@pytest.fixture(scope="module")
def sample(family):
    arguments = {"num_tasks": 12, "num_rows": 64, "num_features": 5, "log_signal": (1.0, 7.0)}
    return jax.jit(lambda key, power=1.0: family.sample(key, MODEL, **arguments, signal_power=power))


def test_only_binary_columns_of_both_kinds_become_labels(family):
    assert family.label_columns.tolist() == [6, 7, 8, 9, 10, 11]


@pytest.mark.long
def test_features_stay_in_the_unit_interval_and_labels_are_binary(sample):
    batch = sample(jax.random.key(0))
    assert batch.rows.x.shape == (12, 64, 5)
    assert float(batch.rows.x.min()) >= 0.0
    assert float(batch.rows.x.max()) <= 1.0 + 1e-6
    assert set(np.unique(batch.rows.y)) == {0.0, 1.0}


@pytest.mark.long
def test_budgets_cover_the_range_lowest_first(sample):
    signals = np.asarray(sample(jax.random.key(1)).log_signal)
    assert ((signals >= 1.0 + 0.5 * np.arange(12)) & (signals <= 1.5 + 0.5 * np.arange(12))).all()


@pytest.mark.long
def test_a_power_of_the_range_moves_budgets_down_and_changes_nothing_else(sample):
    even, low = sample(jax.random.key(1)), sample(jax.random.key(1), 2.0)
    share = (np.asarray(even.log_signal) - 1.0) / 6.0
    np.testing.assert_allclose(low.log_signal, 1.0 + 6.0 * share**2, rtol=1e-5)
    assert jnp.array_equal(even.rows.x, low.rows.x)


@pytest.mark.slow
def test_same_key_same_tasks_and_another_key_other_tasks(sample):
    first, again, different = sample(jax.random.key(2)), sample(jax.random.key(2)), sample(jax.random.key(3))
    assert jnp.array_equal(first.rows.x, again.rows.x)
    assert not jnp.array_equal(first.rows.x, different.rows.x)


@pytest.mark.slow
def test_the_reference_solution_beats_every_constant_prediction(sample):
    batch = sample(jax.random.key(4))
    share = np.asarray(batch.rows.y.mean(1))
    entropy = -(share * np.log(share) + (1 - share) * np.log1p(-share))
    assert (np.asarray(batch.best_loss) < entropy + 1e-3).all()


@pytest.mark.long
def test_a_table_without_binary_columns_still_makes_tasks():
    x = np.random.default_rng(1).random((200, 4)).astype(np.float32)
    family = TaskFamily.from_table(x, (x[:, 0] > 0.5).astype(np.float32))
    batch = jax.jit(lambda key: family.sample(key, MODEL, 3, 32, 3, (1.0, 2.0)))(jax.random.key(0))
    assert np.isfinite(np.asarray(batch.best_loss)).all()


def test_held_out_rows_are_not_training_rows():
    train, held_out = families("breast_cancer")
    rows = {row.tobytes() for row in np.asarray(train.x)}
    assert train.x.shape[0] + held_out.x.shape[0] == 569
    assert not rows & {row.tobytes() for row in np.asarray(held_out.x)}


def test_a_model_learns_the_kind_of_targets_that_a_source_has():
    assert OneSource(source="digits", model="softmax:10").one_model() == Softmax(10)
    assert OneSource(source="california", model="square").one_model() == Square()
    with pytest.raises(InputError, match="multiclass"):
        OneSource(source="digits").one_model()
    with pytest.raises(InputError, match="softmax:10"):
        OneSource(source="digits", model="softmax:3").one_model()


@pytest.mark.long
def test_numbers_stay_in_the_unit_interval_and_can_be_learned():
    random = np.random.default_rng(4)
    x = random.random((500, 8)).astype(np.float32)
    family = from_table(x, x[:, 0] * 0.8, None)
    arguments = {"num_tasks": 16, "num_rows": 200, "num_features": 5, "log_signal": (1.0, 7.0)}
    batch = jax.jit(lambda key: family.sample(key, Square(), **arguments))(jax.random.key(0))
    assert 0.0 <= float(batch.rows.y.min()) <= float(batch.rows.y.max()) <= 1.0
    spread = 0.5 * np.asarray(batch.rows.y).var(1)
    assert np.median(np.asarray(batch.best_loss) / spread) < 0.8
    with pytest.raises(InputError, match="8 columns"):
        family.draw(jax.random.key(0), 8, 9)


@pytest.mark.long
def test_frozen_features_of_all_digits_but_some_are_told_apart_in_two():
    train, held_out = families("digits:rest:3,5:features:18")
    assert kind_of("digits:rest::features:18+synthetic") == "binary"
    assert train.classes == (0, 1, 2, 4, 6, 7, 8, 9)
    assert train.x.shape[1] == 18
    rows = jax.jit(held_out.draw, static_argnums=(1, 2))(jax.random.key(0), 64, 12)
    assert rows.x.shape == (64, 12)
    assert set(np.unique(rows.y)) == {0.0, 1.0}
