"""`l2p account`: price a finished run again, or plan noise, steps or epsilon before one."""

import dataclasses
import json
import math
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from l2p.base.errors import InputError
from l2p.base.whole_folder import MODEL_FILE

if TYPE_CHECKING:
    from l2p.privacy.budget import Budget
    from l2p.privacy.card.card import Card
    from l2p.privacy.cost.sampling import Sampler
    from l2p.privacy.fixed import Row
    from l2p.tables.schema import Schema

#: Facts that no card shows, even one that holds.
_NOT_SHOWN = (
    "Not shown: that this run took place, and when, on which rows, with noise from where, and what else was run on "
    "them; what its answers were, and so noise and clip norms that depend on them, and what was learned; the name, "
    "limit and other runs of its ledger; which rows were public; what a caller stated, or added to its sentences; nor, "
    "where noise does not depend on them, neighbours, unit and numbers of rows and features. Cards are not signed, so "
    "anybody can write one that holds; card.txt and card.html were not read."
)
#: Rounding that the same sum may show on another machine.
TOLERANCE = 1e-6
_HOW = (
    "pass --card FILE to price a run, or --delta and two of --epsilon, --steps and --noise-multiplier to find the third"
)


@dataclasses.dataclass(frozen=True)
class Account:
    """Price a run's card again, or find noise, steps or epsilon for a plan.

    Exit code 1: the run costs more than its card says."""

    card: Path | None = None
    """A run's card.json."""
    verify: bool = False
    """With --card: also compose its events with dp-accounting, and hold it against its protector if that is known."""
    table: bool = False
    """With --card: also what each accountant would certify for noise fixed in advance, and in what time."""
    epsilon: float | None = None
    """Target epsilon."""
    delta: float | None = None
    """Target delta, a probability below 1 / number of rows."""
    steps: int | None = None
    """Number of equal Gaussian steps."""
    noise_multiplier: float | None = None
    """Standard deviation of the noise over the sensitivity, which under replace_one is 2 clipping norms."""
    sampling_rate: float | None = None
    """Poisson batches: the probability that a step reads a row; without it, every step reads every row."""
    batch_size: int | None = None
    """Fixed-size batches, with --rows."""
    rows: int | None = None
    """Number of rows N of the table."""
    adjacency: Literal["zero_out", "add_remove", "replace_one"] | None = None
    """The tables that count as neighbours; default zero_out."""
    accountant: str | None = None
    """One accountant to plan with; all of them by default."""
    json: bool = False
    """Print JSON."""

    def run(self) -> int:
        """Do what the options ask for."""
        if self.card is not None:
            self._check_only_card()
            return self._price(self.card)
        if self.verify or self.table:
            raise InputError("--verify and --table are about a run, but there is no card; pass --card FILE too.")
        if self.delta is None or [self.epsilon, self.steps, self.noise_multiplier].count(None) != 1:
            raise InputError(f"these options do not say what to account for; {_HOW}.")
        plan = self._plan()
        if self.json:
            print(json.dumps(plan, indent=1, allow_nan=False))
            return 0
        quantity = plan["what"].replace("_", " ")
        for entry in plan["accountants"]:
            value = "-" if entry["value"] is None else f"{entry['value']:.6g}"
            print(f"{entry['accountant']:<20}{quantity} {value:<12}{entry['seconds']:8.3f} s  {entry['note']}".rstrip())
        return 0

    def _check_only_card(self) -> None:
        about_runs = {"card", "verify", "table", "json"}
        clashing = [
            field.name.replace("_", "-")
            for field in dataclasses.fields(self)
            if field.name not in about_runs and getattr(self, field.name) is not None
        ]
        if clashing:
            raise InputError(
                f"a card says what its run was, so --{clashing[0]} cannot be given with --card; leave it out."
            )

    def _price(self, path: Path) -> int:
        """Price a card and compare."""
        from l2p.privacy.card.card import Card

        card = Card.from_json(path)
        report = _priced(card)
        if self.verify and "spent" in report:
            _verify(card, report, _schema_beside(path))
        if self.table:
            report["table"] = _table(card)
        report["holds"] = not report["problems"]
        if self.json:
            print(json.dumps(report, indent=1, allow_nan=False))
        else:
            _print_report(card, report)
        return 0 if report["holds"] else 1

    def _sampler(self) -> "Sampler":
        from l2p.privacy.cost.sampling import FixedSize, FullBatch, Poisson

        if self.sampling_rate is not None and self.batch_size is not None:
            raise InputError(
                "--sampling-rate draws Poisson batches and --batch-size fixed-size ones, whose prices differ; pass one."
            )
        if self.sampling_rate is not None:
            return Poisson(self.sampling_rate)
        if self.batch_size is None:
            return FullBatch()
        if self.rows is None:
            raise InputError("--batch-size alone is no sampling rate; pass --rows, the number of rows, too.")
        return FixedSize(self.batch_size, self.rows)

    def _plan(self) -> dict[str, Any]:
        """The missing one of epsilon, steps and noise, by every accountant."""
        from l2p.privacy.budget import Budget
        from l2p.privacy.events import Adjacency

        # Without an epsilon, which is then computed, the budget only checks delta.
        adjacency = Adjacency(self.adjacency or "zero_out")
        budget = Budget(1.0 if self.epsilon is None else self.epsilon, cast(float, self.delta), adjacency)
        sampler = self._sampler()
        sampler.check_adjacency(adjacency, self.rows)
        if self.rows is not None:
            budget.check_rows(self.rows)
        numbers = {"epsilon": self.epsilon, "steps": self.steps, "noise_multiplier": self.noise_multiplier}
        quantity = next(name for name, value in numbers.items() if value is None)
        stated = {name: value for name, value in numbers.items() if value is not None}
        setting = {"delta": budget.delta, "adjacency": adjacency.value, "sampler": sampler.to_json()}
        return {"what": quantity, **stated, **setting, "accountants": self._by_accountant(budget, sampler)}

    def _by_accountant(self, budget: "Budget", sampler: "Sampler") -> list[dict[str, Any]]:
        from l2p.privacy.cap import planning

        if self.epsilon is None and self.accountant is None:
            rows = _rows_of_plan(cast(int, self.steps), cast(float, self.noise_multiplier), sampler, budget)
            return [_entry(row.name, row.epsilon, row.seconds, row.note) for row in rows]

        def find(name: str) -> float:
            if self.epsilon is None:
                steps, noise = cast(int, self.steps), cast(float, self.noise_multiplier)
                return planning.epsilon(sampler, budget.adjacency, budget.delta, steps, noise, name)
            if self.steps is None:
                return planning.num_steps(budget, sampler, cast(float, self.noise_multiplier), name)
            return planning.noise_multiplier(budget, sampler, self.steps, name)

        if self.accountant is not None:
            return [_timed(self.accountant, find)]
        entries = []
        for name in planning.names():
            try:
                entries.append(_timed(name, find))
            except InputError as error:
                entries.append(_entry(name, None, 0.0, str(error)))
        if all(entry["value"] is None for entry in entries):
            raise InputError(entries[0]["note"])
        return entries


