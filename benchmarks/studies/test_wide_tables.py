"""A training on wide tables changes nothing but runs on these."""

import jax
import jax.numpy as jnp
import numpy as np

from l2p.checkpoints import checkpoint
from l2p.protectors import conditioning
from l2p.protectors.learned.tunable import of_wide_tables
from meta_train.config import Addition
from meta_train.training.loop import meta_train
from tests.meta_train.training.test_wide_tables import WIDE


def test_only_runs_on_wide_tables_change(tmp_path, monkeypatch):
    monkeypatch.setattr(conditioning, "NARROW", 4)
    small = {"tasks": 8, "eval_tasks": 8, "rows": 32, "num_steps": 3, "steps": 1, "learning_rate": 0.1}
    config = Addition.of("x", num_features=(6,), **WIDE, **small)
    start = checkpoint.load("control-universal-narrow")
    trained = checkpoint.load(str(meta_train(config, tmp_path / "out")))
    before, after = (dict(jax.tree_util.tree_leaves_with_path(saved.protector)) for saved in (start, trained))
    masks = dict(jax.tree_util.tree_leaves_with_path(of_wide_tables(start.protector, "wide")))
    for path, mask in masks.items():
        np.testing.assert_array_equal(np.where(mask, 0.0, after[path]), np.where(mask, 0.0, before[path]))
    assert any(jnp.any(after[path] != before[path]) for path in masks)
    # And it still serves whatever its start does.
    assert set(start.card["models"]) <= set(trained.card["models"])
    assert trained.card["range"]["num_features"] == [start.card["range"]["num_features"][0], 6]
    assert trained.card["range"]["num_classes"] == start.card["range"]["num_classes"]
