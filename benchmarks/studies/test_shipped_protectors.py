"""Shipped protectors on data that they were not trained on."""

import os
from pathlib import Path

import jax
import numpy as np
import pytest

from l2p.base.errors import InputError
from l2p.checkpoints import checkpoint, lookup
from l2p.compare.config import CompareConfig
from l2p.compare.runner import compare
from l2p.models import Logistic, Quadratic
from l2p.oracle.setup import Setup
from l2p.oracle.trace import trace_of
from l2p.privacy.budget import Budget
from l2p.run.run import run
from l2p.run.simulate import mean_loss
from l2p.tables.public import catalog
from l2p.task.rows import Rows
from meta_train.evaluation.budgets import ByMu
from meta_train.evaluation.scores import evaluate
from meta_train.tasks.sources import families

QUADRATIC = (
    "paper-quadratic-random_quadratics",
    "noisygd:tuned",
    "agd_gumbel:tuned",
)
SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
BUDGET = Budget(0.5, 1e-6)


def test_the_paper_protector_spends_its_ctcdp_budget_within_one_percent_without_a_cap():
    paper = checkpoint.load("paper-adult")
    assert paper.card["accountant"] == "ctcdp"
    assert paper.card["held_out"]["held_out_constraint_abs"] < 0.01
    assert np.abs(paper.card["held_out"]["held_out_constraint_per_budget"]).max() < 0.01
    # Here on tasks from a table that it was not trained on.
    _, family = families("breast_cancer")
    batch = family.sample(jax.random.key(0), Logistic(), 16, 256, 20, (1.0, 8.0))
    results = evaluate(paper.protector, jax.random.key(1), batch, Logistic(), ByMu("ctcdp"))
    assert float(np.abs(results["constraint"]).mean()) < 0.01


@pytest.mark.parametrize("name", ["minibatch", "paper-adult", "control-universal", "noisygd:tuned", "agd:tuned"])
def test_shipped_protectors_stay_within_budget_and_beat_guessing(name):
    generator = np.random.default_rng(0)
    x = generator.random((2000, 12)).astype(np.float32)
    y = ((x - 0.5) @ generator.normal(size=12) > 0.0).astype(np.float32)
    rows = Rows(x, y, np.ones(2000, np.float32))
    method = lookup.resolve(name, BUDGET, "logistic")
    setup = Setup.create(Logistic(), BUDGET.adjacency, method.filter(BUDGET).price_list(), 2000)
    params, _, (first, later), _ = jax.jit(run)(method.protector, Logistic().init(12), rows, setup, jax.random.key(0))
    priced = trace_of(first, [later])
    share = method.filter(BUDGET).spent(priced) / method.filter(BUDGET).limit
    assert 0.9 < share <= 1.0
    accuracy = float((Logistic().predict(params, x) == y).mean())
    assert accuracy > max(y.mean(), 1 - y.mean()) + 0.05


@pytest.mark.parametrize("name", QUADRATIC)
def test_protectors_for_quadratic_problems_come_close_to_an_optimum_they_have_never_seen(name):
    conditions = {"num_rows": 2000, "avoid": ("quadratic",)}
    method = lookup.resolve(name, BUDGET, "quadratic", **conditions)
    assert method.sources == ("random_quadratics",)
    with pytest.raises(InputError, match=r"made from|without random_quadratics"):
        lookup.resolve(name, BUDGET, "quadratic", num_rows=2000, avoid=("random_quadratics",))
    table, model = catalog.load("quadratic"), Quadratic()
    rows = Rows(table.x[:2000], table.y[:2000], np.ones(2000, np.float32))
    filter = method.filter(BUDGET)
    setup = Setup.create(model, BUDGET.adjacency, filter.price_list(), 2000)
    params, _, (first, later), _ = jax.jit(run)(method.protector, model.init(10), rows, setup, jax.random.key(0))
    assert filter.spent(trace_of(first, [later])) <= filter.limit
    # Noise on the target leaves 0.005, and zero, where the run starts, has 1/6 more.
    assert float(mean_loss(params, model, rows)) < 0.005 + 0.1 / 6


def test_a_fold_beats_tuned_noisygd_and_agd_on_data_it_has_never_seen(tmp_path):
    folder = Path(os.environ.get("L2P_DATA_DIR", SHARED))
    if not any(folder.glob("ipums_br.dat*")):
        pytest.skip(f"needs ipums_br.dat in {folder}; name its folder in L2P_DATA_DIR")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("L2P_DATA_DIR", str(folder))
        config = CompareConfig(
            "ipums_br",
            tmp_path,
            methods=("universal", "noisygd:tuned", "agd:tuned"),
            epsilon=(0.05,),
            delta=1e-8,
            seeds=4,
        )
        rows = compare(config)
    assert all(row["epsilon_certified"] <= 0.05 for row in rows)
    accuracy = {
        name: np.array([row["test_accuracy"] for row in rows if row["method"] == name]) for name in config.methods
    }
    # Over the 20 seeds of benchmarks/results the differences are 0.55 and 1.1 points, with standard errors below 0.15.
    assert (accuracy["universal"] - accuracy["noisygd:tuned"]).mean() > 0.001
    assert (accuracy["universal"] - accuracy["agd:tuned"]).mean() > 0.004
