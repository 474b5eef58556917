"""A plot of a meta-training's log, redrawn at every evaluation, to watch a training while it runs."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from l2p.base import drawing
from l2p.base.drawing import COLOURS, End

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Number of outer steps averaged in a smoothed curve, or a tenth of the log if that is less.
SMOOTHED = 50


def read_log(log: Path) -> list[dict]:
    """The lines of a `log.jsonl`; an incomplete last line is left out.

    >>> import tempfile
    >>> log = Path(tempfile.mkdtemp(), "log.jsonl")
    >>> _ = log.write_text('{"step": 0, "score": 1.0}\\n{"step": 1, "sc')
    >>> read_log(log)
    [{'step': 0, 'score': 1.0}]
    """
    lines = []
    for line in log.read_text().splitlines():
        try:
            lines.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return lines


def draw(folder: Path) -> Path:
    """Write `progress.png` next to the `log.jsonl` in a training's folder; returns its path.

    Four panels: the score on training and on held-out tasks; the latter by band of budgets; the norms of meta-gradients
    before clipping; and, where spending is a constraint, its deviation from the target.
    """
    lines = read_log(folder / "log.jsonl")
    evaluated = [line for line in lines if "held_out_score" in line]
    figure, (scores, bands, norms, constraint) = drawing.panels(2, 2, height=3.2)
    drawing.title(figure, f"{folder.name}, {len(lines)} outer steps")
    steps = [line["step"] for line in lines]

    trained, held_out = (_smoothed([line["score"] for line in lines]), [line["held_out_score"] for line in evaluated])
    _draw(scores, steps, {"training tasks, smoothed": trained})
    _draw(scores, [line["step"] for line in evaluated], {"held-out tasks": held_out}, first=1, marker="o")
    scores.set_ylabel("log excess loss")

    by_budget = np.array([line["held_out_score_per_budget"] for line in evaluated])
    for band, values in enumerate(by_budget.T if evaluated else ()):
        share = band / max(by_budget.shape[1] - 1, 1)
        bands.plot([line["step"] for line in evaluated], values, color=COLOURS[0], alpha=0.2 + 0.8 * share)
    bands.set_ylabel("held out, by budget (dark: large)")

    norms.set_yscale("log")
    of_norms = {"median": "gradient_norm", "largest": "largest_gradient_norm"}
    there = {label: name for label, name in of_norms.items() if lines and name in lines[0]}
    _draw(
        norms,
        steps,
        {label: [max(line[name], 1e-12) for line in lines] for label, name in there.items()},
        linewidth=0.5,
    )
    norms.set_ylabel("norm of a task's meta-gradient")

    if lines and "constraint_abs" in lines[0]:
        means = {"mean": "constraint", "mean of absolute values": "constraint_abs"}
        _draw(constraint, steps, {label: _smoothed([line[name] for line in lines]) for label, name in means.items()})
    constraint.set_ylabel("budget spent minus target")
    for panel in (scores, bands, norms, constraint):
        panel.set_xlabel("outer step")
    path = folder / "progress.png"
    figure.savefig(path, dpi=100)
    return path


def _draw(
    panel: "Axes", steps: Sequence[int], lines: Mapping[str, Sequence[float] | np.ndarray], first: int = 0, **style: Any
) -> None:
    """Lines with their names, in colours from the `first` one on."""
    ends = {}
    for colour, (name, values) in zip(COLOURS[first:], lines.items(), strict=False):
        panel.plot(steps, values, color=colour, markersize=3.5, **style)
        if (finite := np.flatnonzero(np.isfinite(values))).size:
            ends[name] = End(steps[finite[-1]], values[finite[-1]], colour)
    drawing.name_lines(panel, ends)


def _smoothed(values: list[float]) -> np.ndarray:
    """Moving average over the last `SMOOTHED` values; NaNs are left out."""
    array, window = np.array(values, float), max(1, min(SMOOTHED, len(values) // 10))
    finite = np.isfinite(array)
    sums, counts = (np.concatenate([[0.0], np.cumsum(part)]) for part in (np.where(finite, array, 0.0), finite))
    end = np.arange(1, len(array) + 1)
    begin = np.maximum(end - window, 0)
    counted = counts[end] - counts[begin]
    return np.where(counted > 0, (sums[end] - sums[begin]) / np.maximum(counted, 1), np.nan)
