"""The tunable numbers of a protector, and a method's constants as functions of the budget."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base import struct
from l2p.base.errors import InputError
from l2p.protectors.conditioning import Covariates, standardize
from l2p.protectors.fields import has_knots, kinds


def tunable(protector: Any) -> Any:
    """The pytree of a protector or a part of one with each leaf replaced by True if it may be tuned.

    Floating-point leaves may, except in a field listed in its class's `fixed`, a ClassVar of names, for public choices
    that a proof or a scale depends on. Integers may not.

    >>> from l2p.protectors import Decaying
    >>> tunable(Decaying(log_clip_norm=jnp.zeros(1), rate=jnp.zeros(1, int))).rate
    False
    """

    def is_tunable(path: tuple, leaf: jax.Array) -> bool:
        fields = _fields(protector, path)
        return _is_float(leaf) and not any(name in getattr(type(owner), "fixed", ()) for owner, name in fields)

    return jax.tree_util.tree_map_with_path(is_tunable, protector)


def by_difference(protector: Any) -> Any:
    """The same with True if a leaf may be tuned, but not by its derivative: a field in its class's `by_difference`.

    >>> from l2p.protectors import RowLength
    >>> by_difference(RowLength(jnp.zeros((1, 6)), jnp.ones(()))).logit_share
    False
    """

    def is_marked(path: tuple, leaf: jax.Array) -> bool:
        owner, name = _fields(protector, path)[-1]
        return _is_float(leaf) and name in getattr(type(owner), "by_difference", ())

    return jax.tree_util.tree_map_with_path(is_marked, protector)


def of_wide_tables(protector: Any, *indicators: str) -> Any:
    """The pytree of a protector or a part of one with 1 at each number that only runs on wide or on very wide tables
    read, and 0 at all others.

    These are the last numbers of the knots of curves, which count only there (`conditioning.Covariates`).

    Args:
      indicators: which of them, "wide" or "very_wide"; both by default.

    >>> from l2p.protectors import RowLength
    >>> of_wide_tables(RowLength(jnp.zeros((1, 6)), jnp.ones(()))).logit_share.tolist()
    [[0.0, 0.0, 0.0, 0.0, 1.0, 1.0]]
    """
    columns = [Covariates._fields.index(name) for name in indicators or ("wide", "very_wide")]

    def mask(path: tuple, leaf: jax.Array) -> jax.Array:
        owner, name = _fields(protector, path)[-1]
        zeros = jnp.zeros_like(leaf)
        return zeros.at[:, jnp.array(columns)].set(1.0) if has_knots(leaf, kinds(type(owner))[name]) else zeros

    return jax.tree_util.tree_map_with_path(mask, protector)


def constant_term(leaf: jax.Array) -> jax.Array:
    """1 at the numbers of a constant, of a polynomial's coefficients f32[k] or of knots f32[k, 6] whose common change
    is that of the value at every budget, and 0 at the others.

    >>> constant_term(jnp.zeros(3)).tolist(), constant_term(jnp.zeros((2, 6)))[1].tolist()
    ([1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0, 0.0, 0.0])
    """
    zeros = jnp.zeros_like(leaf)
    return zeros + 1.0 if leaf.ndim == 0 else zeros.at[0].set(1.0) if leaf.ndim == 1 else zeros.at[:, 0].set(1.0)


def of_parts(protector: Any, kind: type | tuple[type, ...]) -> Any:
    """The same with 1 at the numbers of parts of a class, or of some classes, and 0 at all others."""

    def mask(path: tuple, leaf: jax.Array) -> jax.Array:
        fill = jnp.ones_like if isinstance(_fields(protector, path)[-1][0], kind) else jnp.zeros_like
        return fill(leaf)

    return jax.tree_util.tree_map_with_path(mask, protector)


def _fields(protector: Any, path: tuple) -> list[tuple[Any, str]]:
    """The fields that lead to a leaf, the outermost first: their owners and names."""
    fields, owner = [], protector
    for entry in path:
        if isinstance(entry, jax.tree_util.GetAttrKey):
            fields.append((owner, entry.name))
            owner = struct.children(owner)[entry.name]
        else:
            owner = owner[getattr(entry, "key", getattr(entry, "idx", None))]
    return fields


def around(protector: Any, spread: jax.typing.ArrayLike, key: jax.Array) -> Any:
    """`protector` with Gaussian steps of standard deviation `spread` in its tunable leaves.

    The fields of a protector are logs, logits or weights, so additive steps suit them. Each higher power of a
    polynomial moves half as much, and half of all fields stay.

    >>> from l2p.protectors import Decaying
    >>> start = Decaying(log_clip_norm=jnp.zeros(1), rate=jnp.zeros(1, int))
    >>> moved = [around(start, 1.0, jax.random.key(seed)).log_clip_norm.item() for seed in range(40)]
    >>> 10 < moved.count(0.0) < 30
    True
    """

    def moved_leaf(index: int, leaf: jax.Array) -> jax.Array:
        noise_key, stay_key = jax.random.split(jax.random.fold_in(key, index))
        powers = 0.5 ** jnp.arange(leaf.shape[0]).reshape((-1,) + (1,) * (leaf.ndim - 1)) if leaf.ndim else 1.0
        change = spread * powers * jax.random.normal(noise_key, leaf.shape) * jax.random.bernoulli(stay_key)
        return leaf + change.astype(leaf.dtype)

    leaves, tree = jax.tree.flatten(protector)
    allowed = jax.tree.leaves(tunable(protector))
    moved = [moved_leaf(index, jnp.asarray(leaf)) if allowed[index] else leaf for index, leaf in enumerate(leaves)]
    return jax.tree.unflatten(tree, moved)


def partition(protector: Any) -> tuple[Any, Any]:
    """Two copies, one with only the floating-point leaves and one with the others, None elsewhere; `combine` is the
    inverse."""
    floats = jax.tree.map(lambda leaf: leaf if _is_float(leaf) else None, protector)
    return floats, jax.tree.map(lambda leaf: None if _is_float(leaf) else leaf, protector)


def combine(floats: Any, others: Any) -> Any:
    """The protector with these leaves."""
    return jax.tree.map(
        lambda number, rest: rest if number is None else number, floats, others, is_leaf=lambda leaf: leaf is None
    )


def lift(starts: Sequence[Any], log_signals: Sequence[float]) -> Any:
    """One method's settings at k budgets as one protector, its constants now polynomials in log(mu N).

    Args:
      starts: the method set up at each budget; they may only differ in values of leaves.
      log_signals: log(mu N) of each budget, distinct and within the range that `standardize` clips to.

    Returns:
      The middle one, with every tunable f32[1, ...] turned into the polynomial f32[k, ...] through the values at each
      budget; if all are equal, exactly that constant. Other leaves and static fields stay unchanged.

    >>> from l2p.protectors import Decaying
    >>> starts = [Decaying(jnp.array([clip]), jnp.array([0.5])) for clip in (1.0, 2.0)]
    >>> lifted = lift(starts, [0.7, 8.7])
    >>> lifted.log_clip_norm.tolist(), lifted.rate.tolist()
    ([1.5, 0.25], [0.5, 0.0])
    """
    positions = np.array([standardize(jnp.float32(signal)) for signal in log_signals], np.float64)
    powers = np.vander(positions, increasing=True)
    values = [jax.tree.leaves(start) for start in starts]
    middle = starts[len(starts) // 2]
    allowed, tree = jax.tree.flatten(tunable(middle))

    def polynomial(index: int, leaf: jax.Array) -> jax.Array:
        if not allowed[index] or leaf.ndim == 0 or leaf.shape[0] != 1:
            return leaf
        at_budgets = np.stack([np.asarray(leaves[index][0], np.float64) for leaves in values])
        if (at_budgets == at_budgets[0]).all():
            coefficients = np.concatenate([at_budgets[:1], np.zeros_like(at_budgets[1:])])
        else:
            coefficients = np.linalg.solve(powers, at_budgets.reshape(len(starts), -1)).reshape(at_budgets.shape)
        return jnp.asarray(coefficients, leaf.dtype)

    return jax.tree.unflatten(tree, [polynomial(index, leaf) for index, leaf in enumerate(jax.tree.leaves(middle))])


def with_tuned(start: Any, tuned: Any) -> Any:
    """`start`, a method set up for the current run, with the tunable leaves of `tuned`, a `lift` of it.

    Values that a method derives from the budget and the number of rows (batch sizes, steps, fixed fields) come from
    `start`.

    Raises:
      InputError: the method has other fields now than when it was tuned.
    """
    tuned_leaves = dict(_named(tuned))
    if tuned_leaves.keys() != dict(_named(start)).keys():
        raise InputError(
            "a method has other fields now than when it was tuned, so the tuned ones do not fit it; tune it again."
        )
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf, allowed: tuned_leaves[jax.tree_util.keystr(path)] if allowed else leaf, start, tunable(start)
    )


def _named(protector: Any) -> list[tuple[str, jax.Array]]:
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in jax.tree_util.tree_leaves_with_path(protector)]


def _is_float(leaf: Any) -> bool:
    return jnp.issubdtype(jnp.asarray(leaf).dtype, jnp.floating)
