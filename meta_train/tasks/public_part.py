"""The public rows of a task: a part of those that its run would read, which may differ from the others."""

import math

import jax
import jax.numpy as jnp

from l2p.task.rows import Rows
from meta_train.tasks.drawing import between

#: Share of tasks without any public row, and of those with some that are drawn like all others.
NONE, ALIKE = 0.2, 0.4
#: The smallest share of public rows in a task that has some, as part of the largest.
LEAST = 0.02


def with_public_part(key: jax.Array, rows: Rows, most_share: float, most_shift: float) -> tuple[Rows, Rows]:
    """Private rows, of which none is public, and public ones, of tasks with a leading axis.

    A share of a task's rows is public, up to `most_share`, on a logarithmic scale. They are drawn without replacement,
    with probabilities that grow along a random direction of the features by exp(shift * z), for rows that lie z
    standard deviations along it, as `l2p compare --public-shift` draws them. A run reads a public row as one, whatever
    number of private rows each other row stands for.

    Args:
      key: of all tasks.
      rows: of tasks, x f32[B, n, d].
      most_share: the largest share.
      most_shift: the largest shift, in standard deviations; 0 for none.

    Returns:
      Rows with mask 0 where they are public, and rows x f32[B, k, d] for k, the number that may be public at most.
    """
    slots = max(1, math.ceil(most_share * rows.y.shape[1]))

    def part(key: jax.Array, rows: Rows) -> tuple[Rows, Rows]:
        share_key, none_key, shift_key, alike_key, direction_key, order_key = jax.random.split(key, 6)
        counted = rows.mask > 0
        share = between(share_key, (LEAST * most_share, most_share))
        share = jnp.where(jax.random.bernoulli(none_key, NONE), 0.0, share)
        shift = jax.random.uniform(shift_key, maxval=most_shift)
        shift = jnp.where(jax.random.bernoulli(alike_key, ALIKE), 0.0, shift)
        along = rows.x @ jax.random.normal(direction_key, (rows.x.shape[1],))
        mean, count = along.mean(where=counted), counted.sum()
        z = (along - mean) / jnp.maximum(along.std(where=counted), 1e-6)
        # The order of scores with Gumbel noise is that of draws without replacement.
        scores = jnp.where(counted, shift * z + jax.random.gumbel(order_key, z.shape), -jnp.inf)
        _, first = jax.lax.top_k(scores, slots)
        is_public = (jnp.arange(slots) < jnp.ceil(share * count)).astype(jnp.float32)
        public = jax.tree.map(lambda leaf: leaf[first], rows)
        private = rows.replace(mask=rows.mask.at[first].multiply(1.0 - is_public))
        return private, public.replace(mask=public.mask * is_public)

    return jax.vmap(part)(jax.random.split(key, rows.y.shape[0]), rows)
