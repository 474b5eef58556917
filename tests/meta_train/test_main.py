"""`l2p meta-train`: exactly one way to say what to train, and a sentence otherwise."""

import json

import pytest

from l2p.base.errors import InputError
from meta_train import __main__
from meta_train.config import Plain
from meta_train.recipes import resolve, tuned


@pytest.fixture
def trained(monkeypatch):
    """The configs that were trained."""
    configs = []
    monkeypatch.setattr(__main__, "train", lambda config, out, watch: configs.append(config) or out / "x")
    return configs


def test_a_recipe_a_card_and_a_file_say_what_to_train(trained, tmp_path):
    mine = tmp_path / "mine.json"
    mine.write_text(json.dumps({"name": "mine", "protector": "control", "num_features": None}))
    __main__.main(tmp_path, recipe="universal", without="adult")
    __main__.main(tmp_path, like="universal-fold-1")
    __main__.main(tmp_path, recipe="tuned", method="noisygd", source="adult", model="svm")
    __main__.main(tmp_path, config=mine)
    assert trained == [
        resolve.resolve("universal", without="adult"),
        resolve.resolve("universal", fold=1),
        tuned.config_for("noisygd", "svm", "adult"),
        Plain.of("mine", "control", num_features=None),
    ]


def test_what_a_recipe_trains_is_shown_as_a_file_that_trains_it(trained, tmp_path, capsys):
    __main__.main(tmp_path, recipe="control-universal", show=True)
    shown = capsys.readouterr().out
    assert not trained
    (tmp_path / "mine.json").write_text(shown)
    __main__.main(tmp_path, config=tmp_path / "mine.json")
    assert trained == [resolve.resolve("control-universal")]
    # Of its kind alone.
    assert "fresh_shares" in shown
    assert not {"constraint", "alternate", "constants"} & json.loads(shown).keys()


@pytest.mark.parametrize(
    ("options", "phrase"),
    [
        ({}, "with one of --data"),
        ({"recipe": "universal", "like": "universal"}, "with one of --data"),
        ({"like": "universal", "without": "adult"}, "out of a recipe"),
        ({"recipe": "universal", "model": "svm"}, "need --recipe tuned"),
        ({"recipe": "tuned"}, "named with --method"),
        ({"recipe": "tuned", "method": "noisygd", "without": "adult"}, "made from one set"),
        ({"recipe": "tuned", "method": "control"}, "not hand-designed"),
        ({"recipe": "universal", "data": ["a.csv"]}, "with one of --data"),
        ({"recipe": "universal", "schema": ["a.json"]}, "name these with --data"),
        ({"like": "universal", "start": "universal"}, "name these with --data"),
        ({"data": ["a.csv"], "without": "adult"}, "out of a recipe"),
        ({"resume": True}, "no training in"),
        ({"recipe": "universal", "folds": True, "show": True}, "--show prints one training"),
    ],
)
def test_what_says_nothing_or_two_things_is_refused(trained, tmp_path, options, phrase):
    with pytest.raises(InputError, match=phrase):
        __main__.main(tmp_path, **options)
    assert not trained
