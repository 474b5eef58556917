"""Rehearses the run that a privacy card describes, by the protector that it names, and tells where the two differ.

Which queries a protector asks is the same on every table, and so is noise that does not depend on answers: a table of
null rows tells what it must have been.
"""

import dataclasses
import math
import re
from collections.abc import Sequence

import jax.numpy as jnp

from l2p.base.errors import InputError
from l2p.base.kept_programs import kept_programs
from l2p.checkpoints.named import NamedProtector
from l2p.checkpoints.set_up import Kind, granted_queries, kinds_asked, set_up
from l2p.models import Model, find_model
from l2p.models.custom import CustomLoss
from l2p.oracle.setup import Setup
from l2p.privacy.cap.envelope import EnvelopeFilter
from l2p.privacy.cap.filter import Filter
from l2p.privacy.card.card import Card
from l2p.privacy.card.custom import is_custom
from l2p.privacy.card.events import decode_events
from l2p.privacy.card.unit import is_row
from l2p.privacy.events import Answered
from l2p.queries.bins import BinCounts
from l2p.release.contradictions import SAME, by_step
from l2p.release.rewritten import bought_bounds, is_of_loop
from l2p.run.protector import Protector
from l2p.task.rows import Rows

#: Relative difference allowed between a noise multiplier and that of a rehearsal: machines differ in the last bits, and
#: an envelope is searched to a few parts in a thousand.
TOLERANCE, ENVELOPE_TOLERANCE = 1e-3, 1e-2
#: Noise and cells of the rehearsals that tell whether clip norms depend on answers.
_REHEARSALS = (0, 0.0), (1, 0.0), (2, 1.0)
#: Largest number of values in a table or a model that is rehearsed.
MAX_NUMBERS = 2**26


@dataclasses.dataclass(frozen=True)
class Rehearsal:
    """Outcome of a rehearsal of the run of a card.

    Attributes:
      differences: ends of sentences that begin with "it".
      warnings: of the protector's setup.
      kinds: of every answered query; None if unknown.
      compared: whether its queries were compared with those that the protector asks.
      has_noise: True if their noise is the one that it is on every table.
      remark: a sentence on what could not be rehearsed, if anything.
    """

    differences: Sequence[str] = ()
    warnings: Sequence[str] = ()
    kinds: Sequence[Kind] | None = None
    compared: bool = False
    has_noise: bool = False
    remark: str | None = None


def model_of(card: Card) -> Model | None:
    """The model that a card names; one of its sizes for a user's loss, and None for a user's model that is not here.

    Raises:
      InputError: no model has this name, and its protector comes from a checkpoint, which trains no user's model; or no
        user's loss.
    """
    if is_custom(card.model):
        size = card.model.partition(":")[2]
        if not re.fullmatch("[1-9][0-9]{0,9}", size):
            raise InputError(f"model {card.model[:60]!r} names no number of parameters, which every run's card does.")
        return CustomLoss.stand_in(int(size), card.num_features)
    try:
        return find_model(card.model)
    except InputError:
        if card.protector["sha256"] is not None:
            raise
        return None


@kept_programs()
def rehearse(card: Card, named: NamedProtector, model: Model) -> Rehearsal:
    """The card's queries beside the protector's, with their noise, if that is the same on every table.

    A card does not say what kind of target a model learned that can learn several; it has to agree with one.

    Raises:
      InputError: the protector cannot be set up as the card says.
    """
    rehearsals = []
    for kind in model.kinds:
        rehearsals.append(_rehearsed_as(card, named, model, kind))
        if not rehearsals[-1].differences:
            return rehearsals[-1]
    return rehearsals[0]


def _rehearsed_as(card: Card, named: NamedProtector, model: Model, kind: str) -> Rehearsal:
    """`rehearse` for a model that learned a target of this kind."""
    name = named.name
    num_lines = max(
        getattr(named.protector.sampler, "num_rows", 1), 0 if card.public is None else card.public["num_rows"]
    )
    if max(num_lines * card.num_features, model.num_params(card.num_features)) > MAX_NUMBERS:
        return Rehearsal(remark="Its table is too large to rehearse the run on this machine.")
    before = card.answered()[: 1 if bought_bounds(card) else 0]
    share = card.filter().spent(before) / card.filter().limit if before else 0.0
    rows_per_unit = None if is_row(card.unit) else card.unit["max_rows"]
    public, remark = None, None
    if named.protector.needs_public:
        # Noise may follow from public rows, of which a card holds the digest alone.
        public = _public_shapes(card)
        remark = (
            f"{name} reads public rows, which the card names by their digest and does not hold, so its noise was not "
            "rehearsed."
        )
        if card.envelope is not None:
            return Rehearsal(remark=remark)
    ran, filter, setup, warnings = set_up(
        named, card.budget, model, card.num_features, card.num_rows, None, kind, rows_per_unit, share
    )
    if ran.name != name:
        difference = f"has a budget and size at which {ran.name} runs instead of {name}"
        return Rehearsal([difference], remark=remark)
    at_start, per_step = kinds_asked(ran.protector, setup, card.num_features, public)
    kinds = _kinds(card, [*[(BinCounts.name, BinCounts.mechanism)] * len(before), *at_start], per_step)
    if kinds is None:
        return Rehearsal([f"was granted other queries than {name} asks"], warnings, remark=remark)
    rehearsal = Rehearsal((), warnings, kinds, compared=True, remark=remark)
    if ran.protector.adaptive_noise or public is not None:
        return rehearsal
    differences, has_noise = _other_noise(card, ran, filter, setup, len(before))
    return dataclasses.replace(rehearsal, differences=differences, has_noise=has_noise)


