"""Sensitivity of SGD without noise: against closed forms, simulated worst cases and what is wrong in print."""

import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from l2p.base.errors import InputError
from l2p.privacy.sensitivity import passes
from l2p.privacy.sensitivity.passes import ORDERS, Passes

M, RIDGE = 1000, 0.05
#: Rules with what they need; the curvature of a row's loss is 0.25.
COURSES = {
    "constant": Passes(M, 0.25, 3, step_size=0.1),
    "constant, ridge": Passes(M, 0.25, 3, step_size=0.1, ridge=RIDGE),
    "decreasing": Passes(M, 0.25, 3, rule="decreasing"),
    "square_root": Passes(M, 0.25, 3, rule="square_root"),
    "strongly_convex": Passes(M, 0.25, 3, rule="strongly_convex", ridge=RIDGE),
    "averaged": Passes(M, 0.25, 3, step_size=0.1, averaged=1.0),
    "averaged, ridge, end": Passes(M, 0.25, 3, rule="strongly_convex", ridge=RIDGE, averaged=0.3),
}
BATCHES = (1, 10, 50)


def of_batches(name, batch_size):
    return dataclasses.replace(COURSES[name], batch_size=batch_size)


# ----------------------------------------------------------------------------------------------------- worst tables
def moved(plan, hits):
    """Distance that a row with gradient 1 in one run and 0 in the other moves the result, by running both: f64[n].

    Each row is hit at one step, i64[n]. The objective has no curvature but the ridge's, so nothing brings both closer.
    """
    ends = []
    for gradient in (1.0, 0.0):
        w, average = np.full(len(hits), 0.7), np.zeros(len(hits))
        for step, (size, weight) in enumerate(zip(plan.step_sizes, plan.weights, strict=True)):
            w = w - size * ((hits == step) * gradient / plan.batch_size + plan.ridge * w)
            average += weight * w
        ends.append(average)
    return np.abs(ends[0] - ends[1])


def worst(plan):
    """Over positions of a row in each pass, the extremes and some between; exact, as the problem is linear in hits."""
    at = np.unique(np.linspace(0, plan.steps_per_pass - 1, 11).astype(int))
    hits = (np.arange(plan.num_passes)[:, None] * plan.steps_per_pass + at[None, :]).ravel()
    each = moved(plan, hits).reshape(plan.num_passes, -1)
    return each.max(1).sum() if plan.order == "fresh" else each.sum(0).max()


def check(plan, stated):
    """Stated is never less than what happens, nor by a visible amount more; for a planted bug it raises."""
    distance = worst(plan)
    assert distance <= stated
    assert distance >= 0.99 * stated


@pytest.mark.parametrize("order", ["fresh", "same"])
@pytest.mark.parametrize("batch_size", BATCHES)
@pytest.mark.parametrize("name", COURSES)
def test_the_worst_table_moves_the_result_as_far_as_is_stated_and_no_further(name, batch_size, order):
    plan = dataclasses.replace(of_batches(name, batch_size), order=order)
    check(plan, plan.sensitivity())


@pytest.mark.parametrize("name", COURSES)
def test_many_steps_move_it_as_one_after_another(name):
    plan = dataclasses.replace(COURSES[name], num_rows=5_000)
    later, stretch, moves = 0.0, 0.0, []
    for weight, own, size in zip(plan.weights[::-1], plan.stretches[::-1], plan.step_sizes[::-1], strict=True):
        later = weight + stretch * later
        stretch = own
        moves.append(later * size)
    np.testing.assert_allclose(plan.moves[::-1], moves, rtol=1e-11, atol=0)


@pytest.mark.parametrize("name", COURSES)
def test_curved_losses_move_it_less(name):
    random = np.random.default_rng(1)
    plan = of_batches(name, 10)
    for _ in range(20):
        curvatures = random.uniform(0, 0.25, plan.num_steps)
        hits = random.integers(plan.steps_per_pass, size=plan.num_passes) + plan.steps_per_pass * np.arange(
            plan.num_passes
        )
        hit, results = np.bincount(hits, minlength=plan.num_steps), []
        for gradient in (1.0, 0.0):
            w, average = 0.0, 0.0
            for size, weight, here, curve in zip(plan.step_sizes, plan.weights, hit, curvatures, strict=True):
                w = w - size * (curve * (w - 1) + here * gradient / plan.batch_size + plan.ridge * w)
                average += weight * w
            results.append(average)
        assert 0 < abs(results[0] - results[1]) <= plan.sensitivity()


