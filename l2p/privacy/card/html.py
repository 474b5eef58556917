"""A privacy card as one HTML file: no scripts, no network, readable on a phone, on paper, and by a screen reader."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from l2p.base.drawing import CARD_COLOURS, DARK_CARD_COLOURS, DARK_PAGE, DARK_TEXT, PAGE
from l2p.privacy.card import plots
from l2p.privacy.card import text as wording
from l2p.privacy.card.card import Card
from l2p.privacy.card.plots import Granted
from l2p.privacy.card.statements import STATED, UNCHECKED, on_card
from l2p.privacy.events import MECHANISMS


def _variables(colours: Sequence[str]) -> str:
    return " ".join(f"--c{place}: {colour};" for place, colour in enumerate(colours))


_QUERIES = "".join(
    f".c{place} {{ stroke: var(--c{place}); }} svg .key.c{place} {{ stroke: none; fill: var(--c{place}); }}\n"
    for place in range(len(CARD_COLOURS))
)
_THEMES = f"""
:root {{ color-scheme: light dark; --page: {PAGE}; --text: #1b1f24; --soft: #59636e; --line: #d5dae0; --wash: #f9fafb;
  --stop: #b3201b; --cap: #b3201b; {_variables(CARD_COLOURS)} }}
@media (prefers-color-scheme: dark) {{ :root {{ --page: {DARK_PAGE}; --text: {DARK_TEXT}; --soft: #9ba6b2;
  --line: #363d45; --wash: #191d21; --stop: #a51d18; --cap: #ff8f85; {_variables(DARK_CARD_COLOURS)} }} }}
@media print {{ :root {{ --page: {PAGE}; --text: #000; --soft: #444; --line: #bbb; --wash: {PAGE}; --stop: #b3201b;
  --cap: #b3201b; {_variables(CARD_COLOURS)} color-scheme: light; }} }}
{_QUERIES}"""
#: Lines are dashed, too, for readers without blue cones.
_RULES = """
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); font: 16px/1.55 system-ui, sans-serif;
  overflow-wrap: anywhere; }
main { max-width: 46rem; margin: 0 auto; padding: 2rem 1.1rem 3rem; }
.subject { margin: .3rem 0 0; font-weight: 600; }
.kind { margin: 0; color: var(--soft); letter-spacing: .08em; text-transform: uppercase; font-size: .8rem; }
h1 { margin: .3rem 0 1rem; font-size: clamp(1.4rem, 5vw, 2rem); line-height: 1.25; }
h2 { margin: 2.2rem 0 .6rem; font-size: 1.15rem; }
p { margin: .5rem 0; }
.banner { margin: 1rem 0; padding: .9rem 1.1rem; border-radius: .5rem; background: var(--stop); color: #fff;
  font-weight: 600; }
table { width: 100%; margin: .3rem 0 1.2rem; border-collapse: collapse; font-size: .94rem; }
caption { padding: 0 0 .4rem; color: var(--soft); text-align: left; font-size: .88rem; }
th, td { padding: .4rem .7rem .4rem 0; border-top: 1px solid var(--line); text-align: left; vertical-align: top; }
.facts th { width: 8.5rem; color: var(--soft); font-weight: 500; }
@media (min-width: 34rem) { .cells :is(th, td) { overflow-wrap: normal; } }
@media (max-width: 34rem) { .facts th { width: 8.2rem; }
  .cells:not(.stacked) { font-size: .84rem; } .cells:not(.stacked) :is(td, [scope=col]) { padding-right: .35rem;
    overflow-wrap: normal; }
  .stacked tr:first-of-type, .stacked td:empty { display: none; } .stacked :is(tr, th, td) { display: block; }
  .stacked tr { padding: .4rem 0; border-top: 1px solid var(--line); }
  .stacked :is(th, td) { padding: .1rem 0; border: 0; } .stacked td { padding-left: 8.2rem; text-indent: -8.2rem; }
  .stacked td::before { content: attr(data-title); display: inline-block; width: 8.2rem; color: var(--soft);
    text-indent: 0; vertical-align: top; } }
li { margin: .25rem 0; }
ul { margin: .5rem 0; padding-left: 1.2rem; }
figure { margin: 1.2rem 0; padding: .8rem; border-radius: .5rem; background: var(--wash); break-inside: avoid; }
figcaption { color: var(--soft); font-size: .85rem; }
svg { display: block; width: 100%; height: auto; fill: none; font: 12px system-ui, sans-serif; }
@media (max-width: 34rem) { svg { font-size: 17px; } }
svg text { fill: var(--soft); }
.end { text-anchor: end; } .middle { text-anchor: middle; }
.axis { stroke: var(--soft); } .across { stroke: var(--line); } .budget { stroke: var(--cap); stroke-width: 2; }
.line { stroke-width: 1.5; } .dot { stroke-width: 5; stroke-linecap: round; }
.band { fill: var(--c0); fill-opacity: .22; } .paid { fill: var(--line); } .bar { fill: var(--c0); stroke: var(--c0); }
.line.c1, .line.c5 { stroke-dasharray: 6 3; } .line.c2, .line.c6 { stroke-dasharray: 2 3; }
.line.c3, .line.c7 { stroke-dasharray: 8 3 2 3; }
svg .key { font-weight: 600; }
@media print {
  main { max-width: none; padding: 0; } .banner, .bar { print-color-adjust: exact; }
  section, tr, figure { break-inside: avoid; } }
"""


def render(card: Card, trace: Sequence[Granted] | None = None, limit: float | None = None) -> str:
    """A card for people: one HTML file that needs no script and no network.

    Args:
      card: the card.
      trace: granted queries in order, such as `Result.trace`; adds a figure of the noise.
      limit: the accountant's cap on the trace's `spent`; with `trace`, adds a figure of the spending.
    """
    banner = "" if card.private_release else wording.BANNER
    return page("Privacy card", wording.subject(card), wording.headline(card), sections(card, trace, limit), banner)


def sections(card: Card, trace: Sequence[Granted] | None = None, limit: float | None = None) -> dict[str, str]:
    """What `render` says below the headline, by the titles of its sections; those without content are empty."""
    granted = trace or ()
    figures = plots.noise(granted) + ("" if limit is None else plots.spending(granted, limit))
    return {
        "What it means": "".join(f"<p>{escape(text)}</p>" for text in wording.meaning(card)),
        wording.VOUCHED: bullets(wording.vouched(card)),
        "Warnings": bullets(card.warnings),
        STATED: facts(UNCHECKED.capitalize(), on_card(card.statements)),
        "What was not private": bullets(card.not_private),
        "What it rests on": facts("How the guarantee was reached", wording.grounds(card)),
        wording.EARLIER: bullets(wording.earlier_runs(card)),
        "Queries answered": _queries(card.mechanisms),
        "Noise and spending": figures,
        "Provenance": facts("What the run was made with", wording.provenance(card)),
    }


def page(kind: str, subject: str, headline: str, content: Mapping[str, str], banner: str = "") -> str:
    """A page of sections by their titles, below what kind of page it is, its subject, a banner, and a headline."""
    above = f'<p class="banner" role="note">{escape(banner)}</p>\n' if banner else ""
    below = "".join(
        f"<section>\n<h2>{escape(title)}</h2>\n{text}\n</section>\n" for title, text in content.items() if text
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(kind)}: {escape(subject)}</title>\n<style>{_THEMES}{_RULES}</style>\n</head>\n<body>\n"
        f'<main>\n<header>\n<p class="kind">{escape(kind)}</p>\n<p class="subject">{escape(subject)}</p>\n{above}'
        f"<h1>{escape(headline)}</h1>\n</header>\n{below}</main>\n</body>\n</html>\n"
    )


def bullets(sentences: Iterable[str]) -> str:
    """A list of sentences; empty if there are none."""
    items = "".join(f"<li>{escape(sentence)}</li>\n" for sentence in sentences)
    return f"<ul>\n{items}</ul>" if items else ""


def facts(caption: str, cells: Mapping[str, str]) -> str:
    """A table of facts by their labels."""
    rows = "".join(
        f'<tr><th scope="row">{escape(label)}</th><td>{escape(text)}</td></tr>\n' for label, text in cells.items()
    )
    return f'<table class="facts">\n<caption>{escape(caption)}</caption>\n{rows}</table>'


def _queries(mechanisms: Sequence[Mapping[str, Any]]) -> str:
    if not mechanisms:
        return "<p>None.</p>"
    titles = ("Query", "Times", "Noise", "Noise multiplier", "Clip norm")
    used = dict.fromkeys(kind["mechanism"] for kind in mechanisms)
    legend = bullets(f"Noise multiplier of {mechanism}: {MECHANISMS[mechanism]}." for mechanism in used)
    caption = "Every kind of query that read the rows; card.json lists each one"
    return grid(caption, titles, ([kind["query"], *_cells(kind)] for kind in mechanisms)) + legend


def grid(caption: str, titles: Sequence[str], rows: Iterable[Sequence[str]], stacked: bool = True) -> str:
    """A table of rows of cells, of which the first names its row, below the titles of columns.

    Args:
      stacked: whether a phone shows the cells of a row below each other, for cells that are too wide to stand side by
        side there.
    """
    head = "".join(f'<th scope="col">{escape(title)}</th>' for title in titles)
    lines = "".join(
        f'<tr><th scope="row">{escape(first)}</th>'
        + "".join(
            f'<td data-title="{escape(title)}">{escape(cell)}</td>'
            for title, cell in zip(titles[1:], cells, strict=True)
        )
        + "</tr>\n"
        for first, *cells in rows
    )
    kind = "cells stacked" if stacked else "cells"
    return f'<table class="{kind}">\n<caption>{escape(caption)}</caption>\n<tr>{head}</tr>\n{lines}</table>\n'


def _cells(kind: Mapping[str, Any]) -> tuple[str, ...]:
    spans = (wording.span(kind[name]) for name in ("noise_multiplier", "clip_norm"))
    return (str(kind["count"]), kind["mechanism"], *spans)
