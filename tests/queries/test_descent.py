"""Output perturbation: its sensitivity by brute force over neighbours, its noise, its limits, its refusals."""

import dataclasses
import functools
import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

import l2p
from l2p.base import struct
from l2p.base.errors import InputError
from l2p.checkpoints import lookup
from l2p.models import INTERCEPT_COLUMN, MODELS, HuberSVM, Logistic, find_model
from l2p.oracle.setup import Setup
from l2p.privacy import Adjacency, Budget
from l2p.privacy.cap.filter import Filter
from l2p.privacy.ledger.ledger import Ledger
from l2p.privacy.ledger.reservation import limit_of
from l2p.privacy.sensitivity import sensitivity
from l2p.protectors import HAND_DESIGNED
from l2p.protectors.by_hand.outpert import OutputPerturbation
from l2p.queries import Descent
from l2p.queries.shrunk import shrunk
from l2p.release.admission import admit
from l2p.run.run import null_invalid
from l2p.task.entropy import Entropy
from l2p.task.noise import Draw, HostNoise, KeyNoise
from l2p.task.rows import Rows
from l2p.task.sources import ArraySource
from tests.unsupported_models import UNSUPPORTED_MODELS

D, N = 2, 4
BUDGET = Budget(1.0, 1e-6)


def f32(value):
    return jnp.asarray(value, jnp.float32)


def query(model=Logistic(), start=(0.0, 0.0, 0.0), norm=1.0, ridge=0.0, step=1.0, rows=N, noise=1.0, rounds=20):  # noqa: B008
    return Descent(model, f32(start), f32(norm), f32(ridge), f32(step), f32(rows), f32(noise), rounds)


# --------------------------------------------------------------------------------------------------------- sensitivity
def possible_rows(random):
    """Rows that a table may hold: short, long, hostile, and with invalid labels."""
    long = random.normal(size=(2, D)) * 100
    x = [*random.normal(size=(3, D)), *long, *-long, np.zeros(D), np.full(D, 1e18)]
    x += [np.full(D, 3e38), np.full(D, np.nan)]
    pairs = [(line, label) for line in x for label in (0.0, 1.0)] + [(x[0], 1e30), (x[1], -7.0), (x[2], np.inf)]
    return [np.array(part, np.float32) for part in zip(*pairs, strict=True)]


@functools.cache
def tables(seed, adjacency):
    """A table [first] and its neighbours with another row 0, stacked."""
    random = np.random.default_rng(seed)
    x, y = possible_rows(random)
    picked = random.integers(0, len(y), N)
    lines, labels, mask = x[picked], y[picked], np.ones(N, np.float32)
    out = [(lines, labels, mask)]
    if adjacency is Adjacency.REPLACE_ONE:
        for other_x, other_y in zip(x, y, strict=True):
            here = np.arange(N) == 0
            out.append((np.where(here[:, None], other_x, lines), np.where(here, other_y, labels), mask))
    else:
        out += [(lines, labels, np.where(np.arange(N) == row, 0, mask).astype(np.float32)) for row in range(N)]
    return Rows(*(jnp.asarray(np.stack(leaf)) for leaf in zip(*out, strict=True)))


@jax.jit
def arrive(query, stacked):
    def arrival(rows):
        rows = null_invalid(rows)
        exact = Rows(*(leaf.astype(jnp.float64) for leaf in (rows.x, rows.y, rows.mask)))
        return query.add(query.empty(), exact)

    return jax.lax.map(arrival, stacked)


#: Model, ridge, step size, rounds, and the share of the bound that some neighbour must reach.
SOLVES = {
    "one step": (Logistic(), 0.0, 1.0, 1, 0.7),
    "longest steps": (Logistic(), 0.0, 2.0, 12, 0.3),
    "ridge": (Logistic(), 0.05, 1.0, 25, 0.3),
    "strong ridge, long steps": (Logistic(), 1.0, 1.9, 25, 0.04),
    "svm": (HuberSVM(0.5), 0.0, 0.5, 6, 0.9),
    "svm, ridge": (HuberSVM(0.5), 0.3, 1.0, 30, 0.9),
}


