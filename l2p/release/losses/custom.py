"""Rows and model of a user's own loss: pytrees, checked by their shapes before a private value is read."""

import dataclasses
import math
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import ClosedJaxpr

from l2p.base.errors import InputError, first_line, withheld
from l2p.base.layout import Layout, path_names
from l2p.models.custom import CustomLoss, Parameters, hashable
from l2p.release.losses.blocks import BlockSource, LaidOut
from l2p.release.losses.drawing import drawing
from l2p.release.losses.row_layout import is_array, is_floating, kind, laid_out, place, row_layout
from l2p.release.losses.traced_loss import constants, digest, refuse_data, refuse_outside
from l2p.task.rows import Rows
from l2p.task.sources import RowSource

#: What every refusal of a loss advises.
_LOSS = "write loss(params, row) -> a scalar for one row, without an axis of rows"

#: The path that safetensors keeps for itself.
_RESERVED = "__metadata__"


class Custom(NamedTuple):
    """What a run takes in place of a pytree of arrays, a loss and a pytree of parameters."""

    rows: Rows | RowSource
    model: CustomLoss
    start: jax.Array


def custom(
    data: Any,
    loss: Callable[[Any, Any], Any],
    params: Any,
    trainable: Callable[[str], bool] | None = None,
    predict: Callable[[Any, Any], Any] | None = None,
    per_tensor: Callable[[str], float] | None = None,
) -> Custom:
    """Rows, model and starting point of a loss; arguments are those of `l2p.private_train`.

    Raises:
      InputError: one of them does not fit, by shapes and types alone: no value of `data` is refused.
    """
    if isinstance(data, BlockSource):
        source = LaidOut.of(data)
        return Custom(source, *custom_model(loss, params, source.layout, trainable, predict, per_tensor))
    model, start = custom_model(loss, params, row_layout(data), trainable, predict, per_tensor, data)
    with withheld("laying out rows"):
        return Custom(laid_out(data, model.rows), model, start)


def custom_model(
    loss: Callable[[Any, Any], Any],
    params: Any,
    rows: Layout,
    trainable: Callable[[str], bool] | None = None,
    predict: Callable[[Any, Any], Any] | None = None,
    per_tensor: Callable[[str], float] | None = None,
    data: Any = None,
) -> tuple[CustomLoss, jax.Array]:
    """The model of a loss on rows of this layout, and where its training starts f32[p]; `InputError` as in `custom`,
    for a loss that holds an array of `data`, too."""
    parameters, start = starting_point(params, trainable)
    shares = shares_of(parameters, per_tensor)
    model = CustomLoss(hashable(drawing(loss)), parameters, rows, hashable(predict), shares=shares)
    traced = as_traced(model)
    refuse_outside(traced)
    refuse_data([*constants(traced), *filter(is_array, parameters.frozen)], data)
    return dataclasses.replace(model, digest=digest(traced)), jnp.asarray(start)


def split(params: Any, trainable: Callable[[str], bool] | None) -> tuple[Parameters, list[Any]]:
    """The parameters, and those of their arrays that are trained, which may be traced; `InputError` by shapes, types
    and paths."""
    if not (trainable is None or callable(trainable)):
        raise InputError(
            f"trainable is of type {type(trainable).__name__} and cannot be asked about a path; pass a function, such "
            'as lambda path: path.startswith("head").'
        )
    leaves, tree = jax.tree.flatten(params)
    names = path_names(params)
    if odd := next((name for name, count in Counter(names).items() if count > 1 or name == _RESERVED), None):
        raise InputError(
            f"params have an array at the path {place(odd)} that a saved result could not keep, because another has "
            "the same or files reserve it; rename it."
        )
    chosen = [_is_trained(name, leaf, trainable) for name, leaf in zip(names, leaves, strict=True)]
    trained = [leaf for leaf, is_trained in zip(leaves, chosen, strict=True) if is_trained]
    layout = Layout.of(trained)
    if not layout.size:
        raise InputError(
            "params hold nothing that is trained, so a run would spend its budget on nothing; pass the pytree of "
            "arrays that loss(params, row) takes, with a trainable= that is true for the paths of some of them."
        )
    frozen = tuple(None if is_trained else leaf for leaf, is_trained in zip(leaves, chosen, strict=True))
    trained_names = tuple(name for name, is_trained in zip(names, chosen, strict=True) if is_trained)
    return Parameters(tree, trained_names, layout, frozen), trained