def _kinds(card: Card, at_start: Sequence[Kind], per_step: Sequence[Kind]) -> list[Kind] | None:
    """Every answered query, where `init` and each step ask these; None if others were granted."""
    kinds: list[Kind] = []
    steps = by_step(card.answered())
    for step in sorted({*steps, *range(0 if card.steps else 1, card.steps + 1)}):
        granted, asks = steps.get(step, ()), per_step if step else at_start
        is_whole = step <= card.steps and (step > 0 or card.steps > 0)
        if granted != tuple(mechanism for _, mechanism in asks[: len(granted)]) or (
            is_whole and len(granted) != len(asks)
        ):
            return None
        kinds += asks[: len(granted)]
    return kinds


def _other_noise(
    card: Card, ran: NamedProtector, filter: Filter, setup: Setup, num_purchased: int
) -> tuple[list[str], bool]:
    """Differences between noise and clip norms on the card and those on every table, and whether noise is the same."""
    if isinstance(filter, EnvelopeFilter):
        same = _alike(decode_events(card.envelope or []), filter.envelope, ENVELOPE_TOLERANCE)
    else:
        trace = granted_queries(ran.protector, setup, card.num_features)
        trace = trace[: card.steps] if is_of_loop(card) else trace  # which asks for one answer in each
        same = _alike(card.answered()[num_purchased:], trace, TOLERANCE)
    if not same:
        return [f"holds other noise than {ran.name} adds at this budget and size, on any table"], False
    if query := _other_bounds(card, ran.protector, setup):
        difference = f"bounds a row's contribution to {query} differently than {ran.name} does for {card.num_rows} rows"
        return [difference], True
    return [], True


def _public_shapes(card: Card) -> Rows:
    """Rows of the number that the card says, without values: enough to find which queries are asked."""
    assert card.public is not None  # else `verify` ended before
    num_rows = card.public["num_rows"]
    return Rows(jnp.zeros((num_rows, card.num_features)), jnp.zeros(num_rows), jnp.zeros(num_rows))


def _alike(events: Sequence[Answered], expected_events: Sequence[Answered], tolerance: float) -> bool:
    return len(events) == len(expected_events) and all(
        (event.step, event.mechanism) == (expected.step, expected.mechanism)
        and math.isclose(event.noise_multiplier, expected.noise_multiplier, rel_tol=tolerance)
        for event, expected in zip(events, expected_events, strict=True)
    )


def _other_bounds(card: Card, protector: Protector, setup: Setup) -> str | None:
    """A query whose clip norms do not depend on answers, and are others on the card; None if there is none.

    They depend on no answer if they are the same whatever is answered: here with three noises, on null rows and others.
    """
    traces = [
        granted_queries(protector, setup, card.num_features, seed=seed, value=value) for seed, value in _REHEARSALS
    ]
    # Of an engine's passes the bound is all that a declaration says: an edited one would hold for less noise.
    tolerance = ENVELOPE_TOLERANCE if card.engine is None else SAME
    for kind in card.mechanisms:
        ranges = [_ends([row.clip_norm for row in trace if row.query == kind["query"]]) for trace in traces]
        if any(ends is None or not _close(ends, ranges[0]) for ends in ranges):
            continue
        if not _close(kind["clip_norm"], ranges[0], tolerance):
            return kind["query"]
    return None


def _ends(bounds: Sequence[float]) -> tuple[float, float] | None:
    return (min(bounds), max(bounds)) if bounds else None


def _close(ends: Sequence[float], expected: Sequence[float] | None, tolerance: float = SAME) -> bool:
    return expected is not None and all(
        math.isclose(end, expected_end, rel_tol=tolerance) for end, expected_end in zip(ends, expected, strict=True)
    )
