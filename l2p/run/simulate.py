"""Many runs of one method at once, seeds x budgets, with noise from JAX keys: for comparisons, never for a release.

Budgets are the inner axis and share a seed's rows, so that all their margins come from one matrix product.
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base import struct
from l2p.base.compiled import as_program, quickly
from l2p.models import Model
from l2p.oracle.setup import Setup
from l2p.oracle.trace import Records, trace_of
from l2p.privacy.cost.sampling import FullBatch
from l2p.privacy.events import Answered
from l2p.run.protector import Protector
from l2p.run.run import Run, Simulation, advance, start
from l2p.task.rows import Rows
from l2p.task.task import Task

#: Steps between two checks whether any run is still alive.
CHUNK = 128
#: Floats that seeds simulated together may occupy: 1 GiB.
MEMORY = 2**28
#: Floats per row and budget for each number that a model computes per row: the losses of some twenty candidates,
#: before, during and after clipping.
FLOATS_PER_ROW = 64
#: Cells of all tables of a group, each counted once a budget, below which it compiles longer than it computes.
SHORT = 2**24

Observe = Callable[[jax.Array, Model, Rows], Any]
#: A seed's task from the rows of a whole table; all seeds' tasks have the same shapes.
Divide = Callable[[Rows, int], Task]


@struct.dataclass
class Outcome:
    """Results of S seeds x E budgets; T is the maximum number of steps.

    Attributes:
      params: f32[S, E, p], as released.
      steps: i32[S, E], steps granted in full.
      first: records of `init`, leaves [S, E].
      later: records of the steps, leaves [S, E, T]; nothing is granted once a run has ended.
      observations: after each step, leaves [S, E, T, ...], the last one repeated once all runs have ended.
    """

    params: np.ndarray
    steps: np.ndarray
    first: Records
    later: Records
    observations: Any

    def answered(self, seed: int, budget: int) -> list[Answered]:
        """Granted queries of one run, in order; both arguments are indices."""
        first, later = jax.tree.map(lambda leaf: leaf[seed, budget], (self.first, self.later))
        return trace_of(first, [later])

    def cost_per_step(self) -> np.ndarray:
        """f32[S, E, T], what each step cost, in the accountant's unit."""
        return np.sum([record.cost for record in self.later], axis=0)


def split(rows: Rows, seed: int) -> Task:
    """A seed's split of f32[n, d] rows: a fifth to test on, the rest private.

    >>> rows = Rows(np.zeros((10, 3)), np.zeros(10), np.ones(10))
    >>> task = split(rows, seed=0)
    >>> task.private.x.shape, task.test.x.shape
    ((8, 3), (2, 3))
    """
    key = jax.random.key_data(jax.random.fold_in(jax.random.key(seed), 0))
    order = np.random.default_rng(np.asarray(key)).permutation(len(rows.y))
    num_test = len(rows.y) // 5
    pick = lambda part: jax.tree.map(lambda leaf: np.asarray(leaf)[part], rows)  # noqa: E731
    return Task(private=pick(order[num_test:]), test=pick(order[:num_test]))


def train_size(rows: Rows) -> int:
    """Number of private rows of a split."""
    return len(rows.y) - len(rows.y) // 5


def noise_key(seed: int) -> jax.Array:
    """A seed's key for noise, the same at every budget and for every method."""
    return jax.random.fold_in(jax.random.key(seed), 1)


def splits_digest(num_rows: int, num_seeds: int = 4) -> str:
    """SHA-256 of the first seeds' splits of a table of `num_rows` rows, and of bits from their keys for noise.

    A comparison records it, so that results are never mixed if an update of NumPy or JAX changed the splits.
    """
    digest = hashlib.sha256()
    index: Any = np.arange(num_rows)
    for seed in range(num_seeds):
        task = split(Rows(index[:, None], index, index), seed)
        for leaf in (
            *jax.tree.leaves((task.private, task.test, task.public)),
            jax.random.bits(noise_key(seed), (8,), jnp.uint32),
        ):
            digest.update(np.asarray(leaf).astype("<i8").tobytes())
    return digest.hexdigest()


