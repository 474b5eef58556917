"""SGD over rows in order: its result, its sensitivity by brute force, its noise, its limits and its refusals."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

import l2p
from l2p.base.errors import InputError
from l2p.models import INTERCEPT_COLUMN, HuberSVM, Logistic, find_model
from l2p.privacy import Adjacency, Budget
from l2p.privacy.cost.strong_sampling import noise_ratio
from l2p.privacy.sensitivity.passes import Passes
from l2p.protectors import BoltOn, NoisySGD
from l2p.queries import NoisyPasses, PassDescent, SampledPasses
from l2p.queries.rows_in_order import orders
from l2p.run.run import null_invalid
from l2p.task.entropy import Entropy
from l2p.task.noise import GRID_STEPS, HostNoise, KeyNoise, OrderDraw, PlannedNoise, SubsetDraw
from l2p.task.rows import Rows
from tests.queries.test_descent import possible_rows

D, N = 2, 6
BUDGET = Budget(1.0, 1e-6, Adjacency.REPLACE_ONE)
NULLED = dataclasses.replace(BUDGET, adjacency=Adjacency.ZERO_OUT)


def f32(value):
    return jnp.asarray(value, jnp.float32)


def query(plan, loss=Logistic(), start=(0.0, 0.0, 0.0), noise=1.0, **fields):  # noqa: B008
    return PassDescent(loss, plan, f32(start), f32(noise), f32(-jnp.inf), **fields)


# -------------------------------------------------------------------------------------------------------- the result
def naive(descent, rows, order):
    """Result in float64, one row after the other; a missing line is a null row."""
    plan, loss = descent.plan, descent.loss
    lines = np.c_[np.asarray(rows.x, float), np.full(len(rows.y), INTERCEPT_COLUMN)]
    lines = lines * np.minimum(1, descent.norm_bound / np.linalg.norm(lines, axis=1))[:, None]
    classes = descent.num_classes

    def slope(w, row):
        if not 0 <= row < len(lines) or not rows.mask[row]:
            return np.zeros_like(w)
        total = np.zeros_like(w)
        for k in range(classes):
            y = float(rows.y[row]) if classes == 1 else float(rows.y[row] == k)
            total[:, k] = float(loss.residual(lines[row] @ w[:, k], y)) * lines[row]
        return total

    w = np.array(descent.start, float).reshape(-1, classes)
    average, t = np.zeros_like(w), 0
    for permutation in np.asarray(order):
        snapshot = w
        mean = sum(slope(snapshot, row) for row in range(len(lines))) / plan.num_rows if descent.snapshots else 0.0
        for batch in permutation.reshape(-1, plan.batch_size):
            total = sum(slope(w, row) - (slope(snapshot, row) if descent.snapshots else 0) for row in batch)
            w = w - plan.step_sizes[t] * (total / plan.batch_size + mean + plan.ridge * w)
            w = w * np.minimum(1, plan.radius / np.maximum(np.linalg.norm(w, axis=0), 1e-9))
            average, t = average + plan.weights[t] * w, t + 1
    return (average if plan.averaged else w).ravel()


RESULTS = {
    "a short last batch": query(Passes(7, 0.25, 2, 3, step_size=0.9)),
    "ridge, average": query(Passes(7, 0.25, 2, 2, "strongly_convex", ridge=0.2, averaged=0.5), start=(1.0, -2.0, 3.0)),
    "ball, svm": query(Passes(7, 5.0, 2, 2, step_size=0.4, radius=0.3), HuberSVM(0.1)),
    "three classes": query(Passes(7, 0.25, 2, 3, step_size=0.9), start=np.arange(9) / 9, num_classes=3),
    "snapshots": query(Passes(7, 0.25, 2, 3, step_size=0.9, ridge=0.1), snapshots=True),
}


@pytest.mark.slow(but=["snapshots"])
@pytest.mark.parametrize("name", RESULTS)
def test_the_result_is_that_of_naive_loops(name):
    descent, random = RESULTS[name], np.random.default_rng(0)
    labels = random.integers(3 if descent.num_classes == 3 else 2, size=6)
    # Six lines of a table declared as seven, and one of them is null.
    rows = Rows(2 * random.random((6, D)), labels.astype(float), np.arange(6) != 4)
    drawn = np.array([random.permutation(7) for _ in range(2)])
    order = np.pad(drawn, ((0, 0), (0, descent.plan.steps_per_pass * descent.plan.batch_size - 7)), constant_values=-1)
    with jax.enable_x64(True):
        result = descent.result(jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), rows), jnp.asarray(order))
    np.testing.assert_allclose(result, naive(descent, rows, order), rtol=1e-6, atol=1e-7)
    assert np.abs(result).max() > 0.1


# ------------------------------------------------------------------------------------------------------- sensitivity
@functools.cache
def tables(adjacency):
    """Tables [s] and their neighbours with another row 0 [n]: stacked Rows [s, n + 1], the table itself first."""
    stacked = []
    for seed in range(6):
        random = np.random.default_rng(seed)
        x, y = possible_rows(random)
        picked = random.integers(0, len(y), N)
        lines, labels, here = x[picked], y[picked], np.arange(N) == 0
        out = [(lines, labels, np.ones(N, np.float32))]
        if adjacency is Adjacency.REPLACE_ONE:
            for other_x, other_y in zip(x, y, strict=True):
                out.append((np.where(here[:, None], other_x, lines), np.where(here, other_y, labels), out[0][2]))
        else:
            out.append((lines, labels, np.where(here, 0, 1).astype(np.float32)))
        stacked.append([np.stack(leaf) for leaf in zip(*out, strict=True)])
    return Rows(*(jnp.asarray(np.stack(leaf)) for leaf in zip(*stacked, strict=True)))


@jax.jit
def arrive(descent, stacked, order):
    def arrival(rows):
        rows = null_invalid(rows)
        return descent.result(Rows(*(leaf.astype(jnp.float64) for leaf in (rows.x, rows.y, rows.mask))), order)

    return jax.vmap(jax.vmap(arrival))(stacked)


#: Plans, and the share of the bound that some replaced row must reach; above a half, a replaced row that counts once is
#: caught.
SOLVES = {
    "constant": (query(Passes(N, 0.25, 3, step_size=2.0)), 0.4),
    "longest steps, batches": (query(Passes(N, 0.25, 3, 2, step_size=8.0)), 0.2),
    "one over gamma t, short last batch": (query(Passes(N, 0.25, 2, 4, "strongly_convex", ridge=0.1)), 0.3),
    "svm, average, ball": (query(Passes(N, 1.0, 2, averaged=1.0, radius=2.0, step_size=0.5), HuberSVM(0.5)), 0.5),
    "three classes": (query(Passes(N, 0.25, 2, 2, step_size=2.0), start=np.zeros(9), num_classes=3), 0.3),
    "snapshots": (query(Passes(N, 0.25, 2, 2, step_size=0.4), snapshots=True), 0.1),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SOLVES)
def test_no_neighbour_arrives_further_away_than_is_stated(name):
    descent, least = SOLVES[name]
    random, furthest = np.random.default_rng(2), 0.0
    # From far away, where residuals are near 1, the bound is nearly reached.
    starts = [random.normal(size=descent.start.shape) * size for size in (0.0, 3.0, 9.0)]
    with jax.enable_x64(True):
        for start in starts:
            descent = descent.replace(start=f32(start))
            order = orders(descent.plan, KeyNoise(jax.random.key(int(random.integers(99)))))
            for adjacency in (Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE):
                ends = np.asarray(arrive(descent, tables(adjacency), order))
                assert ends.dtype == np.float64
                limit = float(descent.bound) * adjacency.sensitivity_factor
                moved = np.linalg.norm(ends[:, 1:] - ends[:, :1], axis=-1).max()
                assert moved <= limit
                if adjacency is Adjacency.REPLACE_ONE:
                    furthest = max(furthest, moved / limit)
    assert furthest > least


def test_the_bound_is_that_of_the_plan_for_each_noise():
    plan = Passes(N, 0.25, 3, step_size=0.5)
    for mechanism, problems in (("gaussian", math.sqrt(3)), ("gamma", 3.0)):
        descent = query(plan, start=np.zeros(9), num_classes=3, mechanism=mechanism, norm_bound=0.5)
        assert 0.5 * plan.sensitivity() * problems <= float(descent.bound)
        assert float(descent.bound) == pytest.approx(0.5 * plan.sensitivity() * problems, rel=1e-4)
    noisy = NoisyPasses(Logistic(), plan, f32(np.zeros(9)), f32(1.0), 3, 0.5, "gamma")
    assert float(noisy.bound) == pytest.approx(0.5 * 3 * 3, rel=1e-4)
    assert float(noisy.replace(mechanism="gaussian").bound) == pytest.approx(0.5 * 3, rel=1e-4)


def test_rounding_is_counted_where_runs_are_long():
    short, long = (query(Passes(rows, 0.25, 1, rows, step_size=1e-3)).bound for rows in (10**4, 10**8))
    assert float(short) == pytest.approx(1e-3 / 10**4, rel=1e-2)
    assert float(long) > 2 * 1e-3 / 10**8


def test_rounding_of_passes_with_snapshots_is_that_of_steps_three_times_as_long():
    """A step adds its batch's gradient, its gradient at the snapshot, and the mean one there."""
    plan = Passes(10**8, 0.25, 2, 10**8, step_size=1e-3)
    descent, lipschitz = query(plan, start=(0.0, 0.0, 0.0), snapshots=True), Logistic().lipschitz
    distance, grown = plan.snapshot_sensitivity()
    reach = 3 * lipschitz * plan.step_sizes.sum()
    drift = 2.0**-52 * (2 * 10**8 + 3 + 64) * grown * reach * (1 + plan.step_sizes.sum() * plan.beta + 4 * 2)
    assert float(descent.bound) == pytest.approx(lipschitz * distance + drift, rel=1e-3)
    assert drift > lipschitz * distance