@pytest.mark.long(but=["one step-*", "svm, ridge-*", "ridge-add_remove"])
@pytest.mark.slow(but=["ridge-add_remove"])
@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("name", SOLVES)
def test_no_neighbour_arrives_further_away_than_is_stated(name, adjacency):
    model, ridge, step, rounds, least = SOLVES[name]
    worst = 0.0
    with jax.enable_x64(True):
        for seed in range(12):
            # From far away, where residuals are near 1, the bound is nearly reached.
            start = np.random.default_rng(seed).normal(size=D + 1) * 8
            descent = query(model, start, 0.7, ridge, step, rounds=rounds)
            ends = np.asarray(arrive(descent, tables(seed, adjacency)))
            assert ends.dtype == np.float64
            limit = float(descent.bound) * adjacency.sensitivity_factor
            moved = np.linalg.norm(ends[1:] - ends[0], axis=1).max()
            assert moved <= limit
            worst = max(worst, moved / limit)
    assert worst > least


@pytest.mark.slow(cases=["one step", "strong ridge, long steps"])
@pytest.mark.parametrize("name", SOLVES)
def test_the_bound_is_the_recursion_in_float64(name):
    model, ridge, step, rounds, _ = SOLVES[name]
    for num_rows in (4, 30_000):
        descent = query(model, norm=0.7, ridge=ridge, step=step, rows=num_rows, rounds=rounds)
        beta = model.smoothness * 0.7**2 + ridge
        steps = [step * (1 - 2**-18) / beta] * rounds
        truth = sensitivity.gradient_descent(0.7, beta, steps, num_rows, Adjacency.ZERO_OUT, ridge)
        assert truth * (1 - 1e-9) <= float(descent.bound) <= truth * (1 + 1e-4)
    if ridge:
        assert float(query(ridge=ridge, rounds=100_000).bound) <= 1 / (ridge * N) * (1 + 0.03)


def test_the_published_bound_is_one_and_a_half_times_what_replacing_a_row_does():
    """3 L T eta / N (Zhang et al. 2017), and the classic calibration at (0.05, 1e-8)."""
    paper = HAND_DESIGNED["outpert_paper"](Budget(0.05, 1e-8, Adjacency.REPLACE_ONE))
    descent = query(rounds=paper.num_iterations, rows=1000)
    published = 3 * 1.0 * paper.num_iterations * 4.0 / 1000  # L = 1, eta = 1 / beta = 4
    stated = float(descent.bound) * Adjacency.REPLACE_ONE.sensitivity_factor
    assert 1.5 * stated == pytest.approx(published, rel=1e-4)
    noise = float(paper.noise_multiplier) * stated
    assert noise == pytest.approx(published * 122.125, rel=1e-4)  # sqrt(2 ln(1.25e8)) / 0.05


def test_rounding_is_counted_where_tables_are_huge():
    assert float(query(rows=1e5).bound) == pytest.approx(20 * 4 / 1e5, rel=1e-4)
    assert float(query(rows=1e8).bound) > 5 * 20 * 4 / 1e8


def test_shrunk_rows_keep_their_direction_and_any_label_is_one():
    rows = Rows(f32([[3.0, 4.0], [0.0, 0.0], [3e38, 3e38]]), f32([1e30, 0.3, -2.0]), jnp.ones(3))
    lines, labels = shrunk(rows, f32(0.5))
    assert labels.tolist() == [1.0, pytest.approx(0.3), 0.0]
    np.testing.assert_allclose(lines[0], 0.5 * np.array([3, 4, 0.5]) / math.sqrt(25.25), rtol=1e-6)
    np.testing.assert_allclose(lines[1], [0.0, 0.0, INTERCEPT_COLUMN], rtol=1e-6)
    assert np.linalg.norm(lines, axis=1).max() <= 0.5 * (1 + 1e-6)


# --------------------------------------------------------------------------------------------------------------- noise
def wide(count):
    """A query over many coordinates whose descent does not move."""
    return query(start=np.zeros(count), step=0.5, noise=1.7)


