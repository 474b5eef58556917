"""A whole search of constants, small."""

import jax.numpy as jnp
import numpy as np

from benchmarks.headroom import cases, search
from l2p.models import Logistic
from l2p.privacy.budget import Budget
from l2p.protectors.conditioning import covariates_for
from l2p.protectors.fields import KNOT_COLUMNS
from l2p.task.rows import Rows
from tests.test_headroom import LABELLED


def test_a_search_mends_a_constant_that_was_spoilt_and_starts_from_what_runs(monkeypatch):
    x = np.stack([0.8 * LABELLED + 0.1, np.full(60, 0.5, np.float32)], axis=1)
    table = cases.Table("none", Logistic(), "binary", *2 * [Rows(x, LABELLED, np.ones_like(LABELLED))])
    whole, setup = cases.set_up_on(table, cases.CONTROL, Budget(3.0, 1e-5))
    control = search.at_budget(whole, covariates_for(setup, 2))
    ran, alone = (cases.scored([each], [setup], table) for each in (whole, control))
    np.testing.assert_allclose(alone, ran, rtol=1e-3, atol=1e-4)
    monkeypatch.setattr(search, "STEPS", 10)
    small = jnp.zeros((1, KNOT_COLUMNS)).at[0, 0].set(-6.0)
    spoilt = control.replace(scheduler=control.scheduler.replace(log_clip_norm=small))
    problem = search.Problem(table.train, setup, 0.5)
    mended = search.search(spoilt, problem)
    before, after = search.validation_losses([spoilt, mended], problem)
    assert after < before / 2
    assert search.constants(mended)["scheduler.log_clip_norm"] > -6.0
    assert (mended.scheduler.log_clip_norm[0, 1:] == 0.0).all()
