"""Runs and loops that go on after their process was killed: nothing is counted twice, and nothing is forgotten."""

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import types

import jax
import numpy as np
import pytest

import l2p
from l2p.base import struct
from l2p.base.errors import InputError
from l2p.privacy.cap.spending import Spending
from l2p.privacy.cost.sampling import Poisson
from l2p.privacy.ledger.ledger import Ledger
from l2p.privacy.ledger.reservation import limit_of
from l2p.release import private_run
from l2p.release.learned import Evidence
from l2p.release.progress import Progress
from l2p.release.saved_run import ENDED, GOES_ON, open_run
from l2p.run.run import Run
from l2p.tables.schema import Number, Schema, Target
from tests.release.losses import DATA, NUM_ROWS, START, logistic
from tests.release.tables import Echo, table
from tests.release.test_loop import planned, step_of
from tests.run.batches import EPOCHS, setup

BUDGET, KEY = l2p.Budget(1.0, 1e-5), jax.random.key(3)
#: Steps of a run; two blocks that are saved, and a part of a third.
STEPS = 25
#: Blocks that are looked at for the shapes of a row.
PLANNING = 1


def ledger_at(folder):
    return Ledger.create(folder / "ward.ledger", "ward", BUDGET, "gdp", limit_of("gdp", BUDGET))


def trained(data, params=START, **options):
    changes = {name: options.pop(name) for name in ("num_steps", "sampler") if name in options}
    protector = l2p.load("noisygd", BUDGET).replace(**{"num_steps": STEPS} | changes)
    return l2p.private_train(data, protector, BUDGET, model=logistic, params=params, **options)


def undated(card):
    return dataclasses.replace(card, created="")


class Interrupting:
    """Rows in blocks, which end the process, or an interrupt the run, when they are read for the last time."""

    def __init__(self, last=None, end=None):
        self.reads, self._last, self._end = 0, last, end

    def __call__(self):
        self.reads += 1
        if self.reads == self._last:
            if self._end is None:
                raise KeyboardInterrupt
            self._end()
        yield DATA


def source(reads):
    return l2p.BlockSource(reads, NUM_ROWS)


def interrupted(path, last=14, **options):
    with pytest.raises(KeyboardInterrupt):
        trained(source(Interrupting(last)), resume=path, **options)


@pytest.mark.slow
def test_a_killed_run_goes_on_from_its_last_saved_step(tmp_path):
    code = (
        "import os, signal, sys; from tests.release import test_resuming as this\n"
        "killing = this.Interrupting(14, lambda: os.kill(os.getpid(), signal.SIGKILL))\n"
        "this.trained(this.source(killing), resume=sys.argv[1], key=this.KEY)"
    )
    path = tmp_path / "mine.run"
    ended = subprocess.run([sys.executable, "-c", code, path], env=os.environ | {"PYTHONPATH": "."}, check=False)
    assert ended.returncode == -signal.SIGKILL
    rest = Interrupting()
    result = trained(source(rest), resume=path, key=KEY)
    assert rest.reads == PLANNING + STEPS - 10
    whole = trained(source(Interrupting()), key=KEY)
    assert all(map(np.array_equal, result.params, whole.params))
    assert (result.trace, undated(result.card)) == (whole.trace, undated(whole.card))


@pytest.mark.slow(but=["noisygd"])
@pytest.mark.parametrize("method", ["control-universal", "noisygd"])
def test_a_table_in_memory_goes_on_likewise(tmp_path, monkeypatch, method):
    """Answers of one-off queries, the state of a filter and what is known of its signal come from the file."""
    advance, rows = private_run._go_on, table()
    calls = []

    def interrupt(*arguments):
        calls.append(0)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return advance(*arguments)

    monkeypatch.setattr(private_run, "_go_on", interrupt)
    with pytest.raises(KeyboardInterrupt):
        l2p.private_train(rows, method, BUDGET, key=KEY, resume=tmp_path / "mine.run")
    result = l2p.private_train(rows, method, BUDGET, key=KEY, resume=tmp_path / "mine.run")
    whole = l2p.private_train(rows, method, BUDGET, key=KEY)
    assert np.array_equal(result.params, whole.params)
    assert (result.trace, undated(result.card)) == (whole.trace, undated(whole.card))
    answers = [[row.answer for row in run.trace if row.answer is not None] for run in (result, whole)]
    assert len(answers[0]) == len(answers[1])
    assert all(map(np.array_equal, *answers))


