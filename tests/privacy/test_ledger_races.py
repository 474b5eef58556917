"""Ledgers under any order of calls, processes that race, and kills at any moment."""

import contextlib
import math
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import time
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from l2p.base.errors import InputError
from l2p.privacy.ledger import ledger_file
from l2p.privacy.ledger.ledger import Cost, Ledger, total
from tests.privacy.ledgers import BUDGET, assert_sound, exact

# Children are forked from a process that has imported everything, since new interpreters take seconds to start.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload([__name__])
numbers = st.floats(0, 1e9, allow_subnormal=True)


@given(st.lists(st.tuples(numbers, numbers), max_size=20), st.tuples(numbers, numbers))
def test_sums_are_rounded_up_to_the_next_number(costs, minus):
    sums = total([Cost(*cost) for cost in costs], Cost(*minus))
    for up, true in zip(sums, exact([*costs, (-minus[0], -minus[1])]), strict=True):
        assert Fraction(math.nextafter(up, -math.inf)) < true <= Fraction(up)


class Runs(RuleBasedStateMachine):
    """Random sequences of calls against a model in exact arithmetic."""

    open_runs, done_runs = Bundle("open"), Bundle("done")
    costs = st.builds(Cost, st.floats(0, 0.6), st.sampled_from([0.0, 1e-9, 1e-7, 3e-7, 1e-6]))

    def __init__(self):
        super().__init__()
        folder = self.folder = contextlib.ExitStack()
        path = folder.enter_context(tempfile.TemporaryDirectory())
        self.ledger = Ledger.create(os.path.join(path, "ward.ledger"), "ward", BUDGET, "basic", Cost(1.0, 1e-6))
        self.counted, self.reserved = {}, {}

    def teardown(self):
        self.folder.close()

    def remaining(self):
        return [limit - spent for limit, spent in zip(map(Fraction, (1.0, 1e-6)), self.spent(), strict=True)]

    def spent(self):
        return exact([(0.0, 0.0), *self.counted.values()])

    @rule(target=open_runs, cost=costs)
    def reserve(self, cost):
        fits = any(cost) and all(cost_part <= room for cost_part, room in zip(cost, self.remaining(), strict=True))
        try:
            run = self.ledger.reserve(cost, "run")
        except InputError:
            assert not fits
            return "refused"
        assert fits
        self.counted[run] = self.reserved[run] = cost
        return run

    @rule(target=open_runs)
    def reserve_all_that_is_left(self):
        return self.reserve(self.ledger.left())

    @rule(target=done_runs, run=consumes(open_runs), share=st.floats(0, 1))
    def settle(self, run, share):
        if run != "refused":
            cost = Cost(*(share * number for number in self.reserved[run]))
            self.ledger.settle(run, cost)
            self.counted[run] = cost
        return run

    @rule(target=done_runs, run=consumes(open_runs))
    def settle_for_too_much(self, run):
        if run != "refused":
            with pytest.raises(RuntimeError):
                self.ledger.settle(run, Cost(math.nextafter(self.reserved[run].amount, 2), 0.0))
        return run

    @rule(run=consumes(open_runs))
    def release(self, run):
        if run != "refused":
            self.ledger.release(run, "no table")
            self.counted[run] = Cost(0.0)

    @rule(run=done_runs)
    def change_what_is_final(self, run):
        with pytest.raises(RuntimeError):
            self.ledger.settle(run, Cost(0.0))
        with pytest.raises(InputError):
            self.ledger.release(run, "by mistake")

    @invariant()
    def agrees(self):
        assert {entry.id: entry.counted for entry in self.ledger.entries()} == self.counted
        true = self.spent()
        assert all(spent <= limit for spent, limit in zip(true, self.ledger.limit, strict=True))
        assert all(spent <= Fraction(up) for spent, up in zip(true, self.ledger.spent(), strict=True))
        assert all(Fraction(down) <= room for down, room in zip(self.ledger.left(), self.remaining(), strict=True))


