"""Untrusted files: whatever a checkpoint or a model holds, it is refused with a sentence or runs within its budget."""

import copy
import dataclasses
import functools
import json
import os
import struct
import types
import typing
from typing import Annotated, Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from l2p import private_train
from l2p.base.errors import InputError
from l2p.base.struct import children
from l2p.checkpoints import checkpoint, control, lookup
from l2p.checkpoints.structure import encode
from l2p.commands.cli import main
from l2p.models import Logistic, Square
from l2p.oracle.setup import Setup
from l2p.oracle.trace import trace_of
from l2p.privacy import Budget, Poisson
from l2p.privacy.cost.sampling import Sampler
from l2p.protectors import CLASSES, HAND_DESIGNED, NormQuery, Optax, PrivateMeta, PublicGeometry
from l2p.protectors.fields import MAX_LOG, Coefficients, Either, has_knots, kinds
from l2p.protectors.hand_designed import logit_constant
from l2p.protectors.stepwise.projectors import OPTIMIZERS
from l2p.protectors.stepwise.purchase import KINDS
from l2p.release.prediction import saved
from l2p.run.run import plan_noise, run
from l2p.tables.schema import Number, Schema, Target
from l2p.task.rows import Rows
from meta_train.training.untrained import BUILDERS

BUDGET, N, D = Budget(1.0, 1e-6), 60, 3
CARD = {"name": "mine", "models": ["logistic"], "sources": ["adult"]}
ROWS = np.random.default_rng(0).random((50, D))


def methods():
    """The first hand-designed method of each class, by name."""
    made = {name: method(BUDGET, num_rows=N) for name, method in HAND_DESIGNED.items()}
    first = {type(one): name for name, one in reversed(made.items()) if type(one) in CLASSES.values()}
    return {name: made[name] for name in (*first.values(), "noisygd", "adamix", "ngd", "pda_dpmd", "outpert")}


#: Names of the examples. Those with networks are made where they are used, which compiles.
NAMES = (*methods(), "paper", "universal", "kalman")


@functools.cache
def examples():
    """Protectors that together have every class of `CLASSES` among their parts, with all optional fields set."""
    universal, paper, kalman = (
        BUILDERS[name](jax.random.key(0)) for name in ("universal_level", "paper", "control_line")
    )
    norm_query = NormQuery(logit_constant(0.1), jnp.zeros(()))
    made = methods()
    return made | {
        "noisygd": made["noisygd"].with_purchases(PublicGeometry.of(ROWS, 2)),
        "ngd": HAND_DESIGNED["ngd"](BUDGET, Square(), N),
        "outpert": made["outpert"].replace(noise_multiplier=jnp.float32(3.0)),
        "paper": paper.replace(norm_query=norm_query),
        "universal": universal,
        "kalman": kalman,
    }


@functools.cache
def encoded(name):
    arrays: dict[str, np.ndarray] = {}
    return encode(examples()[name], arrays), arrays


def parts(node, path=()):
    """Every part of a structure that is an instance of a class, with the keys that lead to it."""
    if isinstance(node, dict):
        if "class" in node:
            yield node, path
        for key, item in node.items():
            yield from parts(item, (*path, key))


def write(path, structure, arrays, **card):
    card = json.dumps({**CARD, "structure": structure, **card})
    path.write_bytes(safetensors.numpy.save(arrays, {"card": card}))
    return path


def refused(path):
    """The sentence with which a file is refused."""
    with pytest.raises(InputError) as caught:
        lookup.resolve(str(path), BUDGET, "logistic")
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert len(sentence) < 600 + len(str(path))
    assert sentence.endswith(".")
    return sentence


# ------------------------------------------------------------------------------------------- every field of every class
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
        inner = next(one for one in typing.get_args(kind) if one is not types.NoneType)
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


def changed(structure, path, **fields):
    """A copy of the structure with some fields of the part at `path` changed: `static__name` or `fields__name`."""
    made = copy.deepcopy(structure)
    part = functools.reduce(lambda node, key: node[key], path, made)
    for name, value in fields.items():
        place, _, field = name.partition("__")
        part[place][field] = value
    return made


def test_the_examples_have_every_class_that_a_checkpoint_may_name():
    assert examples().keys() == set(NAMES)
    found = {part["class"] for name in NAMES for part, _ in parts(encoded(name)[0])}
    assert found == set(CLASSES)


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


