"""Gains of a training over its start, in lines of text."""

import itertools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from l2p.checkpoints import checkpoint
from l2p.checkpoints.control import control_of
from l2p.checkpoints.other_tables import ELSEWHERE
from l2p.checkpoints.ranges import interval
from l2p.checkpoints.signal import epsilon_for, log_signal
from l2p.privacy.budget import Budget
from l2p.privacy.rounded import rounded
from l2p.run.protector import Protector
from l2p.tables.own import is_own
from meta_train.config import MetaConfig, OwnConstants
from meta_train.tasks import own_tables

#: Number of rows (for trainings without own tables) and delta for which bands of log(mu N) are shown as epsilons; and
#: the epsilon for which they are shown as numbers of rows.
SHOWN_ROWS, SHOWN_DELTA, SHOWN_EPSILON = 10_000, 1e-6, 1.0


def _are_equal(first: Protector, second: Protector) -> bool:
    """True if two protectors have the same parts and numbers."""
    (leaves, tree), (others, other_tree) = map(jax.tree.flatten, (first, second))
    return tree == other_tree and all(map(np.array_equal, leaves, others))


def gained(path: Path, config: MetaConfig, start: Protector) -> list[str]:
    """Lines for people on the gain of a trained protector over its start, by its card; none if it states none."""
    trained = checkpoint.load(path)
    gains = trained.card["held_out"].get("gains")
    before = config.start.warm_start
    if gains is None or before is None:
        return []
    # Constants alone are judged by another protector than they begin with.
    if not isinstance(config, OwnConstants) and _are_equal(trained.protector, start):
        return [f"{before} was kept: no state of the training scored better on held-out tasks in any band."]
    control = control_of(trained.card)
    tables = [own_tables.find(source) for source in config.tasks.all_sources if is_own(source)]
    rows = int(np.median([table.rows for table in tables])) if tables else SHOWN_ROWS
    lines = [f"excess loss on held-out tasks against {before} (with one standard error):"]
    bands = list(itertools.pairwise(gains["log_signal"]))
    idle = np.array([control is not None and any(a <= low < b for a, b in control.idle) for low, _ in bands])
    for (low, high), mean, error, is_idle in zip(bands, gains["mean"], gains["standard_error"], idle, strict=True):
        if epsilon_for(low, "gdp", Budget(1.0, SHOWN_DELTA), rows) is None:
            continue  # no epsilon is so large for so few rows
        runs = f"; {before} runs here" if is_idle else ""
        lines.append(f"  epsilon {_epsilon(low, rows)} to {_epsilon(high, rows)}: {_change(mean, error)}{runs}")
    lines[1] += f" (for {rows:,} rows at delta {SHOWN_DELTA:g})"
    for source, gain in gains.get("by_source", {}).items():
        if not idle.all():
            mean, error = np.array(gain["mean"])[~idle], np.array(gain["standard_error"])[~idle]
            name = own_tables.find(source).name if is_own(source) else source
            changed = _change(float(mean.mean()), float(np.linalg.norm(error)) / len(error))
            lines.append(f"  {name}, where it runs: {changed}")
    for model, intervals in ({} if control is None else control.idle_for).items():
        ends = [
            _epsilon(low, rows)
            for (low, _), is_idle in zip(bands, idle, strict=True)
            if not is_idle and low in dict(intervals)
        ]
        if ends:
            lines.append(f"  for {model} {before} runs also in what begins at epsilon {', '.join(ends)}")
    lines.append(_made_for(trained.card))
    if control is not None and len(control.idle) == len(gains["mean"]):
        return [*lines, f"{before} is kept everywhere: gains are within two standard errors of none."]
    if tables:
        lines.append(
            f"gains are those on rows of these tables: {ELSEWHERE}, unless l2p compare shows otherwise on a "
            "public table that was left out of --data."
        )
    return lines


def _made_for(card: Mapping[str, Any]) -> str:
    """The range that a protector was made for, in features and rows."""
    ends = card["range"]
    classes = f" and {interval(ends['num_classes'])} classes" if "num_classes" in ends else ""
    budget = Budget(SHOWN_EPSILON, SHOWN_DELTA)
    few, many = (rounded(math.exp(end - log_signal("gdp", budget, 1)), up=False) for end in ends["log_signal"])
    return (
        f"it applies to tables of {interval(ends['num_features'])} features{classes}, with {few} to {many} rows at "
        f"epsilon {SHOWN_EPSILON:g} and delta {SHOWN_DELTA:g}, or as many times fewer as epsilon is larger"
    )


def _epsilon(signal: float, rows: int) -> str:
    epsilon = epsilon_for(signal, "gdp", Budget(1.0, SHOWN_DELTA), rows)
    return "beyond any" if epsilon is None else f"{epsilon:.2g}"


def _change(mean: float, error: float) -> str:
    """A gain in log excess loss as a change of the excess loss.

    >>> _change(0.1, 0.02), _change(-0.01, 0.02)
    ('-9.5 % (1.8)', '+1.0 % (2.0)')
    """
    ratio = float(np.exp(-mean))
    return f"{100 * (ratio - 1):+.1f} % ({100 * ratio * error:.1f})"
