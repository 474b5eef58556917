"""Bounds that nobody declared, bought from a run's own budget before its rows can be scaled.

One Gaussian query counts the cells of every such column in bins that do not depend on the data. It goes through the
oracle like any other, with a share of the budget that the run then does without, under the run's filter and in its
trace; bounds are read off the noisy counts alone. docs/proofs.md has the proof.
"""

import dataclasses
import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtri

from l2p.base import struct
from l2p.base.compiled import quickly
from l2p.base.errors import InputError, NoResult
from l2p.oracle import Oracle
from l2p.oracle.setup import Setup
from l2p.oracle.trace import trace_of
from l2p.privacy.cost.prices import float32_down
from l2p.privacy.events import Answered
from l2p.protectors.stepwise.schedulers import SLACK
from l2p.queries.bins import BinCounts
from l2p.release.planned_run import PlannedRun
from l2p.release.run_noise import RunNoise, noise_for
from l2p.run.protector import Protector
from l2p.run.run import start
from l2p.tables.bounds import Interval
from l2p.tables.schema import bins
from l2p.tables.schema.unbounded import Unbounded
from l2p.task.rows import Rows

#: Share of the budget, in the accountant's own unit (mu^2 for gdp), that pays for all such columns together.
SHARE = 0.05
#: The probability that noise alone lifts any bins of any column over the threshold.
FALSE_ALARM = 0.05
#: Bins that hold less than this share of the rows do not widen bounds: their cells are clipped.
TAIL = 0.01
#: How many neighbouring bins are summed, the fewest first.
WIDTHS = (1, 2, 4, 8)
#: How many deviations of the noise a bin beside the others has to hold.
WEAK = 2.0

_start = quickly(start)


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
    noise: RunNoise
    num_rows: int

    @classmethod
    def plan(cls, table: Unbounded, share: float, planned: PlannedRun, key: jax.Array | None) -> "Purchase":
        """The purchase that goes before a run which was planned without this share of its budget.

        Args:
          table: some of whose columns have private bounds.
          share: of the budget; see `check_share`.
          planned: the run.
          key: of a simulation; its noise is not that of the run.
        """
        columns, num_lines = table.schema.private_bounds, len(table.rows.y)
        budget = jnp.asarray(float32_down(planned.filter.limit * share))
        price_list = dataclasses.replace(planned.setup.price_list, budget=budget)
        setup = dataclasses.replace(planned.setup, price_list=price_list, cap=budget)
        key = None if key is None else jax.random.fold_in(key, 2**31 - 1)
        shape = planned.num_rows, len(columns)
        noise = noise_for(CountBins(len(columns)), jnp.zeros(1), num_lines, shape, setup, None, key)
        return cls(columns, setup, noise, planned.num_rows)

    def buy(self, binned: Rows) -> tuple[dict[str, Interval], list[Answered]]:
        """Bounds by column, and what was granted for them.

        Args:
          binned: rows of bin numbers over `l2p.queries.bins.SCALE`, as `Unbounded.binned` gives them.

        Raises:
          NoResult: the share is too small for any noise that can be drawn; nothing was spent.
        """
        noise = self.noise.draw(0)
        with self.noise.computing("counting bins"):
            rows = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), binned)
            run, records = _start(CountBins(len(self.columns)), jnp.zeros(1, jnp.float32), rows, self.setup, noise)
        if not run.alive:
            raise NoResult("the share of the budget for bounds is too small to be counted, so none were bought.")
        *counts, noise_std = np.asarray(run.state, np.float64)
        table = np.reshape(counts, (len(self.columns), bins.COUNT))
        chosen = [choose(column, float(noise_std), self.num_rows, len(self.columns)) for column in table]
        return dict(zip(self.columns, chosen, strict=True)), trace_of(records, [])


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

    Bins are taken whose count is above what noise alone reaches anywhere, in any column, but for a probability of
    `FALSE_ALARM`; then 2, 4 and 8 neighbours whose sum is, without the ends of them that hold next to nothing, for
    cells may be many and their bins small. Bounds go from the lowest to the highest bin taken, and on as long as the
    next bin holds more than `WEAK` deviations of the noise. What holds less than `TAIL` of the rows counts as nothing.

    Why: one bin of noise far away would widen bounds by powers of two and flatten the column, where one that is missed
    only clips its cells; hence the small probability. Next to bounds, noise costs a factor of two at most, so there
    less is enough. The share of rows keeps a few outliers from doing what noise is kept from.

    Where nothing is above the noise, the bin of the largest count stands for all: the most likely one. Where that is
    noise, the column is nearly constant after scaling, and little is learned from it. Where zero is taken alone, the
    largest bin beside it is taken too.

    Args:
      counts: of the bins, in order.
      noise_std: the standard deviation of their noise, in rows.
      num_rows: N, public.
      num_columns: how many columns' bins were counted.

    >>> counts = np.zeros(bins.COUNT)
    >>> counts[bins.places(np.array([3.0, 17.0, 64.0]))] = 40, 100, 60
    >>> choose(counts, 1.0, 200), choose(counts, 15.0, 200)
    ((2.0, 64.0), (16.0, 64.0))
    """
    counts = np.asarray(counts, np.float64)
    least, chosen = TAIL * num_rows, np.zeros(len(counts), bool)
    sure = -ndtri(FALSE_ALARM / (num_columns * len(counts) * len(WIDTHS)))
    for width in WIDTHS:
        sums = np.convolve(counts, np.ones(width), "valid")
        for place in np.argsort(-sums):
            window = slice(place, place + width)
            if sums[place] > max(sure * noise_std * width**0.5, least) and not chosen[window].any():
                chosen[window] = _without_ends(counts[window], noise_std)
    if not chosen.any():
        chosen[np.argmax(counts)] = True
    low, high = (int(end) for end in np.flatnonzero(chosen)[[0, -1]])
    weak = max(WEAK * noise_std, least)
    while low > 0 and counts[low - 1] > weak:
        low -= 1
    while high < len(counts) - 1 and counts[high + 1] > weak:
        high += 1
    if low == high == bins.ZERO:
        beside = int(np.argmax(np.where(np.arange(len(counts)) == bins.ZERO, -math.inf, counts)))
        low, high = min(low, beside), max(high, beside)
    return bins.edges(low)[0], bins.edges(high)[1]


def _without_ends(counts: np.ndarray, noise_std: float) -> np.ndarray:
    """The bins bool[w] from the first to the last that holds more than the noise, or as much as any."""
    occupied = np.flatnonzero(counts > min(noise_std, np.max(counts) * 0.999))
    return (np.arange(len(counts)) >= occupied[0]) & (np.arange(len(counts)) <= occupied[-1])