def mean_loss(params: jax.Array, model: Model, rows: Rows) -> jax.Array:
    """Unregularised mean loss f32[] of params f32[p]."""
    return _mean(model.losses(params[None, :], rows.x, rows.y)[0], rows.mask)


def score(params: jax.Array, model: Model, rows: Rows, kind: str) -> jax.Array:
    """Test metric f32[] of params f32[p]: accuracy, or the mean squared error for kind "regression"."""
    if kind == "regression":
        values = jnp.square(model.predict(params, rows.x) - rows.y)
    else:
        values = (model.classify(params, rows.x) == rows.y).astype(jnp.float32)
    return _mean(values, rows.mask)


def _mean(values: jax.Array, mask: jax.Array) -> jax.Array:
    """f32[] of the rows that count. A sum and not a product with the mask, which XLA adds up one by one on a CPU: over
    two million rows with the same loss that is off by 1 %."""
    return (values * mask).sum() / mask.sum()


def simulate(
    protectors: Sequence[Protector],
    setups: Sequence[Setup],
    rows: Rows,
    seeds: Sequence[int],
    observe: Observe | None = None,
    start: np.ndarray | None = None,
    keys: jax.Array | None = None,
    divide: Divide | None = None,
) -> Outcome:
    """Run one method at every budget and seed.

    Args:
      protectors: one per budget, of the same structure.
      setups: one per budget, of the same structure; `num_rows` is that of a split's private rows.
      rows: the whole table, split anew for every seed.
      seeds: fix split and noise.
      observe: (params, model, private rows) -> anything, after every step; must be one function object, or every call
        traces it anew.
      start: params f32[p] that every run starts from, or f32[S, E, p] with one start each, known without the private
        rows or paid for; None for the model's own.
      keys: of noise [S, E], one for each run; None for `noise_key`, which a seed's budgets share.
      divide: what of the table is private and what public; None for `split`.

    Raises:
      InputError: the accountant cannot price a query of this method.
    """
    protector, setup = jax.tree.map(lambda *leaves: jnp.stack(leaves), *zip(protectors, setups, strict=True))
    size = _group_size(len(seeds), len(setups), rows, setup.model)
    params = setups[0].model.init(rows.x.shape[1]) if start is None else jnp.asarray(start)
    params = jnp.broadcast_to(params, (len(seeds), len(setups), params.shape[-1]))
    keys = jnp.stack([noise_key(seed) for seed in seeds]) if keys is None else keys
    # Several budgets share their rows in products of matrices, which are fastest row by row.
    full_passes = len(setups) == 1 and isinstance(setups[0].price_list.sampler, FullBatch)
    groups = [
        _simulate_group(
            protector,
            setup,
            params[part],
            _stacked(divide or split, rows, seeds[part], full_passes),
            keys[part],
            observe,
        )
        for part in (slice(i, i + size) for i in range(0, len(seeds), size))
    ]
    return jax.tree.map(lambda *parts: np.concatenate(parts), *groups)


