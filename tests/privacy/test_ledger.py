"""The ledger of a data set: no order of calls, race or killed process lets runs spend more than its limit."""

import contextlib
import json
import math
import multiprocessing
import os
import random
import re
import signal
import sqlite3
import stat
import sys
import tempfile
import time
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from l2p.base.errors import InputError
from l2p.commands.cli import main
from l2p.commands.ledger import Create, Release, Show
from l2p.privacy import Adjacency, Budget
from l2p.privacy.cost import convert
from l2p.privacy.ledger import ledger_file
from l2p.privacy.ledger.ledger import UNITS, Cost, Ledger, total
from l2p.privacy.ledger.reservation import limit_of

BUDGET = Budget(1, 1e-6)
# Children are forked from a process that has imported everything, since new interpreters take seconds to start.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload([__name__])


@pytest.fixture
def ledger(tmp_path):
    return Ledger.create(tmp_path / "ward.ledger", "ward", BUDGET, "gdp", Cost(1.0))


@pytest.fixture
def basic(tmp_path):
    return Ledger.create(tmp_path / "basic.ledger", "ward", BUDGET, "basic", Cost(1.0, 1e-6))


@contextlib.contextmanager
def sentence(*phrases, error=InputError):
    """Expects an error whose message is one sentence."""
    with pytest.raises(error) as caught:
        yield
    message = str(caught.value)
    assert "\n" not in message
    assert re.search(r"[.][^.]*[a-z)][.]$|^[^.]*[.]$", message)
    assert all(phrase in message for phrase in phrases), message


def sql(ledger, statement, *values):
    with contextlib.closing(sqlite3.connect(ledger.path, timeout=3600)) as connection, connection:
        return connection.execute(statement, values).fetchall()


def exact(costs):
    return [sum(map(Fraction, column), Fraction(0)) for column in zip(*costs, strict=True)]


def assert_sound(ledger):
    """The file is whole, and what counts is within the limit in real numbers."""
    assert sql(ledger, "PRAGMA integrity_check") == [("ok",)]
    reopened = Ledger.open(ledger.path)
    assert reopened == ledger
    entries = reopened.entries()
    counted = exact([(0.0, 0.0), *(entry.counted for entry in entries)])
    assert all(number <= limit for number, limit in zip(counted, ledger.limit, strict=True))
    for entry in entries:
        expected = {"reserved": entry.reserved, "released": Cost(0.0)}
        assert entry.counted == expected.get(entry.state, entry.counted)
    return entries


def test_what_is_written_is_read_again(tmp_path):
    budget = Budget(0.1, 1e-8, Adjacency.ADD_REMOVE)
    created = Ledger.create(tmp_path / "a ?#%.ledger", "ward 7 – Zürich", budget, "basic", Cost(0.1, 1e-8))
    assert Ledger.open(created.path) == created
    assert (created.name, created.budget, created.unit, created.limit) == (
        "ward 7 – Zürich",
        budget,
        "basic",
        Cost(0.1, 1e-8),
    )
    assert created.created.endswith("+00:00")
    assert [path.name for path in tmp_path.iterdir()] == ["a ?#%.ledger"]
    assert (created.entries(), created.spent(), created.left()) == ([], Cost(0.0), created.limit)


def test_a_run_is_reserved_settled_and_listed(ledger):
    run = ledger.reserve(Cost(0.75), "noisygd, epsilon 0.75, delta 1e-7")
    assert (ledger.spent(), ledger.left()) == (Cost(0.75), Cost(0.25))
    ledger.settle(run, Cost(0.5))
    (entry,) = ledger.entries()
    assert (ledger.spent(), ledger.left()) == (Cost(0.5), Cost(0.5))
    assert (entry.id, entry.what, entry.state) == (run, "noisygd, epsilon 0.75, delta 1e-7", "settled")
    assert (entry.reserved, entry.counted, entry.process) == (Cost(0.75), Cost(0.5), os.getpid())


def test_a_released_run_counts_nothing_and_stays_in_the_history(ledger):
    run = ledger.reserve(Cost(1.0), "agd")
    ledger.release(run, "its table was missing")
    (entry,) = ledger.entries()
    assert (entry.state, entry.reserved, entry.counted) == ("released", Cost(1.0), Cost(0.0))
    assert entry.reason == "its table was missing"
    assert ledger.left() == ledger.limit
    ledger.reserve(Cost(1.0), "agd again")


