"""A plan of a training in so many minutes: sizes of its tasks, and networks or constants alone.

Compiling an outer step takes longer than a hundred of them, so that the number of programs decides how long everything
takes, and a table's rows hardly matter. Times are those of two cores with nothing else to do; `slowness` says how much
longer everything takes here.
"""

import dataclasses
import math
import os
import time
from collections.abc import Sequence
from typing import NamedTuple

from l2p.base.errors import InputError

#: Columns of tasks. A table is filled up with columns of zeros to the next of these, at most twice its own number, so
#: that few programs serve many tables, and later ones find them compiled. Of wider tables tasks have some columns.
WIDTHS = (1, 2, 4, 6, 12, 24, 48, 64, 100, 150, 256, 400, 784)
#: Seconds to read tables, load the start and write the result; to compile what a size of tasks needs with networks, and
#: with constants alone, which are judged beside networks; and how much more for every column.
BEGIN, COMPILE, COMPILE_CONSTANTS, PER_COLUMN = 8.0, 42.0, 24.0, 0.1
#: Seconds that a meta-test compiles for each size.
META_TEST = 16.0
#: The share of the time in which everything that must be compiled is, and in which more sizes may be; the rest is for
#: training. A meta-test is made where it takes at most the last of these.
MOST_COMPILING, MORE_SIZES, MOST_TESTING = 0.75, 0.5, 0.15
#: Outer steps by the minutes that there are; where time is not bound, the start's own number.
STEPS = ((6.0, 500), (15.0, 1000), (math.inf, 2000))
#: Seconds that `slowness` takes on two cores with nothing else to do.
PROBE = 0.25
#: Factor by which everything takes longer for each process that waits for one core.
SHARE_OF_LOAD = 0.65


class Width(NamedTuple):
    """Columns of a table, and the model that is trained on it."""

    features: int
    model: str


@dataclasses.dataclass(frozen=True)
class Size:
    """Tasks of one shape.

    Attributes:
      model: that is trained on them.
      width: their number of columns.
      tables: places of the tables that they are drawn from.
    """

    model: str
    width: int
    tables: tuple[int, ...]


def width_for(features: int) -> int:
    """The number of columns of tasks that hold a whole table with so many features.

    >>> width_for(5), width_for(150), width_for(5000)
    (6, 150, 784)
    """
    return next((width for width in WIDTHS if width >= features), WIDTHS[-1])


def sizes(tables: Sequence[Width]) -> tuple[Size, ...]:
    """As few sizes as it takes to have every table whole in one of them, or `WIDTHS[-1]` of its columns: first one for
    each model, then those that more tables need.

    >>> [(size.model, size.width, size.tables) for size in sizes([Width(5, "logistic"), Width(9, "square")])]
    [('logistic', 6, (0,)), ('square', 12, (1,))]
    """
    rounds: list[tuple[int, int, Size]] = []
    for model in dict.fromkeys(table.model for table in tables):
        places = [place for place, table in enumerate(tables) if table.model == model]
        missing = set(places)
        for number in range(len(places)):
            if not missing:
                break
            options = sorted({width_for(tables[place].features) for place in missing})
            width = max(options, key=lambda width: (sum(_is_whole(tables[p].features, width) for p in missing), -width))
            covered = {place for place in missing if _is_whole(tables[place].features, width)}
            drawn = tuple(place for place in places if 2 * tables[place].features >= width)
            rounds.append((min(number, 1), -len(covered) if number else 0, Size(model, width, drawn)))
            missing -= covered
    return tuple(size for _, _, size in sorted(rounds, key=lambda entry: entry[:2]))


def _is_whole(features: int, width: int) -> bool:
    """True if tasks of this width may be a table as it is, or have as many of its columns as any."""
    return features <= width <= 2 * features or (width == WIDTHS[-1] and features > width)


def compiling(width: int, networks: bool) -> float:
    """Seconds to compile what tasks with so many columns need."""
    return (COMPILE if networks else COMPILE_CONSTANTS) + PER_COLUMN * width


def has_networks(widths: Sequence[int], minutes: float, slowness: float, constants: bool) -> bool:
    """True if there is time to train networks on the first size of every model, False if only for constants.

    Args:
      widths: of the sizes that have to be compiled.
      minutes: for all there is to do.
      slowness: how many times longer everything takes here.
      constants: whether the start has a control whose constants can be trained alone.

    Raises:
      InputError: time is too short even for the cheapest size.

    >>> has_networks([24], 3.0, 1.0, True), has_networks([24, 24, 24], 3.0, 1.0, True)
    (True, False)
    """
    for networks in (True, False):
        seconds = sum(compiling(width, networks) for width in widths)
        if _fits(seconds, minutes, slowness):
            return networks or not constants
    least = compiling(min(widths), not constants)
    if _fits(least, minutes, slowness):
        return not constants
    needed = math.ceil(slowness * (BEGIN + least) / MOST_COMPILING / 60.0)
    raise InputError(
        f"{minutes:g} minutes leave no time to train: compiling a step takes about {slowness * least:.0f} s here; give "
        f"at least {needed} minutes."
    )


def _fits(compiling: float, minutes: float, slowness: float) -> bool:
    return slowness * (BEGIN + compiling) <= MOST_COMPILING * 60.0 * minutes


def steps_for(minutes: float) -> int:
    """Outer steps of a training of so many minutes, if it is fast enough; few numbers, as programs depend on them."""
    return next(steps for most, steps in STEPS if minutes <= most)


def next_step(number: int, least: float, turns: Sequence[int], shapes: int) -> int:
    """The number of the step after `number`, from `least` on as far as that goes, so that steps take turns: each is of
    the shape at its number modulo `shapes`, and only those at `turns` are taken.

    >>> next_step(-1, 0, [0, 1], 2), next_step(4, 5, [0, 1], 3), next_step(0, 7.5, [0, 1, 2], 3)
    (0, 6, 7)
    """
    turn = next((turn for turn in turns if turn > number % shapes), turns[0]) if number >= 0 else turns[0]
    first = number + ((turn - number) % shapes or shapes)
    return first + shapes * max(0, int(least - first) // shapes)


def slowness() -> float:
    """The factor, at least 1, by which everything takes longer here than on two idle cores: measured by compiling a
    little, and by the processes that wait for a core, since the next minutes need not be like this second."""
    import jax
    import jax.numpy as jnp

    def little(x: jax.Array) -> jax.Array:
        for place in range(12):
            x = jnp.tanh(x @ x + place)
        return x.sum()

    def seconds() -> float:
        began = time.monotonic()
        jax.jit(jax.grad(little)).lower(jnp.eye(4)).compile()
        return time.monotonic() - began

    seconds()  # the first one loads the compiler, too
    waiting = os.getloadavg()[0] / (os.cpu_count() or 1) if hasattr(os, "getloadavg") else 0.0
    return max(1.0, min(seconds(), seconds()) / PROBE, SHARE_OF_LOAD * waiting)
