"""Private training in one call: check everything, run, certify, and say what is guaranteed."""

import contextlib
import dataclasses
import datetime
import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from l2p import intake
from l2p.checkpoints import lookup
from l2p.checkpoints.lookup import Resolved
from l2p.checkpoints.set_up import set_up
from l2p.errors import InputError, NoResult, withheld
from l2p.models import Model, find_model
from l2p.oracle import Setup
from l2p.privacy.book import Book
from l2p.privacy.budget import Budget
from l2p.privacy.card import SEED_POLICY, Card, versions
from l2p.privacy.card.events import encode_events
from l2p.privacy.envelope import EnvelopeFilter
from l2p.privacy.events import Adjacency
from l2p.privacy.filter import Filter
from l2p.privacy.noise import Entropy
from l2p.privacy.reservation import Reservation, held
from l2p.protector import Protector
from l2p.protectors import HAND_DESIGNED
from l2p.result import Result, answered, mechanisms
from l2p.run import (
    Records,
    Release,
    Run,
    Simulation,
    TraceRow,
    advance,
    advance_streaming,
    plan_noise,
    start,
    trace_rows,
)
from l2p.task import Rows, RowSource, Task

#: Steps between two looks at whether a run is still alive; also how much noise is drawn at a time.
CHUNK = 256

_RELEASED = "a key of 256 bits from the operating system, expanded by ChaCha20, a cryptographic generator."
_SIMULATED = "a JAX key given by the user; anybody who knows it can subtract the noise."
_FLOATS = {True: "float64 noise, added to sums that lie on a public grid", False: "float32 noise and sums"}

# Compiled once per protector, shapes and number of steps, for the life of the process.
_start = jax.jit(start)
_advance = jax.jit(advance, static_argnames="num_steps")


def private_train(
    data: Rows | RowSource | Task,
    protector: Protector | Resolved | str | Path,
    budget: Budget,
    *,
    model: str = "logistic",
    key: jax.Array | None = None,
    accountant: str | None = None,
    params: jax.Array | None = None,
    num_rows: int | None = None,
    ledger: Book | str | Path | None = None,
    kind: str | None = None,
) -> Result:
    """Train on private rows within `budget`.

    Args:
      data: the private rows, a source that streams them, or a task whose public rows the protector may read freely.
      protector: a protector, alone or with what is known of it, or what `l2p apply --protector` takes: a method, a
        checkpoint's name or its file.
      budget: what may be spent, and on which adjacency.
      model: name of the model, as `l2p.models.find_model` takes it: `softmax:10` has ten classes by declaration,
        for they are never read off labels.
      key: None is a release, with noise from the operating system. A JAX key is a simulation, which anybody who knows
        the key can undo; its card says so.
      accountant: one of `accountants.run_names()`; default the protector's own.
      params: f32[p], the public starting point; default the model's own.
      ledger: what all runs on this data set have spent together (`l2p ledger create`), or its file; this run's most is
        reserved there before it reads a row, and settled after it.
      num_rows: N, public by declaration; default the number of lines of `data`, null rows included. Under add_remove
        it has to be told.
      kind: what the target is, for a model that learns several; public by declaration. "binary" makes `square` a
        classifier of labels 0 and 1; default the model's own, which for `square` is a number.

    Raises:
      InputError: anything does not fit, before budget is spent.
      NoResult: the result is not finite. Nothing is then released, and what was spent stays spent.
      RuntimeError: the float64 check after the run contradicts the filter; the same holds. Also for any error while a
        release or a source has rows at hand; what it says is withheld then, as it may quote them.
      Whatever else ends a run with a ledger before it has settled, such as KeyboardInterrupt, passes on, with a note on
        the reservation that stays there.

    >>> rows = Rows(jnp.ones((900, 1)), jnp.ones(900), jnp.ones(900))
    >>> private_train(rows, "noisygd", Budget(1.0, 1e-5)).card.private_release
    True
    """
    planned = plan_run(
        data,
        protector,
        budget,
        model=model,
        key=key,
        accountant=accountant,
        params=params,
        num_rows=num_rows,
        kind=kind,
    )
    if ledger is None:
        return _execute(planned, key, None)
    book = open_ledger(ledger, planned.num_rows, key)
    with held(book) as id:
        return _execute(planned, key, _reserve(book, planned, id))


class PlannedRun(NamedTuple):
    """A run that passed every check, before anything is reserved and a row read."""

    task: Task
    budget: Budget
    resolved: Resolved
    filter: Filter
    setup: Setup
    params: jax.Array
    noise: Callable[[int], Simulation | Release]
    what: Model
    num_rows: int
    num_features: int
    warnings: list[str]


