"""The privacy card as JSON: lossless on disk, and checked against its published schema."""

import dataclasses
import itertools
import json
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from l2p.base.errors import InputError
from l2p.privacy import MECHANISMS, Adjacency, Budget, Filter
from l2p.privacy.accountants import run_names
from l2p.privacy.card.card import SEED_POLICY, Card, schema
from l2p.privacy.card.events import decode_events, encode_events
from l2p.privacy.cost import convert, sampling
from l2p.privacy.events import Answered
from tests.privacy.cards import FIELDS, card, every_card, queries, save

# On disk


@every_card
def test_a_card_survives_its_file_bit_for_bit_and_keeps_to_the_schema(some_card, tmp_path):
    assert Card.from_json(save(tmp_path, some_card.to_json())) == some_card
    Draft202012Validator(schema()).validate(json.loads(some_card.to_json()))


def test_the_schema_is_one_and_describes_every_field():
    published = schema()
    Draft202012Validator.check_schema(published)
    names = {field.name for field in dataclasses.fields(Card)}
    assert (
        names
        == set(published["properties"])
        == {*published["required"], "mu", "public", "table", "engine", "statements"}
    )  # which older ones lack
    assert all(field["description"] for field in published["properties"].values())
    assert "http" not in json.dumps(published).replace(published["$schema"], "")


def test_the_schema_knows_the_names_that_the_library_has():
    published = schema()
    assert published["properties"]["adjacency"]["enum"] == list(Adjacency)
    assert set(published["properties"]["sampler"]["properties"]["name"]["enum"]) == set(sampling.SAMPLERS)
    # No finite budget grants an answer without noise.
    assert set(published["$defs"]["mechanism"]["enum"]) == set(MECHANISMS) - {"none"}
    assert set(published["properties"]["seed_policy"]["enum"]) == set(SEED_POLICY.values())
    assert all(re.search(published["properties"]["accountant"]["pattern"], name) for name in run_names())


def test_the_budget_is_read_off_the_card():
    assert card(adjacency="replace_one").budget == Budget(0.1, 1e-8, Adjacency.REPLACE_ONE)


# Few different steps, so that equal ones are often consecutive.
asked_queries = st.lists(st.lists(queries, max_size=2), max_size=2).flatmap(
    lambda kinds: st.lists(st.sampled_from([[], *kinds]), max_size=12)
)


@given(asked_queries)
def test_events_come_back_bit_for_bit(steps):
    answered = [Answered(step, *query) for step, queries in enumerate(steps) for query in queries]
    spans = json.loads(json.dumps(encode_events(answered), allow_nan=False))
    assert decode_events(spans) == answered
    # Everything that could be merged was merged.
    assert not any(
        a["steps"][1] + 1 == b["steps"][0] and a["queries"] == b["queries"] for a, b in itertools.pairwise(spans)
    )


@given(st.lists(queries, min_size=1, max_size=4))
def test_the_schema_takes_whatever_was_granted(granted):
    events = encode_events([Answered(1, *query) for query in granted])
    Draft202012Validator(schema()).validate(json.loads(card(events=events).to_json()))


def test_equal_consecutive_steps_are_merged_and_others_are_not():
    step = [("gaussian", 8.0), ("sinh_normal", 4.0, 2.5)]
    answered = [Answered(index, *query) for index in (0, 1, 3) for query in step] + [Answered(4, "gaussian", 8.0)]
    both = [["gaussian", 8.0], ["sinh_normal", 4.0, 2.5]]
    assert encode_events(answered) == [
        {"steps": [0, 1], "queries": both},
        {"steps": [3, 3], "queries": both},
        {"steps": [4, 4], "queries": both[:1]},
    ]
    assert encode_events([]) == []


def test_answered_queries_are_listed_one_by_one_in_order():
    assert card().answered() == [
        Answered(0, "gumbel", 40.0),
        Answered(1, "gaussian", 90.0999984741211),
        Answered(2, "gaussian", 90.0999984741211),
        Answered(3, "gaussian", 120.30000305175781),
    ]
    assert card().answered()[0].tail == math.inf


# Gaussian DP


def test_mu_is_what_the_filter_proves_and_no_less():
    limit = Filter("gdp", Budget(1.0, 1e-6))
    answers = [Answered(step, "gaussian", 40.0) for step in range(1, 51)]
    assert limit.mu(answers, adaptive=False) == pytest.approx(math.sqrt(50) / 40, rel=1e-12)
    assert limit.mu(answers, adaptive=True) == pytest.approx(convert.gdp_mu(1.0, 1e-6), rel=1e-12)
    for adaptive in (True, False):
        proved = limit.certify(answers, adaptive)
        assert convert.gdp_epsilon(limit.mu(answers, adaptive), 1e-6) == pytest.approx(proved, rel=1e-9)
    assert Filter("rdp", Budget(1.0, 1e-6)).mu(answers, adaptive=False) is None


@pytest.mark.parametrize(
    ("accountant", "mu", "phrase"), [("gdp", 0.001, "below what epsilon"), ("rdp", 0.1, "proves no Gaussian")]
)
def test_a_mu_that_is_not_proved_is_refused(tmp_path, accountant, mu, phrase):
    claimed = card(accountant=accountant, order=None if accountant == "gdp" else FIELDS["order"], mu=mu)
    with pytest.raises(InputError, match=phrase):
        Card.from_json(save(tmp_path, claimed.to_json()))
