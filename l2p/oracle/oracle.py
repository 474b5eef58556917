"""The oracle: the only door to private rows. It charges before it answers."""

import contextlib

import jax
import jax.numpy as jnp
from jax.extend.core import get_opaque_trace_state

from l2p.base.compiled import as_one
from l2p.oracle.pricing import decide
from l2p.oracle.readers import Reader
from l2p.oracle.setup import Setup
from l2p.oracle.terms import ANYTHING, Terms
from l2p.privacy.cap.spending import Spending
from l2p.privacy.cost.sampling import FullBatch, PermutationEpochs
from l2p.privacy.events import Answered
from l2p.queries.base import Query
from l2p.task.exact_sums import MARGIN, ExactSum
from l2p.task.noise import GRID_STEPS, Batch, Noise


class Oracle:
    """Answers queries about private rows for the length of one step.

    In `init` a query reads every row. In a step each query reads a batch of its own, drawn by the accountant's sampler,
    because amplification is proved per query; the queries of a permutation epoch's step share their batch.

    In a release sums are exact (`l2p.task.exact_sums`), unless its user chose float32 (`Setup.in_float32`).

    Attributes:
      setup: the public facts.
      public: rows that cost nothing, or None.
      step: i32[], number of earlier steps (0 in `init`).
      spending: what has been spent.
      refused: bool[], whether anything was refused in this step.
      records: one per `ask`, in order.
      sampled: whether queries read batches.
      remaining_map: what mapped rows are still to be read through (`FeatureMap.remaining_map`), or None.
    """

    def __init__(
        self,
        reader: Reader,
        setup: Setup,
        spending: Spending,
        noise: Noise,
        step: jax.Array,
        terms: Terms = ANYTHING,
    ):
        self.setup = setup
        self.sampled = terms.sampled and not isinstance(setup.price_list.sampler, FullBatch)
        self.public = terms.public
        self.step = step
        self.spending = spending
        self.refused = jnp.zeros((), bool)
        self.records: list[Answered] = []
        self.remaining_map = reader.remaining_map
        self._terms = terms
        self._reader = reader
        self._noise = noise
        self._batch: Batch | None = None
        self._trace_state = get_opaque_trace_state()
        self._open = True

    def close(self) -> None:
        """End the step: what an oracle answered later would not be counted."""
        self._open = False

    @property
    def left(self) -> jax.Array:
        """Share of the budget that may still be planned for, in [0, 1]."""
        return self.spending.left

    @property
    def charge(self) -> jax.Array:
        """i32[], number of charges before this step's: `step`, or the index of its permutation epoch."""
        return self.setup.charge(self.step)

    def ask(self, query: Query) -> jax.Array:
        """Price, charge, aggregate, release: the noised answer in float32, or zeros if the budget does not cover it.

        Raises:
          InputError: at trace time, for a query whose proof is about single rows, where units are protected, and for
            a solve where classes have weights or rows are sampled.
          TypeError: at trace time, for a mechanism that the protector does not declare, or a non-additive query of
            one that declares itself additive.
          RuntimeError: at trace time, inside `vmap`, `grad`, `cond`, `scan` or `jit` within a step. There a query
            would be answered more often than it is charged. Also once the step is over.
        """
        if not self._open:
            raise RuntimeError(f"ask({query.name}) came after its step had ended, where nothing would count its cost.")
        if get_opaque_trace_state() != self._trace_state:
            raise RuntimeError(
                f"ask({query.name}) was called inside a JAX transformation within a protector's step; it would be "
                "answered more often than it is charged, so ask outside vmap, grad, cond, scan and jit."
            )
        event = query.event()
        self._terms.check_query(query, event, self.setup, self.sampled)
        decided = decide(
            self.setup,
            self.spending,
            self.refused,
            event,
            query.bound,
            query.most_rows,
            self.step if self._terms.sampled else None,
            slot=len(self.records),
            sampled=self.sampled,
            num_lines=self._reader.num_lines,
        )
        granted, self.spending, self.refused = decided.granted, decided.spending, decided.refused
        safe = query.replace(noise_multiplier=decided.noise_multiplier)
        answer = _or_zeros(granted, self._answer(safe, granted))
        self.records.append(
            Answered(
                None,
                event.mechanism,
                decided.shown_multiplier,
                event.tail,
                query.name,
                decided.shown_bound,
                decided.cost,
                self.spending.spent,
                granted,
                answer if query.in_trace or (query.is_gradient and self._noise.keeps_answers) else None,
            )
        )
        return answer

    def noise_multiplier(self, cost: jax.typing.ArrayLike, mechanism: str = "gaussian") -> jax.Array:
        """f32[], the least noise multiplier that `cost` pays for here, in the accountant's unit."""
        return self.setup.price_list.noise_multiplier(cost, mechanism, self.sampled)

    def _answer(self, query: Query, granted: jax.Array) -> jax.Array:
        """Released answer to a query that was charged; of no meaning if the query was refused."""
        if not query.additive:
            return self._whole_answer(query, granted)
        noise, adjacency = self._noise, self.setup.adjacency
        if not noise.exact:
            return query.release(self._aggregate(query, granted), noise, adjacency)
        with jax.enable_x64(True):
            aggregate, noise.grid = self._aggregate(query, granted), grid_of(query)
            if not isinstance(aggregate, ExactSum):  # float32 rounds lengths, too, by less than the margin
                wider = jnp.asarray(query.noise_multiplier, jnp.float64) * (1.0 + MARGIN)
                aggregate, query = aggregate.astype(jnp.float64), query.replace(noise_multiplier=wider)
            answer = query.release(aggregate, noise, adjacency)
            return answer.astype(jnp.int32 if jnp.issubdtype(answer.dtype, jnp.integer) else jnp.float32)

    def _aggregate(self, query: Query, granted: jax.Array) -> jax.Array | ExactSum:
        """The sum over the rows that the query reads, exact in a release but for one in float32."""
        reader, exact = self._reader, self._noise.exact and not self.setup.in_float32
        weights = self.setup.class_weights if query.weighed else None
        with jax.enable_x64(exact or reader.always_exact):
            # The batch is drawn for a refused query too: draws are planned query by query.
            batch = self._draw() if self.sampled else None
            if reader.skips_refused and not granted:
                return _nothing(query, exact)
            return (reader.exact_sum if exact else reader.sum)(query, batch, weights)

    def _whole_answer(self, query: Query, granted: jax.Array) -> jax.Array:
        """The answer to a non-additive query, computed on all rows at once; in float64 for a release."""
        noise, exact = self._noise, self._noise.exact
        with jax.enable_x64(True) if exact else contextlib.nullcontext():
            rows = self._reader.whole(query, exact)
            if self._reader.skips_refused and not granted:
                return query.empty()
            if not exact:
                return query.answer(rows, noise, self.setup.adjacency)  # pyrefly: ignore[bad-argument-type]
            noise.grid = grid_of(query)
            return query.answer(rows, noise, self.setup.adjacency).astype(jnp.float32)  # pyrefly: ignore[bad-argument-type]

    def _draw(self) -> Batch:
        sampler, num_lines = self.setup.price_list.sampler, self._reader.num_lines
        if self._batch is None or not isinstance(sampler, PermutationEpochs):
            sampler.check_adjacency(self.setup.adjacency, num_lines)
            self._batch = self._noise.batch(sampler, num_lines, self.step)
        return self._batch


def _nothing(query: Query, exact: bool) -> jax.Array | ExactSum:
    """The aggregate of a refused query: of no rows."""
    size = jax.eval_shape(query.empty).shape[0]
    return ExactSum.empty(size) if exact else jnp.zeros(size, jnp.float32)


@as_one
def _or_zeros(granted: jax.Array, answer: jax.Array) -> jax.Array:
    return jnp.where(granted, answer, 0)


@as_one
def grid_of(query: Query) -> jax.Array:
    """The step f64[] of the public grid that a release rounds a non-additive answer to."""
    return jnp.asarray(query.unit).astype(jnp.float64) / GRID_STEPS
