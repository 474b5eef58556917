"""Refusals of a field's value, each a sentence that says what would do."""

import math
from typing import Any, Never

from l2p.base.errors import InputError


def refuse(part: Any, field: str, why: str) -> Never:
    """Refuse the value of a field in a part of a config; `InputError`."""
    raise InputError(f"{field} is {getattr(part, field)!r}, but {why}.")


def check_choice(part: Any, field: str, allowed: tuple[str, ...]) -> None:
    """Refuse a name that is none of these; `InputError`."""
    if getattr(part, field) not in allowed:
        raise InputError(f"{field} {getattr(part, field)!r} is unknown; choose one of {', '.join(allowed)}.")


def check_counts(part: Any, *fields: str, unit: int = 1) -> None:
    """Refuse counts that are no positive multiples of `unit`; None passes. `InputError`."""
    for field in fields:
        count = getattr(part, field)
        if count is not None and (not isinstance(count, int) or count < 1 or count % unit):
            refuse(part, field, f"it is a count; choose a positive multiple of {unit}")


def check_positive(part: Any, *fields: str) -> None:
    """Refuse numbers that are not finite or not above 0; None passes. `InputError`."""
    for field in fields:
        number = getattr(part, field)
        if number is not None and not 0 < number < math.inf:
            refuse(part, field, "it has to be positive; choose a number above 0")
