"""Closed forms of the gradients of a user's loss: they add up to what `jax.grad` gives, and apply where they should."""

import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import l2p
from l2p.oracle.sums import add_quantized
from l2p.queries import ClippedGradient
from l2p.release.losses.custom import custom
from l2p.task.exact_sums import MARGIN, ExactSum, as_they_are
from l2p.task.feature_map import FeatureMap
from tests.release.losses import DATA, NETWORKS, cross_entropy

NUM_ROWS, RANDOM = 6, np.random.default_rng(0)
#: Words repeat within a row, and one is beyond the table.
ROWS = {
    "x": RANDOM.normal(size=(NUM_ROWS, 5)).astype(np.float32),
    "places": RANDOM.normal(size=(NUM_ROWS, 3, 8)).astype(np.float32),
    "words": RANDOM.integers(10, 13, (NUM_ROWS, 4)) * [1, 1, 1, 2],
    "class": np.arange(NUM_ROWS),
}


def dense(params, row):
    hidden = jax.nn.relu(row["x"] @ params["in"].reshape(2, 2, 5).T.reshape(5, 4) + params["bias"])
    return jnp.tanh(params["out"] @ hidden).sum()


def tied(params, row):
    return jnp.square(jnp.tanh(row["x"] @ params["in"]) @ params["in"].T - row["x"]).sum()


def over_places(params, row):
    hidden = nn.Dense(8).apply({"params": params["dense"]}, row["places"])
    return jnp.square(jnp.tanh(hidden) @ params["few"]).sum()


def embedding(params, row):
    bag = jnp.take(params["table"], row["words"], axis=0, mode="clip") + params["small"][row["words"] % 3]
    drawn = params["bytes"].at[row["class"].astype(jnp.uint8)].get(mode="promise_in_bounds")
    return jnp.tanh(bag.sum(0)).sum() * params["scale"][row["class"]] + drawn


def convolution(params, row):
    image = jax.lax.conv_general_dilated(row["places"][None, None], params["kernel"], (1, 1), "SAME")
    return jnp.sin(image.ravel() @ params["out"])


def in_loops(params, row):
    def step(state, place):
        return jnp.tanh(state @ params["cell"] + place @ params["in"]), None

    return jax.lax.scan(step, jnp.zeros(4), row["places"])[0] @ params["out"]


def adapted(params, row):
    merged = row["x"] @ (1.0 + params["left"] @ params["right"])
    rounded = params["rounded"].astype(jnp.int32).astype(jnp.float32)  # without a derivative
    return jnp.tanh(merged).sum() + jnp.tanh(row["x"] @ params["down"]) @ params["up"] + row["x"] @ rounded


W, P, L = "Whole", "Product", "Lookup"
#: By name: a loss, the shapes of its parameters and, in their order, the forms of a simulation and of a release.
LOSSES = {
    "dense": (dense, {"bias": (4,), "in": (4, 5), "out": (2, 4), "unused": (2, 2)}, [W, P, P, W], [W, P, P, W]),
    "tied": (tied, {"in": (5, 4)}, [W], [W]),
    "over places": (
        over_places,
        {"dense": {"bias": (8,), "kernel": (8, 8)}, "few": (8, 2)},
        [W, P, W],
        [W, W, W],
    ),
    "embedding": (
        embedding,
        {"bytes": (300,), "scale": (6,), "small": (3, 2), "table": (16, 2)},
        [L, L, W, L],
        [L, L, W, L],
    ),
    "convolution": (convolution, {"kernel": (2, 1, 3, 3), "out": (48,)}, [W, P], [W, P]),
    "in loops": (in_loops, {"cell": (4, 4), "in": (8, 4), "out": (4,)}, [W, W, P], [W, W, P]),
    "adapted": (
        adapted,
        {"down": (5, 2), "left": (5, 2), "right": (2, 3), "rounded": (5,), "up": (2,)},
        [P, W, W, W, P],
        [P, W, W, W, P],
    ),
}


def random_params(shapes):
    random = np.random.default_rng(1)
    draw = lambda shape: jnp.asarray(random.normal(size=shape), jnp.float32)  # noqa: E731
    return jax.tree.map(draw, shapes, is_leaf=lambda shape: isinstance(shape, tuple))


