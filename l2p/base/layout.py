"""Arrays of a pytree, one after the other in a flat vector of float32 numbers."""

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

#: The largest whole number up to which float32 holds all of them.
MOST_WHOLE = 2**24


def path_names(tree: Any) -> list[str]:
    """Paths of the leaves of a pytree, in order.

    >>> path_names({"layers": [{"w": 1.0}, {"w": 2.0}]})
    ['layers/0/w', 'layers/1/w']
    """
    paths, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in paths]


@dataclasses.dataclass(frozen=True)
class Layout:
    """How the arrays of a pytree lie in a vector. Instances are hashable: they are static under `jax.jit`.

    Attributes:
      tree: structure of the pytree.
      shapes, dtypes: of its arrays, in order.
    """

    tree: jax.tree_util.PyTreeDef
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]

    @classmethod
    def of(cls, tree: Any, stacked: int = 0) -> "Layout":
        """The layout of a pytree of arrays, without so many leading axes of each.

        >>> Layout.of({"x": np.zeros((5, 2, 3)), "y": np.zeros(5, int)}, stacked=1).size
        7
        """
        leaves, structure = jax.tree.flatten(tree)
        return cls(structure, tuple(leaf.shape[stacked:] for leaf in leaves), tuple(leaf.dtype.name for leaf in leaves))

    @property
    def size(self) -> int:
        """Length of the vector."""
        return sum(map(math.prod, self.shapes))

    def flat(self, tree: Any) -> np.ndarray:
        """The vector f32[size], or f32[n, size] of arrays with one leading axis more, on the host."""
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
        stacked = [leaf.shape[: leaf.ndim - len(shape)] for leaf, shape in zip(leaves, self.shapes, strict=True)]
        sizes = map(math.prod, self.shapes)
        flat = [leaf.reshape(*lead, size) for leaf, lead, size in zip(leaves, stacked, sizes, strict=True)]
        with np.errstate(all="ignore"):  # a warning of numbers too large would tell of a private row
            return np.concatenate([part.astype(np.float32) for part in flat], axis=-1)

    def flat_on_device(self, tree: Any) -> jax.Array:
        """The same as `flat`, of arrays that may be traced."""
        leaves = zip(map(jnp.asarray, jax.tree.leaves(tree)), self.shapes, strict=True)
        flat = [leaf.reshape(*leaf.shape[: leaf.ndim - len(shape)], math.prod(shape)) for leaf, shape in leaves]
        return jnp.concatenate([part.astype(jnp.float32) for part in flat], axis=-1)

    def tree_of(self, vector: jax.Array) -> Any:
        """The pytree of a vector f32[size], each array in its own type, or in 32 bits where that has 64."""
        leaves, start = [], 0
        for shape, dtype in zip(self.shapes, self.dtypes, strict=True):
            part = vector[start : start + math.prod(shape)].reshape(shape)
            leaves.append(part.astype(_in_32_bits(dtype)))
            start += math.prod(shape)
        return jax.tree.unflatten(self.tree, leaves)


def _in_32_bits(name: str) -> jnp.dtype:
    dtype = jnp.dtype(name)
    return jnp.dtype(name.replace("64", "32")) if dtype.itemsize == 8 else dtype
