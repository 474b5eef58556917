"""Public weights of classes: how much a row of each counts in what is learned.

A row's part in a sum is limited first and then multiplied by its class's weight over the largest weight. That share is
at most 1, so the part stays within the bound, and no sensitivity changes. docs/proofs.md has the proof.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base.errors import InputError


def shares(weights: Sequence[float]) -> jax.Array:
    """Each class's weight over the largest: f32[K], above 0 and at most 1.

    >>> shares([1, 4]).tolist()
    [0.25, 1.0]
    """
    exact = np.asarray(weights, np.float64)
    return jnp.asarray((exact / exact.max()).astype(np.float32))


def of_rows(shares: jax.Array, y: jax.Array) -> jax.Array:
    """Weight of each row, f32[...], by its class y f32[...], one of 0 to K - 1; shares f32[K].

    >>> of_rows(shares([1, 4]), jnp.array([1.0, 0.0])).tolist()
    [1.0, 0.25]
    """
    return shares[jnp.clip(y, 0, len(shares) - 1).astype(jnp.int32)]


def check_weighed(name: str, additive: bool) -> None:
    """Refuse the protector or query `name` unless what it asks for is a sum, whose rows can be weighed.

    Raises:
      InputError: it is solved on all rows at once.
    """
    if not additive:
        raise InputError(
            f"the schema declares class weights, but {name} is solved on all rows at once, with a proof for rows that "
            "count in full; choose a method that asks for sums (noisygd, dpsgd, auto_clip, control, universal or "
            "adassp), or leave the weights out."
        )
