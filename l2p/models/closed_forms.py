"""Where a loss uses its parameters so that the gradient of one row has a closed form."""

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import ClosedJaxpr, JaxprEqn, Literal, Var
from jax.lax import GatherScatterMode

from l2p.base.flat_program import applied, evaluate, flat_program
from l2p.models.parts import Form, Lookup, Part, Product, Whole

#: Operations that put each number of an array at one place.
_MOVES = ("reshape", "transpose", "squeeze", "expand_dims", "broadcast_in_dim", "convert_element_type")


@dataclasses.dataclass(frozen=True, eq=False)
class _Use:
    """The one operation that an array is used in.

    Attributes:
      form: how the gradient of the array lies in a part.
      operation: of the program.
      beside: the place among its inputs of what the array meets.
      places: how many of a row's activations or lookups meet it: T.
      part: from these and the derivative f32[...] in the outcome to a part.
    """

    form: Form
    operation: JaxprEqn
    beside: int
    places: int
    part: Callable[[Any, jax.Array], Part]


@dataclasses.dataclass(frozen=True, eq=False)
class RowGradient:
    """The gradient of one row's loss, array by array.

    Attributes:
      program: of (arrays, row) -> loss.
      forms: how the gradient of each array lies in a part.
      uses: by array, None where its form is whole.
    """

    program: ClosedJaxpr
    forms: tuple[Form, ...]
    uses: tuple[_Use | None, ...]

    @classmethod
    def of(
        cls, loss: Callable[[list[Any], Any], jax.Array], arrays: Sequence[Any], row: Any, exact: bool
    ) -> "RowGradient":
        """The gradient of a loss of a list of arrays and a row, traced on shapes, with 32-bit numbers.

        Args:
          exact: True leaves products at several places whole: numbers of their factors may cancel, so that no bound on
            these bounds the gradient by much.
        """
        with jax.enable_x64(False):
            program = flat_program(loss, list(arrays), row)
        uses = [use if use and _pays(use, exact) else None for use in _uses(program, len(arrays))]
        forms = [Whole.of(array) if use is None else use.form for array, use in zip(arrays, uses, strict=True)]
        return cls(program, tuple(forms), tuple(uses))

    @property
    def forms_matrices(self) -> bool:
        """Whether parts hold whole gradients of arrays with two axes or more."""
        return any(isinstance(form, Whole) and len(form.shape) > 1 for form in self.forms)

    def parts(self, arrays: Sequence[jax.Array], row: Any) -> list[Part]:
        """The gradient f32 of one row: one pass forwards, in which a zero is added to the outcome of each use, and one
        back, to these zeros and to the arrays whose form is whole."""

        def loss(free: list[Any], shifts: list[Any]) -> tuple[jax.Array, list[Any]]:
            met: list[Any] = [None] * len(self.uses)

            def apply(operation: JaxprEqn, inputs: list[Any]) -> Sequence[Any]:
                outputs = applied(operation, inputs)
                for index, use in enumerate(self.uses):
                    if use is not None and use.operation is operation:
                        met[index] = inputs[use.beside]
                        return [outputs[0] + shifts[index]]
                return outputs

            filled = [array if part is None else part for array, part in zip(arrays, free, strict=True)]
            (value,) = evaluate(self.program, [*filled, *jax.tree.leaves(row)], apply)
            return value.astype(jnp.float32), met

        free = [array if use is None else None for array, use in zip(arrays, self.uses, strict=True)]
        outcomes = [None if use is None else _shape(use.operation.outvars[0]) for use in self.uses]
        shifts = [None if outcome is None else jnp.zeros(outcome.shape, outcome.dtype) for outcome in outcomes]
        with jax.enable_x64(False):
            (whole, derivatives), met = jax.grad(loss, (0, 1), has_aux=True)(free, shifts)
            return [
                Part(None, whole[index].astype(jnp.float32))
                if use is None
                else use.part(met[index], derivatives[index].astype(jnp.float32))
                for index, use in enumerate(self.uses)
            ]


def _uses(program: ClosedJaxpr, count: int) -> Iterator[_Use | None]:
    """The use of each of the first `count` inputs of a program; None for one that has several, or has none of a form
    that is known here."""
    arrays, row = program.jaxpr.invars[:count], program.jaxpr.invars[count:]
    readers = Counter(atom for atom in _read(program) if isinstance(atom, Var))
    of_row = set(row)
    for operation in program.jaxpr.eqns:
        if not of_row.isdisjoint(atom for atom in operation.invars if isinstance(atom, Var)):
            of_row.update(operation.outvars)
    for array in arrays:
        used, moves = array, []
        while (operation := _only_reader(program, used, readers)) is not None and _is_move(operation):
            moves.append(operation)
            used = operation.outvars[0]
        yield None if operation is None else _use(operation, used, _moved(moves), _shape(array).shape, of_row)


def _read(program: ClosedJaxpr) -> Iterator[Any]:
    """What operations read and the program returns, as often as they do."""
    for operation in program.jaxpr.eqns:
        yield from operation.invars
    yield from program.jaxpr.outvars


