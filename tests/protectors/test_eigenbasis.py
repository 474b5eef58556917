import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p import private_train
from l2p.models import MODELS
from l2p.oracle import Oracle, reader_of
from l2p.oracle.setup import Setup
from l2p.privacy.budget import Budget
from l2p.privacy.cap.filter import Filter
from l2p.privacy.cap.spending import Spending
from l2p.protectors import Decaying, Eigenbasis, Optax, Stepwise
from l2p.protectors.stepwise import eigenbasis as eigenbasis_module
from l2p.run.run import run
from l2p.run.simulate import mean_loss
from l2p.task.feature_map import FeatureMap
from l2p.task.noise import KeyNoise
from l2p.task.rows import Rows
from l2p.task.sources import ArraySource

MODEL, N, D = MODELS["logistic"], 3000, 6


def rows_of(seed: int) -> Rows:
    """Correlated rows whose first features vary most, and a label that depends on the ones that vary least."""
    random = np.random.default_rng(seed)
    spread = np.array([0.3, 0.2, 0.1, 0.05, 0.05, 0.02])
    mixing = np.linalg.qr(random.normal(size=(D, D)))[0]
    latent = random.normal(size=(N, D)) * spread
    y = random.random(N) < 1 / (1 + np.exp(-60 * latent[:, 4]))
    return Rows(jnp.asarray(0.5 + latent @ mixing, jnp.float32), jnp.asarray(y, jnp.float32), jnp.ones(N, jnp.float32))


KEY = jax.random.key(1)
ROWS = rows_of(0)
CENTRED = FeatureMap(ROWS.x.mean(0), jnp.float32(2.0))


def basis(power: float, share: float = 0.1, ridge: float = 0.5) -> Eigenbasis:
    def constant(value: float) -> jax.Array:
        return jnp.array([value], jnp.float32)

    logit, log_power = np.log(share / (1 - share)), np.log(power) if power else -20.0
    return Eigenbasis(constant(logit), constant(log_power), constant(np.log(ridge)), jnp.float32(3.0))


def buy(epsilon: float, eigenbasis: Eigenbasis, key: int = 0, spent: float = 0.0, features: FeatureMap = CENTRED):
    """(map, strength, record) of one query about ROWS."""
    budget = Budget(epsilon, 1e-6)
    here = Setup.create(MODEL, budget.adjacency, Filter("zcdp", budget).price_list(), N)
    spending = Spending(here.cap * spent, here.cap)
    oracle = Oracle(reader_of(ROWS), here, spending, KeyNoise(jax.random.key(key), jax.random.key(key)), jnp.array(0))
    features, strength, moment = eigenbasis(features, oracle)
    assert moment.shape == strength.shape
    return features, strength, oracle.records[0]


def moments(features: FeatureMap) -> np.ndarray:
    mapped = np.asarray(features.apply(ROWS.x), float)
    return mapped.T @ mapped / N


@pytest.mark.slow
def test_without_noise_a_power_of_one_makes_rows_white():
    features, strength, _ = buy(1e6, basis(1.0))
    covariance = moments(features)
    np.testing.assert_allclose(covariance / covariance[0, 0], np.eye(D), atol=0.02)
    # At their old length.
    np.testing.assert_allclose(np.trace(covariance), np.trace(moments(CENTRED)), rtol=0.01)
    assert (strength > 4).all()


@pytest.mark.slow(but=["0.05"])
@pytest.mark.parametrize("epsilon", [1e6, 10.0, 1.0, 0.05])
def test_moments_along_its_directions_are_no_larger_than_it_says(epsilon):
    """Noise on the matrix moves an eigenvalue, in any direction, by no more than its spectral radius, up to the square
    root of what Gaussian ensembles deviate from it."""
    budget = Budget(epsilon, 1e-6)
    here = Setup.create(MODEL, budget.adjacency, Filter("zcdp", budget).price_list(), N)
    oracle = Oracle(
        reader_of(ROWS), here, Spending(0.0 * here.cap, here.cap), KeyNoise(*jax.random.split(KEY)), jnp.array(0)
    )
    features, _, moment = basis(0.7)(CENTRED, oracle)
    ratio = np.linalg.eigvalsh(moments(features) / np.sqrt(np.outer(moment, moment))).max()
    assert ratio < 1.1
    if epsilon == 1e6:
        np.testing.assert_allclose(moment, np.diag(moments(features)), rtol=0.02)


def test_a_power_of_zero_only_turns_rows():
    features, _, _ = buy(1e6, basis(0.0))
    np.testing.assert_allclose(features.squared_norms(ROWS.x), CENTRED.squared_norms(ROWS.x), rtol=1e-3)
    covariance = moments(features)
    np.testing.assert_allclose(covariance, np.diag(np.linalg.eigvalsh(moments(CENTRED))), atol=1e-3)


