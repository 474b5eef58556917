"""Releases that learn from batches: their cards, their traces, and their samplers."""

import csv
import dataclasses
import functools

import jax
import numpy as np
import pytest

import l2p
from l2p.base.errors import InputError
from l2p.privacy import Adjacency, Budget, Filter
from l2p.privacy.card.events import decode_events
from l2p.privacy.cost.sampling import FixedSize, PermutationEpochs, Poisson
from l2p.protectors import HAND_DESIGNED
from l2p.task.sources import ArraySource
from meta_train.training.untrained import BUILDERS
from tests.release.tables import BUDGET, NUM_ROWS, Unread, accuracy, read_card, table


def centred(sampler, **fields):
    """DP-SGD on batches, after a query for the mean of all rows."""
    purchases = BUILDERS["control"](jax.random.key(0)).purchases
    return dataclasses.replace(HAND_DESIGNED["noisygd"](BUDGET), sampler=sampler, purchases=purchases, **fields)


@functools.cache
def poisson_run(accountant=None):
    return l2p.private_train(table(), "dpsgd", BUDGET, accountant=accountant)


@pytest.mark.parametrize("accountant", [None, "ctcdp"])
def test_dpsgd_is_a_release_that_learns_from_batches_and_whose_card_says_so(accountant, tmp_path):
    result = poisson_run(accountant)
    card = result.card
    assert accuracy(result, table(seed=1)) > 0.85  # 0.97 with a standard deviation of 0.009, over 80 releases
    assert (card.accountant, card.private_release, card.steps) == (accountant or "rdp", True, 200)
    assert card.sampler == {"name": "Poisson", "sampling_rate": 0.05}
    assert card.envelope is None
    assert 0.99 * BUDGET.epsilon < card.epsilon_certified <= BUDGET.epsilon
    assert card.filter().certify(card.answered(), card.adaptive_noise) == card.epsilon_certified
    assert read_card(card, tmp_path) == card
    # On all rows the same queries would cost far more.
    unsampled = Filter("gdp", BUDGET)
    assert unsampled.spent(card.answered()) > 10 * unsampled.limit


SAMPLERS = {
    "Poisson": (Poisson(0.05), Adjacency.ADD_REMOVE, "rdp"),
    "Poisson, replace_one": (Poisson(0.05), Adjacency.REPLACE_ONE, "rdp"),
    "fixed-size": (FixedSize(100, NUM_ROWS), Adjacency.REPLACE_ONE, "rdp"),
    "permutation epochs": (PermutationEpochs(300, NUM_ROWS), Adjacency.ZERO_OUT, "gdp"),
}


def test_under_add_remove_n_is_declared_and_never_read_off_the_table():
    budget = Budget(2.0, 1e-6, Adjacency.ADD_REMOVE)
    with pytest.raises(InputError, match="pass num_rows"):
        l2p.private_train(table(), "noisygd", budget)
    cards = [l2p.private_train(table(rows), "noisygd", budget, num_rows=2000).card for rows in (2000, 1999)]
    assert [card.num_rows for card in cards] == [2000, 2000]
    assert any("N as it was declared" in sentence for sentence in cards[0].not_private)
    # A simulation has no guarantee, but its card is printed like any other.
    with pytest.raises(InputError, match="pass num_rows"):
        l2p.private_train(table(), "noisygd", budget, key=jax.random.key(0))


@pytest.mark.slow
@pytest.mark.parametrize("name", SAMPLERS)
def test_the_trace_states_for_every_query_how_likely_a_row_was_read(name, tmp_path):
    sampler, adjacency, accountant = SAMPLERS[name]
    budget = Budget(2.0, 1e-6, adjacency)
    result = l2p.private_train(table(), centred(sampler, num_steps=20), budget, num_rows=NUM_ROWS)
    card = result.card
    result.save(tmp_path, list("abcd"), dict.fromkeys("abcd", (0.0, 1.0)), None, "label")
    with (tmp_path / "trace.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [(line["step"], line["query"]) for line in lines[:2]] == [("0", "feature_mean"), ("1", "clipped_gradient")]
    assert [float(line["sampling_rate"]) for line in lines] == [1.0] + [sampler.rate()] * 20
    assert 0.98 < float(lines[-1]["share_spent"]) <= 1 + 1e-6
    assert (card.accountant, card.sampler["name"]) == (accountant, sampler.name)
    assert card.filter().certify(card.answered(), card.adaptive_noise) == card.epsilon_certified <= budget.epsilon
    assert card.filter().sampler == sampler
    assert l2p.Card.from_json(tmp_path / "card.json") == card


@pytest.mark.slow
def test_a_run_on_batches_streams():
    rows = table()
    result = l2p.private_train(ArraySource(rows, 512), centred(Poisson(0.05), num_steps=6), BUDGET)
    assert result.card.sampler["name"] == "Poisson"
    assert (result.steps, result.card.private_release) == (6, True)
    assert result.card.epsilon_certified > 0.98 * BUDGET.epsilon


@pytest.mark.slow(cases=["None"])
@pytest.mark.parametrize("num_rows", [None, 2010])
def test_a_declared_number_of_rows_is_also_the_samplers(num_rows, tmp_path):
    budget, protector = Budget(2.0, 1e-6, Adjacency.REPLACE_ONE), centred(FixedSize(100, NUM_ROWS), num_steps=5)
    if num_rows is None:
        card = l2p.private_train(table(), protector, budget).card
        assert read_card(card, tmp_path) == card  # a card has to be readable again
    else:
        with pytest.raises(InputError, match=f"set up for 2000 rows, but the table has {num_rows}"):
            l2p.private_train(table(), protector, budget, num_rows=num_rows)


@pytest.mark.long
def test_a_privacy_loss_distribution_buys_dpsgd_less_noise_and_certifies_its_envelope(tmp_path):
    filter_run, envelope_run = poisson_run(), poisson_run("pld")
    card = envelope_run.card
    assert (card.accountant, card.steps, card.adaptive_noise) == ("pld", 200, False)
    assert 0.99 * BUDGET.epsilon < card.epsilon_certified <= BUDGET.epsilon
    envelope = decode_events(card.envelope)
    assert [query.step for query in envelope] == list(range(1, 201))
    least = np.array([query.noise_multiplier for query in envelope])
    noise = np.array([row.noise_multiplier for row in envelope_run.trace])
    assert np.all(noise >= least)
    assert np.all(noise < 1.002 * least)
    assert noise.max() < 0.96 * min(row.noise_multiplier for row in filter_run.trace)
    assert card.filter().certify(card.answered(), card.adaptive_noise) == card.epsilon_certified
    assert read_card(card, tmp_path) == card


def test_a_privacy_loss_distribution_is_refused_where_noise_depends_on_answers():
    paper = dataclasses.replace(BUILDERS["paper"](jax.random.key(0)), sampler=Poisson(0.05))
    with pytest.raises(InputError, match="depends on earlier answers"):
        l2p.private_train(Unread(), paper, BUDGET, accountant="pld")
