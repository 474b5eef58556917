"""How functions are compiled: as one, in runs over rows that stream, and quickly.

A run over rows that stream is no compiled program: between two passes each operation is compiled by itself, and XLA
keeps 1.4 MB for each. `as_one` compiles a function's operations together there. Inside `jax.jit` it changes nothing,
for its operations take part in the surrounding program as if it were not there.
"""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import jax

Function = TypeVar("Function", bound=Callable[..., Any])

#: These halve the time to compile and make steps on many rows up to a quarter slower; level 0 would make them several
#: times slower. jax 0.12 has dropped the second, and the first alone saves no time there.
QUICK = {"xla_backend_optimization_level": 1, "xla_cpu_use_fusion_emitters": False}


def as_one(function: Function, static: tuple[str, ...] = ()) -> Function:
    """The function, compiled as one where it is called outside a compiled program.

    Args:
      function: of arrays and pytrees.
      static: names of arguments that are neither.
    """
    return cast(Function, jax.jit(function, inline=True, static_argnames=static))


def as_program(function: Function, static: tuple[str, ...] = ()) -> Function:
    """The function as a program of its own; arguments are those of `as_one`."""
    return cast(Function, jax.jit(function, static_argnames=static))


def quickly(function: Function, static: tuple[str, ...] = ()) -> Function:
    """`as_program`, compiled with `quick_options`."""

    @functools.cache
    def program() -> Function:  # on first use, because options depend on the backend
        return cast(Function, jax.jit(function, static_argnames=static, compiler_options=quick_options()))

    @functools.wraps(function)
    def run(*args: Any, **arguments: Any) -> Any:
        return program()(*args, **arguments)

    return cast(Function, run)


@functools.cache
def quick_options() -> dict[str, Any]:
    """Compiler options for `jax.jit`; none where the backend is no CPU or does not know them."""
    if jax.default_backend() != "cpu":
        return {}
    try:
        jax.jit(lambda: 0, compiler_options=dict(QUICK)).lower().compile()
    except jax.errors.JaxRuntimeError:
        return {}
    return dict(QUICK)
