"""Bad input of `l2p apply` costs one sentence, quotes no cell, and spends nothing."""

import dataclasses
from pathlib import Path

import jax
import pytest

from l2p.checkpoints import checkpoint
from l2p.tables.schema import Number, Target
from meta_train.training.untrained import BUILDERS
from tests.commands.small_tables import SCHEMA, apply, write_table

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
        {"--protector": "minibatch", "--model": "square"},
        "for square use universal",
    ),
    "a pair for another model": ({"--protector": "paper-svm-adult"}, "for logistic use universal"),
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
    options["--model"] = "logistic"
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
