"""The privacy card: lossless on disk, plain in words, and priceable again."""

import dataclasses
import json

import pytest

from l2p.errors import InputError
from l2p.privacy import NAMES, THEOREM, Adjacency, Budget, accountants
from l2p.privacy.card import Card


def card(**changes):
    fields = {
        "epsilon": 0.1,
        "delta": 1e-8,
        "epsilon_certified": 0.09,
        "adjacency": "zero_out",
        "unit": "row",
        "num_rows": 30400,
        "private_release": True,
        "accountant": "gdp",
        "theorem": THEOREM["gdp"],
        "adaptive_noise": False,
        "sampler": "full batch",
        "mechanisms": [
            {
                "query": "clipped_gradient",
                "mechanism": "gaussian",
                "count": 3,
                "clip_norm": [1.0, 2.0],
                "noise_multiplier": [90.1, 120.3],
            }
        ],
        "events": [["gaussian", 90.0999984741211, 2], ["gaussian", 120.30000305175781, 1]],
        "steps": 3,
        "max_steps": 50,
        "stop_reason": "budget",
        "randomness": "from the operating system",
        "not_private": ["The bounds."],
        "protector": {"name": "census", "sha256": "ab12", "sources": ["adult"], "range": None},
        "warnings": [],
        "versions": {"l2p": "0.1.0"},
        "created": "2026-01-01T00:00:00+00:00",
    }
    return Card(**(fields | changes))


def test_a_card_survives_its_file_bit_for_bit(tmp_path):
    path = tmp_path / "card.json"
    path.write_text(card().to_json())
    assert Card.from_json(path) == card()


def test_answered_queries_are_listed_one_by_one_in_order():
    assert card().answered() == [("gaussian", 90.0999984741211)] * 2 + [("gaussian", 120.30000305175781)]
    assert accountants.spent("gdp", card().budget, card().answered()) == pytest.approx(2 / 90.1**2 + 1 / 120.3**2)


def test_the_budget_is_read_off_the_card():
    assert card(adjacency="replace_one").budget == Budget(0.1, 1e-8, Adjacency.REPLACE_ONE)


@pytest.mark.parametrize("adjacency", list(Adjacency))
def test_the_text_says_what_neighbours_are(adjacency):
    text = " ".join(card(adjacency=adjacency.value).to_text().split())
    phrase = {
        Adjacency.ZERO_OUT: "replaced by a null row",
        Adjacency.ADD_REMOVE: "a single row more",
        Adjacency.REPLACE_ONE: "replaced by any other row",
    }[adjacency]
    assert phrase in text
    assert "epsilon = 0.1, delta = 1e-08" in text
    assert "appears in k rows" in text


@pytest.mark.parametrize("name", NAMES)
def test_the_text_names_accountant_theorem_and_stop(name):
    text = " ".join(card(accountant=name, theorem=THEOREM[name], warnings=["Beware."]).to_text().split())
    for phrase in (f"by {name}", THEOREM[name], "stopped by: budget", "- The bounds.", "- Beware.", "sources adult"):
        assert phrase in text


def test_only_a_simulation_says_that_it_is_no_release():
    sentence = "NOT A PRIVATE RELEASE: the noise came from a user-given seed"
    assert sentence in card(private_release=False).to_text()
    assert sentence not in card().to_text()


@pytest.mark.parametrize("damage", ["not json", "[]", "missing field", "extra field", "bad event"])
def test_a_file_that_is_no_card_is_refused_in_one_sentence(tmp_path, damage):
    fields = dataclasses.asdict(card())
    content = {
        "not json": "{",
        "[]": "[]",
        "missing field": json.dumps({key: fields[key] for key in fields if key != "events"}),
        "extra field": json.dumps(fields | {"loophole": 1}),
        "bad event": json.dumps(fields | {"events": [["gaussian", "much", 1]]}),
    }[damage]
    path = tmp_path / "card.json"
    path.write_text(content)
    with pytest.raises(InputError, match=r"card\.json") as caught:
        Card.from_json(path)
    assert "\n" not in str(caught.value)
