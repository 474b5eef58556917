"""Figures of comparisons and of runs. Each returns a matplotlib figure, for `savefig` or a notebook."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from l2p.compare.results import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DASHED: dict[str, Any] = {"linestyle": "--", "color": "gray"}
#: Number of distinguishable colours; more methods reuse them with another marker.
_COLOURS, _MARKERS = 10, "osD^v"
#: Maximum number of methods for a legend inside a panel.
_INSIDE = 8
#: Means that differ by more than this factor are drawn on a logarithmic axis.
_WIDE = 100.0
Table = Mapping[str, Mapping[float, Estimate | None]]


def _panels(height: float = 3.6) -> tuple["Figure", tuple["Axes", "Axes"]]:
    # Imported late, because the command line must not wait for it. `Figure` draws with Agg, without a display or global
    # state.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, height), layout="constrained")
    left, right = figure.subplots(1, 2)
    return figure, (left, right)


def against_epsilon(
    score: Table,
    train_loss: Table,
    dashed: tuple[str, ...] = (),
    apart: tuple[str, ...] = (),
    label: str = "test accuracy",
) -> "Figure":
    """Test metric and train loss against epsilon, with standard errors.

    Args:
      score, train_loss: by method and epsilon, as `results.by_method` gives them.
      dashed: methods drawn as dashed reference lines.
      apart: methods drawn dashed in their own colours, because they use private rows without paying.
      label: what `score` is.

    >>> table = {"agd": {0.1: Estimate(0.7, 0.01), 0.2: Estimate(0.8, 0.01)}}
    >>> len(against_epsilon(table, table).axes)
    2
    """
    figure, axes = _panels()
    methods = [method for method in score if method not in dashed]
    for axis, table, name in zip(axes, (score, train_loss), (label, "train loss"), strict=True):
        drawn = []
        for method, cells in table.items():
            found = {epsilon: estimate for epsilon, estimate in sorted(cells.items()) if estimate}
            if found:
                means, errors = np.array([(estimate.mean, estimate.error) for estimate in found.values()]).T
                style = _DASHED if method in dashed else _coloured(methods.index(method), method in apart)
                drawn.extend(means)
                axis.errorbar(list(found), means, np.nan_to_num(errors), label=method, capsize=2, **style)
        axis.set(xscale="log", xlabel="epsilon", ylabel=name)
        if drawn and 0 < _WIDE * min(drawn) < max(drawn):
            axis.set_yscale("log")
        epsilons = sorted({epsilon for cells in table.values() for epsilon in cells})
        axis.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    _legend(figure, axes[0])
    return figure


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
    labels = "train loss", "share of the budget spent in the step"
    for axis, curves, label in zip(axes, (loss, share), labels, strict=True):
        for method, values in curves.items():
            step = 1 + np.arange(values.shape[1])
            mean, std = values.mean(0), values.std(0)
            # A logarithmic axis cannot show zero, so the curve ends with the last run.
            mean = np.where(mean > 0, mean, np.nan)
            (line,) = axis.plot(step, mean, label=method)
            axis.fill_between(step, np.maximum(mean - std, mean / 10), mean + std, color=line.get_color(), alpha=0.2)
        axis.set(xscale="log", yscale="log", xlabel="step", ylabel=label)
        axis.grid(alpha=0.3)
    _legend(figure, axes[0])
    return figure


def _coloured(index: int, apart: bool) -> dict[str, Any]:
    """Style of the index-th method; dashed if it uses private rows without paying."""
    marker = _MARKERS[index // _COLOURS % len(_MARKERS)]
    return {"color": f"C{index % _COLOURS}", "marker": marker, "markersize": 3, "linestyle": "--" if apart else "-"}


def _legend(figure: "Figure", axis: "Axes") -> None:
    """One legend for both panels: inside the first, or beside them if there are many methods."""
    count = len(axis.get_legend_handles_labels()[0])
    if count > _INSIDE:
        figure.legend(*axis.get_legend_handles_labels(), loc="outside right upper", fontsize="x-small")
    elif count:
        axis.legend()