@pytest.mark.slow
def test_directions_that_drown_in_noise_are_not_stretched_apart():
    features, strength, _ = buy(0.01, basis(1.0, ridge=10.0))
    lengths = np.linalg.norm(np.asarray(features.basis.forward), axis=0)
    assert lengths.max() / lengths.min() < 1.2
    assert (strength < 1).all()


@pytest.mark.slow
def test_the_inverse_is_the_inverse_at_any_noise():
    for epsilon in (0.01, 1.0, 100.0):
        turned = buy(epsilon, basis(1.0))[0].basis
        np.testing.assert_allclose(turned.forward @ turned.backward, np.eye(D), atol=1e-3)


@pytest.mark.slow
def test_it_takes_its_share_of_what_is_left():
    _, _, record = buy(1.0, basis(1.0, share=0.2), spent=0.5)
    limit = Filter("zcdp", Budget(1.0, 1e-6)).limit
    assert float(record.cost) == pytest.approx(0.2 * 0.5 * limit, rel=1e-3)


def test_refused_it_leaves_rows_as_they_are():
    features, _, record = buy(1.0, basis(1.0), spent=1.0)
    assert not bool(record.granted)
    np.testing.assert_allclose(features.apply(ROWS.x), CENTRED.apply(ROWS.x), atol=1e-6)


@pytest.mark.long
def test_meta_gradients_reach_power_and_ridge_and_not_the_share():
    def stretched(eigenbasis: Eigenbasis) -> jax.Array:
        features, _, _ = buy(1.0, eigenbasis)
        return jnp.square(features.apply(ROWS.x)).std()

    slopes = jax.grad(stretched)(basis(1.0))
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(slopes))
    assert abs(float(slopes.log_power[0])) > 1e-4
    assert abs(float(slopes.log_ridge[0])) > 1e-6


@pytest.mark.slow
def test_meta_gradients_are_those_of_a_basis_whose_eigenvectors_and_eigenvalues_are_held_still(monkeypatch):
    """Differences agree for every leaf where `eigh` is held still, and else only for what is used after it."""

    def curved(eigenbasis: Eigenbasis, scale: jax.Array) -> jax.Array:
        features, strength, _ = buy(1.0, eigenbasis, features=CENTRED.replace(scale=scale))
        return jnp.square(features.apply(ROWS.x)).std() + 0.1 * jnp.mean(strength)

    def agreeing(loss) -> set[str]:
        """Leaves whose difference is their slope."""
        paths = set()
        for index, (path, slope) in enumerate(jax.tree_util.tree_leaves_with_path(slopes)):
            above, below = (
                loss(*jax.tree.unflatten(structure, [*leaves[:index], leaves[index] + step, *leaves[index + 1 :]]))
                for step in (1e-2, -1e-2)
            )
            if float(above - below) / 2e-2 == pytest.approx(float(slope.sum()), rel=0.03):
                paths.add(jax.tree_util.keystr(path))
        return paths

    start = (basis(0.7), CENTRED.scale)
    leaves, structure = jax.tree.flatten(start)
    slopes = jax.jit(jax.grad(curved, (0, 1)))(*start)
    assert agreeing(jax.jit(curved)) == {"[0].log_power", "[0].log_ridge"}
    eigh, bought = jnp.linalg.eigh, []
    monkeypatch.setattr(jnp.linalg, "eigh", lambda matrix: bought.append(eigh(matrix)) or bought[0])
    curved(*start)
    still = agreeing(jax.jit(lambda *moved: curved(*moved)))
    assert still == {f"[0].{name}" for name in ("log_power", "log_ridge", "logit_share", "row_norm")} | {"[1]"}


@pytest.mark.slow
def test_descent_in_the_basis_finds_what_varies_least():
    """On raw rows a few steps of gradient descent follow what varies most, which is unrelated to the label here."""
    plain = Stepwise(
        Decaying(jnp.log(jnp.array([3.0])), jnp.zeros(1)),
        Optax("sgd", {"learning_rate": jnp.log(jnp.array([2.0]))}),
        num_steps=20,
    )
    budget = Budget(1e3, 1e-6)
    setup = Setup.create(MODEL, budget.adjacency, Filter("zcdp", budget).price_list(), N)

    @jax.jit
    def loss(protector: Stepwise) -> jax.Array:
        params, _, _, _ = run(protector, jnp.zeros(D + 1), ROWS, setup, jax.random.key(0))
        return mean_loss(params, MODEL, ROWS)

    turned = plain.with_purchases(basis(1.0))
    assert float(loss(turned)) < float(loss(plain)) - 0.05