# ------------------------------------------------------------------------------------------------------ closed forms
def test_it_is_never_above_the_closed_forms_that_are_right():
    """Wu et al. 2017 for a replaced row, twice of what nulling one moves; L = 1, beta = 0.25 or with the ridge."""
    passes, beta = 3, 0.25
    constant = 2 * COURSES["constant"].sensitivity()
    assert constant == pytest.approx(2 * passes * 0.1, rel=1e-6)  # Corollary 1: 2 k L eta
    root = M**0.5
    decreasing = 4 / beta * (1 / root + math.log(passes) / M)  # Corollary 2
    assert 0.9 * decreasing < 2 * COURSES["decreasing"].sensitivity() <= decreasing
    square_root = 4 / beta * sum(1 / (math.sqrt(j * M + 1) + root) for j in range(passes))  # Corollary 3
    assert 0.99 * square_root < 2 * COURSES["square_root"].sensitivity() <= square_root * (1 + 1e-6)
    of_ridge = COURSES["constant, ridge"]
    eta = of_ridge.step_size
    assert 2 * of_ridge.sensitivity() <= 2 * eta / (1 - (1 - eta * RIDGE) ** M)  # Lemma 7
    for k in (1, 3, 20):  # Lemma 8: 2 L / (gamma m), whatever k
        decreasing = dataclasses.replace(COURSES["strongly_convex"], num_passes=k)
        assert 0.9 * 2 / (RIDGE * M) < 2 * decreasing.sensitivity() <= 2 / (RIDGE * M) * (1 + 1e-6)


def test_only_batches_of_constant_steps_divide_it_by_their_size():
    single, ten = (of_batches("constant", size).sensitivity() for size in (1, 10))
    assert ten == pytest.approx(single / 10, rel=1e-6)
    # Fewer steps, so that those of later passes are longer.
    for name in ("decreasing", "square_root", "strongly_convex"):
        single, ten = (of_batches(name, size).sensitivity() for size in (1, 10))
        assert ten > 1.2 * single / 10


def test_the_papers_division_by_b_is_false_for_steps_of_one_over_gamma_t():
    """Section 3.2.3 divides 2 L / (gamma m) by b; a quadratic objective shows it 25 times too small at b = 50."""
    plan = Passes(M, 0.5, 10, 50, "strongly_convex", ridge=0.5)
    claimed = 2 / (0.5 * M) / 50
    truth = 2 * worst(plan)
    assert 20 < truth / claimed < 51
    assert truth <= 2 * plan.sensitivity()
    with pytest.raises(AssertionError):
        check(plan, claimed / 2)


def test_averaging_keeps_the_bound_of_the_last_iterate_where_that_grows():
    for averaged in (0.1, 0.5, 1.0):
        for name in ("constant", "decreasing", "square_root"):
            last = COURSES[name]
            assert dataclasses.replace(last, averaged=averaged).sensitivity() <= last.sensitivity()


def test_planted_bugs_are_caught(monkeypatch):
    plan = of_batches("strongly_convex", 50)
    honest = plan.sensitivity()
    check(plan, honest)
    for wrong in (honest / plan.batch_size, honest / 2, 1 / (RIDGE * M) / plan.batch_size, 2 * honest):
        with pytest.raises(AssertionError):
            check(plan, wrong)
    # The expansion forgotten: as if every step were a contraction by the ridge, also where there is none.
    forgetful = dataclasses.replace(of_batches("constant", 10))
    monkeypatch.setattr(Passes, "stretches", property(lambda self: np.full(self.num_steps, 0.999)))
    monkeypatch.setattr(passes, "_furthest", passes._furthest.__wrapped__)  # which keeps numbers of the honest ones
    with pytest.raises(AssertionError):
        check(forgetful, forgetful.sensitivity())


# -------------------------------------------------------------------------------------------------- with replacement
def test_repeated_draws_exceed_the_bound_as_rarely_as_is_stated_and_the_bound_is_not_idle():
    random = np.random.default_rng(0)
    plan = Passes(200, 0.25, 5, 4, "decreasing", order="with_replacement")
    hits = random.binomial(plan.batch_size, 1 / plan.num_rows, size=(20_000, plan.num_steps))
    moves = hits @ plan.moves
    for tail in (0.1, 0.01, 0.001):
        stated = plan.sensitivity(tail)
        exceeded = int((moves > stated).sum())
        assert exceeded <= stats.binom.isf(1e-6, len(moves), tail)
        assert stated < 1.5 * np.quantile(moves, 1 - tail)
    # A bound for permuted rows, 5 hits, would be exceeded often.
    permuted = dataclasses.replace(plan, order="fresh").sensitivity()
    assert (moves > permuted).mean() > 0.1
    constant = Passes(200, 0.25, 5, step_size=0.1, order="with_replacement")
    for tail in (1e-3, 1e-9):
        exact = 0.1 * stats.binom.isf(tail, constant.num_steps, 1 / 200)
        assert exact <= constant.sensitivity(tail) < 1.3 * exact


