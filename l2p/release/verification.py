"""Checks whether a privacy card is one that its protector could have written.

Pricing a card again only shows that its events cost what it says. Here its fields are compared with each other and with
the protector's sampler, mechanisms and adaptivity, if the protector is known (by the SHA-256 of a shipped checkpoint,
or as a hand-designed method by its name). Noise that does not depend on answers is the same on every table, so a
rehearsal on null rows tells what it must have been. All other fields are written again by the code that writes a run's
(`l2p.release.rewritten`).

No check can show that a run took place: a card is not signed, and somebody who edits all its fields consistently is not
found out. Neighbours, the unit and N change nothing about the queries of a method whose noise does not depend on them,
so that a card in which one of these was edited may hold, too.
"""

import dataclasses
import math
from collections.abc import Sequence

from l2p.base.errors import InputError
from l2p.base.versions import versions
from l2p.checkpoints.lookup import recognise
from l2p.checkpoints.method_name import MethodName
from l2p.checkpoints.named import NamedProtector, drawing
from l2p.privacy.accountants import find, for_runs
from l2p.privacy.cap.filter import Filter
from l2p.privacy.card.card import Card
from l2p.privacy.cost import sampling
from l2p.release import engine
from l2p.release.contradictions import contradictions, equal
from l2p.release.rehearsal import Rehearsal, model_of, rehearse
from l2p.release.rewritten import bought_bounds, is_choice, is_of_loop, unlike, without_schema
from l2p.tables.schema import Schema


