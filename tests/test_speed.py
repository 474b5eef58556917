"""The benchmark of speed: contenders take turns, ratios are of medians, and its page says what was reached."""

import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import __main__ as runner
from benchmarks.speed import accounting, lstm_unrolls, passes, peers, releases, replicates, report, start, steps, timing
from benchmarks.speed.timing import Absent, Contender, OtherWork, Table, measure
from benchmarks.speed.work import Work, losses
from tests.conftest import ROOT


class Clock:
    """Seconds that pass only in contenders; `calls` has their names in the order in which they were run."""

    def __init__(self):
        self.now, self.calls = 0.0, []

    def __call__(self):
        return self.now

    def contender(self, name, seconds, units=1, result=None):
        spans = iter(seconds)

        def run():
            self.calls.append(name)
            self.now += next(spans)

        return lambda: Contender(run, units, None if result is None else lambda: result)


def absent():
    raise Absent("it is not installed")


def test_contenders_take_turns_after_one_call_each_that_is_not_timed():
    clock = Clock()
    contenders = {"a": clock.contender("a", [9, 1, 2, 3]), "b": clock.contender("b", [9, 8, 4, 6], units=2)}
    table = measure("work", "a", {**contenders, "c": absent}, rounds=3, clock=clock)
    assert clock.calls == ["a", "b"] * 4
    assert table.values == {"a": [1, 2, 3], "b": [4, 2, 3]}
    assert table.absent == {"c": "it is not installed"}


def test_ratios_are_of_medians_and_their_spread_is_within_rounds():
    table = Table("work", "s", "a", {"a": [1.0, 2.0, 4.0], "b": [4.0, 6.0, 40.0]})
    assert table.ratio("b") == 3.0
    assert table.ratio("a", "b") == pytest.approx(1 / 3)
    assert table.spread("b") == (3.5, 7.0)  # of 4, 3 and 10
    assert Table("work", "s", "a", {"a": [2.0], "b": [3.0]}).spread("b") == (1.5, 1.5)


def test_contenders_that_end_elsewhere_are_not_timed():
    clock = Clock()
    contenders = {name: clock.contender(name, [1] * 2, result=result) for name, result in (("a", 1.0), ("b", 1.01))}
    assert measure("work", "a", contenders, rounds=1, tolerance=0.02, clock=clock).values
    clock.calls.clear()
    with pytest.raises(OtherWork, match=r"b ends at 1\.01 and a at 1: not the same work"):
        measure("work", "a", contenders, rounds=1, tolerance=1e-3, clock=clock)
    assert clock.calls == []


def test_a_goal_is_judged_on_every_table_that_it_is_about(monkeypatch):
    monkeypatch.setattr(
        report, "GOALS", (report.Goal("steps", "a", "b", True, 2.0), report.Goal("runs", "a", "b", False, 2.0))
    )
    values = {"a": [3.0], "b": [1.0]}
    tables = [
        Table("steps, 10", "s", "a", values),
        Table("runs, 10", "s", "a", values),
        Table("runs, 20", "s", "a", {"a": [1.0]}),
    ]
    outcomes = [line.split(" | ")[3:] for line in report.goals(tables)[2:]]
    assert outcomes == [["3", "no |"], ["3", "yes |"], ["not run", " |"]]


def test_opacus_is_quoted_with_its_loader_and_with_rows_in_memory():
    values = {"l2p": [1.0], "Opacus": [200.0], "Opacus, rows in memory": [5.0]}
    lines = report.goals([Table("logistic, Poisson batches of 1,000, 30,400 x 53", "s", "l2p", values)])
    assert any("| 200; with rows in memory 5 | yes |" in line for line in lines)


def test_every_goal_is_about_a_table_that_is_measured():
    titles = [*map(str, steps.works(quick=False)), f"{replicates.NUM_RUNS} replicates: ", "release: "]
    titles.append(lstm_unrolls.TITLE)
    for goal in report.GOALS:
        assert any(title.startswith(goal.table) for title in titles), goal.table


def test_help_needs_no_jax():
    script = "import sys, benchmarks.__main__ as b\ntry: b.main(['--help'])\nfinally: assert 'jax' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "steps" in done.stdout