@pytest.mark.parametrize("tail", [0.0, 1.0, -1e-9, math.nan])
def test_without_a_probability_there_is_no_bound_on_repeated_draws(tail):
    with pytest.raises(InputError, match="any number of times"):
        Passes(100, 0.25, order="with_replacement").sensitivity(tail)


# --------------------------------------------------------------------------------------------------------- snapshots
def svrg(plan, at, changed, curvatures):
    """Variance-reduced passes on f_i = curvature_i w^2 / 2 + slope_i w in one dimension, the row at batch `at` with
    another slope; order as given."""
    rows, size = plan.num_rows, plan.batch_size
    slopes = np.zeros(rows)
    slopes[at * size] = changed
    w, t = 0.3, 0
    for _ in range(plan.num_passes):
        snapshot, mean = w, (curvatures * w + slopes).mean()
        for batch in range(plan.steps_per_pass):
            here = slice(batch * size, (batch + 1) * size)
            slope = (curvatures[here] * (w - snapshot)).sum() / size + mean
            w, t = w - plan.step_sizes[t] * (slope + plan.ridge * w), t + 1
    return w


@pytest.mark.parametrize("ridge", [0.0, 0.3])
@pytest.mark.parametrize("batch_size", [1, 5])
def test_variance_reduced_passes_move_no_further_than_is_stated(batch_size, ridge):
    random = np.random.default_rng(3)
    plan, furthest = Passes(20, 1.0, 3, batch_size, step_size=0.05, ridge=ridge), 0.0
    stated, grown = plan.snapshot_sensitivity()
    for _ in range(12):
        # Half of all rows are flat, half are as curved as may be.
        curvatures = (random.random(20) < random.choice([0.0, 0.5, 1.0])) * 1.0
        for at in range(plan.steps_per_pass):
            furthest = max(furthest, abs(svrg(plan, at, 1.0, curvatures) - svrg(plan, at, 0.0, curvatures)))
    assert 0.05 * stated < furthest <= stated
    assert grown >= 1


def test_one_short_variance_reduced_pass_by_hand():
    # Two steps of 0.1: twice 0.1 / 2 through the mean, 2 * 0.1 through one hit.
    stated, grown = Passes(2, 1.0, 1, step_size=0.1).snapshot_sensitivity()
    assert stated == pytest.approx(0.1 + 0.2)
    assert grown == pytest.approx(1 + 0.2)


# ---------------------------------------------------------------------------------------------------------- refusals
BAD = [
    {"num_rows": 0}, {"num_passes": 0}, {"batch_size": 0}, {"batch_size": M + 1}, {"batch_size": 2.5},
    {"num_passes": True}, {"smoothness": 0.0}, {"smoothness": math.inf}, {"smoothness": math.nan}, {"ridge": -0.1},
    {"ridge": math.nan}, {"step_size": -0.1}, {"step_size": math.inf}, {"radius": 0.0}, {"radius": math.nan},
    {"averaged": 1.5}, {"averaged": math.nan}, {"power": -1.0}, {"rule": "adam"}, {"order": "sorted"},
    {"rule": "strongly_convex", "ridge": 0.0}, {"num_rows": 10**30}, {"num_passes": 2**24},
]  # fmt: skip


@pytest.mark.parametrize("changes", BAD, ids=str)
def test_a_course_that_no_proof_covers_cannot_be_had(changes):
    with pytest.raises(InputError, match=r"[a-z].*[.]$"):
        dataclasses.replace(COURSES["constant"], **changes)


@pytest.mark.parametrize("order", ORDERS)
def test_steps_beyond_two_over_beta_have_no_bound(order):
    assert Passes(M, 0.25, step_size=8.0, order=order).sensitivity(1e-9) > 0
    for plan in (Passes(M, 0.25, step_size=8.001, order=order), Passes(M, 0.25, step_size=7.0, ridge=0.1, order=order)):
        with pytest.raises(InputError, match="2 / beta"):
            plan.sensitivity(1e-9)
        with pytest.raises(InputError, match="2 / beta"):
            plan.snapshot_sensitivity()