@dataclasses.dataclass
class Findings:
    """Outcome of the checks of a card.

    Attributes:
      known_by: "SHA-256", "name" or "declaration", how its protector was recognised; None if it is not known here.
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
    findings = Findings()
    if not card.private_release:
        findings.remarks.append(
            "It says that it is of a simulation, whose noise somebody may know: it protects nobody."
        )
    findings.problems += contradictions(card)
    if is_choice(card):
        findings.remarks.append(
            "It is of a choice among several runs, of which it lists one: that all together keep to its guarantee, "
            "and the share that held this one, is what the card says and nobody checked."
        )
        _compare(card, Rehearsal(), schema, findings)
        return findings
    _check_theorem(card, findings)
    _check_order(card, findings)
    try:
        rehearsal = _check_protector(card, findings)
    except InputError as error:
        findings.problems.append(f"cannot have been left by {card.protector['name']}: {str(error).rstrip('.')}")
        return findings
    _compare(card, rehearsal, schema, findings)
    return findings


def _compare(card: Card, rehearsal: Rehearsal, schema: Schema | None, findings: Findings) -> None:
    """Add the fields that a run like it would have written otherwise."""
    filter = card.filter()
    if findings.problems or not filter.spent(card.answered()) <= filter.limit:
        return
    differences = list(unlike(card, card.adaptive_noise, rehearsal.warnings, rehearsal.kinds))
    if schema is not None:
        differences += without_schema(card, schema, bought_bounds(card))
    _blame(card, differences, findings)


def _blame(card: Card, differences: Sequence[str], findings: Findings) -> None:
    """Add differences from what this version does: problems, unless another version made the card."""
    version = card.versions.get("l2p", "unknown")
    if version == versions()["l2p"]:
        findings.problems += differences
    else:  # how a method sets itself up, what it asks and how that is worded may change between versions
        findings.remarks += [
            f"It is of l2p {version}, and by this version it {difference}." for difference in differences
        ]


def _check_theorem(card: Card, findings: Findings) -> None:
    theorem = find(card.accountant).theorem
    if card.theorem == theorem:
        return
    other_accountant = next((accountant.name for accountant in for_runs() if accountant.theorem == card.theorem), None)
    if other_accountant is not None:
        findings.problems.append(f"names accountant {card.accountant}, but the theorem of {other_accountant}")
    elif card.versions.get("l2p") != versions()["l2p"]:
        findings.remarks.append(f"This version words the theorem differently, and checked this one: {theorem}")


def _check_order(card: Card, findings: Findings) -> None:
    """An order must have been fixed before the run: by the budget, the sampler and the number of steps."""
    if card.envelope is not None:
        return
    order = Filter(card.accountant, card.budget, sampling.from_json(card.sampler), card.max_steps).order
    planned = order if math.isfinite(order) else None
    if card.order == planned or (card.order is not None and planned is not None and equal(card.order, planned)):
        return
    # If noise was fixed beforehand, any order is valid.
    if card.adaptive_noise or not find(card.accountant).at_order:
        findings.problems.append(f"counts at order {card.order}, but {card.accountant} fixes {planned} beforehand")


def _check_protector(card: Card, findings: Findings) -> Rehearsal:
    name, sha256 = card.protector["name"], card.protector["sha256"]
    model = model_of(card)
    if model is None:
        findings.remarks.append(
            f"Model {card.model} is not known here, so that this protector trains it, and what it asks of it, is what "
            "the card says and nobody checked."
        )
        return Rehearsal()
    run = card.engine_run
    if (run is None) is (name == engine.NAME):
        whose = "that l2p itself trained" if run is None else "that another engine trained"
        findings.problems.append(f"says {whose}, which no card of protector {name} does")
        return Rehearsal()
    if run is not None:
        findings.remarks.append(
            "Another engine trained: that it did so as it is declared is vouched for by whoever ran it, and nobody "
            "checked."
        )
        findings.known_by = "declaration"
        named = engine.of_declaration(run, card.budget, model, card.accountant)
    elif (named := recognise(name, sha256, card.budget, model, card.accountant, card.num_rows)) is not None:
        findings.known_by = "name" if sha256 is None else "SHA-256"
    else:
        why = "it has no file" if sha256 is None else "no checkpoint of its SHA-256 ships with this version"
        findings.remarks.append(
            f"Protector {name} is not known here ({why}): that it has this sampler and these mechanisms, and whether "
            "its noise depended on answers, is what the card says and nobody checked."
        )
        return Rehearsal()
    if any(f"{name} runs" in warning for warning in card.warnings):
        sampler = sampling.from_json(card.sampler)
        findings.remarks.append(f"{name} ran instead of another protector, with that one's batches: {sampler}.")
        named = drawing(sampler, named)
    settings = _settings(card, named)
    findings.problems += _misfits(card, named)
    if sha256 is not None and not MethodName.parse(name).tuned:  # as the file has them
        findings.problems += settings
    if findings.problems:
        return Rehearsal()
    rehearsal = rehearse(card, named, model)
    findings.compared, findings.rehearsed = rehearsal.compared, rehearsal.has_noise
    findings.remarks += [] if rehearsal.remark is None else [rehearsal.remark]
    _blame(card, [*settings, *rehearsal.differences], findings)
    return rehearsal


def _misfits(card: Card, named: NamedProtector) -> list[str]:
    """Fields that no version of this protector would write."""
    protector, sampler, problems = named.protector, sampling.from_json(card.sampler), []
    if protector.needs_public and card.public is None:
        problems.append(f"names no public rows, without which {named.name} does not run")
    if type(sampler) is not type(protector.sampler):
        problems.append(f"says that {sampler} chose its rows, where {named.name} has {protector.sampler}")
    if protector.adaptive_noise and not card.adaptive_noise:
        problems.append(
            f"says that noise was fixed in advance, but that of {named.name} depends on earlier answers, so that "
            "only its cap is certified"
        )
    if card.adaptive_noise and not (protector.adaptive_noise or is_of_loop(card)):  # which stopped for what it saw
        problems.append(f"says that noise depended on earlier answers, but that of {named.name} is fixed in advance")
    of_bounds = {"gaussian"} if bought_bounds(card) else set()
    if foreign := sorted({query.mechanism for query in card.answered()} - set(protector.mechanisms) - of_bounds):
        problems.append(f"holds answers with {foreign[0]} noise, but {named.name} asks for {protector.mechanisms[0]}")
    provenance = {"sources": None if named.sources is None else list(named.sources), "range": named.range}
    if odd := [key for key, value in provenance.items() if card.protector[key] != value]:
        problems.append(f"says other {odd[0]} of {named.name} than {provenance[odd[0]]}")
    return problems


def _settings(card: Card, named: NamedProtector) -> list[str]:
    """Differences between its batches or number of steps and the protector's."""
    protector, sampler = named.protector, sampling.from_json(card.sampler)
    differences = []
    if sampler != protector.sampler:
        differences.append(f"has {sampler} where {named.name} has {protector.sampler}")
    if card.max_steps != protector.num_steps:
        differences.append(f"allows {card.max_steps} steps where {named.name} takes {protector.num_steps}")
    return differences
