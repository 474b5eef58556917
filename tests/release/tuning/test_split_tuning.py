"""Tuning by parts of the rows: which rows each run reads, the choice, the guarantee, and refusals."""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

from l2p import private_train
from l2p.base.errors import InputError
from l2p.models import Logistic
from l2p.oracle.setup import Setup
from l2p.privacy import Adjacency, Budget, Filter
from l2p.privacy.ledger.ledger import Ledger
from l2p.privacy.ledger.reservation import limit_of
from l2p.protectors import HAND_DESIGNED
from l2p.queries import FewestErrors
from l2p.release.tuning import split_tuning as module
from l2p.release.tuning.split_tuning import Choice, split_tuning, tuned_on_public
from l2p.run.run import Simulation, start
from l2p.task.noise import KeyNoise
from l2p.task.rows import Rows
from l2p.task.sources import ArraySource
from tests.release.tuning.test_private_tuning import GOOD, STILL

BUDGET = Budget(2.0, 1e-6)
#: Predict feature 0 above one half; the opposite; always 1.
POINTS = jnp.array([[10.0, 0.0, -5.0], [-10.0, 0.0, 5.0], [0.0, 0.0, 5.0]])


def table(count=600):
    random = np.random.default_rng(0)
    x = random.random((count, 2)).astype(np.float32)
    return Rows(jnp.asarray(x), jnp.asarray(x[:, 0] > 0.5, jnp.float32), jnp.ones(count))


ROWS = table()


@functools.cache
def a_result():
    return private_train(ROWS, "noisygd", BUDGET, key=jax.random.key(0))


@pytest.mark.long
def test_every_run_reads_rows_of_its_own_and_may_spend_the_whole_budget(monkeypatch):
    calls = []

    def pretend(data, protector, budget, *, key, **_):
        calls.append((np.asarray(data.x), budget, key))
        params = protector.candidates[1] if isinstance(protector, Choice) else jnp.full(3, float(len(calls)))
        return dataclasses.replace(a_result(), params=params)

    monkeypatch.setattr(module, "private_train", pretend)
    chosen = split_tuning(ROWS, ["noisygd", GOOD, "auto_clip"], BUDGET, key=jax.random.key(4))
    assert chosen.candidate == 1
    assert [len(x) for x, *_ in calls] == [150] * 4
    together = np.concatenate([x for x, *_ in calls])
    assert np.array_equal(np.sort(together, 0), np.sort(np.asarray(ROWS.x), 0))  # each row once
    assert not np.array_equal(together, ROWS.x)  # in no order of theirs
    assert {budget for _, budget, _ in calls} == {BUDGET}
    keys = np.stack([jax.random.key_data(key) for *_, key in calls])
    assert len(np.unique(keys, axis=0)) == 4
    card = chosen.result.card
    assert (card.num_rows, card.epsilon_certified, card.mu) == (600, BUDGET.epsilon, None)
    assert "disjoint parts" in card.theorem
    # Other rows in the same places are assigned alike: no part depends on what rows hold.
    again = calls[:]
    calls.clear()
    split_tuning(ROWS.replace(x=1 - ROWS.x), ["noisygd", GOOD, "auto_clip"], BUDGET, key=jax.random.key(4))
    for (first, *_), (second, *_) in zip(again, calls, strict=True):
        np.testing.assert_allclose(first, 1 - second, atol=1e-6)


@pytest.mark.parametrize("adjacency", [Adjacency.ZERO_OUT, Adjacency.REPLACE_ONE])
def test_the_choice_is_the_exponential_mechanism_on_errors_with_the_whole_epsilon(adjacency):
    budget = Budget(0.8, 1e-3, adjacency)
    rows = Rows(jnp.asarray([[0.9, 0.0]] * 5 + [[0.1, 0.0]] * 3), jnp.asarray([1.0] * 4 + [0.0] * 4), jnp.ones(8))
    errors = np.array([1, 7, 4])
    setup = Setup.create(Logistic(), adjacency, Filter("basic", budget).price_list(), 8)

    @jax.jit
    @jax.vmap
    def choose(key):
        return start(Choice(POINTS), POINTS[0] * 0, rows, setup, Simulation(key))[0].state

    count = 6_000
    counts = np.bincount(choose(jax.random.split(jax.random.key(0), count)), minlength=3)
    # A row of another kind moves each number of errors by one, and up or down where it is replaced.
    rate = budget.epsilon / adjacency.sensitivity_factor
    assert stats.chisquare(counts, count * special.softmax(-rate * errors)).pvalue > 1e-6
    for wrong in (rate / 1.5, rate * 1.5, -rate):
        assert stats.chisquare(counts, count * special.softmax(-wrong * errors)).pvalue < 1e-6


