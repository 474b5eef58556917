"""What `pytest` leaves to .ci/full: cases that cost a compilation and differ little from those that it runs."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest

#: What a case may cost, in CPU seconds; and the cheapest of its kind, which stands for those that are left out.
MAX_SECONDS, MAX_SECONDS_OF_A_KIND = 1.0, 5.0


def slow_by_cost(seconds: float, stands_for_others: bool = False) -> tuple[pytest.MarkDecorator, ...]:
    """The marks of a case that takes so long, measured with an empty cache."""
    return (pytest.mark.slow,) if seconds > (MAX_SECONDS_OF_A_KIND if stands_for_others else MAX_SECONDS) else ()


def others_later(every: Iterable[Any], now: Collection[Any]) -> list[Any]:
    """Values of a parameter, or tuples of several, those not among `now` marked slow."""
    return [value if value in now else _marked(value) for value in every]


def _marked(value: Any) -> Any:
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.slow)
