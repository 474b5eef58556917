"""Objective perturbation as a query and as a method: noise, minimiser, limits and refusals."""

import dataclasses
import functools
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize, special, stats

import l2p
from l2p.base.errors import InputError
from l2p.checkpoints import lookup
from l2p.commands.cli import main
from l2p.models import INTERCEPT_COLUMN, MODELS, HuberSVM, Logistic, find_model
from l2p.oracle.setup import Setup
from l2p.privacy import Adjacency, Budget, Filter
from l2p.privacy.ledger.ledger import Cost, Ledger
from l2p.privacy.ledger.reservation import limit_of
from l2p.protectors import HAND_DESIGNED
from l2p.protectors.by_hand.objpert import ObjectivePerturbation
from l2p.queries import PerturbedMinimum
from l2p.queries.newton import Objective, minimize
from l2p.release.admission import admit
from l2p.run.run import run
from l2p.task.noise import KeyNoise
from l2p.task.rows import Rows
from l2p.task.sources import ArraySource
from tests.unsupported_models import UNSUPPORTED_MODELS

D = 3
BUDGET = Budget(1.0, 1e-6)
METHODS = ("objpert", "objpert_paper")


def f32(value):
    return jnp.asarray(value, jnp.float32)


@functools.cache
def table(num_rows=600, seed=0):
    random = np.random.default_rng(seed)
    x = random.random((num_rows, D))
    y = random.random(num_rows) < special.expit(6 * (x @ [1.5, -1.0, 0.2] - 0.3))
    return Rows(x.astype(np.float32), y.astype(np.float32), np.ones(num_rows, np.float32))


def lines_of(rows, norm):
    lines = np.c_[np.asarray(rows.x, float), np.full(len(rows.y), INTERCEPT_COLUMN)]
    return lines * np.minimum(1, norm / np.linalg.norm(lines, axis=1))[:, None]


def query(model=Logistic(), epsilon=1.0, ridge=0.0, rows=600, share=0.5, published=False, norm=0.8):  # noqa: B008
    facts = f32(norm), f32(ridge), f32(rows), f32(share), f32(math.log(1e-6)), f32(1 / epsilon)
    return PerturbedMinimum(model, jnp.zeros(D + 1), *facts, published)


# ------------------------------------------------------------------------------------------------------- the minimiser
def slope(model, rows, norm, params, convexity):
    """Gradient f[..., p] of the objective without its noise, in NumPy."""
    lines, labels = lines_of(rows, norm), np.asarray(rows.y, float)
    margins = params @ lines.T
    if isinstance(model, Logistic):
        residual = special.expit(margins) - labels
    else:
        sign = 2 * labels - 1
        residual = -sign * np.clip((1 + model.width - sign * margins) / (2 * model.width), 0, 1)
    return residual @ lines + convexity * params


@pytest.mark.long(but=["logistic-True-add_remove", "svm-False-zero_out", "svm-True-*", "svm-False-add_remove"])
@pytest.mark.slow(cases=["logistic-*", "svm-False-zero_out", "svm-False-replace_one"])
@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("published", [True, False])
@pytest.mark.parametrize("model", [Logistic(), HuberSVM()], ids=lambda model: model.name)
def test_the_noise_that_answers_reveal_is_gaussian_of_the_calibrated_scale(model, published, adjacency):
    """The minimiser and the noise determine each other: the noise is the negative gradient without it."""
    if model.name == "svm" and (published or adjacency is Adjacency.ADD_REMOVE):
        pytest.skip("one combination of the other loss is enough")
    perturbed, rows, count = query(model, published=published), jax.tree.map(jnp.asarray, table()), 1500
    answer = jax.jit(jax.vmap(lambda key: perturbed.answer(rows, KeyNoise(key), adjacency)))
    params = np.asarray(answer(jax.random.split(jax.random.key(1), count)), float)
    calibration = perturbed.calibrate(adjacency)
    noise = slope(model, table(), 0.8, params, float(calibration.convexity)) / float(calibration.noise_scale)
    total, size = (noise**2).sum(), noise.size
    p_value = lambda total: 2 * min(stats.chi2.cdf(total, size), stats.chi2.sf(total, size))  # noqa: E731
    assert p_value(total) > 1e-6
    assert p_value(total * 1.1**2) < 1e-6
    assert p_value(total / 1.1**2) < 1e-6
    assert np.abs(np.corrcoef(noise.T) - np.eye(D + 1)).max() < 0.15


