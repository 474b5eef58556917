"""The only code that runs a protector on data: start, advance, finish.

Deployment, comparison and meta-training all use it; meta-training differentiates the same scan that deployment runs.

A release needs float64 inside `Oracle.ask` and nowhere else. The caller compiles under `jax.enable_x64(True)`, so that
float64 survives lowering; `start` and `advance` trace everything else under `jax.enable_x64(False)`, so that a
protector computes the same whether it is meta-trained or deployed.
"""

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.base.compiled import as_one
from l2p.oracle import Oracle, Reader, Terms, reader_of
from l2p.oracle.setup import Setup
from l2p.oracle.trace import Records
from l2p.privacy.cap.spending import Spending
from l2p.privacy.cost.sampling import FullBatch, PermutationEpochs
from l2p.run.protector import Protector, State
from l2p.task import exact_sums
from l2p.task.feature_map import FeatureMap
from l2p.task.lookahead import Lookahead
from l2p.task.noise import AnyDraw, HostNoise, KeyNoise, Noise, PlannedNoise
from l2p.task.rows import Rows, mapped, mapped_as_constants, null_invalid
from l2p.task.sources import Mapped, RemoteRows, RowSource

#: See `_is_condensed`.
CONDENSED = 8

Observe = Callable[[jax.Array], Any]


@struct.dataclass
class Simulation:
    """Noise from a JAX key: for meta-training, comparison and tests. Protects nobody.

    Attributes:
      key: the key.
      keeps_answers: as in `l2p.task.noise.Noise` (static).
    """

    key: jax.Array
    keeps_answers: bool = struct.field(pytree_node=False, default=False)

    def init_noise(self) -> Noise:
        return KeyNoise(jax.random.fold_in(self.key, 0), self.key, self.keeps_answers)

    def per_step(self, step: jax.Array, num_steps: int) -> tuple[jax.Array, Callable[[Any], Noise]]:
        """Arrays that the scan slices, and a function that turns one slice into the noise of a step."""

        def noise(index: jax.Array) -> Noise:
            return KeyNoise(jax.random.fold_in(self.key, index), self.key, self.keeps_answers)

        return step + 1 + jnp.arange(num_steps), noise


@struct.dataclass
class Release:
    """Noise and batches drawn on the host, once for `init` and once for each step ahead; never used for two advances.

    Attributes:
      init: bit patterns u32[1, size, 2], one per draw.
      steps: bit patterns u32[num_steps, size, 2] or lines of the table i32[num_steps, capacity], one per draw.
      init_plan, steps_plan: the requests that they were drawn for (static).
    """

    init: list[jax.Array]
    steps: list[jax.Array]
    init_plan: tuple[AnyDraw, ...] = struct.field(pytree_node=False)
    steps_plan: tuple[AnyDraw, ...] = struct.field(pytree_node=False)

    def init_noise(self) -> Noise:
        return HostNoise([bits[0] for bits in self.init], self.init_plan)

    def per_step(self, step: jax.Array, num_steps: int) -> tuple[list[jax.Array], Callable[[Any], Noise]]:
        del step, num_steps
        return self.steps, lambda bits: HostNoise(bits, self.steps_plan)


@struct.dataclass
class Run:
    """The state of a run between two steps: everything needed to continue it.

    Attributes:
      params: f32[p], in the protector's own coordinates until `finish`.
      state: the protector's state.
      spending: what has been spent.
      step: i32[], steps that were granted in full.
      alive: bool[], False once a query was refused; nothing changes from then on.
    """

    params: jax.Array
    state: State
    spending: Spending
    step: jax.Array
    alive: jax.Array


@jax.enable_x64(False)
def start(
    protector: Protector,
    params: jax.Array,
    rows: Rows | RowSource,
    setup: Setup,
    noise: Simulation | Release,
    public: Rows | None = None,
) -> tuple[Run, Records]:
    """Start with nothing spent and let the protector ask its one-off side queries."""
    spending = Spending(jnp.zeros((), jnp.float32), jnp.asarray(setup.cap, jnp.float32))
    step = jnp.zeros((), jnp.int32)
    rows = null_invalid(rows) if isinstance(rows, Rows) else rows
    quantized = quantized_rows_of(rows, noise, setup)
    terms = Terms(public, False, protector.mechanisms, protector.additive)
    oracle = Oracle(reader_of(rows, quantized=quantized), setup, spending, noise.init_noise(), step, terms)
    params, state = protector.init(params, oracle)
    oracle.close()
    return Run(params, state, oracle.spending, step, ~oracle.refused), oracle.records


