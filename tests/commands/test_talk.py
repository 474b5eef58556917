"""Commands talk like people: what they print fits a screen, and what they refuse costs a sentence and nothing else."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from l2p import Budget, Rows, private_train
from l2p.base.errors import InputError
from l2p.checkpoints import checkpoint
from l2p.checkpoints.defaults import default_protector
from l2p.checkpoints.lookup import recognise, resolve
from l2p.commands import compare as compare_command
from l2p.commands.cli import COMMANDS, main
from l2p.models import MODELS, NAMES
from l2p.privacy.cap.filter import Filter
from l2p.privacy.ledger.ledger import Ledger
from l2p.privacy.ledger.reservation import largest_epsilon, limit_of, most_cost
from l2p.release import api, private_run
from tests import canaries

DELTA = 1e-6
MINE = """
from l2p.base import struct
from l2p.protectors.by_hand import gradient_descent

noisy = gradient_descent.noisygd

class Plain:
    pass

def Broken(problem):
    raise RuntimeError("not today")
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder to work in, with a table of canaries, its bounds and a module of the user's own."""
    monkeypatch.chdir(tmp_path)
    Path("ward.csv").write_text(canaries.GOOD)
    canaries.SCHEMA.write("schema.json")
    Path("folder.json").mkdir()
    Path("list.json").write_text("[1, 2]")
    Path("broken.json").write_text("{")
    Path("swapped.json").write_text(Path("schema.json").read_text().replace("120.0", "-120.0"))
    Path("mine_in_talk.py").write_text(MINE)
    assert main(["ledger", "create", "ward.ledger", "--name", "ward", "--epsilon", "1", "--delta", "1e-6"]) == 0
    return tmp_path


def words(**changes):
    """The words of an `apply` that works, with options changed, added or (None) left out."""
    options = {"data": "ward.csv", "schema": "schema.json", "epsilon": "1", "delta": "1e-6"}
    options |= {"out": "run", "ledger": "ward.ledger"} | {name.replace("_", "-"): to for name, to in changes.items()}
    pairs = [(name, to) for name, to in options.items() if to is not None]
    return ["apply", *(word for name, to in pairs for word in (f"--{name}", *str(to).split()))]


