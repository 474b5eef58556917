"""How a row of a user's own data, a pytree of arrays, lies in a line of numbers."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base.errors import InputError
from l2p.base.layout import MOST_WHOLE, Layout, path_names
from l2p.task.rows import Rows
from l2p.task.sources import RowSource
from l2p.task.task import Task


def row_layout(data: Any) -> Layout:
    """How a row lies in a line. Messages tell no number of rows, which may be private."""
    if isinstance(data, (Rows, RowSource, Task, str)) or callable(data):
        raise InputError(
            f"the data of a loss of your own came as {type(data).__name__}, of which it could be given no row; pass a "
            'pytree of arrays whose first axis is rows, such as {"x": images, "y": labels}, or an l2p.BlockSource of '
            "such blocks."
        )
    leaves, names = jax.tree.leaves(data), path_names(data)
    for name, leaf in zip(names, leaves, strict=True):
        if not is_array(leaf) or not leaf.ndim:
            raise InputError(
                f"{place(name)} of the data is {kind(leaf)} and no array with an axis of rows; pass a pytree of "
                'arrays whose first axis is rows, such as {"x": images, "y": labels}.'
            )
        if not (is_floating(leaf) or (isinstance(leaf.dtype, np.dtype) and leaf.dtype.kind in "biu")):
            raise InputError(
                f"{place(name)} of the data holds {leaf.dtype}, and only real numbers of at most 64 bits can be "
                "computed with; encode it as such numbers first."
            )
    if not leaves:
        raise InputError('the data holds no array; pass a pytree of arrays, such as {"x": images, "y": labels}.')
    if odd := next((name for name, leaf in zip(names, leaves, strict=True) if len(leaf) != len(leaves[0])), None):
        raise InputError(
            f"{place(odd)} of the data has another number of rows than {place(names[0])}, but the first axis of "
            "every array is that of rows; give one entry for each row in each of them."
        )
    return Layout.of(data, stacked=1)


def is_exact(leaves: Sequence[Any]) -> Any:
    """bool[n], false for rows with a whole number that float32, in which rows are kept, would round; of arrays on the
    host, or of such that may be traced."""
    exact = np.ones(len(leaves[0]), bool)
    for leaf in leaves:
        if leaf.dtype.kind in "iu" and leaf.dtype.itemsize > 2:
            fits = leaf <= MOST_WHOLE
            if leaf.dtype.kind == "i":  # JAX compares no unsigned number with one below 0
                fits = fits & (leaf >= -MOST_WHOLE)
            exact = exact & fits.all(axis=tuple(range(1, leaf.ndim)))
    return exact


def laid_out(data: Any, layout: Layout) -> Rows:
    """Rows on the host, one in a line, with a mask that leaves out what float32 would round."""
    x, counted = layout.flat(data), is_exact(list(map(np.asarray, jax.tree.leaves(data))))
    return Rows(x, np.zeros(len(x), np.float32), counted.astype(np.float32))  # pyrefly: ignore[bad-argument-type]


def is_array(leaf: Any) -> bool:
    """True for an array all of whose numbers count; a masked one still holds those that its owner left out."""
    return isinstance(leaf, (np.ndarray, jax.Array)) and not isinstance(leaf, np.ma.MaskedArray)


def is_floating(leaf: Any) -> bool:
    """True for an array of floating-point numbers of at most 64 bits."""
    return jnp.issubdtype(leaf.dtype, jnp.floating) and leaf.dtype.itemsize <= 8


def place(name: str) -> str:
    """The array at a path, for messages."""
    return repr(name[:80]) if name else "the array"


def kind(leaf: Any) -> str:
    """The kind of thing that a leaf is, for messages, without its size."""
    if not is_array(leaf):
        return f"of type {type(leaf).__name__}"
    return f"a scalar of {leaf.dtype}" if leaf.ndim == 0 else f"an array of {leaf.dtype}"
