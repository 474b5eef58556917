"""One private run: planned and checked before anything is reserved, then executed, certified and described."""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from l2p import intake
from l2p.arithmetic import check_arithmetic
from l2p.checkpoints import lookup
from l2p.checkpoints.lookup import NamedProtector
from l2p.checkpoints.set_up import set_up
from l2p.data import public_data, same_table
from l2p.errors import InputError, NoResult, withheld
from l2p.learned import sentence
from l2p.models import Model, find_model
from l2p.oracle.trace import Records, trace_of
from l2p.privacy import class_weights
from l2p.privacy.budget import Budget
from l2p.privacy.card.of_run import card_of_run
from l2p.privacy.card.unit import ROW, unit_on_card
from l2p.privacy.events import Adjacency, Answered
from l2p.privacy.filter import Filter
from l2p.privacy.noise import Entropy
from l2p.privacy.reservation import Reservation
from l2p.privacy.units import check_unit
from l2p.protector import Protector
from l2p.public_facts import Setup
from l2p.result import Result, mechanisms
from l2p.run import (
    Release,
    Run,
    Simulation,
    advance,
    advance_streaming,
    plan_noise,
    start,
)
from l2p.schema.target import Unit
from l2p.task import PassRows, RemoteRows, Rows, RowSource, Task

#: Steps between two checks whether a run is still alive; noise is drawn for as many at a time.
CHUNK = 256

# Compiled once per protector, shapes and number of steps, for the life of the process.
_start = jax.jit(start)
_advance = jax.jit(advance, static_argnames="num_steps")


class PlannedRun(NamedTuple):
    """A run that passed every check; nothing is reserved and no row read yet."""

    task: Task
    budget: Budget
    named: NamedProtector
    filter: Filter
    setup: Setup
    params: jax.Array
    noise: Callable[[int], Simulation | Release]
    what: Model
    num_rows: int
    num_features: int
    warnings: list[str]
    unit: Unit | None = None


def plan_run(
    data: Rows | RowSource | Task,
    protector: Protector | NamedProtector | str | Path,
    budget: Budget,
    *,
    model: str = "logistic",
    key: jax.Array | None = None,
    accountant: str | None = None,
    params: jax.Array | None = None,
    num_rows: int | None = None,
    kind: str | None = None,
    unit: Unit | None = None,
    share: float = 0.0,
    weights: Sequence[float] | None = None,
) -> PlannedRun:
    """What `private_train` would run with these arguments; `InputError` if an argument does not fit.

    Where a `unit` is protected, only its first rows may be other than null (`read_rows(unit=)`). A `share` of the
    budget is left to what is bought before the run. `weights` are those of the classes, in order, public.
    """
    task = data if isinstance(data, Task) else Task(private=data)
    _check_declared(task.private, unit, weights)
    same_table.refuse_same(task.private, task.public)
    lines, num_features = intake.shape_of(task.private)
    num_rows = intake.number_of_rows(lines, num_rows, budget)
    named = check(protector, budget, model, accountant, num_rows, unit, weights, task.public is not None)
    budget.check_rows(num_rows)
    what = find_model(model)
    kind = what.known_kind(kind)
    if task.public is not None:
        if isinstance(task.private, RemoteRows):
            raise InputError(
                "rows on other machines are not yet told apart from public ones, so a row might count as both; leave "
                "out the public rows, or read the table here."
            )
        task = dataclasses.replace(task, public=known_public(task.public, named, num_features, what, kind))
    if isinstance(task.private, PassRows):
        task.private.check(named.protector, what)
    if not named.protector.additive:
        intake.check_whole(named.name, task.private, num_rows)
    if budget.adjacency is not Adjacency.ADD_REMOVE:  # under which lines are private, and none is planned for
        intake.check_planned(named.name, named.protector.planned_rows, lines)
    params = _starting_point(what, num_features, params)
    if key is None:
        intake.check_mask(task.private)
    elif not isinstance(key, jax.Array):
        raise InputError(
            f"key is {key!r}, but a simulation needs a JAX key; pass jax.random.key(0), or None to release."
        )

    named, filter, setup, warnings = set_up(
        named, budget, what, num_features, num_rows, task.public, kind, unit.max_rows if unit else None, share
    )
    if weights is not None:
        setup = dataclasses.replace(setup, class_weights=class_weights.shares(weights))
    filter.sampler.check(budget.adjacency, lines)  # the card states N, and prices depend on it
    intake.check_ordered(task.private, filter.sampler)
    # Planning traces the whole run, so whatever cannot be traced is refused before anything is reserved.
    # It traces N rows, so that an error in a protector shows shapes that are public.
    noise = noise_for(named.protector, params, (num_rows, num_features), task.public, setup, key)
    if lines != num_rows:
        with withheld("planning the noise"):
            noise = noise_for(named.protector, params, (lines, num_features), task.public, setup, key)
    intake.check_scaled(task.private, _labels(what, kind))  # last: it reads the rows
    warnings = [*budget.warnings(), *warnings]
    return PlannedRun(task, budget, named, filter, setup, params, noise, what, num_rows, num_features, warnings, unit)


