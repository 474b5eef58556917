"""Writes a card again from what it names, by the code that writes a run's, and tells where the two differ."""

import dataclasses
import math
import re
from collections.abc import Iterator, Sequence

from l2p.base.errors import InputError
from l2p.checkpoints.set_up import Kind
from l2p.privacy.accountants import find
from l2p.privacy.cap.filter import Filter
from l2p.privacy.card.card import Card
from l2p.privacy.card.custom import FLOAT32, FLOAT32_SUMS
from l2p.privacy.card.learned import IDLE, NO_STEP, NOISE, NOTHING, SENTENCES, SIGNAL
from l2p.privacy.card.of_run import SHARE, card_of_run
from l2p.privacy.ledger.ledger import AMOUNTS
from l2p.queries import BinCounts
from l2p.release.learned import GRADIENTS
from l2p.release.result import mechanisms
from l2p.tables.schema import Schema
from l2p.tables.schema.rows import public_statements

#: Relative tolerance between two fields that hold the same number; another machine composes losses on a grid otherwise.
_SAME, _SAME_ENVELOPE = 1e-6, 1e-3
_RESERVATION = re.compile("[0-9a-f]{12}")


def is_choice(card: Card) -> bool:
    """True if its guarantee is that of a choice among several runs, of which it lists one."""
    return SHARE in card.theorem


def is_of_loop(card: Card) -> bool:
    """True if its steps were those of a loop of its user's own."""
    return card.float_mode == FLOAT32


def bought_bounds(card: Card) -> bool:
    """True if the run bought bounds first, which is the query before those of its protector."""
    first = card.mechanisms[0] if card.mechanisms else {}
    begun = [query.mechanism for query in card.answered() if query.step == 0]
    return (first.get("query"), first.get("count")) == (BinCounts.name, 1) and begun[:1] == [BinCounts.mechanism]


def unlike(card: Card, adaptive: bool, warnings: Sequence[str], kinds: Sequence[Kind] | None) -> Iterator[str]:
    """Ends of sentences that begin with "it", on fields that a run like it would have written otherwise.

    Args:
      card: what is checked.
      adaptive: whether the noise of its protector depends on answers; as the card says where that is not known.
      warnings: those of its setup.
      kinds: of every answered query, in order; None where its protector is not known.
    """
    trace = [
        dataclasses.replace(query, query=name, clip_norm=math.nan)
        for query, (name, _) in zip(card.answered(), kinds or [("", "")] * len(card.answered()), strict=True)
    ]
    num_own = len(trace) - bought_bounds(card)
    learned = NOTHING if not num_own else NO_STEP if card.steps == 0 < card.max_steps else None
    written = card_of_run(
        card.budget,
        card.filter(),
        card.answered(),
        certified=card.filter().certify(card.answered(), adaptive),
        releases=card.private_release,
        adaptive_noise=adaptive,
        warnings=[*card.budget.warnings(), *warnings],
        learned=learned or card.learned,
        unit=card.unit,
        num_rows=card.num_rows,
        num_features=card.num_features,
        model=card.model,
        in_loop=is_of_loop(card),
        in_float32=card.float_mode == FLOAT32_SUMS,
        accountant=card.accountant,
        steps=card.steps,
        max_steps=card.max_steps,
        stop_reason=card.stop_reason,
        mechanisms=mechanisms(trace),
        public=card.public,
        engine=card.engine,
        protector=card.protector,
        composition=card.composition,
    )
    yield from _other_numbers(card, written)
    yield from _other_words(card, written)
    if kinds is not None:
        yield from _other_queries(card, written)
    yield from _learned_otherwise(card, learned, kinds)


def _other_numbers(card: Card, written: Card) -> Iterator[str]:
    if is_choice(card):  # which is certified for all runs, and lists one
        return
    tolerance = _SAME if card.envelope is None else _SAME_ENVELOPE
    if not math.isclose(card.epsilon_certified, written.epsilon_certified, rel_tol=tolerance):
        yield f"certifies epsilon {card.epsilon_certified!r} for what its events cost {written.epsilon_certified!r}"
    if (card.mu is None) is not (written.mu is None) or not math.isclose(
        card.mu or 0.0, written.mu or 0.0, rel_tol=tolerance
    ):
        yield f"says that mu is {card.mu!r}, where a run like it has {written.mu!r}"


