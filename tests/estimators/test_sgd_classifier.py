"""scikit-learn's SGDClassifier as it is declared: its steps replayed, its neighbours tried, and what is refused."""

import functools

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, SGDClassifier

from l2p import Budget, InputError, bolt_on
from l2p.estimators import sgd_run

M, D = 12, 3
SETTINGS = {"loss": "log_loss", "fit_intercept": False, "tol": None, "max_iter": 2, "random_state": 0}
#: Fits whose steps are declared; the constant column is the last feature.
FITS = {
    "constant": {"learning_rate": "constant", "eta0": 7.0, "penalty": None, "max_iter": 1},
    "constant, ridge": {"learning_rate": "constant", "eta0": 1.5, "alpha": 0.1},
    "constant, averaged": {"learning_rate": "constant", "eta0": 1.5, "penalty": None, "average": True},
    "constant, the end averaged": {"learning_rate": "constant", "eta0": 1.5, "alpha": 0.01, "average": 15},
    "constant, averages that begin after the end": {"learning_rate": "constant", "eta0": 0.1, "average": 25},
    "constant, in the table's order": {"learning_rate": "constant", "eta0": 1.0, "penalty": None, "shuffle": False},
    "invscaling": {"learning_rate": "invscaling", "eta0": 5.0, "alpha": 0.01},
    "invscaling, another power": {"learning_rate": "invscaling", "eta0": 7.0, "power_t": 0.2, "penalty": None},
    "optimal": {"learning_rate": "optimal", "alpha": 0.001},
    "optimal, averaged": {"learning_rate": "optimal", "alpha": 0.01, "average": True, "max_iter": 3},
}


def fit(settings, x, y):
    return SGDClassifier(**SETTINGS | settings).fit(x, y)


def tables():
    """A table whose weights grow long, so that rows of the other label have nearly the steepest slope; and a mixed one.

    Rows are no longer than 1, with their constant column.
    """
    random = np.random.default_rng(0)
    steep, labels = np.tile([0.0, 0.0, 1.0], (M, 1)), np.ones(M)
    steep[0], labels[0] = 0.0, 0.0  # a null row, for there to be two classes
    mixed = random.normal(size=(M, D))
    mixed[:, -1] = 0.5
    mixed[:, :-1] *= np.sqrt(0.75) / np.linalg.norm(mixed[:, :-1], axis=1, keepdims=True)
    return (steep, labels), (mixed, random.integers(2, size=M).astype(float))


#: What may stand in one place: a null row, which has no gradient, and rows that pull hard.
NULL = (0.0, 0.0, 0.0), 0.0
STANDING = [NULL, ((0.0, 0.0, 1.0), 0.0), ((0.8, 0.0, 0.6), 0.0), ((0.8, 0.0, -0.6), 1.0), ((0.0, 1.0, 0.0), 1.0)]


@functools.cache
def moved(name):
    """The largest share of the stated bound by which one row moves the weights: nulled, and replaced."""
    shares = {"nulled": 0.0, "replaced": 0.0}
    for x, y in tables():
        run = sgd_run(fit(FITS[name], x, y), M)
        bound = run.slope * run.passes.sensitivity()
        for place in range(1, M):
            weights = []
            for row, label in STANDING:
                x[place], y[place] = row, label
                weights.append(fit(FITS[name], x, y).coef_)
            apart = np.linalg.norm(np.array(weights) - np.array(weights)[:, 0], axis=-1) / bound
            shares["nulled"] = max(shares["nulled"], apart[0].max())
            shares["replaced"] = max(shares["replaced"], apart[1:].max() / 2)
    return shares


@pytest.mark.parametrize("name", FITS)
def test_no_neighbour_moves_the_weights_further_than_is_stated(name):
    assert all(0 < share <= 1 for share in moved(name).values()), moved(name)


def test_some_neighbour_moves_them_nearly_as_far():
    assert moved("constant")["nulled"] > 0.97
    assert moved("constant")["replaced"] > 0.7


@pytest.mark.parametrize("name", FITS)
def test_the_declared_steps_lead_to_the_weights_of_the_fit(name):
    """By our own loop over the rows in the table's order, which is all that is declared otherwise."""
    x, y = tables()[1]
    fitted = fit(FITS[name] | {"shuffle": False}, x, y)
    plan = sgd_run(fitted, M).passes
    w, mean = np.zeros(D), np.zeros(D)
    for step, (size, weight) in enumerate(zip(plan.step_sizes, plan.weights, strict=True)):
        row, label = x[step % M], y[step % M]
        w = w - size * ((1 / (1 + np.exp(-row @ w)) - label) * row + plan.ridge * w)
        mean += weight * w
    np.testing.assert_allclose(fitted.coef_[0], mean, rtol=1e-10)


def test_three_classes_are_three_problems_and_noise_is_for_all_of_them():
    x, _ = tables()[1]
    fitted = fit(FITS["optimal"], x, np.arange(M) % 3)
    run = sgd_run(fitted, M)
    noised = bolt_on(fitted.coef_, run, Budget(1.0, 0.0))
    assert noised.weights.shape == fitted.coef_.shape
    (kind,) = noised.card.mechanisms
    assert kind["clip_norm"][0] == pytest.approx(3 * run.passes.sensitivity(), rel=1e-4)
    fitted.coef_ = noised.weights
    assert fitted.predict(x).shape == (M,)


