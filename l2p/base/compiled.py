"""Functions that are compiled as one, in runs over rows that stream.

Such a run is no compiled program: between two passes each operation is compiled by itself, and XLA keeps 1.4 MB for
each. `as_one` compiles a function's operations together there. Inside `jax.jit` it changes nothing, for its operations
take part in the surrounding program as if it were not there.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import jax

Function = TypeVar("Function", bound=Callable[..., Any])


def as_one(function: Function, static: tuple[str, ...] = ()) -> Function:
    """The function, compiled as one where it is called outside a compiled program.

    Args:
      function: of arrays and pytrees.
      static: names of arguments that are neither.
    """
    return cast(Function, jax.jit(function, inline=True, static_argnames=static))
