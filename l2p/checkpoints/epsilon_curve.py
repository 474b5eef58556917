"""Forecasts over a range of epsilon, all else being equal: as rows of a table, and as a figure."""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from html import escape

from l2p.checkpoints.forecast import Forecast, Outlook, at_budget
from l2p.privacy.card import plots
from l2p.privacy.rounded import rounded

#: From a budget that hides nearly everything to one that hides little.
EPSILONS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
TITLES = ("epsilon", "odds, times", "noise", "gain, %", "8 in 10 runs")
ODDS = (
    "Odds: the factor by which one protected row can change the odds of anything that is released, at most, but for "
    "a probability of delta."
)


def curve(outlook: Outlook, epsilons: Sequence[float] = EPSILONS) -> dict[float, Forecast]:
    """The forecast of the protector that is planned for, by epsilon, in increasing order."""
    return {
        epsilon: at_budget(outlook, dataclasses.replace(outlook.budget, epsilon=epsilon))
        for epsilon in sorted(epsilons)
    }


def cells(forecasts: dict[float, Forecast]) -> Iterator[tuple[str, ...]]:
    """The rows of a table with the columns `TITLES`."""
    for epsilon, forecast in forecasts.items():
        factor = rounded(math.exp(epsilon), up=True, digits=3) if epsilon < 7 else "> 1,000"
        low, median, high = (f"{100 * share:.0f}" for share in forecast.share or (math.nan,) * 3)
        gain = (median, f"{low} to {high}") if forecast.share else ("not measured", "")
        yield f"{epsilon:g}", factor, f"{forecast.noise:.2g}", *gain


def figure(forecasts: dict[float, Forecast], marked: float | None = None) -> str:
    """The gain over epsilon with its range, as inline SVG; empty if it was not measured.

    Args:
      marked: an epsilon to point out.
    """
    shares = {epsilon: forecast.share for epsilon, forecast in forecasts.items() if forecast.share}
    if len(shares) < 2:
        return ""
    low, high = min(0.0, *(share[0] for share in shares.values())), max(1.0, *(share[2] for share in shares.values()))
    low = max(low, -0.5)  # far below 0 only says that the constant is better
    first, last = math.log(min(shares)), math.log(max(shares))

    def x(epsilon: float) -> float:
        return plots.LEFT + (plots.RIGHT - plots.LEFT) * (math.log(epsilon) - first) / (last - first)

    def y(share: float) -> float:
        return plots.BOTTOM - (plots.BOTTOM - plots.TOP) * (max(share, low) - low) / (high - low)

    def line(place: int, epsilons: Sequence[float]) -> str:
        return "L".join(f"{x(epsilon):.1f},{y(shares[epsilon][place]):.1f}" for epsilon in epsilons)

    ticks = [share / 100 for share in range(-50, 101, 25) if low <= share / 100]
    parts = [plots.across(y(share), f"{share:.0%}") for share in ticks]
    parts += [
        f'<text class="middle" x="{x(epsilon):.1f}" y="{plots.BOTTOM + 18}">{epsilon:g}</text>' for epsilon in shares
    ]
    parts.append(
        f'<text class="middle" x="{(plots.LEFT + plots.RIGHT) / 2:.0f}" y="{plots.BOTTOM + 38}">epsilon</text>'
    )
    ends = list(shares)
    parts.append(f'<path class="band" d="M{line(2, ends)}L{line(0, ends[::-1])}Z"/>')
    parts.append(f'<path class="line c0" d="M{line(1, ends)}"/>')
    if marked is not None and min(shares) <= marked <= max(shares):
        parts.append(f'<path class="budget" d="M{x(marked):.1f},{plots.TOP}V{plots.BOTTOM}"/>')
        parts.append(
            f'<text class="middle" x="{x(marked):.1f}" y="{plots.TOP - 8}">{escape(f"epsilon {marked:g}")}</text>'
        )
    description = (
        "Line: median of runs on tables that nobody trained on; band: 8 in 10 of them. 0 % is the best constant "
        "prediction, 100 % training without privacy."
    )
    return plots.figure("gain", "Gain in test loss over epsilon (log scale)", description, parts)