REFUSED = {
    "loss": ({"loss": "hinge"}, "has a slope or a curvature without a bound"),
    "a loss that curves more": ({"loss": "modified_huber"}, "fit with loss='log_loss'"),
    "intercept": ({"fit_intercept": True}, "give rows a constant column"),
    "tolerance": ({"tol": 1.0, "max_iter": 20}, "losses of private rows"),
    "early stopping": ({"early_stopping": True}, "score on private rows"),
    "class weights": ({"class_weight": "balanced"}, "count for more"),
    "an earlier fit": ({"warm_start": True}, "weights of an earlier fit"),
    "l1": ({"penalty": "l1"}, "penalty 'l1'"),
    "adaptive": ({"learning_rate": "adaptive", "eta0": 0.1}, "sets steps by what rows hold"),
    "the default's first step": (
        {"learning_rate": "optimal", "alpha": 1e-4, "penalty": "l2"},
        "step size of 10 exceeds 2 / beta",
    ),
    "steps of no length": ({"learning_rate": "invscaling", "power_t": 300.0}, "choose a smaller power"),
    "long steps": ({"learning_rate": "constant", "eta0": 8.1}, "exceeds 2 / beta"),
    "decay beyond zero": (
        {"learning_rate": "constant", "eta0": 1.2, "alpha": 0.9, "penalty": "l2"},
        "sets weights to zero",
    ),
    "averages of much decay": (
        {"learning_rate": "constant", "eta0": 1.0, "alpha": 0.2, "average": True, "penalty": "l2"},
        "rounding grows",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_proof_covers_is_refused_with_the_reason(case):
    settings, words = REFUSED[case]
    x, y = tables()[1]
    # Rows enough for the part that early stopping holds back.
    fitted = fit(FITS["constant"] | settings, *map(np.concatenate, ([x] * 3, [y] * 3)))
    with pytest.raises(InputError, match=words):
        sgd_run(fitted, 3 * M)


def test_what_is_not_such_a_fit_is_refused():
    x, y = tables()[1]
    with pytest.raises(InputError, match="is not scikit-learn's SGDClassifier"):
        sgd_run(LogisticRegression().fit(x, y), M)
    with pytest.raises(InputError, match="not fitted"):
        sgd_run(SGDClassifier(**SETTINGS | FITS["constant"]), M)
    with pytest.raises(InputError, match="single precision"):
        sgd_run(fit(FITS["constant"], x.astype(np.float32), y), M)
    with pytest.raises(InputError, match="counted 12 steps, but 1 passes over 13 rows"):
        sgd_run(fit(FITS["constant"], x, y), M + 1)
    with pytest.raises(InputError, match="counted 24 steps"):
        sgd_run(fit(FITS["constant"], x, y).partial_fit(x, y), M)


def test_settings_that_changed_after_the_fit_are_refused_where_it_shows():
    x, y = tables()[1]
    twice = fit({"learning_rate": "constant", "eta0": 0.1}, x, y)
    # As if half as many rows had been passed over twice as often: the same number of steps.
    with pytest.raises(InputError, match="another number of passes than max_iter"):
        sgd_run(twice.set_params(max_iter=4), M // 2)
    with pytest.raises(InputError, match="another number of passes than max_iter"):
        sgd_run(fit({"eta0": 0.1}, x, y).partial_fit(x, y).set_params(max_iter=3), M)
    with pytest.raises(InputError, match="has an intercept that is not zero"):
        sgd_run(fit({"fit_intercept": True, "eta0": 0.1}, x, y).set_params(fit_intercept=False), M)
    with pytest.raises(InputError, match="makes steps grow"):
        sgd_run(fit({"learning_rate": "invscaling"}, x, y).set_params(power_t=-0.1), M)
    with pytest.raises(InputError, match="divide by it"):
        sgd_run(fit({"alpha": 0.01}, x, y).set_params(alpha=0.0), M)


def test_a_row_of_zeros_of_each_class_keeps_the_classes_whatever_rows_hold():
    """And moves nothing but the number of rows: under a constant step the last weights are those without them."""
    x, _ = tables()[1]
    settings = FITS["constant"] | {"shuffle": False}
    padded = np.vstack([x, np.zeros((3, D))])
    for labels in (np.arange(M) % 3, np.arange(M) % 2):  # the second lacks a class
        fitted = fit(settings, padded, np.append(labels, [0, 1, 2]))
        assert fitted.coef_.shape == (3, D)
        assert sgd_run(fitted, M + 3).updates == M + 3
    np.testing.assert_array_equal(
        fit(settings, padded, np.append(np.arange(M) % 3, [0, 1, 2])).coef_, fit(settings, x, np.arange(M) % 3).coef_
    )
    assert any("trained whether or not a row has them" in sentence for sentence in sgd_run(fitted, M + 3).vouched)


def test_the_numbers_of_a_loss_are_those_of_its_model():
    from l2p.models import find_model
    from l2p.privacy.sensitivity.engine_run import LOSSES

    assert {name: (find_model(name).lipschitz, find_model(name).smoothness) for name in LOSSES} == LOSSES
