"""`l2p meta-train --recipe NAME --folds`: what it trains, in which order, from what, and how it goes on."""

import dataclasses
import json
from pathlib import Path

import jax.numpy as jnp
import pytest

from l2p.base.errors import InputError
from l2p.checkpoints import checkpoint
from l2p.commands import cli
from meta_train import __main__, fold_training
from meta_train.recipes import resolve
from meta_train.training.shipping import ship
from meta_train.training.starting_points import starting_point
from tests.checkpoint_files import write_checkpoint

FILE = """
[folds]
without = [["digits:odd"], ["breast_cancer"]]

[defaults]
protector = "noisygd"
source = "digits:odd+breast_cancer"
steps = 1
tasks = 8
rows = 32
num_features = [3]
num_steps = 2
eval_every = 1
eval_tasks = 8

[names.control-tiny]
steps = 2

[names.tiny]
warm_start = "control-tiny"
"""
ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "checkpoints/minibatch.safetensors"
ORDER = ["control-tiny", "tiny", "control-tiny-fold-1", "tiny-fold-1", "control-tiny-fold-2", "tiny-fold-2"]


@pytest.fixture
def recipes(tmp_path, monkeypatch):
    """The only recipes, and an empty folder of checkpoints but for another control of the same name."""
    shipped, folder = tmp_path / "shipped", tmp_path / "recipes"
    shipped.mkdir()
    folder.mkdir()
    (folder / "tiny.toml").write_text(FILE)
    monkeypatch.setattr(resolve, "FOLDER", folder)
    monkeypatch.setattr(checkpoint, "FOLDERS", (shipped,))
    write_checkpoint(shipped, "control-tiny")


@pytest.fixture
def trained(recipes, monkeypatch):
    """Names of what was trained, each in no time."""
    names = []

    def train(config, out, watch):
        names.append(config.name)
        out.mkdir(parents=True)
        assert config.start.warm_start is None or checkpoint.find(config.start.warm_start).parent.parent == out.parent
        return write_checkpoint(out, config.name, config=config.flat())

    monkeypatch.setattr(fold_training, "train", train)
    monkeypatch.setattr(fold_training.meta_test, "update_where_possible", lambda path: None)
    return names


def test_every_start_is_trained_before_what_starts_from_it_and_nothing_twice(trained, tmp_path, capsys):
    words = ["meta-train", "--recipe", "tiny", "--folds", "--out", str(tmp_path / "out")]
    assert cli.main(words) == 0
    assert trained == ORDER
    printed = capsys.readouterr().out
    assert "4 of 6: tiny-fold-1, from control-tiny-fold-1, without digits:odd\n" in printed
    (tmp_path / "out" / "tiny-fold-2" / "tiny-fold-2.safetensors").unlink()
    (tmp_path / "out" / "tiny-fold-2").rmdir()
    assert cli.main(words) == 0
    assert trained == [*ORDER, "tiny-fold-2"]
    path = tmp_path / "out" / "tiny" / "tiny.safetensors"
    assert f"2 of 6: tiny is in {path}\n" in capsys.readouterr().out


def test_what_was_trained_with_another_config_is_not_taken_for_the_recipe(trained, tmp_path):
    changed_config = resolve.resolve("tiny").flat() | {"steps": 7}
    (tmp_path / "tiny").mkdir()
    write_checkpoint(tmp_path / "tiny", "tiny", config=changed_config)
    with pytest.raises(InputError, match="trained with another config"):
        fold_training.train_with_folds("tiny", tmp_path)
    assert trained == ["control-tiny"]


