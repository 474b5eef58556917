"""Untrusted files of trained models: refused in a sentence if they contradict themselves."""

import json

import numpy as np
import pytest
import safetensors.numpy

from l2p.base.errors import InputError
from l2p.release.prediction import saved

SAVED = {
    "model": "logistic",
    "columns": json.dumps(["age", "dose"]),
    "bounds": json.dumps({"age": [0, 120], "dose": [0.0, 1.0]}),
    "classes": json.dumps([0, 1]),
    "target": json.dumps("y"),
}


#: What replaces one of those, or the params.
MODELS = {
    "no model": {"model": None}, "another model": {"model": "forest"}, "many classes": {"model": "softmax:9999999"},
    "digits": {"model": "softmax:" + "9" * 5000}, "no columns": {"columns": None}, "columns": {"columns": '"age"'},
    "a column twice": {"columns": '["age", "age"]'}, "more columns": {"columns": '["age", "dose", "age2"]'},
    "a column in numbers": {"columns": "[1, 2]"}, "bounds": {"bounds": "[0, 1]"}, "no JSON": {"bounds": "{"},
    "a bound": {"bounds": '{"age": [0], "dose": [0, 1]}'}, "no number": {"bounds": '{"age": [NaN, 1], "dose": [0, 1]}'},
    "backwards": {"bounds": '{"age": [1, 0], "dose": [0, 1]}'}, "twice": {"bounds": '{"age": [0, 1], "age": [0, 2]}'},
    "missing bounds": {"bounds": '{"age": [0, 1]}'}, "labels": {"classes": '["a", "b"]'}, "one": {"classes": "[1]"},
    "no bounds of a number": {"classes": "[]"}, "target": {"target": "3"}, "nesting": {"classes": "[" * 50_000},
    "short": {"params": np.zeros(2, np.float32)}, "a matrix": {"params": np.zeros((3, 1), np.float32)},
    "complex": {"params": np.zeros(3, np.complex64)}, "whole": {"params": np.zeros(3, np.int32)},
    "infinite": {"params": np.array([0, np.inf, 0], np.float32)}, "no params": {"params": None},
}  # fmt: skip


def saved_model(path, **changes):
    parts = {"params": np.zeros(3, np.float32), **SAVED, **changes}
    params = parts.pop("params")
    arrays = {"params" if params is not None else "weights": np.zeros(3, np.float32) if params is None else params}
    path.write_bytes(safetensors.numpy.save(arrays, {key: text for key, text in parts.items() if text is not None}))
    return path


@pytest.mark.parametrize("case", MODELS)
def test_a_trained_model_that_contradicts_itself_is_refused_in_a_sentence(tmp_path, case):
    with pytest.raises(InputError, match="is not a model that l2p saved") as caught:
        saved.load_model(saved_model(tmp_path / "model.safetensors", **MODELS[case]))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500 + len(str(tmp_path))


@pytest.mark.slow
def test_a_trained_model_that_does_not_is_read(tmp_path):
    assert saved.load_model(saved_model(tmp_path / "model.safetensors")).classes == (0, 1)
