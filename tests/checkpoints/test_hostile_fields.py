"""Fields of every class that a checkpoint may name: each of another type, shape or range is refused by its name."""

import json
import types
import typing
from typing import Annotated, Any, Literal

import jax
import numpy as np
import pytest

from l2p.checkpoints import checkpoint
from l2p.privacy.cost.sampling import Sampler
from l2p.protectors import CLASSES
from l2p.protectors.fields import kinds
from l2p.protectors.stepwise.purchase import KINDS
from tests.checkpoints.damaged_files import changed, encoded, examples, methods, parts, refused, write

#: Names of the examples. Those with networks are made where they are used, which compiles.
NAMES = (*methods(), "paper", "universal", "kalman", "deep", "with_public", "lstm_public", "lstm_steps")
SAMPLERS = [
    "Poisson", 3, None, {}, {"name": ["Poisson"]}, {"name": "Poisson"}, {"name": "Poisson", "sampling_rate": 1.5},
    {"name": "Poisson", "sampling_rate": "0.1"}, {"name": "Poisson", "sampling_rate": [0.1]},
    {"name": "Poisson", "sampling_rate": True}, {"name": "fixed-size", "batch_size": 2.0, "num_rows": 9.0},
    {"name": "fixed-size", "batch_size": -2, "num_rows": 9}, {"name": "permutation epochs", "batch_size": 3},
    {"name": "full batch", "loophole": 1},
]  # fmt: skip
NUMBERS = [-3, 0, 2.5, True, "7", None, [1], 10**30, 10**4000]


#: Values that no field for a part or an array may hold instead.
NODES = ["exec", 3, [], {}, {"class": "Pickle", "fields": {}, "static": {}}, {"array": "f32[3]"}, {"tuple": []}]


NODES += [{"class": ["Optax"], "fields": {}, "static": {}}, {"class": "Optax", "fields": {}, "static": {}}]


def static_values(kind):
    """Values that a static field of this type must not hold."""
    if typing.get_origin(kind) in (typing.Union, types.UnionType):  # with None, which it may hold
        inner = next(part for part in typing.get_args(kind) if part is not types.NoneType)
        return [value for value in static_values(inner) if value is not None]
    plain, *rules = typing.get_args(kind) if typing.get_origin(kind) is Annotated else (kind,)
    if plain is int:
        return [*NUMBERS, *(rule.most + 1 for rule in rules)]
    if plain is float:
        return [3, True, "7", None, [1]]
    if plain is Sampler:
        return SAMPLERS
    if plain is bool:
        return [1, "yes", None]
    if typing.get_origin(plain) is tuple:
        return ["ab", 5, [1], [["b1"]], {"name": "full batch"}, None]
    assert plain is str or typing.get_origin(plain) is Literal
    return [5, None, ["sgd"], "../../sgd", "laplace", ""]


def array_values(array):
    """Arrays that no field may hold instead of a valid one."""
    yield from (array.astype(kind) for kind in (np.complex64, np.int32, bool, np.float16))
    yield from (array[None], np.concatenate([array.ravel()] * 3)[None, None], np.zeros((0, *array.shape), np.float32))
    for bad in (np.nan, np.inf):
        worse = array.copy()
        worse.flat[-1] = bad
        yield worse
    yield np.full(array.shape, 1e300, np.float64)


def test_the_examples_have_every_class_that_a_checkpoint_may_name():
    assert examples().keys() == set(NAMES)
    classes = {part["class"] for name in NAMES for part, _ in parts(encoded(name)[0])}
    assert classes == set(CLASSES)


@pytest.mark.parametrize("name", NAMES)
def test_each_example_is_good_to_begin_with(tmp_path, name):
    structure, arrays = encoded(name)
    loaded = checkpoint.load(write(tmp_path / "mine.safetensors", structure, arrays)).protector
    assert jax.tree.structure(loaded) == jax.tree.structure(examples()[name])


@pytest.mark.parametrize("name", NAMES)
def test_a_static_field_of_another_type_or_beyond_its_range_is_refused(tmp_path, name):
    structure, arrays = encoded(name)
    for part, path in parts(structure):
        for field in part["static"]:
            for value in static_values(kinds(CLASSES[part["class"]])[field]):
                bad = changed(structure, path, **{f"static__{field}": value})
                sentence = refused(write(tmp_path / "mine.safetensors", bad, arrays))
                assert field in sentence


@pytest.mark.long(cases=["with_public", "lstm_*"])
@pytest.mark.parametrize("name", NAMES)
def test_a_part_that_is_none_or_another_is_refused(tmp_path, name):
    structure, arrays = encoded(name)
    for part, path in parts(structure):
        for field in part["fields"]:
            wrong = [
                *NODES,
                next(another for another, _ in parts(structure) if another is not part) if path else structure,
            ]
            optional = field in KINDS or type(None) in typing.get_args(kinds(CLASSES[part["class"]])[field])
            for value in wrong if optional else [*wrong, None]:
                bad = changed(structure, path, **{f"fields__{field}": value})
                refused(write(tmp_path / "mine.safetensors", bad, arrays))


@pytest.mark.long(cases=["lstm_*"])
@pytest.mark.slow(cases=["with_public"])
@pytest.mark.parametrize("name", NAMES)
def test_an_array_of_another_kind_shape_or_value_is_refused_by_its_name(tmp_path, name):
    structure, arrays = encoded(name)
    for place, array in arrays.items():
        for bad in array_values(array):
            altered = structure
            if bad.shape != array.shape:  # as a consistent file would have it
                text, old = json.dumps(structure), json.dumps({"array": list(array.shape)})
                altered = json.loads(text.replace(old, json.dumps({"array": list(bad.shape)})))
            refused(write(tmp_path / "mine.safetensors", altered, arrays | {place: bad}))
        missing = {name: array for name, array in arrays.items() if name != place}
        assert place in refused(write(tmp_path / "mine.safetensors", structure, missing))
    extra = write(tmp_path / "mine.safetensors", structure, arrays | {"loophole": np.zeros(1, np.float32)})
    assert "'loophole', which its checkpoint card does not mention" in refused(extra)


def test_fields_that_do_not_go_together_are_refused(tmp_path):
    universal, _ = encoded("universal")
    for name, fields, phrase in (
        ("noisygd", {"fields__centering": universal["fields"]["centering"]}, "centering beside geometry"),
        ("private_meta", {"fields__inner": encoded("private_meta")[0]}, "learns the settings of what learns settings"),
    ):
        structure, arrays = encoded(name)
        more = {f"{place}.{key}": array for place in ("centering", "inner") for key, array in _below(place).items()}
        bad = changed(structure, (), **fields)
        used = {key: array for key, array in (arrays | more).items() if name != "noisygd" or "inner" not in key}
        assert phrase in refused(write(tmp_path / "mine.safetensors", bad, used))


def _below(place):
    structure_arrays = encoded("universal")[1] if place == "centering" else encoded("private_meta")[1]
    if place == "inner":
        return structure_arrays
    return {key.removeprefix("centering."): array for key, array in structure_arrays.items() if "centering." in key}


def test_parts_within_parts_without_end_are_refused(tmp_path):
    node: Any = None
    for _ in range(60):
        node = {"dict": {"layer0": node}}
    structure, arrays = encoded("universal")
    bad = changed(structure, ("fields", "scheduler"), fields__network=node)
    assert "parts deep" in refused(write(tmp_path / "mine.safetensors", bad, arrays))