def test_an_interrupted_one_says_that_the_same_command_goes_on(trained, tmp_path, monkeypatch, capsys):
    train = fold_training.train

    def interrupted(config, out, watch):
        if config.name == "tiny-fold-1":
            raise KeyboardInterrupt
        return train(config, out, watch)

    words = ["meta-train", "--recipe", "tiny", "--folds", "--out", str(tmp_path)]
    with monkeypatch.context() as patch:
        patch.setattr(fold_training, "train", interrupted)
        assert cli.main(words) == 130
    assert "the same command goes on from there." in capsys.readouterr().err
    assert checkpoint.find("tiny") is None  # OUT is looked in by the command alone
    assert cli.main(words) == 0
    assert trained == ORDER


def test_a_checkpoint_that_was_not_judged_is(trained, tmp_path, monkeypatch):
    judged, judgement = [], checkpoint.read_checkpoint_card(SHIPPED)["meta_test"]
    monkeypatch.setattr(fold_training.meta_test, "update_where_possible", judged.append)
    paths = []
    for name, more in (("tiny", {}), ("tiny-fold-1", {"meta_test": judgement})):
        (tmp_path / name).mkdir()
        paths.append(write_checkpoint(tmp_path / name, name, config=resolve.resolve(name).flat(), **more))
    fold_training.train_with_folds("tiny", tmp_path)
    assert judged == paths[:1]
    assert trained == [name for name in ORDER if name not in ("tiny", "tiny-fold-1")]


def test_folds_start_from_what_was_trained_beside_them_and_name_it(recipes, tmp_path, monkeypatch):
    ended = []

    def train(config, out, watch):
        """Ship the starting point; a control with constants that no other one has."""
        out.mkdir(parents=True)
        start = starting_point(config)
        if config.start.warm_start is None:
            start = dataclasses.replace(start, averaging=jnp.full(3, float(len(ended))))
        ended.append(config.name)
        return ship(config, out, start, {}, 0.0, (3,))

    monkeypatch.setattr(fold_training, "train", train)
    by_name = {path.parent.name: checkpoint.load(path) for path in fold_training.train_with_folds("tiny", tmp_path)}
    assert list(by_name) == ended == ORDER
    for name in ("tiny", "tiny-fold-1", "tiny-fold-2"):
        loaded, start = by_name[name], by_name[f"control-{name}"]
        assert loaded.card["config"]["warm_start"] == f"control-{name}"
        assert loaded.card["warm_start_arrays_sha256"] == loaded.arrays_sha256 == start.arrays_sha256
    assert len({loaded.arrays_sha256 for loaded in by_name.values()}) == 3
    assert by_name["tiny-fold-1"].card["sources"] == ["breast_cancer"]
    assert by_name["tiny-fold-2"].card["sources"] == ["digits:odd"]


@pytest.mark.parametrize(
    ("options", "phrase"),
    [
        ({"fold": 1, "like": "universal"}, "name the recipe"),
        ({"folds": True, "like": "universal"}, "name the recipe"),
        ({"recipe": "universal", "fold": 1, "without": "adult"}, "exclude each other"),
        ({"recipe": "universal", "folds": True, "fold": 1}, "exclude each other"),
        ({"recipe": "tuned", "method": "noisygd", "folds": True}, "has no folds"),
        ({"recipe": "universal", "folds": True, "minutes": 3.0}, "bounds one training"),
        ({"recipe": "minibatch", "folds": True}, "there are none to train"),
        ({"recipe": "universall", "folds": True}, "did you mean 'universal'"),
    ],
)
def test_folds_of_what_has_none_are_refused(tmp_path, options, phrase):
    with pytest.raises(InputError, match=phrase):
        __main__.main(tmp_path, **options)


def test_one_fold_is_trained_by_its_number(recipes, tmp_path, monkeypatch):
    configs = []
    monkeypatch.setattr(__main__, "train", lambda config, out, watch: configs.append(config) or out / "x")
    __main__.main(tmp_path, recipe="tiny", fold=2)
    assert [config.name for config in configs] == ["tiny-fold-2"]
    assert json.dumps(configs[0].flat()) == json.dumps(resolve.resolve("tiny-fold-2").flat())
