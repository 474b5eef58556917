"""Arrays that a loss reads besides the row it is given, and whether they are the private rows themselves."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from l2p.base.errors import InputError
from l2p.base.layout import path_names
from l2p.models.custom import CustomLoss


def check_captured(model: CustomLoss, data: Any) -> None:
    """Refuse a loss that holds an array of the private rows and reads all of them, whatever row it is given.

    It finds those that it holds as they are, or as the first rows of a longer array, in one of their types; a loss that
    changed them first is not found out.

    Raises:
      InputError: it holds one.
    """
    shapes = [jax.ShapeDtypeStruct((size,), jnp.float32) for size in (model.parameters.trained.size, model.rows.size)]
    with jax.enable_x64(False):
        traced = jax.make_jaxpr(model.loss)(*shapes, jax.ShapeDtypeStruct((), jnp.float32))
    private = list(zip(path_names(data), map(np.asarray, jax.tree.leaves(data)), strict=True))
    for held in _constants(traced):
        for name, array in private:
            if _holds(held, array):
                raise InputError(
                    f"the loss reads an array of all rows, {name[:80]!r} of the data, and not the one it is given, "
                    "so what a row contributes would depend on all others; read the row alone."
                )


def _constants(traced: ClosedJaxpr) -> Iterator[np.ndarray]:
    """Arrays that a traced function holds, and those that functions compiled by themselves hold in it."""
    yield from (np.asarray(held) for held in traced.consts if not jnp.issubdtype(held.dtype, jax.dtypes.extended))
    for equation in traced.eqns:
        for inner in jax.tree.leaves(equation.params, is_leaf=lambda leaf: isinstance(leaf, ClosedJaxpr)):
            if isinstance(inner, ClosedJaxpr):
                yield from _constants(inner)


def _holds(held: np.ndarray, array: np.ndarray) -> bool:
    """True if an array begins with all rows of another. One of fewer rows may be equal to the first ones by chance."""
    if held.ndim != array.ndim or held.shape[1:] != array.shape[1:] or not 1 < len(array) <= len(held):
        return False
    return np.array_equal(held[: len(array)].astype(np.float32), array.astype(np.float32), equal_nan=True)