TestRuns = Runs.TestCase
TestRuns.settings = settings(max_examples=25, stateful_step_count=15)


def spend(path, cost, share):
    """Reserve and settle for a share, or leave reserved if it is None, until the ledger refuses for want of budget."""
    ledger_file._PATIENCE = 3600.0  # on a busy machine others may hold the file for long
    ledger = Ledger.open(path)
    try:
        while True:
            run = ledger.reserve(cost, f"race of {os.getpid()}")
            if share is not None:
                ledger.settle(run, Cost(cost.amount * share))
    except InputError as error:
        sys.exit(None if "must not start" in str(error) else str(error))


def reserve_and_hang(path, cost):
    Ledger.open(path).reserve(cost, "hangs")
    signal.pause()


def work(path, log):
    """Reserve and settle for ever, and write down what has returned."""
    ledger_file._PATIENCE = 3600.0
    ledger = Ledger.open(path)
    with open(log, "a", buffering=1) as file:
        while True:
            with contextlib.suppress(InputError):
                run = ledger.reserve(Cost(2.0**-9), "killed")
                file.write(f"reserved {run}\n")
                if random.random() < 0.7:
                    ledger.settle(run, Cost(2.0**-11))
                    file.write(f"settled {run}\n")


@contextlib.contextmanager
def running(target, *args, copies=1):
    """Processes that are killed at the end if they still run."""
    processes = [PROCESSES.Process(target=target, args=args) for _ in range(copies)]
    for process in processes:
        process.start()
    try:
        yield processes
    finally:
        for process in processes:
            process.kill()
            process.join()


@pytest.mark.slow(but=["4-None"])
@pytest.mark.parametrize(("copies", "share"), [(2, None), (4, None), (4, 0.5)])
def test_processes_that_race_spend_the_limit_and_no_more(ledger, copies, share):
    cost = Cost(2.0**-7)
    with running(spend, ledger.path, cost, share, copies=copies) as processes:
        for process in processes:
            process.join()
        assert [process.exitcode for process in processes] == [0] * copies
    entries = assert_sound(ledger)
    assert len({entry.id for entry in entries}) == len(entries)
    if share is None:
        assert (len(entries), ledger.left()) == (128, Cost(0.0))
    else:
        assert ledger.left() < cost


def test_a_killed_process_leaves_its_reservation_to_be_released(ledger):
    with running(reserve_and_hang, ledger.path, Cost(0.75)) as (process,):
        while not ledger.entries():
            assert process.is_alive()
            time.sleep(0.01)
        (entry,) = ledger.entries()
        assert entry.process == process.pid
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
    assert ledger.spent() == Cost(0.75)
    with running(spend, ledger.path, Cost(0.125), None) as (process,):
        process.join()
    assert (len(ledger.entries()), ledger.left()) == (3, Cost(0.0))
    ledger.release(entry.id, "killed before it read its table")
    assert ledger.left() == Cost(0.75)
    assert_sound(ledger)


def test_kills_at_any_moment_lose_nothing_that_had_returned(ledger, tmp_path):
    log, moments = tmp_path / "log", random.Random(0)
    log.touch()
    for _ in range(12):
        lines = len(log.read_text().splitlines()) + moments.randint(1, 12)
        with running(work, ledger.path, log, copies=2) as processes:
            while len(log.read_text().splitlines()) < lines:  # a count, not a time: machines may be busy
                assert all(process.is_alive() for process in processes)
                time.sleep(0.001)
            time.sleep(moments.uniform(0.0, 0.01))
        states = {entry.id: entry.state for entry in assert_sound(ledger)}
        for line in log.read_text().splitlines():
            state, run = line.split()
            assert run in states
            assert states[run] == "settled" or state == "reserved"
    assert set(states.values()) == {"reserved", "settled"}
