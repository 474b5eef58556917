import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.errors import InputError
from l2p.models import Logistic
from meta_train.family import TaskFamily, families

MODEL = Logistic()


@pytest.fixture(scope="module")
def family() -> TaskFamily:
    generator = np.random.default_rng(0)
    x = np.concatenate([generator.random((300, 6)), generator.random((300, 6)) < 0.4], 1).astype(np.float32)
    return TaskFamily.from_table(x, (x[:, 0] > 0.5).astype(np.float32))


@pytest.fixture(scope="module")
def sample(family):
    arguments = {"num_tasks": 12, "num_rows": 64, "num_features": 5, "log_signal": (1.0, 7.0)}
    return jax.jit(lambda key: family.sample(key, MODEL, **arguments))


def test_only_binary_columns_of_both_kinds_become_labels(family):
    assert family.label_columns.tolist() == [6, 7, 8, 9, 10, 11]


def test_features_stay_in_the_unit_interval_and_labels_are_binary(sample):
    batch = sample(jax.random.key(0))
    assert batch.rows.x.shape == (12, 64, 5)
    assert float(batch.rows.x.min()) >= 0.0
    assert float(batch.rows.x.max()) <= 1.0 + 1e-6
    assert set(np.unique(batch.rows.y)) == {0.0, 1.0}


def test_budgets_cover_the_range_lowest_first(sample):
    signals = np.asarray(sample(jax.random.key(1)).log_signal)
    assert ((signals >= 1.0 + 0.5 * np.arange(12)) & (signals <= 1.5 + 0.5 * np.arange(12))).all()


def test_same_key_same_tasks_and_another_key_other_tasks(sample):
    first, again, other = sample(jax.random.key(2)), sample(jax.random.key(2)), sample(jax.random.key(3))
    assert jnp.array_equal(first.rows.x, again.rows.x)
    assert not jnp.array_equal(first.rows.x, other.rows.x)


def test_the_reference_solution_beats_every_constant_prediction(sample):
    batch = sample(jax.random.key(4))
    share = np.asarray(batch.rows.y.mean(1))
    entropy = -(share * np.log(share) + (1 - share) * np.log1p(-share))
    assert (np.asarray(batch.best_loss) < entropy + 1e-3).all()


def test_a_table_without_binary_columns_still_makes_tasks():
    x = np.random.default_rng(1).random((200, 4)).astype(np.float32)
    family = TaskFamily.from_table(x, (x[:, 0] > 0.5).astype(np.float32))
    batch = family.sample(jax.random.key(0), MODEL, 3, 32, 3, (1.0, 2.0))
    assert np.isfinite(np.asarray(batch.best_loss)).all()


def test_held_out_rows_are_not_training_rows():
    train, held_out = families("breast_cancer")
    rows = {row.tobytes() for row in np.asarray(train.x)}
    assert train.x.shape[0] + held_out.x.shape[0] == 569
    assert not rows & {row.tobytes() for row in np.asarray(held_out.x)}


def test_a_source_that_is_not_binary_is_refused():
    with pytest.raises(InputError, match="binary"):
        families("digits")