def _timed(name: str, find: Callable[[str], float]) -> dict[str, Any]:
    begun = time.perf_counter()
    value = find(name)
    seconds = time.perf_counter() - begun
    if math.isinf(value):
        return _entry(name, None, seconds, "certifies no epsilon for this much noise.")
    return _entry(name, value, seconds, "")


def _entry(name: str, value: float | None, seconds: float, note: str) -> dict[str, Any]:
    return {"accountant": name, "value": value, "seconds": seconds, "note": note}


def _rows_of_plan(steps: int, noise_multiplier: float, sampler: "Sampler", budget: "Budget") -> "list[Row]":
    from l2p.privacy import fixed
    from l2p.privacy.cap import planning

    answered = planning.equal_steps(steps, noise_multiplier)
    return fixed.table(answered, sampler, budget.adjacency, budget.delta)


def _priced(card: "Card") -> dict[str, Any]:
    """The price of the card's events by its own accountant, and ends of sentences on what is wrong with the card."""
    about = {
        "accountant": card.accountant,
        "delta": card.delta,
        "target": card.epsilon,
        "claimed": card.epsilon_certified,
        "problems": [],
    }
    answered = card.answered()
    about["queries"] = len(answered)
    try:
        filter = card.filter()
    except InputError as error:
        return about | {"problems": [f"cannot be priced: {error}"]}  # such as an envelope above the target
    spent, limit = filter.spent(answered), filter.limit
    report = about | {"spent": spent if spent < math.inf else None, "limit": limit, "unit": filter.unit}
    if not spent <= limit:
        return report | {"problems": ["costs more than its cap"]}
    certified = filter.certify(answered, card.adaptive_noise)
    report["certified"] = certified
    honest = certified <= card.epsilon_certified * (1 + TOLERANCE) and card.epsilon_certified <= card.epsilon
    return report if honest else report | {"problems": ["certifies less than its events cost"]}


