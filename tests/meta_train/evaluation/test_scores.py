"""Scores of runs: what one ends above its start or a bought base rate counts; numbers are relative to a constant."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p.base.errors import InputError
from l2p.models import MODELS, find_model
from l2p.oracle.setup import Setup
from l2p.privacy.cap.filter import price_list_for_mu
from l2p.privacy.events import Adjacency
from l2p.run.simulate import mean_loss
from l2p.task.rows import Rows
from meta_train.config.parts import Scoring
from meta_train.evaluation.marks import Marks, marks_of
from meta_train.evaluation.scores import score, slope_above

PRICED = Scoring(above=4.0)
NUM = 400


def rows_of(y) -> Rows:
    x = np.random.default_rng(0).random((len(y), 2)).astype(np.float32)
    return Rows(jnp.asarray(x), jnp.asarray(y, jnp.float32), jnp.ones(len(y)))


@functools.partial(jax.jit, static_argnames=("model", "kind", "scoring"))
def marks(rows: Rows, best: float, log_signal: float, model, kind: str, scoring: Scoring = PRICED) -> Marks:
    priced = price_list_for_mu("gdp", jnp.exp(log_signal) / NUM)
    setup = Setup.create(model, Adjacency.ZERO_OUT, priced, NUM, kind)
    return marks_of(model, rows, rows, best, setup, scoring)


def test_gains_elsewhere_do_not_pay_for_an_end_above_the_start():
    hard = Marks(jnp.array(0.6), jnp.array(0.1), jnp.array(0.69), jnp.array(0.1))
    easy = Marks(jnp.array(0.0), jnp.array(0.7), jnp.array(0.69), jnp.array(0.7))

    def total(scoring: Scoring, *losses: float) -> float:
        return sum(
            float(score(jnp.array(loss), mark, scoring).value) for loss, mark in zip(losses, (hard, easy), strict=True)
        )

    stays, bold = (0.69, 0.5), (0.75, 0.2)
    assert total(Scoring(), *bold) < total(Scoring(), *stays)
    assert total(PRICED, *bold) > total(PRICED, *stays)


def test_the_price_is_small_within_noise_and_its_slope_is_bounded():
    mark = Marks(jnp.array(0.0), jnp.array(0.5), jnp.array(1.0), jnp.array(0.5))
    plain, priced = (
        jax.vmap(jax.value_and_grad(lambda loss, scoring=scoring: score(loss, mark, scoring).value))
        for scoring in (Scoring(), PRICED)
    )
    losses = jnp.array([0.5, 1.0, 1.005, 1.5, 50.0, 1e30])
    price, slope = (np.asarray(more - less) for more, less in zip(priced(losses), plain(losses), strict=True))
    np.testing.assert_allclose(price[:2], 0.0, atol=1e-6)
    assert 0.0 < price[2] < 0.01
    assert np.isfinite(price).all()
    assert (slope <= PRICED.above / 0.5 * (1 + 1e-5)).all()
    np.testing.assert_allclose(slope[-2:], PRICED.above / 0.5, rtol=1e-3)
    above = score(losses, mark, PRICED).above
    np.testing.assert_allclose(slope, PRICED.above / 0.5 * slope_above(above), atol=1e-4)


@pytest.mark.long
def test_what_is_reached_without_features_is_the_start_or_a_bought_base_rate():
    rare = rows_of(np.arange(NUM) % 10 == 0)
    logistic = {"model": MODELS["logistic"], "kind": "binary"}
    poor, rich = (float(marks(rare, 0.2, signal, **logistic).reached) for signal in (-3.0, 6.0))
    entropy = -(0.1 * np.log(0.1) + 0.9 * np.log(0.9))
    assert 0.99 * np.log(2.0) < poor <= np.log(2.0) * (1 + 1e-6)
    assert rich == pytest.approx(entropy, rel=1e-2)
    assert float(marks(rare, 0.2, 6.0, **logistic).gap) == pytest.approx(rich - 0.2 + 0.02 * rich, rel=1e-4)
    # No purchase helps where classes are even.
    even = {"model": find_model("softmax", 4), "kind": "multiclass"}
    reached = [float(marks(rows_of(np.arange(NUM) % 4), 0.5, signal, **even).reached) for signal in (0.0, 3.0, 6.0)]
    np.testing.assert_allclose(reached, np.log(4.0), rtol=1e-5)


def test_numbers_are_scored_relative_to_the_best_constant():
    """Whether the same rows' numbers are wide apart or close together far from the start."""
    square, constant = MODELS["square"], Scoring(numbers_from="constant")
    noise = np.random.default_rng(1).normal(size=NUM)

    def scores(width: float, scoring: Scoring) -> list[float]:
        rows = rows_of(0.1 + width * noise)
        half = 0.5 * float(np.var(np.asarray(rows.y)))
        mark = marks(rows, 0.2 * half, 6.0, model=square, kind="regression", scoring=scoring)
        return [float(score(jnp.array(loss * half), mark, scoring).value) for loss in (1.0, 0.5, 0.3)]

    np.testing.assert_allclose(scores(0.01, constant), scores(0.1, constant), rtol=1e-3)
    gains = [np.ptp(scores(0.01, scoring)) for scoring in (constant, Scoring())]
    assert gains[0] > 1.8 > 0.05 > gains[1]
    # Classes are as they were.
    rows = rows_of(np.arange(NUM) % 2)
    same = [
        marks(rows, 0.1, 3.0, model=square, kind="binary", scoring=scoring).unit for scoring in (constant, Scoring())
    ]
    assert (
        float(same[0])
        == float(same[1])
        == pytest.approx(float(mean_loss(square.init(2), square, rows)) - 0.1 + 0.02, rel=1e-5)
    )


@pytest.mark.parametrize("fields", [{"above": -1.0}, {"excess_floor": 0.0}, {"numbers_from": "best"}])
def test_scores_that_cannot_be_are_refused(fields):
    with pytest.raises(InputError, match=next(iter(fields))):
        dataclasses.replace(Scoring(), **fields)
