"""Figures of comparisons and of runs. Each returns a matplotlib figure, for `drawing.save` or a notebook.

A figure has at most `MAX_LINES` named lines, each with its own colour and its name at its right end. Other methods are
thin grey lines behind them, whose numbers are in the tables.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from l2p.base import drawing
from l2p.base.drawing import COLOURS, MARKERS, OTHERS, End
from l2p.compare.results import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Beside reference lines.
MAX_LINES = len(COLOURS)
_OTHERS: dict[str, Any] = {"color": OTHERS, "linewidth": 0.8, "zorder": 1}
#: Means that differ by more than this factor are drawn on a logarithmic axis.
_WIDE = 10.0
#: Style of a line that another in front of it would hide, wholly or for most of its points.
_UNDER: dict[str, Any] = {"linewidth": 4.5, "markersize": 7, "alpha": 0.45, "zorder": 1.5}
#: Points that are this near each other, as a share of what the named lines span, look like one.
_ONE_POINT = 0.01
#: Grey lines stretch a panel by at most this share of what the named ones span, at either end.
_STRETCH = 0.5
_MARGIN = 0.05
Table = Mapping[str, Mapping[float, Estimate | None]]


def against_epsilon(
    panels: Mapping[str, Table], labelled: Sequence[str] = (), dashed: Sequence[str] = (), title: str = ""
) -> "Figure":
    """Metrics against epsilon, a panel each, with bands of one standard error.

    Args:
      panels: by the label of a panel's axis, its values by method and epsilon, as `results.by_method` gives them.
      labelled: methods to draw in colours; default the first ones. Beyond `MAX_LINES` they are grey.
      dashed: reference lines, named as well.
      title: table, target and model.

    >>> table = {"agd": {0.1: Estimate(0.7, 0.01), 0.2: Estimate(0.8, 0.01)}}
    >>> [axis.get_ylabel() for axis in against_epsilon({"test loss": table, "train loss": table}).axes]
    ['test loss', 'train loss']
    """
    figure, axes = drawing.panels(len(panels))
    drawing.title(figure, title)
    methods = [method for table in panels.values() for method, cells in table.items() if any(cells.values())]
    methods = list(dict.fromkeys(methods))
    wanted = [method for method in (labelled or methods) if method in methods and method not in dashed]
    for axis, (label, table) in zip(axes, panels.items(), strict=True):
        axis.set(xscale="log", xlabel="epsilon", ylabel=label)
        drawing.name_lines(axis, draw_lines(axis, table, wanted[:MAX_LINES], dashed))
    return figure


def draw_lines(axis: "Axes", table: Table, coloured: Sequence[str], dashed: Sequence[str] = ()) -> dict[str, End]:
    """Draw a panel's methods; returns the ends of those to be named.

    Args:
      axis: the panel, its horizontal axis logarithmic.
      table: values by method and epsilon.
      coloured: methods to name, in the order of the colours.
      dashed: references to name.
    """
    lines = {
        method: {epsilon: estimate for epsilon, estimate in sorted(cells.items()) if estimate}
        for method, cells in table.items()
    }
    lines = {method: estimates for method, estimates in lines.items() if estimates}
    means = {method: [estimate.mean for estimate in estimates.values()] for method, estimates in lines.items()}
    _set_scale(axis, means, coloured, dashed)
    if axis.get_yscale() == "log":  # on which a reference at zero cannot be seen
        means = {method: line for method, line in means.items() if method not in dashed or min(line) > 0}
    named = [method for method in means if method in coloured or method in dashed]
    under = _hidden({method: table[method] for method in coloured if method in table}, axis.get_yscale() == "log")
    for method in (method for method in means if method not in named):
        axis.plot(list(lines[method]), means[method], **_OTHERS)
    ends = {}
    for method in named:
        place = coloured.index(method) if method in coloured else None
        colour = drawing.TEXT if place is None else COLOURS[place]
        style = drawing.REFERENCE if place is None else {"color": colour, "marker": MARKERS[place]}
        style = {"label": method, "markersize": 3.5} | style | (_UNDER if method in under else {})
        errors = np.array([estimate.error for estimate in lines[method].values()])
        drawing.band(axis, list(lines[method]), np.array(means[method]), errors, **style)
        ends[method] = End(max(lines[method]), means[method][-1], colour)
    epsilons = sorted({epsilon for cells in table.values() for epsilon in cells})
    axis.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons], fontsize="small")
    axis.xaxis.minorticks_off()
    return ends


def _set_scale(
    axis: "Axes", means: Mapping[str, Sequence[float]], coloured: Sequence[str], dashed: Sequence[str]
) -> None:
    """A vertical axis that fits the named lines, and the grey ones as far as they do not flatten those."""
    finite = {method: [value for value in line if math.isfinite(value)] for method, line in means.items()}
    ours, references = ([value for method in group for value in finite.get(method, ())] for group in (coloured, dashed))
    drawn = [value for line in finite.values() for value in line]
    if not (ours or drawn):
        return
    is_log = 0 < _WIDE * min(ours or drawn) < max(ours or drawn)
    if is_log:
        axis.set_yscale("log")
        axis.yaxis.set_major_formatter("{x:g}")
    # What is zero or below is off any logarithmic axis.
    visible, inside = (
        np.array([value for value in values if value > 0 or not is_log]) for values in ([*ours, *references], drawn)
    )
    visible = visible if visible.size else inside
    low, high, least, most = (
        np.log(value) if is_log else value for value in (visible.min(), visible.max(), inside.min(), inside.max())
    )
    span = (high - low) or abs(high) or 1.0
    low, high = max(least, low - _STRETCH * span) - _MARGIN * span, min(most, high + _STRETCH * span) + _MARGIN * span
    axis.set_ylim(*(np.exp([low, high]) if is_log else (low, high)))


def _hidden(table: Table, is_log: bool = False) -> set[str]:
    """Lines that look like an earlier one at half of their points or more, on an axis that may be logarithmic.

    >>> line = {0.1: Estimate(0.7, 0.0), 0.2: Estimate(0.8, 0.0)}
    >>> _hidden({"universal": line, "control-universal": line, "agd": {0.1: Estimate(0.9, 0.0)}})
    {'control-universal'}
    """
    means = {
        name: {
            epsilon: math.log(estimate.mean) if is_log else estimate.mean
            for epsilon, estimate in cells.items()
            if estimate
        }
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


def against_step(loss: Mapping[str, np.ndarray], share: Mapping[str, np.ndarray], title: str = "") -> "Figure":
    """Loss after each step and share of the budget spent in it: mean and standard deviation over seeds.

    Args:
      loss: by method, f[S, T].
      share: by method, f[S, T]; 0 once a run has ended.
      title: table, target and model.

    >>> figure = against_step({"agd": np.ones((2, 3))}, {"agd": np.ones((2, 3)) / 3})
    >>> [axis.get_ylabel() for axis in figure.axes]
    ['train loss', 'share of the budget spent in the step']
    """
    figure, axes = drawing.panels(2)
    drawing.title(figure, title)
    colours = dict(zip(loss, COLOURS, strict=False))
    labels = "train loss", "share of the budget spent in the step"
    for axis, curves, label in zip(axes, (loss, share), labels, strict=True):
        axis.set(xscale="log", yscale="log", xlabel="step", ylabel=label)
        ends = {}
        for method, values in curves.items():
            step = 1 + np.arange(values.shape[1])
            mean, std = values.mean(0), values.std(0)
            # A logarithmic axis cannot show zero, so the curve ends with the last run.
            mean = np.where(mean > 0, mean, np.nan)
            if method not in colours:
                axis.plot(step, mean, **_OTHERS)
                continue
            drawing.band(axis, step, mean, std, color=colours[method], label=method)
            if (finite := np.flatnonzero(np.isfinite(mean))).size:
                ends[method] = End(step[finite[-1]], mean[finite[-1]], colours[method])
        drawing.name_lines(axis, ends)
    return figure
