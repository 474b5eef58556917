"""Checks whether a privacy card is one that its protector could have written.

Pricing a card again only shows that its events cost what it says. Here its fields are compared with each other and with
the protector's sampler, mechanisms and adaptivity, if the protector is known (by the SHA-256 of a shipped checkpoint,
or as a hand-designed method by its name). Noise that does not depend on answers is the same on every table, so a
rehearsal on null rows tells what it must have been.

No check can show that a run took place: a card is not signed, and somebody who edits all its fields consistently is not
found out. Neighbours, the unit and N change nothing about the queries of a method whose noise does not depend on them,
so that a card in which one of these was edited may hold, too.
"""

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

import jax.numpy as jnp

from l2p.checkpoints.lookup import NamedProtector, drawing, recognise
from l2p.checkpoints.method_name import MethodName
from l2p.checkpoints.set_up import asked, kinds_asked, set_up
from l2p.errors import InputError
from l2p.models import find_model
from l2p.privacy import sampling
from l2p.privacy.accountants import find, for_runs
from l2p.privacy.card import Card, versions
from l2p.privacy.card.events import decode_events
from l2p.privacy.card.of_run import FLOATS, RANDOMNESS
from l2p.privacy.card.unit import is_row, unit_on_card
from l2p.privacy.envelope import EnvelopeFilter
from l2p.privacy.events import Answered
from l2p.privacy.filter import Filter
from l2p.queries.bins import BinCounts
from l2p.result import answered
from l2p.run import TraceRow
from l2p.task import Rows

#: Relative difference allowed between a noise multiplier and that of a rehearsal: machines differ in the last bits, and
#: an envelope is searched to a few parts in a thousand.
TOLERANCE, ENVELOPE_TOLERANCE = 1e-3, 1e-2
#: Relative tolerance between two fields that hold the same number.
_SAME = 1e-6
#: Largest number of values in a table or a model that is rehearsed.
MAX_NUMBERS = 2**26


@dataclasses.dataclass
class Findings:
    """What the checks found.

    Attributes:
      known_by: "SHA-256" or "name", how its protector was recognised; None if it is not known here.
      compared: whether its queries were compared with those that the protector asks.
      rehearsed: whether their noise was, too, which is the same on every table then.
      problems: ends of sentences that begin with "it"; each shows that the card is not genuine.
      remarks: sentences that a reader should know.
    """

    known_by: str | None = None
    compared: bool = False
    rehearsed: bool = False
    problems: list[str] = dataclasses.field(default_factory=list)
    remarks: list[str] = dataclasses.field(default_factory=list)


def verify(card: Card) -> Findings:
    """Compare a card with itself and with its protector."""
    found = Findings()
    if not card.private_release:
        found.remarks.append("It says that it is of a simulation, whose noise somebody may know: it protects nobody.")
    found.problems += _contradictions(card)
    _check_theorem(card, found)
    _check_order(card, found)
    try:
        _check_protector(card, found)
    except InputError as error:
        found.problems.append(f"cannot have been left by {card.protector['name']}: {str(error).rstrip('.')}")
    return found


def _contradictions(card: Card) -> Iterator[str]:
    """Fields that contradict each other, whatever the protector."""
    if (card.stop_reason == "max_steps") != (card.steps == card.max_steps):
        yield f"stopped by {card.stop_reason} after {card.steps} of {card.max_steps} steps, which cannot both be true"
    trace = card.answered()
    noise: dict[str, list[float]] = defaultdict(list)
    for query in trace:
        noise[query.mechanism].append(query.noise_multiplier)
    listed: dict[str, list[float]] = defaultdict(list)
    for kind in card.mechanisms:
        listed[kind["mechanism"]] += kind["noise_multiplier"]
    for mechanism, multipliers in noise.items():
        ends = min(multipliers), max(multipliers)
        if not all(map(_equal, ends, (min(listed[mechanism]), max(listed[mechanism])))):
            yield f"lists {mechanism} noise other than that of its events"
    steps = _by_step(trace)
    whole = {steps.get(step, ()) for step in range(1, card.steps + 1)}
    if len(whole) > 1:
        yield "was granted different queries in different steps, but a protector asks the same ones in each"
    last = steps.get(card.steps + 1, ())
    if whole and last and (len(last) >= len(next(iter(whole))) or last != next(iter(whole))[: len(last)]):
        yield f"ended after step {card.steps}, but was granted all of step {card.steps + 1} or what no step asks"
    yield from _contradictions_around(card)