PLAN = ["plan", "--rows", "1000", "--features", "10", "--epsilon", "1", "--delta", "1e-6"]
LEDGER = ["ledger", "create", "new.ledger", "--name", "ward", "--epsilon", "1", "--delta", "1e-6"]
#: A command line, and what its refusal has to say: what was wrong, or the way out.
BAD = {
    "no schema": (words(schema=None), "write one with l2p schema DATA --target COLUMN --out schema.json"),
    "a schema that is not there": (words(schema="nope.json"), "nope.json"),
    "a folder for a schema": (words(schema="folder.json"), "folder.json"),
    "a schema that is a list": (words(schema="list.json"), "list.json"),
    "a schema that is no JSON": (words(schema="broken.json"), "broken.json"),
    "bounds the wrong way round": (words(schema="swapped.json"), "leave no room between low and high"),
    "no table": (words(data="nope.csv"), "there is no file nope.csv"),
    "no ledger": (words(ledger="nope.ledger"), "create it with l2p ledger create"),
    "a table as the ledger": (words(ledger="ward.csv"), "ward.csv"),
    "more than the ledger has": (words(epsilon="1.5"), "the largest epsilon that fits is 1"),
    "other neighbours than the ledger's": (words(adjacency="replace_one"), "choose the ledger's adjacency"),
    "a seed with a ledger": (words(seed="1"), "leave out the ledger, or the key"),
    "a seed below zero": (words(seed="-1", ledger=None), "choose a seed from 0"),
    "epsilon of words": (words(epsilon="lots"), "--epsilon takes a number, not 'lots'"),
    "epsilon below zero": (words(epsilon="-1"), "choose one, such as 0.1 or 1"),
    "delta above 1/N": (words(delta="0.01", rows="2000"), "choose delta well below"),
    "delta above 1/N of fewer rows": (words(delta="0.01", rows="5"), "delta would be checked against fewer people"),
    "half a row": (words(rows="2.5"), "--rows takes a whole number, not '2.5'"),
    "an unknown model": (words(model="forest"), "choose one of logistic"),
    "a protector for another model": (words(protector="paper-svm-adult"), "for logistic use universal"),
    "a method that is misspelt": (words(protector="noisigd"), "did you mean 'noisygd'?"),
    "no such module": (words(protector="nopackage:Mine"), "No module named 'nopackage'"),
    "no such name in it": (words(protector="mine_in_talk:Nothing"), "check the name after the colon"),
    "a class that is no protector": (words(protector="mine_in_talk:Plain"), "is of type Plain; name a Protector"),
    "a factory that fails": (words(protector="mine_in_talk:Broken"), "RuntimeError: not today"),
    "an option that is misspelt": (words(epsilom="1"), "see l2p apply --help"),
    "a command that is misspelt": (["aply"], "did you mean 'apply'?"),
    "neighbours that are misspelt": (words(adjacency="zero"), "takes add_remove, replace_one or zero_out, not 'zero'"),
    "a plan without its options": (["plan", "--rows", "10"], "l2p plan also needs --features INT"),
    "a plan for no rows": ([*PLAN, "--rows", "0"], "without rows"),
    "a plan for seven classes of two": ([*PLAN, "--model", "svm", "--classes", "7"], "use --model softmax"),
    "a plan for classes of numbers": ([*PLAN, "--model", "quadratic", "--classes", "2"], "leave out --classes"),
    "a plan with a misfit": ([*PLAN, "--protector", "paper-svm-adult"], "for logistic use universal"),
    "a ledger that is there": (["ledger", "create", "ward.ledger", *LEDGER[3:]], "name a new file"),
    "a ledger in no folder": (["ledger", "create", "no/a.ledger", *LEDGER[3:]], "make it, or name another"),
    "a ledger to show that is none": (["ledger", "show", "schema.json"], "schema.json"),
    "a comparison of no data": (["compare", "--data", "adlt", "--out", "cmp"], "adlt"),
    "a comparison of an undeclared file": (
        ["compare", "--data", "ward.csv", "--out", "cmp"],
        "write a schema with l2p schema",
    ),
    "a comparison by an unknown module": (
        ["compare", "--data", "digits:odd", "--delta", "1e-5", "--methods", "nopackage:Mine", "--out", "cmp"],
        "No module named 'nopackage'",
    ),
    "a configuration that is not there": (["compare", "--config", "nope.json", "--out", "cmp"], "nope.json"),
    "an account of no card": (["account", "--card", "nope.json"], "nope.json"),
    "a shell that has no completion": (["completion", "fish"], "takes bash or zsh, not 'fish'"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_costs_one_sentence_with_a_way_out_and_nothing_else(here, name, capsys, monkeypatch):
    args, phrase = BAD[name]
    monkeypatch.setattr(private_run, "_start", lambda *_: pytest.fail("a query was asked"))
    before = Path("ward.ledger").read_bytes()
    capsys.readouterr()
    assert main(args) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert phrase in err
    assert "Traceback" not in err
    assert canaries.leaks(err) == []
    assert Path("ward.ledger").read_bytes() == before
    assert not Path("run").exists()


# ------------------------------------------------------------------------------------------------------ the default
@pytest.mark.parametrize(("model", "kind"), [(name, kind) for name in MODELS for kind in MODELS[name].kinds])
def test_every_model_and_kind_has_a_default_that_ships_and_trains_it(model, kind):
    method = resolve(default_protector(model), Budget(1.0, DELTA), model, num_rows=1000)
    assert model in method.protector.models
    assert method.sha256 is None or method.name in checkpoint.first_floor()


@pytest.mark.parametrize(
    ("model", "others"), [("square", "minibatch"), ("mlp", "minibatch"), ("logistic", "paper-svm-adult")]
)
def test_a_misfit_is_told_what_to_use(model, others):
    with pytest.raises(InputError, match="was made for") as refused:
        resolve(others, Budget(1.0, DELTA), model)
    assert default_protector(model) in str(refused.value)


def test_private_train_takes_the_default_and_needs_a_budget(monkeypatch):
    rows = Rows(np.ones((2000, 4), np.float32), np.ones(2000, np.float32), np.ones(2000, np.float32))
    admitted = []
    monkeypatch.setattr(api, "admit", lambda name, *_, **__: admitted.append(name) or (_ for _ in ()).throw(InputError))
    for model, kind in (("logistic", None), ("square", None), ("square", "binary"), ("hinge", None)):
        with pytest.raises(InputError):
            private_train(rows, budget=Budget(1.0, DELTA), model=model, kind=kind)
        assert admitted.pop() == default_protector(model)
    with pytest.raises(InputError, match="needs a budget"):
        private_train(rows, "noisygd")


# --------------------------------------------------------------------------------------------------------- dry runs
@pytest.mark.parametrize("model", ["logistic", "svm", "hinge", "mlp"])
def test_a_dry_run_reads_no_cell_writes_nothing_and_leaves_the_ledger_alone(here, model, capsys):
    Path("ward.csv").unlink()
    os.mkfifo("ward.csv")  # whoever opened it would wait for ever
    before = {path: path.read_bytes() for path in here.iterdir() if path.is_file()}
    capsys.readouterr()
    assert main([*words(model=model, epsilon="0.4"), "--dry-run", "--rows", "1000"]) == 0
    out, _ = capsys.readouterr()
    assert default_protector(model) in out
    assert "epsilon 0.4 at delta 1e-06" in out
    assert "ward has epsilon 1 at delta 1e-06 left, and would have" in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 80
    assert {path: path.read_bytes() for path in here.iterdir() if path.is_file()} == before
    assert not Path("run").exists()


@pytest.mark.parametrize(
    ("changes", "phrase"),
    [
        ({"epsilon": "1.5"}, "the largest epsilon that fits is 1 at this delta, and"),
        ({"rows": "2000000"}, "not below 1/N"),
        ({"protector": "paper-svm-adult"}, "for logistic use universal"),
        ({"protector": "sgd_adv", "ledger": None}, "--adjacency replace_one"),
        ({"out": "folder.json/../."}, "not empty"),
    ],
)
def test_a_dry_run_refuses_what_the_run_would(here, changes, phrase, capsys):
    capsys.readouterr()
    assert main([*words(**changes), "--dry-run"]) == 2
    assert phrase in capsys.readouterr().err


def test_a_dry_run_warns_on_standard_error(here, capsys):
    assert main([*words(epsilon="1000", ledger=None, protector="minibatch"), "--dry-run", "--rows", "1000"]) == 0
    out, err = capsys.readouterr()
    assert "above 10" not in out
    warnings = err.splitlines()
    assert all(line.startswith("warning: ") for line in warnings)
    assert any("above 10" in line for line in warnings)
    assert any("rows at this epsilon" in line for line in warnings)
    assert "log_signal" not in err


# ---------------------------------------------------------------------------------------------------------- ledgers
@pytest.mark.parametrize("unit", ["gdp", "zcdp", "rdp", "basic"])
@pytest.mark.parametrize("delta", [DELTA, 1e-7])
def test_the_largest_epsilon_that_fits_fits_and_a_hundredth_more_does_not(tmp_path, unit, delta):
    budget = Budget(1.0, DELTA)
    ledger = Ledger.create(tmp_path / "a.ledger", "ward", budget, unit, limit_of(unit, budget))
    run = Filter("rdp" if unit == "rdp" else "gdp" if unit != "zcdp" else "zcdp", Budget(3.0, delta))
    first = most_cost(ledger, Filter(run.name, Budget(0.5, delta)), ("gaussian",))
    ledger.reserve(first, "first")
    largest = largest_epsilon(ledger, run, ("gaussian",), ledger.left())
    if unit == "basic" and delta == DELTA:  # the first has all of the delta
        assert largest == 0.0
        return
    assert 0.3 < largest < 1.0
    for factor, fits in ((1.0, True), (1.01, False)):
        cost = most_cost(ledger, Filter(run.name, Budget(largest * factor, delta)), ("gaussian",))
        remaining = ledger.left()
        assert (cost.amount <= remaining.amount and cost.delta <= remaining.delta) is fits


@pytest.mark.parametrize("unit", ["gdp", "zcdp", "rdp", "basic"])
def test_what_a_ledger_shows_as_left_is_epsilon_at_its_delta_on_one_line_per_run(tmp_path, unit, capsys, monkeypatch):
    path, budget = tmp_path / "a.ledger", Budget(1.0, DELTA)
    ledger = Ledger.create(path, "ward", budget, unit, limit_of(unit, budget))
    for epsilon in (0.1, 0.2):
        cost = limit_of(unit, Budget(epsilon, DELTA / 10))
        ledger.reserve(cost, f"universal, epsilon {epsilon}, delta 1e-07, accountant gdp, and more that is said of it")
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["ledger", "show", str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith("left   epsilon 0.")
    assert max(map(len, lines)) <= 80
    runs = [line for line in lines if "reserved " in line and "universal" in line]
    assert [line.split()[0] for line in runs] == [entry.id for entry in ledger.entries()]
    assert main(["ledger", "show", str(path), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert 0 < shown["in_epsilon"]["left"] < 1 == shown["in_epsilon"]["limit"]
    epsilon_left = shown["in_epsilon"]["left"]
    if unit in ("gdp", "zcdp", "basic"):  # of rdp, what Gaussian runs have left, planned at an order of their own
        assert limit_of(unit, Budget(epsilon_left, DELTA)).amount <= ledger.left().amount
        assert limit_of(unit, Budget(epsilon_left * 1.02, DELTA)).amount > ledger.left().amount


# ------------------------------------------------------------------------------------------- a protector of one's own
def test_a_protector_of_ones_own_is_found_where_it_is_written(here, capsys):
    Path("talk_methods").mkdir()
    for name in ("talk_nowhere:noisy", "talk_methods:noisy"):  # no such module, and a folder without code
        assert main([*words(protector=name, ledger=None), "--dry-run"]) == 2
        assert "is not a suffix" in capsys.readouterr().err
    Path("talk_methods/mine.py").write_text(MINE)
    Path("talk_alone.py").write_text(MINE)
    assert main([*words(protector="talk_alone:noisy"), "--dry-run"]) == 0
    assert "talk_alone:noisy" in capsys.readouterr().out
    assert main([*words(protector="talk_methods.mine:noisy"), "--dry-run"]) == 0
    assert "talk_methods.mine:noisy" in capsys.readouterr().out
    assert str(here) not in sys.path
    assert main([*PLAN, "--protector", "talk_methods.mine:noisy"]) == 0
    assert "talk_methods.mine:noisy" in capsys.readouterr().out


def test_a_card_never_has_a_module_imported(here):
    Path("mine_in_card.py").write_text("raise SystemExit('imported')")
    sys.path.insert(0, str(here))
    try:
        assert recognise("mine_in_card:Mine", None, Budget(1.0, DELTA), "logistic", "gdp", 1000) is None
        sha = checkpoint.load("universal").sha256
        with pytest.raises(InputError):
            recognise("mine_in_card:Mine", sha, Budget(1.0, DELTA), "logistic", "gdp", 1000)
    finally:
        sys.path.remove(str(here))
    assert "mine_in_card" not in sys.modules


# -------------------------------------------------------------------------------------------------- ends and screens
def interrupted(*_, **__):
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_comparison_says_what_it_keeps(here, number, capsys, monkeypatch):
    cell = Path("cmp/cells/noisygd/epsilon-0.1/seed-0.json")
    cell.parent.mkdir(parents=True)
    cell.write_text("{}")
    monkeypatch.setattr("l2p.compare.runner.main", lambda *_: os.kill(os.getpid(), number))
    assert compare_command.Compare("digits:odd", Path("cmp")).leftovers().startswith("1 finished")
    capsys.readouterr()
    assert main(["compare", "--data", "digits:odd", "--out", "cmp"]) == 128 + number
    message = "Interrupted. 1 finished cells are kept in cmp; the same command goes on from there.\n"
    assert capsys.readouterr() == ("", message)


@pytest.mark.parametrize(
    ("args", "inside"),
    [
        (["demo"], "l2p.commands.demo.main"),
        (PLAN, "l2p.checkpoints.forecast.plan"),
        (["protectors"], "l2p.commands.protectors._print_recommended"),
        (words(ledger=None), "l2p.release.admission.admit"),
    ],
)
def test_every_interrupt_is_one_line_and_130(here, args, inside, capsys, monkeypatch):
    monkeypatch.setattr(inside, interrupted)
    capsys.readouterr()
    assert main(args) == 130
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), err.startswith("Interrupted. ")) == ("", 1, True)


def test_a_reader_who_has_seen_enough_ends_a_command_quietly():
    code = "import l2p.commands.cli as c; c.main = lambda: print('x' * 10**6) or 0; c.run_process()"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.wait(60) == 128 + signal.SIGPIPE
    assert process.stderr.read() == b""
    process.stderr.close()


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_knows_every_command(shell, capsys):
    assert main(["completion", shell]) == 0
    out, _ = capsys.readouterr()
    assert all(name in out for name in COMMANDS)


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - {"meta-train"}))
@pytest.mark.parametrize("columns", ["80", "120"])
def test_help_fits_the_screen(name, columns, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", columns)
    assert main([name, "--help"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= int(columns)


@pytest.mark.parametrize("args", [[], ["--all"]])
def test_protectors_fit_80_columns(args, capsys):
    assert main(["protectors", *args]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_protectors_for_machines_say_which_is_a_default(capsys):
    assert main(["protectors", "--json"]) == 0
    listed = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    for model in NAMES:
        assert model in listed[default_protector(model)]["default_for"]
    assert all(entry["about"] for entry in listed.values() if entry["kind"] == "hand-designed")
