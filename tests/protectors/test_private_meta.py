import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from l2p import private_train
from l2p.base.errors import InputError
from l2p.models import MODELS
from l2p.oracle.oracle import grid_of
from l2p.oracle.setup import Setup
from l2p.privacy import Adjacency
from l2p.privacy.budget import Budget
from l2p.privacy.cap.filter import Filter
from l2p.privacy.cost.sampling import Poisson
from l2p.protectors import HAND_DESIGNED, Decaying, Optax, Stepwise
from l2p.protectors.by_hand.private_meta import MetaDescent, PrivateMeta, from_vector, to_vector
from l2p.queries.base import limit_norm
from l2p.run.simulate import mean_loss
from l2p.task.entropy import Entropy
from l2p.task.noise import GRID_STEPS, Draw, HostNoise, KeyNoise
from l2p.task.rows import Rows

MODEL, N, D, BLOCKS = MODELS["logistic"], 240, 3, 6
INNER = Stepwise(
    Decaying(jnp.array([0.0]), jnp.array([0.0])), Optax("sgd", {"learning_rate": jnp.array([-1.0])}), num_steps=5
)
CLIP, RATE, OUTER = 0.05, 0.2, 4


def rows_of(seed: int) -> Rows:
    random = np.random.default_rng(seed)
    x = random.random((N, D)).astype(np.float32)
    return Rows(jnp.asarray(x), jnp.asarray((x[:, 0] > x[:, 1]).astype(np.float32)), jnp.ones(N))


ROWS = rows_of(0)


def setup(epsilon: float = 20.0, adjacency: Adjacency = Adjacency.ZERO_OUT) -> Setup:
    budget = Budget(epsilon, 1e-5, adjacency)
    return Setup.create(MODEL, adjacency, Filter("gdp", budget).price_list(), N)


def query(noise_multiplier: float, num_outer: int = OUTER, clip_norm: float = CLIP) -> MetaDescent:
    constants = (jnp.float32(value) for value in (clip_norm, RATE, noise_multiplier))
    return MetaDescent(INNER, setup(), *constants, num_outer, BLOCKS)


def blocks_of(rows: Rows) -> Rows:
    return jax.tree.map(lambda leaf: leaf.reshape(BLOCKS, N // BLOCKS, *leaf.shape[1:]), rows)


gradients = jax.jit(lambda rows: query(0.0).meta_gradients(to_vector(INNER), blocks_of(rows), jnp.array(0)))


class Heard(KeyNoise):
    """Noise that records its calls."""

    def standard(self, distribution, shape):
        self.drawn = distribution, shape
        return super().standard(distribution, shape)

    def coarse(self, noised, scale):
        self.scale = scale
        return super().coarse(noised, scale)


def test_settings_go_to_a_vector_and_back():
    protector = HAND_DESIGNED["noisygd"](Budget(1.0, 1e-5))
    vector = to_vector(protector)
    assert vector.shape == (4,)  # clipping norm, schedule, learning rate, momentum
    moved = from_vector(vector + 1.0, protector)
    np.testing.assert_allclose(to_vector(moved), vector + 1.0)
    assert moved.num_steps == protector.num_steps
    np.testing.assert_allclose(moved.scheduler.log_clip_norm, protector.scheduler.log_clip_norm + 1.0)


@pytest.mark.slow
def test_a_row_moves_the_meta_gradient_of_its_block_alone_and_by_at_most_twice_the_clipping_norm():
    plain, changed = gradients(ROWS), []
    for seed in range(20):
        random = np.random.default_rng(seed)
        line = int(random.integers(N))
        rows = ROWS.replace(x=ROWS.x.at[line].set(10.0 * random.normal(size=D)), y=ROWS.y.at[line].set(seed % 2))
        if seed % 3 == 0:
            rows = ROWS.replace(mask=ROWS.mask.at[line].set(0.0))
        neighbour, block = gradients(rows), line // (N // BLOCKS)
        others = np.arange(BLOCKS) != block
        np.testing.assert_array_equal(neighbour[others], plain[others])  # to the last bit
        sums = [limit_norm(per_block, jnp.float32(CLIP)).sum(0) for per_block in (neighbour, plain)]
        changed.append(float(jnp.linalg.norm(sums[0] - sums[1])))
    assert 0 < max(changed) <= 2 * CLIP * (1 + 1e-5)


@pytest.mark.slow
def test_noise_is_that_of_one_answer_cut_into_outer_steps():
    # K adaptive answers with multiplier m sqrt(K): mu^2 adds up to 1 / m^2.
    noise = Heard(jax.random.key(0))
    query(3.0).answer(ROWS, noise, Adjacency.ZERO_OUT)
    assert noise.drawn == ("gaussian", (OUTER, 3))  # three settings at four outer steps
    assert noise.scale == pytest.approx(3.0 * OUTER**0.5 * 2 * CLIP, rel=1e-6)
    assert float(query(3.0).bound) == pytest.approx(2 * CLIP)


@pytest.mark.slow
def test_no_part_of_a_meta_gradient_is_released_without_noise(monkeypatch):
    """The digits of an answer below the noise's own grid must depend on the noise."""
    meta_query = query(1000.0, num_outer=1)
    monkeypatch.setattr(optax, "adam", lambda rate: optax.sgd(1.0))  # the step is the noised mean itself
    width = float(meta_query.bound) / GRID_STEPS * 2.0**10  # noise is 1,000 bounds wide
    coarse_answers = []

    class Kept(HostNoise):
        def coarse(self, noised, scale):
            coarse_answers.append(super().coarse(noised, scale))
            return coarse_answers[-1]

    residues = []
    for seed in range(8):
        (bits,) = Entropy(seed).draw([Draw("gaussian", 3)], 1)
        with jax.enable_x64(True), jax.disable_jit():
            noise = Kept([jnp.asarray(bits[0])], [Draw("gaussian", 3)])
            noise.grid = grid_of(meta_query)
            rows = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), ROWS)
            monkeypatch.setattr(MetaDescent, "meta_gradients", lambda *_: jnp.full((BLOCKS, 3), 0.0123))
            meta_query.answer(rows, noise, Adjacency.ZERO_OUT)
        residues.append(np.asarray(coarse_answers[-1]) / width % 1.0)
    # All of it is on the noise's grid; rounding the noise before the sum left the gradient unprotected below it.
    assert np.all(np.isclose(residues, 0.0) | np.isclose(residues, 1.0))