def _contradictions_around(card: Card) -> Iterator[str]:
    """The same in what it says of the unit, of where noise came from, and of its ledger."""
    if not is_row(card.unit) and card.unit != unit_on_card(card.unit["name"], card.unit["max_rows"]):
        yield "says otherwise which rows of a unit count than any run does"
    other = not card.private_release  # only what it must not say: versions word what they do say differently
    if card.randomness == RANDOMNESS[other] or card.float_mode == FLOATS[other]:
        yield f"says that it is {'a simulation' if other else 'a release'}, but its noise is that of the other"
    ledger, _, _ = (card.composition or {"unit": ""})["unit"].partition(":")
    if card.composition is not None and ledger == card.accountant and not find(ledger).at_order:
        spent = card.filter().spent(card.answered())
        if card.composition["counted"] < spent * (1.0 - _SAME):
            yield f"counts for {card.composition['counted']!r} in its ledger, where its queries cost {spent!r}"


def _by_step(trace: Sequence[Answered]) -> dict[int, tuple[str, ...]]:
    """Mechanisms of the queries granted in each step, in order."""
    steps: dict[int, tuple[str, ...]] = defaultdict(tuple)
    for query in trace:
        steps[query.step] += (query.mechanism,)
    return dict(steps)


def _check_theorem(card: Card, found: Findings) -> None:
    ours = find(card.accountant).theorem
    if card.theorem == ours:
        return
    other = next((one.name for one in for_runs() if one.theorem == card.theorem), None)
    if other is not None:
        found.problems.append(f"names accountant {card.accountant}, but the theorem of {other}")
    else:
        found.remarks.append(f"This version words the theorem differently, and checked this one: {ours}")


def _check_order(card: Card, found: Findings) -> None:
    """An order must have been fixed before the run: by the budget, the sampler and the number of steps."""
    if card.envelope is not None:
        return
    order = Filter(card.accountant, card.budget, sampling.from_json(card.sampler), card.max_steps).order
    planned = order if math.isfinite(order) else None
    if card.order == planned or (card.order is not None and planned is not None and _equal(card.order, planned)):
        return
    # If noise was fixed beforehand, any order is valid.
    if card.adaptive_noise or not find(card.accountant).at_order:
        found.problems.append(f"counts at order {card.order}, but {card.accountant} fixes {planned} beforehand")


def _check_protector(card: Card, found: Findings) -> None:
    name, sha256 = card.protector["name"], card.protector["sha256"]
    named = recognise(name, sha256, card.budget, card.model, card.accountant, card.num_rows)
    if named is None:
        why = "it has no file" if sha256 is None else "no checkpoint of its SHA-256 ships with this version"
        found.remarks.append(
            f"Protector {name} is not known here ({why}): that it has this sampler and these mechanisms, and whether "
            "its noise depended on answers, is what the card says and nobody checked."
        )
        return
    found.known_by = "name" if sha256 is None else "SHA-256"
    if any(f"{name} runs:" in warning for warning in card.warnings):
        sampler = sampling.from_json(card.sampler)
        found.remarks.append(f"{name} ran instead of another protector, with that one's batches: {sampler}.")
        named = drawing(sampler, named)
    settings = _settings(card, named)
    found.problems += _misfits(card, named)
    if sha256 is not None and not MethodName.parse(name).tuned:  # as the file has them
        found.problems += settings
    if found.problems:
        return
    differences, made = [*settings, *_rehearsal(card, named, found)], card.versions.get("l2p", "unknown")
    if made == versions()["l2p"]:
        found.problems += differences
    else:  # how a method sets itself up and what a protector asks may change between versions
        found.remarks += [f"It is of l2p {made}, and by this version it {one}." for one in differences]


def _misfits(card: Card, named: NamedProtector) -> list[str]:
    """Fields that no version of this protector would write."""
    protector, sampler, found = named.protector, sampling.from_json(card.sampler), []
    if protector.needs_public and card.public is None:
        found.append(f"names no public rows, without which {named.name} does not run")
    if type(sampler) is not type(protector.sampler):
        found.append(f"says that {sampler} chose its rows, where {named.name} has {protector.sampler}")
    if protector.adaptive_noise and not card.adaptive_noise:
        found.append(
            f"says that noise was fixed in advance, but that of {named.name} depends on earlier answers, so that "
            "only its cap is certified"
        )
    bought = {"gaussian"} if bought_bounds(card) else set()
    if foreign := sorted({query.mechanism for query in card.answered()} - set(protector.mechanisms) - bought):
        found.append(f"holds answers with {foreign[0]} noise, but {named.name} asks for {protector.mechanisms[0]}")
    made = {"sources": None if named.sources is None else list(named.sources), "range": named.range}
    if odd := [key for key, value in made.items() if card.protector[key] != value]:
        found.append(f"says other {odd[0]} of {named.name} than {made[odd[0]]}")
    return found


