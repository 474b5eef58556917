"""Meta-gradients through runs that diverge: finite, and pointing towards shorter steps.

Where steps are too long a run is chaotic, and backpropagation through it gives a huge vector with no useful direction
(Metz et al. 2021, "Gradients are not all you need"). Clipping the final gradient keeps that useless direction. Clipped
between every two steps of the backward pass, the gradient loses the influence of early steps before it explodes: what
remains is the effect of the last few steps, which shows that they were too long.
"""

from typing import Any, cast

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.oracle import Oracle
from l2p.oracle.setup import Setup
from l2p.privacy.cost.sampling import Sampler
from l2p.run.protector import Protector, State
from l2p.task.feature_map import FeatureMap


@jax.custom_vjp
def clip_cotangent(tree: Any, limit: float) -> Any:
    """The identity, whose cotangent is clipped to L2 norm `limit` over all its leaves."""
    del limit
    return tree


def _forward(tree: Any, limit: float) -> tuple[Any, float]:
    return tree, limit


def _backward(limit: float, cotangent: Any) -> tuple[Any, None]:
    floats = [leaf for leaf in jax.tree.leaves(cotangent) if jnp.issubdtype(leaf.dtype, jnp.floating)]
    # Large numbers would overflow when squared.
    largest = jnp.maximum(jnp.stack([jnp.abs(leaf).max() for leaf in floats if leaf.size]).max(), 1e-30)
    norm = largest * jnp.sqrt(sum(jnp.square(leaf / largest).sum() for leaf in floats))
    factor = jnp.where(jnp.isfinite(norm), jnp.minimum(1.0, limit / norm), 0.0)

    def clip(leaf: jax.Array) -> jax.Array:
        return jnp.where(jnp.isfinite(leaf), leaf, 0.0) * factor if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    return jax.tree.map(clip, cotangent), None


clip_cotangent.defvjp(_forward, _backward)


@struct.dataclass
class Damped(Protector):
    """A protector that runs unchanged, and whose cotangents of params and state are clipped between steps.

    Attributes:
      inner: the protector.
      limit: maximum L2 norm of a meta-gradient between two steps (static).
    """

    inner: Protector
    limit: float = struct.field(pytree_node=False)

    @property
    def num_steps(self) -> int:  # type: ignore[override]
        return self.inner.num_steps

    @property
    def sampler(self) -> Sampler:  # type: ignore[override]
        return self.inner.sampler

    @property
    def mechanisms(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.inner.mechanisms

    def init(self, params: jax.Array, oracle: Oracle) -> tuple[jax.Array, State]:
        return self.inner.init(params, oracle)

    def view(self, state: State) -> FeatureMap | None:
        return self.inner.view(state)

    def step(self, params: jax.Array, state: State, oracle: Oracle) -> tuple[jax.Array, State]:
        params, state = clip_cotangent((params, state), self.limit)
        return self.inner.step(params, state, oracle)

    def finish(self, params: jax.Array, state: State, setup: Setup) -> jax.Array:
        return self.inner.finish(params, state, setup)


def damped(protector: Protector, limit: float | None) -> Protector:
    """The protector, damped if there is a limit."""
    return protector if limit is None else cast(Any, Damped)(protector, limit)