def _group_size(num_seeds: int, num_budgets: int, rows: Rows, model: Model) -> int:
    """The largest number of seeds that fits in memory and divides them into groups of one size, which compile once."""
    num_rows, num_features = rows.x.shape
    fit = max(1, MEMORY // (num_rows * (num_features + FLOATS_PER_ROW * model.floats_per_row * num_budgets)))
    return max(size for size in range(1, num_seeds + 1) if num_seeds % size == 0 and size <= fit)


def _simulate_group(
    protectors: Protector,
    setups: Setup,
    params: jax.Array,
    rows: tuple[Rows, Rows | None],
    keys: jax.Array,
    observe: Observe | None,
) -> Outcome:
    programs = _SHORT if math.prod(rows[0].x.shape) * params.shape[1] < SHORT else _LONG
    runs, first = programs.start(protectors, setups, params, rows, keys)
    chunks = []
    for offset in range(0, max(protectors.num_steps, 1), CHUNK):
        length = min(CHUNK, protectors.num_steps - offset)
        runs, records, observations = programs.advance(protectors, setups, runs, rows, keys, length, observe)
        chunks.append(jax.device_get((records, observations)))
        if not runs.alive.any():
            break
    records, observations = jax.tree.map(lambda *parts: np.concatenate(parts, axis=2), *chunks)
    later, observations = _pad(records, protectors.num_steps), _pad(observations, protectors.num_steps, mode="edge")
    params, steps, first = jax.device_get((programs.finish(protectors, setups, runs), runs.step, first))
    return Outcome(params, steps, first, later, observations)


def _stacked(divide: Divide, rows: Rows, seeds: Sequence[int], full_passes: bool) -> tuple[Rows, Rows | None]:
    """Private and public rows of several seeds, leaves [S, ...]."""
    tasks = [divide(rows, seed) for seed in seeds]
    private, public = jax.tree.map(lambda *leaves: jnp.stack(leaves), *((task.private, task.public) for task in tasks))
    return private.ready(full_passes), public


def _pad(tree: Any, num_steps: int, **mode: Any) -> Any:
    """Leaves [S, E, t, ...] -> [S, E, num_steps, ...]."""
    return jax.tree.map(
        lambda leaf: np.pad(leaf, [(0, 0)] * 2 + [(0, num_steps - leaf.shape[2])] + [(0, 0)] * (leaf.ndim - 3), **mode),
        tree,
    )


def _over_runs(function: Callable, keys: jax.Array) -> Callable:
    """`function(protector, setup, run, (private, public), key)` over seeds, and within each over budgets; keys are [S]
    or [S, E]."""
    budgets = jax.vmap(function, (0, 0, 0, None, 0 if keys.ndim == 2 else None))
    return jax.vmap(budgets, (None, None, 0, 0, 0))


def _start(
    protectors: Protector, setups: Setup, params: jax.Array, rows: tuple[Rows, Rows | None], keys: jax.Array
) -> tuple[Run, Records]:
    def start_run(
        protector: Protector, setup: Setup, params: jax.Array, rows: tuple[Rows, Rows | None], key: jax.Array
    ) -> tuple[Run, Records]:
        private, public = rows
        return start(protector, params, private, setup, Simulation(key), public)

    return _over_runs(start_run, keys)(protectors, setups, params, rows, keys)


def _advance(
    protectors: Protector,
    setups: Setup,
    runs: Run,
    rows: tuple[Rows, Rows | None],
    keys: jax.Array,
    num_steps: int,
    observe: Observe | None,
) -> tuple[Run, Records, Any]:
    def advance_run(
        protector: Protector, setup: Setup, run: Run, rows: tuple[Rows, Rows | None], key: jax.Array
    ) -> tuple[Run, Records, Any]:
        private, public = rows
        watch = None if observe is None else lambda params: observe(params, setup.model, private)
        return advance(protector, run, private, setup, Simulation(key), num_steps, public, watch)

    return _over_runs(advance_run, keys)(protectors, setups, runs, rows, keys)


def _finish(protectors: Protector, setups: Setup, runs: Run) -> jax.Array:
    def finish_run(protector: Protector, setup: Setup, run: Run) -> jax.Array:
        return protector.finish(run.params, run.state, setup)

    return jax.vmap(jax.vmap(finish_run), (None, None, 0))(protectors, setups, runs)


class _Programs(NamedTuple):
    """How a group of runs is compiled."""

    start: Callable[..., Any]
    advance: Callable[..., Any]
    finish: Callable[..., Any]

    @classmethod
    def of(cls, compiled: Callable[..., Any]) -> "_Programs":
        """All three compiled by `l2p.base.compiled.quickly`, or otherwise by a function of the same arguments."""
        return cls(compiled(_start), compiled(_advance, static=("num_steps", "observe")), compiled(_finish))


#: Of groups that compute no longer than they compile, and of others.
_SHORT, _LONG = _Programs.of(quickly), _Programs.of(as_program)
