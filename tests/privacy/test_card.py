"""The privacy card: lossless on disk, checked against its published schema, readable as text, safe as HTML."""

import copy
import dataclasses
import itertools
import json
import math
import re
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from l2p.base.errors import InputError
from l2p.privacy import MECHANISMS, Adjacency, Budget, Filter
from l2p.privacy.accountants import run_names
from l2p.privacy.card import html, learned, plots
from l2p.privacy.card.card import SEED_POLICY, Card, schema
from l2p.privacy.card.events import decode_events, encode_events
from l2p.privacy.card.unit import unit_on_card
from l2p.privacy.cost import convert, sampling
from l2p.privacy.events import Answered

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
HOSTILE = "</title></main><script src=\"http://evil.example\">alert(1)</script>&<b onload='x'>"


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


def words(text):
    return " ".join(text.split())


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
        names == set(published["properties"]) == {*published["required"], "mu", "public", "table"}
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


# Events

numbers = st.floats(min_value=0, exclude_min=True, allow_nan=False, allow_infinity=False)
queries = st.tuples(st.sampled_from(sorted(set(MECHANISMS) - {"none", "sinh_normal"})), numbers) | st.tuples(
    st.just("sinh_normal"), numbers, numbers
)
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


# Broken cards

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


# In words


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


# As a page


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


@every_card
@pytest.mark.parametrize("trace", [None, rows(), rows(1), rows(5000, ("a", "b"))], ids=["none", "3", "1", "long"])
def test_the_page_is_well_formed_and_needs_nothing_from_outside(some_card, trace):
    text = html.render(some_card, trace, limit=1.0)
    page = Page(text)
    assert text.startswith("<!DOCTYPE html>")
    assert page.tags[0] == ("html", {"lang": "en"})
    for outside in ("<script", "http:", "https:", "//", "url(", "@import", "<link", "<img", "src="):
        assert outside not in text
    assert page.count("h1") == page.count("main") == page.count("title") - page.count("svg") == 1
    assert page.count("table") == page.count("caption")
    assert len(page.ids) == len(set(page.ids))
    assert page.count("svg") == (0 if trace is None else 2)
    for attrs in [attrs for tag, attrs in page.tags if tag == "svg"]:
        assert attrs["role"] == "img"
        assert set(attrs["aria-labelledby"].split()) <= set(page.ids)
    assert all(attrs["scope"] in ("row", "col") for tag, attrs in page.tags if tag == "th")
    assert len(text) < 60_000
    assert not re.search(r"\b(nan|inf)\b", text)


def test_the_page_adapts_to_phones_to_paper_and_to_the_dark():
    text = html.render(card(), rows(), limit=1.0)
    for phrase in ('name="viewport"', "@media print", "prefers-color-scheme: dark", "color-scheme: light dark"):
        assert phrase in text
    colours = set(re.findall(r"var\((--\w+)\)", text))
    for theme in re.findall(r":root {(.*?)}", text, re.DOTALL):
        assert colours == set(re.findall(r"(--\w+):", theme))


def test_the_page_says_first_what_it_is():
    page = Page(html.render(card(**SIMULATION)))
    assert page.titles[0] == (
        "h1",
        "(epsilon = 0.1, delta = 1e-08)-differential privacy for one row of N = 30400, under zero_out adjacency.",
    )
    text = html.render(card(**SIMULATION))
    assert text.index("NOT A PRIVATE RELEASE") < text.index("<h1>")
    assert ("p", {"class": "banner", "role": "note"}) in page.tags
    assert not any(attrs.get("class") == "banner" for _, attrs in Page(html.render(card())).tags)


def test_nothing_on_a_card_can_become_markup():
    kinds = [kind | {"query": HOSTILE} for kind in FIELDS["mechanisms"]]
    hostile = card(
        unit={"name": HOSTILE, "max_rows": 2, "how": HOSTILE},
        **dict.fromkeys(("model", "accountant", "theorem", "randomness", "float_mode", "created"), HOSTILE),
        stop_reason=HOSTILE,
        seed_policy=HOSTILE,
        not_private=[HOSTILE],
        warnings=[HOSTILE],
        versions={HOSTILE: HOSTILE},
        protector={"name": HOSTILE, "sha256": HOSTILE, "sources": [HOSTILE], "range": {HOSTILE: [0.0, 1.0]}},
        composition=LEDGER | {"data_set": HOSTILE, "unit": HOSTILE, "reservation": HOSTILE},
        mechanisms=kinds,
        table={"name": HOSTILE, "target": HOSTILE},
    )
    text = html.render(hostile, rows(queries=(HOSTILE,)), limit=1.0)
    assert {tag for tag, _ in Page(text).tags} == {
        tag for tag, _ in Page(html.render(card(table=TABLE), rows(), limit=1.0)).tags
    }
    assert "<script" not in text
    assert "<b " not in text
    assert "&lt;script src=&quot;http://evil.example&quot;&gt;" in text


