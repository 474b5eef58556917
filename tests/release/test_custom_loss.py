"""A loss of one's own, from a pytree of rows to a card: the same flow as for tables."""

import dataclasses
from typing import ClassVar

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import l2p
from l2p.base import struct
from l2p.base.errors import InputError
from l2p.checkpoints.defaults import default_for
from l2p.models import Logistic
from l2p.oracle.sums import add_quantized, exact_sum
from l2p.privacy.cost.sampling import Poisson
from l2p.privacy.independent import compose
from l2p.privacy.ledger.ledger import Ledger
from l2p.privacy.ledger.reservation import limit_of
from l2p.queries import ClippedGradient
from l2p.release.losses.custom import custom
from l2p.release.verification import verify
from l2p.task.exact_sums import MARGIN, ExactSum, as_they_are
from l2p.task.feature_map import FeatureMap
from l2p.task.rows import Rows
from tests.release.losses import DATA, NETWORKS, NUM_FEATURES, NUM_ROWS, START, above, cross_entropy, logistic, table
from tests.release.tables import Echo

BUDGET, KEY = l2p.Budget(4.0, 1e-4), jax.random.key(3)
ROWS = Rows(DATA["x"], DATA["y"].astype(np.float32), np.ones(NUM_ROWS, np.float32))
POINT = jnp.array([0.5, -1.0, 2.0, 0.3])


def train(protector, data=DATA, loss=logistic, params=START, budget=BUDGET, **options):
    return l2p.private_train(data, protector, budget, model=loss, params=params, **options)


def shortened(name, num_steps=4):
    return l2p.load(name, BUDGET).replace(num_steps=num_steps)


@pytest.mark.long(but=["noisygd"])
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
def released_sum(gradient_sum, rows):
    """The sum [p] of a release."""
    total = ExactSum.empty(gradient_sum.params.shape[0])
    return add_quantized(gradient_sum, as_they_are(rows.x, rows.y, rows.mask), total)


def test_a_release_adds_up_what_the_named_model_adds_up():
    gradient_sum, rows = query(DATA)
    named = dataclasses.replace(gradient_sum, model=Logistic(), features=FeatureMap.identity(NUM_FEATURES))
    plain = jax.tree.map(jnp.asarray, ROWS)
    with jax.enable_x64(True):
        by_name = np.asarray(jax.jit(exact_sum)(named, plain).value)
        np.testing.assert_allclose(released_sum(gradient_sum, rows).value, by_name, atol=NUM_ROWS * 2.0**-20)
    np.testing.assert_allclose(gradient_sum.add(gradient_sum.empty(), rows), by_name, rtol=1e-4)


def test_a_row_adds_the_same_to_the_last_bit_whatever_stands_beside_it():
    everything, part = table(150, seed=1), {name: array[37:101] for name, array in table(150, seed=1).items()}
    rest = {name: np.delete(array, slice(37, 101), axis=0) for name, array in everything.items()}
    params, apply = NETWORKS["linen"]()
    loss = cross_entropy(apply)
    with jax.enable_x64(True):
        whole, first, second = (
            np.asarray(released_sum(*query(data, loss, params, at=None)).steps) for data in (everything, part, rest)
        )
    assert np.array_equal(whole, first + second)
    assert np.abs(whole).max() > 1000


@pytest.mark.slow
def test_memory_does_not_grow_with_the_rows():
    def temporary(num_rows):
        gradient_sum, rows = query(table(num_rows))
        simulated = jax.jit(lambda gradient_sum, rows: gradient_sum.add(gradient_sum.empty(), rows)).lower(
            gradient_sum, rows
        )
        # What `as_they_are` makes is a copy of the rows and no more; the sum is what is measured.
        with jax.enable_x64(True):
            stacked = as_they_are(rows.x, rows.y, rows.mask)
            summed = jax.jit(
                lambda gradient_sum, stacked: add_quantized(gradient_sum, stacked, ExactSum.empty(4)).steps
            )
            lowered = simulated, summed.lower(gradient_sum, stacked)
            return [program.compile().memory_analysis().temp_size_in_bytes for program in lowered]

    simulated, exact = temporary(2048)
    many_simulated, many_exact = temporary(8192)
    assert many_exact <= exact + 4096
    assert many_simulated <= simulated + 4096


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
    composed = compose(result.card.filter(), result.card.answered(), result.card.adaptive_noise)
    assert 0.7 * result.card.epsilon_certified < composed.epsilon <= result.card.epsilon_certified


