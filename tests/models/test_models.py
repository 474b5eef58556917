"""Every model against its definition: losses, derivatives, sums of clipped gradients, feature maps."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.base.errors import InputError
from l2p.models import MODELS, NAMES, GeneralizedLinear, Hinge, HuberSVM, Model, Softmax, base, find_model, plain_name
from l2p.task.feature_map import Basis, FeatureMap
from l2p.task.rows import Rows, null_invalid
from tests.models import naive
from tests.models.naive import EVERY

D, N = 4, 40
ALL = pytest.mark.parametrize("name", EVERY)
LINEAR = [name for name, model in EVERY.items() if isinstance(model, GeneralizedLinear)]


def f32(value):
    return jnp.asarray(value, jnp.float32)


def problem(name, seed=0, pad=3):
    """(model, params, rows): the last rows are null and hold garbage."""
    model, random = EVERY[name], np.random.default_rng(seed)
    x, y = random.random((N + pad, D)), naive.labels(model, random, N + pad)
    params = random.normal(size=model.num_params(D))
    return model, f32(params), Rows(f32(x), f32(y), f32(np.arange(N + pad) < N))


def a_map(model, seed=0, turned=False):
    """A map of the features that the model can follow."""
    scale = 1.7
    if not model.has_intercept:
        return FeatureMap(f32(np.full(D, 0.5 - 0.5 / scale)), f32(scale))
    return FeatureMap(f32(np.random.default_rng(seed).random(D)), f32(scale), a_basis() if turned else None)


def a_basis():
    forward = np.eye(D) + 0.4 * np.random.default_rng(9).normal(size=(D, D))
    return Basis(f32(forward), f32(np.linalg.inv(forward)))


# ------------------------------------------------------------------------------------------------- losses, derivatives
@pytest.mark.slow(but=["svm"])
@ALL
def test_the_loss_of_a_row_is_that_of_the_definition(name):
    model, params, rows = problem(name)
    expected = naive.losses(model, params, rows.x, rows.y)
    np.testing.assert_allclose(jax.vmap(model.loss, (None, 0, 0))(params, rows.x, rows.y), expected, atol=1e-5)
    several = f32(np.random.default_rng(1).normal(size=(3, len(params))))
    losses = model.losses(several, rows.x, rows.y)
    assert losses.shape == (3, N + 3)
    for weights, line in zip(several, losses, strict=True):
        np.testing.assert_allclose(line, naive.losses(model, weights, rows.x, rows.y), atol=2e-5)


@ALL
def test_losses_along_a_line_are_those_of_the_points_on_it(name):
    model, params, rows = problem(name)
    direction, sizes = f32(np.random.default_rng(2).normal(size=len(params))), f32([0.0, 0.5, 2.0])
    losses = model.losses_along(params, direction, sizes, rows.x, rows.y)
    assert losses.shape == (3, N + 3)
    for size, line in zip(np.asarray(sizes, float), losses, strict=True):
        point = np.asarray(params, float) - size * np.asarray(direction, float)
        np.testing.assert_allclose(line, naive.losses(model, point, rows.x, rows.y), atol=5e-5)


@pytest.mark.slow
def test_the_logistic_loss_neither_overflows_nor_loses_its_slope():
    model, margin = MODELS["logistic"], f32([-200.0, -20.0, 0.0, 1e-3, 20.0, 200.0])
    np.testing.assert_allclose(
        model.margin_loss(margin, 0.0), np.logaddexp(0, np.asarray(margin, float)), rtol=2e-7, atol=1e-7
    )
    share = 1 / (1 + np.exp(-np.asarray(margin, float)))
    slope, bend = jax.grad(model.margin_loss), jax.grad(jax.grad(model.margin_loss))
    np.testing.assert_allclose(jax.vmap(slope, (0, None))(margin, 0.0), share, atol=1e-6)
    np.testing.assert_allclose(jax.vmap(bend, (0, None))(margin, 0.0), share * (1 - share), atol=1e-6)


@pytest.mark.long(cases=["mlp", "softmax"])
@pytest.mark.slow(but=["quadratic"])
@ALL
def test_gradients_are_central_differences(name):
    model, params, rows = problem(name)
    expected = naive.gradients(model, params, rows.x, rows.y)
    np.testing.assert_allclose(model.gradients(params, rows.x, rows.y), expected, atol=2e-5)
    assert np.abs(expected).max() > 0.1


@pytest.mark.slow(but=["quadratic"])
@pytest.mark.parametrize("name", LINEAR)
def test_residual_and_curvature_are_the_derivatives_of_the_margins_loss(name):
    model = EVERY[name]
    # Away from the kinks at -1, 1 and (svm) 0.9 and 1.1, where either one-sided derivative is valid.
    margins = f32(np.linspace(-4, 4, 160) + 0.013)
    for y in [0.0, 1.0] + [0.3] * ("regression" in model.kinds):
        targets = jnp.full(margins.shape, y)
        slope = jax.vmap(jax.grad(model.margin_loss))(margins, targets)
        np.testing.assert_allclose(model.residual(margins, targets), slope, atol=1e-6)
        bend = jax.vmap(jax.grad(model.residual))(margins, targets)
        np.testing.assert_allclose(model.curvature(margins, targets), bend, atol=1e-5)


@pytest.mark.parametrize("name", LINEAR)
def test_lipschitz_and_smoothness_are_reached_and_never_exceeded(name):
    model, margins = EVERY[name], f32(np.linspace(-60, 60, 4801))
    for supremum, values in (
        (model.lipschitz, model.residual(margins, jnp.ones(1))),
        (model.smoothness, model.curvature(margins, jnp.ones(1))),
    ):
        if math.isfinite(supremum):
            assert float(jnp.abs(values).max()) == pytest.approx(supremum, rel=1e-5)
    # Without one, any bound is exceeded: by square's residual far away, by the hinge's jump at its kink.
    if name == "hinge":
        assert float(model.residual(f32(1.0), f32(1.0)) - model.residual(f32(1.0 - 1e-6), f32(1.0))) == 1.0
    else:
        assert math.isfinite(model.lipschitz) is ("regression" not in model.kinds)


def test_softmax_residuals_are_the_gradient_in_its_margins():
    model, params, rows = problem("softmax")
    margins = model.margins(params, rows.x)
    assert margins.shape == (N + 3, 3)
    slopes = jax.vmap(jax.grad(model.margin_loss))(margins, rows.y)
    np.testing.assert_allclose(model.residuals(margins, rows.y), slopes, atol=1e-6)


@pytest.mark.slow
def test_softmax_on_two_classes_with_one_fixed_is_logistic_regression():
    logistic, params, rows = problem("logistic")
    pair = jnp.stack([jnp.zeros_like(params), params], axis=1).ravel()
    np.testing.assert_allclose(
        Softmax(2).losses(pair[None], rows.x, rows.y), logistic.losses(params[None], rows.x, rows.y), atol=1e-6
    )
    assert np.array_equal(Softmax(2).predict(pair, rows.x), logistic.predict(params, rows.x))


@pytest.mark.slow
def test_a_label_that_is_no_class_belongs_to_none():
    model, params, rows = problem("softmax")
    outside = model.residuals(model.margins(params, rows.x), jnp.full(N + 3, 7.0))
    np.testing.assert_allclose(outside.sum(-1), 1.0, rtol=1e-6)
    assert bool(jnp.isfinite(model.losses(params[None], rows.x, jnp.full(N + 3, 0.5))).all())


@pytest.mark.slow(but=["hinge"])
@pytest.mark.parametrize("model", [Hinge(), HuberSVM()], ids=str)
def test_kinks_have_finite_derivatives_on_either_side(model):
    for margin in (-1.1, -1.0, -0.9, 0.0, 0.9, 1.0, 1.1, 1e30, -1e30):
        for y in (0.0, 1.0):
            slope = jax.grad(model.margin_loss)(f32(margin), f32(y))
            assert np.isfinite(slope)
            assert float(slope) == pytest.approx(float(model.residual(f32(margin), f32(y))), abs=1e-5)
            assert np.isfinite(jax.grad(model.residual)(f32(margin), f32(y)))


def test_the_parabola_that_stands_in_for_hubers_curvature_lies_above_the_loss():
    model, margins = HuberSVM(), np.linspace(-5, 5, 401)
    loss = np.asarray(model.margin_loss(f32(margins), jnp.ones(1)))
    for at in (-4.0, -0.3, 0.9, 0.95, 1.02, 1.1, 1.3, 4.0):
        value, slope = model.margin_loss(f32(at), f32(1)), model.residual(f32(at), f32(1))
        parabola = float(value) + float(slope) * (margins - at)
        bend = 0.5 * float(model.newton_curvature(f32(at), f32(1))) * (margins - at) ** 2
        assert np.all(parabola + bend >= loss - 1e-5)
        assert np.any(parabola + 0.97 * bend < loss - 1e-5)  # the least curved one


# --------------------------------------------------------------------------------------------------- sums of gradients
FACTORS = {
    "clipped": lambda norms: jnp.minimum(1.0, 0.4 / jnp.maximum(norms, 1e-12)),
    "normalised": lambda norms: 1.0 / (norms + 0.01),
    # The norms themselves: for the network its ghost norms, which are computed without gradients.
    "times their norms": lambda norms: norms,
}


@pytest.mark.long(cases=["mlp-*", "softmax-clipped", "logistic-clipped"])
@pytest.mark.slow(but=["square-*", "quadratic-*"])
@pytest.mark.parametrize("factor", FACTORS)
@ALL
def test_closed_forms_are_sums_over_gradients_one_by_one(name, factor, monkeypatch):
    model, params, rows = problem(name)
    # Any map, since nothing is mapped back here.
    turned = a_basis() if model.has_intercept else None
    features = FeatureMap(f32(np.random.default_rng(3).random(D)), f32(1.7), turned)
    total = model.scaled_gradient_sum(params, rows, features, FACTORS[factor])
    mapped = (np.asarray(rows.x, float) - np.asarray(features.center)) * 1.7
    mapped = mapped if turned is None else mapped @ np.asarray(turned.forward, float)
    each = naive.gradients(model, params, mapped, rows.y)[:N]
    norms = np.sqrt((each**2).sum(1))
    expected = np.asarray(FACTORS[factor](norms)) @ each
    np.testing.assert_allclose(total, expected, rtol=1e-4, atol=1e-4)
    monkeypatch.setattr(base, "GRADIENT_FLOATS", 7 * len(params))  # six blocks and a part
    blocks = Model.scaled_gradient_sum(model, params, rows, features, FACTORS[factor])
    np.testing.assert_allclose(blocks, expected, rtol=1e-4, atol=1e-4)
    if factor == "clipped":
        np.testing.assert_allclose(model.clipped_gradient_sum(params, rows, features, f32(0.4)), total, atol=1e-6)
        assert (norms > 0.4).any()


@pytest.mark.slow(but=["hinge", "square", "quadratic"])
@ALL
def test_rows_that_overflow_count_as_nothing_and_take_nothing_with_them(name):
    model, params, rows = problem(name)
    features = FeatureMap.identity(D)
    bad = rows.x.at[5].set(3e38).at[6].set(jnp.inf).at[7].set(jnp.array([3e38, -3e38, 3e38, 0.0]))
    total = model.clipped_gradient_sum(params, null_invalid(rows.replace(x=bad)), features, f32(0.4))
    rest = rows.replace(mask=rows.mask.at[jnp.array([5, 6, 7])].set(0.0))
    np.testing.assert_allclose(total, model.clipped_gradient_sum(params, rest, features, f32(0.4)), atol=1e-6)


@pytest.mark.long(cases=["mlp", "softmax"])
@pytest.mark.slow(but=["svm"])
@pytest.mark.parametrize("name", EVERY)
def test_clipped_sums_have_finite_derivatives_where_a_row_is_fitted_or_empty(name):
    model, params, _ = problem(name)
    rows = Rows(jnp.zeros((2, D)).at[1].set(0.5), jnp.zeros(2), jnp.ones(2))

    def sums(params, clip_norm):
        return model.clipped_gradient_sum(params, rows, FeatureMap.identity(D), clip_norm).sum()

    for start in (jnp.zeros_like(params), params, 1e3 * params):
        for slope in jax.grad(sums, (0, 1))(start, f32(0.4)):
            assert bool(jnp.isfinite(slope).all())


# ------------------------------------------------------------------------------------------------------ feature maps
@pytest.mark.slow(cases=["False-logistic", "False-svm", "False-mlp", "False-softmax", "True-mlp", "True-softmax"])
@ALL
@pytest.mark.parametrize("turned", [False, True])
def test_params_for_raw_rows_give_the_same_losses_there(name, turned):
    model, params, rows = problem(name)
    features = a_map(model, turned=turned)
    raw = model.params_for_raw_rows(params, features)
    expected = naive.losses(model, params, features.apply(rows.x), rows.y)
    np.testing.assert_allclose(naive.losses(model, raw, rows.x, rows.y), expected, atol=1e-5)
    assert np.abs(expected - naive.losses(model, params, rows.x, rows.y)).max() > 0.1
    both = model.params_for_raw_rows(jnp.stack([params, 2 * params]), features)
    np.testing.assert_allclose(both[0], raw, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(model.params_for_raw_rows(params, FeatureMap.identity(D)), params)
    np.testing.assert_allclose(model.params_for_mapped_rows(both, features)[0], params, rtol=1e-4, atol=1e-5)


@ALL
def test_numbers_per_feature_become_numbers_per_param(name):
    # Scaling one feature changes only the params that belong to it.
    model, params, _ = problem(name)
    values = f32(np.arange(1, D + 1))
    stretched = FeatureMap(jnp.zeros(D), f32(1.0), Basis(jnp.diag(values), jnp.diag(1 / values)))
    if model.has_intercept:
        ratios = model.params_for_raw_rows(params, stretched) / params
        np.testing.assert_allclose(jnp.maximum(model.per_param(values), 1.0), ratios, rtol=1e-5)
        assert set(model.per_param(values).tolist()) == {0.0, 1.0, 2.0, 3.0, 4.0}
    else:
        np.testing.assert_array_equal(model.per_param(values), values)


# --------------------------------------------------------------------------------------------- names, shapes, arrays
@ALL
def test_models_are_static_and_know_their_sizes(name):
    model, params, rows = problem(name)
    assert hash(model) == hash(find_model(str(model)))
    assert find_model(str(model)) == model
    for size in (1, 52, 784):
        assert model.num_features(model.num_params(size)) == size
    start = model.init(D)
    assert (start.shape, start.dtype) == (params.shape, jnp.float32)
    predicted = model.predict(params, rows.x)
    assert (predicted.shape, predicted.dtype) == ((N + 3,), jnp.float32)
    if "regression" not in model.kinds:
        assert set(np.unique(predicted)) <= set(model.labels)


@pytest.mark.slow
def test_the_networks_start_is_the_same_for_all_and_says_nothing_of_the_middle():
    model = EVERY["mlp"]
    start = model.init(52)
    np.testing.assert_array_equal(start, model.init(52))
    assert 0.8 < float(jnp.std(start[:1040])) * 0.5 * 52**0.5 < 1.2
    assert float(model.margin(start, jnp.full((1, 52), 0.5))[0]) == pytest.approx(0, abs=1e-5)
    assert float(jnp.std(model.margin(start, f32(np.random.default_rng(0).random((99, 52)))))) > 0.01


@ALL
def test_named_arrays_predict_without_this_package(name):
    model, params, rows = problem(name)
    arrays = {key: np.asarray(array, float) for key, array in model.arrays(np.asarray(params)).items()}
    x = np.asarray(rows.x, float)
    if name == "mlp":
        x = 1 / (1 + np.exp(-(x @ arrays["hidden_weights"] + arrays["hidden_bias"])))
    margins = x @ arrays["weights"] + arrays["bias"]
    predicted = np.asarray(model.predict(params, rows.x))
    if name == "softmax":
        np.testing.assert_array_equal(margins.argmax(1), predicted)
    elif "regression" in model.kinds:
        np.testing.assert_allclose(margins, predicted, atol=1e-5)
    else:
        np.testing.assert_array_equal(margins > 0, predicted)
        assert 0 < predicted.sum() < len(predicted)


@pytest.mark.parametrize(("name", "starts_at"), [("square", 0.5), ("quadratic", 0.0), ("logistic", 0.0)])
def test_runs_start_in_the_middle_of_the_targets_wherever_rows_are_centred(name, starts_at):
    model, _, rows = problem(name)
    features = a_map(model)
    mapped = model.params_for_mapped_rows(model.init(D), features)
    for params, x in ((model.init(D), rows.x), (mapped, features.apply(rows.x))):
        np.testing.assert_allclose(model.margin(params, x), starts_at, atol=1e-6)


def test_square_is_a_classifier_where_classes_are_declared():
    model, params, rows = problem("square")
    assert (model.kind(), model.kind((0, 1)), EVERY["quadratic"].kind()) == ("regression", "binary", "regression")
    np.testing.assert_array_equal(model.classify(params, rows.x), model.predict(params, rows.x) > 0.5)


@pytest.mark.parametrize(
    ("arguments", "phrase"),
    [
        (("forest",), "model 'forest' is unknown; choose one of logistic"),
        (("logistic:3",), "is unknown"),
        (("softmax:x",), "is unknown"),
        (("softmax",), "how many classes"),
        (("softmax:1",), "from 2 to"),
        (("softmax:3", 4), "has 3 classes, but 4 are declared"),
    ],
)
def test_names_that_stand_for_nothing_cost_one_sentence(arguments, phrase):
    with pytest.raises(InputError, match=phrase):
        find_model(*arguments)


def test_names_are_those_of_the_models():
    assert set(NAMES) == {"logistic", "svm", "hinge", "square", "softmax", "mlp", "quadratic"} == set(EVERY)
    assert all(plain_name(name) == name for name in NAMES)
    assert all(model.name == name for name, model in MODELS.items())
    assert find_model("softmax", 4) == find_model("softmax:4", 4) == Softmax(4)
