"""Steps over batches of rows, one batch after another, for queries that go through the rows in order."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from l2p.models import GeneralizedLinear
from l2p.privacy.sensitivity.passes import Passes
from l2p.queries.shrunk import shrunk
from l2p.task.noise import Noise
from l2p.task.rows import Rows

#: Matrix f[p, K] of params, one column for each one-vs-rest problem.
Matrix = jax.Array


class ShrunkRows(NamedTuple):
    """Rows as a step reads them, shrunk to a norm.

    Attributes:
      table: f[n, p], with their intercept column.
      targets: f[n, K], in [0, 1].
      counted: f[n], 0 for null rows.
    """

    table: jax.Array
    targets: jax.Array
    counted: jax.Array


def shrunk_rows(rows: Rows, norm_bound: float, num_classes: int) -> ShrunkRows:
    """All rows, with the labels of one problem, or of K: each class against the others."""
    table, labels = shrunk(rows, jnp.asarray(norm_bound, jnp.float32))
    targets = labels[:, None]
    if num_classes > 1:
        targets = (rows.y[:, None] == jnp.arange(num_classes)[None, :]).astype(table.dtype)
    return ShrunkRows(table, targets, rows.mask.astype(table.dtype))


def gradient_sum(loss: GeneralizedLinear, params: Matrix, rows: ShrunkRows) -> Matrix:
    """Sum of the rows' gradients, f[p, K]."""
    residual = loss.residual(rows.table @ params, rows.targets) * rows.counted[:, None]
    return rows.table.T @ residual


def projected(params: Matrix, radius: float) -> Matrix:
    """Each column of f[p, K] brought into the ball of this radius, if it is outside."""
    if radius == jnp.inf:
        return params
    norms = jnp.sqrt(jnp.square(params).sum(0, keepdims=True))
    return params * jnp.where(norms > radius, radius / jnp.maximum(norms, radius), 1.0)


def orders(plan: Passes, noise: Noise) -> jax.Array:
    """i32[k, T / k * b], the lines of each pass in the order in which they are read; -1 where its last batch is not
    full."""
    size = plan.steps_per_pass * plan.batch_size
    if plan.order == "with_replacement":
        return noise.subsets(plan.num_rows, plan.num_passes * size, 1).reshape(plan.num_passes, size)
    drawn = noise.orders(plan.num_rows, plan.num_passes if plan.order == "fresh" else 1)
    padded = jnp.pad(drawn, ((0, 0), (0, size - plan.num_rows)), constant_values=-1)
    return jnp.broadcast_to(padded, (plan.num_passes, size))


def orders_in_turn(plan: Passes, noise: Noise) -> Iterator[np.ndarray]:
    """The same orders of permuted rows, i32[m] of each pass at its turn; the next may overwrite it."""
    if plan.order == "fresh":
        return noise.orders_in_turn(plan.num_rows, plan.num_passes)
    (order,) = noise.orders_in_turn(plan.num_rows, 1)
    return itertools.repeat(order, plan.num_passes)


Step = Callable[[Any, tuple], tuple[Any, None]]


def one_pass(plan: Passes, step: Step, carry: Any, rows: ShrunkRows, order: jax.Array, *per_step: jax.Array) -> Any:
    """`carry` after `step(carry, (batch, *slices of per_step f[T / k, ...]))` for every batch of one pass.

    Lines that the table lacks, like -1, count as null rows.
    """
    exists = (order >= 0) & (order < rows.counted.shape[0])
    picked = jax.tree.map(lambda leaf: leaf[jnp.where(exists, order, 0)], rows)
    return in_batches(plan, step, carry, picked._replace(counted=picked.counted * exists), *per_step)


def in_batches(plan: Passes, step: Step, carry: Any, rows: ShrunkRows, *per_step: jax.Array) -> Any:
    """`one_pass` over rows that come in their order and fill their batches."""
    batches = jax.tree.map(lambda leaf: leaf.reshape(-1, plan.batch_size, *leaf.shape[1:]), rows)
    return jax.lax.scan(step, carry, (batches, *per_step))[0]


def all_passes(plan: Passes, step: Step, carry: Any, rows: ShrunkRows, order: jax.Array, *per_step: jax.Array) -> Any:
    """`one_pass` after another, in each its line of `order` and of every `per_step` f[T, ...]."""
    per_pass = [values.reshape(plan.num_passes, -1, *values.shape[1:]) for values in per_step]

    def take(carry: Any, slices: tuple) -> tuple[Any, None]:
        return one_pass(plan, step, carry, rows, *slices), None

    return jax.lax.scan(take, carry, (order, *per_pass))[0]