@pytest.mark.parametrize("form", [Card.to_text, html.render])
def test_both_forms_name_table_and_target_first_and_every_source_once(form):
    sources = [f"set_{number:02}" for number in range(50)]
    sample = card(
        table=TABLE,
        protector=FIELDS["protector"] | {"sources": sources},
        not_private=[f"The protector was made from public data ({', '.join(sources)}), read without limit."],
    )
    text = words(form(sample)).replace("&#x27;", "'")
    assert "A model of 'readmitted' from the table 'ward.csv'." in text.partition("-differential privacy")[0]
    assert all(text.count(source) == 1 for source in sources)
    assert "made from 50 public sources, named with what was not private" in text
    assert "A model of" not in words(form(card()))
    assert "made from no public source" in words(form(card(protector=FIELDS["protector"] | {"sources": []})))


def test_every_query_of_a_run_has_a_colour_of_its_own_and_its_name_within_the_figure():
    names = [f"a query of some length {number}" for number in range(8)]
    drawn = plots.noise(rows(queries=names))
    keys = re.findall(r'class="key (c\d)" x="(\d+)" y="(-?\d+)">([^<]*)<', drawn)
    assert [name for *_, name in keys] == names
    assert len({colour for colour, *_ in keys}) == len(names)
    assert all(int(start) + 8 * len(name) <= 640 for _, start, _, name in keys)
    top = int(re.search(r'viewBox="0 (-?\d+) ', drawn)[1])
    assert all(int(height) - 12 >= top for _, _, height, _ in keys)
    style = html.render(card())
    assert all(f"--{colour}: #" in style and f".key.{colour} " in style for colour, *_ in keys)


def test_the_table_of_queries_shrinks_to_a_phone():
    style = html.render(card()).partition("</style>")[0]
    assert not re.search(r"\.queries \{[^}]*min-width", style)
    assert "overflow-x" not in style
    assert re.search(r"@media \(min-width: \d+rem\) \{ \.queries :is\(th, td\) \{ overflow-wrap: normal", style)


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


def test_figures_need_a_trace_and_a_limit():
    assert Page(html.render(card())).count("figure") == 0
    assert Page(html.render(card(), [], limit=1.0)).count("figure") == 0
    assert Page(html.render(card(), rows())).count("figure") == 1
    assert Page(html.render(card(), rows(), limit=1.0)).count("figure") == 2


# Figures


def test_the_figure_of_spending_stacks_steps_up_to_what_was_spent():
    text = plots.spending(rows(4), limit=2.0)
    assert "50.0000% of the budget was spent after step 4; no step took more than 12.5000%." in text
    bars = re.search(r'class="bar" d="([^"]+)"', text).group(1)
    ends = [(float(low), float(high)) for low, high in re.findall(r",([\d.]+)V([\d.]+)H", bars)]
    assert len(ends) == 4
    assert [high for _, high in ends[:-1]] == [low for low, _ in ends[1:]]
    budget = float(re.search(r'class="budget" d="M\d+,([\d.]+)', text).group(1))
    assert budget == pytest.approx(ends[0][0] - 2 * (ends[0][0] - ends[-1][1]), abs=0.2)


def test_the_figure_of_noise_is_logarithmic_and_keeps_extremes():
    def heights(multipliers):
        trace = [SimpleNamespace(step=i, query="q", noise_multiplier=m, spent=0.0) for i, m in enumerate(multipliers)]
        path = re.search(r'class="line c0" d="([^"]+)"', plots.noise(trace)).group(1)
        return [float(height) for height in re.findall(r",([\d.]+)", path)]

    first, second, third = heights([1.0, 10.0, 100.0])
    assert first - second == pytest.approx(second - third, abs=0.11)
    spike = heights([10.0] * 5000 + [1000.0] + [10.0] * 5000)
    assert len(spike) < 400
    assert min(spike) == heights([10.0, 1000.0])[1]


@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.0])
def test_a_figure_leaves_out_what_has_no_place_on_it(bad):
    trace = [SimpleNamespace(step=1, query="q", noise_multiplier=bad, spent=math.nan)]
    assert plots.noise(trace) == ""
    assert plots.spending(trace, 1.0) == ""
    assert plots.spending(rows(), bad) == ""


@pytest.mark.parametrize("multiplier", [5e-324, 1.0, 1.7e308])
def test_the_figure_of_noise_takes_every_noise(multiplier):
    assert "nan" not in plots.noise([SimpleNamespace(step=1, query="q", noise_multiplier=multiplier, spent=0.0)])


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
