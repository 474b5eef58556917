import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.errors import InputError
from l2p.models import Logistic, Quadratic
from meta_train import meta_test
from meta_train.builders import starting_point
from meta_train.config import MetaConfig
from meta_train.family import OPTIMUM_LENGTH, QUADRATICS, TARGET_NOISE, TaskFamily, families
from meta_train.tune import config_for

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


@pytest.fixture(scope="module")
def quadratics():
    arguments = {"num_tasks": 6, "num_rows": 400, "num_features": 4, "log_signal": (1.0, 7.0)}
    return [jax.jit(lambda key, one=one: one.sample(key, Quadratic(), **arguments)) for one in families(QUADRATICS)]


def test_random_quadratics_have_their_own_optimum_within_the_stated_ranges(quadratics):
    batch = quadratics[0](jax.random.key(0))
    assert float(batch.rows.x.min()) >= 0.0
    assert float(batch.rows.x.max()) <= 1.0
    optima = []
    for task in range(6):
        lines, y = 2.0 * np.asarray(batch.rows.x[task], np.float64) - 1.0, np.asarray(batch.rows.y[task], np.float64)
        assert len(np.unique(np.abs(lines).max(0).round(2))) > 1  # coordinates of different curvature
        optimum = np.linalg.lstsq(lines, y, rcond=None)[0]
        best = 0.5 * np.square(lines @ optimum - y).mean()
        np.testing.assert_allclose(batch.best_loss[task], best, rtol=1e-2)
        assert 0.9 * 0.5 * TARGET_NOISE[0] ** 2 < best < 1.2 * 0.5 * TARGET_NOISE[1] ** 2
        assert OPTIMUM_LENGTH[0] - 0.2 < np.linalg.norm(optimum) < OPTIMUM_LENGTH[1] + 0.2
        optima.append(optimum / np.linalg.norm(optimum))
    assert np.abs(np.triu(np.array(optima) @ np.array(optima).T, 1)).max() < 0.999


def test_held_out_quadratics_are_other_problems_at_the_same_budgets(quadratics):
    first, again, held_out = (sample(jax.random.key(2)) for sample in (quadratics[0], *quadratics))
    assert jnp.array_equal(first.rows.y, again.rows.y)
    assert jnp.array_equal(first.log_signal, held_out.log_signal)
    rows = {row.tobytes() for row in np.asarray(first.rows.x).reshape(-1, 4)}
    assert not any(row.tobytes() in rows for row in np.asarray(held_out.rows.x).reshape(-1, 4))


def test_quadratics_are_tuned_for_models_of_numbers_and_not_centred():
    config = config_for("noisygd", "quadratic", QUADRATICS, 8)
    assert (config.name, config.num_features) == ("noisygd-tuned-quadratic-random_quadratics", (5, 20))
    assert config.find_model() == Quadratic()
    with pytest.raises(InputError, match="regression"):
        MetaConfig("x", "control", source=QUADRATICS).find_model()
    with pytest.raises(InputError, match="binary"):
        MetaConfig("x", "control", model="quadratic").find_model()
    assert starting_point(MetaConfig("x", "control", source=QUADRATICS, model="quadratic")).centering is None
    assert starting_point(MetaConfig("x", "control")).centering is not None
    with pytest.raises(InputError, match="no table"):
        families(QUADRATICS)[0].draw(jax.random.key(0), 8, None)
    with pytest.raises(InputError, match="no accuracy"):
        meta_test.draw(QUADRATICS, Quadratic(), 5)