@pytest.mark.slow(but=["zero_out-key"])
@pytest.mark.parametrize("source", ["key", "host"])
@pytest.mark.parametrize("adjacency", Adjacency)
def test_answers_carry_noise_multiplier_times_sensitivity_and_a_release_lies_on_the_grid(source, adjacency):
    count = 40_000
    descent = wide(count)
    scale = 1.7 * float(descent.bound) * adjacency.sensitivity_factor
    if source == "key":
        noise = np.asarray(descent.release(descent.empty(), KeyNoise(jax.random.key(1)), adjacency), float)
    else:
        plan = [Draw("gaussian", count)]
        (bits,) = Entropy(3).draw(plan, 1)
        with jax.enable_x64(True):
            source = HostNoise([jnp.asarray(bits[0])], plan)
            source.grid = float(descent.bound) / 2**20
            noise = np.asarray(descent.release(jnp.full(count, source.grid * 0.4), source, adjacency))
        grid = source.grid * 2 ** math.ceil(math.log2(1.7 * adjacency.sensitivity_factor))  # as coarse as noise is wide
        steps = noise / grid
        assert np.array_equal(steps, np.rint(steps))
        # The end of the descent is rounded before noise is added: 0.4 of a step is lost.
        plain = bits[0].view(np.float64).ravel() * (
            float(f32(1.7)) * float(descent.bound) * adjacency.sensitivity_factor
        )
        assert np.array_equal(steps, np.rint(plain / grid))
    total = (noise**2).sum() / scale**2
    p_value = lambda total: 2 * min(stats.chi2.cdf(total, count), stats.chi2.sf(total, count))  # noqa: E731
    assert p_value(total) > 1e-6
    assert p_value(total * 1.05**2) < 1e-6
    assert p_value(total / 1.05**2) < 1e-6


# -------------------------------------------------------------------------------------------------------------- limits
def table(num_rows=900, seed=0):
    random = np.random.default_rng(seed)
    x = random.random((num_rows, D))
    y = random.random(num_rows) < special.expit(6 * (x @ [1.5, -1.0] - 0.3))
    return Rows(x.astype(np.float32), y.astype(np.float32), np.ones(num_rows, np.float32))


def naive_descent(rows, norm, ridge, step, rounds):
    lines = np.c_[np.asarray(rows.x, float), np.full(len(rows.y), INTERCEPT_COLUMN)]
    lines = lines * np.minimum(1, norm / np.linalg.norm(lines, axis=1))[:, None]
    params, eta = np.zeros(D + 1), step / (norm**2 / 4 + ridge)
    for _ in range(rounds):
        residual = special.expit(lines @ params) - np.asarray(rows.y)
        params = params - eta * (residual @ lines / len(rows.y) + ridge * params)
    return params


@pytest.mark.parametrize("step", [0.5, 1.0, 1.9])
def test_it_asks_for_steps_of_the_size_that_was_set(step):
    setup = Setup.create(Logistic(), Adjacency.ZERO_OUT, Filter("gdp", BUDGET).price_list(), N)
    params, asked = jnp.zeros(D + 1), []
    oracle = SimpleNamespace(setup=setup, noise_multiplier=f32, ask=lambda query: asked.append(query) or params)
    OutputPerturbation.create(0.8, 0.02, step).step(params, (), oracle)
    (query,) = asked
    assert float(query.step_size) == pytest.approx(step, rel=1e-5)
    assert float(query.ridge) == pytest.approx(0.02, rel=1e-5)
    assert float(query.norm_bound) == pytest.approx(0.8, rel=1e-5)


@pytest.mark.slow
def test_with_a_huge_budget_it_is_gradient_descent_and_in_the_end_the_minimiser():
    rows, budget = table(), Budget(1e6, 1e-4)
    for rounds, step in ((7, 1.9), (3000, 1.5)):
        protector = OutputPerturbation.create(0.8, 0.02, step, rounds)
        result = l2p.private_train(rows, protector, budget)
        expected = naive_descent(rows, 0.8, 0.02, step, rounds)
        np.testing.assert_allclose(result.params, expected, atol=1e-3 if rounds == 7 else 3e-3)
        assert np.abs(expected).max() > 0.5
    lines = np.c_[rows.x, np.full(900, INTERCEPT_COLUMN)]
    lines = lines * np.minimum(1, 0.8 / np.linalg.norm(lines, axis=1))[:, None]
    slope = (special.expit(lines @ expected) - rows.y) @ lines / 900 + 0.02 * expected
    assert np.abs(slope).max() < 1e-9


def test_a_release_is_certified_and_spends_its_budget_in_one_query():
    for adjacency in Adjacency:
        result = l2p.private_train(table(), "outpert", dataclasses.replace(BUDGET, adjacency=adjacency), num_rows=900)
        assert (result.card.accountant, result.steps, len(result.trace)) == ("gdp", 1, 1)
        assert 0.999 * BUDGET.epsilon < result.card.epsilon_certified <= BUDGET.epsilon
        assert not result.card.adaptive_noise
    published = l2p.private_train(
        table(), "outpert_paper", dataclasses.replace(BUDGET, adjacency=Adjacency.REPLACE_ONE)
    )
    assert 0.3 * BUDGET.epsilon < published.card.epsilon_certified < 0.6 * BUDGET.epsilon


