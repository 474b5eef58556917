"""`l2p apply`: the files that it writes, the options that it takes, and rows that are invalid."""

import collections
import csv
import dataclasses
import json
import signal
from pathlib import Path

import chex
import jax
import numpy as np
import pytest
import safetensors
from safetensors.numpy import load_file

from l2p.checkpoints import checkpoint
from l2p.commands.cli import main
from l2p.privacy import Adjacency
from l2p.privacy.card.card import Card
from l2p.release import api, private_run
from l2p.tables.schema import Schema, Target
from meta_train.training.untrained import BUILDERS
from tests.commands.small_tables import NUM_ROWS, SCHEMA, apply, write_table
from tests.conftest import EVERY_CASE


def test_apply_writes_a_model_its_card_and_its_trace(options, tmp_path, capsys):
    write_table(tmp_path / "test.csv", seed=1)
    assert apply(options | {"--test": str(tmp_path / "test.csv")}) == 0
    out = Path(options["--out"])
    names = "card.html card.json card.registry.yaml card.txt metrics.json model.safetensors schema.json trace.csv"
    assert sorted(path.name for path in out.iterdir()) == names.split()
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


@pytest.mark.long(cases=["pld"])
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


def test_the_trace_of_apply_reads_as_csv(options):
    assert apply(options) == 0
    with Path(options["--out"], "trace.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [int(line["step"]) for line in lines] == list(range(1, 51))
    assert all(line["query"] == "clipped_gradient" and line["mechanism"] == "gaussian" for line in lines)
