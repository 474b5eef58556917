"""Functions that are compiled as one, in runs over rows that stream.

Such a run is no compiled program: between two passes each operation is compiled by itself, and XLA keeps 1.4 MB for
each. `as_one` compiles a function's operations together there. Inside `jax.jit` it changes nothing, for its operations
take part in the surrounding program as if it were not there.
"""

import functools

import jax

as_one = functools.partial(jax.jit, inline=True)