@pytest.mark.long
def test_without_noise_it_is_descent_along_clipped_meta_gradients():
    params = jax.jit(lambda rows: query(0.0).answer(rows, KeyNoise(jax.random.key(0)), Adjacency.ZERO_OUT))(ROWS)
    vector = to_vector(INNER)
    meta_gradients = jax.jit(lambda vector, step: query(0.0).meta_gradients(vector, blocks_of(ROWS), step))
    optimizer = optax.adam(RATE)
    moments = optimizer.init(vector)
    for step in range(OUTER):
        each = meta_gradients(vector, jnp.array(step))
        mean = limit_norm(each, jnp.float32(CLIP)).mean(0)
        updates, moments = optimizer.update(mean, moments)
        vector = vector + updates
    np.testing.assert_allclose(params, vector, rtol=1e-4, atol=1e-5)
    assert float(jnp.abs(params - to_vector(INNER)).max()) > 0.1


@pytest.mark.long
def test_learning_lowers_the_loss_where_the_budget_is_ample():
    def loss(protector, key):
        result = private_train(ROWS, protector, Budget(500.0, 1e-5), key=key)
        assert result.card.epsilon_certified <= 500.0
        return float(mean_loss(jnp.asarray(result.params), MODEL, ROWS))

    learning = PrivateMeta(
        INNER, jnp.array([-2.0]), jnp.log(jnp.array([0.2])), jnp.log(jnp.array([0.3])), num_outer=8, num_blocks=BLOCKS
    )
    keys = jax.random.split(jax.random.key(3), 3)
    assert np.mean([loss(learning, key) for key in keys]) < np.mean([loss(INNER, key) for key in keys]) - 0.05


@pytest.mark.slow
def test_a_release_charges_for_learning_and_for_the_run():
    learning = PrivateMeta(
        INNER, jnp.array([0.0]), jnp.log(jnp.array([0.2])), jnp.log(jnp.array([0.3])), num_outer=2, num_blocks=BLOCKS
    )
    result = private_train(ROWS, learning, Budget(1.0, 1e-5))
    assert [row.query for row in result.trace] == ["meta_descent"] + ["clipped_gradient"] * INNER.num_steps
    spent = [float(row.noise_multiplier) ** -2 for row in result.trace]
    assert spent[0] == pytest.approx(sum(spent[1:]), rel=1e-3)  # half for each
    assert result.card.private_release
    assert 0.99 < result.card.epsilon_certified <= 1.0


@pytest.mark.slow
def test_tables_that_may_grow_and_batches_are_refused():
    with pytest.raises(InputError, match="add_remove"):
        private_train(ROWS, "private_meta", Budget(1.0, 1e-5, Adjacency.ADD_REMOVE))
    sampled = dataclasses.replace(INNER, sampler=Poisson(0.1))
    protector = PrivateMeta(sampled, jnp.array([0.0]), jnp.array([0.0]), jnp.array([0.0]))
    with pytest.raises(InputError, match="full batch"):
        private_train(ROWS, protector, Budget(1.0, 1e-5))