@pytest.mark.slow(but=["*-40.0-*", "*-0.05-300.0"])
@pytest.mark.parametrize("scale", [0.0, 1.0, 300.0])
@pytest.mark.parametrize("convexity", [1e-3, 0.05, 40.0])
@pytest.mark.parametrize("model", [Logistic(), HuberSVM()], ids=lambda model: model.name)
def test_the_gradient_at_the_minimiser_is_rounding_error(model, convexity, scale):
    rows = table()
    linear = scale * np.random.default_rng(0).normal(size=D + 1)
    with jax.enable_x64(True):
        objective = Objective(
            model,
            jnp.asarray(lines_of(rows, 0.8)),
            jnp.asarray(rows.y, jnp.float64),
            jnp.ones(600),
            jnp.asarray(convexity),
            jnp.asarray(linear),
        )
        params, norm = jax.jit(minimize)(objective, jnp.zeros(D + 1), 1e-10 * (600 + scale))
    params = np.asarray(params)
    assert params.dtype == np.float64
    assert np.linalg.norm(slope(model, rows, 0.8, params, convexity) + linear) < 2e-10 * (600 + scale)
    assert float(norm) < 1e-10 * (600 + scale)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_the_answer_does_not_tell_where_the_search_ended(seed):
    """The theorem is about the exact minimiser; a point just within a tolerance jumps where iterations change."""
    with jax.enable_x64(True):
        parts = jnp.asarray(lines_of(table(), 0.8)), jnp.asarray(table().y, jnp.float64), jnp.ones(600)
        linear = jnp.asarray(30.0 * np.random.default_rng(seed).normal(size=D + 1))
        objective = Objective(Logistic(), *parts, jnp.asarray(0.05), linear)
        ends = [np.asarray(minimize(objective, jnp.zeros(D + 1), tolerance)[0]) for tolerance in (30 * 2.0**-24, 1e-12)]
    residual = slope(Logistic(), table(), 0.8, ends[0], 0.05) + np.asarray(linear)
    assert np.linalg.norm(residual) < 1e-13 * 630  # rounding error of a sum of 600 gradients
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-11)


@pytest.mark.long
def test_with_a_huge_budget_it_is_the_minimiser_of_the_ridge_objective():
    rows, ridge, norm = table(), 0.02, 0.8
    protector = ObjectivePerturbation(jnp.log(f32([norm])), jnp.log(f32([ridge])), f32([0.0]))
    params = l2p.private_train(rows, protector, Budget(1e6, 1e-4)).params
    lines, labels = lines_of(rows, norm), np.asarray(rows.y, float)

    def loss(params):
        margins = lines @ params
        return (np.logaddexp(0, margins) - labels * margins).mean() + ridge / 2 * params @ params

    expected = optimize.minimize(loss, np.zeros(D + 1), tol=1e-12).x
    np.testing.assert_allclose(params, expected, atol=2e-3)
    assert np.abs(expected).max() > 0.5
    # Raw rows and shrunk ones are classified alike.
    assert np.array_equal(Logistic().predict(params, jnp.asarray(rows.x)), lines @ np.asarray(params) > 0)


def test_every_coordinate_is_regularised_and_the_ridge_counts_towards_what_privacy_asks_for():
    for published in (True, False):
        least = query(published=published).calibrate(Adjacency.ZERO_OUT)
        little = query(ridge=0.5 * float(least.convexity) / 600, published=published).calibrate(Adjacency.ZERO_OUT)
        much = query(ridge=2 * float(least.convexity) / 600, published=published).calibrate(Adjacency.ZERO_OUT)
        assert float(little.convexity) == float(least.convexity)
        assert float(much.convexity) == pytest.approx(2 * float(least.convexity), rel=1e-5)
        # With more convexity than required, the exact calibration gives the rest of epsilon to the noise.
        assert (float(much.noise_scale) < float(least.noise_scale)) == (not published)
    assert float(query(published=True).calibrate(Adjacency.REPLACE_ONE).noise_scale) == pytest.approx(
        2 * float(query(published=True).calibrate(Adjacency.ZERO_OUT).noise_scale), rel=1e-6
    )
    published = query(published=True, epsilon=0.05).calibrate(Adjacency.ZERO_OUT)
    assert float(published.convexity) == pytest.approx(2 * 0.25 * 0.64 / 0.05, rel=1e-5)


@pytest.mark.slow
def test_a_search_that_did_not_converge_is_not_answered(monkeypatch):
    from l2p.queries import newton

    rows = jax.tree.map(jnp.asarray, table())
    perturbed = query()
    assert np.isfinite(perturbed.answer(rows, KeyNoise(jax.random.key(0)), Adjacency.ZERO_OUT)).all()
    monkeypatch.setattr(newton, "_MAX_ITERATIONS", 1)
    assert np.isnan(perturbed.answer(rows, KeyNoise(jax.random.key(0)), Adjacency.ZERO_OUT)).all()


@pytest.mark.long
def test_settings_have_finite_meta_gradients_that_are_differences():
    rows = jax.tree.map(jnp.asarray, table(60))

    def loss(logs):
        perturbed = query(norm=jnp.exp(logs[0]), ridge=jnp.exp(logs[1]), rows=60, share=jax.nn.sigmoid(logs[2]))
        params = perturbed.answer(rows, KeyNoise(jax.random.key(0)), Adjacency.ZERO_OUT)
        return jax.vmap(Logistic().loss, (None, 0, 0))(params, rows.x, rows.y).mean()

    value_and_grad, size = jax.jit(jax.value_and_grad(loss)), 1e-2
    # Where the share decides the convexity, and where the ridge exceeds what it requires.
    for at, silent in ((f32([-0.2, -9.0, 0.3]), 1), (f32([-0.2, -2.0, 0.3]), 2)):
        slopes = np.asarray(value_and_grad(at)[1])
        for index, unit in enumerate(size * np.eye(3)):
            rise = float(value_and_grad(at + unit)[0]) - float(value_and_grad(at - unit)[0])
            assert rise / (2 * size) == pytest.approx(slopes[index], rel=0.03, abs=3e-4)
        assert np.abs(np.delete(slopes, silent)).min() > 3e-3
        assert abs(slopes[silent]) < 1e-6