def _other_words(card: Card, written: Card) -> Iterator[str]:
    for field in ("randomness", "float_mode", "seed_policy"):
        if getattr(card, field) != getattr(written, field):
            yield f"words {field} as no run does"
    if is_choice(card):
        if not card.theorem.endswith(SHARE + written.theorem) or not card.theorem.startswith(str(card.budget)):
            yield "states a choice among several runs as none does"
    elif card.theorem != written.theorem:
        yield f"words the theorem of {card.accountant} as no run does"
    for field in ("not_private", "warnings"):
        if lacking := [sentence for sentence in getattr(written, field) if sentence not in getattr(card, field)]:
            yield f"leaves out of {field} what a run like it says: {lacking[0].rstrip('.')}"


def _other_queries(card: Card, written: Card) -> Iterator[str]:
    """Queries by name, how often each was answered, and with what noise; clip norms are compared elsewhere."""
    listed = [(kind["query"], kind["mechanism"], kind["count"]) for kind in card.mechanisms]
    answered = [(kind["query"], kind["mechanism"], kind["count"]) for kind in written.mechanisms]
    if listed != answered:
        odd = next((kind for kind in listed if kind not in answered), ("fewer of them",))
        yield f"lists queries that its events were not answers to ({odd[0]})"
        return
    for kind, same in zip(card.mechanisms, written.mechanisms, strict=True):
        ends = zip(kind["noise_multiplier"], same["noise_multiplier"], strict=True)
        if not all(math.isclose(end, expected, rel_tol=_SAME) for end, expected in ends):
            yield f"lists noise of {kind['query']} other than that of its events"


def _learned_otherwise(card: Card, learned: str | None, kinds: Sequence[Kind] | None) -> Iterator[str]:
    has_gradients = None if kinds is None else sum(name in GRADIENTS for name, _ in kinds) > 1
    if card.learned not in SENTENCES:
        yield "words what was learned as no run does"
    elif learned is not None and card.learned != learned:
        yield f"says that something may have been learned, where a run like it says: {learned.rstrip('.')}"
    elif learned is None and (
        card.learned in (NOTHING, NO_STEP) or (has_gradients is False and card.learned in (NOISE, SIGNAL))
    ):
        yield "says of what was learned what its events do not show"
    elif card.learned in IDLE and card.learned not in card.warnings:
        yield f"leaves out of warnings what a run like it says: {card.learned.rstrip('.')}"


def without_schema(card: Card, schema: Schema, purchased: bool) -> Iterator[str]:
    """Sentences of a run's schema that its card lacks; with `purchased` bounds, all but the sentence on them."""
    for sentence in public_statements(schema)[1 if purchased else 0 :]:
        if sentence not in card.not_private:
            yield f"leaves out of not_private what a run with the schema beside it says: {sentence.rstrip('.')}"


def invented(card: Card) -> Iterator[str]:
    """Ledger entries on the card that no ledger writes about a run like this one."""
    entry = card.composition
    if entry is None:
        return
    unit = entry["unit"].partition(":")[0]
    if unit not in AMOUNTS or entry["unit"] != f"{unit}: {AMOUNTS[unit]}":
        yield f"stands in a ledger that counts {entry['unit']!r}, which none does"
        return
    if not _RESERVATION.fullmatch(str(entry["reservation"])):
        yield f"has reservation {entry['reservation']!r} in its ledger, which gives none like it"
    earlier = entry.get("earlier")
    if earlier is not None and not math.isclose(
        math.fsum(run["counted"] for run in earlier), entry["spent_before"], rel_tol=_SAME
    ):
        yield "lists earlier runs of its ledger that do not add up to what was spent before it"
    filter, composes = card.filter(), find(unit).composes
    if composes and not is_choice(card) and (not filter.accountant.composes or filter.neighbours is not None):
        yield f"stands in a ledger that adds up {AMOUNTS[unit]}, which takes no run like it"
        return
    try:
        least, exact = _counted(card, unit, filter)
    except InputError:
        yield f"stands in a ledger that adds up {AMOUNTS[unit]}, which has no price for its queries"
        return
    unsettled = any("could not be settled" in warning for warning in card.warnings)
    counted = entry["counted"]
    if counted < least * (1.0 - _SAME) or (exact and not unsettled and counted > least * (1.0 + _SAME)):
        yield f"counts for {counted!r} in its ledger, where its queries cost {least!r}"


def _counted(card: Card, unit: str, filter: Filter) -> tuple[float, bool]:
    """Amount that a run counts for in a ledger's unit; True if it is exact, False if it is the least."""
    if not find(unit).composes:
        return (card.epsilon if is_choice(card) else card.epsilon_certified), True
    if find(unit).at_order or is_choice(card):  # at an order above 1 that only the ledger knows
        return Filter("zcdp", card.budget, filter.sampler).spent(card.answered()), False
    return Filter(unit, card.budget, filter.sampler).spent(card.answered()), True
