"""`l2p account --verify` on sound cards: what it shows, what it does not, and what it cannot decide."""

import json

import pytest

from l2p.privacy.accountants import find, run_names
from l2p.privacy.card.card import SEED_POLICY
from l2p.privacy.card.of_run import FLOATS, RANDOMNESS
from l2p.tables.schema import Category, Number, Schema, Target
from l2p.tables.schema.rows import public_statements
from tests.release.stored_cards import both, card, cards, louder, part, set_

#: Cards whose noise depends on answers or on public rows, or is of a protector that is not known.
NOT_REHEARSED = (
    *("universal", "agd", "agd, zcdp", "agd, tuned", "paper", "private_meta", "ledger at one order", "ppsgd", "ppgd"),
    *("of one's own", "bolt_on, gamma as a divergence", "the best of several", "chosen on parts"),
)


#: They compile for five seconds or more.
LONG = ("sgd_ma", "dpsgd, pld", "minibatch, at a rate", "dpsgd", "hyfree", "sgd_adv", "a control stands in")


@pytest.mark.long(cases=LONG)
@pytest.mark.parametrize("name", cards())
def test_sound_cards_of_every_kind_verify(verify, name):
    code, output = verify(card(name))
    assert (code, "the card holds" in output) == (0, True), output
    assert "by this version" not in output
    assert ("so is the noise of every query" in output) == (name not in NOT_REHEARSED)
    assert ("of which it lists one" in output) == (name in ("the best of several", "chosen on parts"))


def test_sound_cards_are_of_every_accountant():
    assert {base["accountant"] for base in cards().values()} == set(run_names())


def test_what_it_shows_and_what_it_does_not_is_said(verify):
    code, output = verify(card("noisygd"), "--json")
    report = json.loads(output)
    assert (code, report["holds"], report["known_by"], report["rehearsed"]) == (0, True, "name", True)
    assert report["problems"] == report["remarks"] == []
    _, output = verify(card("agd"))
    assert "priced again here and by dp-accounting, cost no more than it says" in output
    assert "Sampler, mechanisms, steps, and whether noise depends on answers, are those of its protector. Not" in output
    assert "Not shown: that this run took place, and when, on which rows, with noise from where" in output
    unknown = card("noisygd") | {"protector": {"name": "MyOwn", "sha256": None, "sources": None, "range": None}}
    code, output = verify(unknown)
    assert code == 0
    assert "Protector MyOwn is not known here (it has no file)" in output
    assert "is what the card says and nobody checked" in output
    assert "are those of its protector" not in output


def test_a_name_that_stands_twice_is_refused(verify):
    text = json.dumps(card("noisygd"))
    code, output = verify(text.replace('"epsilon": 1.0', '"epsilon": 0.1, "epsilon": 1.0', 1))
    assert code == 2
    assert "the name 'epsilon' occurs twice" in output


REMARKS = {
    "an unknown file": (
        set_("protector", "sha256", to="ab" * 32),
        "no checkpoint of its SHA-256 ships with this version",
    ),
    "a theorem of another version": (
        both(set_("theorem", to="It holds."), set_("versions", "l2p", to="0.0.9")),
        f"and checked this one: {find('gdp').theorem}",
    ),
    "another version": (
        both(part(louder, 1.1), set_("epsilon_certified", to=0.95), set_("versions", "l2p", to="0.0.9")),
        "It is of l2p 0.0.9, and by this version it holds other noise than noisygd adds",
    ),
    "a simulation": (
        both(
            set_("private_release", to=False),
            set_("seed_policy", to=SEED_POLICY[False]),
            set_("randomness", to=RANDOMNESS[False]),
            set_("float_mode", to=FLOATS[False]),
        ),
        "it protects nobody",
    ),
    "a table too large to rehearse": (set_("num_features", to=10**8), "which queries it asks was not compared"),
}


@pytest.mark.parametrize("case", REMARKS)
def test_what_cannot_be_decided_is_said(verify, case):
    edit, phrase = REMARKS[case]
    edited = card("noisygd")
    edit(edited)
    code, output = verify(edited)
    assert code == 0
    assert "note: " in output
    assert phrase in output


def test_a_card_is_compared_with_the_schema_beside_it(verify, tmp_path):
    schema = Schema({"age": Number(0, 90), "ward": Category(("a", "b"))}, Target("ill", classes=("no", "yes")))
    schema.write(tmp_path / "schema.json")
    edited = card("noisygd")
    assert verify(edited)[0] == 0  # without a model beside it the schema may be that of another table
    (tmp_path / "model.safetensors").touch()
    code, output = verify(edited)
    assert (code, "with the schema beside it says" in output) == (1, True)
    edited["not_private"] += public_statements(schema)
    code, output = verify(edited)
    assert (code, "the card holds" in output) == (0, True)


def test_a_card_that_was_written_anew_holds_and_that_is_said(verify):
    """This method has the same noise multiplier whether rows are nulled or replaced, so the two cannot be
    distinguished."""
    code, output = verify(card("noisygd") | {"adjacency": "replace_one"})
    assert code == 0
    assert "anybody can write one that holds" in output
