"""Frozen protectors: bit-identical after a round trip, found by name, and refused with a sentence when damaged."""

import json

import chex
import jax
import jax.numpy as jnp
import pytest
import safetensors.numpy

from l2p.base.errors import InputError
from l2p.checkpoints import checkpoint, lookup
from l2p.privacy import Budget
from l2p.protectors import HAND_DESIGNED, Optax, Stepwise
from meta_train.training.untrained import BUILDERS
from tests.checkpoint_files import write_checkpoint

BUDGET = Budget(0.1, 1e-8)


def damage(path, change):
    """Rewrite a checkpoint after `change(arrays, card)`."""
    arrays, card = safetensors.numpy.load_file(path), checkpoint.read_checkpoint_card(path)
    change(arrays, card)
    path.write_bytes(safetensors.numpy.save(arrays, {"card": json.dumps(card)}))


@pytest.mark.slow(cases=["universal_batches", "paper"])
@pytest.mark.parametrize("name", BUILDERS)
def test_every_protector_survives_its_file_bit_for_bit(tmp_path, name):
    protector = BUILDERS[name](jax.random.key(1))
    loaded = checkpoint.load(write_checkpoint(tmp_path, name, protector)).protector
    chex.assert_trees_all_equal(loaded, protector)
    assert jax.tree.structure(loaded) == jax.tree.structure(protector)  # static fields included
    assert all(isinstance(leaf, jax.Array) and leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(loaded))


@pytest.mark.slow
def test_arrays_are_stored_under_their_dotted_paths(tmp_path):
    arrays = safetensors.numpy.load_file(
        write_checkpoint(tmp_path, "batches", BUILDERS["universal_batches"](jax.random.key(0)))
    )
    assert {"scheduler.network.layer0.w", "projector.mix", "centering.row_norm", "averaging"} <= set(arrays)


def test_static_tuples_come_back_hashable(tmp_path):
    projector = Optax("adam", {"learning_rate": jnp.zeros(1)}, logit_scale=("b1", "b2"))
    protector = Stepwise(BUILDERS["noisygd"](jax.random.key(0)).scheduler, projector, num_steps=7)
    loaded = checkpoint.load(write_checkpoint(tmp_path, "adam", protector)).protector
    assert loaded.projector.logit_scale == ("b1", "b2")
    assert loaded.num_steps == 7
    hash(jax.tree.structure(loaded))


def test_the_hash_is_that_of_the_contents(tmp_path):
    control = BUILDERS["control"](jax.random.key(0))
    shorter = control.replace(num_steps=9)
    hashes = []
    for place, protector in (("a", control), ("b", control), ("c", shorter)):
        (tmp_path / place).mkdir()
        hashes.append(checkpoint.load(write_checkpoint(tmp_path / place, "mine", protector, created="now")).sha256)
    assert hashes[0] == hashes[1] != hashes[2]


def test_what_the_maker_wrote_comes_back_on_the_card(tmp_path):
    card = checkpoint.load(write_checkpoint(tmp_path, "mine", seed=3, steps=600, command="l2p meta-train")).card
    assert {key: card[key] for key in ("name", "seed", "steps", "command")} == {
        "name": "mine",
        "seed": 3,
        "steps": 600,
        "command": "l2p meta-train",
    }
    assert card["models"] == ["logistic"]
    assert {"structure", "versions", "created"} <= set(card)


def test_a_card_without_sources_is_not_written(tmp_path):
    with pytest.raises(ValueError, match="sources"):
        checkpoint.save(HAND_DESIGNED["noisygd"](BUDGET), tmp_path / "x.safetensors", {})
    assert not list(tmp_path.iterdir())


def remove_leaf(arrays, card):
    del arrays["projector.mix"]


def reshape_leaf(arrays, card):
    arrays["projector.mix"] = arrays["projector.mix"][:1]


def rename_class(arrays, card):
    card["structure"]["class"] = "Pickle"


def add_field(arrays, card):
    card["structure"]["static"]["loophole"] = 1


