"""Parts of how tasks are drawn from tables: columns, noise in labels, and which tasks are a table as it is."""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp

from l2p.base.errors import InputError
from l2p.task.rows import Rows

#: Maximum number of columns that are mixed into one continuous column.
MAX_MIXED = 6
#: A task's key is folded with this number to decide whether the task is plain. JAX makes fold i and split key i alike,
#: so it is above the number of keys that a task's key is split into.
PLAIN_KEY = 20


def draw_columns(
    key: jax.Array,
    mix_key: jax.Array,
    num_columns: int,
    num_features: int,
    among: int | jax.Array,
    plain: bool | jax.Array = False,
) -> jax.Array:
    """f32[c, d]: each new column is one of the first `among` of c old ones, or a convex mixture of a few, so that it
    stays in [0, 1]. Where there are fewer old ones the last new ones are zero, like a category that no row has, or
    mixtures; where tasks are `plain` none is a mixture."""
    order = jax.random.permutation(key, num_columns)
    if not isinstance(among, int):
        order = order[jnp.argsort(order >= among, stable=True)]  # padding last, the others still in random order
    single = jax.nn.one_hot(order[:num_features], num_columns).T
    single = jnp.pad(single, ((0, 0), (0, num_features - single.shape[1])))
    share_key, pick_key, weight_key, which_key = jax.random.split(mix_key, 4)
    picked = jax.random.randint(pick_key, (MAX_MIXED, num_features), 0, among)
    weights = jax.random.exponential(weight_key, (MAX_MIXED, num_features))
    weights = weights / weights.sum(0, keepdims=True)
    mixed = jnp.einsum("mdc,md->cd", jax.nn.one_hot(picked, num_columns), weights)
    share = jnp.maximum(jax.random.uniform(share_key, minval=-0.5, maxval=0.6), 0.0)
    share = jnp.where(plain, 0.0, share)
    return jnp.where(jax.random.bernoulli(which_key, share, (1, num_features)), mixed, single)


def is_from_table(num_features: int, among: int | jax.Array) -> jax.Array:
    """bool[1, d], whether a new column stands for an old one; one of zeros would be an intercept if it were flipped."""
    return (jnp.arange(num_features) < among)[None, :]


def is_plain(key: jax.Array, share: float) -> jax.Array:
    """bool[], true for a share of tasks, told from a task's key."""
    return jax.random.bernoulli(jax.random.fold_in(key, PLAIN_KEY), share) if share else jnp.array(False)


def most_features(num_columns: int, plain: float) -> int:
    """The most features of a table's tasks: half of them may be zero where tasks may be a table as it is."""
    return 2 * num_columns if plain else num_columns


def refuse_more(num_features: int | None, num_columns: int, plain: float) -> None:
    """Refuse more features than tasks from a table can have; `InputError`."""
    if num_features is not None and num_features > most_features(num_columns, plain):
        raise InputError(
            f"tasks of {num_features} features cannot be drawn from a table of {num_columns} columns; set "
            "num_features to smaller counts, or to null for the table's own columns."
        )


def with_label_noise(key: jax.Array, x: jax.Array, label: jax.Array, plain: bool | jax.Array = False) -> Rows:
    """Rows whose labels f32[n], 0 or 1, were flipped at a random rate, which is 0 in half of all tasks, and in those
    that are `plain`."""
    noise_key, rate_key = jax.random.split(key)
    rate = noise_rate(rate_key, plain)
    flipped = jax.random.bernoulli(noise_key, rate, label.shape)
    return Rows(x, jnp.where(flipped, 1.0 - label, label).astype(jnp.float32), jnp.ones(label.shape[0], jnp.float32))


def noise_rate(key: jax.Array, plain: bool | jax.Array) -> jax.Array:
    """f32[], the share of labels that are noise."""
    rate = jnp.maximum(jax.random.uniform(key, minval=-0.2, maxval=0.2), 0.0)
    return jnp.where(plain, 0.0, rate)


def with_class_noise(
    keys: jax.Array | Sequence[jax.Array],
    x: jax.Array,
    label: jax.Array,
    num_classes: int,
    plain: bool | jax.Array = False,
) -> Rows:
    """Rows in which a random share of labels i32[n], 0 in half of all tasks and in those that are `plain`, was replaced
    by random classes. Takes three keys."""
    rate_key, noise_key, label_key = keys
    rate = noise_rate(rate_key, plain)
    noisy = jax.random.bernoulli(noise_key, rate, label.shape)
    label = jnp.where(noisy, jax.random.randint(label_key, label.shape, 0, num_classes), label)
    return Rows(x, label.astype(jnp.float32), jnp.ones(label.shape[0], jnp.float32))


def between(key: jax.Array, ends: tuple[float, float]) -> jax.Array:
    """f32[] between the ends, log-uniform."""
    return jnp.exp(jax.random.uniform(key, minval=math.log(ends[0]), maxval=math.log(ends[1])))