@pytest.mark.slow
def test_errors_are_counted_in_a_release_as_in_a_simulation_and_one_row_moves_each_by_one():
    query = FewestErrors(Logistic(), POINTS, jnp.float32(1e-6))
    counts = np.asarray(query.add(query.empty(), ROWS))
    expected = [float((Logistic().predict(point, ROWS.x) != ROWS.y).sum()) for point in POINTS]
    assert counts.tolist() == expected
    assert float(query.bound) == 1.0
    assert int(query.release(jnp.asarray(counts), KeyNoise(jax.random.key(0)), Adjacency.ZERO_OUT)) == 0
    gone = ROWS.replace(mask=ROWS.mask.at[5].set(0.0))
    assert np.abs(counts - np.asarray(query.add(query.empty(), gone))).max() <= 1.0
    chosen = private_train(ROWS, Choice(POINTS), Budget(20.0, 1e-6))
    assert np.array_equal(chosen.params, POINTS[0])
    assert (chosen.card.accountant, chosen.trace[0].mechanism) == ("basic", "gumbel")


@pytest.mark.slow
def test_a_release_of_the_better_of_two_is_charged_once(tmp_path):
    ledger = Ledger.create(tmp_path / "ward.ledger", "ward", BUDGET, "basic", limit_of("basic", BUDGET))
    chosen = split_tuning(ROWS, [STILL, GOOD], BUDGET, ledger=ledger)
    assert chosen.candidate in (0, 1)  # noise may prefer either: which one it prefers, and how often, is tested above
    assert chosen.private_release
    assert ledger.spent().amount == pytest.approx(BUDGET.epsilon)
    assert len(ledger.entries()) == 1
    with pytest.raises(InputError):
        split_tuning(ROWS, [STILL, GOOD], BUDGET, ledger=ledger)
    assert math.isclose(ledger.spent().amount, BUDGET.epsilon)


@pytest.mark.slow
def test_public_rows_choose_for_nothing():
    assert tuned_on_public(ROWS, [STILL, GOOD], BUDGET, key=jax.random.key(1)) == 1


REFUSALS = {
    "add_remove": (
        {"budget": dataclasses.replace(BUDGET, adjacency=Adjacency.ADD_REMOVE)},
        "number of rows is private",
    ),
    "a stream": ({"data": ArraySource(ROWS, 100)}, "stream"),
    "no candidate": ({"candidates": []}, "no candidate"),
    "more parts than rows": ({"candidates": ["noisygd"] * 600}, "do not make 601 parts"),
    "an unknown candidate": ({"candidates": ["noisygd", "magic"]}, "magic"),
    "a large delta for a part": ({"budget": Budget(1.0, 1 / 250)}, "delta"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_has_no_proof_is_refused_before_anything_runs(name, monkeypatch):
    changes, phrase = REFUSALS[name]
    monkeypatch.setattr(module, "private_train", lambda *_, **__: pytest.fail("a run began"))
    arguments = {"data": ROWS, "candidates": ["noisygd", GOOD], "budget": BUDGET} | changes
    with pytest.raises(InputError, match=phrase):
        split_tuning(**arguments)


def test_a_ledger_that_adds_up_queries_is_refused(tmp_path):
    ledger = Ledger.create(tmp_path / "ward.ledger", "ward", BUDGET, "gdp", limit_of("gdp", BUDGET))
    with pytest.raises(InputError, match="unit basic"):
        split_tuning(ROWS, [STILL, HAND_DESIGNED["noisygd"](BUDGET)], BUDGET, ledger=ledger)
    assert ledger.entries() == []