def test_a_run_amid_a_pass_is_not_saved():
    """The rows that the pass has still to read are not in the file, and a row in two batches would not be paid for."""
    assert EPOCHS.steps_per_charge == 3
    saved = []
    file = types.SimpleNamespace(save=lambda arrays, trace, state: saved.append((int(arrays["run0004"][0]), state)))
    for step in range(9):
        run = Run((), (), Spending(0.0, 1.0, 0.0, 0.0), np.int32(step), True)
        Progress(run, [], Evidence(40.0, 0.3)).save(file, setup(EPOCHS), 8)
    assert saved == [(0, GOES_ON), (3, GOES_ON), (6, GOES_ON), (8, ENDED)]


def test_a_run_that_goes_on_has_one_reservation_and_gives_its_result_again(tmp_path):
    ledger, path = ledger_at(tmp_path), tmp_path / "mine.run"
    interrupted(path, ledger=ledger)
    (reserved,) = ledger.entries()
    assert reserved.state == "reserved"
    result = trained(source(Interrupting()), resume=path, ledger=ledger)
    (entry,) = ledger.entries()
    assert (entry.id, entry.state, result.card.steps) == (reserved.id, "settled", STEPS)
    assert [row.step for row in result.trace] == list(range(1, STEPS + 1))
    unread = Interrupting()
    again = trained(source(unread), resume=path, ledger=ledger)
    assert unread.reads == PLANNING
    assert all(map(np.array_equal, again.params, result.params))
    assert undated(again.card) == undated(result.card)
    assert len(ledger.entries()) == 1


def test_a_copy_of_a_run_that_was_finished_elsewhere_is_refused(tmp_path):
    ledger, path = ledger_at(tmp_path), tmp_path / "mine.run"
    interrupted(path, ledger=ledger)
    shutil.copy(path, tmp_path / "copy.run")
    trained(source(Interrupting()), resume=path, ledger=ledger)
    unread = Interrupting()
    with pytest.raises(InputError, match="another copy of the file may have been finished"):
        trained(source(unread), resume=tmp_path / "copy.run", ledger=ledger)
    assert unread.reads == PLANNING


def test_no_two_can_go_on_with_one_run_also_after_its_file_was_copied(tmp_path):
    """A lock on the file itself would end when the process reads it once more."""
    run = open_run(tmp_path / "mine.run", [], None)
    shutil.copy(tmp_path / "mine.run", tmp_path / "copy.run")
    with pytest.raises(InputError, match="would spend twice what it counts"):
        open_run(tmp_path / "mine.run", [], None)
    run.close()
    open_run(tmp_path / "mine.run", [], None)


@pytest.mark.parametrize("other", ["key", "rows", "ledger", "steps", "sampler", "start", "exactness"])
def test_a_run_that_was_planned_otherwise_is_refused(tmp_path, other):
    """Answers that were drawn at one rate would be priced at another."""
    path = tmp_path / "mine.run"
    interrupted(path, last=3)
    options = {
        "key": {"key": KEY},
        "rows": {"num_rows": NUM_ROWS + 1},
        "ledger": {"ledger": ledger_at(tmp_path)},
        "steps": {"num_steps": STEPS + 1},
        "sampler": {"sampler": Poisson(0.02)},
        "start": {"params": (START[0] + 1.0, START[1])},
        "exactness": {"exactness": "float32"},
    }
    unread = Interrupting()
    with pytest.raises(InputError, match="was planned otherwise"):
        trained(source(unread), resume=path, **options[other])
    assert unread.reads == PLANNING


def test_a_run_that_ended_in_an_error_does_not_go_on(tmp_path):
    """Else one could begin a block again until its answers lead to no error."""

    def break_off():
        raise ValueError("7 Smith")

    with pytest.raises(RuntimeError, match="withheld"):
        trained(source(Interrupting(14, break_off)), resume=tmp_path / "mine.run")
    with pytest.raises(InputError, match="ended in an error"):
        trained(source(Interrupting()), resume=tmp_path / "mine.run")


