"""Rows in memory: their layout, parts and sums over parts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.models import find_model
from l2p.task import rows as rows_module
from l2p.task.feature_map import Basis, FeatureMap
from l2p.task.rows import Rows, mapped, null_invalid, sum_in_blocks
from l2p.task.table import ByFeature, ByRow, Drawn

GENERATOR = np.random.default_rng(0)


def table(num_rows=70, num_features=3, num_classes=2):
    x = GENERATOR.random((num_rows, num_features), np.float32)
    return Rows(
        jnp.asarray(x), jnp.floor(num_classes * x[:, 0]), jnp.asarray(GENERATOR.integers(0, 2, num_rows), jnp.float32)
    )


def turned(rows):
    return rows.replace(x=ByFeature.of(rows.x))


def test_the_table_stands_in_for_the_array_that_it_was_made_from():
    x = np.arange(6.0, dtype=np.float32).reshape(3, 2)
    by_feature = ByFeature.of(x)
    assert by_feature.columns.flags.c_contiguous
    assert (by_feature.shape, by_feature.ndim, by_feature.dtype) == ((3, 2), 2, np.float32)
    assert ByFeature.of(by_feature) is by_feature
    for array in (np.asarray(by_feature), jnp.asarray(by_feature), by_feature.T.T):
        np.testing.assert_array_equal(array, x)
    weights = np.array([[1.0, 2.0], [3.0, 5.0]], np.float32)
    np.testing.assert_array_equal(by_feature @ weights, x @ weights)
    np.testing.assert_array_equal(by_feature @ weights[0], x @ weights[0])
    np.testing.assert_array_equal(by_feature.weighted_sum(x.T), x.T @ x)


def test_drawn_rows_stand_in_for_their_array():
    x = table().x
    drawn, weights = Drawn(x), jnp.arange(6.0).reshape(3, 2)
    assert (drawn.shape, drawn.ndim, drawn.dtype) == (x.shape, 2, x.dtype)
    np.testing.assert_array_equal(jnp.asarray(drawn), x)
    np.testing.assert_array_equal(drawn[2:], x[2:])
    np.testing.assert_allclose(drawn @ weights, x @ weights, rtol=1e-6)
    np.testing.assert_allclose(drawn @ weights[:, 1], x @ weights[:, 1], rtol=1e-6)
    np.testing.assert_allclose(drawn.weighted_sum(x.T), x.T @ x, rtol=1e-5)
    np.testing.assert_allclose(drawn.weighted_sum(x[:, 0]), x[:, 0] @ x, rtol=1e-5)


def test_invalid_rows_are_null_in_rows_that_are_ready_and_nobody_looks_again(monkeypatch):
    monkeypatch.setattr(rows_module, "BLOCK", 2)
    rows = table(num_rows=4)
    rows = rows.replace(x=rows.x.at[3, 1].set(jnp.inf), mask=jnp.ones(4))
    for full_passes, layout in ((False, ByRow), (True, ByFeature)):
        ready = rows.ready(full_passes)
        assert isinstance(ready.x, layout)
        assert null_invalid(ready) is ready
        np.testing.assert_array_equal(ready.mask, [1, 1, 1, 0])
        np.testing.assert_array_equal(jnp.asarray(ready.x), rows.x.at[3].set(0.0))
        np.testing.assert_allclose(ready.x.squares, jnp.square(jnp.asarray(ready.x)).sum(-1), rtol=1e-6)


def test_rows_are_made_ready_once_unless_their_arrays_can_change():
    rows = table()
    assert rows.ready(True) is rows.ready(True)
    changing = Rows(*(np.array(leaf) for leaf in (rows.x, rows.y, rows.mask)))
    changing.ready(True)
    changing.mask[:] = 0.0
    assert changing.ready(True).mask.sum() == 0.0
    traced = jax.jit(lambda: rows.replace().ready(False).mask.sum())()  # nothing of a trace is kept
    assert traced == rows.ready(False).mask.sum() == jax.jit(lambda: rows.ready(False).mask.sum())()


def test_a_map_that_overflows_makes_null_rows_of_rows_that_were_ready():
    rows = table(num_rows=4).ready(True)
    assert mapped(rows, FeatureMap(jnp.zeros(3), jnp.float32(jnp.inf))).mask.sum() == 0.0


def test_rows_are_taken_and_nulled_alike_in_both_layouts():
    rows = table()
    rows = rows.replace(x=rows.x.at[3, 1].set(jnp.inf))
    indices = jnp.array([5, 3, 3, 0])
    for change in (lambda rows: rows.take(indices), null_invalid):
        for plain, other in zip(
            *([np.asarray(leaf) for leaf in fields(change(each))] for each in (rows, turned(rows))), strict=True
        ):
            np.testing.assert_array_equal(plain, other)


def fields(rows):
    return [leaf for leaf in (rows.x, rows.y, rows.mask, rows.squares) if leaf is not None]


def test_maps_give_the_same_features_in_both_layouts():
    x = table().x
    basis = Basis(jnp.array([[1.0, 0.5], [0.0, 1.0], [2.0, 0.0]]), jnp.zeros((2, 3)))
    for features in (
        FeatureMap(jnp.array([0.5, 0.1, 0.0]), jnp.float32(2.0)),
        FeatureMap(jnp.ones(3), jnp.float32(0.5), basis),
    ):
        other = ByFeature.of(x)
        np.testing.assert_allclose(jnp.asarray(features.apply(other)), features.apply(x), rtol=1e-6)
        np.testing.assert_allclose(features.squared_norms(other), features.squared_norms(x), rtol=1e-5, atol=1e-5)
        weights = jnp.ones((2, len(x)))
        np.testing.assert_allclose(
            features.weighted_sum(other, weights), features.weighted_sum(x, weights), rtol=1e-5, atol=1e-4
        )


@pytest.mark.long(cases=["70-mlp", "32-mlp", "35-mlp"])
@pytest.mark.slow(cases=["*-mlp"])
@pytest.mark.parametrize("name", ["softmax:3", "mlp"])
@pytest.mark.parametrize("block", [70, 35, 32, 100])
def test_gradients_add_up_alike_whatever_the_blocks(name, block, monkeypatch):
    model = find_model(name)
    rows, features = table(num_classes=3 if name == "softmax:3" else 2), FeatureMap.identity(3)
    params = jnp.asarray(GENERATOR.normal(size=model.num_params(3)), jnp.float32)
    expected = model.clipped_gradient_sum(params, rows, features, jnp.float32(0.3))
    monkeypatch.setattr(rows_module.sum_in_blocks, "__defaults__", (block,))
    for layout in (rows, turned(rows)):
        blocked = model.clipped_gradient_sum(params, layout, features, jnp.float32(0.3))
        np.testing.assert_allclose(blocked, expected, rtol=1e-4, atol=1e-5)


def test_a_sum_in_blocks_reads_each_row_once():
    rows = table(num_rows=11)
    for layout in (rows, turned(rows)):
        for block in (1, 2, 4, 11, 12):
            total = sum_in_blocks(
                lambda part: jnp.stack([part.y.sum(), part.x.T.sum(), 1.0 * part.y.shape[0]]), layout, block
            )
            np.testing.assert_allclose(total, [rows.y.sum(), rows.x.sum(), 11], rtol=1e-6)