def check(
    protector: Protector | NamedProtector | str | Path,
    budget: Budget,
    model: str,
    accountant: str | None = None,
    num_rows: int | None = None,
    unit: Unit | None = None,
    weights: Sequence[float] | None = None,
    has_public: bool = False,
) -> NamedProtector:
    """Refuse whatever can be refused before a row is read: the protector, its model, its accountant and their prices,
    and one that needs public rows where none are given.

    Raises:
      InputError: one of them does not fit, or this process computes otherwise than the proof assumes.
    """
    check_arithmetic()
    if isinstance(protector, (str, Path)):
        named = lookup.resolve(str(protector), budget, model, accountant, num_rows=num_rows)
    elif isinstance(protector, NamedProtector):
        described = lookup.describe(protector.protector, protector.name, model, accountant or protector.accountant)
        named = dataclasses.replace(protector, accountant=described.accountant)
    else:
        named = lookup.describe(protector, type(protector).__name__, model, accountant)
    named.filter(budget)
    if named.protector.needs_public and not has_public:
        raise InputError(
            f"protector {named.name!r} learns from public rows too, and none are given; name a file of rows that "
            "anybody may see, with the same columns (--public FILE, or public= in Python), or choose a method that "
            "needs none, such as universal or noisygd."
        )
    if unit is not None:
        _check_protects(unit, named)
    if weights is not None:
        class_weights.check_weighed(f"protector {named.name!r}", named.protector.additive)
    return named


def _check_declared(rows: Rows | RowSource, unit: Unit | None, weights: Sequence[float] | None) -> None:
    """Refuse a source whose schema says otherwise than this run what is protected or how rows count, and one that
    passes on all rows of a unit."""
    if not isinstance(rows, RowSource):
        return
    if rows.schema is not None and (rows.schema.unit, rows.schema.target.weights) != (unit, weights):
        raise InputError(
            "the table streams by a schema that protects units or weighs classes, but this run would protect single "
            "rows that all count alike; give the stream itself to private_train, with public rows as public=. A choice "
            "among several runs, which is proved for single rows, needs a schema without unit and weights."
        )
    if unit is not None and not rows.caps_units:
        raise InputError(
            f"the schema protects the unit {unit.column!r}, but this source may give more rows of one than count, so "
            "the guarantee would not hold; stream the table with l2p.schema.stream.streamed, or, where the source "
            "leaves all but the first rows of a unit out itself, have it say so (caps_units)."
        )


def known_public(public: Rows, named: NamedProtector, num_features: int, model: Model, kind: str) -> Rows:
    """Public rows as NumPy f32 arrays; `InputError` if they, or the protector, cannot be used with each other."""
    known = public_data.checked(public, num_features, _labels(model, kind))
    named.protector.check_public(known, model, kind)
    return known


def _check_protects(unit: Unit, named: NamedProtector) -> None:
    check_unit(named.accountant, named.protector.sampler, unit.max_rows)
    if not named.protector.additive or set(named.protector.mechanisms) != {"gaussian"}:
        raise InputError(
            f"the schema protects the unit {unit.column!r}, which may have several rows, but what protector "
            f"{named.name!r} releases is proved for single rows; choose a method that asks for Gaussian sums alone "
            "(noisygd, auto_clip or control), or leave the unit out to have rows protected."
        )


