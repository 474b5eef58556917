"""Constants that gradients do not tune, chosen at the end of a training by their scores on held-out tasks.

A meta-gradient sees no use for a few of them: it is not taken through eigenvectors, so a share of the budget that buys
these would only look like a cost.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from l2p.base import struct
from l2p.base.errors import InputError
from l2p.run.protector import Protector


def parse(listed: str) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """The place of a constant and its values.

    >>> parse("eigenbasis.norm_growth=0, 0.35")
    (('eigenbasis', 'norm_growth'), (0.0, 0.35))

    Raises:
      InputError: it is written in another way.
    """
    name, _, values = listed.partition("=")
    try:
        numbers = tuple(map(float, values.split(",")))
    except ValueError:
        numbers = ()
    if not numbers or not all(map(math.isfinite, numbers)) or not all(map(str.isidentifier, name.split("."))):
        raise InputError(
            f"constants has {listed!r}, which is not a name and its values; write it like "
            "eigenbasis.norm_growth=0,0.35."
        )
    return tuple(name.split(".")), numbers


def check_constants(protector: Protector, constants: tuple[str, ...]) -> None:
    """Refuse names that are not those of a protector's single numbers; `InputError`."""
    for listed in constants:
        place, _ = parse(listed)
        part: Any = protector
        for name in place:
            part = struct.children(part).get(name) if dataclasses.is_dataclass(part) else None
        if not isinstance(part, jax.Array) or part.ndim:
            raise InputError(
                f"constants has {'.'.join(place)}, which is no single number of this protector; leave it out."
            )


def choose(
    protector: Protector, constants: tuple[str, ...], judge: Callable[[Protector], float]
) -> tuple[Protector, dict[str, list[list[float]]]]:
    """The protector with each of these constants, one after the other, at the value of the lowest score, or as it was;
    and by name every value and its score, which `judge` gives."""
    scored: dict[str, list[list[float]]] = {}
    least = judge(protector) if constants else math.inf
    for place, values in map(parse, constants):
        tried = [_with(protector, place, value) for value in values]
        scores = [judge(candidate) for candidate in tried]
        scored[".".join(place)] = [[value, round(score, 4)] for value, score in zip(values, scores, strict=True)]
        if min(scores) < least:
            least = min(scores)
            protector = tried[scores.index(least)]
    return protector, scored


def _with(part: Any, place: tuple[str, ...], value: float) -> Any:
    """A copy of a protector, or of a part of one, with another constant."""
    name, *rest = place
    new = _with(struct.children(part)[name], tuple(rest), value) if rest else jnp.float32(value)
    return struct.with_child(part, name, new)
