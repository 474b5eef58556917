"""Sums over as many rows as real tables have equal the sums of their parts. jaxlib 0.10.2, which pyproject.toml
excludes, computes some reductions wrongly from 16,385 or 32,769 rows up, which small tables never show; and products
of vectors add up in float32 one by one, which equal losses show from some 100,000 rows up."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.queries.solve import regularised
from l2p.run.simulate import mean_loss, score
from l2p.task.feature_map import Basis, FeatureMap
from l2p.task.rows import Rows
from tests.models import naive
from tests.models.naive import EVERY

D, N, BLOCK, BUDGETS = 6, 40_000, 2_000, 3


def test_xla_adds_up_many_lines():
    """The upstream report's own case (jax issue 39103)."""
    lines = jnp.stack([jnp.arange(32_769.0), *[jnp.zeros(32_769)] * 2], axis=1)
    squares = jax.jit(lambda lines: jax.vmap(lambda line: jnp.sum((jnp.eye(3) @ line) ** 2))(lines))(lines)
    assert float(squares[-1]) == 32_768.0**2


@pytest.mark.slow(but=["logistic-*", "softmax-in a basis"])
@pytest.mark.parametrize("turned", [False, True], ids=["as they are", "in a basis"])
@pytest.mark.parametrize("name", EVERY)
def test_a_sum_over_many_rows_is_that_of_its_parts(name, turned):
    model, random = EVERY[name], np.random.default_rng(0)
    x, y = random.random((N, D)).astype(np.float32), naive.labels(model, random, N).astype(np.float32)
    params = jnp.asarray(random.normal(size=(BUDGETS, model.num_params(D))), jnp.float32)
    features = FeatureMap.identity(D)
    if model.has_intercept:
        forward = np.linalg.qr(random.normal(size=(D, D)))[0].astype(np.float32)
        basis = Basis(jnp.asarray(forward), jnp.asarray(forward.T)) if turned else None
        features = FeatureMap(jnp.full(D, 0.4), jnp.float32(1.5), basis)

    @jax.jit
    def several(params, rows):
        def gradient_of(params):
            mean = model.losses(params[None, :], rows.x, rows.y)[0].mean()
            return model.clipped_gradient_sum(params, rows, features, jnp.float32(0.5)), mean

        return jax.vmap(gradient_of)(params)

    def rows(part):
        return Rows(jnp.asarray(x[part]), jnp.asarray(y[part]), jnp.ones(len(x[part])))

    together = several(params, rows(slice(None)))
    parts = [several(params, rows(slice(start, start + BLOCK))) for start in range(0, N, BLOCK)]
    total, mean = (np.stack([np.asarray(part[index], np.float64) for part in parts]) for index in (0, 1))
    np.testing.assert_allclose(together[0], total.sum(0), rtol=1e-3, atol=0.02)
    np.testing.assert_allclose(together[1], mean.mean(0), rtol=1e-4)


def test_the_mean_of_equal_losses_is_that_loss_however_many():
    count = 2_000_000
    rows = Rows(np.zeros((count, 1), np.float32), np.ones(count, np.float32), np.ones(count, np.float32))
    params = jnp.array([0.0, 0.2], jnp.float32)
    loss = float(mean_loss(params, EVERY["logistic"], Rows(rows.x[:1], rows.y[:1], rows.mask[:1])))
    assert float(mean_loss(params, EVERY["logistic"], rows)) == pytest.approx(loss, rel=1e-5)
    assert float(regularised(EVERY["logistic"], rows, 0.0)(params)) == pytest.approx(loss, rel=1e-5)
    away = dataclasses.replace(rows, y=np.full(count, 0.83, np.float32))
    assert float(score(params, EVERY["square"], away, "regression")) == pytest.approx((0.83 - 0.1) ** 2, rel=1e-5)
