"""The oracle: the only door to private rows. It charges before it answers."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
from flax import struct
from jax.extend.core import get_opaque_trace_state

from l2p.models import Model
from l2p.privacy.accountants import Accountant
from l2p.privacy.events import Adjacency, Event
from l2p.privacy.ledger import Ledger
from l2p.privacy.noise import GRID_STEPS, HostNoise, Noise
from l2p.queries.base import Query
from l2p.task import Rows, RowSource, null_invalid

#: Rows summed at a time when a release forms every contribution, so that memory stays flat in N.
RELEASE_BLOCK = 4096

#: Noise is a multiple of the bound on one row. Outside this range that product may vanish, or the sum overflow, in
#: float32, and an answer would carry no noise: refused.
LEAST_BOUND, MOST_BOUND = 2.0**-60, 2.0**60


@struct.dataclass
class Setup:
    """The public facts of a run.

    Attributes:
      model: the model (static).
      adjacency: which tables are neighbours (static).
      accountant: prices and the budget, in the accountant's own unit.
      num_rows: f32[], N, public by declaration.
      cap: f32[], where the ledger refuses: the accountant's budget, or infinity when meta-training measures what a
        scheduler would spend.
    """

    model: Model = struct.field(pytree_node=False)
    adjacency: Adjacency = struct.field(pytree_node=False)
    accountant: Accountant
    num_rows: jax.Array
    cap: jax.Array

    @classmethod
    def create(cls, model: Model, adjacency: Adjacency, accountant: Accountant, num_rows) -> "Setup":
        """A setup whose ledger stops at the accountant's budget."""
        return cls(model, adjacency, accountant, jnp.asarray(num_rows, jnp.float32), accountant.budget)

    @property
    def log_signal(self) -> jax.Array:
        """f32[], log(mu N / sensitivity_factor): how well the whole budget resolves a mean over the table.

        mu is the Gaussian-DP parameter of a single Gaussian query that takes the whole budget, so that the noise on
        a mean of contributions bounded by 1 would be exp(-log_signal).
        """
        return jnp.log(self.accountant.mu * self.num_rows / self.adjacency.sensitivity_factor)


@struct.dataclass
class Record:
    """What the trace keeps of one ask. All public: functions of released answers and of the price list."""

    query: str = struct.field(pytree_node=False)
    mechanism: str = struct.field(pytree_node=False)
    noise_multiplier: jax.Array
    clip_norm: jax.Array
    cost: jax.Array
    spent: jax.Array
    granted: jax.Array


