"""Scores of a trained model on test rows, outside any guarantee."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base.errors import withheld
from l2p.models import Model
from l2p.run.simulate import mean_loss
from l2p.tables.bounds import Interval
from l2p.task.rows import Rows


@withheld("scoring rows")
def metrics(params: jax.Array, model: Model, rows: Rows, kind: str, bounds: Interval = (0.0, 1.0)) -> dict[str, Any]:
    """Scores on rows, of which null ones do not count; None where a score is not defined.

    Args:
      params: f32[p].
      model: that was trained.
      rows: encoded as those that it was trained on.
      kind: of the target, as in `Model.kinds`.
      bounds: of a number to predict; errors are in its own units. Numbers outside count as the nearer bound, as they do
        in training.

    Returns:
      For classes: accuracy; majority, the accuracy of always saying the most frequent class; auc, see
      `area_under_curve`; log_loss and brier (for two classes of the second one's probability, for more summed over
      classes), None for a model without probabilities. For numbers: rmse and r2. For both: test_loss, the model's own
      unregularised mean loss.

    >>> from l2p.models import Logistic
    >>> import jax.numpy as jnp
    >>> rows = Rows(jnp.array([[0.0], [1.0], [1.0]]), jnp.array([0.0, 1.0, 0.0]), jnp.ones(3))
    >>> scores = metrics(jnp.array([4.0, -4.0]), Logistic(), rows, "binary")
    >>> [(name, round(scores[name], 3)) for name in ("accuracy", "majority", "auc", "log_loss", "brier")]
    [('accuracy', 0.667), ('majority', 0.667), ('auc', 0.75), ('log_loss', 0.794), ('brier', 0.268)]
    """
    counted = np.asarray(rows.mask) > 0
    x, y = jnp.asarray(np.asarray(rows.x)[counted]), np.asarray(rows.y)[counted]
    loss = float(mean_loss(params, model, rows))
    if kind == "regression":
        scores = _of_numbers(np.asarray(model.predict(params, x), np.float64), y.astype(np.float64), bounds)
    else:
        scores = _of_classes(np.asarray(model.classify(params, x)), np.asarray(model.class_scores(params, x)), y)
        # The loss of a model with probabilities is their log loss, without the clipping that libraries need.
        likely = model.gives_probabilities
        brier = scores.pop("brier")
        scores |= {"log_loss": loss if likely else None, "brier": brier if likely else None}
    return {name: None if score is None or math.isnan(score) else score for name, score in scores.items()} | {
        "test_loss": loss
    }


def _of_classes(predicted: np.ndarray, scores: np.ndarray, y: np.ndarray) -> dict[str, float | None]:
    """Scores of classes f[n] and class scores f[n, K] for labels f[n]; brier as if of probabilities."""
    _, counts = np.unique(y, return_counts=True)
    squares = np.square(scores.astype(np.float64) - (y[:, None] == np.arange(scores.shape[1]))).sum(1).mean()
    return {
        "accuracy": float((predicted == y).mean()),
        "majority": float(counts.max() / len(y)),
        "auc": area_under_curve(scores, y),
        "brier": float(squares / 2 if scores.shape[1] == 2 else squares),
    }


def _of_numbers(predicted: np.ndarray, y: np.ndarray, bounds: Interval) -> dict[str, float | None]:
    """Scores of predicted values f64[n] for targets f64[n], both in [0, 1]."""
    from sklearn.metrics import r2_score

    error = math.sqrt(float(np.square(predicted - y).mean()))
    is_finite = math.isfinite(error) and np.ptp(y) > 0
    return {"rmse": (bounds[1] - bounds[0]) * error, "r2": float(r2_score(y, predicted)) if is_finite else None}


def area_under_curve(scores: np.ndarray, y: np.ndarray) -> float | None:
    """Area under the ROC curve of class scores f[n, K] for labels f[n]: the share of pairs in which a row of a class is
    ranked above a row of another class, ties half.

    Two classes: of the second. More: one against the rest, the mean over the classes that `y` has. None where `y` has
    one class, NaN where a score is.

    >>> area_under_curve(np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]]), np.array([0.0, 1.0, 1.0]))
    1.0
    """
    from sklearn.metrics import roc_auc_score

    classes = np.unique(y)
    if len(classes) < 2:
        return None
    if not np.isfinite(scores).all():
        return math.nan
    wanted = [1] if scores.shape[1] == 2 else classes.astype(int)
    return float(np.mean([roc_auc_score(y == label, scores[:, label]) for label in wanted]))
