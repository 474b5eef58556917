"""Every model through queries and protectors: sensitivity, limits without noise, the minimiser, budgets."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from l2p.models import GeneralizedLinear, Hinge, HuberSVM
from l2p.oracle.setup import Setup
from l2p.oracle.sums import exact_sum
from l2p.oracle.trace import trace_of
from l2p.privacy import Adjacency, Budget, Filter
from l2p.protectors import HAND_DESIGNED, Centering, Decaying, Optax, Stepwise
from l2p.queries import ClippedGradient, NoisyMinimum
from l2p.queries.solve import minimise
from l2p.run.run import run
from l2p.run.simulate import mean_loss
from l2p.task.exact_sums import MARGIN
from l2p.task.feature_map import FeatureMap
from l2p.task.rows import Rows, null_invalid
from meta_train.tasks.reference import newton
from tests.models import naive
from tests.models.naive import EVERY

D, N, STEPS = 3, 60, 6
CLIP = 0.4
BUDGET = Budget(1.0, 1e-6)
ALL = pytest.mark.parametrize("name", EVERY)


def f32(value):
    return jnp.asarray(value, jnp.float32)


def table(name, seed=0, count=N):
    random = np.random.default_rng(seed)
    x = random.random((count, D))
    signal = 4 * (x @ [1.5, -1.0, 0.5] - 0.5) + random.logistic(size=count)
    y = 1 / (1 + np.exp(-signal)) if "regression" in EVERY[name].kinds else (signal > 0).astype(float)
    if name == "softmax":
        y = np.digitize(signal, [-1, 1]).astype(float)
    return Rows(f32(x), f32(y), f32(np.ones(count)))


def start_of(name):
    return f32(np.random.default_rng(1).normal(size=EVERY[name].num_params(D)))


# -------------------------------------------------------------------------------------------------------- sensitivity
def queries(name):
    model, params = EVERY[name], start_of(name)
    features = FeatureMap(f32([0.3, 0.5, 0.9]), f32(1.6))
    candidates = params[None, :] + f32(np.random.default_rng(2).normal(size=(4, len(params))))
    return {
        "gradient": ClippedGradient(model, params, features, f32(CLIP), f32(1.0)),
        "minimum": NoisyMinimum(model, candidates, f32(CLIP), f32(1.0), "gumbel"),
    }


@functools.cache
def neighbours(name):
    """A table of six rows; for each row, the table without it, unchanged, and with hostile rows in its place."""
    rows = table(name, count=6)
    x, y, mask = (np.array(leaf) for leaf in (rows.x, rows.y, rows.mask))
    lines = [np.full(D, value) for value in (np.nan, np.inf, 3e38, -3e38, 1e20, 50.0, -50.0, 0.0)]
    hostile = [(line, label) for line in [*lines, np.array([3e38, -3e38, 0])] for label in (0.0, 1.0)]
    hostile += [(np.full(D, 0.5), label) for label in (np.nan, 1e30, -3e38, 7.0, 0.5)]
    tables = []
    for row in range(len(y)):
        here = np.arange(len(y)) == row
        tables += [(x, y, np.where(here, 0, mask)), (x, y, mask)]
        tables += [(np.where(here[:, None], line, x), np.where(here, label, y), mask) for line, label in hostile]
    return Rows(*(f32(np.stack(leaf)) for leaf in zip(*tables, strict=True)))


@jax.jit
def sums(query, tables):
    return jax.vmap(lambda rows: query.add(query.empty(), null_invalid(rows)))(tables)


@jax.jit
def exact_sums(query, tables):
    return jax.lax.map(lambda rows: exact_sum(query, null_invalid(rows)), tables)


@pytest.mark.slow(but=["svm-minimum"])
@pytest.mark.parametrize("kind", ["gradient", "minimum"])
@ALL
def test_no_row_moves_a_sum_by_more_than_the_bound_in_float32_or_in_whole_units(name, kind):
    query, tables = queries(name)[kind], neighbours(name)
    sums_of_tables = np.asarray(sums(query, tables), np.float64)
    with jax.enable_x64(True):
        exact = exact_sums(query, tables)
        units = np.asarray(exact.unit)
    # Whole units of few rows, without their fraction: differences of these are exact.
    steps = np.asarray(exact.high) * 2.0**32 + np.asarray(exact.low)
    margin = 0.0 if kind == "minimum" else MARGIN
    for values, unit, tolerance in ((sums_of_tables, 1.0, 3e-5), (steps, units[0], margin)):
        assert np.isfinite(values).all()
        values = values.reshape(6, -1, values.shape[-1])
        moved = (values[:, 1:] - values[:, :1]) * unit  # what the row adds to the table without it
        if kind == "minimum":
            assert moved.min() >= -1e-6 * CLIP * (tolerance > 0)
            worst = moved.max()
        else:
            worst = np.sqrt((moved * moved).sum(-1)).max()
        assert 0.9 * CLIP < worst <= float(f32(CLIP)) * (1 + tolerance)


# -------------------------------------------------------------------------------------------------------------- limits
def setup(name, accountant="gdp", **changes):
    planned = Filter(accountant, BUDGET).price_list()
    return Setup.create(EVERY[name], Adjacency.ZERO_OUT, planned, N).replace(**changes)


def unlimited(name, accountant="gdp"):
    here = setup(name, accountant)
    return here.replace(price_list=here.price_list.replace(budget=f32(1e12)), cap=f32(1e12))


def descent(rate, clip_norm, centering=None):
    rates = {"learning_rate": jnp.log(f32([rate])), "momentum": f32([-np.inf])}
    scheduler = Decaying(jnp.log(f32([clip_norm])), f32([0.0]))
    return Stepwise(scheduler, Optax("sgd", rates), (centering,) if centering else (), num_steps=STEPS)


jit_run = jax.jit(run)
CENTERING = Centering(f32([0.0]), f32(-1.2), f32(5.0), f32(1.5))


def plain_descent(model, rows, rate, x, start=None):
    params, y = np.asarray(model.init(D) if start is None else start, float), np.asarray(rows.y, float)
    for _ in range(STEPS):
        params = params - rate * naive.gradients(model, params, x, y).mean(0)
    return params


@pytest.mark.long(cases=["mlp", "softmax", "quadratic"])
@pytest.mark.slow
@ALL
def test_with_a_huge_budget_and_clip_norm_it_is_plain_gradient_descent(name):
    model, rows = EVERY[name], table(name)
    params, ended, _, _ = jit_run(descent(0.5, 100.0), model.init(D), rows, unlimited(name), jax.random.key(0))
    assert int(ended.step) == STEPS
    expected = plain_descent(model, rows, 0.5, np.asarray(rows.x, float))
    np.testing.assert_allclose(params, expected, rtol=1e-3, atol=2e-4)
    assert np.abs(expected - np.asarray(model.init(D))).max() > 0.01


@pytest.mark.long(cases=["mlp", "softmax"])
@pytest.mark.slow
@pytest.mark.parametrize("name", ["softmax", "mlp", "quadratic"])
def test_centred_it_is_plain_gradient_descent_on_centred_rows_mapped_back(name):
    model, rows = EVERY[name], table(name)
    protector = descent(0.5, 100.0, CENTERING)
    params, _, (first, _), _ = jit_run(protector, model.init(D), rows, unlimited(name), jax.random.key(0))
    x = np.asarray(rows.x, float)
    if not model.has_intercept:  # nothing could absorb the shift, so the mean is not queried
        assert first == []
        np.testing.assert_allclose(params, plain_descent(model, rows, 0.5, x), rtol=1e-3, atol=2e-4)
        return
    assert [record.query for record in first] == ["feature_mean"]
    center = x.mean(0)
    scale = 1.5 / np.sqrt((center * (1 - center)).sum() + 0.01)
    mapped, features = (x - center) * scale, FeatureMap(jnp.asarray(center, jnp.float32), jnp.float32(scale))
    start = model.params_for_mapped_rows(model.init(D), features)  # predicts on mapped rows as it did on raw ones
    expected = plain_descent(model, rows, 0.5, mapped, start)
    np.testing.assert_allclose(
        naive.losses(model, params, x, rows.y), naive.losses(model, expected, mapped, rows.y), atol=1e-3
    )


@pytest.mark.long(but=["logistic-noisygd", "mlp-noisygd", "square-noisygd"])
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "method"),
    [(name, "noisygd") for name in EVERY] + [("softmax", "agd"), ("mlp", "agd")],
)
def test_a_run_keeps_its_budget_in_float64_and_learns_where_it_is_large(name, method):
    model, rows = EVERY[name], table(name)
    accountant = "rdp" if method == "agd" else "gdp"
    protector = HAND_DESIGNED[method](BUDGET).replace(num_steps=40)
    _, _, (first, records), _ = jit_run(protector, model.init(D), rows, setup(name, accountant), jax.random.key(0))
    planned = Filter(accountant, BUDGET)
    assert 0 < planned.spent(trace_of(first, [records])) <= planned.limit
    params, _, _, _ = jit_run(protector, model.init(D), rows, unlimited(name, accountant), jax.random.key(0))
    assert float(mean_loss(params, model, rows)) < 0.95 * float(mean_loss(model.init(D), model, rows))


@pytest.mark.long
def test_meta_gradients_through_the_hinges_kink_are_finite():
    model, rows = EVERY["hinge"], table("hinge")
    on_kink = f32([0.0, 0.0, 0.0, 2.0])  # margin 1 everywhere: at the kink of every row of class 1

    def loss(protector, start):
        params, _, _, _ = run(protector, start, rows, setup("hinge"), jax.random.key(0))
        return mean_loss(params, model, rows)

    for start in (on_kink, -on_kink, jnp.zeros(4)):
        for leaf in jax.tree.leaves(jax.jit(jax.grad(loss))(descent(0.5, 1.0).replace(num_steps=3), start)):
            assert bool(jnp.isfinite(leaf).all())


# --------------------------------------------------------------------------------------------------------- minimisers
@functools.cache
def solution(name, count=200):
    model, rows = EVERY[name], table(name, count=count)
    return rows, np.asarray(jax.jit(lambda rows: minimise(model, model.init(D), rows))(rows), float)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["square", "quadratic"])
def test_least_squares_end_at_the_solution_of_the_normal_equations(name):
    rows, params = solution(name)
    lines = np.asarray(EVERY[name].design(rows.x), float)
    np.testing.assert_allclose(params, np.linalg.lstsq(lines, np.asarray(rows.y, float), rcond=None)[0], atol=1e-3)


@pytest.mark.long
def test_the_hinge_is_solved_to_a_quarter_of_its_bend():
    rows, params = solution("hinge")
    sign, lines = 2 * np.asarray(rows.y, float) - 1, np.asarray(EVERY["hinge"].design(rows.x), float)
    # As a linear program over (params, slacks): slack >= 0, slack >= 1 - sign * margin, their mean least.
    count = len(sign)
    best = optimize.linprog(
        np.r_[np.zeros(D + 1), np.full(count, 1 / count)],
        A_ub=np.c_[-sign[:, None] * lines, -np.eye(count)],
        b_ub=-np.ones(count),
        bounds=[(None, None)] * (D + 1) + [(0, None)] * count,
    ).fun
    reached = naive.losses(EVERY["hinge"], params, rows.x, rows.y).mean()
    assert best - 1e-6 <= reached <= best + 0.001 / 4 + 1e-4


@pytest.mark.long
@pytest.mark.parametrize("name", ["logistic", "svm", "softmax", "mlp"])
def test_the_minimiser_is_a_stationary_point(name):
    rows, params = solution(name)
    model = EVERY[name]
    slope = naive.gradients(model, params, rows.x, rows.y).mean(0)
    ridge = 1e-6 if model.convex else 1e-4
    assert np.abs(slope + ridge * params).max() < (2e-4 if model.convex else 5e-3)
    if name == "mlp":  # not the minimum, but below that of a model that it contains, or nearly so
        logistic = naive.losses(EVERY["logistic"], solution("logistic")[1], rows.x, rows.y).mean()
        assert naive.losses(model, params, rows.x, rows.y).mean() < logistic


@pytest.mark.slow
def test_a_minimiser_of_fewer_rows_than_features_is_finite_and_fits_them():
    random = np.random.default_rng(3)
    rows = Rows(f32(random.random((100, 150))), f32(random.random(100)), f32(np.ones(100)))
    model = EVERY["square"]
    params = jax.jit(lambda rows: minimise(model, model.init(150), rows))(rows)
    assert np.isfinite(params).all()
    assert naive.losses(model, params, rows.x, rows.y).mean() < 1e-4


@pytest.mark.long(cases=["square"])
@pytest.mark.slow
@pytest.mark.parametrize("name", ["square", "logistic"])
def test_the_minimiser_is_found_among_collinear_indicators(name):
    """Columns of one-hot codes, as tables have them, each summing to one: in float32 hardly positive definite."""
    random, model, codes = np.random.default_rng(4), EVERY[name], 12
    x = np.hstack([np.eye(10)[random.integers(10, size=3000)] for _ in range(codes)])
    y = (x @ random.normal(size=10 * codes) + random.normal(size=3000) > 0).astype(float)
    rows = Rows(f32(x), f32(y), f32(np.ones(3000)))
    params = np.asarray(jax.jit(lambda rows: minimise(model, model.init(10 * codes), rows))(rows), float)
    lines = np.asarray(model.design(rows.x), float)
    slope = np.asarray(model.residual(lines @ params, y), float) @ lines / 3000 + 1e-6 * params
    assert np.abs(slope).max() < 1e-4


@pytest.mark.long
def test_minimisers_side_by_side_are_those_one_by_one():
    model, several = EVERY["logistic"], [table("logistic", seed=seed, count=60) for seed in range(2)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *several)
    together = jax.jit(jax.vmap(lambda rows: minimise(model, model.init(D), rows)))(stacked)
    for params, rows in zip(together, several, strict=True):
        alone = minimise(model, model.init(D), rows)
        np.testing.assert_allclose(params, alone, rtol=1e-2, atol=1e-2)


@pytest.mark.slow
def test_newtons_method_solves_regularised_hubers_svm_from_where_it_is_straight():
    rows, model = table("svm", count=200), HuberSVM()
    params = np.asarray(jax.jit(lambda rows: newton(model, jnp.zeros(D + 1), rows, 40, 0.05))(rows), float)

    def objective(params):
        return naive.losses(model, params, rows.x, rows.y).mean() + 0.025 * params @ params

    best = optimize.minimize(objective, np.zeros(D + 1), method="BFGS").fun
    assert objective(params) <= best + 1e-6
    assert isinstance(model, GeneralizedLinear)
    assert model.flat
    assert Hinge().flat
