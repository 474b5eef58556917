"""scikit-learn estimators: its own checks, and what they add to a private run."""

import copy
import pickle
import subprocess
import sys
import warnings

import jax
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.ensemble import BaggingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import check_estimator

import l2p
from l2p import Budget
from l2p.base.errors import InputError
from l2p.estimators import (
    DefaultBoundsWarning,
    PrivacyLeakWarning,
    PrivateClassifier,
    PrivateRegressor,
    RepeatedFitWarning,
    SimulationWarning,
)
from l2p.privacy.ledger.ledger import Ledger
from l2p.privacy.ledger.reservation import limit_of
from l2p.release import private_run
from l2p.tables.reading import Format
from l2p.tables.schema import Category, Ignore, Missing, Number, Schema, Target
from l2p.tables.schema.declaring import schema_of_pair
from l2p.tables.schema.pair import as_columns

pytestmark = pytest.mark.filterwarnings("ignore:simulation_seed is set")

N = 600
SECRET = 61.0625  # a cell of X; no message may quote it
BOUNDS = {"bounds": (0, 120)}


def problem(labels=("no", "yes"), number=False):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 120, (N, 2))
    X[0, 0] = SECRET
    score = X[:, 0] / 120 + rng.normal(0, 0.05, N)
    if number:
        return X, 100 + 200 * np.clip(score, 0, 1)
    edges = np.quantile(score, np.linspace(0, 1, len(labels) + 1)[1:-1])
    return X, np.array(labels)[np.digitize(score, edges)]


def classifier(epsilon=20.0, **changes):
    options = {"protector": "noisygd", "classes": ["no", "yes"], "simulation_seed": 0} | BOUNDS | changes
    return PrivateClassifier(epsilon, **options)


@pytest.fixture(scope="module")
def fitted():
    return classifier().fit(*problem())


# With an empty cache each takes 26 CPU seconds, nearly all of it to compile one run for each of 15 shapes of tables.
@pytest.mark.long
@pytest.mark.parametrize("make", [PrivateClassifier, PrivateRegressor])
def test_the_checks_of_scikit_learn_pass_without_exceptions(make):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        checks = check_estimator(make(protector="noisygd", simulation_seed=0), on_skip=None)
    assert len(checks) > 45
    assert {check["status"] for check in checks if check["check_name"] != "check_array_api_input"} == {"passed"}


QUICK = (
    "check_no_attributes_set_in_init", "check_parameters_default_constructible", "check_estimators_unfitted",
    "check_estimators_empty_data_messages", "check_classifiers_one_label", "check_classifiers_regression_target",
    "check_complex_data", "check_estimator_sparse_array", "check_fit1d", "check_mixin_order",
    "check_get_params_invariance", "check_set_params", "check_estimator_repr", "check_supervised_y_no_nan",
    "check_requires_y_none",
)  # fmt: skip


