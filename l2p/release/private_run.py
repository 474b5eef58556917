"""One planned run executed: its rows are read, its answers certified and described."""

import dataclasses
import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from l2p.base.compiled import quickly
from l2p.base.errors import NoResult
from l2p.oracle.setup import Setup
from l2p.oracle.trace import Records
from l2p.privacy.card.of_run import card_of_run
from l2p.privacy.card.unit import ROW, unit_on_card
from l2p.privacy.cost.sampling import FullBatch
from l2p.privacy.events import Answered
from l2p.privacy.ledger.reservation import Reservation
from l2p.queries.pass_descent import PassRows
from l2p.release.learned import sentence
from l2p.release.planned_run import PlannedRun, labels_of
from l2p.release.progress import Progress, restored
from l2p.release.result import Result, mechanisms
from l2p.release.saved_run import SavedRun
from l2p.run.protector import Protector
from l2p.run.run import Release, Run, Simulation, advance, advance_streaming, start
from l2p.tables import public_data
from l2p.task import checks
from l2p.task.rows import Rows
from l2p.task.sources import RowSource

#: Steps between two checks whether a run is still alive; noise is drawn for as many at a time.
CHUNK = 256
#: The same where a run is saved in between.
SAVED_CHUNK = 10
#: About how many times the file of a run is written at most.
MOST_SAVES = 100
#: And the most numbers of noise, 128 MiB, that a step's answers are counted for.
NOISE_NUMBERS = 2**24

# Compiled once per protector, shapes and number of steps, for the life of the process.
_start = quickly(start)
_advance = quickly(advance, static=("num_steps",))


def execute(
    planned: PlannedRun,
    reservation: Reservation | None,
    purchased: Sequence[Answered] = (),
    saved: SavedRun | None = None,
) -> Result:
    """Read the rows, settle the reservation, and state the guarantee.

    `purchased` came before, by the same filter. A run that was `saved` goes on from there.
    """
    task, budget, named, filter, setup, params, noise, model, num_rows, num_features, warnings, unit = planned
    try:
        progress = _train(planned, saved)
    except Exception:
        if saved is not None:
            saved.fail()
        raise
    run, trace = progress.run, after(purchased, progress.trace)
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
    learned = sentence(bool(progress.trace), progress.evidence, steps, named.protector.num_steps, moved)
    public = public_data.on_card(task.public)
    card = card_of_run(
        budget,
        filter,
        trace,
        certified=certified,
        unit=ROW if unit is None else unit_on_card(unit.column, unit.max_rows),
        releases=noise.releases,
        num_rows=num_rows,
        num_features=num_features,
        model=str(model),
        accountant=named.accountant,
        adaptive_noise=adaptive,
        mechanisms=mechanisms(trace),
        steps=steps,
        max_steps=named.protector.num_steps,
        stop_reason=stop_reason,
        public=public,
        engine=task.private.engine if isinstance(task.private, PassRows) else None,
        protector={
            "name": named.name,
            "sha256": named.sha256,
            "sources": None if named.sources is None else list(named.sources),
            "range": named.range,
        },
        composition=composition,
        in_float32=setup.in_float32,
        learned=learned,
        warnings=[*warnings, *unsettled],
    )
    return Result(model.as_given(released), trace, card, stop_reason, steps, model, kind=setup.kind)


def _train(planned: PlannedRun, saved: SavedRun | None) -> Progress:
    """Start, or go on from what was saved, and advance until the budget or the steps end."""
    task, setup, noise = planned.task, planned.setup, planned.noise
    protector, labels = planned.named.protector, labels_of(planned.model, planned.setup.kind)
    single = functools.partial(jax.tree.map, lambda leaf: jnp.asarray(leaf, jnp.float32))
    progress = None if saved is None else restored(saved, planned)
    if progress is not None and progress.ended(protector.num_steps):
        return progress
    # A value too large for float32 makes a null row, and a warning would reveal that. A release adds and rounds in
    # float64; `start` and `advance` keep everything else in float32.
    with noise.computing("training"), np.errstate(over="ignore", invalid="ignore"):
        private = task.private if isinstance(task.private, Rows) else checks.Checked.over(task.private, labels)
        rows = private if task.public is None else public_data.apart(private, task.public)
        if isinstance(rows, Rows):
            full_passes = isinstance(setup.price_list.sampler, FullBatch) and setup.model.reads_features
            rows = single(rows) if noise.releases else rows.ready(full_passes)
        public = single(task.public)
        in_turn = isinstance(rows, RowSource)
        if progress is None:
            begin = start if in_turn else _start
            run, first = begin(protector, planned.params, rows, setup, noise.draw(0, in_turn), public)
            progress = Progress.begun(run, first, setup)
        while not progress.ended(protector.num_steps):
            if saved is not None:
                progress.save(saved, setup, protector.num_steps)
            num_steps = _block(planned, int(progress.run.step), saved is not None)
            drawn = noise.draw(num_steps, in_turn)
            progress.go_on(*_go_on(protector, progress.run, rows, setup, drawn, num_steps, public), setup)
        if saved is not None:
            progress.save(saved, setup, protector.num_steps)
    return progress


def _block(planned: PlannedRun, step: int, is_saved: bool) -> int:
    """Steps of the block after so many; where blocks are saved, one ends where a pass does, or there is nothing to go
    on from."""
    num_steps = planned.named.protector.num_steps
    block = max(1, min(CHUNK, NOISE_NUMBERS // planned.params.size))
    if is_saved:
        in_pass = planned.setup.price_list.sampler.steps_per_charge
        between_saves = -(-max(SAVED_CHUNK, num_steps // MOST_SAVES) // in_pass) * in_pass
        block = min(block, between_saves - step % between_saves)
    return min(block, num_steps - step)


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


def after(purchased: Sequence[Answered], trace: Sequence[Answered]) -> list[Answered]:
    """The trace of purchases before a run, then its own, with `spent` added up over both."""
    before = purchased[-1].spent if purchased else 0.0
    return [*purchased, *(dataclasses.replace(row, spent=before + row.spent) for row in trace)]
