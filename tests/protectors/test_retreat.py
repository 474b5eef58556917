"""What a run takes back at its end: params that are noise alone, and none that stand out from it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.models import MODELS
from l2p.oracle.setup import Setup
from l2p.privacy.cap.filter import price_list_for_mu
from l2p.privacy.events import Adjacency
from l2p.protectors.conditioning import Covariates
from l2p.protectors.fields import KNOT_COLUMNS
from l2p.protectors.learned.retreat import Retreat
from l2p.run.run import Simulation, advance, start
from l2p.run.simulate import mean_loss
from l2p.task.rows import Rows
from meta_train.training.untrained.filters import control_line

COVARIATES = Covariates(jnp.array(3.0), 0.0, 0.0, 0.0, 0.0, 0.0)
SIZE = 40


def curve(value: float) -> jax.Array:
    return jnp.zeros((2, KNOT_COLUMNS)).at[:, 0].set(value)


#: Keeps a quarter of noise.
QUARTER = Retreat(curve(np.log(1 / 3)), curve(2.0))


def kept(signal: float, seeds: int = 40) -> np.ndarray:
    """Shares kept of distances whose noise has other variances in every coordinate, with so much signal beside it."""
    chance = np.random.default_rng(0)
    variance, curvature = chance.exponential(size=(2, SIZE)).astype(np.float32)
    moved = np.sqrt(variance) * (chance.normal(size=(seeds, SIZE)) + signal)
    share = jax.jit(jax.vmap(lambda moved: QUARTER(moved, variance, curvature, COVARIATES)))
    return np.asarray(share(jnp.asarray(moved, jnp.float32)))


def test_noise_alone_is_taken_back_and_signal_is_kept():
    shares = [kept(signal) for signal in (0.0, 0.7, 2.0)]
    assert np.median(shares[0]) < 0.3
    assert np.median(shares[0]) < np.median(shares[1]) < np.median(shares[2])
    assert np.median(shares[2]) > 0.999
    assert all((share >= 0.25 - 1e-6).all() and (share <= 1.0).all() for share in shares)


@pytest.mark.slow
def test_its_derivatives_are_finite_where_nothing_has_moved_or_nothing_is_noise():
    zeros, ones = jnp.zeros(SIZE), jnp.ones(SIZE)
    for arguments in ((zeros, zeros, ones), (zeros, ones, ones), (1e3 * ones, zeros, ones), (ones, ones, zeros)):
        slopes = jax.grad(lambda *given: QUARTER(*given, COVARIATES), (0, 1, 2))(*arguments)
        assert all(np.isfinite(slope).all() for slope in slopes)


@pytest.mark.long
def test_a_table_without_signal_ends_nearer_to_its_start_and_an_easy_one_where_it_did():
    model, num = MODELS["logistic"], 400
    chance = np.random.default_rng(1)
    x = chance.random((2, num, SIZE)).astype(np.float32) > 0.5
    labels = np.stack([chance.random(num) > 0.5, x[1, :, :5].sum(1) > 2])
    tables = Rows(jnp.asarray(x, jnp.float32), jnp.asarray(labels, jnp.float32), jnp.ones((2, num)))
    plain = control_line(jax.random.key(0))
    retreating = plain.replace(projector=plain.projector.replace(retreat=QUARTER))

    def losses(rows: Rows, log_signal: float, key: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        setup = Setup.create(model, Adjacency.ZERO_OUT, price_list_for_mu("gdp", jnp.exp(log_signal) / num), num)
        begun, _ = start(plain, model.init(SIZE), rows, setup, Simulation(key))
        end, _, _ = advance(plain, begun, rows, setup, Simulation(key), plain.num_steps)
        first = plain.finish(begun.params, begun.state, setup)
        ends = [method.finish(end.params, end.state, setup) for method in (plain, retreating)]
        return tuple(mean_loss(params, model, rows) for params in (first, *ends))

    run = jax.jit(jax.vmap(jax.vmap(losses, (None, None, 0)), (0, 0, None)))
    at = run(tables, jnp.array([2.0, 6.0]), jax.random.split(jax.random.key(0), 12))
    (first, noisy, calm), (_, easy, kept_easy) = np.stack(at).mean(2).T
    assert first < noisy
    assert calm - first < 0.5 * (noisy - first)
    assert kept_easy == pytest.approx(easy, abs=1e-3)
