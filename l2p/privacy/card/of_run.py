"""Makes the card of a run that has just ended, from its plan and its trace."""

import datetime
import math
from collections.abc import Mapping, Sequence
from typing import Any

from l2p.base.versions import versions
from l2p.privacy.budget import Budget
from l2p.privacy.cap.envelope import EnvelopeFilter
from l2p.privacy.cap.filter import Filter
from l2p.privacy.card import custom
from l2p.privacy.card.card import SEED_POLICY, Card
from l2p.privacy.card.events import encode_events
from l2p.privacy.card.learned import IDLE
from l2p.privacy.events import Adjacency, Answered

#: By whether the noise came from the operating system.
RANDOMNESS = {
    True: "a key of 256 bits from the operating system, expanded by ChaCha20, a cryptographic generator.",
    False: "a JAX key given by the user; anybody who knows it can subtract the noise.",
}
#: Begins the last sentence of a theorem that is about a choice among several runs, of which the card lists one.
SHARE = "What holds a run to its share: "
FLOATS = {True: "float64 noise, added to sums that lie on a public grid", False: "float32 noise and sums"}

#: Sentences on what is public by declaration and which rows counted: of tables, a user's loss, an engine.
OF_TABLE = (
    "Public by declaration: the columns, their bounds, the classes, the number of rows N, every hyper-parameter.",
    "Values outside the bounds were clipped silently, and rows marked null or holding a value that is not finite "
    "counted as null rows; how many is not stated.",
)
OF_LOSS = (custom.PUBLIC, custom.NULL_ROWS)
OF_ENGINE = (
    "Public by declaration: the number of rows N and of coefficients, and all that is declared of the training.",
    "That the training was as it is declared: l2p has seen its weights alone, no row and no pass. If a sentence that "
    "is vouched for is false, so is the guarantee.",
)


def now() -> str:
    """The time as a card states it."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def card_of_run(
    budget: Budget,
    filter: Filter,
    answers: Sequence[Answered],
    *,
    certified: float,
    releases: bool,
    adaptive_noise: bool,
    protector: dict[str, Any],
    public: dict[str, Any] | None,
    engine: Mapping[str, Any] | None,
    learned: str,
    warnings: Sequence[str],
    model: str,
    in_loop: bool = False,
    in_float32: bool = False,
    **fields: Any,
) -> Card:
    """The card of a run.

    Args:
      budget: what the run was held to.
      filter: what stopped it.
      answers: every granted query, in order.
      certified: epsilon at the budget's delta, certified after the run.
      releases: whether its noise came from the operating system.
      adaptive_noise: whether noise or stopping depended on earlier answers.
      protector, public, engine: as `Card` has them.
      learned: one of `l2p.privacy.card.learned.SENTENCES`.
      warnings: of the run, without the one on what was learned.
      model: its name.
      in_loop: whether its steps were those of a loop of the user's own.
      in_float32: whether the user of a loss chose sums of float32 numbers.
      fields: the other fields of `Card`, except those that follow from these.
    """
    return Card(
        epsilon=budget.epsilon,
        delta=budget.delta,
        epsilon_certified=certified,
        mu=filter.mu(answers, adaptive_noise),
        adjacency=budget.adjacency.value,
        adaptive_noise=adaptive_noise,
        private_release=releases,
        # An envelope is composed without an order; that of its cap only divides the schedule into shares.
        order=filter.order if math.isfinite(filter.order) and not isinstance(filter, EnvelopeFilter) else None,
        theorem=filter.theorem,
        sampler=filter.sampler.to_json(),
        events=encode_events(answers),
        envelope=encode_events(filter.envelope) if isinstance(filter, EnvelopeFilter) else None,
        randomness=RANDOMNESS[releases],
        seed_policy=SEED_POLICY[releases],
        float_mode=_float_mode(model, releases, in_loop, in_float32),
        not_private=[
            *([custom.LOOP.format(batches=custom.VOUCHED[filter.sampler.name])] if in_loop else []),
            *([custom.RESTS_ON] if in_loop or in_float32 else []),
            *not_private(
                budget,
                protector["sources"],
                None if public is None else public["num_rows"],
                OF_ENGINE if engine is not None else OF_LOSS if custom.is_custom(model) else OF_TABLE,
            ),
        ],
        public=public,
        engine=None if engine is None else dict(engine),
        protector=protector,
        learned=learned,
        model=model,
        warnings=[*warnings, *([learned] if learned in IDLE else [])],
        versions=versions(),
        created=now(),
        **fields,
    )


def _float_mode(model: str, releases: bool, in_loop: bool, in_float32: bool) -> str:
    """How sums and noise were rounded."""
    if in_loop:
        return custom.FLOAT32
    if releases and in_float32:
        return custom.FLOAT32_SUMS
    return custom.EXACT if releases and custom.is_custom(model) else FLOATS[releases]


def not_private(
    budget: Budget, sources: Sequence[str] | None, num_public: int | None, of_rows: Sequence[str] = OF_TABLE
) -> list[str]:
    """Sentences on what the guarantee of a run does not cover.

    Args:
      budget: what the run was held to.
      sources: the public data that its protector was made from; None where unknown.
      num_public: how many public rows the protector could read; None for a run without any.
      of_rows: sentences on what is public by declaration, and which rows counted.
    """
    sentences = [
        *of_rows,
        "Choosing a protector, a budget or settings after looking at these rows, or at earlier results on them, is not "
        "paid for here; each further run on these rows adds to what is spent.",
        "That there is a result at all: a table that cannot be read, or a solve that does not converge, leaves none.",
        "Running time and memory use.",
    ]
    if budget.adjacency is Adjacency.ADD_REMOVE:
        sentences.append("N as it was declared, whatever the table's number of rows, which neighbours differ in.")
        sentences.append("Methods that solve on all rows at once: that the table has at most N lines.")
    if budget.delta == 0:
        sentences.append(
            "That noise drawn as numbers of 64 bits ends somewhere, where noise that is private with delta 0 does not: "
            "it leaves out events of probability about e^-36."
        )
    if sources:
        sentences.append(f"The protector was made from public data ({', '.join(sources)}), read without limit.")
    if num_public is not None:
        sentences.append(
            f"The {num_public} public rows, which the protector read freely. A row of the table that equals one of "
            "them, features and target, counted as a null row; whether there are any is not stated."
        )
    return sentences
