"""The passes of bolt-on SGD over rows that stream: in the orders, and by the steps, of rows in memory.

The proof is about every order that does not depend on what rows hold, so a release's orders need not be secret where
the source gives its rows in one order. Where it has none, it is their randomness that the proof rests on: a uniform
order of the lines is a uniform order of the rows, however the source numbered them.
"""

import dataclasses
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from l2p.base.compiled import as_program
from l2p.queries.pass_descent import Iterates, PassDescent
from l2p.task.rows import Rows
from l2p.task.shuffled import shuffled
from l2p.task.sources import RowSource


@dataclasses.dataclass(frozen=True, repr=False)
class StreamedPasses:
    """Rows of a stream to take passes over, in float64 where the result is to be `exact`, as in a release."""

    source: RowSource
    exact: bool

    def passes(self, query: PassDescent, orders: Iterator[np.ndarray] | None) -> np.ndarray:
        """See `l2p.queries.pass_descent.TakesPasses`."""
        assert orders is not None
        assert query.streams
        plan, progress = query.plan, self.source.progress
        dtype = jnp.dtype(jnp.float64 if self.exact else jnp.float32)
        shape = plan.num_passes, plan.steps_per_pass
        sizes, weights = (np.asarray(steps, dtype).reshape(shape) for steps in (plan.step_sizes, plan.weights))
        iterates = query.begun(dtype)
        with shuffled(self.source, plan.num_rows, plan.batch_size) as rows:
            for number, order in zip(range(plan.num_passes), orders, strict=True):
                if number == 0 or plan.order == "fresh":
                    rows.arrange(order)
                first = 0
                for part in rows.parts(order):
                    last = first - (-len(part) // plan.batch_size)
                    steps = number, slice(first, last)
                    iterates = _advanced(query, iterates, part, sizes[steps], weights[steps], exact=self.exact)
                    jax.block_until_ready(iterates)  # or parts that wait for their steps would fill the memory
                    first = last
                    if progress is not None:
                        progress.read(len(part))
        return np.asarray(iterates[1]).ravel()


def _steps_over(
    query: PassDescent, iterates: Iterates, table: ArrayLike, sizes: ArrayLike, weights: ArrayLike, exact: bool
) -> Iterates:
    """The iterates after the steps f[s] over lines f32[n, d + 2] of `ShuffledRows`; the last batch may lack rows."""
    sizes, weights = jnp.asarray(sizes), jnp.asarray(weights)
    lines = jnp.asarray(table, sizes.dtype)
    lines = jnp.pad(lines, [(0, sizes.shape[0] * query.plan.batch_size - lines.shape[0]), (0, 0)])
    # A weight would count a row more often than its price says; only simulations know weights.
    mask = (lines[:, -1] > 0).astype(lines.dtype) if exact else lines[:, -1]
    return query.advanced(iterates, Rows(lines[:, :-2], lines[:, -2], mask), sizes, weights)


_advanced = as_program(_steps_over, static=("exact",))