@pytest.mark.parametrize("name", NAMES)
def test_a_part_that_is_none_or_another_is_refused(tmp_path, name):
    structure, arrays = encoded(name)
    for part, path in parts(structure):
        for field in part["fields"]:
            wrong = [*NODES, next(other for other, _ in parts(structure) if other is not part) if path else structure]
            optional = field in KINDS or type(None) in typing.get_args(kinds(CLASSES[part["class"]])[field])
            for value in wrong if optional else [*wrong, None]:
                bad = changed(structure, path, **{f"fields__{field}": value})
                refused(write(tmp_path / "mine.safetensors", bad, arrays))


@pytest.mark.parametrize("name", NAMES)
def test_an_array_of_another_kind_shape_or_value_is_refused_by_its_name(tmp_path, name):
    structure, arrays = encoded(name)
    for place, array in arrays.items():
        for bad in array_values(array):
            made = structure
            if bad.shape != array.shape:  # as a consistent file would have it
                text, old = json.dumps(structure), json.dumps({"array": list(array.shape)})
                made = json.loads(text.replace(old, json.dumps({"array": list(bad.shape)})))
            refused(write(tmp_path / "mine.safetensors", made, arrays | {place: bad}))
        missing = {other: kept for other, kept in arrays.items() if other != place}
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


# ----------------------------------------------------------------------------------------------------------- optimizers
def optimizer(tmp_path, name, log_scale=("learning_rate",), logit_scale=("momentum",), **hyperparameters):
    structure, arrays = encoded("auto_clip")
    arrays = {place: array for place, array in arrays.items() if "hyperparameters" not in place}
    numbers = {key: np.atleast_1d(np.float32(value)) for key, value in hyperparameters.items()}
    node = {"dict": {key: {"array": list(value.shape)} for key, value in numbers.items()}}
    static = {"static__optimizer": name, "static__log_scale": log_scale, "static__logit_scale": logit_scale}
    made = changed(structure, ("fields", "projector"), fields__hyperparameters=node, **static)
    arrays |= {f"projector.hyperparameters.{key}": value for key, value in numbers.items()}
    return write(tmp_path / "mine.safetensors", made, arrays)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimizer_that_may_be_named_takes_its_numbers_and_moves(tmp_path, name):
    numbers = {
        "learning_rate": -2.0,
        "momentum": 0.0,
        "eps": 1e-3,
        "weight_decay": 0.01,
        "initial_accumulator_value": 0.1,
    }
    given = {key: numbers.get(key, 0.9) for key in OPTIMIZERS[name]}
    loaded = checkpoint.load(optimizer(tmp_path, name, **given)).protector.projector
    assert loaded.hyperparameters.keys() == OPTIMIZERS[name].keys()
    setup = lookup.resolve("noisygd", BUDGET, "logistic").filter(BUDGET).price_list()
    setup = Setup.create(Logistic(), BUDGET.adjacency, setup, N)
    made = loaded._transformation(setup)
    params = jnp.ones(3)
    update, _ = made.update(jnp.ones(3), made.init(params), params)
    assert np.isfinite(update).all()
    assert (np.asarray(update) < 0).all()


@pytest.mark.parametrize(
    "name", ["noisy_sgd", "lbfgs", "inject_hyperparams", "chain", "apply_updates", "__doc__", "SGD"]
)
def test_an_optimizer_that_is_not_listed_is_refused_with_those_that_are(tmp_path, name):
    sentence = refused(optimizer(tmp_path, name, learning_rate=0.0))
    assert ", ".join(OPTIMIZERS) in sentence
    assert repr(name) in sentence
    # In Python too, when the run is planned.
    protector = HAND_DESIGNED["noisygd"](BUDGET).replace(projector=Optax(name, {"learning_rate": jnp.zeros(1)}))
    rows = Rows(np.ones((N, D), np.float32), np.ones(N, np.float32), np.ones(N, np.float32))
    with pytest.raises(InputError, match=", ".join(OPTIMIZERS)):
        private_train(rows, protector, BUDGET)


def test_every_listed_optimizer_is_one_of_optax():
    assert all(callable(getattr(optax, name)) for name in OPTIMIZERS)