@jax.enable_x64(False)
def advance(
    protector: Protector,
    run: Run,
    rows: Rows,
    setup: Setup,
    noise: Simulation | Release,
    num_steps: int,
    public: Rows | None = None,
    observe: Observe | None = None,
) -> tuple[Run, Records, Any]:
    """`num_steps` more steps: the unit of deployment and of unrolling.

    A step with a refused query changes neither params nor state and ends the run; its granted queries stay charged.

    Returns:
      The run, its records with a leading axis [num_steps], and `observe(params after the step)` stacked likewise.
      `observe` is for simulations: what it reads is not part of any guarantee.
    """
    if observe is not None and isinstance(noise, Release):
        raise ValueError("observe reads a run from outside its guarantee, so it is for simulations only.")
    rows = null_invalid(rows)
    view = protector.view(run.state)
    quantized = quantized_rows_of(rows, noise, setup, view)
    remaining_map = None
    if view is not None:
        if protector.reads_remaining_map and isinstance(noise, Simulation) and view.is_invertible:
            rows, remaining_map = mapped_as_constants(rows, view)
        else:
            rows = mapped(rows, view)
    reader = reader_of(rows, quantized=quantized, remaining_map=remaining_map)
    slices, noise_for = noise.per_step(run.step, num_steps)

    @functools.partial(jax.checkpoint, policy=_is_condensed)
    def body(run: Run, piece: Any) -> tuple[Run, tuple[Records, Any]]:
        run, records = take_step(protector, run, reader, setup, noise_for(piece), public)
        observation = None if observe is None else observe(protector.finish(run.params, run.state, setup))
        return run, (records, observation)

    run, (records, observation) = jax.lax.scan(body, run, slices, length=num_steps)
    return run, records, observation


def _is_condensed(primitive: Any, *inputs: Any, **settings: Any) -> bool:
    """True for a sum that reads at least `CONDENSED` times as many numbers as it gives.

    Derivatives keep such results of a step, and compute all others a second time: rows are not read again for them.
    """
    if primitive is jax.lax.reduce_sum_p:
        return math.prod(inputs[0].shape[axis] for axis in settings["axes"]) >= CONDENSED
    if primitive is not jax.lax.dot_general_p:
        return False
    (contracted, _), _ = settings["dimension_numbers"]
    first, second = inputs
    summed = math.prod(first.shape[axis] for axis in contracted)
    return max(first.size, second.size) * summed**2 >= CONDENSED * first.size * second.size


def quantized_rows_of(
    rows: Rows | RowSource, noise: Simulation | Release, setup: Setup, view: FeatureMap | None = None
) -> exact_sums.QuantizedRows | None:
    """The rows in memory as a release sums them, read through a view; None for sums in float32 and a stream."""
    if isinstance(noise, Simulation) or setup.in_float32 or not isinstance(rows, Rows):
        return None
    with jax.enable_x64(True):
        stacked = exact_sums.quantize if setup.model.reads_features else exact_sums.as_they_are
        quantized = stacked(rows.x, rows.y, rows.mask)
        return quantized if view is None else exact_sums.mapped(quantized, view)


def take_step(
    protector: Protector,
    run: Run,
    reader: Reader,
    setup: Setup,
    noise: Noise,
    public: Rows | None,
) -> tuple[Run, Records]:
    """One step, the same for both drivers."""
    sampler, spending = setup.price_list.sampler, run.spending
    if isinstance(sampler, PermutationEpochs):
        spending = spending.open_batch(run.step % sampler.steps_per_charge == 0)
    terms = Terms(public, True, protector.mechanisms, protector.additive)
    oracle = Oracle(reader, setup, spending, noise, run.step, terms)
    # Once refused, always refused: the queries of an ended run are answered with zeros and cost nothing.
    oracle.refused = ~run.alive
    params, state = protector.step(run.params, run.state, oracle)
    oracle.close()
    alive = ~oracle.refused
    moved = Run(params, state, oracle.spending, run.step + 1, alive)
    stopped = dataclasses.replace(run, spending=oracle.spending, alive=alive)
    new, tree = jax.tree.flatten(moved)
    old = jax.tree.leaves(stopped)
    # State that a step returns unchanged is recognised as constant, so what depends on it alone is computed once.
    changed = [place for place, leaf in enumerate(new) if leaf is not old[place]]
    chosen = _chosen(alive, [new[place] for place in changed], [old[place] for place in changed])
    for place, leaf in zip(changed, chosen, strict=True):
        old[place] = leaf
    return jax.tree.unflatten(tree, old), oracle.records


