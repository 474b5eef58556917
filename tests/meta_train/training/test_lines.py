"""Parameters that a training of steps along the line changes, and those that it leaves as they were."""

import jax
import numpy as np
import pytest

from l2p.base.errors import InputError
from l2p.checkpoints import checkpoint
from l2p.protectors.learned.line import LineStep
from l2p.protectors.learned.tunable import of_parts
from meta_train.config import Addition
from meta_train.training.loop import meta_train
from meta_train.training.shipping import made_for, models_of
from meta_train.training.tuned import check_tunes
from meta_train.training.untrained.filters import control_filter, control_line

CONFIG = Addition.of(
    "x",
    "control_line",
    sources=("synthetic",),
    models=("logistic",),
    num_features=(6,),
    warm_start="control-universal-wide",
    tunes="line",
    tasks=8,
    eval_tasks=8,
    rows=32,
    num_steps=3,
    steps=1,
    learning_rate=0.1,
)


def test_only_a_step_along_the_line_has_such_numbers():
    key = jax.random.key(0)
    assert sum(int(mask.sum()) for mask in jax.tree.leaves(of_parts(control_filter(key), LineStep))) == 0
    masks = of_parts(control_line(key), LineStep)
    assert all(bool(mask.all()) for mask in jax.tree.leaves(masks.projector.line))
    count = sum(int(mask.sum()) for mask in jax.tree.leaves(masks))
    assert count == sum(leaf.size for leaf in jax.tree.leaves(masks.projector.line))


def test_a_training_of_lines_is_refused_for_a_protector_without_one(tmp_path):
    config = CONFIG.but(protector="control_filter")
    with pytest.raises(InputError, match="stands for no number of protector 'control_filter'"):
        meta_train(config, tmp_path)
    check_tunes(control_line(jax.random.key(0)), "line", "control_line")


def test_what_ships_serves_what_its_start_does():
    warm = checkpoint.load("control-universal-wide")
    assert made_for(CONFIG, (6,), warm) == warm.card["range"]["num_features"]
    assert set(warm.card["models"]) <= set(models_of(CONFIG, warm))


@pytest.mark.parametrize("fold", ["", "-fold-1", "-fold-2", "-fold-3"])
def test_what_ships_has_a_line_and_is_its_start_in_all_else(fold):
    start, shipped = (checkpoint.load(f"{name}{fold}") for name in ("control-universal-wide", "control-universal-line"))
    before, after = (dict(jax.tree_util.tree_leaves_with_path(loaded.protector)) for loaded in (start, shipped))
    added = {jax.tree_util.keystr(path) for path in after.keys() - before.keys()}
    assert added == {f".projector.line.{name}" for name in ("log_curvature", "log_spread", "logit_renewed")}
    for path, array in before.items():
        np.testing.assert_array_equal(array, after[path])