def execute(
    planned: PlannedRun, key: jax.Array | None, reservation: Reservation | None, bought: Sequence[Answered] = ()
) -> Result:
    """Read the rows, settle the reservation, and state the guarantee; `bought` came before, under the same filter."""
    task, budget, named, filter, setup, params, noise, what, num_rows, num_features, warnings, unit = planned
    labels = _labels(what, setup.kind)
    run, asked = _train(named.protector, params, task, setup, noise, key is None, labels)
    trace = after(bought, trace_of(asked[0], asked[1:]))
    adaptive = bool(named.protector.adaptive_noise)
    certified = filter.certify(trace, adaptive)
    composition, unsettled = (None, []) if reservation is None else reservation.settle(trace, certified, adaptive)
    released = named.protector.finish(run.params, run.state, setup)
    if not np.isfinite(released).all():
        raise NoResult(
            "the run ended in numbers that are not finite (a solve that did not converge, or steps that diverged), so "
            "there is no result, and what it spent stays spent; report this, or choose other settings."
        )
    steps, stop_reason = int(run.step), "max_steps" if run.alive else "budget"
    moved = not np.array_equal(released, params)
    learned = sentence(asked, setup, steps, named.protector.num_steps, moved)
    known = public_data.on_card(task.public)
    card = card_of_run(
        budget,
        filter,
        trace,
        certified=certified,
        unit=ROW if unit is None else unit_on_card(unit.column, unit.max_rows),
        releases=key is None,
        num_rows=num_rows,
        num_features=num_features,
        model=str(what),
        accountant=named.accountant,
        adaptive_noise=adaptive,
        mechanisms=mechanisms(trace),
        steps=steps,
        max_steps=named.protector.num_steps,
        stop_reason=stop_reason,
        public=known,
        protector={
            "name": named.name,
            "sha256": named.sha256,
            "sources": None if named.sources is None else list(named.sources),
            "range": named.range,
        },
        composition=composition,
        learned=learned,
        warnings=[*warnings, *unsettled],
    )
    return Result(released, trace, card, stop_reason, steps, str(what), kind=setup.kind)


def _labels(model: Model, kind: str) -> tuple[float, ...] | None:
    return None if kind == "regression" else model.labels


def _starting_point(model: Model, num_features: int, params: jax.Array | None) -> jax.Array:
    if params is None:
        return model.init(num_features)
    expected = model.num_params(num_features)
    if params.shape != (expected,):
        raise InputError(
            f"params have shape {list(params.shape)}, but {model} on these columns has [{expected}]; give so many, or "
            "none for the model's own start."
        )
    return jnp.asarray(params, jnp.float32)


def _train(
    protector: Protector,
    params: jax.Array,
    task: Task,
    setup: Setup,
    noise: Callable[[int], Simulation | Release],
    releases: bool,
    labels: tuple[float, ...] | None,
) -> tuple[Run, list[Records]]:
    """Start and advance until the budget or the steps end; returns the final run and its records, first `init`'s."""
    single = functools.partial(jax.tree.map, lambda leaf: jnp.asarray(leaf, jnp.float32))
    guard = withheld("training") if releases else contextlib.nullcontext()
    # A value too large for float32 makes a null row, and a warning would reveal that. A release adds and rounds in
    # float64; `start` and `advance` keep everything else in float32.
    with guard, np.errstate(over="ignore"), jax.enable_x64(releases):
        private = task.private if isinstance(task.private, Rows) else intake.Checked.over(task.private, labels)
        rows = public_data.apart(private, task.public)
        rows = single(rows) if isinstance(rows, Rows) else rows
        known = single(task.public)
        begin = _start if isinstance(rows, Rows) else start
        run, first = begin(protector, params, rows, setup, noise(0), known)
        asked = [first]
        for done in range(0, protector.num_steps, CHUNK):
            if not run.alive:
                break
            num_steps = min(CHUNK, protector.num_steps - done)
            run, records = _go_on(protector, run, rows, setup, noise(num_steps), num_steps, known)
            asked.append(records)
    return run, asked


def _go_on(
    protector: Protector,
    run: Run,
    rows: Rows | RowSource,
    setup: Setup,
    noise: Simulation | Release,
    num_steps: int,
    public: Rows | None,
) -> tuple[Run, Records]:
    """`advance` by one compiled scan for rows in memory, by a loop on the host for rows that stream."""
    if isinstance(rows, RowSource):
        return advance_streaming(protector, run, rows, setup, noise, num_steps, public)
    run, records, _ = _advance(protector, run, rows, setup, noise, num_steps=num_steps, public=public)
    return run, records


def after(bought: Sequence[Answered], trace: Sequence[Answered]) -> list[Answered]:
    """What was bought before a run and then its own trace, with what is spent added up over both."""
    before = bought[-1].spent if bought else 0.0
    return [*bought, *(dataclasses.replace(row, spent=before + row.spent) for row in trace)]


def noise_for(
    protector: Protector,
    params: jax.Array,
    shape: tuple[int, int],
    public: Rows | None,
    setup: Setup,
    key: jax.Array | None,
) -> Callable[[int], Simulation | Release]:
    """A function from a number of steps to their noise, for `start` (0 steps) and each `advance`; a release draws fresh
    noise at every call."""
    if key is not None:
        return lambda num_steps: Simulation(key, keeps_answers=True)
    entropy = Entropy()
    at_start, per_step = plan_noise(protector, params, *shape, setup, public)

    def draw(num_steps: int) -> Release:
        begin = () if num_steps else at_start
        init, steps = jax.tree.map(jnp.asarray, (entropy.draw(begin, 1), entropy.draw(per_step, num_steps)))
        return Release(init, steps, begin, per_step)

    return draw
