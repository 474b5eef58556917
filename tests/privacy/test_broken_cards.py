"""Cards that are broken or incomplete are refused in a sentence that names the field."""

import dataclasses

import pytest

from l2p.base.errors import InputError
from l2p.privacy.card.card import SEED_POLICY, Card
from l2p.privacy.cost import sampling
from tests.privacy.cards import FIELDS, LEDGER, PERSON, card, save

EPOCHS = sampling.PermutationEpochs(9, 30400).to_json()


def event(queries, steps=(1, 1)):
    return {"events": [{"steps": list(steps), "queries": queries}], "mechanisms": []}


BROKEN = {
    "unknown version": ({"card_version": 3}, "field 'card_version'", "3 is not one of [2]"),
    "unit as a text": ({"unit": "row"}, "field 'unit'", "is not of type 'object'"),
    "units by selections": ({"unit": PERSON}, "field 'unit'", "protected by gumbel noise, for which nothing is proved"),
    "units on batches": (
        {"unit": PERSON, "sampler": {"name": "Poisson", "sampling_rate": 0.1}},
        "field 'unit'",
        "protected although steps read batches",
    ),
    "no epsilon": ({"epsilon": 0}, "field 'epsilon'", "less than or equal to the minimum of 0"),
    "boolean epsilon": ({"epsilon": True}, "field 'epsilon'", "True is not of type 'number'"),
    "vast epsilon": ({"epsilon": 10**400}, "field 'epsilon'", "greater than the maximum"),
    "vacuous delta": ({"delta": 1}, "field 'delta'", "greater than or equal to the maximum of 1"),
    "delta of every row": ({"delta": 1e-4}, "field 'delta'", "is not below 1/N for N = 30400"),
    "countless rows": ({"num_rows": 10**400}, "field 'num_rows'", "greater than the maximum"),
    "countless queries": (
        {"steps": 2**31 - 1, "max_steps": 2**31 - 1} | event([["gaussian", 9.0]], (1, 2**31 - 1)),
        "field 'events'",
        "more than any run asks",
    ),
    "negative certificate": ({"epsilon_certified": -0.1}, "field 'epsilon_certified'", "less than the minimum"),
    "too high a certificate": ({"epsilon_certified": 0.2}, "field 'epsilon_certified'", "exceeds the target"),
    "adjacency": ({"adjacency": "row"}, "field 'adjacency'", "'row' is not one of"),
    "no rows": ({"num_rows": 0}, "field 'num_rows'", "less than the minimum of 1"),
    "half a row": ({"num_rows": 1.5}, "field 'num_rows'", "not of type 'integer'"),
    "accountant": ({"accountant": "Moments!"}, "field 'accountant'", "does not match"),
    "order": ({"order": 1}, "field 'order'", "less than or equal to the minimum of 1"),
    "seed": ({"seed_policy": SEED_POLICY[False]}, "field 'seed_policy'", "'no seed: operating system' was expected"),
    "stop": ({"stop_reason": "tired"}, "field 'stop_reason'", "'tired' is not one of"),
    "steps": ({"steps": 51}, "field 'steps'", "51 steps exceed the 50"),
    "unknown sampler": ({"sampler": {"name": "shuffle"}}, "field 'sampler.name'", "'shuffle' is not one of"),
    "sampler number": ({"sampler": {"name": "Poisson", "sampling_rate": 2}}, "field 'sampler'", "not a probability"),
    "sampler field": ({"sampler": {"name": "Poisson", "rate": 0.1}}, "field 'sampler'", "cannot be set up"),
    "other table": ({"sampler": EPOCHS | {"num_rows": 90}}, "field 'sampler'", "set up for 90 rows"),
    "no theorem": ({"sampler": EPOCHS, "adjacency": "add_remove"}, "field 'sampler'", "under adjacency add_remove"),
    "no envelope": ({"accountant": "moments"}, "field 'envelope'", "moments lacks the envelope"),
    "envelope of a filter": ({"envelope": FIELDS["events"]}, "field 'envelope'", "certifies no envelope"),
    "other accountant": ({"accountant": "pld"}, "field 'accountant'", "pld cannot price full batch"),
    "answer without noise": (event([["none", 1.0]]), "field 'events.0.queries.0.0'", "'none' is not one of"),
    "noise in words": (event([["gaussian", "much"]]), "field 'events.0.queries.0.1'", "'much' is not of type"),
    "no noise": (event([["gaussian", 0.0]]), "field 'events.0.queries.0.1'", "less than or equal"),
    "tail missing": (event([["sinh_normal", 1.0]]), "field 'events.0.queries.0'", "too short"),
    "tail too many": (event([["gaussian", 1.0, 2.0]]), "field 'events.0.queries.0'", "too long"),
    "step asks nothing": (event([]), "field 'events.0.queries'", "non-empty"),
    "steps backwards": (event([["gaussian", 9.0]], (3, 2)), "field 'events.0.steps'", "comes after the last"),
    "steps repeat": ({"events": FIELDS["events"][:1] * 2}, "field 'events.1.steps'", "steps must increase"),
    "steps after the end": (event([["gaussian", 9.0]], (1, 5)), "field 'events'", "the run ended after 3"),
    "counts": ({"mechanisms": FIELDS["mechanisms"][:1]}, "field 'mechanisms'", "although the events hold"),
    "ledger overdrawn": ({"composition": LEDGER | {"limit": 0.25}}, "field 'composition'", "above the limit of 0.25"),
    "ledger incomplete": ({"composition": {}}, "field 'composition'", "required property"),
    "digest": ({"protector": FIELDS["protector"] | {"sha256": "ab12"}}, "field 'protector.sha256'", "does not match"),
    "date": ({"created": "yesterday"}, "field 'created'", "does not match"),
    "extra field": ({"loophole": "x" * 1000}, "in it as a whole", "'loophole' was unexpected"),
}


