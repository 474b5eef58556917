"""A training for wide or very wide tables alone leaves every other run as it was."""

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
from meta_train.training.tuned import tuned
from meta_train.training.untrained.filters import filter_with_network

#: A training on wide tables, but for their features.
WIDE = {
    "protector": "control_filter",
    "warm_start": "control-universal-narrow",
    "tunes": "wide",
    "sources": ("synthetic",),
    "models": ("logistic",),
}


@pytest.mark.parametrize("indicator", ["wide", "very_wide"])
def test_what_only_such_tables_read_is_one_number_of_every_knot(indicator):
    masks = of_wide_tables(filter_with_network(jax.random.key(0)), indicator)
    counted = jax.tree.map(lambda mask: int(mask.sum()), masks)
    curves = [*jax.tree.leaves(counted.projector)][:13]
    assert set(curves) == set(jax.tree.leaves(counted.projector.line)) == {8}
    assert sum(jax.tree.leaves(counted.projector.network)) == 0
    assert counted.purchase(BaseRate).logit_again == 8
    assert counted.purchase(BaseRate).log_spread == counted.purchase(Centering).row_norm == 0
    assert bool((masks.scheduler.rate[:, {"wide": -2, "very_wide": -1}[indicator]] == 1.0).all())


def test_all_else_is_what_wide_tables_do_not_add():
    floats = filter_with_network(jax.random.key(0))
    wide, very_wide, narrow, every = (
        np.concatenate([np.ravel(mask) for mask in jax.tree.leaves(tuned(floats, tunes))])
        for tunes in ("wide", "very_wide", "narrow", "all")
    )
    np.testing.assert_array_equal(wide + very_wide + narrow, every)
    assert 0 < wide.sum() == very_wide.sum() < every.sum() == every.size


def test_what_would_change_other_runs_is_refused():
    """All else stays as it was trained, so there is a start to take it from, and nothing is chosen at the end."""
    from_nothing = {name: value for name, value in WIDE.items() if name != "warm_start"}
    with pytest.raises(InputError, match="kind 'addition' needs warm_start"):
        Addition.of("x", num_features=(600,), **from_nothing)
    with pytest.raises(InputError, match="kind 'addition' has no constants"):
        Addition.of("x", num_features=(600,), **WIDE, constants=("eigenbasis.row_norm=1",))
    with pytest.raises(InputError, match="tunes 'all' is unknown; choose one of wide, very_wide, line"):
        Addition.of("x", num_features=(600,), **{**WIDE, "tunes": "all"})


#: Names of checkpoints, each with the one that its training started from and what it tuned.
STAGES = {
    "control-universal-wide": ("control-universal-narrow", "wide"),
    "control-universal": ("control-universal-line", "very_wide"),
}


@pytest.mark.parametrize("fold", ["", "-fold-1", "-fold-2", "-fold-3"])
@pytest.mark.parametrize("name", STAGES)
def test_what_ships_differs_from_its_start_on_such_tables_alone(name, fold):
    from_name, tuned = STAGES[name]
    start, shipped = (checkpoint.load(f"{stage}{fold}") for stage in (from_name, name))
    before, after = (dict(jax.tree_util.tree_leaves_with_path(loaded.protector)) for loaded in (start, shipped))
    for path, mask in jax.tree_util.tree_leaves_with_path(of_wide_tables(start.protector, tuned)):
        np.testing.assert_array_equal(np.where(mask, 0.0, after[path]), np.where(mask, 0.0, before[path]))
        assert not np.any(np.where(mask, before[path], 0.0))
    assert any(np.any(after[path] != before[path]) for path in before)


@pytest.mark.parametrize("name", STAGES)
def test_shapes_of_the_recipes_are_wide(name):
    config = resolve.resolve(name)
    least = {"wide": conditioning.NARROW, "very_wide": conditioning.WIDE}[config.learner.tunes]
    assert config.learner.tunes == STAGES[name][1]
    assert min(config.tasks.num_features) > least
    assert max(config.tasks.num_features) <= MAX_FEATURES
