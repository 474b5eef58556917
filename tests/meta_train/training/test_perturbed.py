"""Constants that are evolved by scores alone."""

import jax
import jax.numpy as jnp
import numpy as np

from l2p.privacy.budget import Budget
from l2p.protectors import HAND_DESIGNED
from meta_train.config.parts import Outer
from meta_train.training import perturbed


class Evaluator:
    """Scores that are least where the tunable numbers are all 0.3 from the start, and one that is not finite."""

    def __init__(self, start):
        self.aim = perturbed._numbers(start) + 0.3
        self.shapes = []

    def train_tasks(self, shape, seed):
        self.shapes.append(shape)
        return seed

    def scores(self, protectors, shape, batch, seed):
        assert seed == batch
        each = [jax.tree.map(lambda leaf, place=place: leaf[place], protectors) for place in range(16)]
        errors = np.array([np.square(perturbed._numbers(protector) - self.aim).sum() for protector in each])
        errors[0] = np.nan
        return errors


def test_steps_go_downhill_whatever_one_task_says_and_leave_alone_what_is_not_tuned():
    start = HAND_DESIGNED["noisygd"](Budget(1.0, 1e-5))
    evaluator = Evaluator(start)
    state, update = perturbed.init(start), perturbed.compiled(("a", "b"), 16, 0.02, Outer(steps=300), evaluator)
    before = np.abs(perturbed._numbers(start) - evaluator.aim).max()
    for step in range(40):
        state, report = update(state, step)
    assert report["finite"] == 15 / 16
    after = np.abs(perturbed._numbers(state.protector) - evaluator.aim).max()
    assert after < before / 2
    assert evaluator.shapes == ["a", "b"] * 20
    leaves = zip(jax.tree.leaves(start), jax.tree.leaves(state.protector), perturbed._tunable(start), strict=True)
    assert all(np.array_equal(old, new) for old, new, tuned in leaves if not tuned)
    assert all(jnp.asarray(leaf).dtype != jnp.float64 for leaf in jax.tree.leaves(state))
