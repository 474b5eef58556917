"""Small figures of a run as inline SVG, without scripts or styles of their own: noise, clip norms, spending by step."""

import math
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Protocol

from l2p.base.drawing import CARD_COLOURS
from l2p.privacy.rounded import in_digits

#: Of a figure, and of what is drawn in it.
WIDTH, HEIGHT = 640, 260
LEFT, RIGHT, TOP, BOTTOM = 72, 628, 30, 216
#: Points or bars in a figure; a longer run is thinned, so that a card stays small.
_MAX_POINTS = 300
Point = tuple[float, float]


class Granted(Protocol):
    """The part of `l2p.privacy.events.Answered` that is drawn; `spent` adds up, in the accountant's own unit."""

    @property
    def step(self) -> int:
        """0 in `init`."""
        ...

    @property
    def query(self) -> str:
        """Its name."""
        ...

    @property
    def noise_multiplier(self) -> float:
        """Scale of the noise over the query's sensitivity."""
        ...

    @property
    def clip_norm(self) -> float:
        """Bound on what one row contributes."""
        ...

    @property
    def spent(self) -> float:
        """Amount that the run had spent once this was answered."""
        ...


def noise(trace: Sequence[Granted]) -> str:
    """A figure of each query's noise multiplier by step, on a logarithmic axis; empty if there is none to draw."""
    return _levels("noise", "Noise multiplier", [(row.query, row.step, row.noise_multiplier) for row in trace])


def clipping(trace: Sequence[Granted]) -> str:
    """The same of the bound on what one row contributes."""
    return _levels("clipping", "Clip norm", [(row.query, row.step, row.clip_norm) for row in trace])


