"""A plot of a meta-training's log, redrawn at every evaluation, to watch a training while it runs."""

import json
from pathlib import Path

import numpy as np

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
    # Imported here, as in `l2p.compare.figures`.
    from matplotlib.figure import Figure

    lines = read_log(folder / "log.jsonl")
    evaluated = [line for line in lines if "held_out_score" in line]
    steps, evaluated_steps = ([line["step"] for line in part] for part in (lines, evaluated))
    figure = Figure(figsize=(10, 6.5), layout="constrained")
    (scores, bands), (norms, constraint) = figure.subplots(2, 2)

    scores.plot(steps, _smoothed([line["score"] for line in lines]), color="C0", label="training tasks, smoothed")
    scores.plot(
        evaluated_steps, [line["held_out_score"] for line in evaluated], "o-", color="C1", label="held-out tasks"
    )
    scores.set_ylabel("log excess loss")
    scores.legend()

    table = np.array([line["held_out_score_per_budget"] for line in evaluated])
    for band, values in enumerate(table.T if evaluated else ()):
        bands.plot(evaluated_steps, values, color=f"{0.8 - 0.8 * band / max(table.shape[1] - 1, 1):.2f}")
    bands.set_ylabel("held out, by budget (dark: large)")

    for name, label in (("gradient_norm", "median"), ("largest_gradient_norm", "largest")):
        if lines and name in lines[0]:
            norms.semilogy(steps, [max(line[name], 1e-12) for line in lines], linewidth=0.5, label=label)
            norms.legend()
    norms.set_ylabel("norm of a task's meta-gradient")

    if lines and "constraint_abs" in lines[0]:
        constraint.plot(steps, _smoothed([line["constraint"] for line in lines]), label="mean")
        constraint.plot(steps, _smoothed([line["constraint_abs"] for line in lines]), label="mean of absolute values")
        constraint.legend()
    constraint.set_ylabel("budget spent minus target")
    for panel in (scores, bands, norms, constraint):
        panel.set_xlabel("outer step")
    path = folder / "progress.png"
    figure.savefig(path, dpi=100)
    return path


def _smoothed(values: list[float]) -> np.ndarray:
    """Moving average over the last `SMOOTHED` values; NaNs are left out."""
    array, window = np.array(values, float), max(1, min(SMOOTHED, len(values) // 10))
    finite = np.isfinite(array)
    sums, counts = (np.concatenate([[0.0], np.cumsum(part)]) for part in (np.where(finite, array, 0.0), finite))
    end = np.arange(1, len(array) + 1)
    begin = np.maximum(end - window, 0)
    counted = counts[end] - counts[begin]
    return np.where(counted > 0, (sums[end] - sums[begin]) / np.maximum(counted, 1), np.nan)
