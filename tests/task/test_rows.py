"""Rows in memory: their layout, parts and sums over parts."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.models import find_model
from l2p.task import rows as rows_module
from l2p.task.by_feature import ByFeature
from l2p.task.feature_map import Basis, FeatureMap
from l2p.task.rows import Rows, null_invalid, sum_in_blocks

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


def test_rows_are_taken_and_nulled_alike_in_both_layouts():
    rows = table()
    rows = rows.replace(x=rows.x.at[3, 1].set(jnp.inf))
    indices = jnp.array([5, 3, 3, 0])
    for change in (lambda rows: rows.take(indices), null_invalid):
        for plain, other in zip(
            jax.tree.leaves(change(rows)), (np.asarray(leaf) for leaf in fields(change(turned(rows)))), strict=True
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