def bought_bounds(card: Card) -> bool:
    """Whether the run bought bounds first, which is the query before those of its protector."""
    first = card.mechanisms[0] if card.mechanisms else {}
    begun = [query.mechanism for query in card.answered() if query.step == 0]
    return (first.get("query"), first.get("count")) == (BinCounts.name, 1) and begun[:1] == [BinCounts.mechanism]


def _settings(card: Card, named: NamedProtector) -> list[str]:
    """Differences between its batches or number of steps and the protector's."""
    protector, sampler = named.protector, sampling.from_json(card.sampler)
    found = []
    if sampler != protector.sampler:
        found.append(f"has {sampler} where {named.name} has {protector.sampler}")
    if card.max_steps != protector.num_steps:
        found.append(f"allows {card.max_steps} steps where {named.name} takes {protector.num_steps}")
    return found


def _rehearsal(card: Card, named: NamedProtector, found: Findings) -> Iterator[str]:
    """Differences between its queries and the protector's; of their noise, too, if that is the same on every table."""
    model, name = find_model(card.model), named.name
    lines = max(getattr(named.protector.sampler, "num_rows", 1), 0 if card.public is None else card.public["num_rows"])
    if max(lines * card.num_features, model.num_params(card.num_features)) > MAX_NUMBERS:
        found.remarks.append("Its table is too large to rehearse the run on this machine.")
        return
    before = card.answered()[: 1 if bought_bounds(card) else 0]
    share = card.filter().spent(before) / card.filter().limit if before else 0.0
    rows_per_unit = None if is_row(card.unit) else card.unit["max_rows"]
    public = _public_shapes(card) if named.protector.needs_public else None
    if public is not None:
        # Noise may follow from public rows, of which a card holds the digest alone.
        found.remarks.append(
            f"{name} reads public rows, which the card names by their digest and does not hold, so its noise was not "
            "rehearsed."
        )
        if card.envelope is not None:
            return
    ran, filter, setup, _ = set_up(
        named, card.budget, model, card.num_features, card.num_rows, rows_per_unit=rows_per_unit, share=share
    )
    if ran.name != name:
        yield f"has a budget and size at which {ran.name} runs instead of {name}"
        return
    at_start, per_step = kinds_asked(ran.protector, setup, card.num_features, public)
    at_start = (*(query.mechanism for query in before), *at_start)
    steps = _by_step(card.answered())
    begun = steps.get(0, ())
    if begun != (at_start if card.steps else at_start[: len(begun)]) or any(
        steps.get(step, ()) != per_step for step in range(1, card.steps + 1)
    ):
        yield f"was granted other queries than {name} asks"
        return
    found.compared = True
    if ran.protector.adaptive_noise or public is not None:
        return
    if isinstance(filter, EnvelopeFilter):
        found.rehearsed = _alike(decode_events(card.envelope or []), filter.envelope, ENVELOPE_TOLERANCE)
    else:
        trace = asked(ran.protector, setup, card.num_features)
        found.rehearsed = _alike(card.answered()[len(before) :], answered(trace), TOLERANCE)
        if not ran.protector.additive and not _same_bounds(card, trace):
            yield f"bounds a row's contribution differently than {name} does for {card.num_rows} rows"
    if not found.rehearsed:
        yield f"holds other noise than {name} adds at this budget and size, on any table"


def _public_shapes(card: Card) -> Rows:
    """Rows of the number that the card says, without values: enough to find which queries are asked."""
    assert card.public is not None  # or the card was found out before
    lines = card.public["num_rows"]
    return Rows(jnp.zeros((lines, card.num_features)), jnp.zeros(lines), jnp.zeros(lines))


def _alike(events: Sequence[Answered], others: Sequence[Answered], tolerance: float) -> bool:
    return len(events) == len(others) and all(
        (one.step, one.mechanism) == (other.step, other.mechanism)
        and math.isclose(one.noise_multiplier, other.noise_multiplier, rel_tol=tolerance)
        for one, other in zip(events, others, strict=True)
    )


def _same_bounds(card: Card, trace: Sequence[TraceRow]) -> bool:
    bounds = [bound for kind in card.mechanisms for bound in kind["clip_norm"]]
    return not trace or all(
        math.isclose(end(bounds, default=0.0), end(row.clip_norm for row in trace), rel_tol=ENVELOPE_TOLERANCE)
        for end in (min, max)
    )


def _equal(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_SAME)
