"""A function as one flat list of operations, those of functions under `jax.jit` within it among its own."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, jaxpr_as_fun

#: From an operation and its inputs to its outputs.
Apply = Callable[[JaxprEqn, list[Any]], Sequence[Any]]


def flat_program(function: Callable[..., Any], *shapes: Any) -> ClosedJaxpr:
    """The program of a function of pytrees, traced on their shapes.

    >>> nested = jax.jit(lambda x: 2 * x)
    >>> [operation.primitive.name for operation in flat_program(lambda x: nested(x) + 1, 1.0).eqns]
    ['mul', 'add']
    """
    traced, leaves = jax.make_jaxpr(function)(*shapes), jax.tree.leaves(shapes)
    return jax.make_jaxpr(lambda *inputs: evaluate(traced, inputs, _inlined))(*leaves)


def evaluate(program: ClosedJaxpr, inputs: Sequence[Any], apply: Apply) -> list[Any]:
    """Outputs of a program of which `apply` carries out each operation."""
    values = dict(zip(program.jaxpr.constvars, program.consts, strict=True))
    values |= zip(program.jaxpr.invars, inputs, strict=True)

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, Literal) else values[atom]

    for operation in program.jaxpr.eqns:
        values |= zip(operation.outvars, apply(operation, list(map(read, operation.invars))), strict=True)
    return list(map(read, program.jaxpr.outvars))


def applied(operation: JaxprEqn, inputs: list[Any]) -> Sequence[Any]:
    """Outputs of an operation as it is."""
    pairs = zip(operation.invars, inputs, strict=True)
    variables = {atom: value for atom, value in pairs if not isinstance(atom, Literal)}
    alone = _nothing().replace(
        invars=list(variables), outvars=operation.outvars, eqns=[operation], effects=operation.effects
    )
    return jaxpr_as_fun(ClosedJaxpr(alone, ()))(*variables.values())


@functools.cache
def _nothing() -> Jaxpr:
    """A program without operations, whose constructor wants what only JAX can tell it."""
    return jax.make_jaxpr(lambda: ())().jaxpr


def _inlined(operation: JaxprEqn, inputs: list[Any]) -> Sequence[Any]:
    if operation.primitive.name == "jit":
        return evaluate(operation.params["jaxpr"], inputs, _inlined)
    return applied(operation, inputs)
