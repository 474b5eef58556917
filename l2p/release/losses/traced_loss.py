"""What a loss of one's own computes, traced on the shapes of a row: its operations and the arrays it holds."""

import functools
import hashlib
import numbers
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn

from l2p.base.errors import InputError

#: Operations that tell of a row, or carry something from one to the next, and of which JAX states no effect.
_BY_NAME = ("pure_callback", "rng_uniform", "infeed", "outfeed")
#: Operations of which `jax.vmap` may make one of all rows at once, whose outcome for a row others may change.
_TOGETHER = ("custom_vmap_call", "ffi_call", "pallas_call", "rng_bit_generator")


def refuse_outside(traced: Sequence[ClosedJaxpr]) -> None:
    """Refuse a loss that does more than compute: prints a row, stops at one, or remembers it for the next; and one in
    which rows that are computed side by side may meet.

    Raises:
      InputError: the sentence names the operation.
    """
    has_effects = any(part.effects for part in traced)  # those of axes within a row are none
    for part in _parts(traced):
        for operation in part.eqns:
            if operation.primitive.name in _BY_NAME or (has_effects and operation.effects):
                raise InputError(
                    f"the loss calls {operation.primitive.name}, by which it could show private rows, stop at one of "
                    "them, or carry something from one to the next, and no budget covers that; take prints, callbacks, "
                    "run-time checks and mutable state out of it."
                )
            if operation.primitive.name in _TOGETHER or _draws_together(operation):
                raise InputError(_refusal(operation))
    for operation in _along_outer_axes(traced):
        raise InputError(_refusal(operation))


def has_callbacks(traced: ClosedJaxpr) -> bool:
    """Whether a program prints, calls back or otherwise does more than compute."""
    names = {operation.primitive.name for part in _parts([traced]) for operation in part.eqns}
    return bool(traced.effects) or not names.isdisjoint(_BY_NAME)


def _refusal(operation: JaxprEqn) -> str:
    return (
        f"the loss calls {operation.primitive.name}, which may compute rows together that stand side by side, so that "
        "one of them would change what another adds, and no budget covers that; leave custom_vmap, foreign functions "
        "and axes that have names outside the loss out of it, and draw with keys of "
        'jax.random.key(seed, impl="threefry2x32").'
    )


def refuse_data(arrays: Iterable[Any], data: Any) -> None:
    """Refuse arrays of a loss, or its frozen parameters, that lie in the memory of the private data.

    Raises:
      InputError: one of them does.
    """
    private = list(map(np.asarray, jax.tree.leaves(data)))
    for array in map(_on_host, arrays):
        if any(np.may_share_memory(array, other) for other in private):
            raise InputError(
                "the loss or its frozen parameters hold an array of the data themselves, so that every row would add "
                "what depends on others, and no budget covers that; read the values of one row off `row`, and take "
                "what describes all rows from public knowledge."
            )


def constants(traced: Sequence[ClosedJaxpr]) -> Iterator[np.ndarray]:
    """The arrays that a loss holds."""
    for part in _parts(traced):
        yield from map(_on_host, part.consts if isinstance(part, ClosedJaxpr) else ())


def digest(traced: Sequence[ClosedJaxpr]) -> str:
    """SHA-256 of what a loss computes: a function that reads another number at its next run is another loss."""
    total = hashlib.sha256("".join(str(part.jaxpr) for part in traced).encode())
    for constant in constants(traced):
        total.update(f"{constant.dtype}{constant.shape}".encode())
        total.update(np.ascontiguousarray(constant).reshape(-1).view(np.uint8).data)
    return total.hexdigest()


def _parts(traced: Sequence[ClosedJaxpr | Jaxpr]) -> Iterator[ClosedJaxpr | Jaxpr]:
    """Programs and those that their operations call, in order."""
    for part in traced:
        yield part
        for operation in part.eqns:
            inner = jax.tree.leaves(list(operation.params.values()))
            yield from _parts([program for program in inner if isinstance(program, (ClosedJaxpr, Jaxpr))])


def _along_outer_axes(traced: Sequence[ClosedJaxpr | Jaxpr], within: frozenset = frozenset()) -> Iterator[JaxprEqn]:
    """Operations along axes that have names and lie beyond the row, such as one over the parts of a batch: names that
    no program around them gives. JAX has replaced those along axes that `jax.vmap` names within the row."""
    for part in traced:
        for operation in part.eqns:
            names = jax.tree.leaves(operation.params.get("axis_name"))
            axes = jax.tree.leaves(operation.params.get("axes"))  # names, or places in an array
            names += [axis for axis in axes if not isinstance(axis, numbers.Integral)]
            if not within.issuperset(names):
                yield operation
            inner = jax.tree.leaves(list(operation.params.values()))
            programs = [program for program in inner if isinstance(program, (ClosedJaxpr, Jaxpr))]
            mesh_axes = operation.params.get("manual_axes", ())  # those that a shard_map names for its program
            yield from _along_outer_axes(programs, within.union(mesh_axes))


def _draws_together(operation: JaxprEqn) -> bool:
    """True for one that draws with keys of which JAX reads, where it is mapped over several, the first alone."""
    dtypes = [getattr(atom.aval, "dtype", None) for atom in operation.invars]
    keys = [dtype for dtype in dtypes if dtype is not None and jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key)]
    return operation.primitive.name.startswith("random_") and any(key != _threefry() for key in keys)


@functools.cache
def _threefry() -> Any:
    """The type of the keys that JAX draws with for each row as for that row alone."""
    return jax.eval_shape(lambda: jax.random.key(0, impl="threefry2x32")).dtype


def _on_host(array: Any) -> np.ndarray:
    is_key = jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(array) if is_key else array)