def test_both_numbers_are_capped(basic):
    with sentence("epsilon 1 at delta 1e-06 left", "epsilon 0.5 at delta 2e-06, so it must not start"):
        basic.reserve(Cost(0.5, 2e-6), "too much delta")
    with sentence("epsilon 1 at", "asks for epsilon 1.5"):
        basic.reserve(Cost(1.5, 1e-7), "too much epsilon")
    basic.reserve(Cost(0.5, 1e-6), "all of the delta")
    basic.reserve(Cost(0.5), "a pure run")
    assert basic.left() == Cost(0.0)


def test_a_run_that_asks_for_a_delta_is_refused_where_there_is_none(ledger):
    with sentence("and 1e-09 more"):
        ledger.reserve(Cost(0.1, 1e-9), "has a delta")


@pytest.mark.parametrize(
    "cost",
    [Cost(0.0), Cost(-0.0, 0.0), Cost(math.nan), Cost(-0.1), Cost(math.inf), Cost(0.1, -1e-9), Cost(0.1, math.nan)],
)
def test_a_cost_that_cannot_be_counted_is_refused(basic, cost):
    with sentence("cannot be counted"):
        basic.reserve(cost, "nonsense")
    assert basic.entries() == []


@pytest.mark.parametrize("text", ["", " ", "two\nlines", "a\u2028b"])
def test_texts_are_one_line(ledger, text):
    with sentence("one line"):
        ledger.reserve(Cost(0.1), text)
    with sentence("one line"):
        ledger.release(ledger.reserve(Cost(0.1), "run"), text)
    with sentence("one line"):
        Ledger.create(ledger.path.with_name("other"), text, BUDGET, "gdp", Cost(1.0))


def test_an_unknown_or_settled_run_changes_nothing(ledger):
    run = ledger.reserve(Cost(0.5), "run")
    ledger.settle(run, Cost(0.25))
    before = ledger.entries()
    for _ in range(2):
        with sentence("has settled", error=RuntimeError):
            ledger.settle(run, Cost(0.0))
        with sentence("is settled"):
            ledger.release(run, "by mistake")
        with sentence("no run 'x'", error=RuntimeError):
            ledger.settle("x", Cost(0.0))
        with sentence("no run 'x'"):
            ledger.release("x", "by mistake")
    assert ledger.entries() == before


@pytest.mark.parametrize("cost", [Cost(0.6), Cost(math.nan), Cost(-0.1), Cost(0.1, 1e-9), Cost(math.inf)])
def test_a_run_that_spent_more_than_it_reserved_is_counted_in_full(ledger, cost):
    run = ledger.reserve(Cost(0.5), "run")
    with sentence("withhold its result", error=RuntimeError):
        ledger.settle(run, cost)
    (entry,) = ledger.entries()
    assert (entry.state, entry.counted) == ("settled", Cost(0.5))


def test_a_released_run_that_turns_out_to_have_spent_counts_again(ledger):
    run = ledger.reserve(Cost(0.75), "slow")
    ledger.release(run, "it seemed to hang")
    with sentence("is released"):
        ledger.release(run, "once more")
    ledger.reserve(Cost(0.5), "next")
    with sentence("it seemed to hang", "which counts again", error=RuntimeError):
        ledger.settle(run, Cost(0.75))
    assert (ledger.spent(), ledger.left()) == (Cost(1.25), Cost(0.0))
    with sentence("epsilon 0 at delta", "left and this run asks for"):
        ledger.reserve(Cost(1e-300), "another")


def test_a_released_run_may_settle_for_nothing(ledger):
    run = ledger.reserve(Cost(0.75), "slow")
    ledger.release(run, "no table")
    ledger.settle(run, Cost(0.0))
    assert ledger.left() == ledger.limit


def test_an_existing_file_is_never_replaced(ledger):
    ledger.reserve(Cost(0.5), "run")
    with sentence("exists"):
        Ledger.create(ledger.path, "ward", BUDGET, "gdp", Cost(1.0))
    assert ledger.spent() == Cost(0.5)
    assert len(list(ledger.path.parent.iterdir())) == 1


def test_a_folder_that_is_missing_is_refused(tmp_path):
    with sentence("there is no folder"):
        Ledger.create(tmp_path / "no" / "ward.ledger", "ward", BUDGET, "gdp", Cost(1.0))


@pytest.mark.parametrize(
    ("unit", "limit"),
    [
        ("dp", Cost(1)),
        ("gdp", Cost(0)),
        ("zcdp", Cost(1, 1e-6)),
        ("rdp", Cost(math.inf)),
        ("basic", Cost(1, 1)),
        ("gdp", Cost(math.nan)),
    ],
)
def test_terms_that_make_no_sense_are_refused(tmp_path, unit, limit):
    with sentence():
        Ledger.create(tmp_path / "ward.ledger", "ward", BUDGET, unit, limit)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_refused(tmp_path):
    with sentence("create it with l2p ledger create"):
        Ledger.open(tmp_path / "ward.ledger")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"not a ledger at all\n" * 99, b"SQLite format 3\x00" + b"\x07" * 4096])
