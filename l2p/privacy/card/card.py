"""The privacy card: what a run guarantees, to whom, by which theorem, and what it does not cover."""

import dataclasses
import importlib.resources
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from l2p.base.errors import InputError
from l2p.base.json_fields import strict, violation
from l2p.base.plain_text import printable
from l2p.privacy.accountants import covering, of_fixed_noise
from l2p.privacy.budget import Budget
from l2p.privacy.card import statements, text
from l2p.privacy.card.events import decode_events
from l2p.privacy.card.unit import is_row
from l2p.privacy.cost import convert, sampling
from l2p.privacy.events import Adjacency, Answered
from l2p.privacy.sensitivity.engine_run import EngineRun

if TYPE_CHECKING:
    from l2p.privacy.cap.filter import Filter

#: The most queries that a card may list: the most steps of a run, with a few queries each.
MAX_QUERIES = 2**22
#: Relative difference between epsilon and mu of one card that rounding may make.
_MU_TOLERANCE = 1e-9
#: `Card.seed_policy` by whether the run is a private release.
SEED_POLICY = {True: "no seed: operating system", False: "fixed seed: research only"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Card:
    """Everything a reader needs to judge one run; nothing in it costs budget. `schema` describes it as JSON.

    Attributes:
      card_version: of this format.
      epsilon, delta, adjacency: the target of the run.
      epsilon_certified: the epsilon at `delta` that was certified after the run, at most `epsilon`.
      mu: of the Gaussian DP that was certified, which holds at every delta at once; None unless the accountant is gdp.
      unit: {name, max_rows, how}: what one neighbour differs in, a row or all rows with one value in a column `name`;
        how many of them count at most, and which. In version 1 it is a text.
      statements: {justification, contact, audit}, as far as whoever released made them, in their own words
        (`l2p.privacy.card.statements`); None where they made none.
      table: {name, target} of what was learned from: a file's name or a table's in its database, and the column to
        predict, each None where it is not known; None where neither is.
      num_rows, num_features: N and the number of columns, public by declaration.
      model: what was trained.
      private_release: False if the noise came from a seed that somebody may know.
      accountant, theorem: which filter stopped the run, and why its cap holds.
      order: alpha at which divergences were counted; None for accountants without one.
      adaptive_noise: whether noise or stopping depended on earlier answers.
      sampler: how rows were chosen for each query, as `Sampler.to_json` gives it.
      mechanisms: {query, mechanism, count, clip_norm [low, high], noise_multiplier [low, high]} per kind of query.
      events: every granted query exactly as it was asked (`encode_events`): enough to price the run again.
      envelope: the least noise with which a query would have been answered, in the same form; None unless `accountant`
        is one of fixed noise (`accountants.of_fixed_noise`), which certifies the envelope and not the events.
      steps, max_steps, stop_reason: steps done and allowed; "budget", "max_steps", or "loop" where a loop of the
        user's own ended earlier.
      randomness: where the noise came from.
      seed_policy: one of `SEED_POLICY`.
      float_mode: the arithmetic in which noise was added.
      composition: {data_set, unit, reservation, spent_before, counted, limit, earlier}, the run's entry in the ledger
        of its data set, with three numbers in `unit`, and the runs that count before it; None if no ledger was kept.
      public: {num_rows, sha256} of the public rows that the run was given (`l2p.tables.public_data.on_card`); None if
        there were none.
      engine: what is declared of a training that l2p only added noise to, as `EngineRun.to_json` gives it; else None.
      not_private: sentences on what the guarantee does not cover.
      protector: {name, sha256, sources, range}; None if unknown or not applicable.
      learned: a sentence on whether the run learned anything, as far as its answers show it, one of
        `l2p.privacy.card.learned.SENTENCES`.
      warnings: sentences.
      versions: of l2p, jax, numpy and python.
      created: UTC, ISO 8601.
    """

    card_version: int = 2
    epsilon: float
    delta: float
    epsilon_certified: float
    mu: float | None = None
    adjacency: str
    unit: dict[str, Any]
    num_rows: int
    num_features: int
    model: str
    private_release: bool
    accountant: str
    order: float | None
    theorem: str
    adaptive_noise: bool
    sampler: dict[str, Any]
    mechanisms: list[dict[str, Any]]
    events: list[dict[str, Any]]
    envelope: list[dict[str, Any]] | None = None
    steps: int
    max_steps: int
    stop_reason: str
    randomness: str
    seed_policy: str
    float_mode: str
    composition: dict[str, Any] | None = None
    public: dict[str, Any] | None = None
    engine: dict[str, Any] | None = None
    table: dict[str, Any] | None = None
    statements: dict[str, str] | None = None
    not_private: list[str]
    protector: dict[str, Any]
    learned: str
    warnings: list[str]
    versions: dict[str, str]
    created: str

    @property
    def budget(self) -> Budget:
        """The target as a `Budget`."""
        return Budget(self.epsilon, self.delta, Adjacency(self.adjacency))

    @property
    def engine_run(self) -> EngineRun | None:
        """What whoever trained the weights vouches for; None where l2p trained them."""
        return None if self.engine is None else EngineRun(**self.engine)

    def filter(self) -> "Filter":
        """The filter that stopped the run, rebuilt: it prices `answered` again."""
        from l2p.privacy.cap.filter import Filter

        sampler = sampling.from_json(self.sampler)
        if self.envelope is None:
            return Filter(self.accountant, self.budget, sampler, self.max_steps, fixed_order=self.order)
        from l2p.privacy.cap.envelope import EnvelopeFilter

        envelope = tuple(decode_events(self.envelope))
        return EnvelopeFilter(self.accountant, self.budget, sampler, self.max_steps, envelope=envelope)

    def answered(self) -> list[Answered]:
        """Every granted query, in order: what accountants price."""
        return decode_events(self.events)

    def stating(self, texts: Mapping[str, str | None] | None) -> "Card":
        """The card with statements of whoever releases, {"justification": ..., "contact": ..., "audit": ...}."""
        return dataclasses.replace(self, statements=statements.checked(texts))

    def to_json(self) -> str:
        """The card as JSON; `from_json` reads it back without loss."""
        return json.dumps(dataclasses.asdict(self), indent=1, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, path: str | Path) -> "Card":
        """The card in a file that `to_json` wrote; one of version 1 as the card of version 2 that says the same.

        Raises:
          InputError: the file is missing, is not JSON, violates `schema`, or contradicts itself.
        """
        try:
            content = strict(Path(path).read_text(encoding="utf-8"))
        except OSError as error:
            raise InputError(
                f"the card {path} cannot be read ({error.strerror}); pass the card.json in the folder of a run."
            ) from error
        except ValueError as error:
            raise InputError(f"the card {path} cannot be read as JSON ({error}); pass a run's card.json.") from error
        if broken := violation(content, schema()):
            raise _broken(path, *broken)
        card = cls(**content)
        for field, problem in _contradictions(card):
            raise _broken(path, field, problem)
        return card

    def to_text(self) -> str:
        """The card for people: plain text, wrapped, without control characters of names."""
        return printable(text.render(self))


def schema() -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of `card.json`.

    >>> schema()["title"]
    'Privacy card of an l2p run'
    """
    file = importlib.resources.files("l2p.privacy.card") / "schema.json"
    return json.loads(file.read_text(encoding="utf-8"))


def _broken(path: str | Path, field: str, problem: str) -> InputError:
    """An error about one field; `field` is a dotted path such as `events.0.steps`, empty for the whole card."""
    published = schema()
    described = published["properties"].get(field.partition(".")[0], published)["description"]
    place = f"field '{field}' ({described})" if field else "it as a whole"
    return InputError(
        f"{path} does not hold the fields of a privacy card, so nothing on it can be relied on: in {place}, "
        f"{problem}; pass the card.json that a run wrote, unchanged."
    )


def _contradictions(card: Card) -> Iterator[tuple[str, str]]:
    """Field and problem for contradictions that a schema cannot express."""
    if card.epsilon_certified > card.epsilon:
        yield "epsilon_certified", f"{card.epsilon_certified!r} exceeds the target epsilon, {card.epsilon!r}"
    if card.delta * card.num_rows >= 1:
        yield (
            "delta",
            f"{card.delta!r} is not below 1/N for N = {card.num_rows}, as if rows might be published at random",
        )
    if card.mu is not None:
        if card.accountant != "gdp":
            yield "mu", f"{card.accountant} proves no Gaussian differential privacy"
        elif convert.gdp_epsilon(card.mu, card.delta) < card.epsilon_certified * (1 - _MU_TOLERANCE):
            yield "mu", f"{card.mu!r} is below what epsilon {card.epsilon_certified!r} at this delta comes to"
    if card.steps > card.max_steps:
        yield "steps", f"{card.steps} steps exceed the {card.max_steps} that the run was allowed"
    if not is_row(card.unit):
        if card.sampler["name"] != sampling.FullBatch.name:
            yield "unit", "a unit of several rows is protected although steps read batches, for which nothing is proved"
        if foreign := sorted({kind["mechanism"] for kind in card.mechanisms} - {"gaussian"}):
            yield "unit", f"a unit of several rows is protected by {foreign[0]} noise, for which nothing is proved"
    if card.composition is not None:
        counted, limit = card.composition["spent_before"] + card.composition["counted"], card.composition["limit"]
        if counted > limit * (1 + 1e-9):  # the sum may round up
            yield "composition", f"runs count {counted!r} together, above the limit of {limit!r}"
    try:
        sampler = sampling.from_json(card.sampler)
        sampler.check_adjacency(Adjacency(card.adjacency), card.num_rows)
    except InputError as error:
        yield "sampler", str(error).rstrip(".")
    else:
        if card.accountant not in covering(sampler):
            yield "accountant", f"{card.accountant} cannot price {sampler}"
    try:
        run = card.engine_run
    except (InputError, TypeError) as error:
        yield "engine", str(error).rstrip(".")
    else:
        if run is not None and run.num_rows != card.num_rows:
            yield "engine", f"{run.num_rows} rows were passed over, but N is {card.num_rows}"
        if run is not None and card.model.partition(":")[0] not in (run.loss, "softmax"):
            yield "engine", f"the loss passed over is {run.loss}, but the noise is for model {card.model}"
    if (card.envelope is None) is (card.accountant in of_fixed_noise()):
        belongs = "lacks the envelope that it certifies" if card.envelope is None else "certifies no envelope"
        yield "envelope", f"accountant {card.accountant} {belongs}"
    yield from _contradicting_events(card)


def _contradicting_events(card: Card) -> Iterator[tuple[str, str]]:
    listed = sum((span["steps"][1] - span["steps"][0] + 1) * len(span["queries"]) for span in card.events)
    if listed > MAX_QUERIES:
        yield "events", f"{listed} queries are more than any run asks, too many to list one by one"
        return
    last = -1
    counts: Counter[str] = Counter()
    for index, span in enumerate(card.events):
        first, end = span["steps"]
        if first > end:
            yield f"events.{index}.steps", f"the first step, {first}, comes after the last, {end}"
        if first <= last:
            yield f"events.{index}.steps", f"step {first} comes after step {last}, but steps must increase"
        last = end
        for mechanism, *_ in span["queries"]:
            counts[mechanism] += end - first + 1
    if last > card.steps + 1:  # the step with the refused query may have had granted ones before it
        yield "events", f"step {last} was answered, although the run ended after {card.steps}"
    summed: Counter[str] = Counter()
    for kind in card.mechanisms:
        summed[kind["mechanism"]] += kind["count"]
    if summed != counts:
        yield "mechanisms", f"{dict(summed)} answers are listed, although the events hold {dict(counts)}"
