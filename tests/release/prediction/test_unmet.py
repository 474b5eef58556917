"""A cell that training never met does not move a prediction by the noise of a weight that no row trained."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import l2p
from l2p.models import find_model
from l2p.release.prediction.unmet import FeatureSums, counted_as, without_unmet
from l2p.tables.schema import Category, Missing, Number, Schema, Target

EYE = Category(("blue", "brown", "green"), missing=Missing(indicator=True))
WARD = Schema({"age": Number(0, 100), "eye": EYE}, Target("back", ("no", "yes")))
SUMS = FeatureSums(np.array([200.0, 300.0, 100.0, 1.0, -2.0]), 1.0)
COUNT = 3000


def table():
    """Rows of two colours, which say nothing; none is green and none is missing."""
    rng = np.random.default_rng(0)
    age = rng.integers(0, 100, COUNT)
    return {"age": age, "eye": rng.choice(["blue", "brown"], COUNT), "back": np.where(age > 50, "yes", "no")}


def moved(result, cell):
    """Largest change in the log-odds of 50 rows that a cell in place of the usual ones makes."""
    rows = {name: cells[:50] for name, cells in table().items()}
    odds = [
        np.log(shares[:, 1] / shares[:, 0])
        for shares in (result.predict_proba(rows | {"eye": eye}) for eye in (rows["eye"], np.full(50, cell, object)))
    ]
    return np.abs(odds[1] - odds[0]).max()


@pytest.fixture(scope="module")
def results():
    budget = l2p.Budget(1.0, 1e-6)
    names = ("noisygd_mean", "noisygd")
    return {name: l2p.private_train(table(), name, budget, key=jax.random.key(1), schema=WARD) for name in names}


def test_what_no_row_held_counts_as_what_rows_did_hold_where_a_mean_was_released(results):
    usual = max(moved(results["noisygd_mean"], eye) for eye in ("blue", "brown"))
    for cell in ("green", "hazel", None):
        assert moved(results["noisygd_mean"], cell) < usual + 1e-3
    assert not any("filled" in warning for warning in results["noisygd_mean"].card.warnings)


def test_an_undeclared_value_needs_no_mean_and_a_column_that_no_answer_proves_is_warned_of(results):
    assert moved(results["noisygd"], "hazel") < max(moved(results["noisygd"], eye) for eye in EYE.values)
    (warning,) = [warning for warning in results["noisygd"].card.warnings if "filled" in warning]
    assert "'eye:missing'" in warning


@pytest.mark.parametrize("name", ["logistic", "square", "softmax", "mlp"])
def test_every_model_predicts_for_such_a_cell_what_it_does_for_the_others(name):
    model = find_model(name, 3 if name == "softmax" else 2)
    params = jax.random.normal(jax.random.key(2), (model.num_params(5),))
    mended = without_unmet(params, model, WARD, SUMS)
    plain = jnp.array([[0.3, 1, 0, 0, 0], [0.3, 0, 1, 0, 0], [0.3, 0.75, 0.25, 0, 0]])
    odd = jnp.array([[0.3, 0, 0, 1, 0], [0.3, 0.75, 0.25, 0, 1]])
    expected = model.class_scores(params, plain)
    np.testing.assert_allclose(model.class_scores(mended, plain[:2]), expected[:2], rtol=1e-4, atol=1e-4)
    for scores in model.class_scores(mended, odd):
        np.testing.assert_allclose(scores, expected[2], rtol=1e-4, atol=1e-4)


def test_only_what_the_mean_would_have_shown_is_doubted():
    loud = FeatureSums(SUMS.values, 300.0)  # noise hides every colour, but nothing speaks for missing cells
    assert (counted_as(WARD, loud) == np.diag([1.0, 1, 1, 1, 0])).all()
    rare = Category(EYE.values, shares=(0.75, 0.2475, 0.0025))
    schema = Schema({"age": Number(0, 100), "eye": rare}, WARD.target)  # without the indicator
    sums = FeatureSums(SUMS.values, 1.0)
    assert (
        counted_as(schema, FeatureSums(SUMS.values[:4], 1.0)) == np.eye(4)
    ).all()  # of so rare a value few rows are expected
    assert (counted_as(WARD, sums)[3] == [0, 0.75, 0.25, 0, 0]).all()