class Unviewed(Stepwise):
    """Maps rows at every query, as the definition has it."""

    def view(self, state):
        return None

    def step(self, params, state, oracle):
        turned = state.features
        basis_of_state, self_query = turned.basis, Stepwise.query
        # The step below sees no basis, so that it asks with the map it is given, which here is the whole map.
        viewless = dataclasses.replace(state, features=FeatureMap(turned.center, turned.scale))

        class Asking(Stepwise):
            def query(self, params, features, plan, setup):
                return self_query(self, params, FeatureMap(turned.center, turned.scale, basis_of_state), plan, setup)

        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        params, after = Asking(**fields).step(params, viewless, oracle)
        return params, dataclasses.replace(after, features=turned)


@pytest.mark.slow(but=["30.0"])
@pytest.mark.parametrize("epsilon", [0.3, 30.0])
def test_rows_mapped_once_are_rows_mapped_at_every_step(epsilon):
    budget = Budget(epsilon, 1e-6)
    setup = Setup.create(MODEL, budget.adjacency, Filter("zcdp", budget).price_list(), N)
    fields = {
        "scheduler": Decaying(jnp.log(jnp.array([0.5])), jnp.zeros(1)),
        "projector": Optax("sgd", {"learning_rate": jnp.log(jnp.array([2.0]))}),
        "purchases": (basis(1.0),),
        "num_steps": 5,
    }
    results = [
        run(kind(**fields), jnp.zeros(D + 1), ROWS, setup, jax.random.key(0))[0] for kind in (Stepwise, Unviewed)
    ]
    np.testing.assert_allclose(*results, rtol=2e-4, atol=1e-5)


@pytest.mark.slow
def test_a_stream_is_read_through_the_same_map():
    protector = Stepwise(
        Decaying(jnp.log(jnp.array([0.5])), jnp.zeros(1)),
        Optax("sgd", {"learning_rate": jnp.log(jnp.array([2.0]))}),
        purchases=(basis(1.0),),
        num_steps=4,
    )
    within = jnp.clip(ROWS.x, 0, 1)
    broken = ROWS.replace(x=within.at[3].set(jnp.nan).at[5].set(jnp.inf))
    stream = ArraySource(jax.tree.map(np.asarray, broken), 512)
    budget, key = Budget(3.0, 1e-6), jax.random.key(1)
    in_memory, streamed = (private_train(data, protector, budget, key=key).params for data in (broken, stream))
    assert np.isfinite(in_memory).all()
    np.testing.assert_allclose(in_memory, streamed, rtol=1e-3, atol=1e-4)


def test_below_its_least_ratio_no_basis_is_bought_and_hardly_anything_is_paid():
    wanting = dataclasses.replace(basis(1.0), log_least_ratio=jnp.float32(6.0))
    content = dataclasses.replace(basis(1.0), log_least_ratio=jnp.float32(3.0))
    plain, strength, cheap = buy(1.0, wanting)
    np.testing.assert_array_equal(plain.basis.forward, np.eye(D))
    np.testing.assert_array_equal(strength, 0.0)
    always, _, dear = buy(1.0, basis(1.0))
    turned, _, same = buy(1.0, content)
    np.testing.assert_array_equal(turned.basis.forward, always.basis.forward)
    assert float(same.spent) == float(dear.spent) > 1e4 * float(cheap.spent) > 0.0


@pytest.mark.parametrize(("epsilon", "bought"), [(0.001, False), (1.0, True)])
def test_beyond_what_was_trained_a_basis_is_bought_from_one_mu_n_per_feature_on(monkeypatch, epsilon, bought):
    wanting = dataclasses.replace(basis(1.0), log_least_ratio=jnp.float32(6.0))
    monkeypatch.setattr(eigenbasis_module, "WIDE", D - 1)
    features, _, _ = buy(epsilon, wanting)
    assert bought == bool((features.basis.forward != np.eye(D)).any())


def test_of_more_features_than_it_turns_nothing_is_asked(monkeypatch):
    monkeypatch.setattr(eigenbasis_module, "MAX_FEATURES", D - 1)
    here = Setup.create(MODEL, Budget(1.0, 1e-6).adjacency, Filter("zcdp", Budget(1.0, 1e-6)).price_list(), N)
    oracle = Oracle(
        reader_of(ROWS), here, Spending(jnp.array(0.0), here.cap), KeyNoise(*[jax.random.key(0)] * 2), jnp.array(0)
    )
    features, strength, _ = basis(1.0)(CENTRED, oracle)
    assert features is CENTRED
    assert not oracle.records
    np.testing.assert_array_equal(strength, 0.0)
