"""A class that answers in another shape than its base declares is caught where it does so."""

import jax
import jax.numpy as jnp
import pytest
from jaxtyping import TypeCheckError

from l2p.base import struct
from l2p.queries import FeatureSum
from l2p.run.protector import Protector
from l2p.task.rows import Rows
from tests.contracts import check_methods, checked, declared

ROWS = Rows(jnp.ones((5, 3)), jnp.ones(5), jnp.ones(5))


@struct.dataclass
class Narrow(FeatureSum):
    def contributions(self, rows):
        return rows.x[:, :1]  # would be added to every entry of the aggregate


def test_a_query_whose_contributions_have_another_width_is_caught():
    check_methods(Narrow)
    query = Narrow(3, jnp.float32(1.0), jnp.float32(1.0))
    with pytest.raises(TypeCheckError, match=r"return value of .*Narrow.contributions(.|\n)*f32\[5,1\]"):
        query.add(query.empty(), ROWS)
    with pytest.raises(TypeCheckError, match=r"parameter 'contributions'(.|\n)*f32\[5,1\]"):
        query.limit(ROWS.x[:, :1])


def test_a_protector_whose_step_returns_another_shape_is_caught():
    def step(self, params, state, oracle):
        return params[None, :], state

    check = checked(step, declared(Protector, "step"))
    with pytest.raises(TypeCheckError, match=r"return value of .*step(.|\n)*f32\[1,4\]"):
        check(None, jnp.zeros(4), (), None)
    with pytest.raises(TypeCheckError, match="parameter 'params'"):
        check(None, jnp.zeros((1, 4)), (), None)


def test_what_is_traced_and_mapped_is_checked_row_by_row():
    query = FeatureSum(3, jnp.float32(1.0), jnp.float32(1.0))
    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), ROWS)
    assert jax.jit(jax.vmap(lambda rows: query.add(query.empty(), rows)))(stacked).shape == (2, 3)
    with pytest.raises(TypeCheckError, match="parameter 'aggregate'"):
        query.add(jnp.zeros((1, 3)), ROWS)
