"""The card in words, as text and as a page: the guarantee, what it rests on, and whom it protects."""

import re

import pytest
import yaml

from l2p.base.errors import InputError
from l2p.privacy import Adjacency
from l2p.privacy.card import html, registry
from l2p.privacy.card.card import SEED_POLICY, Card
from l2p.privacy.cost import sampling
from tests.privacy.cards import FIELDS, LEDGER, PERSON, SIMULATION, TABLE, card, every_card


def words(text):
    return " ".join(text.split())


@pytest.mark.parametrize("form", [Card.to_text, html.render])
@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_both_forms_state_the_guarantee_with_its_adjacency(adjacency, form):
    text = words(form(card(adjacency=adjacency.value)))
    phrase = {
        Adjacency.ZERO_OUT: "replaced by a null row",
        Adjacency.ADD_REMOVE: "a single row more",
        Adjacency.REPLACE_ONE: "replaced by any other row",
    }[adjacency]
    assert phrase in text
    assert f"for one row of N = 30400, under {adjacency} adjacency." in text
    assert "(epsilon = 0.1, delta = 1e-08)-differential privacy" in text
    assert "e^epsilon = 1.106, but" in text
    assert "appears in k rows" in text


@pytest.mark.parametrize("form", [Card.to_text, html.render])
def test_no_number_of_a_guarantee_is_printed_below_what_holds(form):
    figures = {"epsilon": 1.0000049, "delta": 1.0000049e-6, "epsilon_certified": 0.99999951, "mu": 0.23670443}
    text = words(form(card(**figures)))
    assert "(epsilon = 1.00001, delta = 1.00001e-06)-differential privacy" in text
    assert "epsilon 1 of 1.00001, by" in text
    assert "mu = 0.236705 of Gaussian DP" in text
    assert "e^epsilon = 2.719, but for a probability of 1.00001e-06" in text


@pytest.mark.parametrize("form", [Card.to_text, html.render])
def test_both_forms_name_what_the_guarantee_rests_on(form):
    text = words(form(card(sampler=sampling.Poisson(0.03).to_json(), warnings=["Beware."])))
    for phrase in (
        "epsilon 0.09 of 0.1, by rdp at order 366.5",
        FIELDS["theorem"],
        "fixed in advance",
        "Poisson sampling (sampling_rate 0.03)",
        "logistic, 98 features",
        "3 of at most 50; stopped by: budget",
        FIELDS["randomness"],
        SEED_POLICY[True],
        FIELDS["float_mode"],
        f"census; sha256 {'ab' * 32}; made from 1 public source, named with what was not private; made for",
        "made for log_signal 0.7 to 8.7",
        "The bounds.",
        "Beware.",
        "90.1 to 120.3",
        "noisy_min",
    ):
        assert phrase in text
    assert " order " not in words(form(card(accountant="gdp", order=None, theorem="t")))


@pytest.mark.parametrize("form", [Card.to_text, html.render])
def test_both_forms_say_whether_other_runs_are_counted(form):
    assert "this run alone: whatever other runs on these rows spend adds to it" in words(form(card()))
    text = words(form(card(composition=LEDGER)))
    assert "ledger of hospital (unit basic): 0.2 before this run, 0.1 for it, 0.5 allowed; reservation 7." in text
    assert "Runs outside this ledger add to it" in text
    assert "this run alone" not in text


@pytest.mark.parametrize("form", [Card.to_text, html.render])
def test_only_a_simulation_says_that_it_is_no_release(form):
    sentence = "NOT A PRIVATE RELEASE: the noise came from a user-given seed"
    assert sentence in words(form(card(**SIMULATION)))
    assert sentence not in words(form(card()))


def test_the_text_fits_its_width():
    assert all(len(line) <= 100 for line in card(composition=LEDGER, **SIMULATION).to_text().splitlines())


def test_a_card_prints_no_command_for_a_terminal():
    named = card(protector={"name": "mine\x1b[2J\u202e", "sha256": "0" * 64, "sources": None, "range": None})
    text = named.to_text()
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "mine\\x1b[2J\\u202e" in text


