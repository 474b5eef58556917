"""Sums of clipped per-row gradients for a loop: what a row adds, and what cannot pass for such a sum."""

import chex
import equinox as eqx
import jax
import jax.numpy as jnp
import jax_privacy
import numpy as np
import optax
import pytest
from flax import nnx

import l2p
from l2p.base.errors import InputError
from l2p.release.losses.clipped_sum import ClippedSum, Clipping
from tests.release.losses import DATA, NETWORKS, NUM_ROWS, START, cross_entropy, logistic, table

POINT = (jnp.array([0.5, -1.0, 2.0]), jnp.array([0.3]))
SUM = l2p.clipped_sum(logistic, POINT, DATA, 0.3)


def by_hand(loss, params, data, factor):
    """The sum of per-row gradients f64[p], each times `factor` of its length."""
    total = 0.0
    for place in range(len(jax.tree.leaves(data)[0])):
        row = jax.tree.map(lambda leaf: leaf[place], data)  # noqa: B023
        gradient = np.concatenate(list(map(np.ravel, jax.tree.leaves(jax.grad(loss)(params, row))))).astype(np.float64)
        total += gradient * factor(np.linalg.norm(gradient))
    return total


def clipped(norm):
    return lambda length: min(1.0, norm / length)


@pytest.mark.parametrize(
    ("clipping", "factor"),
    [(0.3, clipped(0.3)), (Clipping(0.3, stability=0.2), lambda length: 0.3 / (length + 0.2))],
    ids=["clipped", "normalised"],
)
def test_it_is_the_sum_of_gradients_of_bounded_length(clipping, factor):
    few = table(20)
    total = l2p.clipped_sum(logistic, POINT, few, clipping)
    np.testing.assert_allclose(total.total, by_hand(logistic, POINT, few, factor), rtol=1e-4, atol=1e-5)
    assert [leaf.shape for leaf in total.tree] == [(3,), (1,)]


