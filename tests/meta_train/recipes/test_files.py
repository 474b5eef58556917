"""Configs in users' files: the same from JSON and TOML, and refused with unknown or impossible fields."""

import json

import pytest

from l2p.base.errors import InputError
from meta_train.config import KINDS, Plain
from meta_train.recipes import files

SEVERAL = {
    "kind": "every_model",
    "num_features": [8, 24],
    "sources": ["adult", "synthetic"],
    "models": ["logistic", "svm"],
}


def test_json_and_toml_say_the_same(tmp_path):
    fields = {"name": "x", "protector": "control", "steps": 3, "num_features": None, "log_signal": [1.0, 2.0]}
    (tmp_path / "x.json").write_text(json.dumps(fields))
    lines = ('name = "x"', 'protector = "control"', "steps = 3", 'num_features = "null"', "log_signal = [1.0, 2.0]")
    (tmp_path / "x.toml").write_text("\n".join(lines))
    meant = Plain.of("x", "control", steps=3, num_features=None, log_signal=(1.0, 2.0))
    assert files.read(tmp_path / "x.json") == files.read(tmp_path / "x.toml") == meant


def test_configs_are_read_strictly(tmp_path):
    path = tmp_path / "config.json"
    path.write_text('{"name": "x", "protector": "control", "stepz": 3}')
    with pytest.raises(InputError, match="stepz"):
        files.read(path)
    with pytest.raises(InputError, match="there is no file"):
        files.read(tmp_path / "nowhere.json")
    for kind in ("json", "toml"):
        broken = tmp_path / f"broken.{kind}"
        broken.write_text("{")
        with pytest.raises(InputError, match=f"cannot be read as {kind.upper()}"):
            files.read(broken)
    path.write_text('{"name": "x", "protector": "control", "kind": "constrained", "constraint": "hope"}')
    with pytest.raises(InputError, match="augmented_lagrangian"):
        files.read(path)


@pytest.mark.parametrize(
    "fields",
    [
        *({"steps": 1.5}, {"tasks": 12}, {"accountant": "pld"}, {"name": None, "protector": 0}, {"learning_rate": "x"}),
        *({"gain_rounds": -1}, {"gain_rounds": 1, "eval_tasks": 8, "num_features": [4]}),
        *({"kind": "constrained", "alternate": [0, 5]}, {"alternate": [1, 5]}, {"kind": "many"}, {"kind": ["plain"]}),
        *({"unroll": 0}, {"damping": 0.0}, {"ridge": 0.0}, {"delta": 0.1}, {"kind": "own_tables"}),
        {**SEVERAL, "kind": "own_tables", "warm_start": "universal"},  # these are no tables of a user's own
        *({**SEVERAL, "sources": ["adult"]}, {**SEVERAL, "tunes": "wide"}, {**SEVERAL, "kind": "search"}),
        *({"num_classes": [3]}, {"num_classes": [1, 3], "num_features": [4, 5]}, {"sampling_rates": [0.1]}),
        *({"sampling_rates": [0.0, 0.1], "num_features": [4, 5]}, {"sampling_rates": [1.0], "num_features": [4]}),
        *({"num_features": 8}, {"num_features": []}, {"log_signal": 3}, {"log_signal": [8.7, 0.7]}),
        *({"signal_power": 0.0}, {"signal_power": "low"}, {"kept": 0.0}, {"kept": 1.5}, {"kept": "half"}),
        *({"curriculum": 0.0}, {"curriculum": 0.5, "kind": "search"}, {"curriculum": 0.5, "kind": "constrained"}),
        {"name": "a/b", "protector": "control"},
    ],
)
def test_configs_that_cannot_be_run_are_refused(tmp_path, fields):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"name": "x", "protector": "control"} | fields))
    with pytest.raises(InputError):
        files.read(path)


def test_a_file_of_each_kind_says_what_it_is_and_nothing_that_makes_no_sense_for_it(tmp_path):
    read = files.from_fields({"name": "x", "protector": "control", **SEVERAL}, tmp_path)
    assert files.from_fields(json.loads(json.dumps(read.flat())), tmp_path) == read
    assert list(read.flat())[:3] == ["kind", "name", "protector"]
    assert not {"source", "constraint", "alternate", "directions", "coefficients"} & set(read.flat())
    with pytest.raises(InputError, match="names alternate, which l2p does not know; choose among name, protector"):
        files.from_fields({"name": "x", "protector": "control", "alternate": [1, 5]}, tmp_path / "x.json")


def test_every_kind_has_a_name_of_its_own():
    assert len({kind.kind for kind in KINDS}) == len(KINDS)
