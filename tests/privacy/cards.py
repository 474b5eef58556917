"""Cards with every kind of field, and their two forms in words."""

import copy
import json
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest
from hypothesis import strategies as st

from l2p.privacy import MECHANISMS
from l2p.privacy.card import learned
from l2p.privacy.card.card import SEED_POLICY, Card
from l2p.privacy.card.unit import unit_on_card
from l2p.privacy.cost import sampling

FIELDS = {
    "epsilon": 0.1,
    "delta": 1e-8,
    "epsilon_certified": 0.09,
    "adjacency": "zero_out",
    "unit": {"name": "row", "max_rows": 1, "how": "every row counts"},
    "num_rows": 30400,
    "num_features": 98,
    "model": "logistic",
    "private_release": True,
    "accountant": "rdp",
    "order": 366.5,
    "theorem": "Renyi filter at one order fixed beforehand.",
    "adaptive_noise": False,
    "sampler": {"name": "full batch"},
    "mechanisms": [
        {
            "query": "clipped_gradient",
            "mechanism": "gaussian",
            "count": 3,
            "clip_norm": [1.0, 2.0],
            "noise_multiplier": [90.1, 120.3],
        },
        {
            "query": "noisy_min",
            "mechanism": "gumbel",
            "count": 1,
            "clip_norm": [1.0, 1.0],
            "noise_multiplier": [40.0, 40.0],
        },
    ],
    "events": [
        {"steps": [0, 0], "queries": [["gumbel", 40.0]]},
        {"steps": [1, 2], "queries": [["gaussian", 90.0999984741211]]},
        {"steps": [3, 3], "queries": [["gaussian", 120.30000305175781]]},
    ],
    "steps": 3,
    "max_steps": 50,
    "stop_reason": "budget",
    "randomness": "a key of 256 bits from the operating system",
    "seed_policy": SEED_POLICY[True],
    "float_mode": "float64 noise and sums on a public grid",
    "not_private": ["The bounds."],
    "protector": {"name": "census", "sha256": "ab" * 32, "sources": ["adult"], "range": {"log_signal": [0.7, 8.7]}},
    "learned": learned.SIGNAL,
    "warnings": [],
    "versions": {"l2p": "0.1.0"},
    "created": "2026-01-01T00:00:00+00:00",
}
TABLE = {"name": "ward.csv", "target": "readmitted"}
LEDGER = {
    "data_set": "hospital",
    "unit": "basic",
    "reservation": 7,
    "spent_before": 0.2,
    "counted": 0.1,
    "limit": 0.5,
    "earlier": [
        {
            "reservation": "ab12",
            "run": "noisygd, epsilon 0.2, delta 1e-08, accountant rdp",
            "state": "settled",
            "counted": 0.2,
            "delta": 0.0,
            "reserved_on": "2025-12-24",
        }
    ],
}
PERSON = unit_on_card("person", 3)
SIMULATION = {"private_release": False, "seed_policy": SEED_POLICY[False]}
NOBODY = {"name": "NoisyGD", "sha256": None, "sources": None, "range": None}
CHANGES = {
    "plain": {},
    "simulation": SIMULATION,
    "ledger": {"composition": LEDGER},
    "nothing asked": {"mechanisms": [], "events": [], "steps": 0, "epsilon_certified": 0.0},
    "no order": {"accountant": "gdp", "order": None},
    "Poisson": {"sampler": sampling.Poisson(0.03).to_json()},
    "fixed size": {"sampler": sampling.FixedSize(1000, 30400).to_json(), "adjacency": "replace_one"},
    "permutation epochs": {"sampler": sampling.PermutationEpochs(1000, 30400).to_json()},
    "add_remove": {"adjacency": "add_remove"},
    "protector unknown": {"protector": NOBODY},
    "warned": {"warnings": ['Beware of <it> & "that".']},
    "refused in the fourth step": {
        "events": [*FIELDS["events"][:2], {"steps": [4, 4], "queries": [["gaussian", 9.0]]}]
    },
}


def card(**changes):
    return Card(**copy.deepcopy(FIELDS | changes))


CARDS = {name: card(**changes) for name, changes in CHANGES.items()}
every_card = pytest.mark.parametrize("some_card", CARDS.values(), ids=CARDS)


def rows(count=3, queries=("clipped_gradient",)):
    """A trace that spends the same in every step."""
    return [
        SimpleNamespace(step=step, query=query, noise_multiplier=50.0 + step, spent=step / count)
        for step in range(1, count + 1)
        for query in queries
    ]


def save(folder, content):
    path = folder / "card.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


# Events

numbers = st.floats(min_value=0, exclude_min=True, allow_nan=False, allow_infinity=False)
queries = st.tuples(st.sampled_from(sorted(set(MECHANISMS) - {"none", "sinh_normal"})), numbers) | st.tuples(
    st.just("sinh_normal"), numbers, numbers
)


class Page(HTMLParser):
    """The tags of a page, with an error where they do not nest."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.titles, self.ids = [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        assert not any(name.startswith("on") for name, _ in attrs)
        self.ids += [value for name, value in attrs if name == "id"]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("h1", "h2", "caption"):
            self.titles.append((self.open[-1], data))

    def count(self, name):
        return sum(tag == name for tag, _ in self.tags)
