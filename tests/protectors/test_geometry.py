import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p import private_train
from l2p.base.errors import InputError
from l2p.models import MODELS
from l2p.oracle.setup import Setup
from l2p.privacy.budget import Budget
from l2p.privacy.cap.filter import Filter
from l2p.privacy.ledger.ledger import Ledger
from l2p.privacy.ledger.reservation import limit_of
from l2p.protectors import Decaying, Optax, PublicGeometry, Stepwise
from l2p.run.run import run
from l2p.run.simulate import mean_loss
from l2p.task.rows import Rows
from l2p.task.sources import ArraySource

MODEL, N, D, K = MODELS["logistic"], 2000, 12, 3
BUDGET = Budget(1.0, 1e-6)
SETUP = Setup.create(MODEL, BUDGET.adjacency, Filter("gdp", BUDGET).price_list(), N)
RANDOM = np.random.default_rng(0)
MIXING = np.linalg.qr(RANDOM.normal(size=(D, D)))[0]


def rows_of(seed: int) -> Rows:
    """Rows that vary along three directions, and a label that depends on the third."""
    random = np.random.default_rng(seed)
    latent = random.normal(size=(N, D)) * np.array([0.3, 0.15, 0.08, *[1e-3] * (D - 3)])
    y = random.random(N) < 1 / (1 + np.exp(-50 * latent[:, 2]))
    return Rows(jnp.asarray(0.5 + latent @ MIXING, jnp.float32), jnp.asarray(y, jnp.float32), jnp.ones(N, jnp.float32))


PUBLIC, ROWS = np.asarray(rows_of(1).x), rows_of(2)
WITHIN = ROWS.replace(x=jnp.clip(ROWS.x, 0, 1))  # as training takes them


def geometry(power: float, ridge: float = 1e-6, directions: int = K) -> PublicGeometry:
    directions_of_rows = PublicGeometry.of(PUBLIC, directions)
    log_power = jnp.array([np.log(power) if power else -20.0], jnp.float32)
    return dataclasses.replace(directions_of_rows, log_power=log_power, log_ridge=jnp.log(jnp.array([ridge])))


def stepping(*purchases) -> Stepwise:
    rate = Optax("sgd", {"learning_rate": jnp.log(jnp.array([2.0]))})
    return Stepwise(Decaying(jnp.log(jnp.array([1.0])), jnp.zeros(1)), rate, num_steps=20, purchases=purchases)


def test_of_public_rows_it_finds_the_directions_in_which_they_vary():
    geometry_of_rows = PublicGeometry.of(PUBLIC, K)
    np.testing.assert_allclose(np.sqrt(geometry_of_rows.variances), [0.3, 0.15, 0.08], rtol=0.05)
    np.testing.assert_allclose(np.abs(geometry_of_rows.directions.T @ MIXING[:K].T), np.eye(K), atol=0.05)


def test_it_keeps_no_directions_in_which_rows_do_not_vary():
    flat = PUBLIC.copy()
    flat[:, 2:] = 0.5
    assert PublicGeometry.of(flat, D).variances.shape == (2,)
    with pytest.raises(InputError, match="all alike"):
        PublicGeometry.of(np.full((9, D), 0.3), D)


def test_a_power_of_one_makes_rows_like_them_white_at_the_target_length():
    features, strength = geometry(1.0)(D, SETUP)
    mapped = np.asarray(features.apply(ROWS.x))
    np.testing.assert_allclose(np.cov(mapped.T) / 2.5**2 * K, np.eye(K), atol=0.12)
    assert np.square(mapped).sum(1).mean() == pytest.approx(2.5**2, rel=0.1)
    np.testing.assert_allclose(strength, 2 * np.log([0.3 / 0.08, 0.15 / 0.08, 1.0]), atol=0.2)


def test_a_power_of_zero_and_a_large_ridge_only_turn_them():
    for variant in (geometry(0.0), geometry(1.0, ridge=1e4)):
        features, _ = variant(D, SETUP)
        lengths = np.linalg.norm(np.asarray(features.basis.forward), axis=0)
        np.testing.assert_allclose(lengths, lengths[0], rtol=1e-3)


