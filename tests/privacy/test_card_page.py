"""The card as a page: well-formed, without markup of others, and legible on any screen."""

import re

import pytest

from l2p.privacy.card import html, plots
from tests.privacy.cards import FIELDS, LEDGER, SIMULATION, TABLE, Page, card, every_card, rows

HOSTILE = "</title></main><script src=\"http://evil.example\">alert(1)</script>&<b onload='x'>"


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
    assert not re.search(r"\.cells \{[^}]*min-width", style)
    assert "overflow-x" not in style
    assert re.search(r"@media \(min-width: \d+rem\) \{ \.cells :is\(th, td\) \{ overflow-wrap: normal", style)