def test_a_release_has_an_entry_in_the_ledger_and_a_card_that_is_verified_and_priced_again(tmp_path):
    budget, limit = l2p.Budget(1.0, 1e-5), l2p.Budget(3.0, 1e-5)
    ledger = Ledger.create(tmp_path / "ward.ledger", "ward", limit, "gdp", limit_of("gdp", limit))
    result = train("noisygd", ledger=ledger, budget=budget, predict=above)
    card = result.card
    assert card.private_release
    assert card.model == "custom:4"
    assert card.float_mode.startswith("exact: ")
    assert card.not_private[0].startswith("Public by declaration: the loss and all that it reads besides one row")
    (entry,) = ledger.entries()
    assert (entry.state, entry.counted.amount) == ("settled", card.composition["counted"])
    findings = verify(card)
    assert (findings.known_by, findings.problems, findings.remarks) == ("name", [], [])
    assert findings.compared
    assert findings.rehearsed
    for edit in ({"max_steps": 60, "steps": 60}, {"model": "custom:many"}):
        assert verify(dataclasses.replace(card, **edit)).problems
    composed = compose(card.filter(), card.answered(), card.adaptive_noise)
    assert composed.epsilon == pytest.approx(card.epsilon_certified, rel=1e-3)

    result.save(tmp_path / "run")
    assert l2p.Card.from_json(tmp_path / "run" / "card.json") == card
    chex.assert_trees_all_equal(l2p.load_params(tmp_path / "run", START), result.params)
    with pytest.raises(InputError, match="'1', for which params have no place"):
        l2p.load_params(tmp_path / "run", (START[0], jnp.zeros(2)))
    with pytest.raises(InputError, match=r"a loss of your own, which does not say what it predicts"):
        l2p.load_model(tmp_path / "run")


def test_what_is_frozen_stays_and_the_rest_is_trained():
    params = {"adapter": START, "name": "base", "base": {"w": np.float16([1.0, 0.0, 2.0]), "steps": np.arange(3)}}

    def loss(params, row):
        assert params["name"] == "base"
        return logistic(params["adapter"], row) + 0.0 * params["base"]["w"].sum()

    trained = {"data": table(100), "params": params, "trainable": lambda path: path.startswith("adapter")}
    result = train(shortened("noisygd", 1), loss=loss, **trained, key=KEY)
    assert result.card.model == "custom:4"
    assert result.params["base"]["w"] is params["base"]["w"]
    assert result.params["base"]["steps"] is params["base"]["steps"]
    assert not np.array_equal(result.params["adapter"][0], START[0])


def test_norms_are_of_float32_where_parameters_are_narrower():
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), START)
    gradient_sum, rows = query(DATA, params=params, clip_norm=1e-3)
    with jax.enable_x64(True):
        first_row = jax.tree.map(lambda leaf: leaf[:1], rows)
        length = np.linalg.norm(released_sum(gradient_sum, first_row).value)
    assert length == pytest.approx(1e-3, rel=1e-4)  # bfloat16 has 8 bits
    assert {leaf.dtype.name for leaf in jax.tree.leaves(gradient_sum.model.as_given(gradient_sum.params))} == {
        "bfloat16"
    }


def test_arrays_that_are_clipped_apart_add_their_shares_of_the_norm_and_no_more():
    params, apply = NETWORKS["linen"]()
    rows, model, start = custom(table(40), cross_entropy(apply), params, per_tensor=lambda path: 1.0 + len(path) % 3)
    names, norm = model.parameters.names, 0.05
    lengths = np.array([1.0 + len(name) % 3 for name in names])
    identity = FeatureMap.identity(model.rows.size)
    gradient_sum = ClippedGradient(model, start, identity, jnp.float32(norm), jnp.float32(1))
    assert model.shares == pytest.approx(lengths / np.linalg.norm(lengths))
    with jax.enable_x64(True):
        singles = [jax.tree.map(lambda leaf, row=row: leaf[row : row + 1], rows) for row in range(40)]
        added = np.array(
            [np.asarray(released_sum(gradient_sum, jax.tree.map(jnp.asarray, one)).value) for one in singles]
        )
    assert np.linalg.norm(added, axis=1).max() <= norm * (1 + MARGIN)
    ends = np.cumsum([np.prod(shape, dtype=int) for shape in model.parameters.trained.shapes])
    gradients = np.asarray(model.gradients(start, rows.x, rows.y), np.float64)
    for part, gradient, share in zip(
        *(np.split(each, ends[:-1], 1) for each in (added, gradients)), model.shares, strict=True
    ):
        length = np.linalg.norm(gradient, axis=1, keepdims=True)
        np.testing.assert_allclose(part, gradient * np.minimum(1, share * norm / length), atol=2e-5 * norm)
        assert (length > share * norm).any()


