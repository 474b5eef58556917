"""Recipes: they resolve to the configs on the cards of the checkpoints, so that no other copy is needed."""

import json
from pathlib import Path

import pytest

from l2p.base.errors import InputError
from l2p.checkpoints import checkpoint
from meta_train.recipes import files, resolve, rows, tuned

FOLDER = Path(resolve.__file__).parent


def test_there_are_a_dozen_files_at_most():
    assert 0 < len(list(FOLDER.glob("*.toml"))) <= 12


def test_every_checkpoint_has_a_recipe_and_every_recipe_a_checkpoint():
    assert resolve.names() == checkpoint.names()


@pytest.mark.parametrize("name", checkpoint.names())
def test_a_recipe_is_the_config_on_the_card_of_its_checkpoint(name):
    recipe, row = resolve.resolve(name), rows.every(FOLDER).get(name)
    path, before = (FOLDER / "tuned.toml", {}) if row is None else (row.path, row.shipped)
    # As strings, which distinguish 1 from 1.0, and lists from null.
    text = json.dumps(recipe.flat())
    shipped = json.dumps(files.from_fields(json.loads(text) | before, path).flat())
    assert shipped == json.dumps(resolve.like(name).flat())
    assert not before or shipped != text, "it has been trained again; leave `shipped` out"


def test_a_set_is_left_out_of_the_sources_and_of_what_is_started_from():
    recipe, without_adult = resolve.resolve("universal"), resolve.resolve("universal", without="adult")
    assert (without_adult.name, without_adult.start.warm_start) == ("universal-no-adult", "control-universal-no-adult")
    assert "adult" in recipe.tasks.all_sources
    assert set(recipe.tasks.all_sources) - set(without_adult.tasks.all_sources) == {"adult"}
    same = {name: recipe.flat()[name] for name in ("name", "sources", "warm_start")}
    assert without_adult.but(**same) == recipe
    # Every part that shares rows with it is left out.
    wide = resolve.resolve("control-universal-wide", without="digits:3,5").tasks.all_sources
    assert not [source for source in wide if source.startswith("digits")]


@pytest.mark.parametrize(
    ("name", "without", "phrase"),
    [
        ("universall", None, "did you mean 'universal'"),
        ("noisygd", None, "--recipe tuned --method noisygd"),
        ("minibatch", "california", "not made from california"),
        ("paper-adult", "adult", "no source is left"),
        ("noisygd-tuned-svm-adult", "adult", "made from one set"),
    ],
)
def test_what_has_no_recipe_is_refused_with_a_reason(name, without, phrase):
    with pytest.raises(InputError, match=phrase):
        resolve.resolve(name, without)


def test_a_checkpoint_that_was_not_trained_cannot_be_trained_again():
    with pytest.raises(InputError, match="hand-designed method"):
        resolve.like("noisygd")


def test_a_method_that_no_checkpoint_is_of_is_tuned_by_what_follows_from_it():
    assert tuned.config_for("noisygd", "logistic", "breast_cancer").simulated.accountant == "gdp"
    assert tuned.config_for("noisygd", "logistic", "breast_cancer").tasks.num_features == (8,)
    agd = tuned.config_for("agd", "logistic", "digits:4,6")
    assert (agd.simulated.accountant, agd.tasks.num_features, agd.start.num_steps) == ("rdp", None, 256)
    assert agd.name == "agd-tuned-logistic-digits-4,6"
    mlp = tuned.config_for("dpsgd", "mlp", "synthetic")
    options = {"accountant": "rdp", "coefficients": 3, "damping": 1.0, "steps": 240, "eval_every": 30}
    assert {name: mlp.flat()[name] for name in options} == options


def test_recipes_are_known_without_the_tables(monkeypatch, tmp_path):
    monkeypatch.setattr("l2p.tables.public.catalog.load", None)
    for name in resolve.names():
        resolve.resolve(name)
