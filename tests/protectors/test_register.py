"""Registration of protectors: everything defined in l2p/protectors is registered, and forgetting it fails a test."""

import ast
import importlib
import inspect
import json
import pkgutil
import typing
from pathlib import Path

import chex
import pytest

from l2p import protectors
from l2p.checkpoints.structure import decode, encode
from l2p.privacy import Budget
from l2p.protectors import CLASSES, HAND_DESIGNED, Decaying, Stepwise
from l2p.protectors.hand_designed import Problem
from l2p.protectors.register import hand_designed, stored
from l2p.protectors.stepwise.projectors import Projector
from l2p.protectors.stepwise.schedulers import Scheduler
from l2p.run.protector import Protector

#: Of every folder of l2p/protectors.
FILES = [importlib.import_module(file.name) for file in pkgutil.walk_packages(protectors.__path__, "l2p.protectors.")]
MADE = {name: typing.get_type_hints(method.make)["return"] for name, method in HAND_DESIGNED.items()}
#: Classes of protectors that no checkpoint may hold, and why.
NOT_STORED = {
    "EnginePasses": "its settings are a declaration, which stands on the card",
    "NonPrivate": "it has no settings, and answers without noise need no checkpoint",
    "WarmStart": "it wraps whatever runs, as the suffixes of a name ask",
    "OnlyPublic": "it is a reference that asks nothing, and is fitted anew to the public rows of each run",
}


def of_the_files(wanted):
    """Everything that the files of l2p/protectors define, by file and name."""
    return {
        (file.__name__, name): value
        for file in FILES
        for name, value in vars(file).items()
        if getattr(value, "__module__", None) == file.__name__ and wanted(value)
    }


def is_part(value):
    bases = Protector, Scheduler, Projector
    return inspect.isclass(value) and issubclass(value, bases) and not inspect.isabstract(value)


def is_factory(value):
    return inspect.isfunction(value) and list(inspect.get_annotations(value).values())[:1] == [Problem]


def test_every_class_of_protectors_schedulers_and_projectors_is_registered():
    parts = of_the_files(is_part)
    assert {"Stepwise", "LSTMScheduler", "Optax"} <= {name for _, name in parts}
    missing = {place for place, cls in parts.items() if CLASSES.get(cls.__name__) is not cls}
    assert {name for _, name in missing} == set(NOT_STORED)


def test_every_factory_is_registered_under_its_name():
    factories = of_the_files(lambda value: is_factory(value) and not value.__name__.startswith("_"))
    assert {name: method.make for name, method in HAND_DESIGNED.items()} == {
        name: f for (_, name), f in factories.items()
    }


def test_every_file_that_registers_has_its_line_in_the_package():
    tree = ast.parse(Path(protectors.__file__).read_text(encoding="utf-8"))
    imported = {node.module for node in tree.body if isinstance(node, ast.ImportFrom)}
    makes = [method.make for method in HAND_DESIGNED.values()]
    assert {make.__module__ for make in [*CLASSES.values(), *makes]} <= imported


@pytest.mark.parametrize("name", HAND_DESIGNED)
def test_a_factory_makes_the_class_it_says_and_a_checkpoint_gives_that_back(name):
    protector, arrays = HAND_DESIGNED[name](Budget(1.0, 1e-6), num_rows=10_000), {}
    assert type(protector) is MADE[name]
    if type(protector).__name__ in NOT_STORED:
        with pytest.raises(TypeError, match="no checkpoint may name"):
            encode(protector, arrays)
    else:
        chex.assert_trees_all_equal(decode(json.loads(json.dumps(encode(protector, arrays))), arrays), protector)


def test_a_name_or_a_class_that_is_taken_or_unknown_is_not_registered():
    def noisygd(problem: Problem) -> Stepwise:
        raise AssertionError

    def lost(problem: Problem) -> Protector:
        raise AssertionError

    def unsaid(problem):
        raise AssertionError

    before = dict(HAND_DESIGNED), dict(CLASSES)
    with pytest.raises(TypeError, match="two methods are called noisygd"):
        hand_designed()(noisygd)
    for make in (lost, unsaid):
        with pytest.raises(TypeError, match="annotate the protector's class"):
            hand_designed()(make)
    with pytest.raises(TypeError, match="two classes are called Decaying"):
        stored(type("Decaying", (), {}))
    assert stored(Decaying) is Decaying
    assert before == (HAND_DESIGNED, CLASSES)
