"""What scikit-learn's `SGDClassifier` did in a fit, as far as a proof covers it.

Read in its source (1.9.1: linear_model/_sgd_fast.pyx.tp, utils/_weight_vector.pyx.tp). Step t, from 1, takes one row:
the slope is computed, then weights are scaled by 1 - eta_t alpha, then the row times -eta_t slope is added, which is a
step along the gradient of the row's loss + alpha / 2 ||w||^2. The scale is kept apart from the weights, which changes
rounding alone. `constant` has eta0; `invscaling` eta0 / t^power_t; `optimal` 1 / (alpha (t0 + t - 1)), where t0 is
alpha^-0.75 for the logistic loss, so that it is known beforehand. `shuffle` permutes the last pass's order by the seed;
without it every pass keeps the table's. `average=n` is the mean of the iterates from step n on. The intercept is not
regularised, its steps are a hundredth on sparse rows, and it is not part of `coef_`.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import sklearn
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import SGDClassifier
from sklearn.utils.validation import check_is_fitted

from l2p.base.errors import InputError
from l2p.privacy.sensitivity.engine_run import EngineRun

#: The least product of 1 - eta alpha that averages are covered for: they are kept as a difference of two vectors that
#: grow by its inverse, and so does their rounding.
_LEAST_SCALE = 2.0**-7


def sgd_run(fitted: SGDClassifier, num_rows: int, norm_bound: float = 1.0) -> EngineRun:
    """The declaration of a fit, for `l2p.bolt_on(fitted.coef_, ...)`; it counts steps as the classifier did.

    Not in the classifier, and so for whoever fitted it to vouch for: that `fit` got no `sample_weight` and no
    `coef_init`, that its settings are those of the fit, and that its classes do not depend on rows. `fit` takes them
    from the labels, so that a row that alone has its class decides how many there are, or whether there is a result:
    append a row of zeros for each class, which has no gradient, and count it in `num_rows`.

    Args:
      fitted: by one `fit`, with loss "log_loss" and tol=None; rows have a constant column in place of fit_intercept.
      num_rows: of the table, N.
      norm_bound: the length that no row exceeds.

    Raises:
      InputError: its steps are not known beforehand, or no proof covers them; the sentence says which setting does it.

    >>> import numpy as np
    >>> rows, labels = np.eye(4), np.array([0, 1, 0, 1])
    >>> settings = {"loss": "log_loss", "fit_intercept": False, "learning_rate": "constant", "eta0": 0.1, "alpha": 0.01}
    >>> fitted = SGDClassifier(**settings, max_iter=3, tol=None).fit(rows, labels)
    >>> sgd_run(fitted, 4).updates
    12
    """
    if type(fitted) is not SGDClassifier:
        raise InputError(
            f"{type(fitted).__name__} is not scikit-learn's SGDClassifier, of which alone the steps were read; declare "
            "what it did in an EngineRun."
        )
    settings = fitted.get_params()
    for is_wrong, why in _refusals(settings):
        if is_wrong:
            raise InputError(f"{why}.")
    try:
        check_is_fitted(fitted)
    except NotFittedError:
        raise InputError("the classifier is not fitted, so it has no weights to be noised; fit it first.") from None
    if fitted.coef_.dtype != "float64":
        raise InputError(
            "the classifier computed in single precision, whose rounding the sensitivity does not cover; fit it on an "
            "array of float64."
        )
    if fitted.n_iter_ != settings["max_iter"]:
        raise InputError(
            "the last training took another number of passes than max_iter, so settings changed after it, or "
            "partial_fit followed it on rows of which the classifier says nothing; call fit once."
        )
    if np.any(fitted.intercept_):
        raise InputError(
            "the classifier has an intercept that is not zero although fit_intercept is False, so settings changed "
            "after the fit, or it was given one; fit it once, as it is declared."
        )
    updates = int(fitted.t_) - 1
    rule = _rule(settings)
    run = EngineRun(
        engine=f"scikit-learn {sklearn.__version__} SGDClassifier",
        num_rows=num_rows,
        num_passes=settings["max_iter"],
        updates=updates,
        first_step=_step(settings, 1),
        last_step=_step(settings, updates),
        ridge=settings["alpha"] if settings["penalty"] == "l2" else 0.0,
        averaged=max(updates - int(settings["average"]) + 1, 0) if settings["average"] else 0,
        order="fresh" if settings["shuffle"] else "same",
        norm_bound=norm_bound,
        **rule,
    )
    _check_scale(run)
    return run


def _refusals(settings: dict[str, Any]) -> Iterator[tuple[bool, str]]:
    """Whether a setting is one that no proof covers, and a sentence on why."""
    yield (
        settings["loss"] != "log_loss",
        f"loss {settings['loss']!r} has a slope or a curvature without a bound here; fit with loss='log_loss'",
    )
    yield (
        settings["fit_intercept"],
        "the intercept is neither regularised nor among the coefficients, so the noise would not cover it; give rows a "
        "constant column, within their length, and fit with fit_intercept=False",
    )
    yield (
        settings["tol"] is not None,
        f"tol={settings['tol']!r} ends the fit when losses of private rows say so, which the proof does not cover; fit "
        "with tol=None, for max_iter passes",
    )
    yield (
        settings["early_stopping"],
        "early_stopping ends the fit by a score on private rows; fit without it, for max_iter passes",
    )
    yield (
        settings["class_weight"] is not None,
        "class_weight makes rows of some classes count for more than the sensitivity covers; fit without it",
    )
    yield (
        settings["warm_start"],
        "warm_start begins with weights of an earlier fit, which say something of its rows; fit without it",
    )
    yield (
        settings["penalty"] not in ("l2", None),
        f"penalty {settings['penalty']!r} moves two fits apart in ways that no proof here covers; choose 'l2' or None",
    )
    yield (
        settings["learning_rate"] not in ("constant", "invscaling", "optimal"),
        f"learning_rate {settings['learning_rate']!r} sets steps by what rows hold; choose 'constant', 'invscaling' or "
        "'optimal'",
    )
    yield (
        settings["learning_rate"] == "invscaling" and not settings["power_t"] >= 0,
        f"power_t={settings['power_t']!r} makes steps grow; choose one that is not negative",
    )
    yield (
        settings["learning_rate"] == "optimal" and not settings["alpha"] > 0,
        f"alpha={settings['alpha']!r} has no steps of learning_rate 'optimal', which divide by it; these are not the "
        "settings of a fit",
    )


def _rule(settings: dict[str, Any]) -> dict[str, Any]:
    """The rule of step sizes, as `EngineRun` has it."""
    if settings["learning_rate"] == "constant":
        return {"rule": "constant", "step_size": settings["eta0"]}
    if settings["learning_rate"] == "invscaling":
        return {"rule": "inverse_power", "step_size": settings["eta0"], "power": settings["power_t"]}
    alpha = settings["alpha"]
    return {"rule": "inverse_power", "step_size": 1 / alpha, "power": 1.0, "shift": _first_place(alpha) - 1}


def _first_place(alpha: float) -> float:
    """t0 of `optimal`: so that the first step is alpha^-0.25, the size of a typical weight."""
    typical = math.sqrt(1 / math.sqrt(alpha))
    return 1 / (typical * alpha)


def _step(settings: dict[str, Any], step: int) -> float:
    """eta_t as the source of the classifier computes it."""
    if settings["learning_rate"] == "constant":
        return settings["eta0"]
    if settings["learning_rate"] == "invscaling":
        return settings["eta0"] * float(step) ** -settings["power_t"]
    return 1 / (settings["alpha"] * (_first_place(settings["alpha"]) + step - 1))


def _check_scale(run: EngineRun) -> None:
    """Refuse decay that the classifier cuts off at 0, or by which the rounding of averages grows too large."""
    decay = run.ridge * run.passes.step_sizes
    if decay.max() > 1:
        raise InputError(
            f"alpha times the first step is {decay.max():.3g}, above 1, where the classifier sets weights to zero "
            "instead of taking the step; choose smaller steps or alpha."
        )
    if run.averaged and (1 - decay).prod() < _LEAST_SCALE:
        raise InputError(
            "the classifier keeps averages as a difference whose rounding grows with the decay of all steps together, "
            "here beyond what the noise covers; fit with average=False, a smaller alpha or fewer passes."
        )
