"""Untrusted checkpoints: any damage is refused in a sentence, or the run stays within its budget."""

import copy
import dataclasses
import functools
import typing

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from l2p.base.errors import InputError
from l2p.base.struct import children
from l2p.checkpoints import checkpoint, lookup
from l2p.models import Logistic
from l2p.oracle.setup import Setup
from l2p.oracle.trace import trace_of
from l2p.protectors.fields import MAX_LOG, Coefficients, Either, has_knots, kinds
from l2p.run.run import plan_noise, run
from l2p.task.rows import Rows
from tests.checkpoints.damaged_files import BUDGET, CARD, D, N, encoded, examples, write

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
                source = draw(st.sampled_from(sorted(places(structure), key=repr)))
                owner[last] = copy.deepcopy(functools.reduce(lambda node, key: node[key], source, structure))
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
        method = lookup.resolve(str(path), BUDGET, "logistic")
        filter = method.filter(BUDGET)
        setup = Setup.create(Logistic(), BUDGET.adjacency, filter.price_list(), N)
        method.protector.check_model(Logistic())
        plan_noise(method.protector, jnp.zeros(D + 1), N, D, setup)
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


def extremes(protector, seed):
    """The same protector with every number at an end of its range, or anywhere within it."""
    random = np.random.default_rng(seed)

    def extreme(path, leaf):
        owner = protector
        for key in path[:-1]:
            owner = children(owner)[key.name] if hasattr(key, "name") else owner
        name = getattr(path[-1], "name", None)
        kind = kinds(type(owner)).get(name) if dataclasses.is_dataclass(owner) and name else None
        # A field that may be None has a union of kinds.
        rules = [rule for part in (kind, *typing.get_args(kind)) for rule in typing.get_args(part)]
        if has_knots(leaf, kind):
            size = MAX_LOG / np.array([1.0, 2.0, 2.0, 1.0, 1.0, 1.0]) / 6
            return jnp.asarray(size * random.choice([-1.0, 0.0, 0.1, 1.0], leaf.shape) * (1 - 1e-6), jnp.float32)
        if any(isinstance(rule, Coefficients | Either) for rule in rules):
            size = MAX_LOG / 2.0 ** np.arange(len(leaf)) / len(leaf)
            ends = size.reshape((-1,) + (1,) * (leaf.ndim - 1)) * random.choice([-1.0, 0.0, 0.1, 1.0], leaf.shape)
            return jnp.asarray(ends * (1 - 1e-6), jnp.float32)
        return leaf * jnp.float32(random.choice([1e-6, 1.0, 1e3]))

    return jax.tree_util.tree_map_with_path(extreme, protector)


@pytest.mark.long(cases=["kalman"])
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
        method = lookup.resolve(str(tmp_path / "mine.safetensors"), BUDGET, "logistic")
        filter = method.filter(BUDGET)
        setup = Setup.create(Logistic(), BUDGET.adjacency, filter.price_list(), N)
        _, _, (first, later), _ = simulate(method.protector, jnp.zeros(D + 1), rows, setup, jax.random.key(seed))
        spent.append(filter.spent(trace_of(first, [later])) / filter.limit)
    assert max(spent) <= 1
    assert max(spent) > 0
