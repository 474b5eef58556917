"""The command line: what it writes, and that bad input gives one sentence and spends nothing."""

import collections
import csv
import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
import threading
import types
from pathlib import Path

import chex
import jax
import numpy as np
import pytest
import safetensors
from safetensors.numpy import load_file

from l2p.base.errors import InputError
from l2p.checkpoints import checkpoint
from l2p.checkpoints.defaults import default_protector
from l2p.commands.cli import COMMANDS, main
from l2p.models import NAMES
from l2p.privacy import Adjacency
from l2p.privacy.accountants import covering, of_fixed_noise
from l2p.privacy.card.card import Card
from l2p.privacy.cost.sampling import FullBatch
from l2p.protectors import HAND_DESIGNED
from l2p.release import api, private_run
from l2p.tables.reading import Format
from l2p.tables.schema import Number, Schema, Target
from meta_train.training.untrained import BUILDERS
from tests.conftest import EVERY_CASE

NUM_ROWS = 1500
SECRET = 61.0625  # a cell of every table below that no message may quote


SCHEMA = Schema({"age": Number(0, 120), "dose": Number(-1, 1)}, Target("readmit", classes=(0, 1)))


def write_table(path, label=(0, 1), columns=("age", "dose", "readmit"), spoil=(), seed=0):
    """A table whose label depends on its features; `spoil` is a list of (row, column, text) to insert."""
    rng = np.random.default_rng(seed)
    age, dose = rng.uniform(0, 120, NUM_ROWS), rng.uniform(-1, 1, NUM_ROWS)
    age[0] = SECRET
    labels = np.where(age / 60 + dose > 1, label[1], label[0])
    cells = [[f"{a:.4f}", f"{d:.4f}", f"{y:g}"] for a, d, y in zip(age, dose, labels, strict=True)]
    for row, column, text in spoil:
        cells[row][column] = text
    path.write_text("\n".join(",".join(line) for line in [columns, *cells]) + "\n")
    return path


@pytest.fixture
def options(tmp_path):
    """Options of an `apply` that works, as a dictionary to change."""
    SCHEMA.write(tmp_path / "schema.json")
    return {
        "--protector": "noisygd",
        "--data": str(write_table(tmp_path / "ward.csv")),
        "--schema": str(tmp_path / "schema.json"),
        "--epsilon": "2",
        "--delta": "1e-6",
        "--out": str(tmp_path / "run"),
    }


def apply(options):
    return main(["apply", *(word for option, value in options.items() for word in (option, *value.split(" ")))])


@pytest.fixture
def refused(capsys, monkeypatch):
    """Runs a command line that must be refused before a query is asked; returns its sentence."""

    def refuse(run, *args):
        with monkeypatch.context() as patch:
            patch.setattr(private_run, "_start", lambda *_: pytest.fail("a query was asked"))
            assert run(*args) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("\n") == 1
        assert "Traceback" not in err
        assert "61.06" not in err
        return err

    return refuse


