"""The protectors in checkpoints/: their cards, and their results on data they were not trained on."""

import functools
import json
import re
from pathlib import Path

import pytest

from l2p.checkpoints import checkpoint
from l2p.checkpoints.control import control_of
from l2p.checkpoints.lookup import tuned_name
from l2p.checkpoints.overlaps import overlaps
from l2p.checkpoints.shipped import index
from l2p.privacy.card.custom import CUSTOM
from meta_train.config import Addition
from meta_train.recipes import resolve

SHIPPED = Path(__file__).resolve().parents[2] / "checkpoints"
RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"


@pytest.mark.parametrize("name", checkpoint.names())
def test_cards_say_how_a_protector_was_made(name):
    card, config = checkpoint.load(name).card, resolve.like(name)
    assert card["name"] == card["config"]["name"] == name
    assert set(config.tasks.all_sources) <= set(card["sources"])
    # What is added to a start, and leaves all else of it, trains whatever that does.
    assert set(config.tasks.all_models) <= set(card["models"])
    assert isinstance(config, Addition) or card["models"] == list(config.tasks.all_models)
    assert {"seed", "seconds", "peak_memory_mib", "range", "budgets", "held_out", "versions"} <= card.keys()


def test_the_wheel_has_about_a_dozen_checkpoints_each_with_a_line():
    first = checkpoint.first_floor()
    assert len(first) <= 17
    assert first == list(index(SHIPPED).about)
    assert all(0 < len(checkpoint.about(name)) <= 76 for name in first)
    # The control that runs outside a protector's range ships with it.
    controls = [control_of(checkpoint.load(name).card) for name in first]
    assert {control.name for control in controls if control is not None} <= set(first)


def test_every_source_is_spelled_in_one_way():
    assert not [name for name in checkpoint.names() if re.search(r"-\d\d\b", name)]  # mnist-46 for mnist-4,6


def test_networks_name_the_constants_that_they_extend():
    for name in checkpoint.names():
        card = checkpoint.load(name).card
        start = card["config"].get("warm_start") or ""
        if start.startswith("control") and not name.startswith("control"):
            control = control_of(card)
            assert control is not None, f"{start} is no longer what {name} was trained from; train {name} again"
            assert control.name == start == f"control-{name}"


@pytest.mark.parametrize("name", [name for name in checkpoint.names() if "-tuned-" in name])
def test_tuned_settings_have_the_name_that_they_are_looked_up_by(name):
    card = checkpoint.load(name).card
    (model,), sources = card["models"], card["sources"]
    assert name == tuned_name(card["config"]["protector"], model, "networks" if model == CUSTOM else sources[0])
    assert model == CUSTOM or len(sources) == 1


@functools.cache
def shipped():
    """The card of every checkpoint by its SHA-256."""
    checkpoints = map(checkpoint.load, checkpoint.names())
    return {loaded.sha256: loaded.card for loaded in checkpoints}


@pytest.mark.parametrize("inputs", sorted(RESULTS.glob("*/inputs.json")), ids=lambda path: path.parent.name)
def test_results_are_of_shipped_protectors_that_never_saw_the_data(inputs):
    contents = json.loads(inputs.read_text())
    for method, sha256 in contents["protectors"].items():
        if sha256 is not None:
            assert sha256 in shipped(), f"{method} in {inputs} is of another file than the one that ships; run it again"
            assert not any(overlaps(source, (contents["data"],)) for source in shipped()[sha256]["sources"]), method
