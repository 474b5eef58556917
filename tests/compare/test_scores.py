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


def problem(name, seed=0):
    rng = np.random.default_rng(seed)
    model = find_model(name)
    params = jnp.asarray(rng.normal(size=model.num_params(D)), jnp.float32)
    x = rng.uniform(size=(N, D)).astype(np.float32)
    y = rng.integers(0, len(model.labels), N).astype(np.float32)
    mask = (rng.uniform(size=N) < 0.8).astype(np.float32)  # null rows must not count
    return model, params, Rows(x, y, mask)


@pytest.mark.long(cases=["softmax:2", "mlp"])
@pytest.mark.slow(but=["square"])
@pytest.mark.parametrize("name", MODELS)
def test_scores_of_classes_are_those_of_scikit_learn(name):
    model, params, rows = problem(name)
    measures = metrics(params, model, rows, MODELS[name])
    counted = rows.mask > 0
    x, y = rows.x[counted], rows.y[counted]
    predicted = np.asarray(model.classify(params, x))
    scores = np.asarray(model.class_scores(params, x), np.float64)
    np.testing.assert_array_equal(scores.argmax(1), predicted)
    assert measures["accuracy"] == pytest.approx(sklearn.metrics.accuracy_score(y, predicted))
    assert measures["majority"] == np.bincount(y.astype(int)).max() / len(y)
    if len(model.labels) == 2:
        assert measures["auc"] == pytest.approx(sklearn.metrics.roc_auc_score(y, scores[:, 1]))
    else:
        likely = scores / scores.sum(1, keepdims=True)
        assert measures["auc"] == pytest.approx(sklearn.metrics.roc_auc_score(y, likely, multi_class="ovr"))
    if not model.gives_probabilities:
        assert measures["log_loss"] is measures["brier"] is None
        return
    likely = scores / scores.sum(1, keepdims=True)
    assert measures["log_loss"] == pytest.approx(sklearn.metrics.log_loss(y, likely), rel=1e-4)
    brier = sklearn.metrics.brier_score_loss(y, likely[:, 1] if likely.shape[1] == 2 else likely)
    assert measures["brier"] == pytest.approx(brier, rel=1e-4)


@pytest.mark.parametrize("name", ["square", "quadratic"])
def test_scores_of_numbers_are_in_their_own_units(name):
    model, params, rows = problem(name)
    rows = rows.replace(y=np.random.default_rng(1).uniform(size=N).astype(np.float32))
    measures = metrics(params, model, rows, "regression", (-100.0, 300.0))
    counted = rows.mask > 0
    truth = -100 + 400 * rows.y[counted]
    predicted = -100 + 400 * np.asarray(model.predict(params, rows.x[counted]))
    assert measures["rmse"] == pytest.approx(sklearn.metrics.root_mean_squared_error(truth, predicted), rel=1e-4)
    assert measures["r2"] == pytest.approx(sklearn.metrics.r2_score(truth, predicted), rel=1e-3)
    assert set(measures) == {"rmse", "r2", "test_loss"}


def test_what_a_test_of_one_class_or_one_number_does_not_tell_is_empty():
    model, params, rows = problem("logistic")
    measures = metrics(params, model, rows.replace(y=np.ones(N, np.float32)), "binary")
    assert (measures["auc"], measures["majority"]) == (None, 1.0)
    model, params, rows = problem("square")
    measures = metrics(params, model, rows.replace(y=np.full(N, 0.5, np.float32)), "regression")
    assert measures["r2"] is None
    assert measures["rmse"] > 0
    json.dumps(measures, allow_nan=False)


def test_classes_that_no_row_has_do_not_count_in_the_area_under_the_curve():
    _, _, rows = problem("softmax:4")
    scores = np.random.default_rng(0).dirichlet(np.ones(4), N)
    y = np.where(rows.y == 3, 0, rows.y)
    of_each = [sklearn.metrics.roc_auc_score(y == label, scores[:, label]) for label in range(3)]
    assert area_under_curve(scores, y) == pytest.approx(np.mean(of_each))
    assert np.isnan(area_under_curve(np.full((N, 4), np.nan), y))