@struct.dataclass
class Telling(Echo):
    """Prints every answer."""

    def step(self, params, state, oracle):
        params, state = Echo.step(self, params, state, oracle)
        jax.debug.print("{}", params)
        return params, state


def test_a_protector_that_shows_answers_before_they_are_saved_is_refused(tmp_path):
    telling = Telling(np.float32(50.0), np.float32(1.0), num_steps=3)
    with pytest.raises(InputError, match="answers might be seen"):
        l2p.private_train(table(), telling, BUDGET, resume=tmp_path / "mine.run")
    assert not list(tmp_path.iterdir())


def test_what_is_no_file_of_a_run_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("of a ward\n" * 100)
    (tmp_path / "empty.run").touch()
    interrupted(tmp_path / "mine.run", last=3)
    content = bytearray((tmp_path / "mine.run").read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "damaged.run").write_bytes(content)
    for path in map(tmp_path.joinpath, ("notes.txt", "empty.run", "damaged.run")):
        with pytest.raises(InputError, match="is no file of a run, or was changed"):
            trained(source(Interrupting()), resume=path)
    with pytest.raises(InputError, match="a folder that exists"):
        trained(source(Interrupting()), resume=tmp_path / "none" / "mine.run")


def test_a_run_that_does_not_fit_the_ledger_leaves_no_file(tmp_path):
    ledger, path = ledger_at(tmp_path), tmp_path / "mine.run"
    trained(DATA, ledger=ledger)
    for refused in (lambda: trained(DATA, ledger=ledger, resume=path), lambda: planned(ledger=ledger, resume=path)):
        with pytest.raises(InputError, match="it must not start"):
            refused()
        assert not path.exists()


def test_a_run_that_buys_bounds_is_refused(tmp_path):
    schema = Schema({"age": Number.private()}, Target("y", classes=("0", "1")))
    rows = {"age": np.arange(40.0), "y": np.array(["0", "1"] * 20)}
    with pytest.raises(InputError, match="cannot be resumed"):
        l2p.private_train(rows, "noisygd", BUDGET, schema=schema, resume=tmp_path / "mine.run")


# ------------------------------------------------------------------------------------------------------------- loops
def answered(loop, state, params, count):
    step = step_of(loop)
    for _ in range(count):
        params, state = step(params, state, DATA)
    jax.block_until_ready(params)
    return params, state


def test_a_loop_counts_answers_that_its_saved_state_does_not_know_of(tmp_path):
    ledger, path = ledger_at(tmp_path), tmp_path / "mine.run"
    options = {"num_steps": 8, "ledger": ledger, "resume": path}
    loop = planned(**options)
    params, state = answered(loop, loop.init(START), START, 2)
    answered(loop, state, params, 2)
    loop.plan.host.saved.close()  # as a killed process would
    later = planned(**options)
    answered(later, state, params, 3)
    card = later.card()
    assert card.steps == 7
    (entry,) = ledger.entries()
    assert (entry.id, entry.state) == (card.composition["reservation"], "settled")
    again = planned(**options)
    with pytest.raises(jax.errors.JaxRuntimeError, match="after card"):
        answered(again, state, params, 1)
    assert again.card().steps == 7


def test_a_simulated_loop_does_not_go_on(tmp_path):
    with pytest.raises(InputError, match="draw the noise of its first answers again"):
        planned(resume=tmp_path / "mine.run", key=KEY)


@pytest.mark.slow
def test_a_loop_that_goes_on_gets_no_more_answers_than_were_planned(tmp_path):
    options = {"num_steps": 4, "resume": tmp_path / "mine.run"}
    loop = planned(**options)
    params, state = answered(loop, loop.init(START), START, 3)
    loop.plan.host.saved.close()
    later = planned(**options)
    params, state = answered(later, later.init(START), START, 1)
    with pytest.raises(jax.errors.JaxRuntimeError, match="beyond the 4"):
        answered(later, state, params, 1)
