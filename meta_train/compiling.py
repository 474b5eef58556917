"""Compilation of outer steps: quick, since a training runs each of its programs a few hundred times."""

import functools
from typing import Any

import jax

#: These compile faster and make steps no slower that run for seconds; level 0 would make steps several times slower.
QUICK = {"xla_backend_optimization_level": 1, "xla_cpu_use_fusion_emitters": False}


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