@as_one
def _chosen(alive: jax.Array, new: list[jax.Array], old: list[jax.Array]) -> list[jax.Array]:
    return [jnp.where(alive, *pair) for pair in zip(new, old, strict=True)]


@jax.enable_x64(False)
def advance_streaming(
    protector: Protector,
    run: Run,
    source: RowSource,
    setup: Setup,
    noise: Simulation | Release,
    num_steps: int,
    public: Rows | None = None,
) -> tuple[Run, Records]:
    """`advance` for rows that stream: a loop on the host that compiles only the sums over a block.

    It stops after the first refusal. Records have a leading axis of the steps tried, at least one.
    """
    view = protector.view(run.state)
    remote = isinstance(source, RemoteRows)
    if view is not None and isinstance(noise, Simulation) and not remote:
        source, view = Mapped(source, view), None
    progress, num_total = source.progress, protector.num_steps
    if isinstance(noise, Release) and not remote:
        source = Lookahead.over(source, noise.steps, noise.steps_plan)
    reader = reader_of(source, view)
    slices, noise_for = noise.per_step(run.step, num_steps)
    step_records: list[Records] = []
    for index in range(num_steps):
        piece = jax.tree.map(lambda leaf: leaf[index], slices)  # noqa: B023
        run, records = take_step(protector, run, reader, setup, noise_for(piece), public)
        step_records.append(records)
        if progress is not None:
            progress.stepped(int(run.step), num_total)
        if not run.alive:
            break
    return run, _stacked(step_records)


@as_one
def _stacked(records: list[Records]) -> Records:
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *records)


def run(
    protector: Protector,
    params: jax.Array,
    rows: Rows,
    setup: Setup,
    key: jax.Array,
    public: Rows | None = None,
    observe: Observe | None = None,
) -> tuple[jax.Array, Run, tuple[Records, Records], Any]:
    """A whole simulated run: (released params, final run, records of init and of the steps, observations)."""
    noise = Simulation(key)
    rows = rows.ready(full_passes=isinstance(setup.price_list.sampler, FullBatch))
    begun, first = start(protector, params, rows, setup, noise, public)
    ended, later, observations = advance(protector, begun, rows, setup, noise, protector.num_steps, public, observe)
    return protector.finish(ended.params, ended.state, setup), ended, (first, later), observations


Draws = tuple[AnyDraw, ...]


@jax.enable_x64(False)
def plan_noise(
    protector: Protector,
    params: jax.Array,
    num_rows: int,
    num_features: int,
    setup: Setup,
    public: Rows | None = None,
) -> tuple[Draws, Draws]:
    """The draws that `init` and each step will request, found by tracing them on the shapes of rows without values."""
    leaves, tree = jax.tree.flatten((protector, params, setup, public))
    shapes = tuple(jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves)
    return _planned(tree, shapes, num_rows, num_features)


@functools.lru_cache(maxsize=64)
def _planned(tree: Any, shapes: tuple[Any, ...], num_rows: int, num_features: int) -> tuple[Draws, Draws]:
    # Cached: draws depend on shapes and static fields alone, and tracing a protector can take as long as a release.
    plans = PlannedNoise(), PlannedNoise()

    def trace(*leaves: jax.Array) -> None:
        protector, params, setup, public = jax.tree.unflatten(tree, leaves)
        rows = Rows(jnp.zeros((num_rows, num_features)), jnp.zeros(num_rows), jnp.zeros(num_rows))
        spending, step = Spending(jnp.zeros(()), setup.cap), jnp.zeros((), jnp.int32)

        def oracle(rows: Rows, sampled: bool) -> Oracle:
            terms = Terms(public, sampled, protector.mechanisms, protector.additive)
            return Oracle(reader_of(rows), setup, spending, plans[sampled], step, terms)

        moved, state = protector.init(params, oracle(rows, False))
        view = protector.view(state)
        protector.step(moved, state, oracle(rows if view is None else mapped(rows, view), True))

    jax.eval_shape(trace, *shapes)
    return tuple(plans[0].draws), tuple(plans[1].draws)