@pytest.mark.parametrize(
    ("scales", "numbers", "phrase"),
    [
        ({}, {"momentum": 0.0}, "lacks a learning_rate"),
        ({}, {"learning_rate": 0.0, "nesterov": 1.0}, "has a number 'nesterov', but sgd takes"),
        ({}, {"learning_rate": 0.0, "accumulator_dtype": 1.0}, "sgd takes learning_rate, momentum"),
        ({"log_scale": ()}, {"learning_rate": -0.1}, "learning_rate outside [0, inf)"),
        ({"log_scale": ()}, {"learning_rate": [0.5, 0.3]}, "learning_rate outside [0, inf) at some budget"),
        ({"logit_scale": ()}, {"learning_rate": 0.0, "momentum": 1.5}, "momentum outside [0, 1)"),
        ({}, {"learning_rate": 0.0, "momentum": 40.0}, "momentum outside [0, 1)"),
        ({}, {"learning_rate": 100.0}, "reaches 100, beyond 80"),
        ({}, {"learning_rate": [0.0] * 20 + [1e-3]}, "beyond 80"),
        ({}, {"learning_rate": [0.0] * 40}, "k from 1 to 32"),
    ],
)
def test_numbers_that_an_optimizer_does_not_take_are_refused(tmp_path, scales, numbers, phrase):
    assert phrase in refused(optimizer(tmp_path, "sgd", **scales, **numbers))


def test_the_logarithm_of_nothing_is_a_number_that_may_be_left_out(tmp_path):
    path = optimizer(tmp_path, "sgd", learning_rate=0.0, momentum=-np.inf)
    assert np.isneginf(checkpoint.load(path).protector.projector.hyperparameters["momentum"]).all()
    assert "reaches inf" in refused(optimizer(tmp_path, "sgd", learning_rate=[0.0, -np.inf]))


# ---------------------------------------------------------------------------------------------------------------- files
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
    monkeypatch.setattr(control, "find", lambda asked: pytest.fail(f"looked for {asked}"))
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


def raw(path, header, data=b""):
    """A file with this header, valid or not."""
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


@pytest.mark.parametrize("kind", ["BF16", "F8_E4M3", "C64", "I64", "BOOL"])
def test_arrays_in_a_format_of_other_numbers_are_refused(tmp_path, kind):
    size = {"BF16": 2, "F8_E4M3": 1, "C64": 8, "I64": 8, "BOOL": 1}[kind]
    card = json.dumps({**CARD, "structure": encoded("noisygd")[0]})
    header = {"__metadata__": {"card": card}, "x": {"dtype": kind, "shape": [1], "data_offsets": [0, size]}}
    assert f"holds {kind}" in refused(raw(tmp_path / "mine.safetensors", header, b"\0" * size))


@pytest.mark.parametrize("shape", [[2**62, 2**62], [10**9], [0, 10**12], [1] * 300], ids=range(4))
def test_shapes_that_a_file_cannot_hold_are_refused_before_they_are_made(tmp_path, shape):
    size = 4 if shape == [1] * 300 else 0
    card = json.dumps({**CARD, "structure": encoded("noisygd")[0]})
    header = {"__metadata__": {"card": card}, "x": {"dtype": "F32", "shape": shape, "data_offsets": [0, size]}}
    refused(raw(tmp_path / "mine.safetensors", header, b"\0" * size))
    # And where the structure declares another shape than the array has.
    structure, arrays = encoded("adadp")
    bad = changed(structure, (), fields__log_clip_norm={"array": shape})
    assert "log_clip_norm" in refused(write(tmp_path / "mine.safetensors", bad, arrays))


def test_what_is_no_file_or_far_too_large_is_refused_unread(tmp_path):
    huge, pipe = tmp_path / "huge.safetensors", tmp_path / "pipe.safetensors"
    with huge.open("wb") as file:
        file.truncate(checkpoint.MAX_BYTES + 1)
    os.mkfifo(pipe)
    for path, phrase in (
        (huge, "larger than 128 MiB"),
        (pipe, "it is not a file"),
        (tmp_path / "", "it is not a file"),
    ):
        assert phrase in refused(f"{path}{os.sep if path == tmp_path else ''}")


def test_a_file_that_ends_early_is_refused_wherever_it_ends(tmp_path):
    whole = write(tmp_path / "mine.safetensors", *encoded("noisygd")).read_bytes()
    path = tmp_path / "short.safetensors"
    for end in [0, 1, 7, 8, 9, 100, *range(200, len(whole), 997), len(whole) - 1]:
        path.write_bytes(whole[:end])
        assert "cannot be read" in refused(path)


def test_a_rate_can_be_asked_only_of_what_draws_batches(tmp_path):
    path = write(tmp_path / "mine.safetensors", *encoded("agd"), range={"sampling_rate": [0.01, 0.5]})
    assert "cannot draw Poisson sampling" in refused(f"{path}@0.1")


# ----------------------------------------------------------------------------------------------------------------- fuzz
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda items: (
        st.lists(items, max_size=3)
        | st.dictionaries(
            st.sampled_from(["class", "fields", "static", "array", "dict", "tuple", "x"]), items, max_size=3
        )
    ),
    max_leaves=6,
)