def test_a_file_that_is_not_ours_is_refused(tmp_path, content):
    path = tmp_path / "ward.ledger"
    path.write_bytes(content)
    with sentence(str(path)):
        Ledger.open(path)
    assert path.read_bytes() == content


def test_another_database_is_refused(tmp_path):
    path = tmp_path / "ward.ledger"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE book (name TEXT)")
    with sentence("is not a ledger"):
        Ledger.open(path)


def test_a_name_cannot_steer_a_terminal(tmp_path, ledger, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    create = ["ledger", "create", str(tmp_path / "new.ledger"), "--epsilon", "1", "--delta", "1e-6", "--name"]
    assert main([*create, "ward\x1b[2J"]) == 2
    ledger.reserve(Cost(0.5), "a run", unit="per\x1b]0;son")
    assert main(["ledger", "show", str(ledger.path)]) == 0
    forged = tmp_path / "forged.ledger"
    ledger_file.create(forged, ("ward\x1b[2J", 1.0, 1e-6, "zero_out", "basic", 1.0, 1e-6, "2026-01-01"))
    assert main(["ledger", "show", str(forged)]) == 2
    (tmp_path / "a\x1b[2Jb.csv").write_text("age\n")
    assert main(["schema", str(tmp_path / "a\x1b[2Jb.csv"), "--target", "b\x9b2J", "--out", str(tmp_path / "s")]) == 2
    printed = "".join(capsys.readouterr())
    assert "\\x1b]0;son" in printed
    assert not {"\x1b", "\x9b"} & set(printed)


def test_another_format_is_refused(ledger):
    for version, phrase in ((4, "a newer l2p"), (2, "an older l2p"), (0, "an older l2p")):
        sql(ledger, f"PRAGMA user_version = {version}")
        with sentence(phrase):
            Ledger.open(ledger.path)


def test_a_file_that_vanished_is_not_made_again(ledger):
    run = ledger.reserve(Cost(0.5), "run")
    ledger.path.unlink()
    with sentence("unable to open"):
        ledger.reserve(Cost(0.5), "run")
    with sentence("unable to open", error=RuntimeError):
        ledger.settle(run, Cost(0.5))
    assert not ledger.path.exists()


def test_another_ledger_in_its_place_is_not_held_to_the_old_limit(ledger):
    run = ledger.reserve(Cost(0.1), "a run")
    ledger.path.rename(ledger.path.with_suffix(".archived"))
    new = Ledger.create(ledger.path, "ward", Budget(0.1, 1e-6, Adjacency.REPLACE_ONE), "zcdp", Cost(0.01))
    for use in (
        lambda: ledger.reserve(Cost(0.5), "a run"),
        lambda: ledger.release(run, "it never began"),
        ledger.entries,
        ledger.left,
    ):
        with sentence("another ledger lies at"):
            use()
    with sentence("another ledger lies at", error=RuntimeError):
        ledger.settle(run, Cost(0.1))
    assert new.spent() == Cost(0.0)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_read_only_file_can_be_read(ledger):
    ledger.path.chmod(stat.S_IRUSR)
    assert Ledger.open(ledger.path).left() == Cost(1.0)
    with sentence("readonly"):
        ledger.reserve(Cost(0.5), "run")


def test_a_locked_file_is_given_up_with_a_sentence(ledger, monkeypatch):
    run = ledger.reserve(Cost(0.5), "run")
    monkeypatch.setattr(ledger_file, "_PATIENCE", 0.05)
    with contextlib.closing(sqlite3.connect(ledger.path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        with sentence("database is locked", "0.05 seconds"):
            ledger.reserve(Cost(0.5), "run")
        with sentence("database is locked", error=RuntimeError):
            ledger.settle(run, Cost(0.5))
        assert ledger.left() == Cost(0.5)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM entry",
        "UPDATE entry SET counted_amount = 0",
        "UPDATE entry SET counted_amount = 0.5 WHERE state = 'settled'",
        "UPDATE entry SET counted_amount = reserved_amount / 2 WHERE state = 'reserved'",
        "UPDATE entry SET state = 'released', counted_amount = 0, reason = 'why not' WHERE state = 'settled'",
        "UPDATE entry SET state = 'released', counted_amount = 0 WHERE state = 'reserved'",
        "UPDATE entry SET state = 'settled', reserved_amount = 9, counted_amount = 9 WHERE state = 'reserved'",
        "UPDATE entry SET state = 'settled', counted_amount = 0.3 WHERE state = 'reserved'",
        "UPDATE entry SET state = 'settled', counted_amount = -1 WHERE state = 'reserved'",
        "UPDATE entry SET state = 'settled', counted_amount = NULL WHERE state = 'reserved'",
        "UPDATE entry SET state = 'settled', counted_amount = 'little' WHERE state = 'reserved'",
        "UPDATE entry SET state = 'gone' WHERE state = 'reserved'",
        "UPDATE book SET limit_amount = 9",
    ],
)
def test_the_file_itself_refuses_to_hand_budget_back(ledger, statement):
    ledger.settle(ledger.reserve(Cost(0.5), "settled"), Cost(0.25))
    ledger.reserve(Cost(0.25), "reserved")
    before = ledger.entries()
    with pytest.raises(sqlite3.IntegrityError):
        sql(ledger, statement)
    assert ledger.entries() == before
    assert Ledger.open(ledger.path).limit == Cost(1.0)


def test_tenths_fill_a_limit_without_passing_it(tmp_path):
    """0.1 is above a tenth in float64, so ten of them are above 1; a naive sum in float64 would grant the tenth."""
    ledger = Ledger.create(tmp_path / "ward.ledger", "ward", BUDGET, "gdp", Cost(1.0))
    for _ in range(9):
        ledger.reserve(Cost(0.1), "run")
    assert sum([0.1] * 10) <= 1.0
    with sentence("left"):
        ledger.reserve(Cost(0.1), "run")
    ledger.reserve(ledger.left(), "all that is left")
    assert ledger.left() == Cost(0.0)
    assert_sound(ledger)


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


@pytest.mark.parametrize("target", [Budget(0.1, 1e-8), Budget(1, 1e-6), Budget(8, 1e-3)])
def test_a_limit_is_what_its_budget_buys(target):
    epsilon, delta = target.epsilon, target.delta
    order = convert.planned_order(epsilon, delta)
    back = {
        "gdp": lambda amount: convert.gdp_epsilon(math.sqrt(amount), delta),
        "zcdp": lambda amount: convert.zcdp_epsilon(amount, delta),
        "rdp": lambda amount: convert.rdp_epsilon(amount, order, delta),
        "basic": lambda amount: amount,
    }
    for unit in UNITS:
        limit = limit_of(unit, target)
        assert back[unit](limit.amount) == pytest.approx(epsilon, rel=1e-8)
        assert limit.delta == (delta if unit == "basic" else 0.0)
    with sentence("unknown"):
        limit_of("dp", target)


@pytest.mark.parametrize("unit", UNITS)
def test_create_and_show(tmp_path, capsys, unit):
    path = tmp_path / "ward.ledger"
    assert Create(path, "ward", 1.0, 1e-6, "add_remove", unit).run() == 0
    with sentence("exists"):
        Create(path, "ward", 1.0, 1e-6).run()
    ledger = Ledger.open(path)
    assert ledger.limit == limit_of(unit, ledger.budget)
    half, tenth = (Cost(*(number * share for number in ledger.limit)) for share in (0.5, 0.1))
    ledger.settle(ledger.reserve(half, "[bold] run"), tenth)
    run = ledger.reserve(half, "noisygd")
    capsys.readouterr()
    assert Show(path, json=True).run() == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["name"], shown["epsilon"], shown["adjacency"], shown["unit"]) == ("ward", 1.0, "add_remove", unit)
    assert (Cost(**shown["spent"]), Cost(**shown["left"])) == (ledger.spent(), ledger.left())
    assert Cost(**shown["reserved"]) == half
    assert [entry["state"] for entry in shown["runs"]] == ["settled", "reserved"]
    assert Cost(**shown["runs"][0]["counted"]) == tenth
    assert Show(path).run() == 0
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("ward", "add_remove", unit, run, "[bold]", "noisygd"))


def test_release_asks_for_the_assertion_that_it_stands_for(ledger, capsys):
    run = ledger.reserve(Cost(1.0), "noisygd")
    with sentence("add --no-query-was-answered"):
        Release(ledger.path, run, "its table was missing").run()
    assert ledger.spent() == Cost(1.0)
    assert Release(ledger.path, run, "its table was missing", no_query_was_answered=True).run() == 0
    assert f"released {run}: ward has epsilon 4.88 at delta 1e-06 left" in capsys.readouterr().out
    assert Show(ledger.path).run() == 0
    assert "released" in capsys.readouterr().out


@pytest.mark.parametrize("make", [Show, lambda path: Release(path, "x", "why", no_query_was_answered=True)])
def test_commands_refuse_a_missing_ledger(tmp_path, make):
    with sentence("create it with l2p ledger create"):
        make(tmp_path / "ward.ledger").run()
