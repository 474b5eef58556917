"""Figures of comparisons and of runs. Each returns a matplotlib figure, for `savefig` or a notebook.

A figure has at most `MAX_LINES` labelled lines, each with its own colour and its name at its right end. Other methods
are thin grey lines behind them, whose numbers are in the tables.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from l2p.compare.results import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_LINES = 6
#: Okabe and Ito's colours, which colour-blind readers can tell apart; black dashes are for references.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_REFERENCE: dict[str, Any] = {"color": "black", "linestyle": "--", "linewidth": 1.2}
_MARKER: dict[str, Any] = {"marker": "o", "markersize": 3}
_OTHERS: dict[str, Any] = {"color": "#C8C8C8", "linewidth": 0.8, "zorder": 1}
#: Means that differ by more than this factor are drawn on a logarithmic axis.
_WIDE = 100.0
#: Style of a line that another in front of it would hide, wholly or for most of its points.
_UNDER: dict[str, Any] = {"linewidth": 4.5, "markersize": 7, "alpha": 0.45, "zorder": 1.5}
#: Points that are this near each other, as a share of what the labelled lines span, look like one.
_ONE_POINT = 0.01
#: Grey lines that span this multiple of what the labelled ones span leave the panel rather than flatten those.
_FAR_OFF = 3.0
#: The least distance between two labels, as a share of a panel's height.
_LINE_HEIGHT = 0.058
Table = Mapping[str, Mapping[float, Estimate | None]]


def _panels(number: int = 2) -> tuple["Figure", list["Axes"]]:
    # Imported late, because the command line must not wait for it. `Figure` draws with Agg, without a display or global
    # state.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.5 * number, 3.8), layout="constrained")
    return figure, list(figure.subplots(1, number, squeeze=False)[0])


def against_epsilon(
    panels: Mapping[str, Table],
    labelled: Sequence[str] = (),
    dashed: Sequence[str] = (),
    limits: tuple[float, float] | None = None,
) -> "Figure":
    """Metrics against epsilon, a panel each, with standard errors.

    Args:
      panels: by the label of a panel's axis, its values by method and epsilon, as `results.by_method` gives them.
      labelled: methods to draw in colours; default the first ones. Beyond `MAX_LINES` they are grey.
      dashed: reference lines, labelled as well.
      limits: of the vertical axes; by default every line fits, or the labelled ones alone where grey lines are so far
        off that they would flatten those.

    >>> table = {"agd": {0.1: Estimate(0.7, 0.01), 0.2: Estimate(0.8, 0.01)}}
    >>> [axis.get_ylabel() for axis in against_epsilon({"test loss": table, "train loss": table}).axes]
    ['test loss', 'train loss']
    """
    figure, axes = _panels(len(panels))
    methods = [method for table in panels.values() for method, cells in table.items() if any(cells.values())]
    methods = list(dict.fromkeys(methods))
    references = [method for method in methods if method in dashed][:MAX_LINES]
    wanted = [method for method in (labelled or methods) if method in methods and method not in dashed]
    coloured = dict(zip(wanted[: MAX_LINES - len(references)], _COLOURS, strict=False))
    for axis, (label, table) in zip(axes, panels.items(), strict=True):
        ends, drawn, shown = {}, [], []
        under = _hidden({name: table[name] for name in coloured if name in table})
        for method in sorted(table, key=lambda name: name in coloured or name in references):
            estimates = {epsilon: estimate for epsilon, estimate in sorted(table[method].items()) if estimate}
            if not estimates:
                continue
            means, errors = np.array([(estimate.mean, estimate.error) for estimate in estimates.values()]).T
            drawn.extend(means)
            if method in coloured or method in references:
                style = _REFERENCE if method in references else {"color": coloured[method], **_MARKER}
                style = style | (_UNDER if method in under else {})
                axis.errorbar(list(estimates), means, np.nan_to_num(errors), label=method, capsize=2, **style)
                ends[method] = (max(estimates), means[-1], style["color"])
                shown.extend(means)
            else:
                axis.plot(list(estimates), means, **_OTHERS)
        axis.set(xscale="log", xlabel="epsilon", ylabel=label)
        span = max(shown) - min(shown) if shown else 0.0
        far_off = 0 < _FAR_OFF * span < max(drawn) - min(drawn) if drawn else False
        visible = shown if far_off else drawn
        if visible and 0 < _WIDE * min(visible) < max(visible):
            axis.set_yscale("log")
        elif far_off:
            axis.set_ylim(min(shown) - 0.2 * span, max(shown) + 0.2 * span)
        if limits is not None:
            axis.set_ylim(*limits)
        epsilons = sorted({epsilon for cells in table.values() for epsilon in cells})
        axis.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
        axis.minorticks_off()
        _finish(axis, ends)
    return figure


def _hidden(table: Table) -> set[str]:
    """Lines that look like an earlier one at half of their points or more.

    >>> line = {0.1: Estimate(0.7, 0.0), 0.2: Estimate(0.8, 0.0)}
    >>> _hidden({"universal": line, "control-universal": line, "agd": {0.1: Estimate(0.9, 0.0)}})
    {'control-universal'}
    """
    means = {
        name: {epsilon: estimate.mean for epsilon, estimate in cells.items() if estimate}
        for name, cells in table.items()
    }
    every = [mean for line in means.values() for mean in line.values()]
    near = _ONE_POINT * (max(every) - min(every)) if every else 0.0
    names, hidden = list(means), set()
    for place, name in enumerate(names):
        for earlier in names[:place]:
            both = means[name].keys() & means[earlier].keys()
            alike = sum(abs(means[name][epsilon] - means[earlier][epsilon]) <= near for epsilon in both)
            if both and 2 * alike >= len(means[name]):
                hidden.add(name)
    return hidden


def against_step(loss: Mapping[str, np.ndarray], share: Mapping[str, np.ndarray]) -> "Figure":
    """Loss after each step and share of the budget spent in it: mean and standard deviation over seeds.

    Args:
      loss: by method, f[S, T].
      share: by method, f[S, T]; 0 once a run has ended.

    >>> figure = against_step({"agd": np.ones((2, 3))}, {"agd": np.ones((2, 3)) / 3})
    >>> [axis.get_ylabel() for axis in figure.axes]
    ['train loss', 'share of the budget spent in the step']
    """
    figure, axes = _panels()
    colours = dict(zip(loss, _COLOURS, strict=False))
    labels = "train loss", "share of the budget spent in the step"
    for axis, curves, label in zip(axes, (loss, share), labels, strict=True):
        ends = {}
        for method, values in curves.items():
            step = 1 + np.arange(values.shape[1])
            mean, std = values.mean(0), values.std(0)
            # A logarithmic axis cannot show zero, so the curve ends with the last run.
            mean = np.where(mean > 0, mean, np.nan)
            if method not in colours:
                axis.plot(step, mean, **_OTHERS)
                continue
            axis.plot(step, mean, label=method, color=colours[method])
            axis.fill_between(
                step, np.maximum(mean - std, mean / 10), mean + std, color=colours[method], alpha=0.2, linewidth=0
            )
            if (finite := np.flatnonzero(np.isfinite(mean))).size:
                ends[method] = (step[finite[-1]], mean[finite[-1]], colours[method])
        axis.set(xscale="log", yscale="log", xlabel="step", ylabel=label)
        _finish(axis, ends)
    return figure


def _finish(axis: "Axes", ends: Mapping[str, tuple[float, float, str]]) -> None:
    """A light grid, no frame on the right, and each line's name at its right end, moved where names would overlap."""
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    axis.get_ylim()  # settles the limits, which `transData` would read as they were before the last line
    at = {
        method: axis.transAxes.inverted().transform(axis.transData.transform((x, y)))[1]
        for method, (x, y, _) in ends.items()
    }
    order = sorted(at, key=at.__getitem__)
    for method, height in zip(order, spread([at[method] for method in order], _LINE_HEIGHT), strict=True):
        x, y, colour = ends[method]
        axis.annotate(
            method,
            (x, y),
            (1.03, height),
            textcoords="axes fraction",
            va="center",
            fontsize="small",
            color=colour,
            # From the middle of the label's left side: from its centre, lines would cross other labels.
            arrowprops={
                "arrowstyle": "-",
                "color": colour,
                "linewidth": 0.5,
                "shrinkA": 0,
                "shrinkB": 2,
                "relpos": (0, 0.5),
            },
        )


def spread(heights: Sequence[float], gap: float) -> list[float]:
    """Ascending heights, moved as little as it takes to keep them `gap` apart.

    Neighbours that are too close become a block, whose middle stays where theirs was.

    >>> [round(float(height), 3) for height in spread([0.1, 0.5, 0.5, 0.9], 0.1)]
    [0.1, 0.45, 0.55, 0.9]
    """
    blocks: list[list[float]] = []  # each: the wanted heights of its members

    def bottom(block: list[float]) -> float:
        return sum(block) / len(block) - gap * (len(block) - 1) / 2

    for height in heights:
        blocks.append([height])
        while len(blocks) > 1 and bottom(blocks[-2]) + gap * len(blocks[-2]) > bottom(blocks[-1]):
            last = blocks.pop()
            blocks[-1] += last
    return [bottom(block) + gap * place for block in blocks for place in range(len(block))]
