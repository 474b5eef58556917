"""The card as a page: well-formed, without markup of others, and legible on any screen."""

import itertools
import re

import numpy as np
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


#: What readers see of linear RGB who lack nothing, or one of the three cones (Machado, Oliveira & Fernandes 2009).
CONES = {
    "all": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "no red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "no blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
TO_XYZ = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]


def linear(colour):
    channels = np.array([int(colour[place : place + 2], 16) for place in (0, 2, 4)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def lab(colour, cones):
    xyz = TO_XYZ @ np.clip(cones @ linear(colour), 0, 1) / [0.9505, 1.0, 1.089]
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("cones", CONES)
def test_every_reader_can_tell_queries_apart_in_light_and_dark_by_colour_or_by_dashes(cones):
    style = html.render(card())
    dashes = {
        name: dash
        for rule, dash in re.findall(r"^(\.line.*?) \{ stroke-dasharray: ([\d ]+);", style.replace("} .", "}\n."), re.M)
        for name in re.findall(r"\.(c\d)", rule)
    }
    assert len(set(dashes.values())) == 3
    for theme in re.findall(r":root {(.*?)}", style, re.DOTALL):
        lines = {
            name: (lab(colour, np.array(CONES[cones])), dashes.get(name))
            for name, colour in re.findall(r"--(c\d): #(\w{6})", theme)
        }
        assert len(lines) == 8
        for (one, dash), (other, other_dash) in itertools.combinations(lines.values(), 2):
            assert np.linalg.norm(one - other) > (20 if dash == other_dash else 10)


def test_names_of_queries_are_read_on_the_ground_of_their_figure():
    for theme in re.findall(r":root {(.*?)}", html.render(card()), re.DOTALL):
        wash = re.search(r"--wash: #(\w{6})", theme)[1]
        for colour in re.findall(r"--c\d: #(\w{6})", theme):
            dark, light = sorted(TO_XYZ[1] @ linear(each) for each in (colour, wash))
            assert (light + 0.05) / (dark + 0.05) >= 4.5  # WCAG 2.2, level AA


def test_the_table_of_queries_shrinks_to_a_phone():
    style = html.render(card()).partition("</style>")[0]
    assert not re.search(r"\.cells \{[^}]*min-width", style)
    assert "overflow-x" not in style
    assert re.search(r"@media \(min-width: \d+rem\) \{ \.cells :is\(th, td\) \{ overflow-wrap: normal", style)