def plan_run(
    data: Rows | RowSource | Task,
    protector: Protector | Resolved | str | Path,
    budget: Budget,
    *,
    model: str = "logistic",
    key: jax.Array | None = None,
    accountant: str | None = None,
    params: jax.Array | None = None,
    num_rows: int | None = None,
    kind: str | None = None,
) -> PlannedRun:
    """What `private_train` would run with these arguments; `InputError` if anything does not fit."""
    task = data if isinstance(data, Task) else Task(private=data)
    lines, num_features = intake.shape_of(task.private)
    num_rows = intake.number_of_rows(lines, num_rows, budget)
    resolved = check(protector, budget, model, accountant, num_rows)
    budget.check_rows(num_rows)
    what = find_model(model)
    kind = what.known_kind(kind)
    if not resolved.protector.additive:
        intake.check_whole(resolved.name, task.private, num_rows)
    params = _starting_point(what, num_features, params)
    if key is None:
        intake.check_mask(task.private)
    elif not isinstance(key, jax.Array):
        raise InputError(
            f"key is {key!r}, but a simulation needs a JAX key; pass jax.random.key(0), or None to release."
        )

    resolved, filter, setup, warnings = set_up(resolved, budget, what, num_features, num_rows, task.public, kind)
    filter.sampler.check(budget.adjacency, lines)  # the card states N, and prices by it
    # Planning traces the whole run, so whatever cannot be traced is refused before anything is reserved.
    # It traces N rows, so that an error in a protector shows shapes that are public.
    noise = _noise(resolved.protector, params, (num_rows, num_features), task.public, setup, key)
    if lines != num_rows:
        with withheld("planning the noise"):
            noise = _noise(resolved.protector, params, (lines, num_features), task.public, setup, key)
    return PlannedRun(task, budget, resolved, filter, setup, params, noise, what, num_rows, num_features, warnings)


def _execute(planned: PlannedRun, key: jax.Array | None, reservation: Reservation | None) -> Result:
    """Read the rows, settle, and say what is guaranteed."""
    task, budget, resolved, filter, setup, params, noise, what, num_rows, num_features, warnings = planned
    run, trace = _train(resolved.protector, params, task, setup, noise, key is None)
    adaptive = bool(resolved.protector.adaptive_noise)
    answers = answered(trace)
    certified = filter.certify(answers, adaptive)
    composition, unsettled = (None, []) if reservation is None else reservation.settle(answers, certified, adaptive)
    released = resolved.protector.finish(run.params, run.state, setup)
    if not np.isfinite(released).all():
        raise NoResult(
            "the run ended in numbers that are not finite (a solve that did not converge, or steps that diverged), so "
            "there is no result, and what it spent stays spent; report this, or choose other settings."
        )
    steps, stop_reason = int(run.step), "max_steps" if run.alive else "budget"
    card = Card(
        epsilon=budget.epsilon,
        delta=budget.delta,
        epsilon_certified=certified,
        adjacency=budget.adjacency.value,
        unit="row",
        num_rows=num_rows,
        num_features=num_features,
        model=str(what),
        private_release=key is None,
        accountant=resolved.accountant,
        # An envelope is composed at no order; the one its ledger counts at only spreads the schedule.
        order=filter.order if math.isfinite(filter.order) and not isinstance(filter, EnvelopeFilter) else None,
        theorem=filter.theorem,
        adaptive_noise=adaptive,
        sampler=filter.sampler.to_json(),
        mechanisms=mechanisms(trace),
        events=encode_events(answers),
        envelope=encode_events(filter.envelope) if isinstance(filter, EnvelopeFilter) else None,
        steps=steps,
        max_steps=resolved.protector.num_steps,
        stop_reason=stop_reason,
        randomness=_RELEASED if key is None else _SIMULATED,
        seed_policy=SEED_POLICY[key is None],
        float_mode=_FLOATS[key is None],
        not_private=_not_private(resolved, budget, task),
        protector={
            "name": resolved.name,
            "sha256": resolved.sha256,
            "sources": None if resolved.sources is None else list(resolved.sources),
            "range": resolved.range,
        },
        composition=composition,
        warnings=[*warnings, *unsettled],
        versions=versions(),
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )
    return Result(released, trace, card, stop_reason, steps, str(what))


def load(name: str | Path, budget: Budget | None = None, model: str = "logistic") -> Protector:
    """A protector by whatever name `l2p apply` takes; hand-designed methods set themselves up for `budget`.

    >>> load("noisygd", Budget(1.0, 1e-5)).num_steps
    50
    """
    if budget is None:
        if str(name) in HAND_DESIGNED:
            raise InputError(f"protector {str(name)!r} sets itself up for a budget; pass load({str(name)!r}, budget).")
        budget = Budget(1.0, 1e-6)  # a checkpoint is the same at every budget
    return lookup.resolve(str(name), budget, model).protector


def check(
    protector: Protector | Resolved | str | Path,
    budget: Budget,
    model: str,
    accountant: str | None = None,
    num_rows: int | None = None,
) -> Resolved:
    """Everything that can be refused before a row is read: the protector, its model, its accountant and their prices.

    Raises:
      InputError: anything does not fit.
    """
    if isinstance(protector, (str, Path)):
        resolved = lookup.resolve(str(protector), budget, model, accountant, num_rows=num_rows)
    elif isinstance(protector, Resolved):
        described = lookup.describe(protector.protector, protector.name, model, accountant or protector.accountant)
        resolved = dataclasses.replace(protector, accountant=described.accountant)
    else:
        resolved = lookup.describe(protector, type(protector).__name__, model, accountant)
    resolved.filter(budget)
    return resolved


