"""One sentence on whether a run learned anything, as far as its own answers show it: they are paid for, and public.

A step's answer is a sum of gradients over the rows plus Gaussian noise that is independent of all earlier answers.
Along the direction of the earlier ones, noise is as likely to be negative as positive. Where rows keep saying the same,
it adds up: W, the sum of such components in standard deviations, exceeds sqrt(T) by far.

Rows whose labels are coins say the same at every step, too, since all steps read the same rows. The sum over N rows of
gradients of mean 0, each at most B long, has a length of B sqrt(N) or less on average. B is 1 / (m f) standard
deviations of a step's noise (m its multiplier, f the sensitivity factor), so where batches are a share q of the rows,
T steps add up to sqrt(N) times the sum of q / (m f), and each draws N q (1 - q) / (m f)^2 more variance of its own.
Noise of earlier steps has moved params, and the gradient moves them back, which only lowers W.

Where a run is soon at its end, gradients have no time to add up along a line that is hidden in noise at first. So the
squared length of the sum of all answers is looked at, too. In standard deviations of noise its distribution is
chi-squared where rows say nothing, and noncentral where they say as much as coins may; one time in a thousand at most
it is longer than the limit below (Birge 2001, Lemma 8.1).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from l2p.oracle.setup import Setup
from l2p.privacy.card.learned import NO_STEP, NOISE, NOTHING, SIGNAL, UNMOVED, UNTOLD
from l2p.privacy.events import Answered
from l2p.queries import ClippedGradient, NormalizedGradient, ScaledGradient

#: How many standard deviations of noise W must exceed. It is looked at after 2, 3, 5, 9, ... answers, at most 32 times,
#: and noise alone is above at one of them with a chance of at most 32 * 2.3e-4.
NOISES = 3.5
#: And how many times B sqrt(N) the rows must say. Coins say more at most once in twenty: if all their gradients are B
#: long and lie on one line, else more rarely.
CHANCES = 2.0
#: The logarithm of one over the chance that noise makes a sum of answers longer than its limit; it is looked at after
#: 1, 2, 4, ... answers.
RARITY = 6.9
#: Queries whose answers are compared.
GRADIENTS = (ClippedGradient.name, NormalizedGradient.name, ScaledGradient.name)


class Answer(NamedTuple):
    """One granted answer: its values f64[k] in standard deviations of its noise, and B in the same unit."""

    place: int
    values: np.ndarray
    bound: float


def sentence(answered: bool, evidence: "Evidence", steps: int, max_steps: int, moved: bool) -> str:
    """The sentence on what was learned that the answers of a run allow.

    Args:
      answered: whether any query was.
      evidence: of its gradients.
      steps, max_steps: granted in full, and allowed.
      moved: True if released params differ from those that the run began with.
    """
    if not answered:
        return NOTHING
    if steps == 0 < max_steps:
        return NO_STEP
    return evidence.sentence if moved else UNMOVED


def answers_of(records: Sequence[Answered], setup: Setup) -> Iterator[Answer]:
    """Granted answers to gradient queries, in the order in which they were asked.

    Args:
      records: of a block of steps, with a leading axis of steps.
      setup: the public facts.
    """
    rows_per_unit, factor = setup.rows_per_unit or 1, setup.adjacency.sensitivity_factor
    host: list[Any] = jax.device_get([record for record in records if record.query in GRADIENTS])
    for index in range(len(host[0].granted) if host else 0):
        for place, record in enumerate(host):
            if record.granted[index]:
                deviations = float(record.noise_multiplier[index]) * rows_per_unit * factor
                scale = deviations * float(record.clip_norm[index])
                yield Answer(place, np.asarray(record.answer[index], np.float64) / scale, 1.0 / deviations)


class Evidence:
    """W over the answers so far.

    Args:
      num_rows: N.
      rate: share of the rows that an answer reads.
    """

    def __init__(self, num_rows: float, rate: float):
        self._num_rows, self._rate = num_rows, rate
        self._earlier: dict[int, np.ndarray] = {}
        self._precision: dict[int, float] = {}
        self._total = self._variance = self._persistent = 0.0
        self._count, self._above = 0, False
        self._last: bool | None = None

    def add(self, answer: Answer) -> None:
        """Compare one more answer with those before it."""
        place, values, bound = answer
        if place in self._earlier:
            self._count += 1
            length = math.sqrt(float(np.square(self._earlier[place]).sum()))
            self._total += float(values @ self._earlier[place]) / length if length else 0.0
            self._variance += 1.0 + self._num_rows * self._rate * (1.0 - self._rate) * bound**2
            self._persistent += self._rate * bound
            limit = NOISES * math.sqrt(self._variance) + CHANCES * math.sqrt(self._num_rows) * self._persistent
            self._last = self._total > limit
            self._above |= self._last and self._count & (self._count - 1) == 0
        # Weighed by precision: noise of m standard deviations says B with m as many.
        self._earlier[place] = self._earlier.get(place, np.zeros_like(values)) + values * bound
        self._precision[place] = self._precision.get(place, 0.0) + bound**2
        if self._count & (self._count - 1) == 0:
            self._above |= self._is_long(place, bound)

    def _is_long(self, place: int, bound: float) -> bool:
        """True where the sum of answers is longer than noise, and coins, make it."""
        square, precision = float(np.square(self._earlier[place]).sum()), self._precision[place]
        batches = self._rate * (1.0 - self._rate) * bound**2
        coins = CHANCES**2 * self._num_rows * (self._rate**2 * precision + batches)
        size = self._earlier[place].size
        limit = size + coins + 2.0 * math.sqrt((size + 2.0 * coins) * RARITY) + 2.0 * RARITY
        return square > precision * limit

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything that `with_arrays` needs."""
        numbers = [self._total, self._variance, self._persistent, *self._precision.values()]
        last = -1 if self._last is None else int(self._last)
        counts = [self._count, int(self._above), last, *self._earlier]
        sums = {f"sum{place}": total for place, total in self._earlier.items()}
        return {"numbers": np.array(numbers, np.float64), "counts": np.array(counts, np.int64), **sums}

    def with_arrays(self, arrays: Mapping[str, np.ndarray]) -> "Evidence":
        """The evidence of the same run that `arrays` gave."""
        evidence = Evidence(self._num_rows, self._rate)
        evidence._total, evidence._variance, evidence._persistent, *precision = arrays["numbers"].tolist()
        evidence._count, above, last, *places = arrays["counts"].tolist()
        evidence._above, evidence._last = bool(above), None if last < 0 else bool(last)
        evidence._precision = dict(zip(places, precision, strict=True))
        evidence._earlier = {place: np.array(arrays[f"sum{place}"]) for place in places}
        return evidence

    @property
    def sentence(self) -> str:
        """The sentence on whether W or a sum of answers exceeded its limit at one of the looks; takes two answers."""
        if self._last is None:
            return UNTOLD
        return SIGNAL if self._above or self._last else NOISE