def test_help_comes_without_jax_and_at_once():
    code = (
        "import sys; from l2p.commands.cli import main; main(['--help']); "
        "print('jax' in sys.modules, 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False False"
    assert all(name in done.stdout for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name, capsys):
    assert main([name, "--help"]) == 0
    assert f"usage: l2p {name}" in capsys.readouterr().out


def test_a_process_exits_with_the_codes_that_are_promised(tmp_path, options):
    def process(*args):
        return subprocess.run([sys.executable, "-m", "l2p", *args], capture_output=True, text=True, check=False)

    bad = process("apply", *(word for pair in (options | {"--epsilon": "-1"}).items() for word in pair))
    assert (bad.returncode, bad.stdout, bad.stderr.count("\n")) == (2, "", 1)
    assert process("protectors", "--json").returncode == 0


def test_apply_writes_a_model_its_card_and_its_trace(options, tmp_path, capsys):
    write_table(tmp_path / "test.csv", seed=1)
    assert apply(options | {"--test": str(tmp_path / "test.csv")}) == 0
    out = Path(options["--out"])
    names = ["card.html", "card.json", "card.txt", "metrics.json", "model.safetensors", "schema.json", "trace.csv"]
    assert sorted(path.name for path in out.iterdir()) == names
    card = Card.from_json(out / "card.json")
    assert card.private_release
    assert (card.epsilon, card.delta, card.adjacency, card.num_rows) == (2.0, 1e-6, "zero_out", NUM_ROWS)
    assert card.table == {"name": "ward.csv", "target": "readmit"}
    metrics = json.loads((out / "metrics.json").read_text())
    assert set(metrics) == {"accuracy", "majority", "auc", "log_loss", "brier", "test_loss", "outside_guarantee"}
    assert metrics["accuracy"] > max(0.8, metrics["majority"])
    assert metrics["auc"] > 0.9
    assert metrics["log_loss"] == metrics["test_loss"] < 0.7
    assert metrics["outside_guarantee"] is True
    with safetensors.safe_open(out / "model.safetensors", framework="numpy") as file:
        assert json.loads(file.metadata()["columns"]) == ["age", "dose"]
    printed = capsys.readouterr().out
    assert card.to_text() in printed
    assert str(out) in printed


@pytest.mark.slow
def test_a_seed_reproduces_a_run_that_is_no_release(options, tmp_path, capsys):
    for name in ("a", "b"):
        assert apply(options | {"--seed": "3", "--out": str(tmp_path / name)}) == 0
        assert "NOT A PRIVATE RELEASE" in capsys.readouterr().out
    chex.assert_trees_all_equal(*(load_file(tmp_path / name / "model.safetensors") for name in ("a", "b")))
    assert not Card.from_json(tmp_path / "a" / "card.json").private_release


def test_a_charged_result_is_written_elsewhere_if_its_folder_is_gone(options, tmp_path, capsys, monkeypatch):
    release = api.private_train

    def then_spoil(*args, **kwargs):
        result = release(*args, **kwargs)
        Path(options["--out"]).rmdir()
        Path(options["--out"]).write_text("in the way")
        return result

    monkeypatch.setattr(api, "private_train", then_spoil)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    assert apply(options) == 0
    out, err = capsys.readouterr()
    assert f"{options['--out']} cannot be written" in err
    (rescue,) = tmp_path.glob("l2p-*")
    assert str(rescue) in err
    assert str(rescue) in out
    assert Card.from_json(rescue / "card.json").private_release


def test_a_test_table_without_a_valid_row_is_refused(options, refused, tmp_path):
    write_table(tmp_path / "test.csv", label=(8, 9))
    changes = {"--test": str(tmp_path / "test.csv"), "--on-invalid": "null"}
    assert "test.csv has no valid row, so there is no score" in refused(apply, options | changes)


@pytest.mark.slow
@pytest.mark.parametrize("accountant", ["rdp", "pld"])
def test_apply_trains_on_batches(options, accountant):
    assert apply(options | {"--protector": "dpsgd", "--accountant": accountant}) == 0
    out = Path(options["--out"])
    card = Card.from_json(out / "card.json")
    assert (card.accountant, card.sampler) == (accountant, {"name": "Poisson", "sampling_rate": 0.05})
    assert (card.envelope is not None) is (accountant == "pld")
    assert card.filter().certify(card.answered(), card.adaptive_noise) == card.epsilon_certified <= 2.0
    with (out / "trace.csv").open() as file:
        assert [line["sampling_rate"] for line in csv.DictReader(file)] == ["0.05"] * 200


PAPER_FORMS = {"sgd_adv": ("replace_one", "strong_composition"), "sgd_ma": ("add_remove", "moments")}


@pytest.mark.slow
# tests/compare runs `sgd_ma`, of a thousand steps, and test_verification.py verifies its card.
@pytest.mark.parametrize("protector", [name for name in PAPER_FORMS if EVERY_CASE or name == "sgd_adv"])
def test_apply_runs_a_papers_form_under_the_neighbours_of_its_proof(options, protector, capsys):
    adjacency, accountant = PAPER_FORMS[protector]
    assert apply(options | {"--protector": protector, "--adjacency": adjacency, "--rows": str(NUM_ROWS)}) == 0
    capsys.readouterr()
    path = Path(options["--out"], "card.json")
    card = Card.from_json(path)
    assert (card.accountant, card.adjacency, card.stop_reason) == (accountant, adjacency, "max_steps")
    batch = int(NUM_ROWS**0.5) + 10
    sizes = {"batch_size": batch, "num_rows": NUM_ROWS}
    expected = sizes if protector == "sgd_adv" else {"sampling_rate": batch / NUM_ROWS}
    assert card.sampler == {"name": card.filter().sampler.name} | expected
    assert card.filter().certify(card.answered(), card.adaptive_noise) == card.epsilon_certified <= 2.0
    assert main(["account", "--card", str(path), "--verify", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["independent"]["epsilon"] < 2.0


@pytest.mark.slow(but=["zero_out"])
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_the_adjacency_asked_for_is_on_the_card(options, adjacency):
    assert apply(options | {"--adjacency": adjacency.value, "--rows": str(NUM_ROWS)}) == 0
    assert Card.from_json(Path(options["--out"], "card.json")).adjacency == adjacency.value


def test_declared_classes_name_the_labels(options, tmp_path):
    dataclasses.replace(SCHEMA, target=Target("readmit", classes=(7, 3))).write(options["--schema"])
    table, test = (write_table(tmp_path / f"{seed}.csv", label=(7, 3), seed=seed) for seed in (0, 1))
    assert apply(options | {"--data": str(table), "--test": str(test)}) == 0
    out = Path(options["--out"])
    assert json.loads((out / "metrics.json").read_text())["accuracy"] > 0.8
    assert Schema.read(out / "schema.json").target.classes == (7, 3)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["", ".parquet"])
def test_a_checkpoints_file_and_a_parquet_table_serve(options, tmp_path, suffix):
    if suffix:
        pq, pa = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
        columns = np.genfromtxt(options["--data"], delimiter=",", names=True)
        pq.write_table(pa.table({name: columns[name] for name in columns.dtype.names}), tmp_path / "ward.parquet")
        options["--data"] = str(tmp_path / "ward.parquet")
    path = tmp_path / "mine.safetensors"
    checkpoint.save(BUILDERS["control"](jax.random.key(0)), path, {"sources": ["adult"]})
    assert apply(options | {"--protector": str(path)}) == 0
    assert Card.from_json(Path(options["--out"], "card.json")).protector["sources"] == ["adult"]


def test_a_protectors_file_and_its_controls_are_read_once(options, monkeypatch):
    reads = collections.Counter()

    def counted(read):
        def count(path, *args, **kwargs):
            reads[Path(path).name] += 1
            return read(path, *args, **kwargs)

        return count

    monkeypatch.setattr(Path, "read_bytes", counted(Path.read_bytes))
    monkeypatch.setattr(safetensors, "safe_open", counted(safetensors.safe_open))
    monkeypatch.setattr(private_run, "_train", lambda *_: signal.raise_signal(signal.SIGINT))
    assert apply(options | {"--protector": "universal"}) == 130
    checkpoints = {name: count for name, count in reads.items() if name.endswith(".safetensors")}
    assert checkpoints == {"universal.safetensors": 1, "control-universal.safetensors": 1}


def test_invalid_rows_are_refused_or_counted_as_null(options, tmp_path, refused):
    options["--data"] = str(write_table(tmp_path / "ward.csv", spoil=[(4, 0, "nan"), (5, 1, ""), (6, 2, "8")]))
    assert "column 'age' has cells that are missing, infinite or no numbers" in refused(apply, options)
    assert apply(options | {"--on-invalid": "null"}) == 0
    card = Card.from_json(Path(options["--out"], "card.json"))
    assert card.num_rows == NUM_ROWS
    assert any("null rows" in sentence for sentence in card.not_private)


MISSING = str(Path("nowhere") / "missing")
BAD_INPUTS = {
    "epsilon of zero": ({"--epsilon": "0"}, "epsilon is 0.0"),
    "negative epsilon": ({"--epsilon": "-1"}, "epsilon is -1.0"),
    "epsilon that is no number": ({"--epsilon": "lots"}, "--epsilon takes a number, not 'lots'"),
    "half a row": ({"--rows": "2.5"}, "--rows takes a whole number"),
    "delta above 1/N": ({"--delta": "1e-3"}, "not below 1/N"),
    "epsilon that says nothing": ({"--epsilon": "1e9"}, "outside [1e-12, 1e+06]"),
    "epsilon that allows nothing": ({"--epsilon": "1e-13"}, "outside [1e-12, 1e+06]"),
    "delta of zero": ({"--delta": "0"}, "asks for pure differential privacy"),
    "negative delta": ({"--delta": "-1e-9"}, "delta is -1e-09"),
    "unknown protector": ({"--protector": "censos"}, "protector 'censos' is unknown"),
    "oracle": ({"--protector": "agd:oracle"}, "protector 'agd:oracle' is unknown"),
    "no noise": ({"--protector": "nonprivate"}, "without noise"),
    "unknown model": ({"--model": "forest"}, "model 'forest' is unknown"),
    "accountant that cannot price": ({"--protector": "agd", "--accountant": "gdp"}, "cannot price"),
    "accountant for other runs": ({"--accountant": "paper_13"}, "no theorem for full batch"),
    "accountant for batches": ({"--accountant": "pld"}, "no theorem for full batch"),
    "accountant for full batches": ({"--protector": "dpsgd", "--accountant": "gdp"}, "no theorem for Poisson"),
    "noise of no known loss": ({"--protector": "agd", "--accountant": "pld"}, "no theorem for full batch"),
    "batches under replace_one": (
        {"--protector": "dpsgd", "--accountant": "pld", "--adjacency": "replace_one"},
        "not proved",
    ),
    "noise that depends on answers": ({"--protector": "agd", "--accountant": "moments"}, "depends on earlier answers"),
    "paper's neighbours, SGD-Adv": ({"--protector": "sgd_adv"}, "ask for --adjacency replace_one, or choose its fair"),
    "paper's neighbours, SGD-MA": ({"--protector": "sgd_ma"}, "ask for --adjacency add_remove, or choose its fair"),
    "paper's accountant": (
        {"--protector": "sgd_ma", "--adjacency": "add_remove", "--accountant": "rdp"},
        "calibrated by accountant 'moments'",
    ),
    "budget below a paper's floor": (
        {"--protector": "sgd_ma", "--adjacency": "add_remove", "--epsilon": "0.3", "--rows": "300"},
        "no amount of noise",
    ),
    "rows counted under add_remove": ({"--adjacency": "add_remove"}, "N must not be read off the table"),
    "missing ledger": ({"--ledger": MISSING + ".ledger"}, "there is no ledger"),
    "unknown accountant": ({"--accountant": "magic"}, "--accountant takes basic, ctcdp, gdp,"),
    "unknown adjacency": ({"--adjacency": "friends"}, "--adjacency takes add_remove, replace_one or zero_out"),
    "protector for another model": (
        {"--protector": "universal-logistic", "--model": "square"},
        "for square use universal",
    ),
    "protector for more classes": ({"--protector": "probe"}, "for logistic use universal"),
    "no such module": ({"--protector": "nosuchpackage:Mine"}, "No module named 'nosuchpackage'"),
    "nothing of that name": ({"--protector": "l2p.protectors.by_hand.agd:Mine"}, "check the name after the colon"),
    "no protector": ({"--protector": "l2p.privacy.budget:MAX_EPSILON"}, "is of type float; name a Protector"),
    "needs arguments": ({"--protector": "l2p.privacy.budget:Budget"}, "missing 2 required positional arguments"),
    "missing table": ({"--data": MISSING + ".csv"}, "there is no file"),
    "table of another kind": ({"--data": __file__}, "is of no kind that can be read"),
    "missing schema": ({"--schema": MISSING + ".json"}, "missing.json cannot be read"),
    "missing checkpoint": ({"--protector": MISSING + ".safetensors"}, "cannot be read"),
    "missing test table": ({"--test": MISSING + ".csv"}, "there is no file"),
    "unknown option": ({"--epsilom": "1"}, "--epsilom"),
}


@pytest.mark.slow(cases=["batches under replace_one", "budget below a paper's floor"])
@pytest.mark.parametrize("name", BAD_INPUTS)
def test_bad_input_costs_one_sentence(options, refused, name):
    changes, phrase = BAD_INPUTS[name]
    assert phrase in refused(apply, options | changes)


@pytest.mark.parametrize("missing", ["--data", "--schema", "--epsilon", "--delta", "--out"])
def test_what_must_be_said_is_asked_for(options, refused, missing):
    del options[missing]
    assert missing in refused(apply, options)


def test_whoever_has_no_schema_is_told_how_to_write_one(options, refused):
    del options["--schema"]
    assert "--schema PATH; write one with l2p schema DATA --target COLUMN --out schema.json" in refused(apply, options)


WRONG_SCHEMAS = {
    "another target": ({"target": Target("Readmit", (0, 1))}, "no column 'Readmit'; did you mean 'readmit'?"),
    "other labels": ({"target": Target("readmit", (3, 7))}, "labels other than '3', '7'"),
    "a number for a class": ({"target": Target("readmit", bounds=(0, 1))}, "which model logistic does not learn"),
    "a column too few": ({"columns": {"age": Number(0, 120)}}, "columns that the schema does not declare: 'dose'"),
}


@pytest.mark.parametrize("name", WRONG_SCHEMAS)
def test_a_schema_of_another_table_is_refused(options, refused, name):
    changes, phrase = WRONG_SCHEMAS[name]
    dataclasses.replace(SCHEMA, **changes).write(options["--schema"])
    assert phrase in refused(apply, options)


def test_a_column_of_words_is_refused(options, refused, tmp_path):
    options["--data"] = str(write_table(tmp_path / "ward.csv", spoil=[(3, 1, "high")]))
    sentence = refused(apply, options)
    assert "column 'dose' has cells that are missing, infinite or no numbers" in sentence
    assert "high" not in sentence


def test_an_unreadable_table_is_refused(options, refused, tmp_path):
    (tmp_path / "ward.parquet").write_bytes(b"\x00\xff" * 99)
    assert "cannot be read as Parquet" in refused(apply, options | {"--data": str(tmp_path / "ward.parquet")})


def test_a_protector_for_another_model_is_refused(options, refused, tmp_path):
    path = tmp_path / "mine.safetensors"
    checkpoint.save(BUILDERS["control"](jax.random.key(0)), path, {"sources": [], "models": ["mlp"]})
    assert "made for mlp, not for logistic" in refused(apply, options | {"--protector": str(path)})


@pytest.mark.parametrize("kind", ["folder with a file", "file"])
def test_an_occupied_folder_is_refused_before_data_are_read(options, refused, tmp_path, kind):
    occupied = tmp_path / "old"
    if kind == "file":
        occupied.write_text("mine")
    else:
        occupied.mkdir()
        (occupied / "notes.txt").write_text("mine")
    options |= {"--out": str(occupied), "--data": MISSING + ".csv"}
    assert str(occupied) in refused(apply, options)


@pytest.mark.parametrize(
    ("args", "phrase"),
    [
        *(([], "subcommand"), (["aply"], "no command 'aply'; did you mean 'apply'?"), (["account"], "--card")),
        (["apply", "--protecter", "noisygd"], "Unrecognized options: --protecter noisygd; see l2p apply --help"),
    ],
)
def test_a_wrong_command_line_costs_one_sentence(refused, args, phrase):
    assert phrase in refused(main, args)


def test_protectors_are_listed_for_machines_and_people(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(checkpoint, "FOLDERS", (tmp_path,))
    card = {"sources": ["adult"], "range": {"log_signal": [0.7, 8.7], "num_features": [24, 104]}}
    checkpoint.save(BUILDERS["control"](jax.random.key(0)), tmp_path / "census.safetensors", card)
    assert main(["protectors", "--json"]) == 0
    listed = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert {*HAND_DESIGNED, "census"} == set(listed)
    assert listed["census"]["sources"] == ["adult"]
    assert listed["noisygd"]["models"] == list(NAMES)
    assert main(["protectors", "--all"]) == 0
    assert "0.7 to 8.7" in " ".join(capsys.readouterr().out.split())


def test_protectors_that_users_need_fit_a_screen(capsys):
    assert main(["protectors"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 60
    assert max(map(len, lines)) <= 80
    first = checkpoint.first_floor()
    assert len(first) <= 17
    listed = {line.strip("* ").split("  ")[0].split()[0]: line for line in lines if "  " in line}
    controls = {f"control-{name}" for name in first}
    learned = [name for name in first if name not in controls]
    assert list(listed) == [*learned, *HAND_DESIGNED]
    assert all(listed[name].endswith(checkpoint.about(name)) for name in learned)
    assert not any(line.endswith("...") for line in lines)
    defaults = {default_protector(model) for model in NAMES}
    assert {name for name, line in listed.items() if line.startswith("*")} == defaults - set(HAND_DESIGNED)
    assert not any("-no-" in line or "-tuned-" in line for line in lines)


FILTERS = [name for name in covering(FullBatch()) if name not in ("basic", *of_fixed_noise())]
RUNS = [("noisygd", name) for name in FILTERS] + [("agd", "rdp"), ("agd", "zcdp"), ("agd", "ctcdp")]


@pytest.mark.slow(but=["noisygd-ctcdp"])
@pytest.mark.parametrize(("protector", "accountant"), RUNS)
def test_account_agrees_with_the_card_and_with_an_independent_library(options, capsys, protector, accountant):
    assert apply(options | {"--protector": protector, "--accountant": accountant}) == 0
    capsys.readouterr()
    path = Path(options["--out"], "card.json")
    assert main(["account", "--card", str(path), "--verify"]) == 0
    printed = capsys.readouterr().out
    assert "the card holds" in printed
    independent = float(printed.split("dp-accounting: epsilon ")[1].split()[0])
    # All except ctcdp's simple conversion are as tight as dp-accounting; a run of AGD may leave a little unspent.
    assert (0.8 if accountant == "ctcdp" or protector == "agd" else 0.999) * 2 < independent <= 2 * (1 + 1e-6)


def less_noise(span):
    return {**span, "queries": [[mechanism, multiplier / 1.1] for mechanism, multiplier in span["queries"]]}


@pytest.mark.parametrize("verify", [[], ["--verify"]])
def test_account_exits_with_1_when_the_events_cost_more(options, tmp_path, capsys, verify):
    assert apply(options) == 0
    card = Card.from_json(Path(options["--out"], "card.json"))
    for name, change in {
        "less noise": {"events": [less_noise(span) for span in card.events]},
        "a lower target": {"epsilon": 1.9, "epsilon_certified": 1.9},
        "a lower claim": {"epsilon_certified": 1.0},
    }.items():
        path = tmp_path / f"{name}.json"
        path.write_text(dataclasses.replace(card, **change).to_json())
        assert main(["account", "--card", str(path), *verify]) == 1
        assert "DOES NOT HOLD" in capsys.readouterr().out


def test_account_refuses_what_is_no_card(options, refused):
    assert "does not hold the fields of a privacy card" in refused(main, ["account", "--card", options["--schema"]])


def shown(path, capsys):
    """The output of `l2p ledger show`."""
    capsys.readouterr()
    assert main(["ledger", "show", str(path), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def assert_says_what_stays(said, run, path):
    assert said.startswith(f"Interrupted. The reservation of epsilon 1.77 at delta 1e-05 for this run ({run['id']})")
    assert "stays in the" in said
    assert f"ledger of ward and counts as spent: l2p ledger show {path} lists it" in said
    assert "l2p ledger release may give it back only if no query was answered" in said


@pytest.mark.slow
def test_ctrl_c_says_that_the_reservation_stays_and_how_to_look_at_it(options, tmp_path, capsys):
    path = tmp_path / "ward.ledger"
    assert main(["ledger", "create", str(path), "--name", "ward", "--epsilon", "3", "--delta", "1e-5"]) == 0
    # After the reservation the run never ends, so that the signal cannot come too late; meanwhile JAX computes in
    # threads that Python would wait for or crash on. It sleeps in short pieces: a signal that comes just before a sleep
    # begins does not shorten it. The watch ends a test that hangs; it is too long to decide on a slow machine.
    code = """
import time, jax
from l2p.commands import cli
from l2p.release import private_run
spin = jax.jit(lambda x: jax.lax.fori_loop(0, 10**9, lambda _, y: y @ y, x))
def train(*_):
    spin(jax.numpy.eye(200))
    print("computing", flush=True)
    while True:
        time.sleep(0.1)
private_run._train = train
cli.run_process()
"""
    words = ["apply", "--ledger", str(path), *(word for pair in options.items() for word in pair)]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"JAX_ENABLE_COMPILATION_CACHE": "false"},  # reading from it once hung
    )
    watch = threading.Timer(3600, process.kill)
    watch.start()
    try:
        assert process.stdout.readline() == "computing\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    finally:
        watch.cancel()
        process.kill()
        process.wait()
    assert (process.returncode, out) == (130, "")
    (run,) = shown(path, capsys)["runs"]
    assert run["state"] == "reserved"
    *before, said = err.splitlines()  # XLA may have printed something about its cache before
    assert not any("Traceback" in line or "Interrupted" in line for line in before)
    assert_says_what_stays(said, run, path)


def test_a_command_without_a_reservation_is_interrupted_in_a_word(options, capsys, monkeypatch):
    monkeypatch.setattr(private_run, "_train", lambda *_: signal.raise_signal(signal.SIGINT))
    assert apply(options) == 130
    said = (
        f"Interrupted. Nothing was written to {options['--out']}; no ledger counts what its queries may have spent.\n"
    )
    assert capsys.readouterr() == ("", said)


def test_bad_input_that_is_found_after_a_reservation_does_not_count_as_nothing_spent(
    options, tmp_path, capsys, monkeypatch
):
    path = tmp_path / "ward.ledger"
    assert main(["ledger", "create", str(path), "--name", "ward", "--epsilon", "3", "--delta", "1e-5"]) == 0
    capsys.readouterr()
    monkeypatch.setattr(private_run, "_train", lambda *_: (_ for _ in ()).throw(InputError("the source ended early.")))
    assert apply(options | {"--ledger": str(path)}) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("the source ended early. The reservation of epsilon")


def test_a_ledger_is_kept_from_the_command_line(options, refused, tmp_path, capsys, monkeypatch):
    path = str(tmp_path / "ward.ledger")
    create = ["ledger", "create", path, "--name", "ward", "--epsilon", "3", "--delta", "1e-5"]
    assert main(create) == 0
    assert "ward has" in capsys.readouterr().out
    assert "would lose what was spent" in refused(main, create)

    first = options | {"--ledger": path, "--out": str(tmp_path / "first")}
    assert apply(first) == 0
    card = Card.from_json(tmp_path / "first" / "card.json")
    assert card.composition["data_set"] == "ward"
    facts = shown(path, capsys)
    (run,) = facts["runs"]
    assert (run["state"], run["id"]) == ("settled", card.composition["reservation"])
    assert facts["spent"]["amount"] == card.composition["counted"] > 0
    assert facts["left"]["amount"] == pytest.approx(facts["limit"]["amount"] - facts["spent"]["amount"])

    second = options | {"--ledger": path, "--out": str(tmp_path / "second")}
    assert "must not start" in refused(apply, second | {"--epsilon": "3"})
    assert "counts zero_out neighbours" in refused(
        apply, second | {"--adjacency": "add_remove", "--rows": str(NUM_ROWS), "--out": str(tmp_path / "b")}
    )
    assert "a ledger cannot count it" in refused(apply, second | {"--seed": "3", "--out": str(tmp_path / "c")})
    assert "no theorem" not in refused(
        apply, second | {"--protector": "dpsgd", "--out": str(tmp_path / "d")}
    )  # has an accountant, but none that adds up mu^2
    assert shown(path, capsys) == facts

    with monkeypatch.context() as patch:
        patch.setattr(private_run, "_train", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
        assert apply(second | {"--out": str(tmp_path / "e")}) == 143
    (said,) = capsys.readouterr().err.splitlines()
    killed = shown(path, capsys)["runs"][1]
    assert killed["state"] == "reserved"
    assert_says_what_stays(said, killed, path)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    release = ["ledger", "release", path, killed["id"], "--reason", "stopped before its first query"]
    assert "--no-query-was-answered" in refused(main, release)
    assert main([*release, "--no-query-was-answered"]) == 0
    assert shown(path, capsys)["spent"] == facts["spent"]
    assert "is released" in refused(main, [*release, "--no-query-was-answered"])
    assert main(["ledger", "show", path]) == 0
    assert killed["id"] in capsys.readouterr().out


@pytest.mark.slow
def test_a_method_tuned_on_the_private_rows_is_reserved_as_a_whole(options, refused, tmp_path, capsys, monkeypatch):
    sums, wholes = str(tmp_path / "sums.ledger"), str(tmp_path / "wholes.ledger")
    for path, unit in ((sums, "gdp"), (wholes, "basic")):
        create = ["ledger", "create", path, "--name", "ward", "--epsilon", "3", "--delta", "1e-5", "--unit", unit]
        assert main(create) == 0
    capsys.readouterr()
    tuned = options | {"--protector": "noisygd:private", "--ledger": wholes}
    assert "unit rdp or basic" in refused(apply, tuned | {"--ledger": sums, "--out": str(tmp_path / "a")})
    assert "leave it out" in refused(apply, tuned | {"--accountant": "gdp", "--out": str(tmp_path / "b")})
    assert "one order only" in refused(apply, tuned | {"--protector": "dpsgd:private", "--out": str(tmp_path / "c")})
    dataclasses.replace(SCHEMA, target=Target("readmit", bounds=(0, 1))).write(tmp_path / "numbers.json")
    numbers = {"--schema": str(tmp_path / "numbers.json"), "--model": "square", "--out": str(tmp_path / "e")}
    assert "has no labels" in refused(apply, tuned | numbers)
    assert shown(wholes, capsys)["runs"] == []
    monkeypatch.setattr("l2p.privacy.cost.selection.NegativeBinomial.draw", lambda *_: 2)
    assert apply(tuned) == 0
    (run,) = shown(wholes, capsys)["runs"]
    assert (run["state"], run["reserved"], run["counted"]) == ("settled", *[{"amount": 2.0, "delta": 1e-6}] * 2)
    card = Card.from_json(Path(options["--out"], "card.json"))
    assert (card.protector["name"], card.composition["reservation"]) == ("noisygd:private", run["id"])
    assert "Papernot & Steinke 2022, Theorem 2" in card.theorem
    assert main(["account", "--card", str(Path(options["--out"], "card.json")), "--verify"]) == 0
    capsys.readouterr()
    assert "must not start" in refused(apply, tuned | {"--out": str(tmp_path / "d")})


@pytest.mark.parametrize(
    ("args", "phrase"),
    [
        (["ledger"], "subcommand"),
        (["ledger", "show", "nowhere.ledger"], "there is no ledger"),
        (["ledger", "create", "new.ledger", "--name", "ward", "--epsilon", "0", "--delta", "1e-5"], "epsilon is 0.0"),
        (["ledger", "create", "new.ledger", "--name", "ward", "--epsilon", "1"], "--delta"),
        (
            ["ledger", "create", "no/new.ledger", "--name", "ward", "--epsilon", "1", "--delta", "1e-5"],
            "/no to hold a ledger",
        ),
        (["ledger", "release", "nowhere.ledger", "a1", "--reason", "none"], "--no-query-was-answered"),
        (["plan", "--rows", "1000", "--features", "10", "--epsilon", "1"], "--delta"),
        (["plan", "--rows", "1000", "--features", "10", "--epsilon", "-1", "--delta", "1e-6"], "epsilon is -1.0"),
        (["plan", "--rows", "1000", "--features", "10", "--epsilon", "1", "--delta", "1e-2"], "below 1/N"),
        (["plan", "--rows", "0", "--features", "10", "--epsilon", "1", "--delta", "1e-6"], "rows"),
    ],
)
def test_ledger_and_plan_refuse_with_one_sentence(refused, tmp_path, monkeypatch, args, phrase):
    monkeypatch.chdir(tmp_path)
    assert phrase in refused(main, args)
    assert list(tmp_path.iterdir()) == []


def test_plan_prints_what_a_budget_buys(capsys):
    words = ["plan", "--rows", "30000", "--features", "100", "--epsilon", "0.5", "--delta", "1e-6"]
    assert main(words) == 0
    assert "universal" in capsys.readouterr().out
    assert main([*words, "--json"]) == 0
    assert {"universal", "control-universal"} <= {
        entry["name"] for entry in json.loads(capsys.readouterr().out)["forecasts"]
    }


def stand_in(monkeypatch, name, recorded):
    module = types.ModuleType(name)
    module.main = lambda *args, **options: recorded.extend([*args, *(value for value in options.values() if value)])
    monkeypatch.setitem(sys.modules, name, module)


def test_compare_splits_methods_at_commas(monkeypatch, tmp_path):
    recorded = []
    stand_in(monkeypatch, "l2p.compare.runner", recorded)
    words = ["--methods", "census,paper", "agd:tuned", "--epsilon", ".05", ".1", "--data", "adult", "--seeds", "3"]
    assert main(["compare", *words, "--out", str(tmp_path)]) == 0
    config = recorded[0]
    assert config.methods == ("census", "paper", "agd:tuned")
    assert (config.epsilon, config.data, config.seeds, config.out) == ((0.05, 0.1), "adult", 3, tmp_path)


@pytest.mark.parametrize(
    ("module", "args", "expected"),
    [
        ("l2p.commands.demo", ["demo"], [None]),
        ("l2p.commands.demo", ["demo", "--out", "o"], [Path("o")]),
        (
            "meta_train.__main__",
            ["meta-train", "--config", "c", "--out", "o", "--resume"],
            [Path("o"), Path("c"), True, Format()],
        ),
        (
            "meta_train.__main__",
            ["meta-train", "--recipe", "universal", "--without", "adult", "--out", "o"],
            [Path("o"), "universal", "adult", Format()],
        ),
        (
            "meta_train.__main__",
            ["meta-train", "--recipe", "universal", "--fold", "2", "--out", "o"],
            [Path("o"), "universal", 2, Format()],
        ),
        (
            "meta_train.__main__",
            ["meta-train", "--recipe", "universal", "--folds", "--out", "o"],
            [Path("o"), "universal", True, Format()],
        ),
    ],
)
def test_demo_and_meta_train_are_called_with_their_options(monkeypatch, module, args, expected):
    recorded = []
    stand_in(monkeypatch, module, recorded)
    assert main(args) == 0
    assert recorded == expected


def test_the_trace_of_apply_reads_as_csv(options):
    assert apply(options) == 0
    with Path(options["--out"], "trace.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [int(line["step"]) for line in lines] == list(range(1, 51))
    assert all(line["query"] == "clipped_gradient" and line["mechanism"] == "gaussian" for line in lines)


def test_the_help_of_meta_train_groups_options_by_what_says_what_to_train(capsys):
    assert main(["meta-train", "--help"]) == 0
    groups = {}
    for line in capsys.readouterr().out.splitlines():
        if match := re.fullmatch(r"\W*([\w-]*) ?options \W*", line):
            options = groups.setdefault(match[1], set())
        elif match := re.match(r"\W* --(\w[\w-]*)", line):
            options.add(match[1])
    assert groups["own-tables"] == {"data", "schema", "start"}
    assert groups["recipe"] == {"recipe", "without", "fold", "folds"}
    assert groups["tuned-method"] == {"method", "model", "source"}
    assert groups["card-or-file"] == {"like", "config"}
    assert groups[""] == {"out", "minutes", "show", "resume"}
