"""Dataclasses that are pytrees: distinguished by their class, whatever their fields hold."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import pytest
from jax.tree_util import GetAttrKey

from l2p import queries
from l2p.base import struct


def make(index):
    class Made:
        value: jax.Array
        size: int = struct.field(pytree_node=False)

        def answer(self):
            return self.value + index

    return struct.dataclass(Made)


@pytest.mark.slow
def test_jit_never_takes_one_class_for_another():
    """Registered with `jax.tree_util.register_dataclass`, some of these get another's answer (jaxlib 0.10.2)."""
    answer = jax.jit(lambda instance: instance.answer())
    structs = [make(index)(jnp.float32(0.5), 3) for index in range(64)]
    assert [float(answer(instance)) for instance in structs] == [index + 0.5 for index in range(64)]
    structures = [jax.tree.structure(instance) for instance in structs]
    assert all(first != second for first, second in itertools.combinations(structures, 2))


def test_structures_agree_where_class_and_static_fields_do():
    kind = make(0)
    structure = jax.tree.structure(kind(jnp.float32(0.5), 3))
    assert structure == jax.tree.structure(kind(jnp.float32(2.0), 3))
    assert hash(structure) == hash(jax.tree.structure(kind(jnp.float32(2.0), 3)))
    assert structure != jax.tree.structure(kind(jnp.float32(0.5), 4))
    traces = []
    trace = jax.jit(lambda instance: traces.append(instance.size) or instance.value)
    for value, size in ((1.0, 3), (2.0, 3), (2.0, 4)):
        assert float(trace(kind(jnp.float32(value), size))) == value
    assert traces == [3, 4]


def test_children_have_their_names_and_copies_change_only_the_given_fields():
    node = make(0)(jnp.float32(0.5), 3)
    (((key,), value),), _ = jax.tree_util.tree_flatten_with_path(node)
    assert (key, value) == (GetAttrKey("value"), node.value)
    assert node.replace(size=4).size == 4
    assert node.replace(size=4).value is node.value
    with pytest.raises(dataclasses.FrozenInstanceError):
        node.size = 5


def test_queries_with_the_same_fields_are_told_apart():
    """On a worker of CI, the second of these was answered with the first's sum."""
    twins = (queries.FeatureSum, queries.SecondMoment, queries.CrossMoment)
    structures = [jax.tree.structure(kind(3, jnp.float32(0.9), jnp.float32(1.7))) for kind in twins]
    assert len(set(structures)) == len(twins)
    assert all(first != second for first, second in itertools.combinations(structures, 2))