def scramble(arrays, card):
    card["structure"]["fields"]["scheduler"] = "exec"


def drop_card(arrays, card):
    del card["structure"]


def take_a_part(arrays, card):
    card["structure"] = card["structure"]["fields"]["centering"]
    for name in list(arrays):
        arrays[name.removeprefix("centering.")] = arrays[name]


@pytest.mark.parametrize(
    ("change", "phrase"),
    [
        (remove_leaf, "lacks the array 'projector.mix'"),
        (reshape_leaf, "array 'projector.mix' has shape"),
        (rename_class, "class 'Pickle'"),
        (add_field, "other fields at '\\(root\\)'"),
        (scramble, "nothing known at 'scheduler'"),
        (drop_card, "not an l2p checkpoint"),
        (take_a_part, "only a part of a protector"),
    ],
)
def test_a_damaged_checkpoint_is_refused_by_what_is_wrong(tmp_path, change, phrase):
    path = write_checkpoint(tmp_path, "mine")
    damage(path, change)
    with pytest.raises(InputError, match=phrase) as caught:
        checkpoint.load(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 a pickle, perhaps", None])
def test_an_unreadable_file_is_refused(tmp_path, content):
    path = tmp_path / "mine.safetensors"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match="cannot be read"):
        checkpoint.load(path)


def test_another_programs_safetensors_file_is_refused(tmp_path):
    path = tmp_path / "bert.safetensors"
    path.write_bytes(safetensors.numpy.save({"w": jnp.zeros(2).__array__()}))
    with pytest.raises(InputError, match="not an l2p checkpoint"):
        checkpoint.load(path)


def test_names_are_looked_up_in_the_checkout_before_the_wheel(tmp_path, monkeypatch):
    checkout, wheel = tmp_path / "checkpoints", tmp_path / "_checkpoints"
    for place in (checkout, wheel):
        place.mkdir()
        write_checkpoint(place, "census", place=place.name)
    write_checkpoint(wheel, "paper")
    monkeypatch.setattr(checkpoint, "FOLDERS", (checkout, wheel))
    assert checkpoint.load("census").card["place"] == "checkpoints"
    assert [card["name"] for card in checkpoint.available()] == ["census", "paper"]


INDEX = """
[about]
universal = "start here"
census = "from Adult"
"""


def test_checkpoints_one_folder_further_down_are_found(tmp_path, monkeypatch):
    study = tmp_path / "folds"
    study.mkdir()
    (tmp_path / "tuned").mkdir()
    for folder, name in ((tmp_path, "census"), (tmp_path, "added"), (tmp_path, "universal"), (study, "fold")):
        write_checkpoint(folder, name, place=folder.name)
    (tmp_path / "index.toml").write_text(INDEX)
    monkeypatch.setattr(checkpoint, "FOLDERS", (tmp_path,))
    assert checkpoint.names() == ["added", "census", "fold", "universal"]
    assert checkpoint.first_floor() == ["universal", "census", "added"]
    assert checkpoint.load("fold").card["place"] == "folds"
    assert checkpoint.find("lost") is None
    assert (checkpoint.about("census"), checkpoint.about("added")) == ("from Adult", "")
    assert checkpoint.study_hint() == ""
    with pytest.raises(InputError, match="did you mean 'fold'") as refused:
        checkpoint.load("folds")
    assert "clone" not in str(refused.value)


def test_without_studies_a_sentence_says_where_they_are(tmp_path, monkeypatch):
    write_checkpoint(tmp_path, "universal")
    monkeypatch.setattr(checkpoint, "FOLDERS", (tmp_path,))
    with pytest.raises(InputError, match="in a clone type `python -m l2p` in place"):
        checkpoint.load("universal-fold-1")
    with pytest.raises(InputError, match="in a clone type `python -m l2p` in place"):
        lookup.resolve("noisygd:tuned", BUDGET, "logistic")


def test_a_missing_folder_holds_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "FOLDERS", (tmp_path / "nowhere",))
    assert checkpoint.available() == []