def test_pure_noise_covers_the_rounding_of_every_problem():
    """Each of K results is rounded to the grid, and for `gamma` the lengths of that add up."""
    classes, plan = 1000, Passes(10_000, 0.25, 1, 50)
    descent = query(plan, start=np.zeros(3 * classes), num_classes=classes, mechanism="gamma")
    rounded = math.sqrt(3) * float(descent.bound) / GRID_STEPS
    assert float(descent.bound) >= classes * (plan.sensitivity() + rounded)


# ------------------------------------------------------------------------------------------------------------- noise
def host(plan_of, seed=5):
    """Noise as a release draws it, for what `plan_of(noise)` asks for."""
    planned = PlannedNoise()
    jax.eval_shape(lambda: plan_of(planned))
    drawn = Entropy(seed).draw(planned.draws, 1)
    return HostNoise([jnp.asarray(values[0]) for values in drawn], planned.draws)


@pytest.mark.parametrize("source", ["key", "host"])
def test_gamma_noise_has_lengths_of_the_gamma_law_and_uniform_directions(source):
    count, size = 20_000, 4
    with jax.enable_x64(source == "host"):
        noise = KeyNoise(jax.random.key(2)) if source == "key" else host(lambda noise: noise.directions(count, size))
        drawn = np.asarray(noise.directions(count, size), float)
    lengths = np.linalg.norm(drawn, axis=1)
    unit = drawn / lengths[:, None]
    laws = {
        "length": (lengths, stats.gamma(size)),
        "direction": (unit[:, 0] ** 2, stats.beta(0.5, (size - 1) / 2)),
        "sign": ((unit[:, 1] > 0) + np.random.default_rng(0).random(count), stats.uniform(0, 2)),
    }
    for values, law in laws.values():
        assert stats.kstest(values, law.cdf).pvalue > 1e-6
    # The test sees 5 % of the scale, one dimension more or less, and a point drawn from the ball.
    for wrong in (lengths * 1.05, lengths + np.random.default_rng(0).exponential(size=count) * 0.2):
        assert stats.kstest(wrong, stats.gamma(size).cdf).pvalue < 1e-6
    in_ball = lengths * np.random.default_rng(1).random(count) ** (1 / size)
    assert stats.kstest(in_ball, stats.gamma(size).cdf).pvalue < 1e-6
    assert abs(np.corrcoef(lengths, unit[:, 0])[0, 1]) < 0.04


