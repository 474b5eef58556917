"""Starts of training without a private row, at the names of the classes (zero-shot), and rows of length 1.

`private_train(params=)` takes the params. The encodings come from a text encoder that saw no private row, such as
CLIP's (`l2p.tables.vision.images.encode_names`).
"""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base.errors import InputError
from l2p.models import INTERCEPT_COLUMN, Model, Softmax

#: beta of Golatkar et al. (2022), and the temperature that CLIP was trained with.
SCALE = 100.0


def unit_rows(x: np.ndarray) -> np.ndarray:
    """Every row f[n, d] divided by its own length; a row of zeros stays. Other rows have no part in it.

    >>> unit_rows(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6, 0.8], [0.0, 0.0]]
    """
    x = np.asarray(x, np.float64)
    lengths = np.linalg.norm(x, axis=1, keepdims=True)
    return x / np.where(lengths > 0, lengths, 1.0)


def read_encodings(path: str | Path) -> np.ndarray:
    """A matrix f64[K, d] from a .npy file, or from a .csv file without a header: one line per class, in their order.

    Raises:
      InputError: there is no such file, or it holds no matrix of numbers.
    """
    path = Path(path)
    if path.suffix not in (".npy", ".csv"):
        raise InputError(f"{path} is neither .npy nor .csv, so it is no matrix of encodings; write one of these.")
    try:
        is_binary = path.suffix == ".npy"
        matrix = np.load(path, allow_pickle=False) if is_binary else np.loadtxt(path, delimiter=",", ndmin=2)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} cannot be read as a matrix of numbers with one line per class ({type(error).__name__}); write one "
            "with numpy.save or numpy.savetxt(delimiter=',')."
        ) from error
    if matrix.ndim != 2 or not np.issubdtype(matrix.dtype, np.number):
        raise InputError(f"{path} holds an array of shape {list(matrix.shape)} where one line per class belongs.")
    return matrix.astype(np.float64)


def from_names(
    encodings: np.ndarray, model: Model, scale: float = SCALE, bounds: tuple[float, float] = (0.0, 1.0)
) -> jax.Array:
    """The zero-shot params f32[p]: the weights of a class are `scale` times the encoding of its name, of length 1.

    Args:
      encodings: f[K, d], one line per class in their order, d features as the rows have.
      model: softmax, or logistic, which takes the difference of its two classes.
      scale: beta.
      bounds: low and high of every feature, as declared: rows are trained on after these are mapped to [0, 1], and
        the params are for such rows.

    Raises:
      InputError: another model, not one line per class, or a line that is zero or not finite.

    >>> params = from_names(np.eye(3), Softmax(3))
    >>> params.reshape(4, 3)[:, 0].tolist()
    [100.0, 0.0, 0.0, 0.0]
    """
    if not isinstance(model, Softmax) and model.name != "logistic":
        raise InputError(
            f"names give a weight per class and feature, which model {model} has not; choose softmax or logistic."
        )
    encodings = np.asarray(encodings, np.float64)
    num_classes = len(model.labels)
    if encodings.ndim != 2 or len(encodings) != num_classes:
        raise InputError(
            f"the encodings have shape {list(encodings.shape)}, but model {model} has {num_classes} classes; give one "
            "line per class, in their order."
        )
    if not np.isfinite(encodings).all() or not (np.abs(encodings).max(1) > 0).all():
        raise InputError("an encoding is zero or not finite, so it has no direction; encode every name again.")
    low, high = bounds
    weights = scale * unit_rows(encodings).T
    weights = np.vstack([(high - low) * weights, low * weights.sum(0) / INTERCEPT_COLUMN])
    if not isinstance(model, Softmax):
        weights = weights[:, 1] - weights[:, 0]
    return jnp.asarray(weights.ravel(), jnp.float32)
