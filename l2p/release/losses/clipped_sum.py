"""Sums of clipped per-row gradients for a loop of one's own: what `l2p.optax` takes in place of gradients."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NoReturn

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base import struct
from l2p.base.errors import InputError
from l2p.base.layout import Layout
from l2p.models.custom import CustomLoss, Parameters
from l2p.models.parts import Shares
from l2p.oracle.pricing import MAX_BOUND, MIN_BOUND
from l2p.queries import ClippedGradient, NormalizedGradient
from l2p.release.losses.custom import as_traced, shares_of, split
from l2p.release.losses.drawing import drawing
from l2p.release.losses.row_layout import is_exact, row_layout
from l2p.release.losses.traced_loss import constants, refuse_data, refuse_outside
from l2p.task.feature_map import FeatureMap
from l2p.task.rows import Rows, null_invalid


@dataclasses.dataclass(frozen=True)
class Clipping:
    """How long one row's gradient may be, and which parameters it is taken in.

    Attributes:
      norm: L2 bound on what a row adds.
      stability: None clips gradients that are longer; a number scales all of them to norm / (length + stability) times
        theirs, as `auto_clip` does.
      trainable: true for the paths of parameters that are trained; None for all arrays.
      per_tensor: of the path of a trained array its weight: each array's gradient is then clipped by itself, to the
        norm times its weight over the root of the sum of all weights' squares; None clips all of them as one vector.
      padded: whether batches have places without a row, so that a sum needs their mask.

    >>> Clipping(0.0)
    Traceback (most recent call last):
    l2p.base.errors.InputError: a clip norm of 0.0 bounds no gradient that noise could hide; choose ... such as 1.
    """

    norm: float
    stability: float | None = None
    trainable: Callable[[str], bool] | None = None
    padded: bool = False
    per_tensor: Callable[[str], float] | None = None

    def __post_init__(self) -> None:
        """Check the numbers."""
        if not (isinstance(self.norm, (int, float, np.number)) and MIN_BOUND <= self.norm <= MAX_BOUND):
            raise InputError(
                f"a clip norm of {self.norm!r} bounds no gradient that noise could hide; choose a finite number above "
                "0, such as 1."
            )
        if not (self.stability is None or 0.0 <= self.stability < math.inf):
            raise InputError(
                f"a stability of {self.stability!r} would make short gradients long without bound; choose 0 or more, "
                "such as 0.01, or None to clip."
            )

    def query(self, model: CustomLoss, params: jax.Array) -> ClippedGradient | NormalizedGradient:
        """The query whose aggregate a clipped sum is, at params f32[p]."""
        identity, norm, unused = FeatureMap.identity(model.rows.size), jnp.float32(self.norm), jnp.float32(1.0)
        if self.stability is None:
            return ClippedGradient(model, params, identity, norm, unused)
        return NormalizedGradient(model, params, identity, norm, jnp.float32(self.stability), unused)


@struct.dataclass
class ClippedSum:
    """A sum over rows of gradients of bounded length, without noise: private, and to be handed to `l2p.optax` as it is.

    It may leave and enter `jax.jit`, and sums over parts of one batch add up. Nothing else can be computed with it: its
    seal is a key, which JAX does no arithmetic on, so that a mean or another multiple cannot pass for a sum.

    Attributes:
      total: f32[p].
      seal: a key.
      clipping: that bounds what a row added (static, as all that follows).
      layout: of the trained parameters, without the others.
      num_lines: places for rows in the batch, masked ones included.
      row_size: numbers of one row.
    """

    total: jax.Array
    seal: jax.Array
    clipping: Clipping = struct.field(pytree_node=False)
    layout: Layout = struct.field(pytree_node=False)
    num_lines: int = struct.field(pytree_node=False)
    row_size: int = struct.field(pytree_node=False)

    @property
    def tree(self) -> Any:
        """The sum as a pytree of float32 arrays like the trained parameters, for other libraries that add noise."""
        return dataclasses.replace(self.layout, dtypes=("float32",) * len(self.layout.shapes)).tree_of(self.total)

    def __add__(self, other: Any) -> "ClippedSum":
        """The sum over two parts of one batch, of which no row is in both."""
        if not isinstance(other, ClippedSum):
            self._refuse()
        if (self.clipping, self.layout) != (other.clipping, other.layout):
            raise InputError(
                "two clipped sums of other clip norms or other parameters do not add up to one that noise is planned "
                "for; add sums of one clipping alone."
            )
        return dataclasses.replace(self, total=self.total + other.total, num_lines=self.num_lines + other.num_lines)

    def __repr__(self) -> str:
        return "ClippedSum(not shown)"

    def _refuse(self, *_: Any) -> NoReturn:
        raise InputError(
            "a clipped sum was computed with, but the noise that is planned for it covers the sum alone; hand it to "
            "update as it is, which divides by the public number of rows."
        )

    __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __neg__ = __pow__ = _refuse
    __matmul__ = __rmatmul__ = __abs__ = _refuse


def clipped_sum(
    loss: Callable[..., Any],
    params: Any,
    batch: Any,
    clipping: Clipping | float,
    *,
    mask: Any = None,
) -> ClippedSum:
    """The sum over a batch's rows of the loss's gradients, each of bounded length; best called inside `jax.jit`.

    A row sees only itself: `loss` gets one row of the batch, without an axis of rows. What is not finite adds nothing.
    Rows are read a few at a time, so that memory does not grow with the batch.

    Args:
      loss: loss(params, row) -> a scalar, or loss(params, row, key) for one that draws, as dropout does
        (`l2p.release.losses.drawing`).
      params: a pytree of parameters.
      batch: a pytree of arrays whose first axis is rows.
      clipping: that of the transformation which takes the sum, `l2p.optax(...).clipping`; or a norm to clip to.
      mask: [n], true for rows; places where it is false add nothing. Default all, where the loop reads all rows.

    Raises:
      InputError: an argument does not fit, by shapes and types alone, or the loss holds what may come from other rows.

    >>> total = clipped_sum(lambda w, row: w @ row, jnp.zeros(2), jnp.array([[3.0, 4.0], [0.0, 0.5]]), 1.0)
    >>> print(total.tree)
    [0.6 1.3]
    """
    clipping = clipping if isinstance(clipping, Clipping) else Clipping(clipping)
    rows = row_layout(batch)
    parameters, trained = split(params, clipping.trainable)
    with jax.enable_x64(False):
        model = _of_trained(loss, parameters, rows, shares_of(parameters, clipping.per_tensor))
        _refuse_other_rows(model, parameters, batch)
        vector = parameters.trained.flat_on_device(trained)
        lines = null_invalid(Rows(rows.flat_on_device(batch), *_counted(batch, mask, clipping.padded)))
        query = clipping.query(model, vector)
        total = query.add(query.empty(), lines)
    return ClippedSum(total, jax.random.key(0), clipping, layout_of(parameters), lines.y.shape[0], rows.size)


def layout_of(parameters: Parameters) -> Layout:
    """The layout of the trained leaves in the whole pytree, in which None stands for the others."""
    marks = iter(range(len(parameters.names)))
    with_gaps = [next(marks) if leaf is None else None for leaf in parameters.frozen]
    tree = jax.tree.structure(jax.tree.unflatten(parameters.tree, with_gaps))
    return dataclasses.replace(parameters.trained, tree=tree)


def _of_trained(loss: Callable[..., Any], parameters: Parameters, rows: Layout, shares: Shares) -> CustomLoss:
    """The loss as a model of its trained parameters alone: all others, which may be traced, lie in the function."""
    loss = drawing(loss)

    def of_trained(trained: list[Any], row: Any) -> Any:
        leaves = iter(trained)
        whole = [next(leaves) if leaf is None else leaf for leaf in parameters.frozen]
        return loss(jax.tree.unflatten(parameters.tree, whole), row)

    alone = Parameters(parameters.trained.tree, parameters.names, parameters.trained, (None,) * len(parameters.names))
    return CustomLoss(of_trained, alone, rows, shares=None if shares is None else tuple(shares))


def _refuse_other_rows(model: CustomLoss, parameters: Parameters, batch: Any) -> None:
    """Refuse a loss that is none of one row, tells of one, or holds what may have been computed from others."""
    traced = as_traced(model)
    refuse_outside(traced)
    held = [constant for part in traced for constant in part.consts]
    is_traced = [isinstance(constant, jax.core.Tracer) for constant in held]
    frozen = set(map(id, parameters.frozen))
    if any(traced and id(constant) not in frozen for constant, traced in zip(held, is_traced, strict=True)):
        raise InputError(
            "the loss closes over an array that is computed in the same step and may come from other rows of the "
            "batch, as a batch's statistics do, and no budget covers that; make it before the step from what is "
            "public, or hand it over in params, frozen by trainable=, if no row had a part in it."
        )
    of_batch = jax.tree.leaves(batch)
    if not any(isinstance(leaf, jax.core.Tracer) for leaf in [*of_batch, *held, *parameters.frozen]):
        arrays = [leaf for leaf in parameters.frozen if isinstance(leaf, (np.ndarray, jax.Array))]
        refuse_data([*constants(traced), *arrays], batch)


def _counted(batch: Any, mask: Any, padded: bool) -> tuple[jax.Array, jax.Array]:
    """Targets f32[n], of which a loss of one's own has none, and the mask f32[n]: 1 for a row that counts, 0 for one
    that is masked or holds a whole number that float32 would round."""
    leaves = jax.tree.leaves(batch)
    num_lines = len(leaves[0])
    counted = jnp.ones(num_lines, bool)
    if mask is None and padded:
        raise InputError(
            "this loop draws batches, which have places without a row, and without their mask some row would count "
            "there many times; pass mask=, the second of what batches() gives."
        )
    if mask is not None:
        if jnp.shape(mask) != (num_lines,):
            raise InputError(
                f"the mask has shape {list(jnp.shape(mask))} where the batch has another number of rows, so it does "
                "not say which of them count; give one entry for each row."
            )
        counted &= jnp.asarray(mask) > 0  # never a weight, by which a row would count more than once
    return jnp.zeros(num_lines), (counted & is_exact(leaves)).astype(jnp.float32)