@pytest.mark.slow(but=["replace_one"])
@pytest.mark.parametrize("adjacency", [Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE])
def test_each_problem_gets_gamma_noise_for_its_share_of_epsilon_and_a_release_lies_on_the_grid(adjacency):
    classes, size = 4_000, 3
    descent = query(Passes(N, 0.25), start=np.zeros(classes * size), num_classes=classes, mechanism="gamma", noise=0.5)
    single = query(Passes(N, 0.25), mechanism="gamma")

    def release(noise):
        return descent.release(descent.empty(), noise, adjacency)

    with jax.enable_x64(True):
        noise = host(release)
        noise.grid = float(descent.bound) / 2**20
        answer = np.asarray(release(noise))
        steps = answer / noise.grid
    assert np.array_equal(steps, np.rint(steps))
    # epsilon = 1 / 0.5 for all: 2 / K each, where one problem moves by the bound of one.
    scale = float(single.bound) * adjacency.sensitivity_factor * classes / 2
    lengths = np.linalg.norm(answer.reshape(size, classes), axis=0) / scale
    assert stats.kstest(lengths, stats.gamma(size).cdf).pvalue > 1e-6
    assert stats.kstest(lengths / 1.1, stats.gamma(size).cdf).pvalue < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["gaussian", "gamma"])