def test_params_found_along_the_directions_predict_the_same_on_rows_as_they_come():
    features, _ = geometry(0.7)(D, SETUP)
    params = jnp.asarray(RANDOM.normal(size=K + 1), jnp.float32)
    raw = MODEL.params_for_raw_rows(params, features)
    assert raw.shape == (D + 1,)
    np.testing.assert_allclose(MODEL.margin(raw, ROWS.x), MODEL.margin(params, features.apply(ROWS.x)), atol=1e-4)
    np.testing.assert_allclose(MODEL.params_for_mapped_rows(raw, features), params, atol=1e-4)


@pytest.mark.long
def test_with_every_direction_and_no_power_a_run_is_one_on_centred_rows():
    """Steps and noise that are equal along every direction do not depend on the rotation of rows: without noise, and
    with clipping, the two runs end at the same loss."""
    turned = geometry(0.0, directions=D)
    scale = float(jnp.linalg.norm(turned(D, SETUP)[0].basis.forward[:, 0]))
    scaled = ROWS.replace(x=(ROWS.x - turned.center[None, :]) * scale)
    setup = dataclasses.replace(SETUP, cap=jnp.array(jnp.inf), price_list=Filter("gdp", Budget(1e4, 1e-6)).price_list())
    params = [
        run(protector, jnp.zeros(D + 1), rows, setup, jax.random.key(0))[0]
        for protector, rows in ((stepping(turned), ROWS), (stepping(), scaled))
    ]
    losses = [float(mean_loss(released, MODEL, rows)) for released, rows in zip(params, (ROWS, scaled), strict=True)]
    assert losses[0] < 0.68
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


@pytest.mark.long
def test_at_one_budget_it_finds_what_a_run_on_rows_as_they_come_does_not():
    def loss(protector: Stepwise) -> float:
        losses = jax.vmap(lambda key: mean_loss(run(protector, jnp.zeros(D + 1), ROWS, SETUP, key)[0], MODEL, ROWS))
        return float(losses(jax.random.split(jax.random.key(0), 8)).mean())

    assert loss(stepping(geometry(1.0))) < loss(stepping()) - 0.03


@pytest.mark.long
def test_meta_gradients_reach_power_and_ridge():
    def loss(purchase: PublicGeometry) -> jax.Array:
        released, *_ = run(stepping(purchase), jnp.zeros(D + 1), ROWS, SETUP, jax.random.key(0))
        return mean_loss(released, MODEL, ROWS)

    slopes = jax.grad(loss)(geometry(0.5, ridge=0.1))
    assert np.isfinite(slopes.log_power[0])
    assert abs(float(slopes.log_power[0])) > 1e-4
    assert np.isfinite(slopes.log_ridge[0])
    assert abs(float(slopes.log_ridge[0])) > 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("model", ["softmax:3", "mlp"])
def test_models_with_many_lines_of_weights_run_in_directions_too(model):
    rows = WITHIN.replace(y=jnp.asarray(np.arange(N) % 3, jnp.float32)) if model == "softmax:3" else WITHIN
    result = private_train(rows, stepping(geometry(0.5)), BUDGET, model=model, key=jax.random.key(0))
    assert np.isfinite(result.params).all()


@pytest.mark.slow
def test_a_stream_is_read_along_the_same_directions():
    stream = ArraySource(jax.tree.map(np.asarray, WITHIN), 512)
    protector = stepping(geometry(0.5))
    in_memory, streamed = (
        private_train(data, protector, BUDGET, key=jax.random.key(1)).params for data in (WITHIN, stream)
    )
    np.testing.assert_allclose(in_memory, streamed, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_a_release_draws_noise_for_the_directions_alone():
    result = private_train(WITHIN, stepping(geometry(0.5)), BUDGET)
    assert result.params.shape == (D + 1,)
    assert np.isfinite(result.params).all()


def test_rows_of_other_features_are_refused_before_anything_is_spent(tmp_path):
    limit = Budget(3.0, 1e-5)
    ledger = Ledger.create(tmp_path / "ward.ledger", "ward", limit, "gdp", limit_of("gdp", limit))
    narrow = WITHIN.replace(x=WITHIN.x[:, :-1])
    with pytest.raises(InputError, match="principal directions of 12 features in their order, and these have 11"):
        private_train(narrow, stepping(geometry(0.5)), BUDGET, ledger=ledger)
    assert not ledger.entries()