@pytest.mark.slow
def test_settings_have_finite_meta_gradients():
    rows = jax.tree.map(jnp.asarray, table(60))

    def loss(logs):
        norm, ridge, step = logs
        descent = query(norm=jnp.exp(norm), ridge=jnp.exp(ridge), step=2 * jax.nn.sigmoid(step), rows=60)
        params = descent.answer(rows, KeyNoise(jax.random.key(0)), Adjacency.ZERO_OUT)
        return jax.vmap(Logistic().loss, (None, 0, 0))(params, rows.x, rows.y).mean()

    value_and_grad, at, size = jax.jit(jax.value_and_grad(loss)), f32([-0.2, -3.0, 0.3]), 1e-2
    slopes = np.asarray(value_and_grad(at)[1])
    for index, unit in enumerate(size * np.eye(3)):
        rise = float(value_and_grad(at + unit)[0]) - float(value_and_grad(at - unit)[0])
        assert rise / (2 * size) == pytest.approx(slopes[index], rel=0.03, abs=1e-4)
    assert np.abs(slopes).min() > 1e-4


# ------------------------------------------------------------------------------------------------------------ refusals
@pytest.mark.parametrize(("name", "phrase"), UNSUPPORTED_MODELS.items())
@pytest.mark.parametrize("method", ["outpert", "outpert_paper"])
def test_losses_that_the_proof_does_not_cover_are_refused_at_the_door(method, name, phrase):
    budget = HAND_DESIGNED[method].budget(BUDGET)
    with pytest.raises(InputError, match=phrase):
        admit(method, budget, find_model(name))
    with pytest.raises(InputError, match=phrase):
        lookup.resolve(method, budget, name)


@pytest.mark.slow
def test_a_smooth_loss_of_another_kind_is_trained():
    result = l2p.private_train(table(), "outpert", Budget(20.0, 1e-6), model="svm", key=jax.random.key(0))
    rows = table()
    assert np.mean(HuberSVM().predict(result.params, jnp.asarray(rows.x)) == rows.y) > 0.7


@pytest.mark.parametrize("norm", [math.inf, math.nan, 0.0])
def test_a_norm_bound_that_is_none_is_refused(norm):
    protector = OutputPerturbation.create(1.0, 0.1, 1.0).replace(log_norm_bound=jnp.log(f32([norm])))
    with pytest.raises(InputError, match="positive and finite"):
        admit(protector, BUDGET, MODELS["logistic"])


@pytest.mark.parametrize("step", [2.0001, 0.0, -1.0, math.nan, math.inf])
def test_steps_beyond_two_over_beta_are_refused_and_cannot_be_had(step):
    with pytest.raises(InputError, match="2 / beta"):
        OutputPerturbation.create(1.0, 0.1, step)
    assert float(query(step=step)._multiple) <= 2.0 or math.isnan(step)


def test_rows_that_stream_or_outnumber_n_are_refused_before_anything_is_reserved(tmp_path):
    rows = table()
    ledger = Ledger.create(tmp_path / "ward.ledger", "ward", BUDGET, "gdp", limit_of("gdp", BUDGET))
    with pytest.raises(InputError, match="stream"):
        l2p.private_train(ArraySource(rows, 100), "outpert", BUDGET, ledger=ledger)
    with pytest.raises(InputError, match="declared as 899"):
        l2p.private_train(rows, "outpert", BUDGET, num_rows=899, ledger=ledger)
    assert ledger.entries() == []
    l2p.private_train(rows, "outpert", BUDGET, num_rows=901, ledger=ledger)
    assert len(ledger.entries()) == 1


@struct.dataclass
class Diverging(OutputPerturbation):
    """A protector whose result is NaN."""

    def finish(self, params, state, setup):
        return params / 0.0


def test_a_result_that_is_not_finite_is_withheld_and_stays_paid(tmp_path):
    ledger = Ledger.create(tmp_path / "ward.ledger", "ward", BUDGET, "gdp", limit_of("gdp", BUDGET))
    protector = OutputPerturbation.create(1.0, 0.1, 1.0)
    protector = Diverging(protector.log_norm_bound, protector.log_ridge, protector.logit_step)
    with pytest.raises(RuntimeError, match="not finite"):
        l2p.private_train(table(), protector, BUDGET, ledger=ledger)
    assert ledger.spent().amount > 0.99 * ledger.limit.amount
