"""Private tuning: the budget of each run, which run is released, and refusals."""

import dataclasses
import functools
import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from l2p import private_train
from l2p.base.errors import InputError
from l2p.privacy import Adjacency, Budget, Filter, Poisson
from l2p.privacy.card.card import Card
from l2p.privacy.cost.selection import NegativeBinomial, PoissonRuns, total_epsilon
from l2p.privacy.ledger.ledger import Cost, Ledger
from l2p.privacy.ledger.reservation import limit_of
from l2p.protectors import HAND_DESIGNED
from l2p.protectors.hand_designed import log_constant
from l2p.protectors.stepwise.projectors import Optax
from l2p.release.tuning import private_tuning as module
from l2p.release.tuning.private_tuning import private_tuning
from l2p.task.rows import Rows
from l2p.task.sources import ArraySource

BUDGET = Budget(2.0, 1e-6)
LAW = NegativeBinomial.with_mean(6.0)
GOOD = HAND_DESIGNED["noisygd"](BUDGET).replace(num_steps=6)
STILL = GOOD.replace(projector=Optax("sgd", {"learning_rate": log_constant(1e-9)}))


def table(count=600):
    random = np.random.default_rng(0)
    x = random.random((count, 2)).astype(np.float32)
    return Rows(jnp.asarray(x), jnp.asarray(x[:, 0] > x[:, 1], jnp.float32), jnp.ones(count))


ROWS = table()


@functools.cache
def a_result():
    return private_train(ROWS, "noisygd", BUDGET, key=jax.random.key(0))


@pytest.fixture
def recorded(monkeypatch):
    """A replacement of `private_train` that records its arguments and scores a run by minus its number."""
    calls = []

    def pretend(data, named, budget, *, key, params=None, **_):
        calls.append(SimpleNamespace(named=named, budget=budget, key=key, params=params))
        number = float(len(calls))
        params = jnp.array([-number]) if isinstance(named.protector, module.Score) else jnp.full(3, number)
        return dataclasses.replace(a_result(), params=params)

    monkeypatch.setattr(module, "private_train", pretend)
    return calls


def card_of(tuned):
    """All that it says but the time of day, which differs between two runs."""
    return dataclasses.replace(tuned.result.card, created="").to_json()


@pytest.mark.slow(but=["names1-add_remove", "names1-replace_one"])
@pytest.mark.parametrize("adjacency", Adjacency)
@pytest.mark.parametrize("names", [["noisygd", "auto_clip"], ["agd"]])
def test_a_run_and_its_score_stay_within_a_base_budget_whose_total_is_within_the_budget(recorded, names, adjacency):
    budget = dataclasses.replace(BUDGET, adjacency=adjacency)
    arguments = {"repetitions": LAW, "score_share": 0.2, "key": jax.random.key(1), "num_rows": len(ROWS.y)}
    tuned = private_tuning(ROWS, names, budget, **arguments)
    assert total_epsilon(LAW, tuned.base_rho, budget.delta) <= budget.epsilon
    for train, score in zip(recorded[::2], recorded[1::2], strict=True):
        assert score.named.protector == module.Score()
        assert np.array_equal(score.params, np.full(3, float(recorded.index(train) + 1)))  # it scores this run's model
        assert train.named.accountant == ("zcdp" if train.named.name == "agd" else "gdp")
        spent = [
            Filter(part.named.accountant, part.budget).limit / (2 if part.named.accountant == "gdp" else 1)
            for part in (train, score)
        ]
        assert all(part.budget.adjacency is adjacency for part in (train, score))
        np.testing.assert_allclose(spent, [0.8 * tuned.base_rho, 0.2 * tuned.base_rho], rtol=1e-6)
        assert sum(spent) <= tuned.base_rho


def test_the_best_score_is_released_and_nothing_tells_how_many_runs_there_were(recorded):
    tuned = private_tuning(ROWS, ["noisygd", "auto_clip"], BUDGET, repetitions=LAW, key=jax.random.key(3))
    runs = len(recorded) // 2
    assert runs > 1
    assert tuned.score == -2.0  # the first run's: later ones were worse
    assert np.array_equal(tuned.params, np.ones(3))
    assert ["noisygd", "auto_clip"][tuned.candidate] == recorded[0].named.name
    fields = "params candidate score budget base_rho private_release statement result"
    assert " ".join(field.name for field in dataclasses.fields(tuned)) == fields
    shown = tuned.base_rho, tuned.statement, card_of(tuned)
    longer = private_tuning(ROWS, ["noisygd", "auto_clip"], BUDGET, repetitions=LAW, key=jax.random.key(5))
    assert len(recorded) // 2 != 2 * runs
    assert (longer.base_rho, longer.statement, card_of(longer)) == shown
    assert len({np.asarray(jax.random.key_data(run.key)).tobytes() for run in recorded[: 2 * runs]}) == 2 * runs


