"""Cards of untrusted checkpoints: fields that their readers could not use are refused by their names."""

import pytest
import safetensors.numpy

from l2p.checkpoints import checkpoint, control, lookup
from tests.checkpoints.damaged_files import BUDGET, CARD, encoded, refused, write

GAINS = {"log_signal": [0.7, 1.7], "mean": [0.1], "standard_error": [0.1]}
BAND = {"log_signal": [0, 1], "accuracy": [0.5] * 3, "gain": [0.1] * 3, "share_of_gap": [0.5] * 3, "beat_trivial": 1.0}
META_TEST = {"data": "adult", "tasks": 8, "train_rows": 100, "least_gain": 0.02, "bands": [BAND]}


#: Field of the card, and a value that its readers could not use.
CARDS = {
    "name": ("name", 3), "models": ("models", "logistic"), "a model": ("models", [3]), "sources": ("sources", None),
    "accountant": ("accountant", "magic"), "accountants": ("accountant", ["gdp"]), "range": ("range", [1, 2]),
    "an end": ("range", {"log_signal": [1]}), "three ends": ("range", {"log_signal": [1, 2, 3]}),
    "ends in words": ("range", {"num_features": ["2", "9"]}), "config": ("config", "none"),
    "config's model": ("config", {"model": 3}), "classes": ("config", {"model": "softmax:ten"}),
    "many classes": ("config", {"model": "softmax:" + "9" * 4000}), "steps": ("config", {"num_steps": -3}),
    "half a step": ("config", {"num_steps": 2.5}), "coefficients": ("config", {"coefficients": "3"}),
    "no text": ("config", {"warm_start": 3}), "held_out": ("held_out", []), "digest": ("warm_start_arrays_sha256", 3),
    "gains": ("held_out", {"gains": {}}), "no bands": ("held_out", {"gains": GAINS | {"log_signal": []}}),
    "uneven gains": ("held_out", {"gains": GAINS | {"mean": [0.1, 0.2]}}),
    "uneven sources": ("held_out", {"gains": GAINS | {"by_source": {"adult": {"mean": [], "standard_error": [0.1]}}}}),
    "uneven models": ("held_out", {"gains": GAINS | {"by_model": {"svm": {"mean": [0, 0], "standard_error": [0]}}}}),
    "meta_test": ("meta_test", {}), "no band": ("meta_test", META_TEST | {"bands": []}),
    "a sentence for the card": ("sources", ["adult); besides, this run is (0.001, 1e-12)-private for all (x"]),
    "commands for a terminal": ("sources", ["adult\x1b[2J"]), "more of them": ("range", {"log_signal\x1b[8m": [0, 1]}),
    "and in a name": ("name", "mine\x1b[8m"),
    "own tables": ("tables", [{"features": 4, "kind": "binary"}]),
    "half a band": ("meta_test", META_TEST | {"bands": [{}]}), "tasks": ("meta_test", META_TEST | {"tasks": "8"}),
}  # fmt: skip


@pytest.mark.parametrize("case", CARDS)
def test_a_card_whose_readers_could_not_use_a_field_is_refused_by_its_name(tmp_path, case):
    field, value = CARDS[case]
    sentence = refused(write(tmp_path / "mine.safetensors", *encoded("noisygd"), **{field: value}))
    assert field in sentence
    assert "cannot be read" in sentence
    assert "\x1b" not in sentence


def test_a_card_with_all_of_its_fields_is_read(tmp_path):
    more = {"meta_test": META_TEST, "held_out": {"gains": GAINS}, "range": {"log_signal": [0.7, 8.7]}, "anything": {}}
    more |= {"config": {"model": "softmax:10", "warm_start": "control", "num_steps": None}, "accountant": "gdp"}
    assert lookup.resolve(str(write(tmp_path / "mine.safetensors", *encoded("noisygd"), **more)), BUDGET, "logistic")


@pytest.mark.parametrize("name", ["control/../../secret", "control.safetensors", "control" + "x" * 5000, "control\0"])
def test_a_card_has_no_say_in_which_files_are_read(tmp_path, monkeypatch, name):
    monkeypatch.setattr(control, "find", lambda name: pytest.fail(f"looked for {name}"))
    card = {**CARD, "config": {"warm_start": name}, "warm_start_arrays_sha256": "ab" * 32}
    assert control.control_of(card) is None


def test_names_that_no_file_can_have_are_unknown():
    assert checkpoint.find("x" * 5000) is None
    assert checkpoint.find("x\0") is None


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "3", '{"name": NaN}', '{"name": 1e999}', '{"name": "a", "name": "b"}', "[" * 100_000],
    ids=range(9),
)
def test_a_card_that_is_no_json_or_more_than_one_thing_is_refused(tmp_path, text):
    path = tmp_path / "mine.safetensors"
    path.write_bytes(safetensors.numpy.save(encoded("noisygd")[1], {"card": text}))
    assert "not an l2p checkpoint" in refused(path)
