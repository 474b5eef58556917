"""Marks test cases slow that cost a compilation and differ little from the cases that `pytest` runs by default.

Slow cases are run by .ci/full.
"""

from collections.abc import Collection, Iterable
from typing import Any

import pytest

#: CPU seconds that a case may take by default, and the cheapest case of its kind, of which at least one has to run.
MAX_SECONDS, MAX_SECONDS_OF_A_KIND = 1.0, 5.0


def slow_by_cost(seconds: float, cheapest_of_kind: bool = False) -> tuple[pytest.MarkDecorator, ...]:
    """The marks of a case that takes this long, measured with an empty cache."""
    return (pytest.mark.slow,) if seconds > (MAX_SECONDS_OF_A_KIND if cheapest_of_kind else MAX_SECONDS) else ()


def slow_except(every: Iterable[Any], by_default: Collection[Any]) -> list[Any]:
    """Values of a parameter, or tuples of several, with those that are not in `by_default` marked slow."""
    return [value if value in by_default else _marked(value) for value in every]


def _marked(value: Any) -> Any:
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.slow)
