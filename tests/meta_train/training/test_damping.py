import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.models import MODELS
from l2p.oracle.setup import Setup
from l2p.privacy.cap.filter import price_list_for_mu
from l2p.privacy.events import Adjacency
from l2p.protectors import Decaying, Optax, Stepwise
from l2p.run.run import run
from l2p.run.simulate import mean_loss
from l2p.task.rows import Rows
from meta_train.training.damping import clip_cotangent, damped

MODEL, N, D, STEPS = MODELS["mlp"], 200, 4, 40


@pytest.fixture(scope="module")
def rows() -> Rows:
    random = np.random.default_rng(0)
    x = random.random((N, D)).astype(np.float32)
    return Rows(jnp.asarray(x), jnp.asarray((x[:, 0] + x[:, 1] > 1).astype(np.float32)), jnp.ones(N))


def final_loss(log_rate: jax.Array, rows: Rows, key: jax.Array, limit: float | None) -> jax.Array:
    """log of the loss after a run of gradient descent with nearly no noise and no clipping."""
    protector = Stepwise(
        Decaying(jnp.log(jnp.array([10.0])), jnp.zeros(1)),
        Optax("sgd", {"learning_rate": log_rate[None]}),
        num_steps=STEPS,
    )
    setup = Setup.create(MODEL, Adjacency.ZERO_OUT, price_list_for_mu("gdp", jnp.array(1e4)), N)
    params, _, _, _ = run(damped(protector, limit), MODEL.init(D), rows, setup, key)
    return jnp.log(mean_loss(params, MODEL, rows))


@pytest.fixture(scope="module")
def slopes(rows):
    """Loss and slope in the log of the learning rate, for 16 seeds: f(log_rate, limit)."""
    keys = jax.random.split(jax.random.key(0), 16)

    @functools.cache
    def compiled(limit):
        loss_and_slope = jax.value_and_grad(lambda rate, key: final_loss(rate, rows, key, limit))
        return jax.jit(jax.vmap(loss_and_slope, (None, 0)))

    return lambda log_rate, limit: jax.device_get(compiled(limit)(jnp.float32(log_rate), keys))


@pytest.mark.long
def test_damping_changes_no_run_and_no_gentle_gradient(slopes):
    plain, free, clipped = (slopes(0.0, limit) for limit in (None, 1e9, 3.0))
    chex.assert_trees_all_close(plain, free, rtol=1e-5)
    np.testing.assert_allclose(plain[0], clipped[0], rtol=1e-6)
    np.testing.assert_allclose(plain[1], clipped[1], rtol=1e-4)


@pytest.mark.long
def test_through_chaos_only_damped_gradients_say_that_steps_are_too_long(slopes):
    log_rate = 6.0
    (_, plain), (_, clipped) = (slopes(log_rate, limit) for limit in (None, 1.0))
    # On average the loss rises with the rate here, so slopes should be positive.
    above, below = slopes(log_rate + 1.0, None)[0].mean(), slopes(log_rate - 1.0, None)[0].mean()
    assert above > below + 0.5
    assert np.median(np.abs(plain)) > 10 * np.median(np.abs(clipped))
    assert 0.2 < (plain > 0).mean() < 0.85
    assert (clipped > 0).mean() > 0.9


@pytest.mark.slow
def test_a_cotangent_is_clipped_over_all_leaves_and_nothing_else():
    tree = {"a": jnp.ones(3), "count": jnp.array(2), "b": jnp.ones(())}
    value, back = jax.vjp(lambda tree: clip_cotangent(tree, 2.0), tree)
    chex.assert_trees_all_equal(value, tree)
    (small,) = back({"a": jnp.full(3, 0.5), "count": np.zeros((), jax.dtypes.float0), "b": jnp.array(1.0)})
    np.testing.assert_allclose(small["a"], 0.5)
    (large,) = back({"a": jnp.full(3, 3e30), "count": np.zeros((), jax.dtypes.float0), "b": jnp.array(-3e30)})
    np.testing.assert_allclose(large["a"], 1.0, rtol=1e-6)
    np.testing.assert_allclose(large["b"], -1.0, rtol=1e-6)
    (broken,) = back({"a": jnp.full(3, jnp.nan), "count": np.zeros((), jax.dtypes.float0), "b": jnp.array(1.0)})
    assert not broken["a"].any()
