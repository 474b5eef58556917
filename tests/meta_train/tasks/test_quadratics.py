"""Random quadratics: problems with an optimum of their own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.base.errors import InputError
from l2p.models import Quadratic
from meta_train.config import Plain
from meta_train.config.one_source import OneSource
from meta_train.evaluation import meta_test
from meta_train.recipes.tuned import config_for
from meta_train.tasks.quadratics import OPTIMUM_LENGTH, QUADRATICS, TARGET_NOISE
from meta_train.tasks.sources import families
from meta_train.training.starting_points import starting_point


@pytest.fixture(scope="module")
def quadratics():
    arguments = {"num_tasks": 6, "num_rows": 400, "num_features": 4, "log_signal": (1.0, 7.0)}
    return [
        jax.jit(lambda key, source=source: source.sample(key, Quadratic(), **arguments))
        for source in families(QUADRATICS)
    ]


@pytest.mark.slow
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


@pytest.mark.slow
def test_held_out_quadratics_are_other_problems_at_the_same_budgets(quadratics):
    first, again, held_out = (sample(jax.random.key(2)) for sample in (quadratics[0], *quadratics))
    assert jnp.array_equal(first.rows.y, again.rows.y)
    assert jnp.array_equal(first.log_signal, held_out.log_signal)
    rows = {row.tobytes() for row in np.asarray(first.rows.x).reshape(-1, 4)}
    assert not any(row.tobytes() in rows for row in np.asarray(held_out.rows.x).reshape(-1, 4))


def test_quadratics_are_tuned_for_models_of_numbers_and_not_centred():
    config = config_for("noisygd", "quadratic", QUADRATICS)
    assert (config.name, config.tasks.num_features) == ("noisygd-tuned-quadratic-random_quadratics", (5, 20))
    assert config.tasks.one_model() == Quadratic()
    with pytest.raises(InputError, match="regression"):
        OneSource(source=QUADRATICS).one_model()
    with pytest.raises(InputError, match="binary"):
        OneSource(model="quadratic").one_model()
    assert not starting_point(Plain.of("x", "control", source=QUADRATICS, model="quadratic")).purchases
    assert starting_point(Plain.of("x", "control")).purchases
    with pytest.raises(InputError, match="no table"):
        families(QUADRATICS)[0].draw(jax.random.key(0), 8, None)
    with pytest.raises(InputError, match="no accuracy"):
        meta_test.draw(QUADRATICS, Quadratic(), 5)
