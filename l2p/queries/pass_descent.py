"""Bolt-on private SGD: passes over the rows without noise, and noise added once to their result (Wu et al. 2017)."""

import abc
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base import struct
from l2p.base.errors import InputError
from l2p.models import GeneralizedLinear, Model
from l2p.privacy.cost.prices import float32_up
from l2p.privacy.events import Adjacency, Event
from l2p.privacy.sensitivity import objective
from l2p.privacy.sensitivity.passes import Passes
from l2p.queries.base import Query, within
from l2p.queries.rows_in_order import (
    Matrix,
    ShrunkRows,
    all_passes,
    gradient_sum,
    in_batches,
    one_pass,
    orders,
    orders_in_turn,
    projected,
    shrunk_rows,
)
from l2p.task.exact_sums import ExactSum, value_of
from l2p.task.noise import GRID_STEPS, Noise
from l2p.task.rows import Rows
from l2p.task.sources import RemoteRows

# Margin for the float32 rounding of a product of a few factors.
_ROUNDING = 2.0**-18
MECHANISMS = ("gaussian", "gamma", "objective")
#: The iterate f[p, K], and the average that a run returns, or the iterate again where it returns no average.
Iterates = tuple[Matrix, Matrix]


def in_one_batch_each(order: str, snapshots: bool) -> bool:
    """Whether each pass reads each row in one batch and nowhere else, so that rows may stream."""
    return order != "with_replacement" and not snapshots


class TakesPasses(Protocol):
    """Rows that are not all here at once, over which the passes of stochastic gradient descent are taken."""

    def passes(self, query: "PassDescent", orders: Iterator[np.ndarray] | None) -> np.ndarray:
        """`PassDescent.result` f[p K], without noise, with the rows in these orders i32[m], one for each pass, each of
        which the next may overwrite; None for an `EngineResult`, whose passes are over."""
        ...


class PassRows(RemoteRows):
    """Rows on a machine that takes the passes of stochastic gradient descent over them, and adds nothing up.

    Attributes:
      engine: what is declared of passes that were taken elsewhere (`EngineRun.to_json`); None where l2p orders them.
    """

    solves: ClassVar[bool] = True
    engine: Mapping[str, Any] | None = None

    @abc.abstractmethod
    def check_model(self, protector: object, model: Model) -> None:
        """Refuse, before anything is read, a protector or a model of which this machine cannot answer every query.

        Raises:
          InputError: it cannot.
        """

    @abc.abstractmethod
    def passes(self, query: "PassDescent", orders: Iterator[np.ndarray] | None) -> np.ndarray:
        """See `TakesPasses`; f64[p]."""

    def exact_sum(self, summed: Callable[[Iterator[Rows]], ExactSum], lines: np.ndarray | None) -> ExactSum:
        raise TypeError("these rows are passed over, and not added up.")


