"""The rule of `bolt_on`: how much noise a margin gets, whatever its batches and passes; that it learns; refusals."""

import math

import jax
import numpy as np
import pytest

from l2p import Budget, InputError, Rows, private_train
from l2p.checkpoints.lookup import resolve
from l2p.models import INTERCEPT_COLUMN, find_model
from l2p.privacy import Adjacency
from l2p.privacy.cost.convert import gdp_mu
from l2p.protectors.by_hand.planned_bolt_on import MARGIN_NOISE

#: Settings, model, accountant and adjacency. On 10,000 rows at epsilon 1 every signal is far above `FAINT`.
COURSES = {
    "as it is": ("", "logistic", None, Adjacency.ZERO_OUT),
    "one pass": ("[num_passes=1]", "logistic", None, Adjacency.ZERO_OUT),
    "batches of 33": ("[batch_size=33]", "logistic", None, Adjacency.ZERO_OUT),
    "longer rows": ("[norm_bound=5]", "logistic", None, Adjacency.ZERO_OUT),
    "replaced rows": ("", "logistic", None, Adjacency.REPLACE_ONE),
    "a steeper loss": ("", "svm", None, Adjacency.ZERO_OUT),
    "four classes": ("", "softmax:4", None, Adjacency.ZERO_OUT),
    "pure": ("", "logistic", "basic", Adjacency.ZERO_OUT),
    "pure, four classes": ("", "softmax:4", "basic", Adjacency.ZERO_OUT),
}


@pytest.mark.parametrize("case", COURSES)
def test_noise_moves_the_margin_of_a_longest_row_by_what_the_rule_says(case):
    settings, name, accountant, adjacency = COURSES[case]
    budget, model, features = Budget(1.0, 1e-6, adjacency), find_model(name), 95
    planned = resolve(f"bolt_on{settings}", budget, model, accountant, num_rows=10_000).protector
    settled = planned.for_table(model, features)
    problems = 4 if name == "softmax:4" else 1
    assert settled.norm_bound == (5.0 if "norm" in settings else pytest.approx(math.sqrt(95 / 6)))
    plan = settled.plan(settled.loss(model))
    moved = plan.sensitivity() * settled.norm_bound * adjacency.sensitivity_factor
    # What `PassDescent` adds, to each weight: Gaussian noise on all problems, or a direction times a Gamma(p) length.
    if accountant is None:
        per_weight = moved * math.sqrt(problems) / gdp_mu(1.0, 1e-6)
    else:
        per_weight = moved * problems * math.sqrt(features + 2)
    assert 0.9 * MARGIN_NOISE < per_weight * settled.norm_bound < MARGIN_NOISE
    assert plan.step_sizes.max() * plan.beta <= 1.0
    if "batch" not in settings and plan.steps_per_pass > 10:  # else batches come in few sizes
        assert plan.step_sizes.max() * plan.beta > 0.9


def test_it_learns_where_batches_of_50_and_steps_of_1_over_root_n_name_the_larger_class():
    random = np.random.default_rng(0)
    x = random.random((5_000, 20)).astype(np.float32)
    y = (x[:, 0] + 0.3 * x[:, 1] > 0.9).astype(np.float32)
    rows, test_x, test_y = Rows(x[:4000], y[:4000], np.ones(4000, np.float32)), x[4000:], y[4000:]
    params = np.asarray(private_train(rows, "bolt_on", Budget(1.0, 1e-6), key=jax.random.key(0)).params)
    margins = test_x @ params[:-1] + INTERCEPT_COLUMN * params[-1]
    assert ((margins > 0) == test_y).mean() > max(test_y.mean(), 1 - test_y.mean()) + 0.1
    assert np.logaddexp(0.0, (1 - 2 * test_y) * margins).mean() < 0.5


def test_a_faint_signal_is_not_followed_far():
    for rows in (10, 100, 1_000):
        settled = resolve("bolt_on", Budget(0.1, 1e-6), "logistic", num_rows=rows).protector.for_table(
            find_model("logistic"), 20
        )
        plan = settled.plan(find_model("logistic"))
        signal = rows * gdp_mu(0.1, 1e-6)
        noise = plan.sensitivity() * settled.norm_bound**2 / gdp_mu(0.1, 1e-6)
        assert noise == pytest.approx(MARGIN_NOISE * signal / (signal + 20.0), rel=1e-3)


@pytest.mark.parametrize("value", ["0", "-1", "nan", "inf"])
def test_no_noise_on_a_margin_is_refused_in_a_sentence(value):
    with pytest.raises(InputError, match="no standard deviation above 0"):
        resolve(f"bolt_on[margin_noise={value}]", Budget(1.0, 1e-6), "logistic")