def shares_of(parameters: Parameters, per_tensor: Callable[[str], float] | None) -> tuple[float, ...] | None:
    """The share of the clipping norm of each trained array, where each is clipped by itself: its weight over the root
    of the sum of all weights' squares (`l2p.models.parts.Shares`).

    Raises:
      InputError: a weight is none.
    """
    if per_tensor is None:
        return None
    if not callable(per_tensor):
        raise InputError(
            f"per_tensor is of type {type(per_tensor).__name__} and cannot be asked about a path; pass a function of "
            "it that returns a weight, such as lambda path: 1.0 for arrays that are all clipped alike."
        )
    weights = {name: per_tensor(name) for name in parameters.names}
    for name, weight in weights.items():
        if not (isinstance(weight, (int, float, np.number)) and 1e-6 <= weight <= 1e6):
            raise InputError(
                f"per_tensor gives {place(name)} the weight {weight!r}, by which its gradient could not be clipped; "
                "return a number from 1e-6 to 1e6 for every path, or freeze the array by trainable=."
            )
    root = math.sqrt(math.fsum(float(weight) ** 2 for weight in weights.values()))
    return tuple(float(weight) / root for weight in weights.values())


def starting_point(params: Any, trainable: Callable[[str], bool] | None) -> tuple[Parameters, np.ndarray]:
    """The parameters and where training starts f32[p]; `InputError` as in `split`, or if a number is not finite."""
    parameters, trained = split(params, trainable)
    start = parameters.trained.flat(trained)
    if not np.isfinite(start).all():
        raise InputError(
            "params hold numbers that are not finite, from which no step leads anywhere; start from others, or leave "
            "these parameters as they are by trainable=."
        )
    return parameters, start


def _is_trained(name: str, leaf: Any, trainable: Callable[[str], bool] | None) -> bool:
    """True for a parameter to train; functions and other leaves that are no numbers stay as they are."""
    if trainable is None and not (is_array(leaf) or isinstance(leaf, float)):
        return False
    if trainable is not None and not trainable(name):
        return False
    if is_array(leaf) and is_floating(leaf):
        return True
    raise InputError(
        f"parameter {place(name)} is {kind(leaf)}, which has no gradient; make it an array of floating-point "
        "numbers, or leave it as it is by a trainable= that is false for its path."
    )


def as_traced(model: CustomLoss) -> list[ClosedJaxpr]:
    """The loss of one row and its gradient, traced on shapes alone; of one, because `jax.vmap` hides what it replaces.

    Raises:
      InputError: the loss cannot be computed of one row, is no scalar, or has no gradient.
    """
    shapes = [jax.ShapeDtypeStruct((size,), jnp.float32) for size in (model.parameters.trained.size, model.rows.size)]
    row = jax.eval_shape(model.rows.tree_of, shapes[1])
    try:
        with jax.enable_x64(False):
            traced, loss = jax.make_jaxpr(
                lambda p, x: model.function(model.parameters.tree_of(p), model.rows.tree_of(x)), return_shape=True
            )(*shapes)
    except Exception as error:  # of the user's own code, which saw no value
        raise InputError(
            f"the loss could not be computed of one row, {_shapes(row)} ({first_line(error)}); {_LOSS}, and keep what "
            "depends on other rows, such as a batch's statistics, out of it."
        ) from error
    is_scalar = isinstance(loss, jax.ShapeDtypeStruct) and loss.shape == () and jnp.issubdtype(loss.dtype, jnp.floating)
    if not is_scalar:
        raise InputError(
            f"the loss of one row, {_shapes(row)}, is {_shapes(loss)} and not a floating-point scalar, so it has no "
            f"gradient; {_LOSS}, and return it alone."
        )
    refuse_outside([traced])  # else the sentence below would be about its derivative
    try:
        with jax.enable_x64(False):
            return [traced, jax.make_jaxpr(jax.grad(model.loss))(*shapes, jax.ShapeDtypeStruct((), jnp.float32))]
    except Exception as error:
        raise InputError(
            f"the loss of one row has no gradient ({first_line(error)}), and private training needs one; write it "
            "with functions that JAX differentiates."
        ) from error


def _shapes(tree: Any) -> str:
    """Shapes and types of the arrays of a pytree, by path."""
    leaves = [
        f"{leaf.dtype}{list(leaf.shape)}" if hasattr(leaf, "shape") else type(leaf).__name__
        for leaf in jax.tree.leaves(tree)
    ]
    named = [f"{name}: {leaf}" if name else leaf for name, leaf in zip(path_names(tree), leaves, strict=True)]
    return ", ".join(named)[:200] or "nothing"