@pytest.mark.slow
def test_the_number_of_runs_follows_its_law_and_candidates_are_drawn_evenly(recorded, monkeypatch):
    monkeypatch.setattr(module, "base_rho", lambda *_: 0.01)  # the same at every seed
    counts, chosen = [], []
    law = PoissonRuns(3.0)
    for seed in range(150):
        recorded.clear()
        private_tuning(ROWS, [GOOD, STILL], BUDGET, repetitions=law, key=jax.random.key(seed))
        counts.append(len(recorded) // 2)
        chosen += [run.named.protector is GOOD for run in recorded[::2]]
    # Five standard deviations of 150 Poisson counts, and of some 450 fair coins.
    assert np.mean(counts) == pytest.approx(3.0, abs=5 * math.sqrt(3.0 / 150))
    assert np.var(counts) == pytest.approx(3.0, abs=5 * 3.0 * math.sqrt((2 + 1 / 3) / 150))
    assert np.mean(chosen) == pytest.approx(0.5, abs=5 * 0.5 / math.sqrt(len(chosen)))


def test_without_a_run_the_public_start_is_released(recorded, monkeypatch):
    monkeypatch.setattr(PoissonRuns, "draw", lambda self, uniform: 0)
    tuned = private_tuning(ROWS, [GOOD], BUDGET, repetitions=PoissonRuns(2.0), key=jax.random.key(0))
    assert np.array_equal(tuned.params, np.zeros(3))
    assert (tuned.candidate, tuned.score, tuned.result, recorded) == (None, None, None, [])


@pytest.mark.long
def test_it_finds_the_candidate_that_learns():
    for seed in range(3):
        tuned = private_tuning(ROWS, [STILL, GOOD], BUDGET, repetitions=LAW, key=jax.random.key(seed))
        again = private_tuning(ROWS, [STILL, GOOD], BUDGET, repetitions=LAW, key=jax.random.key(seed))
        assert np.array_equal(tuned.params, again.params)
        params = np.asarray(tuned.params)
        right = np.mean((np.asarray(ROWS.x) @ params[:2] + 0.5 * params[2] > 0) == np.asarray(ROWS.y))
        # One time in seven there is a single run, which may be of the candidate that does not move.
        assert tuned.score == pytest.approx(right, abs=0.2)
        assert (right > 0.75) == (tuned.candidate == 1)
    assert not tuned.private_release


@pytest.mark.slow
def test_a_release_takes_its_noise_and_its_choices_from_the_operating_system():
    tuned = private_tuning(ROWS, [GOOD], BUDGET, repetitions=NegativeBinomial(1.0, 0.7))
    assert tuned.private_release
    assert np.isfinite(tuned.params).all()
    assert "Theorem 2" in tuned.statement
    assert str(BUDGET) in tuned.statement


@pytest.mark.slow
def test_the_card_of_the_best_run_states_the_guarantee_of_the_choice(tmp_path):
    tuned = private_tuning(ROWS, [GOOD], BUDGET, repetitions=NegativeBinomial(1.0, 0.7))
    tuned.result.save(tmp_path, ["a", "b"], {"a": (0, 1), "b": (0, 1)}, None, "y")
    card = Card.from_json(tmp_path / "card.json")
    assert card == tuned.result.card
    assert np.array_equal(tuned.result.params, tuned.params)
    law = NegativeBinomial(1.0, 0.7)
    assert card.budget == BUDGET
    assert card.epsilon_certified == total_epsilon(law, tuned.base_rho, BUDGET.delta) <= BUDGET.epsilon
    assert card.theorem.startswith(tuned.statement)
    # Its own queries cost only its share, which is less than the card certifies.
    spent = Filter("gdp", BUDGET).spent(card.answered()) / 2
    assert 0.89 * tuned.base_rho < spent <= 0.9 * tuned.base_rho
    assert card.filter().certify(card.answered(), card.adaptive_noise) < card.epsilon_certified
    assert any("not to the guarantee" in warning for warning in card.warnings)


def test_the_card_does_not_tell_when_the_best_run_ended(recorded, monkeypatch):
    monkeypatch.setattr(module, "now", lambda: f"after {len(recorded)} runs and scores")
    tuned = private_tuning(ROWS, [GOOD], BUDGET, repetitions=NegativeBinomial(1.0, 0.7), key=jax.random.key(1))
    assert len(recorded) > 2  # a later run would have been told by the time of the first, which is the best here
    assert tuned.result.card.created == f"after {len(recorded)} runs and scores"


# ------------------------------------------------------------------------------------------------------------- ledgers
def ledger_in(folder, unit):
    budget = Budget(6.0, 1e-5)
    return Ledger.create(folder / f"{unit}.ledger", "ward", budget, unit, limit_of(unit, budget))


@pytest.mark.parametrize("unit", ["rdp", "basic"])
def test_all_runs_are_reserved_before_the_first_and_count_in_full_after_the_last(recorded, tmp_path, monkeypatch, unit):
    ledger, pretend, states = ledger_in(tmp_path, unit), module.private_train, []

    def watched(*args, **options):
        assert "ledger" not in options
        states.append([entry.state for entry in ledger.entries()])
        return pretend(*args, **options)

    monkeypatch.setattr(module, "private_train", watched)
    monkeypatch.setattr(NegativeBinomial, "draw", lambda self, uniform: 3)
    tuned = private_tuning(ROWS, ["noisygd", "auto_clip"], BUDGET, repetitions=LAW, ledger=ledger.path)
    assert states == [["reserved"]] * 6
    (entry,) = ledger.entries()
    cost = (
        Cost(2.0, 1e-6) if unit == "basic" else Cost(LAW.divergence(tuned.base_rho, Filter("rdp", ledger.budget).order))
    )
    assert (entry.state, entry.reserved, entry.counted) == ("settled", cost, cost)
    assert (entry.what, tuned.result.card.composition) == (
        f"the best of 6 runs on average, {BUDGET}",
        {
            "data_set": "ward",
            "unit": tuned.result.card.composition["unit"],
            "reservation": entry.id,
            "spent_before": 0.0,
            "counted": cost.amount,
            "limit": ledger.limit.amount,
            "earlier": [],
        },
    )
    # Few or many runs cost the same: the theorem is about all runs that might have been drawn.
    monkeypatch.setattr(NegativeBinomial, "draw", lambda self, uniform: 1)
    private_tuning(ROWS, ["noisygd"], BUDGET, repetitions=LAW, ledger=ledger)
    assert ledger.entries()[1].counted == cost


def test_runs_that_are_interrupted_stay_reserved_and_say_so(recorded, tmp_path, monkeypatch):
    ledger, pretend = ledger_in(tmp_path, "basic"), module.private_train

    def interrupted(*args, **options):
        if len(recorded) == 1:
            raise KeyboardInterrupt
        return pretend(*args, **options)

    monkeypatch.setattr(module, "private_train", interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        private_tuning(ROWS, ["noisygd"], BUDGET, repetitions=LAW, ledger=ledger)
    (entry,) = ledger.entries()
    assert (entry.state, entry.counted) == ("reserved", Cost(2.0, 1e-6))
    (note,) = caught.value.__notes__
    assert f"epsilon 2 at delta 1e-06 for this run ({entry.id}) stays" in note


@pytest.mark.parametrize(
    ("unit", "changes", "words"),
    [
        ("gdp", {}, r"adds up mu\^2, which bounds no single run chosen among several.* unit rdp or basic"),
        ("zcdp", {}, "adds up rho, which bounds no single run"),
        ("basic", {"budget": Budget(7.0, 1e-6)}, "so it must not start"),
        ("rdp", {"budget": Budget(7.0, 1e-6)}, "so it must not start"),
        ("basic", {"budget": Budget(2.0, 1e-6, Adjacency.REPLACE_ONE)}, "counts zero_out neighbours"),
        ("basic", {"key": jax.random.key(0)}, "a ledger cannot count it as private"),
        ("basic", {"candidates": ["noisygd", "dpsgd"]}, "one order only"),
        (
            "basic",
            {"candidates": ["noisygd", "outpert"], "data": ArraySource(jax.tree.map(np.asarray, ROWS), 100)},
            "solves on all rows at once",
        ),
        ("basic", {"data": dataclasses.replace(ROWS, mask=0.5 * ROWS.mask)}, "mask"),
        ("basic", {"ledger": "nowhere.ledger"}, "there is no ledger"),
    ],
)
def test_what_a_ledger_cannot_count_is_refused_before_any_run(recorded, tmp_path, unit, changes, words):
    ledger = ledger_in(tmp_path, unit)
    arguments = {"data": ROWS, "candidates": ["noisygd"], "budget": BUDGET, "ledger": ledger} | changes
    with pytest.raises(InputError, match=words):
        private_tuning(**arguments, repetitions=LAW)
    assert (recorded, ledger.entries()) == ([], [])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"candidates": []}, "nothing to choose"),
        ({"score_share": 1.0}, "nothing to choose"),
        ({"candidates": ["nonprivate"]}, "without noise"),
        ({"candidates": ["noisygd", "nobody"]}, "unknown"),
        ({"candidates": [GOOD.replace(sampler=Poisson(0.1))]}, "one order only"),
        ({"budget": Budget(1.0, 0.01)}, "1/N"),
    ],
    ids=lambda value: None if isinstance(value, str) else str(sorted(value)),
)
def test_what_cannot_be_tuned_is_refused_before_any_run(recorded, changes, words):
    arguments = {"candidates": [GOOD], "budget": BUDGET, "key": jax.random.key(0)} | changes
    with pytest.raises(InputError, match=words):
        private_tuning(ROWS, arguments.pop("candidates"), arguments.pop("budget"), repetitions=LAW, **arguments)
    assert recorded == []