def test_each_array_is_clipped_by_itself_to_its_share_of_the_norm():
    few, clipping = table(20), Clipping(0.3, per_tensor=lambda path: {"0": 3.0, "1": 4.0}[path])
    total = l2p.clipped_sum(logistic, POINT, few, clipping)
    apart = [0.0, 0.0]
    for row in range(20):
        gradients = jax.grad(logistic)(POINT, jax.tree.map(lambda leaf: leaf[row], few))  # noqa: B023
        for place, (gradient, norm) in enumerate(zip(gradients, (0.18, 0.24), strict=True)):
            apart[place] += np.asarray(gradient, np.float64) * clipped(norm)(np.linalg.norm(gradient))
    chex.assert_trees_all_close(total.tree, tuple(apart), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:optax.global_norm is deprecated")  # within jax-privacy
def test_jax_privacy_gives_the_same_sum_and_adds_noise_to_it():
    mask = np.arange(NUM_ROWS) % 3 > 0
    clipped_grad = jax_privacy.clipped_grad(logistic, batch_argnums=1, keep_batch_dim=False, l2_clip_norm=0.3)
    theirs = clipped_grad(POINT, jax.tree.map(jnp.asarray, DATA), is_padding_example=jnp.asarray(~mask))
    ours = l2p.clipped_sum(logistic, POINT, DATA, 0.3, mask=mask)
    chex.assert_trees_all_close(ours.tree, theirs, rtol=1e-5, atol=1e-5)
    privatizer = jax_privacy.noise_addition.gaussian_privatizer(stddev=1.0, prng_key=0)
    noised, _ = privatizer.update(ours.tree, privatizer.init(POINT))
    chex.assert_trees_all_equal_shapes(noised, POINT)


def test_masked_rows_and_rows_that_are_not_finite_add_nothing_and_no_row_adds_more_than_one():
    data = table(12)
    data["x"][3, 1], data["x"][5, 0] = np.nan, np.inf
    mask = np.array([1, 0, 1, 1, 1, 1, 7, -1, np.nan, 1, 1, 1])  # no weights: a row counts or it does not
    rest = {name: array[[0, 2, 4, 6, 9, 10, 11]] for name, array in data.items()}
    total_of = jax.jit(lambda mask: l2p.clipped_sum(logistic, POINT, data, 0.3, mask=mask).total)
    np.testing.assert_allclose(total_of(mask), by_hand(logistic, POINT, rest, clipped(0.3)), rtol=1e-4, atol=1e-5)
    assert not np.asarray(total_of(np.zeros(12))).any()
    empty = l2p.clipped_sum(logistic, POINT, {name: array[:0] for name, array in data.items()}, 0.3)
    assert np.array_equal(empty.total, np.zeros(4))


@pytest.mark.parametrize("library", NETWORKS)
def test_a_row_adds_the_same_whatever_stands_beside_it(library):
    params, apply = NETWORKS[library]()
    arrays, rest = eqx.partition(params, eqx.is_inexact_array)

    def loss(arrays, row):
        return cross_entropy(apply)(eqx.combine(arrays, rest), row)

    total_of = jax.jit(lambda arrays, data, mask: l2p.clipped_sum(loss, arrays, data, 0.3, mask=mask).total)
    first, second = table(8, seed=1), table(8, seed=2)
    second["x"][0], second["y"][0] = first["x"][0], first["y"][0]
    everyone, others = np.ones(8), np.arange(8)
    shared = [np.asarray(total_of(arrays, data, everyone) - total_of(arrays, data, others)) for data in (first, second)]
    np.testing.assert_allclose(*shared, atol=2e-6)
    assert np.linalg.norm(shared[0]) == pytest.approx(0.3, rel=1e-3)


def test_sums_of_two_parts_of_a_batch_add_up_and_leave_and_enter_jit():
    part = jax.jit(lambda data: l2p.clipped_sum(logistic, POINT, data, 0.3))
    parts = [part({name: array[place] for name, array in DATA.items()}) for place in (slice(0, 150), slice(150, 300))]
    whole = parts[0] + parts[1]
    assert whole.num_lines == NUM_ROWS
    np.testing.assert_allclose(whole.total, SUM.total, rtol=1e-5, atol=1e-4)
    with pytest.raises(InputError, match="other clip norms or other parameters do not add up"):
        whole + l2p.clipped_sum(logistic, POINT, DATA, 0.5)


COMPUTED = {
    "a mean": lambda value: value / 32,
    "a multiple": lambda value: 2 * value,
    "its negative": lambda value: -value,
    "a difference": lambda value: value - value,
    "with a number added": lambda value: value + 1.0,
    "a square": lambda value: value**2,
}
#: What JAX raises where it is to compute with a key.
REFUSED = (TypeError, ValueError, NotImplementedError, AttributeError, InputError)
OF_ARRAYS = COMPUTED | {
    "twice itself": lambda leaf: leaf + leaf,
    "clipped again": lambda leaf: jnp.clip(leaf, -1, 1),
    "narrower": lambda leaf: leaf.astype(jnp.float16),
    "its own sum": jnp.sum,
}


@pytest.mark.parametrize("case", COMPUTED)
def test_a_sum_that_is_computed_with_says_why_not(case):
    with pytest.raises(InputError, match="noise that is planned for it covers the sum alone; hand it"):
        COMPUTED[case](SUM)


@pytest.mark.parametrize("case", OF_ARRAYS)
def test_its_arrays_cannot_be_computed_with_one_by_one_either(case):
    for compute in (jax.tree.map, jax.jit(jax.tree.map, static_argnums=0)):
        with pytest.raises(REFUSED):
            compute(OF_ARRAYS[case], SUM)


def test_clipping_a_sum_once_more_or_adding_noise_to_it_fails():
    for other in (optax.clip_by_global_norm(1.0), optax.scale(2.0), optax.add_noise(0.1, 0.5, 0)):
        with pytest.raises(REFUSED):
            other.update(SUM, other.init(POINT), POINT)
    assert repr(SUM) == "ClippedSum(not shown)"


def test_norms_are_of_float32_where_parameters_are_narrower():
    for dtype in (jnp.bfloat16, jnp.float16):
        narrow = jax.tree.map(lambda leaf: leaf.astype(dtype), POINT)  # noqa: B023
        single = {name: array[:1] for name, array in DATA.items()}
        total = l2p.clipped_sum(logistic, narrow, single, 1e-3)
        assert total.total.dtype == jnp.float32
        assert np.linalg.norm(total.total) == pytest.approx(1e-3, rel=1e-5)


def test_numbers_that_float32_would_round_make_null_rows():
    def loss(params, row):
        return params * row["token"].astype(jnp.float32)

    for dtype in (np.int64, np.uint32, np.int32):
        data = {"token": np.array([7, 2**24 + 1, 3], dtype)}
        assert l2p.clipped_sum(loss, jnp.zeros(()), data, 100.0).total.tolist() == [10.0]


def test_what_is_frozen_has_no_gradient_and_may_be_traced():
    def loss(params, row):
        return logistic(params["head"], row) + params["base"].sum()

    clipping = Clipping(0.3, trainable=lambda path: path.startswith("head"))
    total_of = jax.jit(lambda params: l2p.clipped_sum(loss, params, DATA, clipping))
    total = total_of({"head": POINT, "base": jnp.ones(3)})
    np.testing.assert_allclose(total.total, SUM.total, rtol=1e-5)
    assert total.tree["base"] is None


def test_memory_does_not_grow_with_the_batch():
    def temporary(num_rows):
        total_of = jax.jit(lambda params, data: l2p.clipped_sum(logistic, params, data, 0.3))
        program = total_of.lower(POINT, table(num_rows)).compile()
        return program.memory_analysis().temp_size_in_bytes / num_rows

    assert temporary(8192) <= 1.2 * temporary(2048)  # rows that are laid out once, and no gradients of all of them


def dropped(params, row, key):
    weights, bias = params
    mask = jax.random.bernoulli(key, 0.5, row["x"].shape)
    return logistic((weights * mask, bias), row)


def test_a_loss_that_draws_gets_a_key_of_its_row_and_of_params_alone():
    def loss(params, row, key):
        return jnp.sum(params * jax.random.normal(key, (2,))) + 0.0 * row["x"].sum()

    total_of = jax.jit(lambda params, data, mask: l2p.clipped_sum(loss, params, data, 100.0, mask=mask).total)

    def drawn(places, start=0.0, first=0):
        data = {name: np.roll(array, -first, axis=0) for name, array in DATA.items()}
        return np.asarray(total_of(jnp.full(2, start), data, np.isin(np.arange(NUM_ROWS), places)))

    alone = drawn([7])
    np.testing.assert_array_equal(alone, drawn([2], first=5))  # at another place, beside others
    assert len({drawn([place], start).tobytes() for place in range(20) for start in (0.0, 1e-6)}) == 40
    # Standard normal, and independent, if keys are unlike each other.
    sums = np.concatenate([drawn(range(NUM_ROWS), start) for start in np.linspace(0, 1, 60)]) / NUM_ROWS**0.5
    assert sums.std() == pytest.approx(1.0, abs=0.25)
    assert abs(sums.mean()) < 0.4


def test_a_network_with_dropout_trains_in_both_doors():
    budget, key = l2p.Budget(8.0, 1e-4), jax.random.key(0)
    protector = l2p.load("noisygd", budget).replace(num_steps=3)
    result = l2p.private_train(DATA, protector, budget, model=dropped, params=START, key=key)
    assert np.isfinite(np.concatenate(result.params)).all()
    assert l2p.clipped_sum(dropped, POINT, DATA, 1.0).total.shape == (4,)


class Dropping(nnx.Module):
    def __init__(self, rngs):
        self.linear, self.dropout = nnx.Linear(3, 2, rngs=rngs), nnx.Dropout(0.5)

    def __call__(self, x, key):
        return self.linear(self.dropout(x, rngs=key))


def test_dropout_of_nnx_takes_the_key():
    graph, params, rest = nnx.split(Dropping(nnx.Rngs(0)), nnx.Param, ...)

    def loss(params, row, key):
        logits = nnx.merge(graph, params, rest)(row["x"], key)
        return optax.softmax_cross_entropy_with_integer_labels(logits, row["y"])

    assert isinstance(l2p.clipped_sum(loss, params, DATA, 1.0), ClippedSum)
