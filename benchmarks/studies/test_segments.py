"""Trainings of 400 steps on whole runs and on their segments come to the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from meta_train.evaluation.budgets import ByMu
from meta_train.evaluation.scores import evaluate
from meta_train.training import gradients
from tests.meta_train.training.test_gradients import (  # noqa: F401
    CONSTRAINED,
    MODEL,
    STEPS,
    batch,
    family,
    overspending,
    short,
    step_of,
)


def test_whole_runs_and_segments_meet_the_budget_and_agree(family, batch):  # noqa: F811
    judge = jax.jit(lambda protector: evaluate(protector, jax.random.key(9), batch, MODEL, ByMu("ctcdp")))
    scores = {}
    for objective, unroll in (("final", None), ("truncated", STEPS // 2)):
        config = CONSTRAINED.but(steps=400, unroll=unroll)
        start = overspending()
        update, state = step_of(config, family, start), gradients.init(start, config.learner.unroll)
        assert float(jnp.abs(judge(start)["constraint"]).mean()) > 0.5
        for step in range(config.outer.steps):
            state, _ = update(state, step)
        report = judge(state.protector)
        # `paper-adult`, of 2,400 steps, is held to 1 % in tests/checkpoints/test_shipped.py; 400 come to .8 to 2.2 %.
        assert float(jnp.abs(report["constraint"]).mean()) < 0.04
        scores[objective] = float(report["score"].mean())
        if objective == "truncated":
            np.testing.assert_allclose(state.constraint.targets.mean(-1), 1.0, rtol=0.01)
    # The result of 400 steps of an LSTM depends on rounding, too: by up to .2 in either direction.
    assert scores["truncated"] == pytest.approx(scores["final"], abs=0.25)
    assert scores["final"] < float(judge(short("paper"))["score"].mean()) - 0.3