def test_the_noise_of_every_step_is_that_of_its_sum_and_pass(mechanism):
    """On null rows the last iterate is the steps' noise alone: -sum of eta_t noise_t / b."""
    plan, size = Passes(40, 0.25, 4, 10, "inverse_power", step_size=1.0), 5_000
    noisy = NoisyPasses(Logistic(), plan, f32(np.zeros(size)), f32(0.7), 1, 0.5, mechanism)
    rows = Rows(jnp.zeros((40, size - 1)), jnp.zeros(40), jnp.zeros(40))
    answer = np.asarray(noisy.answer(rows, KeyNoise(jax.random.key(0)), Adjacency.REPLACE_ONE), float)
    # Replacing a row moves one sum of each pass by 2 * 0.5: k passes by sqrt(k) or k times that.
    scale = 0.7 * (2 if mechanism == "gaussian" else 4) / 10
    variance = scale**2 * (plan.step_sizes**2).sum()
    if mechanism == "gamma":  # E length^2 / size = size + 1
        variance *= size + 1
    total = (answer**2).sum() / variance
    assert abs(total / size - 1) < (0.1 if mechanism == "gaussian" else 0.12)
    assert not 0.8 < total / size / 4 < 1.25


def test_sampled_noise_pays_for_all_steps_and_published_noise_does_not():
    for epsilon, delta, steps, rate in ((1.0, 1e-6, 200, 0.01), (0.1, 1e-8, 12_000, 50 / 60_000), (4.0, 1e-5, 10, 0.5)):
        ratio = float(noise_ratio(f32(epsilon), f32(math.log(delta)), steps, rate))
        each_delta = delta / (2 * steps * rate)
        on_batch = math.sqrt(2 * math.log(1.25 / each_delta)) / ratio
        assert on_batch <= 1
        each = math.log1p(rate * math.expm1(on_batch))
        spent = steps * each * math.expm1(each) + math.sqrt(2 * steps * math.log(2 / delta)) * each
        assert spent <= epsilon
        assert spent > 0.999 * epsilon or on_batch > 0.999
    # As published, with one gradient's bound for a replaced row: less than half of the sound noise.
    sampled = SampledPasses(Logistic(), Passes(N, 0.25), f32(np.zeros(3)), f32(math.log(1e-6)), f32(1.0), in_ball=False)
    ratio = float(noise_ratio(f32(1.0), f32(math.log(1e-6)), sampled.plan.num_steps, 1 / N))
    assert float(sampled.noise_scale()) >= 2 * 1.0 * ratio


@pytest.mark.slow
def test_rows_are_drawn_uniformly_and_afresh():
    plan = [OrderDraw(4, 2_000)]
    for size, count in ((1, 2_000), (2, 2_000), (4, 2_000)):
        if size < 4:
            simulated = KeyNoise(jax.random.key(7)).subsets(4, count, size)
            released = Entropy(3).draw([SubsetDraw(4, count, size)], 1)[0][0]
        else:
            simulated, released = KeyNoise(jax.random.key(7)).orders(4, count), Entropy(3).draw(plan, 1)[0][0]
        for drawn in (np.asarray(simulated), released):
            assert drawn.shape == (count, size)
            assert (np.diff(np.sort(drawn, 1), axis=1) > 0).all()  # no line twice
            ordered = drawn if size == 4 else np.sort(drawn, 1)  # order counts where all are drawn
            _, frequency = np.unique(ordered, axis=0, return_counts=True)
            assert len(frequency) == {1: 4, 2: 6, 4: 24}[size]
            assert stats.chisquare(frequency).pvalue > 1e-6
            assert (drawn[1:] == drawn[:-1]).all(1).mean() < 0.5  # each draw is another


@pytest.mark.slow
def test_passes_are_permuted_as_the_plan_says_and_each_run_anew():
    plan = Passes(50, 0.25, 4, 20)
    for fresh, (first, second) in {
        True: [orders(plan, KeyNoise(jax.random.key(seed))) for seed in (0, 1)],
        False: [orders(dataclasses.replace(plan, order="same"), KeyNoise(jax.random.key(seed))) for seed in (0, 1)],
    }.items():
        assert first.shape == (4, 60)
        assert not np.array_equal(first, second)
        assert np.array_equal(np.sort(first[:, :50], 1), np.tile(np.arange(50), (4, 1)))
        assert (np.asarray(first[:, 50:]) == -1).all()
        assert len(np.unique(np.asarray(first), axis=0)) == (4 if fresh else 1)


