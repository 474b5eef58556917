"""Bounds that nobody knows, bought from a run's own budget before its rows can be scaled.

One Gaussian query counts the cells of every such column in bins that do not depend on the data. It goes through the
oracle like any other, with a share of the budget that the run then does without, under the run's filter and in its
trace; bounds are read off the noisy counts alone. docs/accounting.md has the proof.
"""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtri

from l2p import struct
from l2p.data.bounds import Interval
from l2p.errors import InputError, NoResult, withheld
from l2p.oracle import Oracle, Setup
from l2p.privacy.prices import float32_down
from l2p.private_run import PlannedRun, noise_for
from l2p.protector import Protector
from l2p.protectors.schedulers import SLACK
from l2p.queries.bins import BinCounts
from l2p.run import Release, Simulation, TraceRow, start, trace_rows
from l2p.schema import bins
from l2p.task import Rows

#: Share of the budget, in the accountant's own unit (mu^2 for gdp), that pays for all such columns together.
SHARE = 0.05
#: The probability that noise alone lifts any bin of any column over the threshold.
FALSE_ALARM = 0.01
#: Bins at either end that hold less than this share of the rows do not widen the bounds: their cells are clipped.
TAIL = 0.01

_start = jax.jit(start)


@struct.dataclass
class CountBins(Protector):
    """Spends its whole budget on the counts of k columns' bins, and "releases" them, the noise's deviation last."""

    num_columns: int = struct.field(pytree_node=False)
    num_steps: int = struct.field(pytree_node=False, default=0)
    adaptive_noise = False

    def init(self, params: jax.Array, oracle: Oracle) -> tuple[jax.Array, jax.Array]:
        setup = oracle.setup
        query = BinCounts(
            self.num_columns, bins.COUNT, oracle.noise_multiplier(setup.price_list.budget * (1.0 - SLACK))
        )
        return params, jnp.append(oracle.ask(query), query.noise_std(setup.adjacency))

    def step(self, params: jax.Array, state: jax.Array, oracle: Oracle) -> tuple[jax.Array, jax.Array]:
        return params, state

    def finish(self, params: jax.Array, state: jax.Array, setup: Setup) -> jax.Array:
        return state


@dataclasses.dataclass(frozen=True)
class Purchase:
    """Bounds that are to be bought: everything is checked, and no row has been read.

    Attributes:
      columns: the names of the columns.
      setup: the public facts of the run, with the share of its budget.
      noise: as of a run.
      num_rows: N, as declared.
    """

    columns: tuple[str, ...]
    setup: Setup
    noise: Callable[[int], Simulation | Release]
    num_rows: int

    @classmethod
    def plan(
        cls, columns: tuple[str, ...], share: float, planned: PlannedRun, lines: int, key: jax.Array | None
    ) -> "Purchase":
        """The purchase that goes before a run which was planned without this share of its budget.

        Args:
          columns: those with private bounds.
          share: of the budget; see `check_share`.
          planned: the run.
          lines: of the table.
          key: of a simulation; its noise is not that of the run.
        """
        budget = jnp.asarray(float32_down(planned.filter.limit * share))
        price_list = dataclasses.replace(planned.setup.price_list, budget=budget)
        setup = dataclasses.replace(planned.setup, price_list=price_list, cap=budget)
        key = None if key is None else jax.random.fold_in(key, 2**31 - 1)
        with withheld("planning the noise"):
            noise = noise_for(CountBins(len(columns)), jnp.zeros(1), (lines, len(columns)), None, setup, key)
        return cls(columns, setup, noise, planned.num_rows)

    def buy(self, binned: Rows) -> tuple[dict[str, Interval], list[TraceRow]]:
        """Bounds by column, and what was granted for them.

        Args:
          binned: rows of bin numbers over `l2p.queries.bins.SCALE`, as `Unbounded.binned` gives them.

        Raises:
          NoResult: the share is too small for any noise that can be drawn; nothing was spent.
        """
        noise = self.noise(0)
        releases = isinstance(noise, Release)
        guard: Any = withheld("counting bins") if releases else contextlib.nullcontext()
        with guard, jax.enable_x64(releases):
            rows = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), binned)
            run, records = _start(CountBins(len(self.columns)), jnp.zeros(1, jnp.float32), rows, self.setup, noise)
        if not run.alive:
            raise NoResult("the share of the budget for bounds is too small to be counted, so none were bought.")
        *counts, noise_std = np.asarray(run.state, np.float64)
        table = np.reshape(counts, (len(self.columns), bins.COUNT))
        chosen = [choose(column, float(noise_std), self.num_rows, len(self.columns)) for column in table]
        return dict(zip(self.columns, chosen, strict=True)), trace_rows(records, [])


def check_share(share: float) -> None:
    """Refuse what is no share of a budget.

    >>> check_share(0.05)
    """
    if not (isinstance(share, (int, float)) and 0 < share < 1):
        raise InputError(
            f"the share of the budget that buys bounds is {share!r}, so nothing would be left for one of the two; "
            "choose a number between 0 and 1, such as 0.05."
        )


def choose(counts: Sequence[float] | np.ndarray, noise_std: float, num_rows: int, num_columns: int = 1) -> Interval:
    """Bounds [low, high] from the noisy counts f64[B] of one column's bins: post-processing.

    From the lowest to the highest bin whose count is above what noise alone reaches in any of all columns' bins, but
    for a probability of `FALSE_ALARM`, and above `TAIL` of the rows. One bin of noise alone would widen bounds to a
    power of two from anywhere on the grid and flatten the column, where a bin of few cells that is missed only clips
    them: hence the small probability. The share of rows keeps a few outliers from doing the same when noise is small.

    Where no bin is above both, the bin of the largest count stands for all: the most likely one. Where that is noise,
    the column is nearly constant after scaling, and little is learned from it. Where zero alone is above, the largest
    bin beside it is taken too.

    Args:
      counts: of the bins, in order.
      noise_std: the standard deviation of their noise, in rows.
      num_rows: N, public.
      num_columns: how many columns' bins were counted.

    >>> counts = np.zeros(bins.COUNT)
    >>> counts[bins.places(np.array([3.0, 17.0, 64.0]))] = 40, 100, 60
    >>> choose(counts, 1.0, 200), choose(counts, 15.0, 200)
    ((2.0, 64.0), (16.0, 32.0))
    """
    counts = np.asarray(counts, np.float64)
    threshold = max(-ndtri(FALSE_ALARM / (num_columns * len(counts))) * noise_std, TAIL * num_rows)
    above = set(np.flatnonzero(counts > threshold).tolist()) or {int(np.argmax(counts))}
    if above == {bins.ZERO}:
        others = counts.copy()
        others[bins.ZERO] = -math.inf
        above.add(int(np.argmax(others)))
    return bins.edges(min(above))[0], bins.edges(max(above))[1]
