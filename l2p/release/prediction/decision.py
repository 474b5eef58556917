"""Decides on a class by what mistakes cost, or by how many of the rows to predict for it may take.

Both are declared. Neither reads a private row, so both are post-processing of a model that is paid for.
"""

import abc
import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from l2p.base.errors import InputError
from l2p.tables.schema import Value
from l2p.tables.schema.columns import same
from l2p.tables.schema.names import text_of


class Decision(abc.ABC):
    """A rule that names a class for the scores of a row."""

    @abc.abstractmethod
    def classes(self, scores: np.ndarray) -> np.ndarray:
        """The number of the class of each row [n], for scores f64[n, K]."""


@dataclasses.dataclass(frozen=True)
class Costs(Decision):
    """The class whose choice is expected to cost least.

    Attributes:
      missed: what it costs to name another class for a row of each class, in their order, over the weight by which the
        model was trained to make rows of that class count more.

    >>> Costs((1.0, 12.0)).classes(np.array([[0.95, 0.05], [0.90, 0.10]])).tolist()
    [0, 1]
    """

    missed: tuple[float, ...]

    @classmethod
    def of(
        cls, costs: Mapping[Any, float], classes: Sequence[Value], weights: Sequence[float] | None = None
    ) -> "Costs":
        """The rule for {class: cost}; `InputError` unless there is one cost for each class.

        A model that was trained with class `weights` gives probabilities of a table in which classes are as frequent as
        the weights make them, so that they are divided by the weights.

        >>> Costs.of({"no": 1e308, "yes": 5e307}, ["no", "yes"]).missed
        (1.0, 0.5)
        """
        numbers = by_class(costs, classes, "costs")
        if lacking := [text_of(value) for value, cost in zip(classes, numbers, strict=True) if cost is None]:
            raise InputError(
                f"costs are declared for some classes but not for {', '.join(map(repr, lacking[:5]))}, so a mistake "
                "there has no price; declare what it costs to miss a row of each class."
            )
        missed = tuple(float(cost) for cost in numbers if cost is not None)
        if not all(0 <= cost < math.inf for cost in missed) or not any(missed):
            raise InputError(
                "costs must be finite numbers, none below 0 and one above it, or no class would be the cheapest to "
                "name; only their ratios matter, so write 1 and 12, say."
            )
        most = max(missed)  # only ratios matter, and a score times 1e308 may be infinite
        weights = weights or [1.0] * len(missed)
        return cls(tuple(cost / most / weight for cost, weight in zip(missed, weights, strict=True)))

    def classes(self, scores: np.ndarray) -> np.ndarray:
        return np.argmax(scores * self.missed, axis=-1)


@dataclasses.dataclass(frozen=True)
class Above(Decision):
    """One of two classes where its score is above a threshold, else the other.

    Attributes:
      place: of the class.
    """

    place: int
    threshold: float

    @classmethod
    def share(cls, place: int, share: float, scores: np.ndarray) -> "Above":
        """The rule by which at most a share of rows takes the class, those with the highest scores f64[n] of it.

        Rows that tie at the border are not among them.

        >>> Above.share(1, 0.5, np.array([0.1, 0.4, 0.2, 0.3])).threshold
        0.2
        """
        count = math.floor(share * len(scores) * (1 + 1e-12))  # 0.29 * 100 is below 29
        if count >= len(scores):
            return cls(place, -math.inf)
        return cls(place, float(np.partition(scores, len(scores) - 1 - count)[len(scores) - 1 - count]))

    def classes(self, scores: np.ndarray) -> np.ndarray:
        return np.where(scores[:, self.place] > self.threshold, self.place, 1 - self.place)


def place_and_share(rate: Mapping[Any, float], classes: Sequence[Value]) -> tuple[int, float]:
    """The class that a rate {class: share} is about, by its place, and the share; `InputError` if it is none."""
    if len(classes) != 2:
        raise InputError(
            f"a rate is the share of rows that one of two classes may take, but the model has {len(classes)}; declare "
            "costs instead."
        )
    numbers = by_class(rate, classes, "rate")
    if sum(number is not None for number in numbers) != 1:
        raise InputError(
            "a rate is about one class, and the other gets the rest; name the one you look for, such as yes=0.1."
        )
    place, share = next((place, number) for place, number in enumerate(numbers) if number is not None)
    if not 0 <= share <= 1:
        raise InputError(f"the rate is {share:g}, but it is a share of the rows; write a number from 0 to 1.")
    return place, float(share)


def by_class(declared: Mapping[Any, float], classes: Sequence[Value], name: str) -> list[float | None]:
    """What is declared by class, in the order of the classes; None for those that are not named."""
    if not isinstance(declared, Mapping):
        raise InputError(f"{name} must say which class each number is of; write {{class: number}}.")
    declared = {key.item() if isinstance(key, np.generic) else key: number for key, number in declared.items()}
    for key, number in declared.items():
        if not any(same(key, value) for value in classes):
            raise InputError(
                f"{name} names {str(key)[:40]!r}, which is no class of the model; its classes are "
                f"{', '.join(repr(text_of(value)) for value in classes[:20])}."
            )
        if isinstance(number, bool) or not isinstance(number, (int, float, np.integer, np.floating)):
            raise InputError(f"{name} give {str(key)[:40]!r} something other than a number; write a number.")
    return [next((number for key, number in declared.items() if same(key, value)), None) for value in classes]


def declared_in_words(words: Sequence[str], classes: Sequence[Value], name: str) -> dict[Value, float] | None:
    """What CLASS=NUMBER words declare, by class; None for no words.

    >>> declared_in_words(["<=50K=1", "yes=0.5"], ("<=50K", "yes"), "costs")
    {'<=50K': 1.0, 'yes': 0.5}
    """
    numbers: dict[Value, float] = {}
    named = {text_of(value): value for value in classes}
    for word in words:
        text, _, number = word.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            raise InputError(f"--{name} {word[:60]!r} is not CLASS=NUMBER; write yes=12, say.") from None
        if not text:
            raise InputError(f"--{name} {word[:60]!r} names no class; write yes=12, say.")
        if named.get(text, text) in numbers:
            raise InputError(f"--{name} names {text[:40]!r} twice, and only one number can count; leave one out.")
        numbers[named.get(text, text)] = value
    return numbers or None