@pytest.mark.parametrize("form", [Card.to_text, html.render])
def test_both_forms_name_table_and_target_first_and_every_source_once(form):
    sources = [f"set_{number:02}" for number in range(50)]
    sample = card(
        table=TABLE,
        protector=FIELDS["protector"] | {"sources": sources},
        not_private=[f"The protector was made from public data ({', '.join(sources)}), read without limit."],
    )
    text = words(form(sample)).replace("&#x27;", "'")
    assert "A model (logistic) of 'readmitted' from the table 'ward.csv'." in text.partition("-differential privacy")[0]
    assert all(text.count(source) == 1 for source in sources)
    assert "made from 50 public sources, named with what was not private" in text
    assert "A model (logistic)." in words(form(card()))
    assert "made from no public source" in words(form(card(protector=FIELDS["protector"] | {"sources": []})))


@pytest.mark.parametrize("form", [Card.to_text, html.render])
def test_both_forms_have_the_trust_model_what_was_stated_and_each_earlier_run_once(form):
    text = words(form(card()))
    assert "central: whoever runs l2p holds the rows" in text
    assert "a single row, whoever it is of" in text
    assert text.count("not stated") == 2  # neither why, nor whom to ask
    stated = {"justification": "The board asked for 0.1.", "contact": "data@ward.example", "audit": "By <us>, in May."}
    text = words(form(card(composition=LEDGER).stating(stated))).replace("&lt;", "<").replace("&gt;", ">")
    for sentence in (*stated.values(), "2025-12-24: noisygd, epsilon 0.2, delta 1e-08, accountant rdp; counts for 0.2"):
        assert text.count(sentence) == 1
    assert "not stated" not in text
    assert text.lower().index("in their own words, checked by nobody") < text.index(stated["justification"])


@pytest.mark.parametrize(
    ("made", "phrase"),
    [
        ({"reason": "none"}, "no place for a statement called 'reason'"),
        ({"contact": "  "}, "the contact on a card is empty"),
        ({"audit": "clear\x1b[2J"}, "holds control characters"),
        ({"justification": "long " * 500}, "longer than 2,000 characters"),
    ],
)
def test_a_statement_that_no_card_can_hold_is_refused(made, phrase):
    with pytest.raises(InputError, match=re.escape(phrase)):
        card().stating(made)


#: Fields of the registry's template, by the blocks of an entry, as of November 2026.
REGISTRY = {
    "basic": "name data_curators description intended_use data_product_type data_product_region data_product_sector "
    "publication_date",
    "dp_variant": "variant_name data_domain unprotected_quantities",
    "privacy_loss": "privacy_unit privacy_unit_details number_of_privacy_units privacy_parameters "
    "privacy_parameters_details",
    "deployment_model": "model_name model_name_details trust_assumptions actors release_type release_type_details "
    "data_source_type access_type",
    "implementation": "preprocessing_and_hyperparameter_tuning mechanisms composition post_processing justification "
    "utility additional_information",
    "administrative": "evidence_sources status registry_authors tier",
}


@every_card
def test_the_draft_for_a_registry_has_the_fields_of_its_template(some_card):
    entry = yaml.safe_load(registry.to_yaml(some_card))
    assert {block: list(fields) for block, fields in entry["deployment"].items()} == {
        block: names.split() for block, names in REGISTRY.items()
    }
    assert entry["deployment"]["privacy_loss"]["privacy_parameters"] == {"epsilon": 0.1, "delta": 1e-8}


def test_the_draft_for_a_registry_vouches_neither_for_declarations_nor_for_statements():
    not_private = "The bounds of 'age' were bought with the budget."
    entry = registry.entry(card(not_private=[not_private]).stating({"audit": "Passed, says <us>"}))["deployment"]
    assert "alone" not in entry["implementation"]["preprocessing_and_hyperparameter_tuning"]
    assert entry["dp_variant"]["unprotected_quantities"] == not_private
    about = entry["implementation"]["additional_information"]
    assert about.index("checked by nobody") < about.index("Passed, says <us>")


@pytest.mark.parametrize("adjacency", Adjacency)
def test_a_card_says_whom_it_protects(adjacency):
    rows = " ".join(card(adjacency=adjacency.value).to_text().split())
    assert "-differential privacy for one row of N = 30400, under" in rows
    assert "Somebody who appears in k rows has k epsilon" in rows
    people = " ".join(card(adjacency=adjacency.value, unit=PERSON).to_text().split())
    assert "for all rows of one 'person' together, in N = 30400 lines, under" in people
    assert "k epsilon" not in people
    assert "all rows with one value of 'person'" in people
    assert "at most 3 (the first 3 valid rows of each, in the order of the table" in people
