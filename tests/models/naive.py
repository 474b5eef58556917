"""Reference implementations of every model, in NumPy float64 and straight from the definitions."""

import numpy as np

from l2p.models import MODELS, Softmax

#: One model of every kind, small enough to compile fast.
EVERY = {**MODELS, "softmax": Softmax(3)}


def labels(model, random, count):
    """Targets of the model's first kind, as an array f64[count]."""
    if "regression" in model.kinds:
        return random.random(count)
    return random.integers(0, len(model.labels), count).astype(float)


def losses(model, params, x, y):
    """Losses f64[n] of rows f64[n, d], from the model's definition only."""
    params, x, y = (np.asarray(part, np.float64) for part in (params, x, y))
    count, d = x.shape
    sign = 2 * y - 1
    if model.name == "softmax":
        margins = np.c_[x, np.full(count, 0.5)] @ params.reshape(d + 1, -1)
        return np.log(np.exp(margins).sum(1)) - margins[np.arange(count), y.astype(int)]
    if model.name == "mlp":
        # Params of the hidden layer are scaled by one half; units enter the output as 2 sigmoid - 1.
        hidden, output, bias = params[: (d + 1) * 20].reshape(d + 1, 20), params[-21:-1], params[-1]
        units = 1 / (1 + np.exp(-0.5 * np.c_[x, np.full(count, 0.5)] @ hidden))
        margin = (2 * units - 1) @ output + 0.5 * bias
        return np.logaddexp(0, margin) - y * margin
    if model.name == "quadratic":
        return 0.5 * ((2 * x - 1) @ params - y) ** 2
    margin = x @ params[:d] + 0.5 * params[d]
    if model.name == "logistic":
        return np.logaddexp(0, margin) - y * margin
    if model.name == "square":
        return 0.5 * (margin - y) ** 2
    slack = 1 - sign * margin
    if model.name == "hinge":
        return np.maximum(slack, 0)
    assert model.name == "svm"
    middle = (0.1 + slack) ** 2 / 0.4
    return np.where(slack < -0.1, 0, np.where(slack > 0.1, slack, middle))


def gradients(model, params, x, y, step=1e-6):
    """Gradients f64[n, p] by central differences."""
    params = np.asarray(params, np.float64)
    shifts = step * np.eye(len(params))
    return np.stack(
        [(losses(model, params + shift, x, y) - losses(model, params - shift, x, y)) / (2 * step) for shift in shifts],
        axis=1,
    )
