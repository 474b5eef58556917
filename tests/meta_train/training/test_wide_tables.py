"""A training for wide tables alone leaves every other run as it was."""

import jax
import numpy as np
import pytest

from l2p.base.errors import InputError
from l2p.checkpoints import checkpoint
from l2p.protectors import BaseRate, Centering, conditioning
from l2p.protectors.learned.tunable import of_wide_tables
from l2p.protectors.stepwise.eigenbasis import MAX_FEATURES
from meta_train.config import Addition
from meta_train.recipes import resolve
from meta_train.training import gradients
from meta_train.training.untrained import filter_with_network

#: A training on wide tables, but for their features.
WIDE = {
    "protector": "control_filter",
    "warm_start": "control-universal-narrow",
    "tunes": "wide",
    "sources": ("synthetic",),
    "models": ("logistic",),
}


def test_what_only_wide_tables_read_is_the_last_number_of_every_knot():
    counted = jax.tree.map(lambda mask: int(mask.sum()), of_wide_tables(filter_with_network(jax.random.key(0))))
    curves = [*jax.tree.leaves(counted.projector)][:13]
    assert set(curves) == set(jax.tree.leaves(counted.projector.line)) == {8}
    assert sum(jax.tree.leaves(counted.projector.network)) == 0
    assert counted.purchase(BaseRate).logit_again == 8
    assert counted.purchase(BaseRate).log_spread == counted.purchase(Centering).row_norm == 0


def test_all_else_is_what_wide_tables_do_not_add():
    floats = filter_with_network(jax.random.key(0))
    wide, narrow, every = (
        np.concatenate([np.ravel(mask) for mask in jax.tree.leaves(gradients._tuned(floats, tunes))])
        for tunes in ("wide", "narrow", "all")
    )
    np.testing.assert_array_equal(wide + narrow, every)
    assert 0 < wide.sum() < every.sum() == every.size


def test_what_would_change_other_runs_is_refused():
    """All else stays as it was trained, so there is a start to take it from, and nothing is chosen at the end."""
    from_nothing = {name: value for name, value in WIDE.items() if name != "warm_start"}
    with pytest.raises(InputError, match="kind 'addition' needs warm_start"):
        Addition.of("x", num_features=(600,), **from_nothing)
    with pytest.raises(InputError, match="kind 'addition' has no constants"):
        Addition.of("x", num_features=(600,), **WIDE, constants=("eigenbasis.row_norm=1",))
    with pytest.raises(InputError, match="tunes 'all' is unknown; choose one of wide, line"):
        Addition.of("x", num_features=(600,), **{**WIDE, "tunes": "all"})


@pytest.mark.parametrize("fold", ["", "-fold-1", "-fold-2", "-fold-3"])
def test_what_ships_differs_from_its_start_on_wide_tables_alone(fold):
    start, shipped = (
        checkpoint.load(f"{name}{fold}") for name in ("control-universal-narrow", "control-universal-wide")
    )
    before, after = (dict(jax.tree_util.tree_leaves_with_path(loaded.protector)) for loaded in (start, shipped))
    for path, mask in jax.tree_util.tree_leaves_with_path(of_wide_tables(start.protector)):
        np.testing.assert_array_equal(np.where(mask, 0.0, after[path]), np.where(mask, 0.0, before[path]))
        assert not np.any(np.where(mask, before[path], 0.0))
    assert any(np.any(after[path] != before[path]) for path in before)


def test_shapes_of_the_recipe_are_wide():
    config = resolve.resolve("control-universal-wide")
    assert config.learner.tunes == "wide"
    assert min(config.tasks.num_features) > conditioning.NARROW
    assert max(config.tasks.num_features) <= MAX_FEATURES
