"""Checks whether a privacy card is one that its protector could have written.

Pricing a card again only shows that its events cost what it says. Here its fields are compared with each other and with
the protector's sampler, mechanisms and adaptivity, if the protector is known (by the SHA-256 of a shipped checkpoint,
or as a hand-designed method by its name). Noise that does not depend on answers is the same on every table, so a
rehearsal on null rows tells what it must have been. All other fields are written again by the code that writes a run's
(`l2p.rewritten`).

No check can show that a run took place: a card is not signed, and somebody who edits all its fields consistently is not
found out. Neighbours, the unit and N change nothing about the queries of a method whose noise does not depend on them,
so that a card in which one of these was edited may hold, too.
"""

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax.numpy as jnp

from l2p.checkpoints.lookup import NamedProtector, drawing, recognise
from l2p.checkpoints.method_name import MethodName
from l2p.checkpoints.set_up import Kind, asked, kinds_asked, set_up
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
from l2p.protector import Protector
from l2p.public_facts import Setup
from l2p.queries.bins import BinCounts
from l2p.rewritten import bought_bounds, invented, is_choice, unlike, without_schema
from l2p.schema import Schema
from l2p.task import Rows

#: Relative difference allowed between a noise multiplier and that of a rehearsal: machines differ in the last bits, and
#: an envelope is searched to a few parts in a thousand.
TOLERANCE, ENVELOPE_TOLERANCE = 1e-3, 1e-2
#: Relative tolerance between two fields that hold the same number.
_SAME = 1e-6
#: Noise and cells of the rehearsals that tell whether clip norms depend on answers.
_REHEARSALS = (0, 0.0), (1, 0.0), (2, 1.0)
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


def verify(card: Card, schema: Schema | None = None) -> Findings:
    """Compare a card with itself, with its protector, and with the schema that was kept beside it."""
    found = Findings()
    if not card.private_release:
        found.remarks.append("It says that it is of a simulation, whose noise somebody may know: it protects nobody.")
    found.problems += _contradictions(card)
    if is_choice(card):
        found.remarks.append(
            "It is of a choice among several runs, of which it lists one: that all together keep to its guarantee, "
            "and the share that held this one, is what the card says and nobody checked."
        )
        _compare(card, _Run(), schema, found)
        return found
    _check_theorem(card, found)
    _check_order(card, found)
    try:
        run = _check_protector(card, found)
    except InputError as error:
        found.problems.append(f"cannot have been left by {card.protector['name']}: {str(error).rstrip('.')}")
        return found
    _compare(card, run, schema, found)
    return found


class _Run(NamedTuple):
    """What a card's protector says of its run: the warnings of its setup, and every answered query; None if unknown."""

    warnings: Sequence[str] = ()
    kinds: Sequence[Kind] | None = None


def _compare(card: Card, run: _Run, schema: Schema | None, found: Findings) -> None:
    """Add what a run like it would have written otherwise."""
    filter = card.filter()
    if found.problems or not filter.spent(card.answered()) <= filter.limit:
        return
    differences = list(unlike(card, card.adaptive_noise, run.warnings, run.kinds))
    if schema is not None:
        differences += without_schema(card, schema, bought_bounds(card))
    _blame(card, differences, found)


def _blame(card: Card, differences: Sequence[str], found: Findings) -> None:
    """Add differences from what this version does: problems, unless another version made the card."""
    made = card.versions.get("l2p", "unknown")
    if made == versions()["l2p"]:
        found.problems += differences
    else:  # how a method sets itself up, what it asks and how that is worded may change between versions
        found.remarks += [f"It is of l2p {made}, and by this version it {one}." for one in differences]


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
    yield from invented(card)


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
    elif card.versions.get("l2p") != versions()["l2p"]:
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


def _check_protector(card: Card, found: Findings) -> _Run:
    name, sha256 = card.protector["name"], card.protector["sha256"]
    named = recognise(name, sha256, card.budget, card.model, card.accountant, card.num_rows)
    if named is None:
        why = "it has no file" if sha256 is None else "no checkpoint of its SHA-256 ships with this version"
        found.remarks.append(
            f"Protector {name} is not known here ({why}): that it has this sampler and these mechanisms, and whether "
            "its noise depended on answers, is what the card says and nobody checked."
        )
        return _Run()
    found.known_by = "name" if sha256 is None else "SHA-256"
    if any(f"{name} runs" in warning for warning in card.warnings):
        sampler = sampling.from_json(card.sampler)
        found.remarks.append(f"{name} ran instead of another protector, with that one's batches: {sampler}.")
        named = drawing(sampler, named)
    settings = _settings(card, named)
    found.problems += _misfits(card, named)
    if sha256 is not None and not MethodName.parse(name).tuned:  # as the file has them
        found.problems += settings
    if found.problems:
        return _Run()
    differences, run = _rehearsal(card, named, found)
    _blame(card, [*settings, *differences], found)
    return run


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
    if card.adaptive_noise and not protector.adaptive_noise:
        found.append(f"says that noise depended on earlier answers, but that of {named.name} is fixed in advance")
    bought = {"gaussian"} if bought_bounds(card) else set()
    if foreign := sorted({query.mechanism for query in card.answered()} - set(protector.mechanisms) - bought):
        found.append(f"holds answers with {foreign[0]} noise, but {named.name} asks for {protector.mechanisms[0]}")
    made = {"sources": None if named.sources is None else list(named.sources), "range": named.range}
    if odd := [key for key, value in made.items() if card.protector[key] != value]:
        found.append(f"says other {odd[0]} of {named.name} than {made[odd[0]]}")
    return found


