"""Fields of a privacy card that contradict each other, whatever its protector."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

from l2p.privacy.card.card import Card
from l2p.privacy.card.of_run import FLOATS, RANDOMNESS
from l2p.privacy.card.unit import is_row, unit_on_card
from l2p.privacy.events import Answered
from l2p.release.rewritten import invented

#: Relative tolerance between two fields that hold the same number.
SAME = 1e-6


def equal(first: float, second: float) -> bool:
    """True if two fields hold the same number."""
    return math.isclose(first, second, rel_tol=SAME)


def contradictions(card: Card) -> Iterator[str]:
    """Ends of sentences that begin with "it", one for each contradiction."""
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
        if not all(map(equal, ends, (min(listed[mechanism]), max(listed[mechanism])))):
            yield f"lists {mechanism} noise other than that of its events"
    steps = by_step(trace)
    full_steps = {steps.get(step, ()) for step in range(1, card.steps + 1)}
    if len(full_steps) > 1:
        yield "was granted different queries in different steps, but a protector asks the same ones in each"
    last = steps.get(card.steps + 1, ())
    if (
        full_steps
        and last
        and (len(last) >= len(next(iter(full_steps))) or last != next(iter(full_steps))[: len(last)])
    ):
        yield f"ended after step {card.steps}, but was granted all of step {card.steps + 1} or what no step asks"
    yield from _around_the_run(card)


def _around_the_run(card: Card) -> Iterator[str]:
    """The same in what it says of the unit, of where noise came from, and of its ledger."""
    if not is_row(card.unit) and card.unit != unit_on_card(card.unit["name"], card.unit["max_rows"]):
        yield "says otherwise which rows of a unit count than any run does"
    is_simulation = not card.private_release  # only what it must not say: versions word what they do say differently
    if card.randomness == RANDOMNESS[is_simulation] or card.float_mode == FLOATS[is_simulation]:
        yield f"says that it is {'a simulation' if is_simulation else 'a release'}, but its noise is that of the other"
    yield from invented(card)


def by_step(trace: Sequence[Answered]) -> dict[int, tuple[str, ...]]:
    """Mechanisms of the queries granted in each step, in order."""
    steps: dict[int, tuple[str, ...]] = defaultdict(tuple)
    for query in trace:
        steps[query.step] += (query.mechanism,)
    return dict(steps)