# -------------------------------------------------------------------------------------------------- a run, and its card
@pytest.mark.long(cases=["objpert_paper"])
@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_release_is_certified_at_its_target_by_accountant_basic(method, tmp_path, capsys):
    ledger = Ledger.create(
        tmp_path / "ward.ledger", "ward", Budget(2.0, 1e-5), "basic", limit_of("basic", Budget(2.0, 1e-5))
    )
    result = l2p.private_train(table(), method, BUDGET, ledger=ledger)
    card = result.card
    assert (card.accountant, card.epsilon_certified, card.order) == ("basic", 1.0, None)
    assert (result.steps, result.stop_reason, len(result.trace)) == (1, "max_steps", 1)
    assert result.trace[0].mechanism == "objective"
    assert result.trace[0].clip_norm == pytest.approx(1.0)
    assert ledger.spent() == Cost(1.0, 1e-6)
    result.save(tmp_path / "out", ["a", "b", "c"], dict.fromkeys("abc", (0.0, 1.0)), None, "y")
    path = str(tmp_path / "out" / "card.json")
    assert main(["account", "--card", path, "--table"]) == 0
    assert "the card holds" in capsys.readouterr().out
    assert main(["account", "--card", path, "--verify"]) == 0
    assert "the card holds" in capsys.readouterr().out
    # A card that claims less than its query cost does not hold.
    broken = json.loads((tmp_path / "out" / "card.json").read_text())
    broken["events"][0]["queries"][0][1] *= 0.9
    (tmp_path / "broken.json").write_text(json.dumps(broken))
    assert main(["account", "--card", str(tmp_path / "broken.json")]) == 1


@pytest.mark.long
def test_a_release_learns():
    rows = table(5000)
    for method in METHODS:
        params = l2p.private_train(rows, method, Budget(4.0, 1e-6)).params
        assert np.mean(Logistic().predict(params, jnp.asarray(rows.x)) == rows.y) > 0.8


@pytest.mark.slow
def test_a_second_query_is_refused_and_nothing_of_it_is_kept():
    protector = HAND_DESIGNED["objpert"](BUDGET).replace(num_steps=3)
    setup = Setup.create(Logistic(), BUDGET.adjacency, Filter("basic", BUDGET).price_list(), 600)
    rows = jax.tree.map(jnp.asarray, table())
    params, ended, (_, (record,)), _ = jax.jit(run)(protector, jnp.zeros(D + 1), rows, setup, jax.random.key(0))
    assert record.granted.tolist() == [True, False, False]
    assert int(ended.step) == 1
    assert np.isfinite(params).all()
    assert np.abs(params).max() > 0


@pytest.mark.parametrize(("name", "phrase"), UNSUPPORTED_MODELS.items())
@pytest.mark.parametrize("method", METHODS)
def test_losses_that_the_proof_does_not_cover_are_refused_at_the_door(method, name, phrase):
    with pytest.raises(InputError, match=phrase):
        admit(method, BUDGET, find_model(name))
    with pytest.raises(InputError, match=phrase):
        lookup.resolve(method, BUDGET, name)


def test_what_it_cannot_be_run_with_is_refused_before_anything_is_reserved(tmp_path):
    ledger = Ledger.create(tmp_path / "ward.ledger", "ward", BUDGET, "gdp", limit_of("gdp", BUDGET))
    rows = table()
    for method in METHODS:
        with pytest.raises(InputError, match="stream"):
            l2p.private_train(ArraySource(rows, 100), method, BUDGET, ledger=ledger)
        with pytest.raises(InputError, match="unit basic"):
            l2p.private_train(rows, method, BUDGET, ledger=ledger)
    with pytest.raises(InputError, match="cannot price mechanism 'objective'"):
        l2p.private_train(rows, "objpert", BUDGET, accountant="rdp")
    with pytest.raises(InputError, match="calibrated by accountant 'basic'"):
        l2p.private_train(rows, "objpert_paper", BUDGET, accountant="rdp")
    with pytest.raises(InputError, match="cannot price mechanism 'gaussian'"):
        l2p.private_train(rows, "noisygd", BUDGET, accountant="basic")
    with pytest.raises(InputError, match="cannot price mechanism"):
        admit("agd", BUDGET, MODELS["logistic"], accountant="basic")
    protector = dataclasses.replace(HAND_DESIGNED["objpert"](BUDGET), log_norm_bound=f32([math.inf]))
    with pytest.raises(InputError, match="positive and finite"):
        admit(protector, BUDGET, MODELS["logistic"])
    assert ledger.entries() == []