def _schema_beside(path: Path) -> "Schema | None":
    """The schema that a run wrote beside its card and its model; None without one. Beside other cards may lie a schema
    that is not theirs, as in the folder in which a table was declared."""
    from l2p.tables.schema import Schema

    beside, model = path.with_name("schema.json"), path.with_name(MODEL_FILE)
    return Schema.read(beside) if beside.is_file() and model.is_file() else None


def _verify(card: "Card", report: dict[str, Any], schema: "Schema | None") -> None:
    """Add to the report the price of the card's events by dp-accounting, and a comparison with its protector."""
    from l2p.privacy.independent import compose
    from l2p.release.verification import verify

    composed = compose(card.filter(), card.answered(), card.adaptive_noise)
    bounds = math.isinf(composed.error)
    report["independent"] = composed._asdict() | {"error": None if bounds else composed.error}
    if not composed.epsilon <= card.epsilon * (1 + composed.error):
        report["problems"].append("costs more than the target by dp-accounting")
    findings = verify(card, schema)
    report["problems"] += findings.problems
    names = "known_by", "compared", "rehearsed", "remarks"
    report |= {name: getattr(findings, name) for name in names}


def _table(card: "Card") -> list[dict[str, Any]]:
    from l2p.privacy import fixed
    from l2p.privacy.cost import sampling

    budget = card.budget
    rows = fixed.table(card.answered(), sampling.from_json(card.sampler), budget.adjacency, budget.delta)
    return [row._asdict() for row in rows]


def _print_report(card: "Card", report: dict[str, Any]) -> None:
    from l2p.privacy.rounded import rounded

    print(f"accountant   {card.accountant}, {report['queries']} queries")
    if "limit" in report:
        spent, limit = report["spent"], report["limit"]
        share = "without bound" if spent is None else f"{spent:.9g} of {limit:.9g} ({spent / limit:.4%})"
        print(f"spent        {share}, in {report['unit']}")
    if "certified" in report:
        certified = rounded(report["certified"], up=True, digits=9)
        print(f"epsilon      {certified} certified at delta {card.delta:g}, target {card.epsilon:g}")
    if "independent" in report:
        independent = report["independent"]
        bound = "" if independent["error"] else "; it only bounds this sampler, so it may exceed the target"
        print(f"dp-accounting: epsilon {independent['epsilon']:.9g} by {independent['method']}{bound}")
    if report.get("known_by"):
        print(f"protector    {card.protector['name']}, known by its {report['known_by']}")
    if "table" in report:
        _print_table(card, report["table"])
    for remark in report.get("remarks", ()):
        print(f"note: {remark}")
    for problem in report["problems"]:
        print(f"THE CARD DOES NOT HOLD: it {problem}.")
    if report["holds"]:
        print("the card holds")
        print(textwrap.fill(f"{_shown(report)} {_NOT_SHOWN}", 120))


def _shown(report: dict[str, Any]) -> str:
    """A sentence on what a report proves of a card that holds."""
    if "independent" not in report:
        return "Its queries, priced again, cost no more than it says (--verify has more)."
    text = "Its queries, priced again here and by dp-accounting, cost no more than it says."
    if report["known_by"] is None:
        return text
    if not report["compared"]:
        return f"{text} Sampler and number of steps are those of its protector; which queries it asks was not compared."
    text += " Sampler, mechanisms, steps, and whether noise depends on answers, are those of its protector"
    return text + (", and so is the noise of every query." if report["rehearsed"] else ".")


def _print_table(card: "Card", rows: list[dict[str, Any]]) -> None:
    print(f"\nepsilon at delta {card.delta:g} of these events, if their noise had been fixed in advance:")
    for row in rows:
        value = "-" if row["epsilon"] is None else f"{row['epsilon']:.6g}"
        mark = " " if row["valid_for_adaptive"] else "*"
        print(f"  {row['name']:<20}{mark} {value:<12}{row['seconds']:8.3f} s  {row['note']}".rstrip())
    depended = "this run's noise did" if card.adaptive_noise else "this run's did not"
    print(f"* no guarantee if noise depends on earlier answers ({depended}).\n")