# ---------------------------------------------------------------------------------------------------------- releases
def table(num_rows=400, classes=2, seed=0):
    random = np.random.default_rng(seed)
    x = random.random((num_rows, 3)).astype(np.float32)
    score = x @ np.array([3.0, -3.0, 1.0])
    y = np.digitize(score, np.quantile(score, np.arange(1, classes) / classes)).astype(np.float32)
    return Rows(x, y, np.ones(num_rows, np.float32))


@pytest.mark.slow
def test_a_pure_release_takes_the_whole_of_epsilon_and_no_two_are_alike():
    rows = table(60)
    first, second = (l2p.private_train(rows, "bolt_on", BUDGET, accountant="basic") for _ in range(2))
    assert (first.card.accountant, first.card.epsilon_certified, len(first.trace)) == ("basic", 1.0, 1)
    assert first.trace[0].mechanism == "gamma"
    assert 1.0 <= first.trace[0].noise_multiplier <= 1 + 1e-5
    # Public code seeds both of its draws with 1.
    assert np.abs(np.asarray(first.params) - np.asarray(second.params)).min() > 0


@pytest.mark.slow
def test_classes_against_the_rest_of_projected_rows_are_learned():
    rows, model = table(classes=3), find_model("softmax:3")
    protector = BoltOn(400, 5, 10, "strongly_convex", ridge=0.01, radius=100.0, projected_features=2, averaged=0.5)
    result = l2p.private_train(rows, protector, dataclasses.replace(NULLED, epsilon=1e4), model="softmax:3")
    right = np.mean(np.asarray(model.predict(result.params, jnp.asarray(rows.x))) == rows.y)
    assert right > 0.5
    # In the span of two fixed directions, for every class.
    assert np.linalg.matrix_rank(np.asarray(result.params).reshape(4, 3)[:3], tol=1e-3) <= 2


@pytest.mark.slow
def test_fewer_lines_than_declared_are_null_rows_and_more_are_refused():
    rows = table(60)
    assert l2p.private_train(rows, "bolt_on_sc", NULLED, num_rows=61).card.num_rows == 61
    with pytest.raises(InputError, match="declared as 59"):
        l2p.private_train(rows, "bolt_on_sc", NULLED, num_rows=59)


# ---------------------------------------------------------------------------------------------------------- refusals
@pytest.mark.parametrize("method", ["bolt_on", "bolt_on_sc", "scs13", "bst14", "bst14_sc", BoltOn(60), NoisySGD(60)])
def test_a_private_number_of_rows_is_refused(method):
    budget = dataclasses.replace(BUDGET, adjacency=Adjacency.ADD_REMOVE)
    with pytest.raises(InputError, match=r"zero_out or\s+replace_one|replace_one neighbours"):
        l2p.private_train(table(60), method, budget, num_rows=60)


BAD = {
    "too long": BoltOn(60, step_size=8.1),
    "too long for the ridge": BoltOn(60, step_size=7.0, ridge=0.2),
    "no tail": BoltOn(60, order="with_replacement"),
    "no row norm": BoltOn(60, norm_bound=0.0),
    "no ridge": BoltOn(60, rule="strongly_convex"),
    "large batch": BoltOn(60, batch_size=61),
    "an average of snapshots": BoltOn(60, snapshots=True, averaged=0.5),
    "a large tail": BoltOn(60, order="with_replacement", tail=0.9e-6),
    "a tail of permuted rows": BoltOn(60, tail=1e-9),
}


@pytest.mark.slow(cases=["a large tail"])
@pytest.mark.parametrize("name", BAD)
def test_settings_that_no_proof_covers_release_nothing(name):
    try:
        result = l2p.private_train(table(60), BAD[name], NULLED)
    except InputError as error:
        assert str(error).endswith(".")  # noqa: PT017
    else:
        assert not result.trace
        assert not np.any(result.params)


def test_hard_hinges_and_regressions_are_refused():
    for model in ("hinge", "square", "mlp"):
        with pytest.raises(InputError):
            l2p.private_train(table(60), "bolt_on", NULLED, model=model)


@pytest.mark.slow
def test_with_a_huge_budget_the_methods_find_the_minimum():
    rows = table(200)
    lines = np.c_[rows.x, np.full(200, INTERCEPT_COLUMN)]
    lines = lines * np.minimum(1, 1 / np.linalg.norm(lines, axis=1))[:, None]
    protector = BoltOn(200, 40, 10, "strongly_convex", ridge=0.02, radius=50.0, averaged=0.5)
    params = np.asarray(l2p.private_train(rows, protector, dataclasses.replace(NULLED, epsilon=1e6)).params, float)
    slope = (special.expit(lines @ params) - rows.y) @ lines / 200 + 0.02 * params
    assert np.abs(slope).max() < 5e-3
    assert np.abs(params).max() > 1
