"""Scores of a test against scikit-learn's, and where there are none."""

import json

import jax.numpy as jnp
import numpy as np
import pytest
import sklearn.metrics

from l2p.compare.scores import area_under_curve, metrics
from l2p.models import find_model
from l2p.task.rows import Rows

N, D = 500, 3
MODELS = {
    "logistic": "binary",
    "svm": "binary",
    "hinge": "binary",
    "square": "binary",
    "mlp": "binary",
    "softmax:2": "binary",
    "softmax:4": "multiclass",
}


def problem(model, seed=0):
    rng = np.random.default_rng(seed)
    what = find_model(model)
    params = jnp.asarray(rng.normal(size=what.num_params(D)), jnp.float32)
    x = rng.uniform(size=(N, D)).astype(np.float32)
    y = rng.integers(0, len(what.labels), N).astype(np.float32)
    mask = (rng.uniform(size=N) < 0.8).astype(np.float32)  # null rows must not count
    return what, params, Rows(x, y, mask)


@pytest.mark.slow(but=["square"])
@pytest.mark.parametrize("model", MODELS)
def test_scores_of_classes_are_those_of_scikit_learn(model):
    what, params, rows = problem(model)
    found = metrics(params, what, rows, MODELS[model])
    counted = rows.mask > 0
    x, y = rows.x[counted], rows.y[counted]
    predicted = np.asarray(what.classify(params, x))
    scores = np.asarray(what.class_scores(params, x), np.float64)
    np.testing.assert_array_equal(scores.argmax(1), predicted)
    assert found["accuracy"] == pytest.approx(sklearn.metrics.accuracy_score(y, predicted))
    assert found["majority"] == np.bincount(y.astype(int)).max() / len(y)
    if len(what.labels) == 2:
        assert found["auc"] == pytest.approx(sklearn.metrics.roc_auc_score(y, scores[:, 1]))
    else:
        likely = scores / scores.sum(1, keepdims=True)
        assert found["auc"] == pytest.approx(sklearn.metrics.roc_auc_score(y, likely, multi_class="ovr"))
    if not what.gives_probabilities:
        assert found["log_loss"] is found["brier"] is None
        return
    likely = scores / scores.sum(1, keepdims=True)
    assert found["log_loss"] == pytest.approx(sklearn.metrics.log_loss(y, likely), rel=1e-4)
    brier = sklearn.metrics.brier_score_loss(y, likely[:, 1] if likely.shape[1] == 2 else likely)
    assert found["brier"] == pytest.approx(brier, rel=1e-4)


@pytest.mark.parametrize("model", ["square", "quadratic"])
def test_scores_of_numbers_are_in_their_own_units(model):
    what, params, rows = problem(model)
    rows = rows.replace(y=np.random.default_rng(1).uniform(size=N).astype(np.float32))
    found = metrics(params, what, rows, "regression", (-100.0, 300.0))
    counted = rows.mask > 0
    truth = -100 + 400 * rows.y[counted]
    predicted = -100 + 400 * np.asarray(what.predict(params, rows.x[counted]))
    assert found["rmse"] == pytest.approx(sklearn.metrics.root_mean_squared_error(truth, predicted), rel=1e-4)
    assert found["r2"] == pytest.approx(sklearn.metrics.r2_score(truth, predicted), rel=1e-3)
    assert set(found) == {"rmse", "r2", "test_loss"}


def test_what_a_test_of_one_class_or_one_number_does_not_tell_is_empty():
    what, params, rows = problem("logistic")
    found = metrics(params, what, rows.replace(y=np.ones(N, np.float32)), "binary")
    assert (found["auc"], found["majority"]) == (None, 1.0)
    what, params, rows = problem("square")
    found = metrics(params, what, rows.replace(y=np.full(N, 0.5, np.float32)), "regression")
    assert found["r2"] is None
    assert found["rmse"] > 0
    json.dumps(found, allow_nan=False)


def test_classes_that_no_row_has_do_not_count_in_the_area_under_the_curve():
    _, _, rows = problem("softmax:4")
    scores = np.random.default_rng(0).dirichlet(np.ones(4), N)
    y = np.where(rows.y == 3, 0, rows.y)
    of_each = [sklearn.metrics.roc_auc_score(y == one, scores[:, one]) for one in range(3)]
    assert area_under_curve(scores, y) == pytest.approx(np.mean(of_each))
    assert np.isnan(area_under_curve(np.full((N, 4), np.nan), y))