class Oracle:
    """Answers queries about private rows for the length of one step.

    Attributes:
      setup: the public facts.
      public: rows that cost nothing, or None.
      step: i32[], how many steps came before this one (0 in `init`).
      ledger: what has been spent.
      refused: bool[], whether anything was refused in this step.
      records: one per `ask`, in order.
    """

    def __init__(
        self,
        rows: Rows | RowSource,
        setup: Setup,
        ledger: Ledger,
        noise: Noise,
        step: jax.Array,
        public: Rows | None = None,
    ):
        self.setup = setup
        self.public = public
        self.step = step
        self.ledger = ledger
        self.refused = jnp.zeros((), bool)
        self.records: list[Record] = []
        self._rows = rows
        self._noise = noise
        self._trace_state = get_opaque_trace_state()
        self._open = True

    def close(self) -> None:
        """End the step: an oracle that outlived it would answer outside the ledger."""
        self._open = False

    @property
    def left(self) -> jax.Array:
        """Share of the budget unspent, in [0, 1]."""
        return self.ledger.left

    def ask(self, query: Query) -> jax.Array:
        """Price, charge, aggregate, release: the noised answer in float32, or zeros if the budget does not cover it.

        Raises:
          RuntimeError: at trace time, inside `vmap`, `grad`, `cond`, `scan` or `jit` within a step. There a query
            would be answered more often than it is charged. Also once the step is over.
        """
        if not self._open:
            raise RuntimeError(f"ask({query.name}) came after its step had ended, where no ledger would see it.")
        if get_opaque_trace_state() != self._trace_state:
            raise RuntimeError(
                f"ask({query.name}) was called inside a JAX transformation within a protector's step; it would be "
                "answered more often than it is charged, so ask outside vmap, grad, cond, scan and jit."
            )
        event = query.event()
        valid = jnp.isfinite(event.noise_multiplier) & (event.noise_multiplier >= 0) & ~self.refused
        if event.mechanism != "none":
            valid &= (query.bound >= LEAST_BOUND) & (query.bound <= MOST_BOUND)  # false for NaN
        # Below, a multiplier of 1 stands in for an invalid one, so that no gradient meets its NaN.
        priced = Event(event.mechanism, jnp.where(valid, event.noise_multiplier, 1.0))
        cost = jnp.where(valid, self.setup.accountant.price(priced), jnp.nan)
        granted, self.ledger = self.ledger.charge(cost)
        self.refused = self.refused | ~granted
        safe = query.replace(noise_multiplier=jnp.where(granted, priced.noise_multiplier, 1.0))  # type: ignore[attr-defined]
        answer = jnp.where(granted, self._answer(safe, granted), 0)
        self.records.append(
            Record(
                query.name,
                event.mechanism,
                jnp.asarray(event.noise_multiplier, jnp.float32),
                jnp.asarray(query.bound, jnp.float32),
                jnp.where(granted, cost, 0.0).astype(jnp.float32),
                self.ledger.spent,
                granted,
            )
        )
        return answer

    def _answer(self, query: Query, granted: jax.Array) -> jax.Array:
        if not isinstance(self._noise, HostNoise):
            return query.release(self._aggregate(query, granted), self._noise, self.setup.adjacency)
        with jax.enable_x64(True):
            aggregate, self._noise.grid = self._exact_aggregate(query, granted)
            answer = query.release(aggregate, self._noise, self.setup.adjacency)
            return answer.astype(jnp.int32 if jnp.issubdtype(answer.dtype, jnp.integer) else jnp.float32)

    def _aggregate(self, query: Query, granted: jax.Array) -> jax.Array:
        if isinstance(self._rows, Rows):
            return query.add(query.empty(), self._rows)
        aggregate = query.empty()
        for block in self._stream(query, granted):
            aggregate = _add(query, aggregate, block)
        return aggregate

    def _exact_aggregate(self, query: Query, granted: jax.Array) -> tuple[jax.Array, jax.Array]:
        _require_additive(query)
        if isinstance(self._rows, Rows):
            return exact_sum(query, self._rows)
        total = jnp.zeros(query.empty().shape, jnp.float64)
        for block in self._stream(query, granted):
            # Every block's sum is a multiple of the grid, so adding them up is exact too.
            total = total + _exact_sum(query, block)[0]
        return total, grid_of(query)

    def _stream(self, query: Query, granted: jax.Array) -> Iterator[Rows]:
        """One pass over the source, or none for a refused query."""
        _require_additive(query)
        assert isinstance(self._rows, RowSource)
        return map(null_invalid, self._rows.blocks() if granted else ())


def _require_additive(query: Query) -> None:
    if not query.additive:
        raise TypeError(f"{query.name} is not a sum over rows, so it can be neither streamed nor released.")


@jax.jit
def _add(query: Query, aggregate: jax.Array, rows: Rows) -> jax.Array:
    return query.add(aggregate, rows)


def exact_sum(query: Query, rows: Rows) -> tuple[jax.Array, jax.Array]:
    """The query's aggregate f64[k] without rounding error, and the grid f64[] it is a multiple of.

    Floating-point sums may move by more than one row's bound when a row changes (Casacuberta et al. 2022). Here every
    contribution is limited again in float64, shrunk by what rounding may add, and rounded to multiples of the grid;
    sums of such multiples below 2^53 are exact, so the sensitivity holds to the last bit. Call under
    `jax.enable_x64(True)`.
    """
    grid = grid_of(query)
    size = query.empty().shape[0]
    # Rounding moves a contribution by at most half a grid step per coordinate: sqrt(k) / 2 steps in L2 norm.
    shrink = 1.0 - (0.5 * size**0.5 + 1.0) / GRID_STEPS

    def add_block(total: jax.Array, block: Rows) -> tuple[jax.Array, None]:
        limited = query.limit(query.contributions(block).astype(jnp.float64))
        steps = jnp.rint(limited * shrink / grid)
        return total + jnp.where(block.mask[:, None] > 0, steps, 0.0).sum(0), None

    blocks = jax.tree.map(lambda leaf: _in_blocks(leaf, RELEASE_BLOCK), rows)
    total, _ = jax.lax.scan(add_block, jnp.zeros(size, jnp.float64), blocks)
    return total * grid, grid


_exact_sum = jax.jit(exact_sum)


def grid_of(query: Query) -> jax.Array:
    """The step f64[] of the public grid that a release rounds this query's contributions to."""
    return jnp.asarray(query.bound).astype(jnp.float64) / GRID_STEPS


def _in_blocks(leaf: jax.Array, block: int) -> jax.Array:
    """f[n, ...] -> f[n / block rounded up, block, ...], padded with zeros (null rows)."""
    count = -(-leaf.shape[0] // block)
    padded = jnp.pad(leaf, [(0, count * block - leaf.shape[0])] + [(0, 0)] * (leaf.ndim - 1))
    return padded.reshape(count, block, *leaf.shape[1:])
