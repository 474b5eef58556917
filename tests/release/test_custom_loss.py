"""A loss of one's own, from a pytree of rows to a card: the same flow as for tables."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import l2p
from l2p.models import Logistic
from l2p.oracle.sums import add_quantized, exact_sum
from l2p.privacy.cost.sampling import Poisson
from l2p.queries import ClippedGradient
from l2p.release.custom import custom
from l2p.release.verification import verify
from l2p.run import run
from l2p.task.exact_sums import ExactSum, as_they_are
from l2p.task.feature_map import FeatureMap
from l2p.task.rows import Rows
from tests.release.losses import DATA, NETWORKS, NUM_FEATURES, NUM_ROWS, START, above, cross_entropy, logistic, table

BUDGET, KEY = l2p.Budget(4.0, 1e-4), jax.random.key(3)
ROWS = Rows(DATA["x"], DATA["y"].astype(np.float32), np.ones(NUM_ROWS, np.float32))
POINT = jnp.array([0.5, -1.0, 2.0, 0.3])


def train(protector, data=DATA, loss=logistic, params=START, budget=BUDGET, **options):
    return l2p.private_train(data, protector, budget, model=loss, params=params, **options)


def shortened(name, num_steps=4):
    return l2p.load(name, BUDGET).replace(num_steps=num_steps)


@pytest.mark.slow(but=["noisygd"])
@pytest.mark.parametrize("name", ["noisygd", "dpsgd", "auto_clip", "agd"])
def test_the_loss_of_a_named_model_is_that_model(name):
    protector = shortened(name)
    ours, named = train(protector, key=KEY), l2p.private_train(ROWS, protector, BUDGET, key=KEY)
    np.testing.assert_allclose(np.concatenate(ours.params), named.params, rtol=1e-4, atol=1e-5)
    assert ours.card.events == named.card.events
    assert ours.card.epsilon_certified == named.card.epsilon_certified


def query(data, loss=logistic, params=START, clip_norm=0.3, at=POINT):
    """(query, rows) of a gradient sum; `at` None is where training starts."""
    rows, model, start = custom(data, loss, params)
    identity = FeatureMap.identity(model.rows.size)
    at = start if at is None else at
    return ClippedGradient(model, at, identity, jnp.float32(clip_norm), jnp.float32(1)), jax.tree.map(jnp.asarray, rows)


@jax.jit
def released_sum(asked, rows):
    """The sum f64[p] of a release, in whole steps of its unit."""
    total = ExactSum.empty(asked.params.shape[0])
    return add_quantized(asked, as_they_are(rows.x, rows.y, rows.mask), total).steps


def test_a_release_adds_up_what_the_named_model_adds_up():
    asked, rows = query(DATA)
    named = dataclasses.replace(asked, model=Logistic(), features=FeatureMap.identity(NUM_FEATURES))
    plain = jax.tree.map(jnp.asarray, ROWS)
    with jax.enable_x64(True):
        steps = released_sum(asked, rows)
        by_name = jax.jit(exact_sum)(named, plain)
        np.testing.assert_allclose(steps * 0.3 * 2.0**-20, by_name.value, atol=NUM_ROWS * 2.0**-20)
    np.testing.assert_allclose(asked.add(asked.empty(), rows), by_name.value, rtol=1e-4)


def test_a_row_adds_the_same_to_the_last_bit_whatever_stands_beside_it():
    everything, part = table(150, seed=1), {name: array[37:101] for name, array in table(150, seed=1).items()}
    rest = {name: np.delete(array, slice(37, 101), axis=0) for name, array in everything.items()}
    params, apply = NETWORKS["linen"]()
    loss = cross_entropy(apply)
    with jax.enable_x64(True):
        whole, first, second = (
            np.asarray(released_sum(*query(data, loss, params, at=None))) for data in (everything, part, rest)
        )
    assert np.array_equal(whole, first + second)
    assert np.abs(whole).max() > 1000


def test_memory_does_not_grow_with_the_rows():
    def temporary(num_rows):
        asked, rows = query(table(num_rows))
        simulated = jax.jit(lambda asked, rows: asked.add(asked.empty(), rows)).lower(asked, rows)
        # What `as_they_are` makes is a copy of the rows and no more; the sum is what is measured.
        with jax.enable_x64(True):
            stacked = as_they_are(rows.x, rows.y, rows.mask)
            summed = jax.jit(lambda asked, stacked: add_quantized(asked, stacked, ExactSum.empty(4)).steps)
            lowered = simulated, summed.lower(asked, stacked)
            return [program.compile().memory_analysis().temp_size_in_bytes for program in lowered]

    simulated, exact = temporary(2048)
    many_simulated, many_exact = temporary(8192)
    assert many_exact <= exact + 4096
    assert many_simulated <= 4.2 * simulated  # rows that are laid out in microbatches once


@pytest.mark.parametrize("library", NETWORKS)
def test_networks_of_any_library_come_back_as_they_were_given(library):
    params, apply = NETWORKS[library]()
    protector = shortened("dpsgd", 2).replace(sampler=Poisson(0.1))
    result = train(
        protector,
        loss=cross_entropy(apply),
        params=params,
        key=KEY,
        predict=lambda params, row: apply(params, row).argmax(),
    )
    chex.assert_trees_all_equal_structs(result.params, params)
    chex.assert_trees_all_equal_shapes(
        *(list(filter(lambda leaf: hasattr(leaf, "shape"), jax.tree.leaves(tree))) for tree in (result.params, params))
    )
    assert result.steps == 2
    assert result.card.num_features == NUM_FEATURES + 1
    assert result.predict(DATA["x"][:7]).shape == (7,)


def test_a_release_has_a_card_that_is_verified_and_priced_again_and_a_ledger(tmp_path):
    l2p_ledger = Ledger.create(tmp_path / "ward.ledger", "ward", BUDGET)
    result = train(shortened("noisygd"), ledger=l2p_ledger, budget=l2p.Budget(1.0, 1e-5))
    card = result.card
    assert card.private_release
    assert card.model == "custom:4"
    assert card.float_mode.startswith("exact: ")
    assert card.filter().certify(card.answered(), card.adaptive_noise) == card.epsilon_certified <= 1.0
    assert card.composition["spent_before"] == 0 < card.composition["counted"]
    result.save(tmp_path / "run")
    loaded = l2p.load_params(tmp_path / "run", START)
    chex.assert_trees_all_equal(loaded, result.params)
    assert l2p.Card.from_json(tmp_path / "run" / "card.json") == card
