"""A loss that draws, as dropout does: loss(params, row, key), with a key of its own for each row and step.

The key is a digest of the row and of params alone. What a row adds therefore depends on nothing but that row and
released params, whatever rows stand beside it and wherever it stands, under every adjacency; and params differ from
step to step by the run's noise, so that every step draws anew.
"""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from l2p.base.layout import Layout
from l2p.models.custom import hashable


@dataclasses.dataclass(frozen=True)
class Drawing:
    """A loss(params, row) that hands loss(params, row, key) the key of the row and of params."""

    function: Callable[[Any, Any, jax.Array], Any]

    def __call__(self, params: Any, row: Any) -> Any:
        words = [_mixed(_digest(params, seed) * jnp.uint32(0x9E3779B1) + _digest(row, seed)) for seed in range(2)]
        # Folded in, so that keys of similar digests are no more alike than others.
        key = jax.random.fold_in(jax.random.wrap_key_data(jnp.stack(words), impl="threefry2x32"), 1)
        return self.function(params, row, key)


def drawing(loss: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    """The loss, or, if it takes a key as its third argument, one that makes the key.

    >>> drawing(lambda params, row: 0.0).__name__, drawing(lambda params, row, key: 0.0).__class__.__name__
    ('<lambda>', 'Drawing')
    """
    try:
        arguments = inspect.signature(loss).parameters.values()
    except (TypeError, ValueError):  # of a function that does not say
        return loss
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [argument for argument in arguments if argument.kind in positional and argument.default is argument.empty]
    return Drawing(hashable(loss)) if len(needed) == 3 else loss


def _digest(tree: Any, seed: int) -> jax.Array:
    """A digest u32[] of the numbers of a pytree, in their order."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array) and leaf.dtype != jax.dtypes.float0]
    numbers = [leaf for leaf in leaves if not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)]
    vector = jax.lax.stop_gradient(Layout.of(numbers).flat_on_device(numbers))
    bits = jax.lax.bitcast_convert_type(vector, jnp.uint32)
    places = 2 * jnp.arange(len(bits), dtype=jnp.uint32) + jnp.uint32(2 * seed + 1)
    mixed = _mixed(_mixed(bits) * (places * jnp.uint32(0x9E3779B1)))
    return _mixed(mixed.sum(dtype=jnp.uint32))


def _mixed(words: jax.Array) -> jax.Array:
    """Words u32[...] of which every bit depends on all bits of one (the finalizer of MurmurHash3)."""
    words = (words ^ (words >> 16)) * jnp.uint32(0x85EBCA6B)
    words = (words ^ (words >> 13)) * jnp.uint32(0xC2B2AE35)
    return words ^ (words >> 16)
