"""A training of lines changes nothing but these."""

import jax
import jax.numpy as jnp
import numpy as np

from l2p.protectors.learned.line import LineStep
from l2p.protectors.learned.tunable import of_parts
from meta_train.evaluation.resolved import resolve
from meta_train.training import gradients
from meta_train.training.starting_points import starting_point
from tests.meta_train.training.test_lines import CONFIG


def test_a_training_of_lines_changes_every_curve_of_theirs_and_nothing_else():
    start = starting_point(CONFIG)
    resolved, state = resolve(CONFIG.tasks, CONFIG.simulated, start), gradients.init(start)
    updated, metrics = gradients.compiled(CONFIG.tasks, resolved, CONFIG.learner, CONFIG.outer, CONFIG.scoring)(
        state, 0
    )
    assert float(metrics["finite"]) == 1.0
    before, after = state.protector, updated.protector
    for mask, first, second in zip(*map(jax.tree.leaves, (of_parts(before, LineStep), before, after)), strict=True):
        np.testing.assert_array_equal(np.where(mask, 0.0, first), np.where(mask, 0.0, second))
    for name in ("log_curvature", "log_spread", "logit_renewed"):
        assert jnp.any(getattr(before.projector.line, name) != getattr(after.projector.line, name)), name