def _only_reader(program: ClosedJaxpr, used: Var, readers: Counter[Var]) -> JaxprEqn | None:
    if readers[used] != 1:
        return None
    return next((operation for operation in program.jaxpr.eqns if used in operation.invars), None)


def _shape(atom: Any) -> jax.ShapeDtypeStruct:
    """Of a variable or a constant of a program."""
    return jax.ShapeDtypeStruct(atom.aval.shape, atom.aval.dtype)


def _is_move(operation: JaxprEqn) -> bool:
    if operation.primitive.name not in _MOVES or len(operation.invars) != 1:
        return False
    before, after = _shape(operation.invars[0]), _shape(operation.outvars[0])
    return before.size == after.size and jnp.issubdtype(after.dtype, jnp.floating)  # whole numbers have no derivative


def _moved(moves: Sequence[JaxprEqn]) -> Callable[[jax.Array], jax.Array]:
    """The moves as a function of an array of any type."""

    def moved(array: jax.Array) -> jax.Array:
        for operation in moves:
            if operation.primitive.name != "convert_element_type":
                (array,) = applied(operation, [array])
        return array

    return moved


def _use(
    operation: JaxprEqn, used: Var, moved: Callable[[jax.Array], jax.Array], shape: tuple[int, ...], of_row: set[Var]
) -> _Use | None:
    """The use of an array in an operation that it reaches by moves, if it is of a form that is known here."""
    beside = 1 - operation.invars.index(used)
    if not 0 <= beside < len(operation.invars):
        return None
    if isinstance(operation.invars[beside], Literal) or operation.invars[beside] not in of_row:
        return None
    if operation.primitive.name == "dot_general":
        return _product(operation, beside, moved, shape)
    if operation.primitive.name in ("gather", "dynamic_slice") and beside == 1:
        return _lookup(operation, used, moved, shape)
    return None


def _product(
    operation: JaxprEqn, beside: int, moved: Callable[[jax.Array], jax.Array], shape: tuple[int, ...]
) -> _Use | None:
    """A product of activations with weights that share no axis but those that are summed."""
    contracted, batched = operation.params["dimension_numbers"]
    if batched[0]:
        return None
    weights, activations = (_shape(operation.invars[side]) for side in (1 - beside, beside))
    summed, summed_beside = contracted[1 - beside], contracted[beside]
    free = [axis for axis in range(weights.ndim) if axis not in summed]
    free_beside = [axis for axis in range(activations.ndim) if axis not in summed_beside]
    order = [*summed, *free]
    inputs, outputs = (math.prod(weights.shape[axis] for axis in axes) for axes in (summed, free))
    places = math.prod(activations.shape[axis] for axis in free_beside)

    def part(met: jax.Array, derivative: jax.Array) -> Part:
        fixed = met.transpose((*free_beside, *summed_beside)).reshape(places, inputs).astype(jnp.float32)
        in_places = derivative.reshape(places, outputs) if beside == 0 else derivative.reshape(outputs, places).T
        return Part(fixed, in_places)

    axes = tuple(weights.shape[axis] for axis in order), tuple(order.index(axis) for axis in range(weights.ndim))
    return _Use(Product(shape, moved, (inputs, outputs), axes), operation, beside, places, part)


def _lookup(
    operation: JaxprEqn, used: Var, moved: Callable[[jax.Array], jax.Array], shape: tuple[int, ...]
) -> _Use | None:
    """Lines of a table at indices of a row."""
    table, indices = _shape(used), _shape(operation.invars[1])
    if table.ndim == 0 or operation.params["slice_sizes"] != (1, *table.shape[1:]):
        return None
    if operation.primitive.name == "gather":
        numbers, places = operation.params["dimension_numbers"], math.prod(indices.shape[:-1])
        trailing = tuple(range(indices.ndim - 1, indices.ndim + table.ndim - 2))
        by_line = (numbers.offset_dims, numbers.collapsed_slice_dims, numbers.start_index_map) == (trailing, (0,), (0,))
        if not by_line or numbers.operand_batching_dims:
            return None
        clips = operation.params["mode"] == GatherScatterMode.CLIP
    else:
        places, clips = 1, True
    lines, width = table.shape[0], math.prod(table.shape[1:])

    def part(met: jax.Array, derivative: jax.Array) -> Part:
        line = met.reshape(places).astype(jnp.int32)  # bytes could not say that a line is beyond the table
        line = jnp.clip(line, 0, lines - 1) if clips else jnp.where((line >= 0) & (line < lines), line, lines)
        same = line[:, None] == line[None, :]
        is_first = ~jnp.tril(same, -1).any(1) & (line < lines)
        vectors = same.astype(jnp.float32) @ derivative.reshape(places, width)
        return Part(line, jnp.where(is_first[:, None], vectors, 0.0))

    return _Use(Lookup(shape, moved, lines), operation, 1, places, part)


def _pays(use: _Use, exact: bool) -> bool:
    """True where a part is less work than the whole gradient."""
    form, places = use.form, use.places
    if isinstance(form, Lookup):
        return places**2 <= form.lines
    assert isinstance(form, Product)
    (inputs, outputs) = form.sizes
    return places == 1 or (not exact and places * (inputs + outputs) <= inputs * outputs)
