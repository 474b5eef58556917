"""Starting points of tuning: rivals that have a start of their own keep what makes them that method."""

import jax
import pytest

from l2p.base import struct
from l2p.privacy.budget import Budget
from l2p.protectors import HAND_DESIGNED
from l2p.protectors.learned.tunable import tunable
from meta_train.recipes import tuned
from meta_train.training.starting_points import starting_point
from meta_train.training.untrained import BUILDERS


@pytest.mark.parametrize("name", ["noisygd", "noisygd_mean", "dp_fc"])
def test_a_start_of_its_own_has_the_parts_of_the_method_and_averaging(name):
    plain, start = HAND_DESIGNED[name](Budget(1.0, 1e-8)), BUILDERS[name](jax.random.key(0))
    parts = [name for name, part in struct.children(plain).items() if part is not None]
    ours = [name for name, part in struct.children(start).items() if part is not None]
    assert sorted(ours) == sorted([*parts, "averaging"])
    assert start.mechanisms == plain.mechanisms
    assert start.num_steps == plain.num_steps


@pytest.mark.parametrize(
    ("name", "model", "constants"),
    [
        ("dp_newton", "logistic", {".log_clip_norm", ".log_norm_bound", ".logit_hessian_share", ".log_ridge"}),
        ("pass_glm", "logistic", {".log_norm_bound", ".logit_share", ".log_ridge", ".log_radius"}),
        ("dp_ls", "square", {".log_norm_bound", ".logit_share", ".log_ridge", ".log_scale"}),
        ("boosted_adassp", "square", {".log_clip_norm", ".log_norm_bound", ".logit_share", ".logit_shrinkage"}),
    ],
)
def test_rivals_from_moments_are_tuned_in_all_their_constants_and_in_the_price_of_their_mean(name, model, constants):
    start = starting_point(tuned.config_for(name, model, "synthetic"))
    leaves = jax.tree_util.tree_leaves_with_path(tunable(start))
    free = {jax.tree_util.keystr(path) for path, may_be_tuned in leaves if may_be_tuned}
    assert free >= constants | {".centering.logit_share"}
    by_name = {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(start)}
    assert all(by_name[name].shape == (3,) for name in constants)  # functions of the budget