def _settings(card: Card, named: NamedProtector) -> list[str]:
    """Differences between its batches or number of steps and the protector's."""
    protector, sampler = named.protector, sampling.from_json(card.sampler)
    found = []
    if sampler != protector.sampler:
        found.append(f"has {sampler} where {named.name} has {protector.sampler}")
    if card.max_steps != protector.num_steps:
        found.append(f"allows {card.max_steps} steps where {named.name} takes {protector.num_steps}")
    return found


def _rehearsal(card: Card, named: NamedProtector, found: Findings) -> tuple[list[str], _Run]:
    """Differences between its queries and the protector's, of their noise, too, if that is the same on every table; and
    what is known of its run.

    A card does not say what kind of target a model learned that can learn several; it has to agree with one.
    """
    first: tuple[Findings, list[str], _Run] | None = None
    for kind in find_model(card.model).kinds:
        findings = Findings()
        differences, run = _rehearsed_as(card, named, kind, findings)
        if first is None or not differences:
            first = findings, differences, run
        if not differences:
            break
    assert first is not None  # every model has a kind
    findings, differences, run = first
    found.compared, found.rehearsed = findings.compared, findings.rehearsed
    found.remarks += findings.remarks
    return differences, run


def _rehearsed_as(card: Card, named: NamedProtector, kind: str, found: Findings) -> tuple[list[str], _Run]:
    """The same where the model learned a target of this kind."""
    model, name = find_model(card.model), named.name
    lines = max(getattr(named.protector.sampler, "num_rows", 1), 0 if card.public is None else card.public["num_rows"])
    if max(lines * card.num_features, model.num_params(card.num_features)) > MAX_NUMBERS:
        found.remarks.append("Its table is too large to rehearse the run on this machine.")
        return [], _Run()
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
            return [], _Run()
    ran, filter, setup, warnings = set_up(
        named, card.budget, model, card.num_features, card.num_rows, None, kind, rows_per_unit, share
    )
    if ran.name != name:
        return [f"has a budget and size at which {ran.name} runs instead of {name}"], _Run()
    at_start, per_step = kinds_asked(ran.protector, setup, card.num_features, public)
    kinds = _kinds(card, [*[(BinCounts.name, BinCounts.mechanism)] * len(before), *at_start], per_step)
    if kinds is None:
        return [f"was granted other queries than {name} asks"], _Run(warnings)
    found.compared = True
    if ran.protector.adaptive_noise or public is not None:
        return [], _Run(warnings, kinds)
    return _other_noise(card, ran, filter, setup, len(before), found), _Run(warnings, kinds)


def _kinds(card: Card, at_start: Sequence[Kind], per_step: Sequence[Kind]) -> list[Kind] | None:
    """Every answered query, where `init` and each step ask these; None if others were granted."""
    kinds: list[Kind] = []
    steps = _by_step(card.answered())
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
    card: Card, ran: NamedProtector, filter: Filter, setup: Setup, num_bought: int, found: Findings
) -> list[str]:
    """Differences between noise and clip norms on the card and those on every table."""
    if isinstance(filter, EnvelopeFilter):
        found.rehearsed = _alike(decode_events(card.envelope or []), filter.envelope, ENVELOPE_TOLERANCE)
    else:
        trace = asked(ran.protector, setup, card.num_features)
        found.rehearsed = _alike(card.answered()[num_bought:], trace, TOLERANCE)
    if not found.rehearsed:
        return [f"holds other noise than {ran.name} adds at this budget and size, on any table"]
    if other := _other_bounds(card, ran.protector, setup):
        return [f"bounds a row's contribution to {other} differently than {ran.name} does for {card.num_rows} rows"]
    return []


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


def _other_bounds(card: Card, protector: Protector, setup: Setup) -> str | None:
    """A query whose clip norms do not depend on answers, and are others on the card; None if there is none.

    They depend on no answer if they are the same whatever is answered: here with three noises, on null rows and others.
    """
    traces = [asked(protector, setup, card.num_features, seed=seed, value=value) for seed, value in _REHEARSALS]
    for kind in card.mechanisms:
        ranges = [_ends([row.clip_norm for row in trace if row.query == kind["query"]]) for trace in traces]
        if any(ends is None or not _close(ends, ranges[0]) for ends in ranges):
            continue
        if not _close(kind["clip_norm"], ranges[0], ENVELOPE_TOLERANCE):
            return kind["query"]
    return None


def _ends(bounds: Sequence[float]) -> tuple[float, float] | None:
    return (min(bounds), max(bounds)) if bounds else None


def _close(ends: Sequence[float], others: Sequence[float] | None, tolerance: float = _SAME) -> bool:
    return others is not None and all(
        math.isclose(end, other, rel_tol=tolerance) for end, other in zip(ends, others, strict=True)
    )


def _equal(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_SAME)
