import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.errors import InputError
from l2p.models import find_model
from l2p.simulate import mean_loss, score
from l2p.task import Rows
from meta_train.config import MetaConfig
from meta_train.measure import measure, soft_errors
from meta_train.objective import first_loss
from meta_train.reference import best_loss, reference

CONFIG = MetaConfig("x", "control", errors=1.0)
MODELS = ("logistic", "svm", "square")


@pytest.fixture(scope="module")
def rows() -> Rows:
    """A fifth of the labels are 1, and a tenth are wrong."""
    random = np.random.default_rng(0)
    x = random.random((600, 5)).astype(np.float32)
    said = (x - 0.5) @ np.array([2.0, -1.0, 1.0, 0.0, 0.5])
    y = (said > np.quantile(said, 0.8)) ^ (random.random(600) < 0.1)
    return Rows(jnp.asarray(x), jnp.asarray(y, jnp.float32), jnp.ones(600, jnp.float32))


@pytest.mark.parametrize("name", MODELS)
def test_soft_errors_are_about_the_share_of_wrong_rows(name, rows):
    model = find_model(name, 2)
    random = np.random.default_rng(1)
    found = reference(model, rows, 1e-5)
    for noise in (0.0, 0.3, 1.0):
        params = found + noise * jnp.asarray(random.normal(size=6), jnp.float32)
        wrong = 1.0 - float(score(params, model, rows, "binary"))
        assert float(soft_errors(params, model, rows)) == pytest.approx(wrong, abs=0.06)


@pytest.mark.parametrize("name", ["logistic", "svm"])
def test_soft_errors_do_not_hang_on_the_length_of_params(name, rows):
    model = find_model(name, 2)
    params = reference(model, rows, 1e-5)
    once, more = (soft_errors(factor * params, model, rows) for factor in (1.0, 7.0))
    np.testing.assert_allclose(once, more, rtol=1e-3)


def test_rows_that_are_masked_do_not_count(rows):
    model = find_model("square", 2)
    params = reference(model, rows, 1e-5)
    kept = Rows(rows.x[:400], rows.y[:400], rows.mask[:400])
    masked = dataclasses.replace(rows, mask=rows.mask.at[400:].set(0.0))
    np.testing.assert_allclose(measure(params, model, kept, 1.0), measure(params, model, masked, 1.0), rtol=1e-5)


def test_the_slope_is_that_of_finite_differences(rows):
    model = find_model("square", 2)
    params = reference(model, rows, 1e-5) * 0.7
    slope = jax.grad(soft_errors)(params, model, rows)
    for i, step in enumerate(0.01 * jnp.eye(6)):
        ends = [soft_errors(params + side * step, model, rows) for side in (1.0, -1.0)]
        assert float(ends[0] - ends[1]) / 0.02 == pytest.approx(float(slope[i]), abs=0.02 * float(jnp.abs(slope).max()))
    assert jnp.isfinite(jax.grad(measure)(jnp.zeros(6), model, rows, 1.0)).all()


def test_holding_back_costs_errors_before_it_costs_loss(rows):
    """What the measure is for: half-way to the mean few rows of the rare class are found, at little loss."""
    model = find_model("square", 2)
    found = reference(model, rows, 1e-5)
    mean = jnp.zeros(6).at[-1].set(2.0 * rows.y.mean())
    losses, errors = (
        [float(what(share * found + (1.0 - share) * mean, model, rows)) for share in (0.0, 0.5, 1.0)]
        for what in (mean_loss, soft_errors)
    )
    gained = [(values[0] - values[1]) / (values[0] - values[2]) for values in (losses, errors)]
    assert gained[0] > 0.7
    assert gained[1] < 0.5


@pytest.mark.parametrize("name", MODELS)
def test_what_is_measured_from_is_no_worse_than_the_least_loss(name, rows):
    model = find_model(name, 2)
    start = reference(model, rows, 1e-3)
    best = float(best_loss(model, rows, 1e-3, 1.0))
    assert best <= float(measure(start, model, rows, 1.0))
    assert best < float(first_loss(model, rows, 1.0))
    np.testing.assert_allclose(best_loss(model, rows, 1e-3), mean_loss(start, model, rows), rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"errors": -1.0}, "a weight"),
        ({"objective": "truncated"}, "whole runs"),
        ({"constraint": "soft"}, "whole runs"),
        ({"model": "softmax:10", "source": "digits:features"}, "no smooth form"),
        ({"model": "mlp"}, "no smooth form"),
        ({"model": "square", "source": "synthetic:numbers"}, "no smooth form"),
    ],
)
def test_errors_are_refused_where_nothing_weighs_them(change, match):
    with pytest.raises(InputError, match=match):
        dataclasses.replace(CONFIG, **change)
