"""A privacy card in words: what its text and its HTML form both say, and the text form."""

import math
import textwrap
from typing import TYPE_CHECKING, Any

from l2p.privacy.card.statements import STATED, UNCHECKED, on_card
from l2p.privacy.card.unit import described, in_words, is_row
from l2p.privacy.cost import sampling
from l2p.privacy.events import Adjacency
from l2p.privacy.rounded import in_digits, rounded

if TYPE_CHECKING:
    from l2p.privacy.card.card import Card

_NEIGHBOURS = {
    Adjacency.ZERO_OUT: "Two tables are neighbours if one row of one is replaced by a null row that contributes "
    "nothing in the other. The number of rows N is public.",
    Adjacency.ADD_REMOVE: "Two tables are neighbours if one has a single row more than the other. The N that this "
    "card states was declared public and is not protected.",
    Adjacency.REPLACE_ONE: "Two tables are neighbours if one row of one is replaced by any other row in the other. "
    "The number of rows N is public.",
}
#: The first sentence of a simulation's card.
BANNER = (
    "NOT A PRIVATE RELEASE: the noise came from a user-given seed. Whoever knows the seed can subtract it, so what "
    "follows describes a release with the same settings and protects nobody here."
)
#: The same where a neighbour differs in all rows of one unit.
_UNITS = {
    Adjacency.ZERO_OUT: "Two tables are neighbours if all rows with one value of {name} in one, however many, are null "
    "rows that contribute nothing in the other. The number of lines N is public, null rows and rows that do not count "
    "included; how many count is not.",
    Adjacency.ADD_REMOVE: "Two tables are neighbours if one has all rows with one value of {name} more than the other, "
    "however many. The N that this card states was declared public and is not protected.",
    Adjacency.REPLACE_ONE: "Two tables are neighbours if all rows with one value of {name} in one are as many other "
    "rows, with another value that no other row has, in the other. The number of lines N is public.",
}
#: Title of the sentences that no check of l2p covers.
VOUCHED = "Vouched for by whoever trained the weights, and checked by nobody here"
#: Title of the list of earlier runs.
EARLIER = "Other releases on these rows, in its ledger before it"
_WIDTH = 100


def _at_least(value: float) -> str:
    """Six digits of a guarantee, rounded up."""
    return rounded(value, up=True, digits=6)


def subject(card: "Card") -> str:
    """The model, and its target and table as far as the card names them."""
    table = card.table or {"name": None, "target": None}
    target = "" if table["target"] is None else f" of {table['target']!r}"
    source = "" if table["name"] is None else f" from the table {table['name']!r}"
    return f"A model ({card.model}){target}{source}."


def headline(card: "Card") -> str:
    """The guarantee in one sentence."""
    return (
        f"(epsilon = {_at_least(card.epsilon)}, delta = {_at_least(card.delta)})-differential privacy for "
        f"{in_words(card.unit, card.num_rows)}, under {card.adjacency} adjacency."
    )


def meaning(card: "Card") -> list[str]:
    """Sentences on what the headline means: neighbours, odds, groups."""
    # Beyond this the factor is too large to mean anything.
    factor = f" = {rounded(math.exp(card.epsilon), up=True, digits=4)}" if card.epsilon < 7 else ""
    return [
        _neighbours(card),
        "Whatever is released, the odds of seeing it differ between neighbours by a factor of at most "
        f"e^epsilon{factor}{_but_for(card.delta)}.",
        _several_rows(card.unit, card.delta),
    ]


def _neighbours(card: "Card") -> str:
    adjacency = Adjacency(card.adjacency)
    return _NEIGHBOURS[adjacency] if is_row(card.unit) else _UNITS[adjacency].format(name=repr(card.unit["name"]))


def _but_for(delta: float) -> str:
    return f", but for a probability of {_at_least(delta)}" if delta else ""


def _several_rows(unit: dict[str, Any], delta: float) -> str:
    if is_row(unit):
        growth = ", at delta times k e^((k - 1) epsilon)" if delta else ""
        return f"Somebody who appears in k rows has k epsilon{growth}."
    return (
        f"Whoever has one value of {unit['name']!r} has this guarantee, with any number of rows: of each value count "
        f"at most {unit['max_rows']} ({unit['how']})."
    )


def grounds(card: "Card") -> dict[str, str]:
    """The grounds of the guarantee, by label."""
    order = "" if card.order is None else f" at order {card.order:g}"
    mu = "" if card.mu is None else f"; mu = {_at_least(card.mu)} of Gaussian DP, at every delta at once"
    certified = f"epsilon {_at_least(card.epsilon_certified)} of {_at_least(card.epsilon)}"
    return {
        "Certified": f"{certified}, by {card.accountant}{order}{mu}",
        "Theorem": card.theorem,
        "Protects": described(card.unit),
        "Trust": trust(card),
        "Composition": composition(card),
        "Noise": "depended on earlier answers" if card.adaptive_noise else "fixed in advance",
        "Sampler": str(sampling.from_json(card.sampler)),
        "Model": f"{card.model}, {_columns(card)}",
        "Steps": f"{card.steps} of at most {card.max_steps}; stopped by: {card.stop_reason}",
        "Learned": card.learned,
        "Randomness": card.randomness,
        "Seed": card.seed_policy,
        "Arithmetic": card.float_mode,
    }