def _levels(name: str, title: str, answers: Iterable[tuple[str, int, float]]) -> str:
    """A figure of a number of each query by step, from (query, step, number)."""
    series: dict[str, list[Point]] = {}
    for query, step, number in answers:
        if 0 < number < math.inf:
            series.setdefault(query, []).append((step, number))
    if not series:
        return ""
    everything = [point for points in series.values() for point in points]
    low, high = min(value for _, value in everything), max(value for _, value in everything)
    bottom, top = math.log(low) - 0.05, math.log(high) + 0.05
    x, marks = _steps(everything)

    def y(number: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * (math.log(number) - bottom) / (top - bottom)

    parts = [across(y(tick), in_digits(tick)) for tick in log_ticks(low, high)]
    keys = _keys(list(series))
    for index, (query, points) in enumerate(series.items()):
        places = [f"{x(step):.1f},{y(value):.1f}" for step, value in _thin(points)]
        colour = index % len(CARD_COLOURS)
        dots = "".join(f"M{place}h0" for place in places) if len(places) <= 60 else ""
        parts.append(f'<path class="line c{colour}" d="M{"L".join(places)}"/><path class="dot c{colour}" d="{dots}"/>')
        left, height = keys[index]
        parts.append(f'<text class="key c{colour}" x="{left}" y="{height}">{escape(query)}</text>')
    heights = {
        query: [in_digits(end([value for _, value in points])) for end in (min, max)]
        for query, points in series.items()
    }
    ranges = "; ".join(f"{query}: {' to '.join(dict.fromkeys(ends))}" for query, ends in heights.items())
    return figure(name, f"{title} by step (log scale)", f"{ranges}.", marks + parts, 18 - keys[0][1], "")


def _keys(names: Sequence[str]) -> list[tuple[int, int]]:
    """Left end and height of each name above the figure, in as many lines as it takes; the last line is at 18.

    >>> _keys(["mean", "a query of forty characters, or about so", "another one that is as long as the other"])
    [(72, 0), (140, 0), (72, 18)]
    """
    places, left, line = [], LEFT, 0
    for name in names:
        width = 11 * len(name)  # on a phone, where letters are larger beside the figure
        if left > LEFT and left + width > RIGHT:
            left, line = LEFT, line + 1
        places.append((left, line))
        left += width + 24
    return [(start, 18 - 18 * (line - row)) for start, row in places]


def spending(trace: Sequence[Granted], limit: float) -> str:
    """A figure of the share of the budget that each step took, stacked up to the budget; empty if there is none.

    Args:
      trace: granted queries in order.
      limit: what `spent` is capped at.
    """
    after = {row.step: row.spent / limit for row in trace if math.isfinite(row.spent)} if 0 < limit < math.inf else {}
    if not after:
        return ""
    steps = list(after.items())
    x, marks = _steps(steps)
    top = 1.08 * max(1.0, *after.values())

    def y(share: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * share / top

    paid, bars = [], []
    size = math.ceil(len(steps) / _MAX_POINTS)
    before = 0.0
    for start in range(0, len(steps), size):
        group = steps[start : start + size]
        left, right, share = x(group[0][0] - 0.5), x(group[-1][0] + 0.5), group[-1][1]
        paid.append(_bar(left, right, y(0), y(before)))
        bars.append(_bar(left, right, y(before), y(share)))
        before = share
    largest = max(share - earlier for share, earlier in zip(after.values(), [0.0, *after.values()], strict=False))
    parts = [across(y(share), f"{share:.0%}") for share in (0, 0.25, 0.5, 0.75)]
    parts += [f'<path class="paid" d="{"".join(paid)}"/><path class="bar" d="{"".join(bars)}"/>']
    parts += [f'<path class="budget" d="M{LEFT},{y(1):.1f}H{RIGHT}"/>']
    parts += [f'<text class="end" x="{LEFT - 8}" y="{y(1) + 4:.1f}">budget</text>']
    description = (
        f"{before:.4%} of the budget was spent after step {steps[-1][0]}; no step took more than {largest:.4%}."
    )
    return figure("spending", "Share of the budget spent, stacked by step", description, marks + parts)


def figure(
    name: str, title: str, description: str, parts: list[str], above: int = 0, caption: str | None = None
) -> str:
    """The figure, with room for what its parts have `above` their usual place; below it stand title and `caption`, by
    default the description that a screen reader has."""
    axis = f'<path class="axis" d="M{LEFT},{TOP}V{BOTTOM}H{RIGHT}"/>'
    return (
        f'<figure><svg viewBox="0 {-above} {WIDTH} {HEIGHT + above}" role="img" '
        f'aria-labelledby="{name}-title {name}-text">'
        f'<title id="{name}-title">{escape(title)}</title><desc id="{name}-text">{escape(description)}</desc>'
        f"{''.join(parts)}{axis}</svg><figcaption><strong>{escape(title)}.</strong> "
        f"{escape(description if caption is None else caption)}"
        "</figcaption></figure>"
    )


def _steps(points: Sequence[Point]) -> tuple[Callable[[float], float], list[str]]:
    """The horizontal scale, and the marks that name it."""
    first, last = min(step for step, _ in points), max(step for step, _ in points)

    def x(step: float) -> float:
        return LEFT + (RIGHT - LEFT) * (step - first + 0.5) / (last - first + 1)

    stride = next(n * 10**k for k in range(20) for n in (1, 2, 5) if n * 10**k >= (last - first) / 7)
    shown = range(math.ceil(first / stride) * stride, int(last) + 1, stride)
    marks = [f'<text class="middle" x="{x(step):.1f}" y="{BOTTOM + 18}">{step}</text>' for step in shown]
    label = f'<text class="middle" x="{(LEFT + RIGHT) / 2:.0f}" y="{BOTTOM + 38}">step</text>'
    return x, [*marks, label]


def across(height: float, label: str) -> str:
    """A line across a figure, with what it stands for."""
    return (
        f'<path class="across" d="M{LEFT},{height:.1f}H{RIGHT}"/>'
        f'<text class="end" x="{LEFT - 8}" y="{height + 4:.1f}">{label}</text>'
    )


def _bar(left: float, right: float, low: float, high: float) -> str:
    return f"M{left:.1f},{low:.1f}V{high:.1f}H{right:.1f}V{low:.1f}Z"


def _thin(points: list[Point]) -> list[Point]:
    """The points, or the lowest and highest of each stretch if there are too many to draw."""
    if len(points) <= _MAX_POINTS:
        return points
    size = math.ceil(2 * len(points) / _MAX_POINTS)
    stretches = [points[start : start + size] for start in range(0, len(points), size)]
    lowest_and_highest = ({min(part, key=lambda p: p[1]), max(part, key=lambda p: p[1])} for part in stretches)
    return [point for pair in lowest_and_highest for point in sorted(pair)]


def log_ticks(low: float, high: float) -> list[float]:
    """Round values for a logarithmic axis, or the two ends if fewer than two round values lie between them.

    >>> log_ticks(3.0, 120.0)
    [5.0, 10.0, 20.0, 50.0, 100.0]
    """
    decades = range(math.floor(math.log10(low)), math.floor(math.log10(high)) + 1)
    steps = (1, 2, 5) if len(decades) <= 3 else (1,)
    # Read as decimals: a product such as 3 * 10**-1 would not be the nearest float.
    round_values = [float(f"{step}e{decade}") for decade in decades for step in steps]
    inside = [value for value in round_values if low <= value <= high]
    thinned = inside[:: max(1, math.ceil(len(inside) / 7))]
    return thinned if len(thinned) >= 2 else sorted({low, high})