@struct.dataclass
class PassDescent(Query):
    """Result of stochastic gradient descent on shrunk rows plus ridge/2 ||params||^2, with noise added once.

    For every order of the rows, which does not depend on them, nulling a row moves each one-vs-rest problem's result by
    at most L times the sensitivity of `plan` (`l2p.privacy.sensitivity.passes`), L = lipschitz * norm_bound, and
    replacing it by twice that. N is public and the order covers all N lines, so `add_remove` is refused.

    Noise is `gaussian`, on all K problems together, where one row moves the result by sqrt(K) times as far; or `gamma`,
    each problem's own, with epsilon / K each, where the lengths of the K moves add up; or `objective`, Gaussian noise
    by the exact curve at delta - tail, where rows are drawn with replacement: with probability `tail` a row is drawn
    more often than the sensitivity covers. As draws do not depend on rows, that adds `tail` to delta.

    Attributes:
      loss: of each problem, with finite lipschitz and smoothness (static).
      plan: the course of the run (static).
      start: f32[p K], public; finite.
      noise_multiplier: f32[], scale of the noise over the sensitivity; 1 / epsilon for `objective`.
      log_delta: f32[], for `objective`, natural logarithm of the budget's delta: below 0, and delta at least 2 tail.
      num_classes: K (static); 1 for two classes, which are one problem.
      norm_bound: that rows are shrunk to (static).
      mechanism: "gaussian", "gamma" or "objective" (static).
      tail: see above; 0 where rows are permuted (static).
      snapshots: whether steps are variance-reduced: SVRG, whose snapshot is each pass's first iterate (static).
    """

    loss: GeneralizedLinear = struct.field(pytree_node=False)
    plan: Passes = struct.field(pytree_node=False)
    start: jax.Array
    noise_multiplier: jax.Array
    log_delta: jax.Array
    num_classes: int = struct.field(pytree_node=False, default=1)
    norm_bound: float = struct.field(pytree_node=False, default=1.0)
    mechanism: str = struct.field(pytree_node=False, default="gaussian")  # type: ignore[misc]
    tail: float = struct.field(pytree_node=False, default=0.0)
    snapshots: bool = struct.field(pytree_node=False, default=False)
    name: ClassVar[str] = "pass_descent"
    additive: ClassVar[bool] = False

    @property
    def bound(self) -> jax.Array:
        """f32[], how far nulling one row moves the released result, rounding included.

        In float64 (u = 2^-53) a step errs by at most (b + p + 64) u times eta (L + beta W) + W, where 64 covers the
        library's functions and W = ||start|| + L sum of eta bounds ||params||; two runs err apart by twice that, and
        nothing brings them further apart later, but for snapshots, which also add the rounding of a mean of m rows.
        The result is rounded to the grid, by half a step of bound / GRID_STEPS in each coordinate; for `gamma` the K
        problems' lengths of that add up, too.
        """
        plan, lipschitz = self.plan, self.loss.lipschitz * self.norm_bound
        if not (0 < lipschitz < math.inf and 0 < self.loss.smoothness * self.norm_bound**2 <= plan.smoothness):
            return jnp.array(jnp.nan, jnp.float32)
        if self.snapshots:
            if plan.averaged or plan.order == "with_replacement":
                raise InputError(
                    "the proof of variance-reduced passes is about their last iterate on permuted rows; average "
                    "nothing, and permute."
                )
            distance, grown = plan.snapshot_sensitivity()
            lipschitz_of_step, terms = 3 * lipschitz, plan.batch_size + plan.num_rows
        else:
            distance, grown = plan.sensitivity(self.tail), 1.0
            lipschitz_of_step, terms = lipschitz, plan.batch_size
        size, steps = self.start.shape[0] // self.num_classes, plan.step_sizes.sum()
        most = jnp.sqrt(jnp.square(self.start).sum()) * (1 + _ROUNDING) + float32_up(lipschitz_of_step * steps)
        drift = 2.0**-52 * (terms + size + 64) * grown
        drift = drift * (steps * lipschitz_of_step + (steps * plan.beta + 4 * plan.num_steps) * most)
        moved = (lipschitz * distance + drift) * (1.0 + 2.0 * _ROUNDING)
        problems = self.num_classes if self.mechanism == "gamma" else self.num_classes**0.5
        grid = 2.0 * size**0.5 * problems / GRID_STEPS
        return within(
            moved * problems * (1.0 + grid),
            jnp.isfinite(self.start).all(),
            self._delta_covers_tail,
        ).astype(jnp.float32)

    @property
    def _delta_covers_tail(self) -> jax.Array:
        if self.mechanism != "objective":
            return jnp.array(self.tail == 0)
        least = math.log(2 * self.tail) if self.tail > 0 else -math.inf
        return (self.log_delta < 0) & (self.log_delta > -jnp.inf) & (self.log_delta >= least)

    @property
    def most_rows(self) -> jax.Array:
        return jnp.asarray(self.plan.num_rows, jnp.float32)

    def event(self) -> Event:
        check_classes(self.num_classes, self.start)
        if self.mechanism not in MECHANISMS or (self.plan.order == "with_replacement") != (self.tail > 0):
            raise InputError(
                f"a result with {self.mechanism} noise and tail {self.tail!r} has no price for rows in order "
                f"{self.plan.order!r}; choose among {', '.join(MECHANISMS)}, the last for rows drawn with replacement, "
                "which need a tail above 0, and only they."
            )
        return Event(self.mechanism, jnp.asarray(self.noise_multiplier), log_delta=self.log_delta)

    def empty(self) -> jax.Array:
        return jnp.zeros_like(self.start)

    @property
    def streams(self) -> bool:
        """Whether its passes can be taken where rows stream."""
        return in_one_batch_each(self.plan.order, self.snapshots)

    def answer(self, rows: Rows | TakesPasses, noise: Noise, adjacency: Adjacency) -> jax.Array:
        check_adjacency(adjacency)
        if isinstance(rows, Rows):
            return self.release(self.result(rows, orders(self.plan, noise)), noise, adjacency)
        return self.release(jnp.asarray(rows.passes(self, orders_in_turn(self.plan, noise))), noise, adjacency)

    def result(self, rows: Rows, order: jax.Array) -> jax.Array:
        """f[p K], without noise, with the rows in this order i32[k, T / k * b]."""
        shrunk = shrunk_rows(rows, self.norm_bound, self.num_classes)
        dtype, plan = shrunk.table.dtype, self.plan
        sizes, weights = jnp.asarray(plan.step_sizes, dtype), jnp.asarray(plan.weights, dtype)
        begun = self.begun(dtype)
        if self.snapshots:
            return self._with_snapshots(begun[0], shrunk, order, sizes).ravel()
        return all_passes(plan, self._step, begun, shrunk, order, sizes, weights)[1].ravel()

    def begun(self, dtype: jnp.dtype) -> Iterates:
        """The iterates before the first step."""
        start = self.start.astype(dtype).reshape(-1, self.num_classes)
        return start, jnp.zeros_like(start)

    def advanced(self, iterates: Iterates, rows: Rows, sizes: jax.Array, weights: jax.Array) -> Iterates:
        """The iterates after the steps f[s] over the next rows, which come in their order and fill s batches."""
        shrunk = shrunk_rows(rows, self.norm_bound, self.num_classes)
        return in_batches(self.plan, self._step, iterates, shrunk, sizes, weights)

    def _step(self, iterates: Iterates, batch: tuple) -> tuple[Iterates, None]:
        params, average = iterates
        shrunk, size, weight = batch
        params = self._moved(params, gradient_sum(self.loss, params, shrunk) / self.plan.batch_size, size)
        return (params, average + weight * params if self.plan.averaged else params), None

    def _moved(self, params: Matrix, slope: Matrix, size: jax.Array) -> Matrix:
        return projected(params - size * (slope + self.plan.ridge * params), self.plan.radius)

    def _with_snapshots(self, start: Matrix, shrunk: ShrunkRows, order: jax.Array, sizes: jax.Array) -> Matrix:
        plan = self.plan

        def take(params: Matrix, slices: tuple) -> tuple[Matrix, None]:
            snapshot = params
            mean = gradient_sum(self.loss, snapshot, shrunk) / plan.num_rows

            def step(params: Matrix, batch: tuple) -> tuple[Matrix, None]:
                shrunk, size = batch
                at_params, at_snapshot = (gradient_sum(self.loss, point, shrunk) for point in (params, snapshot))
                return self._moved(params, (at_params - at_snapshot) / plan.batch_size + mean, size), None

            return one_pass(plan, step, params, shrunk, *slices), None

        return jax.lax.scan(take, start, (order, sizes.reshape(plan.num_passes, -1)))[0]

    def release(self, aggregate: jax.Array | ExactSum, noise: Noise, adjacency: Adjacency) -> jax.Array:
        # On the grid before and after adding noise, so that the possible answers are the same on every table.
        result = noise.on_grid(value_of(aggregate))
        bound = jnp.asarray(self.bound, result.dtype) * adjacency.sensitivity_factor
        scale = jnp.asarray(self.noise_multiplier, result.dtype) * bound
        if self.mechanism == "gaussian":
            return noise.add("gaussian", result, scale)
        if self.mechanism == "objective":
            return noise.add("gaussian", result, bound / self._ratio())
        drawn = noise.directions(self.num_classes, result.shape[0] // self.num_classes)
        return noise.coarse(result + scale * drawn.T.ravel(), scale)

    def _ratio(self) -> jax.Array:
        """Sensitivity over standard deviation of Gaussian noise that is (epsilon, delta - tail)-private."""
        epsilon = (1.0 - _ROUNDING) / jnp.asarray(self.noise_multiplier, jnp.float32)
        log_delta = jnp.asarray(self.log_delta, jnp.float32)
        log_remaining = jnp.log1p(-self.tail * jnp.exp(-log_delta) * (1.0 + _ROUNDING)) - _ROUNDING
        return objective.gaussian_ratio(epsilon, log_delta + log_remaining)


@struct.dataclass
class EngineResult(PassDescent):
    """Result of such passes that another engine has taken, with noise added once; l2p draws no order of rows.

    Only `PassRows` have it. On rows in memory, which nobody passed over, it is zeros: a rehearsal.
    """

    name: ClassVar[str] = "engine_result"

    def answer(self, rows: Rows | TakesPasses, noise: Noise, adjacency: Adjacency) -> jax.Array:
        check_adjacency(adjacency)
        result = jnp.asarray(rows.passes(self, None)) if isinstance(rows, PassRows) else self.empty()
        return self.release(result, noise, adjacency)


def check_classes(num_classes: int, start: jax.Array) -> None:
    """Refuse a number of problems K that does not divide params f[p K]."""
    is_count = isinstance(num_classes, int) and not isinstance(num_classes, bool) and num_classes >= 1
    if not is_count or start.shape[0] % num_classes:
        raise InputError(
            f"{num_classes!r} problems do not share {start.shape[0]} parameters, so their sensitivity is not known; "
            "give a whole number from 1 that divides them."
        )


def check_adjacency(adjacency: Adjacency) -> None:
    """Refuse neighbours of another size: with a row removed, every later batch would hold other rows."""
    if adjacency is Adjacency.ADD_REMOVE:
        raise InputError(
            "under add_remove the number of rows is private, but passes over permuted rows cut all of them into "
            "batches, and one row less would move every later one to another place; choose adjacency zero_out or "
            "replace_one."
        )
