"""Purchases of `Stepwise`: a new one is a class, and nothing else knows it."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.base import struct
from l2p.checkpoints import checkpoint
from l2p.checkpoints.set_up import kinds_asked
from l2p.models import MODELS
from l2p.oracle import Oracle
from l2p.oracle.setup import Setup
from l2p.privacy.budget import Budget
from l2p.privacy.cap.filter import Filter
from l2p.protectors import HAND_DESIGNED, Centering, Eigenbasis, PublicLength, RowLength
from l2p.protectors.fields import Positive
from l2p.protectors.register import CLASSES
from l2p.protectors.stepwise.purchase import Purchase, Stage, Start
from l2p.queries import FeatureSum
from meta_train.training.turns import groups
from meta_train.training.untrained import BUILDERS

BUDGET, D = Budget(1.0, 1e-6), 3
FILTER = BUILDERS["control_filter"](jax.random.key(0))


@struct.dataclass
class Spread(Purchase):
    """A purchase that somebody might add: it scales rows, once their length is known."""

    scale: Positive
    kind: ClassVar[str] = "spread"
    stage: ClassVar[Stage] = Stage.DIRECTIONS

    def buy(self, start: Start, oracle: Oracle) -> Start:
        oracle.ask(FeatureSum(D, jnp.float32(1.0), jnp.float32(50.0)))
        return start.but(features=start.features.replace(scale=start.features.scale * self.scale))


SPREAD = Spread(jnp.float32(2.0))


def queries_of(protector):
    """The queries of `init`, by name."""
    price_list = Filter("gdp", BUDGET).price_list()
    setup = Setup.create(MODELS["logistic"], BUDGET.adjacency, price_list, 100)
    return [name for name, _ in kinds_asked(protector, setup, D)[0]]


def paths(protector):
    return [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(protector)]


def test_a_new_purchase_is_made_at_its_stage_and_comes_back_from_a_file(tmp_path, monkeypatch):
    monkeypatch.setitem(CLASSES, "Spread", Spread)
    protector = FILTER.with_purchases(SPREAD)
    assert queries_of(FILTER) == ["target_sum", "target_sum", "feature_mean", "row_length", "covariance"]
    assert queries_of(protector) == [
        "target_sum",
        "target_sum",
        "feature_mean",
        "row_length",
        "feature_mean",
        "covariance",
    ]
    assert groups(protector).purchase(Spread).scale == "scheduler"  # it decides what the budget is spent on
    checkpoint.save(protector, tmp_path / "mine.safetensors", {"sources": []})
    loaded = checkpoint.load(tmp_path / "mine.safetensors").protector
    assert loaded.purchase(Spread).scale == 2.0
    assert jax.tree.structure(loaded) == jax.tree.structure(protector)
    assert loaded.without(Spread).purchase(Spread) is None


def test_leaves_keep_their_names_and_order_whatever_else_is_bought():
    """Sums over leaves and keys for them, and the names of tensors in files, rest on it."""
    plain, more = paths(FILTER), paths(FILTER.with_purchases(SPREAD))
    parts = list(dict.fromkeys(path.split(".")[1] for path in plain))
    assert parts == ["scheduler", "projector", "centering", "eigenbasis", "row_length", "base_rate"]
    assert more == [*plain, ".spread.scale"]


def test_purchases_are_made_by_stage_in_whatever_order_they_are_given():
    shuffled = FILTER.replace(purchases=FILTER.purchases[::-1])
    assert [each.kind for each in shuffled.purchases] == ["base_rate", "centering", "row_length", "eigenbasis"]
    doubled = jax.tree.map(lambda leaf: 2 * leaf, shuffled)
    np.testing.assert_array_equal(doubled.purchase(RowLength).target_norm, 5.0)
    assert doubled.purchase(Eigenbasis).row_norm == 5.0


def test_a_purchase_that_makes_the_whole_map_goes_with_no_other():
    noisygd = HAND_DESIGNED["noisygd"](BUDGET)
    length = PublicLength(jnp.float32(1.0))
    assert noisygd.with_purchases(length).misfit() is None
    assert FILTER.misfit() is None
    beside = noisygd.with_purchases(FILTER.purchase(Centering), length).misfit()
    assert beside == "has centering beside public_length, which replaces it"


def test_two_purchases_of_one_kind_cannot_be_told_apart():
    with pytest.raises(TypeError, match="two purchases are called 'spread'"):

        class Another(Purchase):
            kind = "spread"

    with pytest.raises(ValueError, match="two purchases of kind 'spread'"):
        FILTER.with_purchases(SPREAD, SPREAD)