def test_a_row_that_is_not_finite_counts_for_nothing():
    data = table(20)
    data["x"][3, 1], data["x"][5, 0] = np.nan, np.inf
    without = {name: np.delete(array, [3, 5], axis=0) for name, array in data.items()}
    with jax.enable_x64(True):
        sums = [np.asarray(released_sum(*query(rows)).steps) for rows in (data, without)]
    assert np.array_equal(*sums)


def test_rows_keep_their_types_and_reach_the_loss_unscaled():
    data = {"token": np.array([7, 9], np.int32), "image": np.full((2, 2, 2), 255, np.uint8), "seen": np.ones(2, bool)}

    def loss(params, row):
        assert (row["image"].dtype, row["token"].dtype, row["seen"].dtype) == (np.uint8, np.int32, bool)
        fixed = 0.0 * jax.random.uniform(KEY)  # which a loss may hold
        return params * (row["token"] + row["image"].sum() * row["seen"] + fixed)

    gradient_sum, rows = query(data, loss, jnp.zeros(()), clip_norm=2000.0, at=None)
    assert gradient_sum.model.gradients(gradient_sum.params, rows.x, rows.y)[:, 0].tolist() == [1027.0, 1029.0]


@struct.dataclass
class EchoOfLoss(Echo):
    any_model = True


def test_a_release_neither_scales_nor_clips_what_rows_hold():
    data = {"x": np.full(40, 1000, np.int64)}
    protector = EchoOfLoss(jnp.float32(0.5), jnp.float32(2000.0))
    result = train(protector, data, lambda params, row: params[0] * row["x"], jnp.zeros(2), l2p.Budget(20.0, 1e-4))
    assert float(result.params[0]) == pytest.approx(40_000, abs=6_000)  # six standard deviations


@dataclasses.dataclass(frozen=True)
class Shifted(Logistic):
    name: ClassVar[str] = "shifted"

    def margin_loss(self, margin, y):
        return super().margin_loss(margin, y) + 1.0


def test_a_model_object_is_taken_where_a_name_is(tmp_path):
    assert default_for(Shifted()) == "dp_adam_pulled"
    result = l2p.private_train(ROWS, "noisygd_mean", BUDGET, model=Shifted(), key=KEY)
    assert result.card.model == "shifted"
    assert result.predict(ROWS).shape == (NUM_ROWS,)
    result.save(tmp_path / "run", ["a", "b", "c"], dict.fromkeys("abc", (0.0, 1.0)))
    assert np.array_equal(l2p.load_model(tmp_path / "run", Shifted()).predict(DATA["x"]), result.predict(ROWS))
    for other in (None, Logistic()):
        with pytest.raises(InputError, match=r"model 'shifted' is unknown|its model is 'shifted' and not logistic"):
            l2p.load_model(tmp_path / "run", other)
    findings = verify(result.card)
    assert findings.problems == []
    assert any("Model shifted is not known here" in remark for remark in findings.remarks)


def test_a_loss_that_draws_adds_the_same_to_the_last_bit_whatever_stands_beside_its_row():
    def loss(params, row, key):
        return logistic((params[0] * jax.random.bernoulli(key, 0.5, (NUM_FEATURES,)), params[1]), row)

    part = {name: array[37:101] for name, array in DATA.items()}
    rest = {name: np.delete(array, slice(37, 101), axis=0) for name, array in DATA.items()}
    with jax.enable_x64(True):
        whole, first, second = (np.asarray(released_sum(*query(data, loss)).steps) for data in (DATA, part, rest))
        plain = np.asarray(released_sum(*query(DATA)).steps)
    assert np.array_equal(whole, first + second)
    assert not np.array_equal(whole, plain)
