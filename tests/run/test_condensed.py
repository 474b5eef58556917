"""Derivatives of runs keep the sums over rows, so that rows are read once for them and once for what follows."""

import jax
import jax.numpy as jnp
import numpy as np

from l2p.models import MODELS
from l2p.oracle.setup import Setup
from l2p.privacy import Budget, Filter
from l2p.protectors import HAND_DESIGNED
from l2p.run import run as runs
from l2p.task.rows import Rows

BUDGET, N, D = Budget(1.0, 1e-6), 40, 16


def test_rows_are_read_less_often_where_their_sums_are_kept(monkeypatch):
    model, protector = MODELS["logistic"], HAND_DESIGNED["noisygd"](BUDGET).replace(num_steps=3)
    setup = Setup.create(model, BUDGET.adjacency, Filter("gdp", BUDGET).price_list(), N)
    rows = Rows(jnp.ones((N, D)), jnp.zeros(N), jnp.ones(N))

    def end(start):
        return runs.run(protector, start, rows, setup, jax.random.key(0))[0].sum()

    def num_reads():
        return reads_of(jax.make_jaxpr(jax.grad(end))(jnp.zeros(D + 1)).jaxpr)

    with_sums_kept = num_reads()
    monkeypatch.setattr(runs, "_is_condensed", lambda *inputs, **settings: False)
    assert 4 <= with_sums_kept < num_reads()


def reads_of(jaxpr):
    """The number of products with the rows in a program and in those inside it."""
    reads = 0
    for equation in jaxpr.eqns:
        shapes = [getattr(variable.aval, "shape", ()) for variable in equation.invars]
        reads += equation.primitive is jax.lax.dot_general_p and (N, D) in shapes
        for inner in jax.tree.leaves(list(equation.params.values()), is_leaf=lambda leaf: hasattr(leaf, "eqns")):
            inner = getattr(inner, "jaxpr", inner)
            reads += reads_of(inner) if hasattr(inner, "eqns") else 0
    return reads


def test_sums_that_read_little_are_computed_again():
    def is_kept(first, second, axes):
        shapes = [jax.ShapeDtypeStruct(shape, np.float32) for shape in (first, second)]
        return runs._is_condensed(jax.lax.dot_general_p, *shapes, dimension_numbers=((axes[:1], axes[1:]), ((), ())))

    assert is_kept((N, D), (D,), (1, 0))
    assert is_kept((N,), (N, D), (0, 0))
    assert not is_kept((80, 35), (35, 124), (1, 0))  # gates of an LSTM
    assert not runs._is_condensed(jax.lax.tanh_p, jax.ShapeDtypeStruct((N, D), np.float32))