@pytest.mark.long
def test_a_quick_run_measures_prints_and_keeps_and_the_page_repeats_it(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(runner, "bind", lambda: 0)
    monkeypatch.setattr(steps, "works", lambda quick: [Work("logistic", 64, 5, steps=3)])
    monkeypatch.setattr(peers, "STEPS", {"torch": (lambda work: peers.imported("no_such_module"), 1, 1)})
    monkeypatch.setattr(steps, "PROTECTORS", ())
    monkeypatch.setattr(report, "PAGE", tmp_path / "speed.md")
    results = tmp_path / "results.json"
    runner.main(["--quick", "--only", "steps", "--rounds", "1", "--json", str(results)])
    printed = capsys.readouterr().out
    about, (table, parts, _) = report.read(results)["steps"]
    assert about["machine"] in printed
    assert table.title == "logistic, full batch, 64 x 5"
    assert {"l2p", "optax, rows [N, d]", "optax, rows [d, N]", "one read of the rows"} < set(table.values)
    assert all(seconds[0] > 0 for seconds in table.values.values())
    assert parts.base in parts.values
    runner.main(["--page", str(results)])
    page = report.PAGE.read_text()
    assert report.markdown(table).splitlines()[0] in printed
    assert report.markdown(table) in page
    assert about["machine"] in page


def test_what_is_measured_again_replaces_its_part_and_leaves_the_others(tmp_path):
    path, table = tmp_path / "results.jsonl", Table("work", "s", "a", {"a": [0.123456]})
    for part, day in (("steps", "Monday"), ("start", "Monday"), ("steps", "Tuesday")):
        report.keep(path, part, {"machine": day}, [table, table])
    parts = report.read(path)
    assert {part: (about["machine"], len(tables)) for part, (about, tables) in parts.items()} == {
        "steps": ("Tuesday", 2),
        "start": ("Monday", 2),
    }
    assert parts["steps"][1][0].values == {"a": [0.1235]}


def test_the_committed_measurements_make_the_committed_page():
    assert report.page(report.read(report.RESULTS)) == report.PAGE.read_text(encoding="utf-8")


@pytest.mark.long(but=["logistic"])
@pytest.mark.parametrize("model", steps.MODELS)
def test_plain_losses_are_those_of_the_models_in_either_layout(model):
    work = Work(model, 30, 7)
    params = work.start() + np.random.default_rng(0).normal(size=work.start().shape).astype(np.float32)
    table, labels = jnp.asarray(work.table), jnp.asarray(work.labels)
    expected = work.learner.losses(params[None, :], table[:, :-1], labels)[0]
    np.testing.assert_allclose(losses(model, params, table, labels), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(losses(model, params, table.T, labels, by_feature=True), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.long
def test_batches_replicates_releases_passes_and_accounting_do_the_same_work_as_their_peers(monkeypatch):
    for part in (replicates, releases, passes):
        monkeypatch.setattr(part, "QUICK_ROWS", 600)
    monkeypatch.setattr(releases, "RUNS", (("noisygd", "logistic"),))
    monkeypatch.setattr(passes, "BATCHES", (10,))
    monkeypatch.setattr(accounting, "QUICK_QUERIES", 300)
    monkeypatch.setattr(accounting, "FEW", 5)
    monkeypatch.setattr(steps, "works", lambda quick: [Work("logistic", 600, 5, batch=60)])
    monkeypatch.setattr(peers, "STEPS", {})
    tables = [table for part in (steps, replicates, releases, passes, accounting) for table in part.tables(True, 1)]
    assert len(tables) == 2 + 1 + 4 + 1 + 4
    for table in tables:
        assert not table.absent
        assert all(values[0] > 0 for values in table.values.values())


def test_processes_are_timed_and_weighed_and_one_that_fails_is_an_error():
    commands = {
        "small": ["-c", "import sys; sys.exit(sys.argv[1] not in '01')", "{turn}"],
        "large": ["-c", "b = bytearray(300 << 20)"],
        "import no_such_module": [],
    }
    seconds, memory = start.processes("work", "small", commands, rounds=2)
    assert set(seconds.values) == set(memory.values) == {"small", "large"}
    assert seconds.median("small") > 0
    assert memory.median("large") > memory.median("small") + 290
    assert "no_such_module is not installed" in seconds.absent["import no_such_module"]
    with pytest.raises(SystemExit, match="work: failing ended with status 3"):
        list(start.processes("work", "failing", {"failing": ["-c", "raise SystemExit(3)"]}, rounds=1))


def test_the_starts_of_a_command_share_a_folder_of_kept_programs_that_no_other_command_or_turn_has(tmp_path):
    answers = start.first_answers(tmp_path, quick=True)
    assert [name.partition(", ") for name in answers] == [
        (command, ", ", begun) for command in ("l2p apply", "PrivateClassifier.fit") for begun in start.STARTS
    ]
    record = "import os; print(os.environ['XDG_CACHE_HOME'], file=open(%r, 'a'))" % str(tmp_path / "folders")  # noqa: UP031
    list(start.processes("work", "", {name: ["-c", record] for name in answers}, 2, tmp_path / "kept"))
    folders = (tmp_path / "folders").read_text().split("\n")[:-1]
    assert len(folders) == 8
    assert len(set(folders)) == 4
    assert folders[0] == folders[1] == str(tmp_path / "kept" / "0" / "l2p apply")


def test_quantities_have_a_unit_that_suits_them():
    assert [timing.quantity(value, "s") for value in (2.5e-8, 3.1e-5, 0.25, 90.0)] == [
        "25 ns",
        "31 us",
        "250 ms",
        "90 s",
    ]
