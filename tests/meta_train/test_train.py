import dataclasses
import json

import chex
import numpy as np
import pytest
import safetensors.numpy

from l2p import checkpoint
from l2p.errors import InputError
from meta_train.builders import starting_point
from meta_train.config import MetaConfig
from meta_train.train import meta_train

CONFIG = MetaConfig(
    "tiny", "noisygd", source="breast_cancer", steps=4, tasks=8, rows=32, num_features=(3,), eval_every=2, eval_tasks=8
)


def read(path):
    return safetensors.numpy.load_file(path)


def test_an_interrupted_training_resumes_to_the_same_bits(tmp_path, monkeypatch):
    whole = meta_train(CONFIG, tmp_path / "whole")

    from meta_train import gradient

    compiled = gradient.compiled

    def interrupted(config, family, start):
        update = compiled(config, family, start)

        def step(state, number):
            if number == 3:
                raise KeyboardInterrupt
            return update(state, number)

        return step

    monkeypatch.setattr(gradient, "compiled", interrupted)
    with pytest.raises(KeyboardInterrupt):
        meta_train(CONFIG, tmp_path / "cut")
    monkeypatch.undo()
    resumed = meta_train(CONFIG, tmp_path / "cut")
    first, second = read(whole), read(resumed)
    assert first.keys() == second.keys()
    for name in first:
        assert np.array_equal(first[name], second[name]), name
    lines = [json.loads(line)["step"] for line in (tmp_path / "cut" / "log.jsonl").read_text().splitlines()]
    assert lines == [0, 1, 2, 3]


def test_the_checkpoint_loads_and_its_card_says_where_it_comes_from(tmp_path):
    loaded = checkpoint.load(meta_train(CONFIG, tmp_path))
    assert loaded.card["sources"] == ["breast_cancer"]
    assert loaded.card["range"]["num_features"] == [3, 3]
    assert loaded.card["seconds"] > 0
    assert loaded.card["peak_memory_mib"] > 0
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [0, 1, 2, 3]
    assert ["held_out_score" in line for line in lines] == [False, True, False, True]


def test_a_training_that_only_did_harm_ships_what_it_started_from(tmp_path):
    start = starting_point(CONFIG)
    path = meta_train(dataclasses.replace(CONFIG, steps=2, learning_rate=30.0), tmp_path)
    chex.assert_trees_all_equal(checkpoint.load(path).protector, start)


def test_a_finished_training_is_not_repeated_and_another_is_refused(tmp_path):
    first = read(meta_train(CONFIG, tmp_path))
    log = (tmp_path / "log.jsonl").read_text()
    again = read(meta_train(CONFIG, tmp_path))
    assert (tmp_path / "log.jsonl").read_text() == log
    assert all(np.array_equal(first[name], again[name]) for name in first)
    with pytest.raises(InputError, match="another config"):
        meta_train(dataclasses.replace(CONFIG, seed=1), tmp_path)


def test_configs_are_read_strictly(tmp_path):
    path = tmp_path / "config.json"
    path.write_text('{"name": "x", "protector": "control", "stepz": 3}')
    with pytest.raises(InputError, match="stepz"):
        MetaConfig.read(path)
    path.write_text("{")
    with pytest.raises(InputError, match="JSON"):
        MetaConfig.read(path)
    path.write_text('{"name": "x", "protector": "control", "constraint": "hope"}')
    with pytest.raises(InputError, match="augmented_lagrangian"):
        MetaConfig.read(path)


@pytest.mark.parametrize(
    "fields", [{"steps": 1.5}, {"tasks": 12}, {"accountant": "pld"}, {"name": None, "protector": 0}]
)
def test_configs_that_cannot_be_run_are_refused(tmp_path, fields):
    path = tmp_path / "config.json"
    named = {"name": "x", "protector": "control"} if "name" not in fields else {}
    path.write_text(json.dumps(named | {key: item for key, item in fields.items() if key != "name"}))
    with pytest.raises(InputError):
        MetaConfig.read(path)


def test_an_unknown_starting_point_is_refused(tmp_path):
    with pytest.raises(InputError, match="no builder"):
        meta_train(dataclasses.replace(CONFIG, protector="nothing"), tmp_path)
