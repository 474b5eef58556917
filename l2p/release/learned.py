"""One sentence on whether a run learned anything, as far as its own answers show it: they are paid for, and public.

A step's answer is a sum of gradients over the rows plus Gaussian noise that is independent of all earlier answers.
Along the direction of the earlier ones, noise is as likely to be negative as positive. Where rows keep saying the same,
it adds up: W, the sum of such components in standard deviations, exceeds sqrt(T) by far.

Rows whose labels are coins say the same at every step, too, since all steps read the same rows. The sum over N rows of
gradients of mean 0, each at most B long, has a length of B sqrt(N) or less on average. B is 1 / (m f) standard
deviations of a step's noise (m its multiplier, f the sensitivity factor), so where batches are a share q of the rows,
T steps add up to sqrt(N) times the sum of q / (m f), and each draws N q (1 - q) / (m f)^2 more variance of its own.
Noise of earlier steps has moved params, and the gradient moves them back, which only lowers W.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from l2p.oracle.setup import Setup
from l2p.privacy.card.learned import NO_STEP, NOISE, NOTHING, SIGNAL, UNMOVED, UNTOLD
from l2p.privacy.events import Answered
from l2p.queries import ClippedGradient, NormalizedGradient

#: How many standard deviations of noise W must exceed. It is looked at after 2, 3, 5, 9, ... answers, at most 32 times,
#: and noise alone is above at one of them with a chance of at most 32 * 2.3e-4.
NOISES = 3.5
#: And how many times B sqrt(N) the rows must say. Coins say more at most once in twenty: if all their gradients are B
#: long and lie on one line, else more rarely.
CHANCES = 2.0
#: Queries whose answers are compared.
GRADIENTS = (ClippedGradient.name, NormalizedGradient.name)


class _Answer(NamedTuple):
    """One granted answer: its values f64[k] in standard deviations of its noise, and B in the same unit."""

    place: int
    values: np.ndarray
    bound: float


def sentence(blocks: Sequence[Sequence[Answered]], setup: Setup, steps: int, max_steps: int, moved: bool) -> str:
    """The sentence on what was learned that the answers of a run allow.

    Args:
      blocks: records of `init`, then of each block of steps with a leading axis of steps, with the answers to gradient
        queries.
      setup: the public facts.
      steps, max_steps: granted in full, and allowed.
      moved: True if released params differ from those that the run began with.
    """
    if not any(np.asarray(record.granted).any() for records in blocks for record in records):
        return NOTHING
    if steps == 0 < max_steps:
        return NO_STEP
    if not moved:
        return UNMOVED
    stands_out = _stands_out(_answers(blocks[1:], setup), setup)
    return UNTOLD if stands_out is None else SIGNAL if stands_out else NOISE


def _answers(blocks: Sequence[Sequence[Answered]], setup: Setup) -> Iterator[_Answer]:
    """Granted answers to gradient queries, in the order in which they were asked."""
    rows_per_unit, factor = setup.rows_per_unit or 1, setup.adjacency.sensitivity_factor
    for records in blocks:
        host: list[Any] = jax.device_get([record for record in records if record.query in GRADIENTS])
        for index in range(len(host[0].granted) if host else 0):
            for place, record in enumerate(host):
                if record.granted[index]:
                    deviations = float(record.noise_multiplier[index]) * rows_per_unit * factor
                    scale = deviations * float(record.clip_norm[index])
                    yield _Answer(place, np.asarray(record.answer[index], np.float64) / scale, 1.0 / deviations)


def _stands_out(answers: Iterator[_Answer], setup: Setup) -> bool | None:
    """True if W exceeds its limit at one of the looks; None with fewer than two answers."""
    num_rows, rate = float(setup.num_rows), float(setup.price_list.sampler.rate())
    earlier: dict[int, np.ndarray] = {}
    total = variance = persistent = 0.0
    count, above, last = 0, False, None
    for place, values, bound in answers:
        if place in earlier:
            count += 1
            length = math.sqrt(float(np.square(earlier[place]).sum()))
            total += float(values @ earlier[place]) / length if length else 0.0
            variance += 1.0 + num_rows * rate * (1.0 - rate) * bound**2
            persistent += rate * bound
            last = total > NOISES * math.sqrt(variance) + CHANCES * math.sqrt(num_rows) * persistent
            above |= last and count & (count - 1) == 0
        # Weighed by precision: noise of m standard deviations says B with m as many.
        earlier[place] = earlier.get(place, np.zeros_like(values)) + values * bound
    return None if last is None else above or last