@pytest.mark.parametrize("name", QUICK)
def test_the_checks_that_hardly_compile_pass(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        getattr(estimator_checks, name)("PrivateClassifier", PrivateClassifier(protector="noisygd"))


def test_importing_the_package_does_not_import_the_estimators():
    code = "import sys, l2p; l2p.__dir__(); print('sklearn' in sys.modules, 'jax' in sys.modules)"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert process.stdout.split() == ["False", "False"]


@pytest.mark.slow
def test_words_come_back_with_probabilities_in_sorted_order(fitted):
    X, y = problem()
    assert fitted.score(X, y) > 0.9
    assert set(fitted.predict(X)) == {"no", "yes"}
    turned = classifier(classes=["yes", "no"]).fit(X, y)
    for estimator in (fitted, turned):
        assert estimator.classes_.tolist() == ["no", "yes"]
        likely = estimator.predict_proba(X)
        np.testing.assert_array_equal(estimator.classes_[likely.argmax(1)], estimator.predict(X))
        assert likely[:, 1][y == "yes"].mean() > 0.5
    assert (fitted.n_features_in_, fitted.card_.num_rows, fitted.card_.delta) == (2, N, 1e-5)


def test_a_copy_and_a_pickle_predict_the_same_and_a_clone_is_unfitted(fitted):
    X, _ = problem()
    for copied in (copy.deepcopy(fitted), pickle.loads(pickle.dumps(fitted))):  # noqa: S301
        np.testing.assert_array_equal(copied.predict_proba(X), fitted.predict_proba(X))
    with pytest.raises(NotFittedError):
        clone(fitted).predict(X)


def test_what_is_not_declared_is_warned_of_and_stands_on_the_card():
    X, y = problem()
    with pytest.warns(PrivacyLeakWarning, match="read off the labels"):
        estimator = classifier(classes=None).fit(X, y)
    assert any("read off them: they are not private" in line for line in estimator.card_.not_private)
    with pytest.warns(DefaultBoundsWarning, match=r"\[-5, 5\]"):
        estimator = classifier(bounds=None).fit(X / 20 - 3, y)
    assert any("No bounds of features were declared" in line for line in estimator.card_.not_private)
    declared = classifier().fit(X, y).card_
    assert not any("read off" in line or "No bounds" in line for line in declared.not_private)


@pytest.mark.slow
def test_three_classes_train_a_softmax_and_numbers_a_regression():
    X, y = problem(("a", "b", "c"))
    estimator = classifier(classes=["a", "b", "c"]).fit(X, y)
    assert (estimator.card_.model, estimator.predict_proba(X).shape) == ("softmax:3", (N, 3))
    assert estimator.score(X, y) > 0.6
    X, y = problem(number=True)
    number = PrivateRegressor(20.0, protector="noisygd", target_bounds=(100, 300), simulation_seed=0, **BOUNDS).fit(
        X, y
    )
    assert number.score(X, y) > 0.7
    assert 100 < number.predict(X).mean() < 300


@pytest.mark.slow
def test_a_seed_is_a_simulation_and_none_a_release(fitted):
    X, y = problem()
    assert "NOT A PRIVATE RELEASE" in fitted.card_.to_text()
    with pytest.warns(SimulationWarning, match="protects nobody"):
        again = classifier().fit(X, y)
    np.testing.assert_array_equal(again.result_.params, fitted.result_.params)
    assert classifier(simulation_seed=None).fit(X, y).card_.private_release


def test_no_meta_estimator_seeds_its_clones():
    X, words = problem()
    y = (words == "yes").astype(int)  # which is what bagging makes of any labels
    release = classifier(simulation_seed=None, classes=[0, 1])
    with warnings.catch_warnings():
        warnings.simplefilter("error", SimulationWarning)
        warnings.simplefilter("ignore", RepeatedFitWarning)
        bagged = BaggingClassifier(release, n_estimators=2, bootstrap=False, random_state=0).fit(X, y)
        searched = GridSearchCV(release, {"epsilon": [9.0, 20.0]}, cv=2).fit(X, y)
    for estimator in (*bagged.estimators_, searched.best_estimator_):
        assert estimator.card_.private_release
    first, second = (estimator.result_.params for estimator in bagged.estimators_)
    assert (first != second).any()


@pytest.mark.parametrize("seed", [-1, 0.5, True, "0", 2**31, np.random.RandomState(0)])
def test_a_seed_that_is_none_is_refused(seed):
    with pytest.raises(InputError, match="whole number from 0"):
        classifier(simulation_seed=seed).fit(*problem())


@pytest.mark.slow
def test_every_fit_of_a_release_after_the_first_warns_and_a_ledger_stops_them(tmp_path):
    X, y = problem()
    first = classifier(simulation_seed=None)
    first.fit(X, y)
    with pytest.warns(RepeatedFitWarning, match=r"every fit spends its own budget.*name a ledger"):
        first.fit(X, y)
    budget = Budget(2.0, 1e-5)
    ledger = Ledger.create(tmp_path / "ward.ledger", "ward", budget, "basic", limit_of("basic", budget))
    # Of three fits at epsilon 0.8 two fit in.
    validated = classifier(0.8, delta=1e-6, simulation_seed=None, ledger=ledger.path)
    with pytest.warns(RepeatedFitWarning, match="the ledger adds them up"), pytest.raises(InputError, match="left"):
        cross_val_score(validated, X, y, cv=3, error_score="raise")
    assert [entry.state for entry in ledger.entries()] == ["settled", "settled"]


def test_a_pipeline_of_public_steps_works():
    X, y = problem()
    pipeline = make_pipeline(FunctionTransformer(np.sqrt), classifier(bounds=(0, 11))).fit(X, y)
    assert pipeline.score(X, y) > 0.8
    assert pipeline.predict_proba(X).shape == (N, 2)


WARD = Schema(
    {"age": Number(0, 120, Missing(60)), "sex": Category(("f", "m")), "id": Ignore()},
    Target("back", classes=("no", "yes"), aliases={"yes.": "yes"}),
)


def frame(pandas):
    X, y = problem()
    return pandas.DataFrame({"age": X[:, 0], "sex": np.where(X[:, 1] > 60, "f", "m"), "id": np.arange(N)}), y


@pytest.mark.slow
def test_a_frame_with_a_schema_trains_as_the_whole_table_does():
    data, y = frame(pytest.importorskip("pandas"))
    y = np.where(np.arange(N) == 3, "yes.", y)
    estimator = PrivateClassifier(20.0, protector="noisygd", schema=WARD, simulation_seed=0).fit(data, y)
    assert estimator.feature_names_in_.tolist() == ["age", "sex", "id"]
    likely = estimator.predict_proba(data)
    np.testing.assert_array_equal(estimator.predict_proba(data[["sex", "age"]]), likely)
    np.testing.assert_array_equal(estimator.predict_proba(data.to_numpy(object)), likely)
    numbers = classifier().fit(data[["age"]], problem()[1])
    assert numbers.feature_names_in_.tolist() == ["age"]
    with pytest.warns(UserWarning, match="does not have valid feature names"):
        numbers.predict(data[["age"]].to_numpy())
    with pytest.raises(InputError, match=r"cells that are missing|infinite or no numbers"):
        PrivateClassifier(schema=WARD).fit(data.assign(sex=None), y)
    gone = data.assign(sex=None)
    with pytest.raises(InputError, match="knows no empty prediction"):
        estimator.predict(gone)


# ----------------------------------------------------------------------------------------------------- private_train
def test_a_pair_with_bounds_trains_as_rows_that_are_scaled_by_hand_do():
    X, y = problem()
    rows = l2p.Rows((X / 120).astype(np.float32), (y == "yes").astype(np.float32), np.ones(N, np.float32))
    key = jax.random.key(0)
    by_hand = l2p.private_train(rows, "noisygd", Budget(20.0, 1e-5), key=key)
    for bounds in ((0, 120), (np.zeros(2), np.full(2, 120)), {"x0": (0, 120), "x1": (0, 120)}):
        result = l2p.private_train(
            (X, y),
            "noisygd",
            Budget(20.0, 1e-5),
            key=key,
            bounds=bounds,
            classes=("no", "yes"),
            public=(X[:9] * 0.99, y[:9]),
        )
        np.testing.assert_array_equal(result.params, by_hand.params)
        assert any("9 public rows" in line for line in result.card.not_private)
    assert set(result.predict(X)) == {"no", "yes"}


def test_a_whole_table_may_come_as_features_and_the_target_beside_it_is_what_counts():
    # As README does: `.fit(patients, patients["readmitted"])`. A schema says which columns are features.
    features = {"age": [1], "sex": ["f"]}
    complete = as_columns((features | {"back": ["maybe"]}, ["no"]), WARD, Format())
    assert complete == as_columns((features, ["no"]), WARD, Format()) == features | {"back": ["no"]}


def test_a_target_never_takes_the_name_of_a_feature():
    schema = schema_of_pair(({"y": [1.0], "y_": [2.0]}, ["b"]), (0, 9), ("a", "b"))
    assert schema.names == ("y", "y_", "y__")
    assert schema.target.column == "y__"


X, Y = problem()
BAD = {
    "no bounds": (((X, Y), {"classes": ("no", "yes")}), "pass bounds="),
    "bounds of another width": (((X, Y), {"bounds": (np.zeros(3), np.ones(3))}), "one pair"),
    "bounds backwards": (((X, Y), {"bounds": (120, 0), "classes": ("no", "yes")}), "leave no room between"),
    "bounds of some": (((X, Y), {"bounds": {"x0": (0, 1)}}), "leave 1 of 2 features undeclared"),
    "bounds in words": (((X, Y), {"bounds": "0-120"}), "one pair"),
    "no classes": (((X, Y), {"bounds": (0, 120)}), "neither classes nor bounds"),
    "classes in one word": (((X, Y), {"bounds": (0, 120), "classes": "yes"}), "must be a list"),
    "one class": (((X, Y), {"bounds": (0, 120), "classes": ["yes"]}), "at least 2"),
    "other classes": (((X, Y), {"bounds": (0, 120), "classes": ["n", "y"]}), "labels other than"),
    "a schema and bounds": (((X, Y), {"schema": WARD, "bounds": (0, 120)}), "might contradict"),
    "fewer labels": (((X, Y[:-1]), {"bounds": (0, 120), "classes": ("no", "yes")}), "differ in how many rows"),
    "a table alone": (({"x": X[:, 0], "y": Y}, {"bounds": (0, 120)}), "pass features and target apart"),
    "a wider array": (((np.ones((N, 5)), Y), {"schema": WARD}), "it has another shape"),
    "too small a table": (((X[:9], Y[:9]), {"bounds": (0, 120), "classes": ("no", "yes"), "delta": 0.2}), "below 1/N"),
    "classes of rows": ((l2p.Rows(X, X[:, 0], X[:, 0]), {"classes": (0, 1)}), "the rows came encoded"),
    "a misfit": (((X, Y), {"bounds": (0, 120), "classes": ("no", "yes"), "model": "quadratic"}), "choose logistic"),
    "missing cells": (((X * np.nan, Y), {"bounds": (0, 120), "classes": ("no", "yes")}), "are missing"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_what_is_declared_wrong_is_a_sentence_before_anything_is_asked(monkeypatch, name):
    (data, options), phrase = BAD[name]
    monkeypatch.setattr(private_run, "_start", lambda *_: pytest.fail("a query was asked"))
    options = dict(options)
    budget = Budget(1.0, options.pop("delta", 1e-5))
    with pytest.raises(InputError, match=phrase) as caught:
        l2p.private_train(data, "noisygd", budget, **options)
    assert "61.06" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "phrase"),
    [
        ({"epsilon": -1.0}, "epsilon is -1"),
        ({"delta": 0.5}, "not below 1/N"),
        ({"protector": "nosuch"}, "nosuch"),
        ({"schema": WARD}, "might contradict"),
        ({"schema": "nowhere.json", "bounds": None, "classes": None}, "nowhere.json"),
        ({"ledger": "nowhere.ledger"}, "simulation"),
        ({"ledger": "nowhere.ledger", "simulation_seed": None}, "nowhere.ledger"),
        ({"classes": ["no", "maybe"]}, "labels other than"),
        ({"costs": {"yes": 12}}, "not for 'no'"),
        ({"costs": {"yes": 12, "no": 1}, "model": "svm"}, "without probabilities"),
        ({"statements": {"contact": ""}}, "the contact on a card is empty"),
    ],
)
def test_an_estimator_refuses_in_a_sentence_before_anything_is_asked(monkeypatch, changes, phrase):
    monkeypatch.setattr(private_run, "_start", lambda *_: pytest.fail("a query was asked"))
    with pytest.raises(InputError, match=phrase) as caught:
        classifier(**changes).fit(X, Y)
    assert "61.06" not in str(caught.value)


def test_costs_and_a_rate_move_the_threshold_of_a_model_that_is_trained(fitted):
    likely = fitted.predict_proba(X)[:, 1]
    careful = copy.deepcopy(fitted).set_params(costs={"no": 1, "yes": 12})
    np.testing.assert_array_equal(careful.predict(X) == "yes", likely > 1 / 13)
    assert (fitted.predict_at_rate(X, {"yes": 0.1}) == "yes").sum() == N // 10
    with pytest.raises(InputError, match="write a number from 0 to 1"):
        fitted.predict_at_rate(X, {"yes": -0.1})


def test_a_cell_that_is_no_number_is_not_quoted(fitted):
    words = X.astype(object)
    words[3, 1] = "Smith"
    for do in (lambda: classifier().fit(words, Y), lambda: fitted.predict(words)):
        with pytest.raises(InputError, match="only a schema says how to read") as caught:
            do()
        assert "Smith" not in str(caught.value)


@pytest.mark.slow
def test_models_without_probabilities_refuse_them():
    estimator = classifier(model="svm").fit(X, Y)
    assert estimator.score(X, Y) > 0.9
    with pytest.raises(InputError, match="without probabilities"):
        estimator.predict_proba(X)
    with pytest.raises(InputError, match="use PrivateRegressor"):
        classifier(schema=Schema({"a": Number(0, 1)}, Target("b", bounds=(0, 1)))).fit(X, Y)