@jax.jit
def summed(query, rows):
    """Clipped sums of per-row gradients: formed one by one, of a simulation, of a release."""
    limited = query.limit(query.contributions(rows))
    exact = add_quantized(query, as_they_are(rows.x, rows.y, rows.mask), ExactSum.empty(len(query.params)))
    return rows.mask @ limited, query.add(query.empty(), rows), exact.value


def agree(data, loss, params, simulated, released, clip_norm=1.0):
    rows, model, start = custom(data, loss, params)
    query = ClippedGradient(
        model, start, FeatureMap.identity(model.rows.size), jnp.float32(clip_norm), jnp.float32(1.0)
    )
    for exact, forms in ((False, simulated), (True, released)):
        assert [type(form).__name__ for form in model._row_gradient(exact).forms] == forms
    with jax.enable_x64(True):
        formed, simulation, release = summed(query, jax.tree.map(jnp.asarray, rows))
    assert np.abs(formed).max() > 0.1
    np.testing.assert_allclose(simulation, formed, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(release, formed, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("name", LOSSES)
def test_closed_forms_add_up_the_gradients_that_jax_gives(name):
    loss, shapes, simulated, released = LOSSES[name]
    agree(ROWS, loss, random_params(shapes), simulated, released)


@pytest.mark.parametrize("library", NETWORKS)
def test_layers_of_any_library_have_a_closed_form(library):
    params, apply = NETWORKS[library]()
    forms = [P, W, P, W] if library == "equinox" else [W, P, W, P]
    data = {name: array[:NUM_ROWS] for name, array in DATA.items()}
    agree(data, cross_entropy(apply), params, forms, forms, clip_norm=0.5)


def every_form(params, row):
    """Whole gradients, products and lookups, and no gradient for a row whose numbers add up to less than 0."""
    hidden = jnp.tanh(row["x"] @ params["in"] + params["bias"] + params["table"][row["words"]].sum(0))
    return jnp.log(row["x"].sum()) * jnp.tanh(hidden @ params["out"]) + jnp.square(hidden * row["x"].sum()).sum()


def of_every_form(data, clip_norm):
    params = random_params({"bias": (8,), "in": (40, 8), "out": (8,), "table": (30, 8)})
    rows, model, start = custom(data, every_form, params)
    assert [type(form).__name__ for form in model._row_gradient(True).forms] == [W, P, P, L]
    return ClippedGradient(model, start, FeatureMap.identity(41), jnp.float32(clip_norm), jnp.float32(1.0)), rows


@jax.jit
def released(query, x, mask):
    total = add_quantized(query, as_they_are(x, jnp.zeros_like(mask), mask), ExactSum.empty(len(query.params)))
    return total.steps, total.value


def hostile(num_rows):
    """Rows so large or small that float32 overflows, that have no gradient, that are not finite, and common ones."""
    sizes = [1e38, 1e19, 1e-19, 1e-40, 0.0, np.nan, np.inf, -1.0, 1.0]
    random = np.random.default_rng(2)
    x = random.uniform(size=(num_rows, 40)).astype(np.float32) * np.resize(sizes, num_rows)[:, None]
    return {"x": x.astype(np.float32), "words": random.integers(0, 40, (num_rows, 1))}


def test_a_row_adds_the_same_to_the_last_bit_at_any_place_beside_any_rows():
    data = hostile(64)
    query, rows = of_every_form(data, 0.7)
    own = np.append(np.linspace(0, 1, 40), 3.0).astype(np.float32)
    everyone, nobody = np.ones(64, np.float32), np.zeros(64, np.float32)
    adds = []
    with jax.enable_x64(True):
        for place in range(64):
            x, alone, without = rows.x.copy(), nobody.copy(), everyone.copy()
            x[place], alone[place], without[place] = own, 1.0, 0.0
            beside, others, by_itself = (np.asarray(released(query, x, mask)[0]) for mask in (everyone, without, alone))
            assert np.array_equal(beside, others + by_itself)
            adds.append(by_itself)
    assert np.abs(adds[0]).max() > 1000
    assert all(np.array_equal(added, adds[0]) for added in adds)


@pytest.mark.parametrize("bound", [1e-6, 0.7, 1e2])
def test_no_row_adds_more_than_the_bound_and_the_margin(bound):
    data = hostile(64)
    data["x"] = data["x"] * np.logspace(-6, 0, 64, dtype=np.float32)[:, None]
    query, rows = of_every_form(data, bound)
    with jax.enable_x64(True):
        lengths = [
            np.linalg.norm(released(query, rows.x, np.eye(64, dtype=np.float32)[place])[1]) for place in range(64)
        ]
    assert max(lengths) <= np.float32(bound) * (1.0 + MARGIN)
    assert max(lengths) >= bound * (1.0 - 2.0**-12)
    assert min(lengths) == 0.0


def squared(params, row):
    return jnp.square(row["x"] @ params - row["y"]) / 2


def over_four_places(params, row):
    return jnp.vdot(row["x"] @ params, row["y"])


def hostile_to_float32():
    """Losses and rows whose gradients are long, and a norm of which float32 might lose: small activations under large
    derivatives, of which a square is 0 and places that cancel, all but what rounding makes of them."""
    for small, large in ((1e-19, 1.8e19), (1e-39, 1e38), (1e-30, 1e30), (3e38, 1e-37)):
        yield squared, (2000,), {"x": np.full(2000, small), "y": np.array(large)}
    random = np.random.default_rng(4)
    common, noise, vector = random.normal(size=(1, 64)), random.normal(size=(4, 64)), random.normal(size=(1, 64))
    signs = np.array([[1], [-1], [1], [-1]])
    yield over_four_places, (64, 64), {"x": 1e6 * common + noise, "y": signs * vector}


def test_no_row_adds_more_than_the_bound_to_a_sum_of_float32():
    for loss, shape, row in hostile_to_float32():
        data = {name: array.astype(np.float32)[None] for name, array in row.items()}
        total = l2p.clipped_sum(loss, jnp.zeros(shape), data, 1.0).total
        assert np.linalg.norm(np.asarray(total, np.float64)) <= 1.0 + 1e-5


def cancelling(num_rows):
    """Rows, all null but one, whose product less itself as it is rounded and less its rounding error is nothing where
    the two are fused, and not where the product is rounded first."""
    random, factor = np.random.default_rng(0), np.float32(1 + 2**-23 * 1234567)
    first = (1 + random.integers(1, 2**12, 9000) * 2.0**-12).astype(np.float32)
    product = first * factor
    error = (first.astype(np.float64) * factor - product).astype(np.float32)
    chosen = np.flatnonzero(np.abs(error) > 0.3 * np.spacing(product))[:33]
    rows = {name: np.zeros((num_rows, 33), np.float32) for name in ("first", "product", "error")}
    rows |= {"factor": np.zeros((num_rows, 4), np.float32)}
    rows["first"][0], rows["product"][0], rows["error"][0] = first[chosen], product[chosen], error[chosen]
    rows["factor"][0, 0] = factor
    return rows


@pytest.mark.parametrize("num_rows", [1, 64, 257])
@pytest.mark.parametrize("rounded", [False, True])
def test_a_row_whose_numbers_cancel_adds_no_more_to_a_compiled_sum(num_rows, rounded):
    def loss(params, row):
        return params @ (1e12 * (row["first"] * row["factor"].sum() - row["product"] - row["error"]))

    rows = cancelling(num_rows)
    if rounded:
        rows["error"][:] = 0.0
    total = jax.jit(lambda rows: l2p.clipped_sum(loss, jnp.zeros(33), rows, 1.0).total)(rows)
    assert np.linalg.norm(np.asarray(total, np.float64)) <= 1.0 + 1e-5


def test_a_row_s_numbers_are_computed_once_for_its_length_and_its_sum():
    data = dict.fromkeys(("first", "second", "third"), np.ones((64, 3), np.float32))

    def loss(params, row):  # whose derivative may cancel, so that a fused product differs from one that is rounded
        return params @ (row["first"] * row["second"] - row["third"])

    rows, model, start = custom(data, loss, jnp.zeros(3))
    query = ClippedGradient(model, start, FeatureMap.identity(9), jnp.float32(1.0), jnp.float32(1.0))
    with jax.enable_x64(True):
        stacked = as_they_are(*map(jnp.asarray, (rows.x, rows.y, rows.mask)))
        one_block = stacked.replace(block=jax.tree.map(lambda leaf: leaf[0], stacked.block))
        program = jax.jit(lambda query, rows: query.exact(rows).steps).lower(query, one_block).compile().as_text()
    assert len(re.findall(r"= f32\S* subtract\(", program)) == 1