def places(node, path=()):
    """The keys that lead to every value of a JSON tree."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


@st.composite
def damaged(draw):
    """A structure and arrays in which something was replaced, dropped or moved."""
    structure, arrays = copy.deepcopy(
        encoded(draw(st.sampled_from(["universal", "noisygd", "private_meta", "hyfree"])))
    )
    for _ in range(draw(st.integers(1, 2))):
        *parents, last = draw(st.sampled_from(sorted(places(structure), key=repr)))
        owner = functools.reduce(lambda node, key: node[key], parents, structure)
        match draw(st.sampled_from(["replace", "drop", "swap"])):
            case "replace":
                owner[last] = draw(JSON)
            case "drop":
                del owner[last]
            case "swap":
                other = draw(st.sampled_from(sorted(places(structure), key=repr)))
                owner[last] = copy.deepcopy(functools.reduce(lambda node, key: node[key], other, structure))
    name = draw(st.sampled_from(sorted(arrays)))
    if draw(st.booleans()):
        shape = draw(st.lists(st.integers(0, 4), max_size=3))
        numbers = st.floats(width=32, allow_subnormal=False) | st.just(np.nan)
        size = int(np.prod(shape))
        arrays[name] = np.float32(draw(st.lists(numbers, min_size=size, max_size=size))).reshape(shape)
    return structure, arrays


@pytest.mark.slow
@settings(max_examples=120)
@given(content=damaged())
def test_any_damage_is_refused_in_a_sentence_or_leaves_a_protector_that_can_be_planned(tmp_path_factory, content):
    path = write(tmp_path_factory.getbasetemp() / "fuzz.safetensors", *content)
    try:
        found = lookup.resolve(str(path), BUDGET, "logistic")
        filter = found.filter(BUDGET)
        setup = Setup.create(Logistic(), BUDGET.adjacency, filter.price_list(), N)
        found.protector.check_model(Logistic())
        plan_noise(found.protector, jnp.zeros(D + 1), N, D, setup)
    except InputError as error:
        assert "\n" not in str(error)  # noqa: PT017


@settings(max_examples=80)
@given(data=st.data())
def test_any_flipped_byte_is_refused_in_a_sentence_or_leaves_a_protector(tmp_path_factory, data):
    path = write(tmp_path_factory.getbasetemp() / "flipped.safetensors", *encoded("noisygd"))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        assert checkpoint.load(path).protector.num_steps >= 1
    except InputError as error:
        assert "\n" not in str(error)  # noqa: PT017


# --------------------------------------------------------------------------------------------------------------- budget
def extremes(protector, seed):
    """The same protector with every number at an end of its range, or anywhere within it."""
    random = np.random.default_rng(seed)

    def one(path, leaf):
        owner = protector
        for key in path[:-1]:
            owner = children(owner)[key.name] if hasattr(key, "name") else owner
        name = getattr(path[-1], "name", None)
        kind = kinds(type(owner)).get(name) if dataclasses.is_dataclass(owner) and name else None
        # A field that may be None has a union of kinds.
        rules = [rule for one in (kind, *typing.get_args(kind)) for rule in typing.get_args(one)]
        if has_knots(leaf, kind):
            size = MAX_LOG / np.array([1.0, 2.0, 2.0, 1.0, 1.0]) / 5
            return jnp.asarray(size * random.choice([-1.0, 0.0, 0.1, 1.0], leaf.shape) * (1 - 1e-6), jnp.float32)
        if any(isinstance(rule, Coefficients | Either) for rule in rules):
            size = MAX_LOG / 2.0 ** np.arange(len(leaf)) / len(leaf)
            ends = size.reshape((-1,) + (1,) * (leaf.ndim - 1)) * random.choice([-1.0, 0.0, 0.1, 1.0], leaf.shape)
            return jnp.asarray(ends * (1 - 1e-6), jnp.float32)
        return leaf * jnp.float32(random.choice([1e-6, 1.0, 1e3]))

    return jax.tree_util.tree_map_with_path(one, protector)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["universal", "kalman", "hyfree", "agd"])
def test_whatever_the_numbers_of_a_checkpoint_are_its_run_stays_within_its_budget(tmp_path, name):
    random, simulate = np.random.default_rng(1), jax.jit(run)
    rows = Rows(
        *(jnp.asarray(part, jnp.float32) for part in (random.random((N, D)), random.random(N) < 0.5, np.ones(N)))
    )
    spent = []
    for seed in range(8):
        protector = extremes(examples()[name].replace(num_steps=6), seed)
        checkpoint.save(protector, tmp_path / "mine.safetensors", CARD)
        found = lookup.resolve(str(tmp_path / "mine.safetensors"), BUDGET, "logistic")
        filter = found.filter(BUDGET)
        setup = Setup.create(Logistic(), BUDGET.adjacency, filter.price_list(), N)
        _, _, (first, later), _ = simulate(found.protector, jnp.zeros(D + 1), rows, setup, jax.random.key(seed))
        spent.append(filter.spent(trace_of(first, [later])) / filter.limit)
    assert max(spent) <= 1
    assert max(spent) > 0


# --------------------------------------------------------------------------------------------------------- command line
FILES = {
    "steps": lambda path: write(path, changed(encoded("agd")[0], (), static__num_steps=-3), encoded("agd")[1]),
    "half a step": lambda path: write(path, changed(encoded("agd")[0], (), static__num_steps=2.5), encoded("agd")[1]),
    "complex": lambda path: write(
        path, encoded("agd")[0], {name: array.astype(np.complex64) for name, array in encoded("agd")[1].items()}
    ),
    "optimizer": lambda path: optimizer(path.parent, "noisy_sgd", learning_rate=0.0),
    "gone": lambda path: path,
    "sampler": lambda path: write(
        path, changed(encoded("hyfree")[0], (), static__sampler=Poisson(0.1).to_json()), encoded("hyfree")[1],
        accountant="gdp",
    ),
    "another model": lambda path: write(path, *encoded("adassp"), models=["logistic"]),
    "simulated batches": lambda path: write(path, *_batched_meta()),
}  # fmt: skip


def _batched_meta():
    structure, arrays = encoded("private_meta")
    return changed(structure, ("fields", "inner"), static__sampler=Poisson(0.1).to_json()), arrays


#: Of the table that the command line names.
SCHEMA = Schema({"age": Number(0, 120)}, Target("y", classes=(0, 1)))


@pytest.mark.parametrize("case", FILES)
def test_the_command_line_refuses_a_hostile_file_in_one_line_before_it_opens_the_table(tmp_path, capsys, case):
    path = FILES[case](tmp_path / "mine.safetensors")
    SCHEMA.write(tmp_path / "schema.json")
    words = ["--protector", path, "--data", tmp_path / "absent.csv", "--schema", tmp_path / "schema.json"]
    code = main(["apply", *map(str, words), "--epsilon", "1", "--delta", "1e-6", "--out", str(tmp_path / "out")])
    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert "absent.csv" not in err


def test_private_meta_declares_what_its_inner_protector_asks(tmp_path):
    inner = HAND_DESIGNED["agd_gumbel"](BUDGET)
    made = dataclasses.replace(HAND_DESIGNED["private_meta"](BUDGET), inner=inner)
    assert isinstance(made, PrivateMeta)
    assert made.mechanisms == ("gaussian", "gumbel")
    checkpoint.save(made, tmp_path / "mine.safetensors", CARD)
    assert lookup.resolve(str(tmp_path / "mine.safetensors"), BUDGET, "logistic").accountant == "rdp"


def test_a_protector_that_could_not_be_loaded_again_is_not_saved(tmp_path):
    for made in (HAND_DESIGNED["noisygd"](BUDGET).replace(num_steps=-3), BUILDERS["agd"](jax.random.key(0))):
        bad = made if made.num_steps < 0 else made.replace(log_increase=jnp.array([jnp.nan]))
        with pytest.raises(InputError, match="cannot be saved, because its"):
            checkpoint.save(bad, tmp_path / "mine.safetensors", CARD)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_steps_that_diverge_end_in_a_sentence_and_leave_no_result(tmp_path, capsys):
    control = BUILDERS["control"](jax.random.key(0))
    rate = jnp.zeros((1, 2)).at[0].set(0.9 * MAX_LOG)  # and twice that at the end
    path = tmp_path / "mine.safetensors"
    checkpoint.save(control.replace(projector=control.projector.replace(log_learning_rate=rate)), path, CARD)
    table = tmp_path / "ward.csv"
    numbers = np.random.default_rng(0).integers(0, 120, 900)
    table.write_text("age,y\n" + "".join(f"{number},{number % 2}\n" for number in numbers))
    SCHEMA.write(tmp_path / "schema.json")
    words = ["--protector", str(path), "--data", str(table), "--schema", str(tmp_path / "schema.json")]
    code = main(["apply", *words, "--epsilon", "1", "--delta", "1e-6", "--out", str(tmp_path / "out")])
    out, err = capsys.readouterr()
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert "numbers that are not finite" in err
    assert "what it spent stays spent" in err
    assert not (tmp_path / "out").exists()


# ------------------------------------------------------------------------------------------------------- trained models
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