def trust(card: "Card") -> str:
    """The trust model: who sees rows, and whom the guarantee is against."""
    holder = "whoever runs l2p" if card.engine is None else "whoever trained the weights"
    return (
        f"central: {holder} holds the rows and is trusted with them, and so are the machines that they lie on. The "
        "guarantee is against everybody else, who sees what the run released and may know anything besides"
    )


def earlier_runs(card: "Card") -> list[str]:
    """The other releases on these rows that the run's ledger counts before it, one sentence each."""
    runs = (card.composition or {}).get("earlier") or []
    return [
        f"{run['reserved_on']}: {run['run']}; counts for {run['counted']:.6g}"
        + (f" at delta {run['delta']:g}" if run["delta"] else "")
        + (
            f", reservation {run['reservation']}."
            if run["state"] == "settled"
            else ", which it holds and may yet spend."
        )
        for run in runs
    ]


def provenance(card: "Card") -> dict[str, str]:
    """Protector, public rows, noise and software of the run, by label."""
    return {
        "Protector": _protector(card.protector),
        **({} if card.public is None else {"Public rows": "{num_rows}, sha256 {sha256}".format(**card.public)}),
        "Made with": ", ".join(f"{name} {version}" for name, version in card.versions.items()),
        "Created": f"{card.created}, card version {card.card_version}",
    }


def _columns(card: "Card") -> str:
    if card.engine is None:
        return f"{card.num_features} features"
    return f"{card.num_features + 1} coefficients, a constant column's among them"


def vouched(card: "Card") -> list[str]:
    """What whoever trained the weights vouches for; nothing where l2p trained them."""
    run = card.engine_run
    return [] if run is None else run.vouched


def span(ends: list[float]) -> str:
    """A smallest and a largest value.

    >>> span([1.0, 1.0]), span([0.5, 90.123456])
    ('1', '0.5 to 90.12')
    """
    low, high = map(in_digits, ends)
    return low if low == high else f"{low} to {high}"


def render(card: "Card") -> str:
    """The text form."""
    sections = [] if card.private_release else [_paragraph("", BANNER)]
    sections.append(_paragraph("", subject(card)))
    sections.append(_paragraph("", " ".join([headline(card), *meaning(card)])))
    sections.append(_labelled(grounds(card) | provenance(card)))
    sections.append(f"{STATED} ({UNCHECKED})\n{_labelled(on_card(card.statements))}")
    sections.append("\n".join(["Queries answered", *(f"- {mechanism(kind)}" for kind in card.mechanisms)]))
    for title, sentences in (
        (VOUCHED, vouched(card)),
        (EARLIER, earlier_runs(card)),
        ("What was not private", card.not_private),
        ("Warnings", card.warnings),
    ):
        if sentences:
            sections.append("\n".join([title, *(_paragraph("- ", text) for text in sentences)]))
    return "\n\n".join(["PRIVACY CARD", *sections]) + "\n"


def _labelled(facts: dict[str, str]) -> str:
    return "\n".join(_paragraph(f"{label:<14}", text) for label, text in facts.items())


def composition(card: "Card") -> str:
    """What other runs on these rows add."""
    entry = card.composition
    if entry is None:
        return "this run alone: whatever other runs on these rows spend adds to it"
    spent, counted, limit = (f"{entry[name]:g}" for name in ("spent_before", "counted", "limit"))
    return (
        f"ledger of {entry['data_set']} (unit {entry['unit']}): {spent} before this run, {counted} for it, {limit} "
        f"allowed; reservation {entry['reservation']}. Runs outside this ledger add to it"
    )


def _protector(protector: dict[str, Any]) -> str:
    sources, trained = protector["sources"], protector["range"]
    parts = [protector["name"]]
    if protector["sha256"] is not None:
        parts.append(f"sha256 {protector['sha256']}")
    if sources is not None:
        # Named once on a card: with what was not private.
        count = f"{len(sources)} public source{'s' if len(sources) > 1 else ''}, named with what was not private"
        parts.append(f"made from {count if sources else 'no public source'}")
    if trained is not None:
        parts.append("made for " + ", ".join(f"{name} {span(ends)}" for name, ends in trained.items()))
    return "; ".join(parts)


def mechanism(kind: dict[str, Any]) -> str:
    """One kind of query that was answered: how often, and with what noise."""
    multiplier, clip_norm = span(kind["noise_multiplier"]), span(kind["clip_norm"])
    return (
        f"{kind['query']}: {kind['count']} times, {kind['mechanism']} noise, noise multiplier {multiplier}, clip "
        f"norm {clip_norm}"
    )


def _paragraph(label: str, text: str) -> str:
    return textwrap.fill(text, _WIDTH, initial_indent=label, subsequent_indent=" " * len(label), break_on_hyphens=False)
