"""Configs in users' files: the same from JSON and TOML, and refused with unknown or impossible fields."""

import json

import pytest

from l2p.errors import InputError
from meta_train.config import MetaConfig
from meta_train.recipes import files


def test_json_and_toml_say_the_same(tmp_path):
    fields = {"name": "x", "protector": "control", "steps": 3, "num_features": None, "log_signal": [1.0, 2.0]}
    (tmp_path / "x.json").write_text(json.dumps(fields))
    lines = ('name = "x"', 'protector = "control"', "steps = 3", 'num_features = "null"', "log_signal = [1.0, 2.0]")
    (tmp_path / "x.toml").write_text("\n".join(lines))
    meant = MetaConfig("x", "control", steps=3, num_features=None, log_signal=(1.0, 2.0))
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
    path.write_text('{"name": "x", "protector": "control", "constraint": "hope"}')
    with pytest.raises(InputError, match="augmented_lagrangian"):
        files.read(path)


@pytest.mark.parametrize(
    "fields",
    [
        *({"steps": 1.5}, {"tasks": 12}, {"accountant": "pld"}, {"name": None, "protector": 0}, {"learning_rate": "x"}),
        *({"gain_rounds": -1}, {"gain_rounds": 1, "eval_tasks": 8, "num_features": [4]}, {"alternate": [0, 5]}),
        *({"directions": 0, "num_features": None}, {"directions": 3}),
        *({"num_classes": [3]}, {"num_classes": [1, 3], "num_features": [4, 5]}, {"sampling_rates": [0.1]}),
        *({"sampling_rates": [0.0, 0.1], "num_features": [4, 5]}, {"sampling_rates": [1.0], "num_features": [4]}),
        *({"num_features": 8}, {"num_features": []}, {"log_signal": 3}, {"log_signal": [8.7, 0.7]}),
        *({"signal_power": 0.0}, {"signal_power": "low"}),
        *({"curriculum": 0.0}, {"curriculum": 0.5, "method": "both"}, {"curriculum": 0.5, "constraint": "soft"}),
        {"name": "a/b", "protector": "control"},
    ],
)
def test_configs_that_cannot_be_run_are_refused(tmp_path, fields):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"name": "x", "protector": "control"} | fields))
    with pytest.raises(InputError):
        files.read(path)