def open_ledger(ledger: Book | str | Path, num_rows: int, key: jax.Array | None) -> Book:
    """The ledger for runs on `num_rows` rows; `InputError` if it is broken, says nothing of them, or they simulate."""
    if key is not None:
        raise InputError(
            "a simulation's noise is known to whoever has its key, so a ledger cannot count it as private; leave out "
            "the ledger, or the key."
        )
    book = ledger if isinstance(ledger, Book) else Book.open(ledger)
    book.budget.check_rows(num_rows)
    return book


def _reserve(book: Book, planned: PlannedRun, id: str) -> Reservation:
    what = f"{planned.resolved.name}, {planned.filter.budget}, accountant {planned.filter.name}"
    return Reservation.make(book, planned.filter, planned.resolved.protector.mechanisms, what, id)


def _starting_point(model: Model, num_features: int, params: jax.Array | None) -> jax.Array:
    if params is None:
        return model.init(num_features)
    expected = model.num_params(num_features)
    if params.shape != (expected,):
        raise InputError(f"params have shape {list(params.shape)}, but {model} on these columns has [{expected}].")
    return jnp.asarray(params, jnp.float32)


def _train(
    protector: Protector,
    params: jax.Array,
    task: Task,
    setup: Setup,
    noise: Callable[[int], Simulation | Release],
    releases: bool,
) -> tuple[Run, list[TraceRow]]:
    """Start and advance until the budget or the steps end: the final run and what was granted."""
    single = functools.partial(jax.tree.map, lambda leaf: jnp.asarray(leaf, jnp.float32))
    guard = withheld("training") if releases else contextlib.nullcontext()
    # A value too large for float32 makes a null row, and a warning would tell.
    # A release adds and rounds in float64; `start` and `advance` keep everything else in float32.
    with guard, np.errstate(over="ignore"), jax.enable_x64(releases):
        rows = single(task.private) if isinstance(task.private, Rows) else intake.Checked(task.private)
        public = single(task.public)
        begin = _start if isinstance(rows, Rows) else start
        run, first = begin(protector, params, rows, setup, noise(0), public)
        chunks = []
        for done in range(0, protector.num_steps, CHUNK):
            if not run.alive:
                break
            num_steps = min(CHUNK, protector.num_steps - done)
            run, records = _go_on(protector, run, rows, setup, noise(num_steps), num_steps, public)
            chunks.append(records)
    return run, trace_rows(first, chunks)


def _go_on(
    protector: Protector,
    run: Run,
    rows: Rows | RowSource,
    setup: Setup,
    noise: Simulation | Release,
    num_steps: int,
    public: Rows | None,
) -> tuple[Run, Records]:
    """The driver that fits: one compiled scan over arrays, a loop on the host over a stream."""
    if isinstance(rows, RowSource):
        return advance_streaming(protector, run, rows, setup, noise, num_steps, public)
    run, records, _ = _advance(protector, run, rows, setup, noise, num_steps=num_steps, public=public)
    return run, records


def _noise(
    protector: Protector,
    params: jax.Array,
    shape: tuple[int, int],
    public: Rows | None,
    setup: Setup,
    key: jax.Array | None,
) -> Callable[[int], Simulation | Release]:
    """What to hand to `start` (0 steps) and then to each `advance`; a release draws anew at every call."""
    if key is not None:
        return lambda num_steps: Simulation(key)
    entropy = Entropy()
    at_start, per_step = plan_noise(protector, params, *shape, setup, public)

    def draw(num_steps: int) -> Release:
        begin = () if num_steps else at_start
        init, steps = jax.tree.map(jnp.asarray, (entropy.draw(begin, 1), entropy.draw(per_step, num_steps)))
        return Release(init, steps, begin, per_step)

    return draw


def _not_private(resolved: Resolved, budget: Budget, task: Task) -> list[str]:
    """What the guarantee does not cover."""
    sentences = [
        "Public by declaration: the columns, their bounds, the classes, the number of rows N, every hyper-parameter.",
        "Values outside the bounds were clipped silently, and rows marked null or holding a value that is not finite "
        "counted as null rows; how many is not stated.",
        "Choosing a protector, a budget or settings after looking at these rows, or at earlier results on them, is not "
        "paid for here; each further run on these rows adds to what is spent.",
        "That there is a result at all: a table that cannot be read, or a solve that does not converge, leaves none.",
        "Running time and memory use.",
    ]
    if budget.adjacency is Adjacency.ADD_REMOVE:
        sentences.append("N as it was declared, whatever the table's number of rows, which neighbours differ in.")
    if resolved.sources:
        sentences.append(
            f"The protector was made from public data ({', '.join(resolved.sources)}), read without limit."
        )
    if task.public is not None:
        sentences.append(f"The task's {len(task.public.y)} public rows, which the protector read freely.")
    return sentences