@pytest.mark.parametrize(("changes", "field", "problem"), BROKEN.values(), ids=BROKEN)
def test_each_broken_card_is_refused_in_a_sentence_of_its_own(tmp_path, changes, field, problem):
    path = save(tmp_path, dataclasses.asdict(card()) | changes)
    with pytest.raises(InputError, match=r"card\.json") as caught:
        Card.from_json(path)
    sentence = str(caught.value)
    assert field in sentence
    assert problem in sentence
    assert "nothing on it can be relied on" in sentence
    assert sentence.endswith("pass the card.json that a run wrote, unchanged.")
    assert "\n" not in sentence
    assert len(sentence) < 700 + len(str(path))


@pytest.mark.parametrize("missing", [*sorted(FIELDS), "card_version", "composition"])
def test_a_card_without_one_of_its_fields_is_refused(tmp_path, missing):
    fields = dataclasses.asdict(card())
    del fields[missing]
    with pytest.raises(InputError, match=f"'{missing}' is a required property"):
        Card.from_json(save(tmp_path, fields))


@pytest.mark.parametrize("content", ["{", "[]", "null", "3", '{"epsilon": NaN}', "[" * 100_000], ids=range(6))
def test_a_file_that_is_no_card_is_refused_in_one_sentence(tmp_path, content):
    with pytest.raises(InputError, match=r"card\.json") as caught:
        Card.from_json(save(tmp_path, content))
    assert "\n" not in str(caught.value)


def test_numbers_that_are_none_are_refused_wherever_they_stand(tmp_path):
    text = card().to_json()
    for number in ("NaN", "Infinity", "-Infinity", "1e999"):
        with pytest.raises(InputError):
            Card.from_json(save(tmp_path, text.replace("120.30000305175781", number)))
    with pytest.raises(InputError, match="cannot be read"):
        Card.from_json(tmp_path / "absent.json")
